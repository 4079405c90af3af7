//! Computes an edit: tries to find the old text with methods from the strictest to the loosest. Pure; `mod` does the
//! I/O.

use super::blanks::{self, Blanks};
use super::correct::{Correction, Reading, plain_margins, readings};
use super::exact::{self, Meaning};
use super::failure::{self, EditFailure};
use super::find::{self, Hit, Line, Tolerance};
use super::fuzzy::{self, Near};
use super::indent::Style;
use super::merge::{self, Parts};
use crate::tools::placeholder;
use crate::workspace::text::{Text, plain_line_ends};
use std::fmt;
use std::ops::Range;

/// The method that found the old text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    Exact,
    Indentation,
    Whitespace,
    Fuzzy,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Indentation => "indentation-tolerant",
            Self::Whitespace => "whitespace-tolerant",
            Self::Fuzzy => "fuzzy",
        })
    }
}

/// An unambiguous edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
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
pub fn land(file: &Text, old: &str, new: &str, multiple: bool) -> Result<Match, EditFailure> {
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
        false => (plain_margins(&old), plain_margins(&new)),
    };
    let attempt = Attempt {
        file,
        multiple,
        lines: find::lines(file.as_str()),
        style: Style::of(file.as_str()),
    };
    let readings = readings(&old, &new);
    let Some((plain, corrected)) = readings.split_first() else {
        return Err(EditFailure::Same);
    };
    let found = attempt.try_all(plain, corrected)?;
    match found {
        Some(landing) if landing.bytes == file.bytes() => Err(EditFailure::Same),
        Some(landing) => Ok(landing),
        None => Err(EditFailure::Nothing {
            closest: failure::closest(file.as_str(), &old),
        }),
    }
}

const TOLERANCES: [Tolerance; 4] = [Tolerance::Ends, Tolerance::Indent, Tolerance::Blanks, Tolerance::Gaps];

struct Attempt<'a> {
    file: &'a Text,
    multiple: bool,
    lines: Vec<Line<'a>>,
    style: Style,
}

type Outcome = Result<Option<Match>, EditFailure>;

impl Attempt<'_> {
    /// Tries the request as written with every method but the fuzzy one; then its corrected variants, method by method;
    /// then the fuzzy method.
    fn try_all(&self, plain: &Reading, corrected: &[Reading]) -> Outcome {
        if let Some(landing) = self.exact(plain)? {
            return Ok(Some(landing));
        }
        for tolerance in TOLERANCES {
            if let Some(landing) = self.tolerant(plain, tolerance)? {
                return Ok(Some(landing));
            }
        }
        for reading in corrected {
            if let Some(landing) = self.exact(reading)? {
                return Ok(Some(landing));
            }
        }
        for tolerance in TOLERANCES {
            for reading in corrected {
                if let Some(landing) = self.tolerant(reading, tolerance)? {
                    return Ok(Some(landing));
                }
            }
        }
        for reading in std::iter::once(plain).chain(corrected) {
            if let Some(landing) = self.near(reading)? {
                return Ok(Some(landing));
            }
        }
        Ok(None)
    }

    fn exact(&self, reading: &Reading) -> Outcome {
        let content = self.file.as_str();
        if reading.old.is_empty() {
            return Ok(None);
        }
        let mut starts: Vec<usize> = if self.multiple {
            content.match_indices(&reading.old).map(|(at, _)| at).collect()
        } else {
            exact::overlapping(content, &reading.old)
        };
        // Text with line numbers comes from a listing, which shows whole lines.
        if reading.corrections.contains(&Correction::LineNumbers) {
            starts.retain(|&at| {
                content
                    .get(..at)
                    .is_some_and(|head| head.is_empty() || head.ends_with('\n'))
            });
        }
        if starts.len() > 1 && !self.multiple {
            return Err(self.many(starts.iter().map(|&at| self.file.line_of(at) - 1)));
        }
        let mut edits = Vec::new();
        let (mut strategy, mut blanks) = (Strategy::Exact, None);
        for at in starts {
            edits.push(
                match exact::meaning(content, self.style, at, &reading.old, &reading.new) {
                    Meaning::Literal => {
                        let hit = at..at + reading.old.len();
                        let text = self.in_blanks_of_file(&hit, reading, &mut blanks)?;
                        strategy = if text == reading.new {
                            strategy
                        } else {
                            Strategy::Indentation
                        };
                        (hit, text)
                    }
                    Meaning::Instead(range, text) => (range, text),
                    Meaning::Shallow => return Ok(None),
                    Meaning::Unclear(why) => {
                        return Err(self.unsure(self.file.line_of(at) - 1, why.to_owned()));
                    }
                },
            );
        }
        self.finish(reading, strategy, edits)
    }

    /// The new text of an exact match. If the new lines are indented with tabs where the file uses spaces, or the
    /// reverse, they are converted.
    fn in_blanks_of_file(
        &self,
        hit: &Range<usize>,
        reading: &Reading,
        known: &mut Option<Blanks>,
    ) -> Result<String, EditFailure> {
        let content = self.file.as_str();
        let head = content.get(..hit.start).unwrap_or_default();
        let tail = content.get(hit.end..).unwrap_or_default();
        let starts = head.is_empty() || head.ends_with('\n');
        if !starts || !(reading.old.ends_with('\n') || tail.is_empty() || tail.starts_with('\n')) {
            return Ok(reading.new.clone());
        }
        // The result is the same for every place.
        match known.get_or_insert_with(|| blanks::judge(&self.lines, &reading.old, &reading.new, self.style)) {
            Blanks::Literal => Ok(reading.new.clone()),
            Blanks::OfFile(text) => Ok(text.clone()),
            Blanks::Doubt(why) => Err(self.unsure(self.file.line_of(hit.start) - 1, why.clone())),
        }
    }

    fn tolerant(&self, reading: &Reading, tolerance: Tolerance) -> Outcome {
        let old: Vec<&str> = reading.old.split_terminator('\n').collect();
        let new: Vec<&str> = reading.new.split_terminator('\n').collect();
        let mut hits = find::whole_lines(&self.lines, &old, tolerance);
        if hits.is_empty() && tolerance != Tolerance::Ends {
            hits = find::parts_of_lines(&self.lines, &old, tolerance);
            if reading.old.ends_with('\n') {
                hits.retain(|hit| self.rest_is_blank(hit));
                // Trailing blanks are part of the last line of `old`, whatever replaces it.
                hits.iter_mut().for_each(|hit| hit.spare = 0);
            }
        }
        if self.multiple {
            let mut next = 0;
            hits.retain(|hit| {
                hit.lines.start >= next && {
                    next = hit.lines.end;
                    true
                }
            });
        } else if hits.len() > 1 {
            return Err(self.many(hits.iter().map(|hit| hit.lines.start)));
        }
        let mut same = true;
        let mut edits = Vec::new();
        for hit in &hits {
            let (range, file) = self.cut_out(hit);
            same &= file == old;
            let parts = Parts {
                file: &file,
                old: &old,
                new: &new,
                cut: hit.skip > 0,
                style: self.style,
            };
            let woven = merge::weave(&parts).map_err(|doubt| self.unsure(hit.lines.start, doubt.to_string()))?;
            edits.push(self.joined(reading, range, &woven));
        }
        let strategy = match tolerance {
            // Only an additional final line end differed.
            Tolerance::Ends | Tolerance::Indent if same => Strategy::Exact,
            Tolerance::Indent => Strategy::Indentation,
            Tolerance::Ends | Tolerance::Blanks | Tolerance::Gaps => Strategy::Whitespace,
        };
        self.finish(reading, strategy, edits)
    }

    fn near(&self, reading: &Reading) -> Outcome {
        let old: Vec<&str> = reading.old.split_terminator('\n').collect();
        let (places, distance) = match fuzzy::nearest(&self.lines, &old) {
            Near::Nothing => return Ok(None),
            Near::Several(lines) => return Err(self.many(lines.into_iter())),
            Near::Other(line) => {
                return Err(self.unsure(
                    line,
                    "the nearest place names other things than the old text".to_owned(),
                ));
            }
            Near::One { lines, distance } => (lines, distance),
        };
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
            return Ok(None);
        };
        let new: Vec<&str> = reading.new.split_terminator('\n').collect();
        let (range, file) = self.cut_out(&Hit {
            lines: first..last + 1,
            skip: 0,
            spare: 0,
        });
        let gaps = super::gaps::level(&old, &new, &file);
        let parts = Parts {
            file: &file,
            old: &gaps.old,
            new: &gaps.new,
            cut: false,
            style: self.style,
        };
        let woven = merge::weave(&parts).map_err(|doubt| self.unsure(first, doubt.to_string()))?;
        if let Some(word) = fuzzy::repeated(self.file.as_str(), &reading.old, &woven) {
            let why = format!("the new text repeats `{word}`, which the file does not have");
            return Err(self.unsure(first, why));
        }
        let strategy = if distance == 0 {
            Strategy::Whitespace
        } else {
            Strategy::Fuzzy
        };
        let edit = self.joined(reading, range, &woven);
        self.finish(reading, strategy, vec![edit])
    }

    /// The range of a match in the text, and the parts of lines in it.
    fn cut_out(&self, hit: &Hit) -> (Range<usize>, Vec<&str>) {
        let lines = self.lines.get(hit.lines.clone()).unwrap_or_default();
        let start = lines.first().map_or(0, |line| line.at + hit.skip);
        let end = lines.last().map_or(0, |line| line.end() - hit.spare);
        let content = self.file.as_str();
        let part = |line: &Line<'_>| content.get(line.at.max(start)..line.end().min(end)).unwrap_or_default();
        (start..end, lines.iter().map(part).collect())
    }

    fn rest_is_blank(&self, hit: &Hit) -> bool {
        let last = hit.lines.end.checked_sub(1).and_then(|index| self.lines.get(index));
        last.is_some_and(|line| {
            line.text
                .get(line.text.len() - hit.spare..)
                .unwrap_or_default()
                .trim()
                .is_empty()
        })
    }

    /// Builds an edit of whole lines. A final line end that both texts have is left out, so that the file's own is
    /// kept.
    fn joined(&self, reading: &Reading, range: Range<usize>, lines: &[String]) -> (Range<usize>, String) {
        let text = lines.join("\n");
        let has_end = self
            .file
            .as_str()
            .get(range.end..)
            .is_some_and(|rest| rest.starts_with('\n'));
        match (reading.old.ends_with('\n'), reading.new.ends_with('\n')) {
            (true, false) if reading.new.is_empty() && has_end => (range.start..range.end + 1, text),
            (false, true) => (range, text + "\n"),
            _ => (range, text),
        }
    }

    fn finish(&self, reading: &Reading, strategy: Strategy, edits: Vec<(Range<usize>, String)>) -> Outcome {
        let Some(first) = edits.first() else {
            return Ok(None);
        };
        let line = self.file.line_of(first.0.start).saturating_sub(1);
        if let Some(doubt) = reading.doubt {
            return Err(self.unsure(line, doubt.to_owned()));
        }
        if reading.old == reading.new {
            return Err(EditFailure::Same);
        }
        let bytes = self
            .file
            .with_replacements(&edits)
            .map_err(|error| self.unsure(line, error.to_string()))?;
        Ok(Some(Match {
            strategy,
            corrections: reading.corrections.clone(),
            edits,
            bytes,
        }))
    }

    fn many(&self, lines: impl Iterator<Item = usize>) -> EditFailure {
        EditFailure::Many {
            lines: lines.map(|line| line + 1).collect(),
        }
    }

    fn unsure(&self, line: usize, why: String) -> EditFailure {
        let last = self.lines.len();
        EditFailure::Unsure {
            line: line + 1,
            why,
            closest: failure::shown(self.file.as_str(), line..(line + 6).min(last)),
        }
    }
}
