//! Infers the indentation of a new line from the lines around it, if `old_string` is indented less than the file.

use super::indent;
use super::merge::Parts;

/// Whether the line opens a block.
pub(super) fn opens(line: &str) -> bool {
    line.trim_end().ends_with(['{', '(', '[', ':'])
}

/// Whether the line begins with the end of a block.
pub(super) fn closes(line: &str) -> bool {
    line.trim_start().starts_with(['}', ')', ']'])
}

/// Whether a statement continues from one line to the next.
fn goes_on(line: &str, next: &str) -> bool {
    let line = line.trim_end();
    let open_end = line.ends_with(['=', '+', '\\', '|', '&', '.', '?']) || line.ends_with("->");
    open_end
        || next
            .trim_start()
            .starts_with(['.', '?', '+', '&', '|', '=', '<', '>', '*', '/', '-'])
}

/// Whether the line closes as many brackets as it opens.
pub(super) fn is_balanced(line: &str) -> bool {
    let count = |signs: [char; 3]| line.chars().filter(|c| signs.contains(c)).count();
    count(['(', '[', '{']) == count([')', ']', '}'])
}

/// An aligned line: its position in the new and the old text, and its indentation in the old text and in the file.
#[derive(Clone, Copy)]
struct Known<'a> {
    new: usize,
    old: usize,
    depths: (&'a str, &'a str),
}

/// The indentation in the file for the new line at `index`, which is not aligned. `None` if the aligned lines around it
/// are ambiguous.
pub(super) fn depth<'a>(index: usize, parts: &Parts<'a>, partners: &[Option<usize>]) -> Option<&'a str> {
    let depths = |old: usize| Some((indent::of(parts.old.get(old)?), indent::of(parts.file.get(old)?)));
    let known = |new: usize| {
        let old = partners.get(new).copied().flatten()?;
        let depths = depths(old)?;
        Some(Known { new, old, depths })
    };
    let solid = |line: &&&str| !line.trim().is_empty();
    let before = (0..index).rev().find_map(known)?;
    let after = (index + 1..parts.new.len()).find_map(known)?;
    let asked = indent::of(parts.new.get(index)?);
    let gone: Vec<(&str, &str)> = (before.old + 1..after.old)
        .filter(|&old| parts.old.get(old).is_some_and(|line| !line.trim().is_empty()))
        .filter_map(depths)
        .collect();
    let came = parts.new.get(before.new..=after.new)?;
    let came: Vec<&str> = came.iter().filter(solid).copied().collect();
    let inner = came.get(1..came.len().saturating_sub(1))?;
    let (head, tail) = (*came.first()?, *came.last()?);
    let broken = came
        .windows(2)
        .any(|pair| pair.first().zip(pair.last()).is_some_and(|(a, b)| goes_on(a, b)));
    if broken
        || inner
            .iter()
            .any(|line| opens(line) || !is_balanced(line) || indent::of(line) != asked)
    {
        return None;
    }
    let found = if opens(head) && closes(tail) {
        // All lines that stood between them had the same indentation.
        let one = *gone.first()?;
        gone.iter().all(|depth| *depth == one).then_some(one)
    } else if opens(head) {
        // It replaces the first lines of a block, which had the same indentation as the next line.
        let level = |depth: &(&str, &str)| *depth == after.depths;
        let deeper = after.depths.1.len() > before.depths.1.len();
        (deeper && !gone.is_empty() && gone.iter().all(level)).then_some(after.depths)
    } else if before.depths == after.depths && is_balanced(head) || closes(tail) && !gone.is_empty() {
        let level = |depth: &(&str, &str)| *depth == before.depths;
        (gone.iter().all(level) && after.depths.1.len() <= before.depths.1.len()).then_some(before.depths)
    } else {
        None
    }?;
    (found.0 == asked).then_some(found.1)
}

#[cfg(test)]
mod tests {
    use super::super::indent::Style;
    use super::super::merge::align;
    use super::*;

    fn deep(file: &[&str], new: &[&str], index: usize) -> Option<usize> {
        let old: Vec<&str> = file.iter().map(|line| line.trim()).collect();
        let style = Style::of("");
        let parts = Parts {
            file,
            old: &old,
            new,
            cut: false,
            style,
        };
        depth(index, &parts, &align(&old, new)).map(str::len)
    }

    #[test]
    fn one_answer_is_given_and_of_two_none() {
        let file = ["f(", "    a,", "    b,", ");", "g();"];
        assert_eq!(deep(&file, &["f(", "x,", "y,", "z,", ");", "g();"], 2), Some(4));
        assert_eq!(deep(&file, &["f(", "x(", "y", ")", ");", "g();"], 2), None);
        assert_eq!(
            deep(&["a();", "b();", "    c();"], &["a();", "x();", "b();", "c();"], 1),
            Some(0)
        );
        // Next to a line that opens a block, it is ambiguous whether the new line belongs to the block.
        assert_eq!(
            deep(&["if a {", "    b();", "}"], &["if a {", "x();", "b();", "}"], 1),
            None
        );
        assert_eq!(deep(&["    b();", "}"], &["b();", "x();", "}"], 1), None);
        assert_eq!(deep(&["a =", "    b"], &["a =", "x", "b"], 1), None);
    }
}
