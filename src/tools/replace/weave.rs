//! Makes the text that goes into the file from what the file has, what was copied of it and what is asked for.
//! Lines that the edit leaves alone stay as the file has them. Finds no places.

use super::between;
use super::correct::plain_sign;
use super::find::{Tolerance, key};
use super::indent::{self, Map, Style};
use super::terms::{Terms, terms};
use super::tokens::{likeness, merge};
use similar::{Algorithm, DiffTag, capture_diff_slices};

/// Lines less alike than this are not merged word by word: the new one stands as it was written.
const ALIKE: f64 = 0.5;

/// Why the text cannot be made with certainty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Doubt {
    #[error("the indentation of the new line `{0}` cannot be told from the lines that were found")]
    Indentation(String),
    #[error("the new text changes `{0}`, which is not what the file has there")]
    Conflict(String),
}

/// The parts that meet. All are lines without ends; `file` and `old` correspond line by line.
pub(super) struct Parts<'a> {
    pub(super) file: &'a [&'a str],
    pub(super) old: &'a [&'a str],
    pub(super) new: &'a [&'a str],
    /// The match begins inside a line: the first line's blanks are not part of it.
    pub(super) cut: bool,
    pub(super) style: Style,
}

/// The lines that replace `parts.file`.
pub(super) fn weave(parts: &Parts<'_>) -> Result<Vec<String>, Doubt> {
    let partners = align(parts.old, parts.new);
    let indents = Indents::learn(parts, &partners);
    let manners = Manners::learn(parts);
    indents.refuse_flat(parts, &partners)?;
    let mut out = Vec::with_capacity(parts.new.len());
    for (index, (line, partner)) in parts.new.iter().zip(&partners).enumerate() {
        let pair = partner.and_then(|old| Some((*parts.old.get(old)?, *parts.file.get(old)?)));
        if line.trim().is_empty() {
            match pair.filter(|(_, file)| file.trim().is_empty()) {
                Some((old, file)) if old == *line || file.is_empty() || line.is_empty() => out.push(file.to_owned()),
                _ if indents.map == Map::Same && !manners.no_trailing => out.push((*line).to_owned()),
                _ => out.push(String::new()),
            }
            continue;
        }
        let indent = indents.image(index, line, &partners, parts)?;
        let asked = manners.plain(body(line));
        let content = match pair {
            Some((old, file)) if key(old, Tolerance::Blanks) == key(line, Tolerance::Blanks) => {
                merge(&manners.plain(body(old)), body(file), &asked).unwrap_or_else(|| body(file).to_owned())
            }
            Some((old, file)) if body(old) != body(file) && likeness(old, line) >= ALIKE => {
                merge(&manners.plain(body(old)), body(file), &asked)
                    .ok_or_else(|| Doubt::Conflict(old.trim().to_owned()))?
            }
            _ => match moved(line, parts, &partners) {
                Some(file) => body(file).to_owned(),
                None if manners.no_trailing => asked.trim_end().to_owned(),
                None => asked,
            },
        };
        out.push(indent + &content);
    }
    Ok(out)
}

/// The file's form of a line that stands elsewhere in the new text than in the copy.
fn moved<'a>(line: &str, parts: &Parts<'a>, partners: &[Option<usize>]) -> Option<&'a str> {
    let left = |at: &usize| !partners.contains(&Some(*at));
    let mut found = (0..parts.old.len())
        .filter(left)
        .filter(|&at| parts.old.get(at).is_some_and(|old| body(old) == body(line)));
    let at = found.next().filter(|_| found.next().is_none())?;
    parts.file.get(at).copied()
}

fn body(line: &str) -> &str {
    line.get(indent::of(line).len()..).unwrap_or_default()
}

/// For each new line the old line that it keeps or stands for.
pub(super) fn align(old: &[&str], new: &[&str]) -> Vec<Option<usize>> {
    let keys = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| key(line, Tolerance::Blanks))
            .collect::<Vec<_>>()
    };
    let mut partners = vec![None; new.len()];
    let mut set = |new: usize, old: usize| {
        if let Some(partner) = partners.get_mut(new) {
            *partner = Some(old);
        }
    };
    for op in capture_diff_slices(Algorithm::Myers, &keys(old), &keys(new)) {
        let (tag, olds, news) = op.as_tag_tuple();
        match tag {
            DiffTag::Equal => olds.zip(news).for_each(|(old, new)| set(new, old)),
            DiffTag::Replace if olds.len() == news.len() => olds.zip(news).for_each(|(old, new)| set(new, old)),
            DiffTag::Replace => {
                let mut next = olds.start;
                for new_index in news {
                    let line = new.get(new_index).copied().unwrap_or_default();
                    let alike = |&at: &usize| {
                        old.get(at)
                            .is_some_and(|old| !line.trim().is_empty() && likeness(old, line) >= 0.6)
                    };
                    if let Some(found) = (next..olds.end).find(alike) {
                        set(new_index, found);
                        next = found + 1;
                    }
                }
            }
            DiffTag::Delete | DiffTag::Insert => {}
        }
    }
    partners
}

/// How blanks at the front of new lines become those of the file.
struct Indents {
    map: Map,
    /// The new text has the file's indentation although the copy has not.
    as_written: bool,
    /// The copy lost the blanks of its first line alone.
    first_apart: bool,
    /// How deep one line of the copy stands that lost its blanks, where all others have theirs.
    lost: Option<String>,
}

impl Indents {
    fn learn(parts: &Parts<'_>, partners: &[Option<usize>]) -> Self {
        let pairs: Vec<(&str, &str)> = parts
            .old
            .iter()
            .zip(parts.file)
            .skip(usize::from(parts.cut))
            .filter(|(old, file)| !old.trim().is_empty() && !file.trim().is_empty())
            .map(|(old, file)| (indent::of(old), indent::of(file)))
            .collect();
        let terms = terms(parts, partners);
        if terms == Terms::Unclear {
            return Self {
                map: Map::Unknown,
                as_written: false,
                first_apart: false,
                lost: None,
            };
        }
        if pairs.is_empty() || terms == Terms::File {
            return Self {
                map: Map::Same,
                as_written: true,
                first_apart: false,
                lost: None,
            };
        }
        let solid = parts.new.iter().filter(|line| !line.trim().is_empty());
        let news: Vec<&str> = solid.map(|line| indent::of(line)).collect();
        let mut map = Map::learn(&pairs, &news, parts.style);
        // One line alone that is less deep by a factor may have lost some of its blanks as well.
        let moved = pairs.iter().filter(|(old, file)| old != file).count();
        let by_factor = matches!(map, Map::Scale { num, den, to: ' ', .. } if num != den);
        let blanks = pairs.iter().all(|(old, _)| !old.contains('\t'));
        if by_factor && blanks && moved == 1 && pairs.len() > 1 {
            map = indent::table(&pairs).unwrap_or(Map::Unknown);
        }
        if !parts.cut && lost_first(&pairs) {
            return Self {
                map: Map::Same,
                as_written: false,
                first_apart: true,
                lost: None,
            };
        }
        if !parts.cut
            && let Some(lost) = lost_one(&pairs)
        {
            return Self {
                map: Map::Same,
                as_written: false,
                first_apart: false,
                lost: Some(lost),
            };
        }
        let flat = pairs
            .iter()
            .all(|(old, _)| pairs.first().is_some_and(|(first, _)| old == first));
        if !parts.cut
            && !flat
            && matches!(map, Map::Table(_) | Map::Unknown)
            && let Some((_, rest)) = pairs.split_first()
        {
            let others: Vec<&str> = news.iter().skip(1).copied().collect();
            let map = Map::learn(rest, &others, parts.style);
            let deep = rest.iter().any(|(old, _)| !old.is_empty());
            let told = match map {
                Map::Table(_) | Map::Unknown => false,
                Map::Same => deep,
                _ => rest.len() > 1,
            };
            if told {
                return Self {
                    map,
                    as_written: false,
                    first_apart: true,
                    lost: None,
                };
            }
        }
        Self {
            map,
            as_written: false,
            first_apart: false,
            lost: None,
        }
    }

    fn image(&self, index: usize, line: &str, partners: &[Option<usize>], parts: &Parts<'_>) -> Result<String, Doubt> {
        let asked = indent::of(line);
        if self.as_written || parts.cut && index == 0 {
            return Ok(asked.to_owned());
        }
        let known = |old: usize| Some((indent::of(parts.old.get(old)?), indent::of(parts.file.get(old)?)));
        let partner = partners.get(index).copied().flatten();
        if self.first_apart && index == 0 && !self.agrees(asked, partner.and_then(known), known(0)) {
            return Err(Doubt::Indentation(line.trim().to_owned()));
        }
        let partner = if self.first_apart && index == 0 {
            Some(0)
        } else {
            partner.filter(|&old| !(parts.cut && old == 0))
        };
        if let Some((old, file)) = partner.and_then(known)
            && old == asked
        {
            return Ok(file.to_owned());
        }
        let at_margin = || {
            let before = partners.iter().take(index).skip(1).rev().find_map(|partner| *partner);
            before
                .and_then(known)
                .is_some_and(|(old, file)| old.is_empty() && file.is_empty())
        };
        let strays = self.first_apart && index > 0 && asked.is_empty() && !at_margin();
        if strays || self.lost.as_deref() == Some(asked) {
            return Err(Doubt::Indentation(line.trim().to_owned()));
        }
        if let Some(image) = self.map.image(asked) {
            return Ok(image);
        }
        between::depth(index, parts, partners)
            .map(str::to_owned)
            .ok_or_else(|| Doubt::Indentation(line.trim().to_owned()))
    }
}

impl Indents {
    /// A first line without its blanks, that was another line in the copy: it stood as deep as the copy's first line.
    fn agrees(&self, asked: &str, own: Option<(&str, &str)>, first: Option<(&str, &str)>) -> bool {
        match (own, first) {
            (Some((_, own)), Some((lost, first))) if asked == lost => own == first,
            _ => true,
        }
    }

    /// Where the copy is less deep than the file, a new line that opens a block and nothing deeper after it was flattened:
    /// how deep the block stands cannot be told.
    fn refuse_flat(&self, parts: &Parts<'_>, partners: &[Option<usize>]) -> Result<(), Doubt> {
        if self.as_written || self.first_apart || self.map == Map::Same {
            return Ok(());
        }
        let lines = parts
            .new
            .iter()
            .zip(partners)
            .filter(|(line, _)| !line.trim().is_empty());
        let lines: Vec<(&str, bool)> = lines.map(|(line, partner)| (*line, partner.is_none())).collect();
        for ((line, fresh), (after, _)) in lines.iter().zip(lines.iter().skip(1)) {
            if *fresh
                && between::opens(line)
                && !between::closes(after)
                && indent::of(after).len() <= indent::of(line).len()
            {
                return Err(Doubt::Indentation(after.trim().to_owned()));
            }
        }
        Ok(())
    }
}

/// Whether only the first line lost its blanks.
fn lost_first(pairs: &[(&str, &str)]) -> bool {
    let Some(((old, file), rest)) = pairs.split_first() else {
        return false;
    };
    old.is_empty() && !file.is_empty() && !rest.is_empty() && rest.iter().all(|(old, file)| old == file)
}

/// What is left before the one line of the copy that lost blanks; `None` when it is not one, or another stands as deep.
fn lost_one(pairs: &[(&str, &str)]) -> Option<String> {
    let mut apart = pairs.iter().filter(|(old, file)| old != file);
    let (old, file) = apart.next()?;
    let alone = apart.next().is_none() && pairs.len() > 2 && old.is_empty() && !file.is_empty();
    let told = pairs.iter().any(|(other, image)| other == old && other == image);
    (alone && !told).then(|| (*old).to_owned())
}

/// Habits of the copy that the file does not share, and that new lines must not bring in.
struct Manners {
    no_trailing: bool,
    /// Typographic signs of the copy that are plain in the file.
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
