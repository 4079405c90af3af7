//! Replaces ranges of a decoded file and returns the new bytes; all other bytes are preserved.

use super::encoding::{self, TextEncoding, Unrepresentable};
use super::{LineEnd, Text, plain_line_ends};
use similar::{Algorithm, DiffTag, capture_diff, capture_diff_slices};
use std::ops::Range;

/// Upper limit in lines for a line diff of a replaced part; a larger part is compared only by its common prefix and
/// suffix.
const DIFF_LINES: usize = 6_000;

/// Why text could not be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    #[error(transparent)]
    Unrepresentable(#[from] Unrepresentable),
    /// Ranges overlap, are out of order, or split a character.
    #[error("the parts to replace overlap or are not in the text")]
    BadRange,
}

/// Which line end an added line gets.
#[derive(Clone, Copy)]
enum Added {
    LikeNeighbour,
    LikeMost,
}

impl Text {
    /// The file's bytes with ranges of [`Text::as_str`] replaced, in ascending order.
    ///
    /// Unchanged lines in a range keep their bytes; a line that replaces another takes over its line end; an added line
    /// gets that of its neighbour.
    ///
    /// # Errors
    /// The encoding cannot represent a character, or ranges overlap.
    pub fn with_replacements(&self, edits: &[(Range<usize>, String)]) -> Result<Vec<u8>, SpliceError> {
        self.splice(edits, Added::LikeNeighbour)
    }

    /// The file's bytes with the whole text replaced. Encoding and byte order mark stay, unchanged lines keep their
    /// bytes, changed lines keep their line end, and added lines get the most frequent one.
    ///
    /// # Errors
    /// The encoding cannot represent a character.
    pub fn rewrite(&self, new: &str) -> Result<Vec<u8>, SpliceError> {
        let new = if self.has_mark() {
            new.strip_prefix('\u{feff}').unwrap_or(new)
        } else {
            new
        };
        self.splice(&[(0..self.content.len(), new.to_owned())], Added::LikeMost)
    }

    fn splice(&self, edits: &[(Range<usize>, String)], added: Added) -> Result<Vec<u8>, SpliceError> {
        let mut out = Vec::with_capacity(self.raw.len());
        // Determined once, because there may be as many edits as lines.
        let only_end = (!self.mixed_ends() && self.encoding != TextEncoding::BrokenUtf8).then(|| self.usual_end());
        let mut done = 0;
        // The end of the last edit in the text and in the bytes.
        let mut known = (0, self.mark);
        for (range, new) in edits {
            if self.content.get(range.clone()).is_none() || range.start < known.0 {
                return Err(SpliceError::BadRange);
            }
            let start = self.raw_after(known, range.start);
            let end = self.raw_after((range.start, start), range.end);
            out.extend_from_slice(self.raw.get(done..start).unwrap_or_default());
            let new = plain_line_ends(new);
            match only_end {
                Some(kind) => encoding::encode(&new.replace('\n', kind.as_str()), self.encoding, &mut out)?,
                None => self.splice_one((range, start), &new, added, &mut out)?,
            }
            (done, known) = (end, (range.end, end));
        }
        out.extend_from_slice(self.raw.get(done..).unwrap_or_default());
        Ok(out)
    }

    /// One edit of a file with different line ends or invalid bytes: a range of the text, and where it begins in the
    /// bytes.
    fn splice_one(
        &self,
        (range, start): (&Range<usize>, usize),
        new: &str,
        added: Added,
        out: &mut Vec<u8>,
    ) -> Result<(), SpliceError> {
        let raw_at = |at: usize| self.raw_after((range.start, start), at);
        let old = self.content.get(range.clone()).unwrap_or_default();
        let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
        let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
        let mut starts = vec![range.start];
        starts.extend(old_lines.iter().scan(range.start, |at, line| {
            *at += line.len();
            Some(*at)
        }));
        let place = |line: usize| starts.get(line).copied().unwrap_or(range.end);
        for piece in pieces(&old_lines, &new_lines) {
            let part = place(piece.old.start)..place(piece.old.end);
            if piece.same {
                let raw = raw_at(part.start)..raw_at(part.end);
                out.extend_from_slice(self.raw.get(raw).unwrap_or_default());
                continue;
            }
            let mut strays = self.strays(part.clone(), raw_at(part.start));
            let hunk = new_lines.get(piece.new).unwrap_or_default();
            if strays.len()
                != hunk
                    .iter()
                    .flat_map(|line| line.chars())
                    .filter(|&c| is_stray(c))
                    .count()
            {
                strays.clear();
            }
            let mut strays = strays.into_iter();
            let owners = owners(old_lines.get(piece.old.clone()).unwrap_or_default(), hunk);
            for (owner, line) in owners.into_iter().zip(hunk) {
                let own = owner.map(|offset| place(piece.old.start + offset));
                let end = self.end_for(own, place(piece.old.end), added);
                self.spell(line, end, &mut strays, out)?;
            }
        }
        Ok(())
    }

    /// `own`: start of the replaced line. `after`: end of the replaced part.
    fn end_for(&self, own: Option<usize>, after: usize, added: Added) -> LineEnd {
        let own = own.and_then(|at| self.lines.get(self.line_index(at))?.end);
        let neighbour = || match added {
            Added::LikeMost => None,
            Added::LikeNeighbour => self.end_before(after),
        };
        own.or_else(neighbour).unwrap_or_else(|| self.usual_end())
    }

    /// The line end of the line that contains `at`; if a line begins there, that of the line before, if it has one.
    fn end_before(&self, at: usize) -> Option<LineEnd> {
        let index = self.line_index(at);
        let line = self.lines.get(index)?;
        let before = index
            .checked_sub(1)
            .and_then(|index| self.lines.get(index))
            .and_then(|line| line.end);
        if line.at == at {
            before.or(line.end)
        } else {
            line.end.or(before)
        }
    }

    /// The bytes that each U+FFFD of a range stands for. `start`: where the range begins in the bytes.
    fn strays(&self, range: Range<usize>, start: usize) -> Vec<&[u8]> {
        if self.encoding != TextEncoding::BrokenUtf8 {
            return Vec::new();
        }
        let text = self.content.get(range.clone()).unwrap_or_default();
        let mut known = (range.start, start);
        let mut strays = Vec::new();
        for (at, c) in text.char_indices().filter(|(_, c)| is_stray(*c)) {
            let from = range.start + at;
            let begin = self.raw_after(known, from);
            known = (from + c.len_utf8(), self.raw_after((from, begin), from + c.len_utf8()));
            strays.extend(self.raw.get(begin..known.1));
        }
        strays
    }

    fn spell<'a>(
        &self,
        line: &str,
        end: LineEnd,
        strays: &mut impl Iterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), SpliceError> {
        let body = line.strip_suffix('\n').unwrap_or(line);
        if self.encoding == TextEncoding::BrokenUtf8 {
            for (count, part) in body.split(is_stray).enumerate() {
                if count > 0 {
                    let character = char::REPLACEMENT_CHARACTER;
                    let unknown = Unrepresentable {
                        character,
                        encoding: self.encoding.name(),
                    };
                    out.extend_from_slice(strays.next().ok_or(unknown)?);
                }
                encoding::encode(part, self.encoding, out)?;
            }
        } else {
            encoding::encode(body, self.encoding, out)?;
        }
        if body.len() < line.len() {
            encoding::encode(end.as_str(), self.encoding, out)?;
        }
        Ok(())
    }
}

/// For each new line of a changed part, the old line that it replaces: the one with the same text apart from
/// indentation, else the one at the same position among those between two such lines.
fn owners(old: &[&str], new: &[&str]) -> Vec<Option<usize>> {
    if old.len() + new.len() > DIFF_LINES {
        return (0..new.len()).map(|at| (at < old.len()).then_some(at)).collect();
    }
    let bodies = |lines: &[&str]| lines.iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let mut owners = vec![None; new.len()];
    for op in capture_diff_slices(Algorithm::Myers, &bodies(old), &bodies(new)) {
        for (owner, at) in owners
            .iter_mut()
            .skip(op.new_range().start)
            .zip(op.old_range())
            .take(op.new_range().len())
        {
            *owner = Some(at);
        }
    }
    owners
}

fn is_stray(c: char) -> bool {
    c == char::REPLACEMENT_CHARACTER
}

/// A group of lines that are kept or replaced.
struct Piece {
    same: bool,
    old: Range<usize>,
    new: Range<usize>,
}

fn pieces(old: &[&str], new: &[&str]) -> Vec<Piece> {
    let shorter = old.len().min(new.len());
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let tails = old.iter().rev().zip(new.iter().rev());
    let tail = tails.take(shorter - head).take_while(|(old, new)| old == new).count();
    let (old_tail, new_tail) = (old.len() - tail, new.len() - tail);
    let mut pieces = vec![Piece {
        same: true,
        old: 0..head,
        new: 0..head,
    }];
    pieces.extend(middle(old, head..old_tail, new, head..new_tail));
    pieces.push(Piece {
        same: true,
        old: old_tail..old.len(),
        new: new_tail..new.len(),
    });
    pieces
}

fn middle(old: &[&str], old_range: Range<usize>, new: &[&str], new_range: Range<usize>) -> Vec<Piece> {
    if old_range.len() + new_range.len() > DIFF_LINES {
        return vec![Piece {
            same: false,
            old: old_range,
            new: new_range,
        }];
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for op in capture_diff(Algorithm::Myers, old, old_range, new, new_range) {
        let (tag, old, new) = op.as_tag_tuple();
        let same = tag == DiffTag::Equal;
        match pieces.last_mut() {
            Some(last) if last.same == same => {
                last.old.end = old.end;
                last.new.end = new.end;
            }
            _ => pieces.push(Piece { same, old, new }),
        }
    }
    pieces
}
