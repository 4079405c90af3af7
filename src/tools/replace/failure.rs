//! The reasons why an edit failed, and the messages with which the model can correct it.

use super::tokens::{plain, tokens};
use crate::tools::diff::shorten;
use crate::tools::write_file::MAX_WRITE;
use std::collections::HashSet;
use std::ops::Range;

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditFailure {
    /// Old and new text are equal, or the edit would not change the file.
    Same,
    /// The old text is not in the file. `closest`: the most similar lines with their numbers, or empty.
    Nothing { closest: Vec<(usize, String)> },
    /// The old text matches several places; the numbers of their first lines. If these are more than `MANY`, there may
    /// be further ones.
    Many { lines: Vec<usize> },
    /// The edit would add more text than one call may write.
    Large { bytes: usize },
    /// The old text is so repetitive, or so much like many places, that the comparison was stopped.
    Costly,
    /// The number of places differs from the expected one.
    Count { found: u64, expected: u64 },
    /// A line of the new text is a placeholder for omitted code.
    Placeholder(String),
    /// The place is found, but the new text for it is ambiguous.
    Unsure {
        line: usize,
        why: String,
        closest: Vec<(usize, String)>,
    },
}

/// Upper limit for the places that are counted if only one may match.
pub(super) const MANY: usize = 1_000;

/// Upper limit for the places that are listed.
const NAMED: usize = 20;

impl EditFailure {
    /// The error type, as in the tool documentation.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Same => "edit_no_change",
            Self::Nothing { .. } | Self::Unsure { .. } => "edit_no_occurrence_found",
            Self::Many { .. } | Self::Count { .. } => "edit_expected_occurrence_mismatch",
            Self::Large { .. } | Self::Costly => "content_too_large",
            Self::Placeholder(_) => "omission_placeholder",
        }
    }

    /// The message for the model about the edit of `path`. Secrets are redacted in lines that are cut.
    pub fn message(&self, path: &str) -> String {
        match self {
            Self::Same => format!("nothing to change in {path}: old_string and new_string are equivalent"),
            Self::Nothing { closest } if closest.is_empty() => {
                format!(
                    "old_string was not found in {path}, nor anything like it; nothing was changed. Read the file and copy the text to replace from it"
                )
            }
            Self::Nothing { closest } => {
                let closest = numbered(closest);
                format!(
                    "old_string was not found in {path}; nothing was changed. The most similar lines are:\n{closest}\nCopy the text to replace from the file, without the line numbers"
                )
            }
            Self::Many { lines } => {
                let named: Vec<String> = lines.iter().take(NAMED).map(ToString::to_string).collect();
                let named = named.join(", ");
                let more = if lines.len() > NAMED { ", …" } else { "" };
                let count = match lines.len() > MANY {
                    true => format!("more than {MANY}"),
                    false => lines.len().to_string(),
                };
                format!(
                    "old_string matches {count} places in {path}, at lines {named}{more}; nothing was changed. Add lines around it until it matches one place, or set allow_multiple to true to replace all"
                )
            }
            Self::Large { bytes } => {
                format!(
                    "what the edit adds to {path} has {bytes} bytes, and one call writes at most {MAX_WRITE}; \
                     nothing was changed. Write less, or in parts"
                )
            }
            Self::Costly => {
                format!(
                    "old_string is not in {path} as it is written, and it is too repetitive to look for similar text; \
                     nothing was changed. Copy a shorter part from the file"
                )
            }
            Self::Count { found, expected } => {
                format!(
                    "old_string matches {found} places in {path} and expected_replacements is {expected}; nothing was changed. Give the right number, or other lines"
                )
            }
            Self::Placeholder(line) => {
                format!(
                    "new_string leaves code out: `{}`; nothing was changed in {path}. Write the whole text that belongs there",
                    shorten(line)
                )
            }
            Self::Unsure { line, why, closest } => {
                let closest = numbered(closest);
                format!(
                    "old_string is like the text at line {line} of {path}, but {why}; nothing was changed. The file has:\n{closest}\nCopy the text to replace from the file, without the line numbers"
                )
            }
        }
    }
}

/// Lines of a text (from 0) with their numbers (from 1).
pub(super) fn shown(text: &str, lines: Range<usize>) -> Vec<(usize, String)> {
    let rows = text.lines().enumerate().skip(lines.start).take(lines.len());
    rows.map(|(index, line)| (index + 1, line.to_owned())).collect()
}

fn numbered(lines: &[(usize, String)]) -> String {
    let rows = lines
        .iter()
        .map(|(number, line)| format!("{number:5}: {}", shorten(line)));
    rows.collect::<Vec<_>>().join("\n")
}

/// Upper limit for the lines that are compared, of the file and of the old text.
const FILE_LINES: usize = 50_000;
const OLD_LINES: usize = 12;

/// The lines of `text` that share most words with `old`, numbered, at most 14; empty if little is shared.
pub(super) fn closest(text: &str, old: &str) -> Vec<(usize, String)> {
    let words = |line| plain(&tokens(line)).into_iter().collect::<HashSet<&str>>();
    let wanted: Vec<HashSet<&str>> = old
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(OLD_LINES)
        .map(words)
        .collect();
    let rows: Vec<HashSet<&str>> = text.lines().take(FILE_LINES).map(words).collect();
    let total: usize = wanted.iter().map(HashSet::len).sum();
    let score = |first: usize| -> usize {
        let pairs = wanted.iter().zip(rows.iter().skip(first));
        pairs.map(|(wanted, row)| wanted.intersection(row).count()).sum()
    };
    let best = (0..rows.len())
        .map(|first| (score(first), first))
        .max_by_key(|&(score, first)| (score, usize::MAX - first));
    let Some((_, first)) = best.filter(|(score, _)| *score * 3 >= total && *score > 0) else {
        return Vec::new();
    };
    let from = first.saturating_sub(1);
    shown(text, from..(first + wanted.len() + 1).min(rows.len()))
}
