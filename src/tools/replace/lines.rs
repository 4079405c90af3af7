//! What a line shows by itself: its indentation, and whether it opens or closes a block; and how a file indents its
//! lines.

/// The indentation style of a file: its character and step width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) blank: char,
    pub(super) step: i64,
}

impl Style {
    /// Detected from lines that are indented more than the line before; four spaces if there are none.
    pub(super) fn of(text: &str) -> Self {
        let mut tabs = 0;
        let mut steps = [0_usize; 9];
        let mut before = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let indent = indent_of(line);
            tabs += usize::from(indent.starts_with('\t'));
            let width = if indent.starts_with('\t') { 0 } else { indent.len() };
            if let Some(count) = steps.get_mut(width.saturating_sub(before)) {
                *count += 1;
            }
            before = width;
        }
        // A single blank is the margin of a comment.
        if tabs > steps[2..].iter().sum() {
            return Self { blank: '\t', step: 1 };
        }
        let most = steps
            .iter()
            .zip(0..)
            .skip(2)
            .max_by_key(|(count, step)| (**count, -*step));
        let step = most.filter(|(count, _)| **count > 0).map_or(4, |(_, step)| step);
        Self { blank: ' ', step }
    }
}

/// The leading spaces and tabs of a line.
pub(super) fn indent_of(line: &str) -> &str {
    let end = line.find(|c| c != ' ' && c != '\t').unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

/// Whether the line opens a block.
pub(super) fn opens(line: &str) -> bool {
    line.trim_end().ends_with(['{', '(', '[', ':'])
}

/// Whether the line begins with the end of a block.
pub(super) fn closes(line: &str) -> bool {
    line.trim_start().starts_with(['}', ')', ']'])
}

/// Whether the line closes as many brackets as it opens.
pub(super) fn is_balanced(line: &str) -> bool {
    let count = |signs: [char; 3]| line.chars().filter(|c| signs.contains(c)).count();
    count(['(', '[', '{']) == count([')', ']', '}'])
}
