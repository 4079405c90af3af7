//! Spells the accents of a request as the file does: composed (`ü` as one character) or decomposed (`u` and a combining
//! mark). Both look the same, and models write only one of them.

use super::tokens::is_word;
use std::collections::HashMap;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The request with the file's own spelling of each word that the file has in one spelling only. Further words of the
/// new text are spelled like the others if the whole file is of one form.
pub(super) fn like_file(file: &str, old: String, new: String) -> (String, String) {
    if file.is_ascii() || old.is_ascii() {
        return (old, new);
    }
    let forms = Forms::of(file);
    let spelled = forms.spell(&old, false);
    if spelled == old {
        return (old, new);
    }
    let new = forms.spell(&new, true);
    (spelled, new)
}

/// The line at which the file has the text in another spelling of its accents; the first is 1.
pub(super) fn line_of(file: &str, text: &str) -> Option<usize> {
    if file.is_ascii() || text.is_ascii() {
        return None;
    }
    let (file, text) = (composed(file), composed(text));
    let before = file.get(..file.find(&text)?)?;
    Some(before.matches('\n').count() + 1)
}

fn composed(text: &str) -> String {
    text.nfc().collect()
}

/// The words of a file that are not ASCII.
struct Forms<'a> {
    /// By composed form: the spelling, or `None` if there are several.
    words: HashMap<String, Option<&'a str>>,
    /// Whether every word with accents is composed, or decomposed.
    all_composed: bool,
    all_decomposed: bool,
}

impl<'a> Forms<'a> {
    fn of(file: &'a str) -> Self {
        let mut forms = Self {
            words: HashMap::new(),
            all_composed: true,
            all_decomposed: true,
        };
        for word in runs(file).into_iter().filter(|run| !run.is_ascii()) {
            let key = composed(word);
            let decomposed: String = word.nfd().collect();
            if key != decomposed {
                forms.all_composed &= word == key;
                forms.all_decomposed &= word == decomposed;
            }
            let known = forms.words.entry(key).or_insert(Some(word));
            if *known != Some(word) {
                *known = None;
            }
        }
        forms
    }

    /// The text in the spelling of the file. `fresh`: also words that the file does not have.
    fn spell(&self, text: &str, fresh: bool) -> String {
        let mut out = String::with_capacity(text.len());
        for run in runs(text) {
            if run.is_ascii() {
                out.push_str(run);
                continue;
            }
            match self.words.get(&composed(run)) {
                Some(Some(own)) => out.push_str(own),
                None if fresh && self.all_decomposed => out.extend(run.nfd()),
                None if fresh && self.all_composed => out.extend(run.nfc()),
                _ => out.push_str(run),
            }
        }
        out
    }
}

/// The text in parts: words with their combining marks, and what is between them.
fn runs(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut before = None;
    for (at, next) in text.char_indices() {
        let word = is_word(next) || is_combining_mark(next);
        if before.is_some_and(|before| before != word) {
            found.push(&text[start..at]);
            start = at;
        }
        before = Some(word);
    }
    found.push(&text[start..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_spelled_as_in_the_file() {
        let (composed, decomposed) = ("M\u{fc}ller", "Mu\u{308}ller");
        for (own, other) in [(composed, decomposed), (decomposed, composed)] {
            let file = format!("s = '{own}'\n");
            let asked = (format!("'{other}'"), format!("'{other}, {other}in'"));
            let expected = (format!("'{own}'"), format!("'{own}, {own}in'"));
            assert_eq!(like_file(&file, asked.0, asked.1), expected);
            assert_eq!(line_of(&format!("x\n{file}"), other), Some(2));
        }
        let both = format!("{composed} {decomposed}\n");
        let asked = (format!("{composed}  x"), String::new());
        assert_eq!(like_file(&both, asked.0.clone(), String::new()), asked);
    }
}
