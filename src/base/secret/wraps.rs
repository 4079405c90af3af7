//! Removes the line breaks of a text, and maps positions back to the original.

use super::offset_map::OffsetMap;
use std::ops::Range;

/// What is removed together with a line break: blanks after it and backslashes before it may belong to the wrapping or
/// to the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breaks {
    /// Only the break; of a written `\\n` only these two characters.
    Bare,
    /// Also the blanks after it.
    Indented,
    /// The blanks, and all backslashes before it.
    Escaped,
}

impl Breaks {
    /// All variants, in the order of how much they remove.
    pub const ALL: [Breaks; 3] = [Breaks::Bare, Breaks::Indented, Breaks::Escaped];

    /// The variants that give different results for this text: most texts have no blanks after a break, or no
    /// backslash.
    pub fn of(text: &[u8]) -> impl Iterator<Item = Breaks> {
        let slashes = memchr::memchr(b'\\', text).is_some();
        // Also after a written break, which has backslashes.
        let blanks = slashes
            || memchr::memchr2_iter(b'\n', b'\r', text).any(|at| matches!(text.get(at + 1), Some(b' ' | b'\t')));
        let differs = move |breaks: &Breaks| match breaks {
            Breaks::Bare => true,
            Breaks::Indented => blanks,
            Breaks::Escaped => slashes,
        };
        Self::ALL.into_iter().filter(differs)
    }
}

/// Text without line breaks.
#[derive(Default)]
pub(super) struct Joined {
    pub bytes: Vec<u8>,
    offset_map: OffsetMap,
}

impl Joined {
    /// Like [`join`], reusing the memory of the previous text.
    pub fn join(&mut self, text: &[u8], breaks: Breaks) {
        self.bytes.clear();
        self.bytes.reserve(text.len());
        self.offset_map.clear();
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let plain = memchr::memchr3(b'\n', b'\r', b'\\', rest).unwrap_or(rest.len());
            let (plain, rest) = rest.split_at(plain);
            self.bytes.extend_from_slice(plain);
            at += plain.len();
            let length = break_at(rest, breaks);
            if length == 0 {
                // A backslash that is no part of a break.
                self.bytes.extend(rest.first());
                at += 1;
                continue;
            }
            at += length;
            while breaks != Breaks::Bare && matches!(text.get(at), Some(b' ' | b'\t')) {
                at += 1;
            }
            self.offset_map.push(self.bytes.len(), at);
        }
    }

    /// The source range of a range of the joined text, including the breaks in it.
    pub fn source(&self, joined: Range<usize>) -> Range<usize> {
        let last = joined.end.saturating_sub(1).max(joined.start);
        self.offset_map.place(joined.start)..self.offset_map.place(last) + 1
    }
}

/// Whether there is a line break, either real or written as `\n`.
pub(super) fn has_break(text: &[u8]) -> bool {
    let real = memchr::memchr2(b'\n', b'\r', text).is_some();
    real || memchr::memchr_iter(b'\\', text).any(|at| matches!(text.get(at + 1), Some(b'n' | b'r')))
}

/// Removes every line break.
///
/// Breaks are newline, CR LF, CR, and the same written as `\n`, `\r\n` (also `\\n`, as in JSON within JSON).
pub(super) fn join(text: &[u8], breaks: Breaks) -> Joined {
    let mut joined = Joined::default();
    joined.join(text, breaks);
    joined
}

/// The length of the break at the start of `rest`; 0 if there is none.
fn break_at(rest: &[u8], breaks: Breaks) -> usize {
    match rest {
        [b'\r', b'\n', ..] => 2,
        [b'\n' | b'\r', ..] => 1,
        [b'\\', b'n' | b'r', ..] => 2,
        [b'\\', ..] if breaks == Breaks::Escaped => {
            let count = rest.iter().take_while(|byte| **byte == b'\\').count();
            match rest.get(count) {
                Some(b'n' | b'r' | b'\n' | b'\r') => count + 1,
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// Where a text may end if its last bytes are the beginning of a break: at its end, and before trailing backslashes.
pub(super) fn possible_ends(joined: &[u8]) -> Vec<usize> {
    let slashes = joined.iter().rev().take_while(|byte| **byte == b'\\').count();
    let mut ends = vec![joined.len()];
    if slashes > 0 {
        ends.push(joined.len() - slashes);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_go_and_places_stay() {
        let text = b"ab\r\n  cd\\nef\\\ngh\\\\r\\\\nij k";
        let joined = join(text, Breaks::Escaped);
        assert_eq!(joined.bytes, b"abcdefghij k");
        assert_eq!(&text[joined.source(1..3)], b"b\r\n  c");
        assert_eq!(&text[joined.source(4..6)], b"ef");
        assert_eq!(&text[joined.source(6..10)], b"gh\\\\r\\\\nij");
        assert_eq!(join(b"\\u00\\\nu01\\\\nu02", Breaks::Bare).bytes, b"\\u00\\u01\\u02");
        assert!(has_break(text) && !has_break(b"a\\tb"));
    }
}
