//! JSON Lines with source positions, and the problem for a text that is not JSON. Pure.

use super::diagnostic::Diagnostic;
use super::source::{SourceFiles, SourceId, Span};

/// The lines of a file that are not blank, without their line ends, and where each was written.
pub fn json_lines(files: &SourceFiles, file: SourceId) -> impl Iterator<Item = (Span, &str)> {
    let mut next = 0;
    let lines = files.text(file).split_inclusive('\n').map(move |line| {
        let content = line.trim_end_matches(['\n', '\r']);
        let start = next;
        next += line.len();
        let end = start + content.len();
        (Span { file, start, end }, content)
    });
    lines.filter(|(_, content)| !content.trim().is_empty())
}

/// The problem for `text`, which was read from the place `within` and is not JSON.
pub fn not_json(within: Span, text: &str, error: &serde_json::Error) -> Diagnostic {
    let line = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum::<usize>();
    let mut at = (line + error.column().saturating_sub(1)).min(text.len());
    // The parser counts bytes.
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let place = Span {
        start: within.start + at,
        end: within.start + at,
        ..within
    };
    let message = error.to_string();
    // The place is shown by its span.
    let message = message.split(" at line ").next().unwrap_or_default().to_owned();
    Diagnostic::error("not-json", place, message)
}
