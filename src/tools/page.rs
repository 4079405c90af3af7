//! Selects a page of a text: a range of lines, limited in number and length, with a notice about the rest. Pure.

use crate::base::quote::counted;
use std::borrow::Cow;

/// Upper limit for the lines of a page.
pub const MAX_LINES: usize = 2_000;

/// Upper limit for the characters of one line.
pub const MAX_LINE: usize = 2_000;

/// A page of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct PagedText {
    /// The lines, with a notice before them unless this is the whole text.
    pub text: String,
    /// First and last line of the page, from 1.
    pub first: usize,
    pub last: usize,
    /// Number of lines of the whole text.
    pub total: usize,
    /// Whether `text` is the whole text, byte for byte.
    pub whole: bool,
}

/// The lines `start` to `end` of `text` (from 1, inclusive), limited to `MAX_LINES` and `room` bytes.
///
/// # Errors
/// The range begins after the end of the text; the message is for the model.
pub fn page(text: &str, start: Option<u64>, end: Option<u64>, room: usize) -> Result<PagedText, String> {
    let total = text.split_terminator('\n').count();
    let first = usize::try_from(start.unwrap_or(1)).unwrap_or(usize::MAX).max(1);
    let end = end.map_or(usize::MAX, |end| usize::try_from(end).unwrap_or(usize::MAX));
    if first > end {
        return Err(format!("`start_line` {first} is greater than `end_line` {end}"));
    }
    if first > total.max(1) {
        return Err(format!(
            "`start_line` {first} is after the end: the text has {}",
            counted(total, "line")
        ));
    }
    let mut shown = String::new();
    let mut last = first - 1;
    let mut shortened = 0;
    for line in text
        .split_inclusive('\n')
        .skip(first - 1)
        .take(MAX_LINES.min(end - first + 1))
    {
        let before = shown.len();
        shortened += usize::from(push(&mut shown, line));
        if shown.len() > room && last >= first {
            shown.truncate(before);
            break;
        }
        last += 1;
    }
    let whole = first == 1 && last == total && shortened == 0;
    if !whole {
        shown.insert_str(0, &notice(first, last, total, shortened, end));
    }
    Ok(PagedText {
        text: shown,
        first,
        last,
        total,
        whole,
    })
}

fn notice(first: usize, last: usize, total: usize, shortened: usize, end: usize) -> String {
    let more = if last < total.min(end) {
        format!(" To go on: start_line {}.", last + 1)
    } else {
        String::new()
    };
    let long = match shortened {
        0 => String::new(),
        n => format!(" Long lines cut at {MAX_LINE} characters: {n}."),
    };
    format!("[Lines {first}-{last} of {total}.{more}{long}]\n")
}

/// Appends a line. Returns whether it was cut.
fn push(shown: &mut String, line: &str) -> bool {
    let Some(body) = cut_line(line.trim_end_matches('\n')) else {
        shown.push_str(line);
        return false;
    };
    shown.push_str(&body);
    if line.ends_with('\n') {
        shown.push('\n');
    }
    true
}

/// The text with every line of more than `MAX_LINE` characters broken into lines of that length, so that pages show all
/// of it, and the number of such lines.
pub fn in_pieces(text: &str) -> (Cow<'_, str>, usize) {
    let long = |line: &&str| line.len() > MAX_LINE && line.chars().nth(MAX_LINE).is_some();
    let count = text.split_terminator('\n').filter(long).count();
    if count == 0 {
        return (Cow::Borrowed(text), 0);
    }
    let mut out = String::with_capacity(text.len() + text.len() / MAX_LINE);
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while let Some((at, _)) = rest.char_indices().nth(MAX_LINE).filter(|(_, next)| *next != '\n') {
            let (piece, after) = rest.split_at(at);
            out.push_str(piece);
            out.push('\n');
            rest = after;
        }
        out.push_str(rest);
    }
    (Cow::Owned(out), count)
}

/// The beginning of a line with more than `MAX_LINE` characters, with a note of how many are missing.
pub fn cut_line(line: &str) -> Option<String> {
    if line.len() <= MAX_LINE {
        return None;
    }
    let (at, _) = line.char_indices().nth(MAX_LINE)?;
    let (start, rest) = line.split_at(at);
    Some(format!("{start}… [{} more characters]", rest.chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(lines: usize) -> String {
        (1..=lines).map(|n| format!("{n}\n")).collect()
    }

    #[test]
    fn a_text_that_fits_is_shown_as_it_is() {
        for text in ["", "a", "a\n", "a\n\n", "\n"] {
            let page = page(text, None, None, 1_000).unwrap();
            assert!(page.whole, "{text:?}");
            assert_eq!(page.text, text);
        }
    }

    #[test]
    fn pages_follow_each_other_without_gap() {
        let text = numbered(5_000);
        let mut seen = String::new();
        let mut start = 1;
        loop {
            let page = page(&text, Some(start), None, 6_000).unwrap();
            let (notice, lines) = page.text.split_once('\n').unwrap();
            seen.push_str(lines);
            assert!(
                notice.starts_with(&format!("[Lines {start}-{} of 5000.", page.last)),
                "{notice}"
            );
            if page.last == 5_000 {
                assert!(!notice.contains("To go on"), "{notice}");
                break;
            }
            assert!(notice.contains(&format!("start_line {}", page.last + 1)), "{notice}");
            start = page.last as u64 + 1;
        }
        assert_eq!(seen, text);
    }

    #[test]
    fn a_range_is_shown_and_said() {
        let text = numbered(10);
        assert_eq!(
            page(&text, Some(3), Some(4), 1_000).unwrap().text,
            "[Lines 3-4 of 10.]\n3\n4\n"
        );
        assert_eq!(
            page(&text, Some(9), Some(40), 1_000).unwrap().text,
            "[Lines 9-10 of 10.]\n9\n10\n"
        );
        assert!(page(&text, Some(1), Some(10), 1_000).unwrap().whole);
        assert!(
            page(&text, Some(11), None, 1_000)
                .unwrap_err()
                .contains("the text has 10 lines")
        );
        assert!(page(&text, Some(4), Some(3), 1_000).is_err());
    }

    #[test]
    fn long_lines_are_broken_without_loss() {
        let line = "é".repeat(2 * MAX_LINE + 1);
        let exact = "a".repeat(MAX_LINE);
        let text = format!("{exact}\n{line}\nend");
        let (broken, count) = in_pieces(&text);
        assert_eq!(count, 1);
        let lengths: Vec<usize> = broken.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lengths, [MAX_LINE, MAX_LINE, MAX_LINE, 1, 3]);
        assert_eq!(broken.replace('\n', ""), text.replace('\n', ""));
        assert!(matches!(in_pieces(&exact), (Cow::Borrowed(_), 0)));
    }

    #[test]
    fn a_long_line_is_cut_and_one_line_is_always_shown() {
        let text = format!("{}\nnext\n", "é".repeat(2_005));
        let page = page(&text, None, None, 10).unwrap();
        assert_eq!((page.first, page.last), (1, 1));
        assert!(page.text.contains("… [5 more characters]\n"), "{}", page.text);
        assert!(
            page.text
                .starts_with("[Lines 1-1 of 2. To go on: start_line 2. Long lines cut at 2000 characters: 1.]\n")
        );
    }
}
