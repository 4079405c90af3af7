//! Merges an edit into the file: computes the new lines from the file's lines, `old_string` and `new_string`. Lines
//! that the edit does not change stay as they are in the file.

use super::align::align;
use super::correct::plain_sign;
use super::depth::Depths;
use super::find::{Tolerance, key};
use super::indent::{self, Style};
use super::tokens::{is_word, likeness, merge};

/// Lines less similar than this are not merged word by word; the new line is used as written.
const ALIKE: f64 = 0.5;

/// Why the new lines are ambiguous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Doubt {
    #[error("the indentation of the new line `{0}` cannot be told from the lines that were found")]
    Indentation(String),
    #[error("the new text changes `{0}`, which is not what the file has there")]
    Conflict(String),
}

/// The inputs of a merge, as lines without ends; `file` and `old` correspond line by line.
pub(super) struct Parts<'a> {
    pub(super) file: &'a [&'a str],
    pub(super) old: &'a [&'a str],
    pub(super) new: &'a [&'a str],
    /// The match begins inside a line, whose indentation is not part of it.
    pub(super) cut: bool,
    pub(super) style: Style,
}

/// The lines that replace `parts.file`.
pub(super) fn weave(parts: &Parts<'_>) -> Result<Vec<String>, Doubt> {
    let partners = align(parts.old, parts.new);
    let depths = Depths::learn(parts, &partners);
    let manners = Manners::learn(parts);
    depths.refuse_flat()?;
    let mut out = Vec::with_capacity(parts.new.len());
    for (index, (line, partner)) in parts.new.iter().zip(&partners).enumerate() {
        let pair = partner.and_then(|old| Some((*parts.old.get(old)?, *parts.file.get(old)?)));
        if line.trim().is_empty() {
            match pair.filter(|(_, file)| file.trim().is_empty()) {
                Some((old, file)) if old == *line || file.is_empty() || line.is_empty() => out.push(file.to_owned()),
                _ if depths.is_same() && !manners.no_trailing => out.push((*line).to_owned()),
                _ => out.push(String::new()),
            }
            continue;
        }
        let indent = depths.image(index, line)?;
        let asked = manners.plain(body(line));
        let content = match pair {
            // Closing brackets look alike; only their indentation distinguishes them.
            Some((old, file)) if is_bare(line) && indent::of(old) != indent::of(line) && is_other(old, file) => {
                return Err(Doubt::Conflict(old.trim().to_owned()));
            }
            Some((old, file)) if key(old, Tolerance::Blanks) == key(line, Tolerance::Blanks) => {
                merge(&manners.plain(body(old)), body(file), &asked).unwrap_or_else(|| body(file).to_owned())
            }
            Some((old, file)) if body(old) != body(file) && likeness(old, line) >= ALIKE => {
                merge(&manners.plain(body(old)), body(file), &asked)
                    .ok_or_else(|| Doubt::Conflict(old.trim().to_owned()))?
            }
            _ => moved(line, parts, &partners).map_or(asked, |file| body(file).to_owned()),
        };
        out.push(indent + &content);
    }
    Ok(out)
}

fn is_bare(line: &str) -> bool {
    !line.contains(is_word)
}

/// Whether the lines differ in more than whitespace.
fn is_other(a: &str, b: &str) -> bool {
    key(a, Tolerance::Gaps) != key(b, Tolerance::Gaps)
}

/// The file's version of a line that the edit moves.
fn moved<'a>(line: &str, parts: &Parts<'a>, partners: &[Option<usize>]) -> Option<&'a str> {
    let same = |at: &usize| parts.old.get(*at).is_some_and(|old| body(old) == body(line));
    let left = |at: &usize| !partners.contains(&Some(*at));
    let mut found = (0..parts.old.len()).filter(same).filter(left);
    let at = found.next().filter(|_| found.next().is_none())?;
    parts.file.get(at).copied()
}

fn body(line: &str) -> &str {
    line.get(indent::of(line).len()..).unwrap_or_default()
}

/// Differences between `old_string` and the file that new lines must not bring into the file.
struct Manners {
    no_trailing: bool,
    /// Typographic characters of `old_string` that are ASCII in the file.
    signs: Vec<char>,
}

impl Manners {
    fn learn(parts: &Parts<'_>) -> Self {
        let trailing = |line: &str| line.len() - line.trim_end().len();
        let pairs = || {
            let all = parts.old.iter().zip(parts.file);
            all.filter(|(old, _)| trailing(old) > 0 && !old.trim().is_empty())
        };
        let no_trailing = pairs().next().is_some() && pairs().all(|(old, file)| trailing(old) != trailing(file));
        let in_file = |sign: &str| parts.file.iter().any(|line| line.contains(sign));
        let mut signs: Vec<char> = parts.old.iter().flat_map(|line| line.chars()).collect();
        signs.retain(|&c| plain_sign(c).is_some_and(|sign| !in_file(c.encode_utf8(&mut [0; 4])) && in_file(sign)));
        Self { no_trailing, signs }
    }

    fn plain(&self, text: &str) -> String {
        let text = if self.no_trailing { text.trim_end() } else { text };
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match plain_sign(c).filter(|_| self.signs.contains(&c)) {
                Some(sign) => out.push_str(sign),
                None => out.push(c),
            }
        }
        out
    }
}
