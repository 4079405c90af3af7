//! Cuts text in which a secret may stand: redacts it first, because half of a secret is not found any more.
//!
//! Text from outside (answers of services and servers, words of commands, contents of files) is cut through these, where no
//! redactor is at hand. They use the redactor of this process, which knows more secrets once the recipe is read.

use super::{MAX_HELD, Redactor};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

static REDACTOR: OnceLock<fn() -> Arc<Redactor>> = OnceLock::new();

/// A secret of every process that runs unit tests.
#[cfg(test)]
const TESTED: &str = "tk-9Qw2Zr8Lm4Xv0Bn7Ys3Dc5Hf6";

/// Sets where the redactor of this process comes from. Must be called once, early; without a call nothing is redacted
/// here.
pub fn use_redactor(current: fn() -> Arc<Redactor>) {
    // A second call comes from the same program.
    let _ = REDACTOR.set(current);
}

#[cfg(not(test))]
fn of_process() -> Arc<Redactor> {
    REDACTOR.get().map_or_else(Arc::default, |current| current())
}

#[cfg(test)]
fn of_process() -> Arc<Redactor> {
    let tested = || Arc::new(Redactor::with_values(vec![("TESTED".to_owned(), TESTED.to_owned())]));
    REDACTOR.get().map_or_else(tested, |current| current())
}

/// `text`, or its first `most` characters and `…`, with secrets redacted before the cut.
pub fn shortened(text: &str, most: usize) -> String {
    let is_short = text.len() <= most || text.char_indices().nth(most).is_none();
    if is_short {
        return text.to_owned();
    }
    let safe = start(text, most.saturating_mul(4));
    match safe.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", safe.get(..end).unwrap_or_default()),
        None => safe.into_owned(),
    }
}

/// The last line of `text` that is not blank, trimmed, and cut by [`shortened`] to at most `most` characters.
pub fn last_line(text: &str, most: usize) -> Option<String> {
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(shortened(line.trim(), most))
}

/// The beginning of `text` with secrets redacted, for a caller that shows at most `bytes` of it: all of it, or a start
/// that is longer than that and does not end within a secret.
pub fn start(text: &str, bytes: usize) -> Cow<'_, str> {
    of_process().start(text, bytes)
}

/// `bytes` if they are fewer than `most`; else the first `most` of them with secrets redacted and without an end that may
/// be the beginning of one.
pub fn bounded(mut bytes: Vec<u8>, most: usize) -> Vec<u8> {
    if bytes.len() < most {
        return bytes;
    }
    bytes.truncate(most);
    of_process().stream().push(&bytes)
}

impl Redactor {
    /// As [`start`], with the secrets of this redactor.
    pub fn start<'a>(&self, text: &'a str, bytes: usize) -> Cow<'a, str> {
        // A stream holds back at most `MAX_HELD` bytes, so that more than `bytes` are left.
        let end = text.floor_char_boundary(bytes.saturating_add(2 * MAX_HELD));
        let Some(looked) = text.get(..end).filter(|looked| looked.len() < text.len()) else {
            return self.redact(text);
        };
        let safe = self.stream().push(looked.as_bytes());
        Cow::Owned(String::from_utf8_lossy(&safe).into_owned())
    }
}

/// Whether six characters of the secret stand in `text`.
#[cfg(test)]
fn tells(text: &str) -> bool {
    (0..=TESTED.len() - 6).any(|at| text.contains(&TESTED[at..at + 6]))
}

/// Checks that `cut`, which keeps about `most` characters of a text, leaves no part of a secret wherever it stands.
#[cfg(test)]
pub fn check_cut(most: usize, cut: impl Fn(&str) -> String) {
    for before in most.saturating_sub(TESTED.len() + 8)..most + 8 {
        let text = format!("{}{TESTED}{}", "x".repeat(before), " and more".repeat(100));
        let left = cut(&text);
        assert!(!tells(&left), "a secret after {before} characters: {left}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cut_leaves_a_part_of_a_secret() {
        for most in [40, 120, 200, 300, 2_000] {
            check_cut(most, |text| {
                let cut = shortened(text, most);
                assert_eq!(cut.chars().count(), most + 1);
                cut
            });
        }
        assert_eq!(shortened("äö", 2), "äö");
        assert_eq!(shortened("äöü", 2), "äö…");
    }

    #[test]
    fn a_long_text_ends_before_a_secret_that_goes_on() {
        const BYTES: usize = 100;
        let end = BYTES + 2 * MAX_HELD;
        for before in (end - TESTED.len()..=end).step_by(4) {
            let text = format!("{}{TESTED}{}", ".".repeat(before), ".".repeat(MAX_HELD));
            let safe = start(&text, BYTES);
            assert!(!tells(&safe) && safe.len() > BYTES, "{before}: {}", safe.len());
        }
    }

    #[test]
    fn bytes_end_before_a_secret_that_goes_on() {
        for before in 950..=1_000 {
            let text = format!("{}{TESTED} and more, so that it is cut in any case", ".".repeat(before));
            let safe = String::from_utf8(bounded(text.into_bytes(), 1_000)).unwrap();
            assert!(!tells(&safe), "{before}: {safe}");
        }
        assert_eq!(bounded(b"abc".to_vec(), 4), b"abc");
    }
}
