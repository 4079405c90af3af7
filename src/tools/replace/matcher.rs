//! Computes an edit: tries to find the old text with methods from the strictest to the loosest. Pure; `mod` does the
//! I/O.

use super::accents;
use super::correct::{Correction, Reading, plain_margins, readings};
use super::exact::{self, Lines, Meaning};
use super::failure::{self, EditFailure};
use super::find::{Hit, Strategy, Tokens};
use super::merge;
use super::parts::{Doubt, Parts};
use super::tokens::{repeated, tokens};
use crate::tools::placeholder;
use crate::tools::write_file::MAX_WRITE;
use crate::workspace::text::{Text, plain_line_ends};
use std::cell::OnceCell;
use std::ops::Range;

/// An unambiguous edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEdit {
    pub strategy: Strategy,
    pub corrections: Vec<Correction>,
    /// Ranges of [`Text::as_str`] in ascending order, with their replacements.
    pub edits: Vec<(Range<usize>, String)>,
    /// The file's new bytes.
    pub bytes: Vec<u8>,
}

/// Finds `old` in the file and computes the new bytes. Bytes outside the matched places do not change.
///
/// # Errors
/// The place or the new text is ambiguous; nothing is guessed.
pub fn find_edit(file: &Text, old: &str, new: &str, multiple: bool) -> Result<FoundEdit, EditFailure> {
    let unmarked = |text: &str| plain_line_ends(text.strip_prefix('\u{feff}').unwrap_or(text));
    let (old, new) = (unmarked(old), unmarked(new));
    if old == new {
        return Err(EditFailure::Same);
    }
    if let Some(line) = placeholder::first(&new, &old) {
        return Err(EditFailure::Placeholder(line.to_owned()));
    }
    let (old, new) = match file.as_str().contains(&old) {
        true => (old, new),
        false => accents::like_file(file.as_str(), plain_margins(&old), plain_margins(&new)),
    };
    let attempt = Attempt {
        file,
        multiple,
        tokens: OnceCell::new(),
        lines: Lines::of(file),
    };
    let readings = readings(&old, &new);
    let found = attempt.try_all(&readings)?;
    match found {
        Some(found_edit) if found_edit.bytes == file.bytes() => Err(EditFailure::Same),
        Some(found_edit) => Ok(found_edit),
        None => match accents::line_of(file.as_str(), &old) {
            Some(line) => Err(EditFailure::Unsure {
                line,
                why: ACCENTS.to_owned(),
                closest: failure::shown(file.as_str(), line - 1..line + 5),
            }),
            None => Err(EditFailure::Nothing {
                closest: failure::closest(file.as_str(), &old),
            }),
        },
    }
}

/// Why a text is not found that looks like one of the file.
const ACCENTS: &str = "its accents are spelled with other characters (composed, or decomposed into a letter and a combining mark), and the file has \
    words in both spellings, so that it is unclear which is meant: give a part without accents, or rewrite the line by other means";

struct Attempt<'a> {
    file: &'a Text,
    multiple: bool,
    tokens: OnceCell<Tokens<'a>>,
    lines: Lines<'a>,
}

type Method<'x> = &'x dyn Fn(&Reading) -> Outcome;
type Outcome = Result<Option<FoundEdit>, EditFailure>;

impl<'a> Attempt<'a> {
    /// Tries the request as written with every method but the loosest two; then its corrected variants, method by
    /// method; then other line breaks and other spelling.
    fn try_all(&self, readings: &[Reading]) -> Outcome {
        let (plain, corrected) = readings.split_at(1);
        let exact = |reading: &Reading| self.exact(reading);
        let places = |reading: &Reading| self.found(reading, Tokens::places);
        let rewrapped = |reading: &Reading| self.found(reading, Tokens::rewrapped);
        let misspelt = |reading: &Reading| self.found(reading, Tokens::misspelt);
        let methods: [(&[Reading], Method<'_>); 6] = [
            (plain, &exact),
            (plain, &places),
            (corrected, &exact),
            (corrected, &places),
            (readings, &rewrapped),
            (readings, &misspelt),
        ];
        for (readings, method) in methods {
            for reading in readings {
                if let Some(found_edit) = method(reading)? {
                    return Ok(Some(found_edit));
                }
            }
        }
        Ok(None)
    }

    fn tokens(&self) -> &Tokens<'a> {
        self.tokens.get_or_init(|| Tokens::of(self.file.as_str()))
    }

    fn exact(&self, reading: &Reading) -> Outcome {
        if reading.old.is_empty() {
            return Ok(None);
        }
        let starts = self.starts(reading);
        if starts.len() > 1 && !self.multiple {
            return Err(self.many(starts.iter()));
        }
        refuse_growth(starts.len(), &reading.old, &reading.new)?;
        let mut edits = Vec::new();
        let mut strategy = Strategy::Exact;
        for at in starts {
            match exact::meaning(&self.lines, at, &reading.old, &reading.new) {
                Meaning::Literal => edits.push((at..at + reading.old.len(), reading.new.clone())),
                Meaning::Instead(range, text) => {
                    strategy = Strategy::Indentation;
                    edits.push((range, text));
                }
                Meaning::Shallow => return Ok(None),
                Meaning::Unclear(why) => return Err(self.unsure(at, why)),
            }
        }
        self.finish(reading, strategy, edits)
    }

    /// Where the file has exactly the old text.
    fn starts(&self, reading: &Reading) -> Vec<usize> {
        let content = self.file.as_str();
        // Text with line numbers comes from a listing, which shows whole lines.
        let whole = reading.corrections.contains(&Correction::LineNumbers);
        if !self.multiple {
            return match whole {
                true => exact::at_line_starts(content, &reading.old),
                false => exact::overlapping(content, &reading.old),
            };
        }
        let all = content.match_indices(&reading.old).map(|(at, _)| at);
        all.filter(|at| !whole || self.begins_line(*at)).collect()
    }

    /// Edits the places that a search finds, those that differ least from the request.
    fn found(&self, reading: &Reading, search: impl Fn(&Tokens<'a>, &str) -> Vec<Hit>) -> Outcome {
        let content = self.file.as_str();
        let (old, new) = trimmed(&reading.old, &reading.new);
        let mut hits = search(self.tokens(), old);
        if self.tokens().is_over_limit() {
            return Err(EditFailure::Costly);
        }
        let Some(best) = hits.iter().map(|hit| (hit.strategy, hit.part)).min() else {
            return Ok(None);
        };
        hits.retain(|hit| best == (hit.strategy, hit.part));
        if !self.multiple && hits.len() > 1 {
            return Err(self.many(hits.iter().map(|hit| &hit.range.start)));
        }
        refuse_growth(hits.len(), old, new)?;
        let mut edits = Vec::new();
        for hit in &hits {
            let at = hit.range.start;
            if hit.pairs.other {
                let why = "the nearest place has other names, numbers or punctuation than the old text";
                return Err(self.unsure(at, why.to_owned()));
            }
            let file = &content[hit.range.clone()];
            let merged_lines = self
                .merged_lines(hit, old, new, file)
                .map_err(|doubt| self.unsure(at, doubt.to_string()))?;
            if let Some(word) = repeated(&self.tokens().words, &tokens(old), &merged_lines) {
                let why = format!("the new text repeats `{word}`, which the file does not have");
                return Err(self.unsure(at, why));
            }
            edits.push(self.joined((old, new), hit.range.clone(), &merged_lines));
        }
        self.finish(reading, best.0, edits)
    }

    /// The lines that replace a place.
    fn merged_lines(&self, hit: &Hit, old: &str, new: &str, file: &str) -> Result<Vec<String>, Doubt> {
        let (old, new) = match hit.strategy {
            Strategy::LineBreaks | Strategy::Fuzzy => merge::like_file(old, new, file, hit)?,
            _ => (old.to_owned(), new.to_owned()),
        };
        let file: Vec<&str> = file.split('\n').collect();
        let old: Vec<&str> = old.split_terminator('\n').collect();
        let new: Vec<&str> = new.split_terminator('\n').collect();
        merge::merge_lines(&Parts {
            file: &file,
            old: &old,
            new: &new,
            cut: !self.begins_line(hit.range.start),
            style: self.lines.style,
        })
    }

    fn begins_line(&self, at: usize) -> bool {
        at == 0 || self.file.as_str()[..at].ends_with('\n')
    }

    /// Builds an edit of whole lines. A final line end that both texts have is left out, so that the file's own is
    /// kept.
    fn joined(&self, (old, new): (&str, &str), range: Range<usize>, lines: &[String]) -> (Range<usize>, String) {
        let text = lines.join("\n");
        let has_end = self.file.as_str()[range.end..].starts_with('\n');
        match (old.ends_with('\n'), new.ends_with('\n')) {
            (true, false) if new.is_empty() && has_end => (range.start..range.end + 1, text),
            (false, true) => (range, text + "\n"),
            _ => (range, text),
        }
    }

    fn finish(&self, reading: &Reading, strategy: Strategy, edits: Vec<(Range<usize>, String)>) -> Outcome {
        let Some(&(Range { start, .. }, _)) = edits.first() else {
            return Ok(None);
        };
        if let Some(doubt) = reading.doubt {
            return Err(self.unsure(start, doubt.to_owned()));
        }
        if reading.old == reading.new {
            return Err(EditFailure::Same);
        }
        let bytes = self
            .file
            .with_replacements(&edits)
            .map_err(|error| self.unsure(start, error.to_string()))?;
        Ok(Some(FoundEdit {
            strategy,
            corrections: reading.corrections.clone(),
            edits,
            bytes,
        }))
    }

    fn many<'x>(&self, places: impl Iterator<Item = &'x usize>) -> EditFailure {
        let lines = places.map(|at| self.file.line_of(*at)).collect();
        EditFailure::Many { lines }
    }

    fn unsure(&self, at: usize, why: String) -> EditFailure {
        let line = self.file.line_of(at);
        let closest = failure::shown(self.file.as_str(), line - 1..line + 5);
        EditFailure::Unsure { line, why, closest }
    }
}

/// Refuses an edit that would add more than one call may write, before the text is built.
fn refuse_growth(places: usize, old: &str, new: &str) -> Result<(), EditFailure> {
    let bytes = places.saturating_mul(new.len().saturating_sub(old.len()));
    match bytes > MAX_WRITE {
        true => Err(EditFailure::Large { bytes }),
        false => Ok(()),
    }
}

/// A request without the blank lines at the start and end of `old`; up to as many are removed from `new`.
fn trimmed<'x>(old: &'x str, new: &'x str) -> (&'x str, &'x str) {
    let blank = |line: &&str| line.trim().is_empty();
    let heads = |text: &'x str| text.split_inclusive('\n').take_while(blank).count();
    let tails = |text: &'x str| text.split_inclusive('\n').rev().take_while(blank).count();
    let cut = |text: &'x str, head: usize, tail: usize| {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let length = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
        let end = lines.len().saturating_sub(tail).max(head);
        &text[length(&lines[..head])..length(&lines[..end])]
    };
    let (head, tail) = (heads(old), tails(old));
    (
        cut(old, head, tail),
        cut(new, head.min(heads(new)), tail.min(tails(new))),
    )
}
