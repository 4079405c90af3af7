//! The parts of a word, and the look-ups that find where a part ends.

use super::CommandRefusal;

/// A part of a word.
#[derive(Clone, Debug, PartialEq)]
pub enum Unit {
    Char {
        value: char,
        quoted: bool,
    },
    /// An empty pair of quotes: the word exists even if it contains nothing else.
    Nothing,
    /// `$name`, and the accepted forms of `${name…}`.
    Param {
        name: String,
    },
    /// `$(text)`.
    Substitution {
        text: String,
    },
    /// An expansion whose value only the shell knows: `$?`, arithmetic, or one of the above after it was checked.
    Expansion,
}

/// The variable's name that begins at `at`.
pub fn name_at(chars: &[char], at: usize) -> String {
    chars[at..]
        .iter()
        .take_while(|next| **next == '_' || next.is_ascii_alphanumeric())
        .collect()
}

/// Whether `text` is a valid name of a shell variable.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
        && text.chars().all(|next| next == '_' || next.is_ascii_alphanumeric())
}

/// The index of the next `wanted`.
///
/// # Errors
/// `parse_error` if there is none.
pub fn find(chars: &[char], start: usize, wanted: char) -> Result<usize, CommandRefusal> {
    chars[start.min(chars.len())..]
        .iter()
        .position(|&next| next == wanted)
        .map(|found| start + found)
        .ok_or_else(unbalanced)
}

/// The refusal of a text that ends inside quotes or brackets.
pub fn unbalanced() -> CommandRefusal {
    CommandRefusal::new("parse_error", "a quote or bracket is not closed", "close it")
}
