//! Makes the text that goes into the file from what the file has, what was copied of it and what is asked for.
//! Lines that the edit leaves alone stay as the file has them. Finds no places.

use super::correct::plain_sign;
use super::find::{Tolerance, key};
use super::indent::{self, Map, Style};
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
            _ if manners.no_trailing => asked.trim_end().to_owned(),
            _ => asked,
        };
        out.push(indent + &content);
    }
    Ok(out)
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
            };
        }
        if pairs.is_empty() || terms == Terms::File {
            return Self {
                map: Map::Same,
                as_written: true,
                first_apart: false,
            };
        }
        let solid = parts.new.iter().filter(|line| !line.trim().is_empty());
        let news: Vec<&str> = solid.map(|line| indent::of(line)).collect();
        let map = Map::learn(&pairs, &news, parts.style);
        if !parts.cut && lost_first(&pairs) {
            return Self {
                map: Map::Same,
                as_written: false,
                first_apart: true,
            };
        }
        if !parts.cut
            && matches!(map, Map::Table(_) | Map::Unknown)
            && let Some((_, rest)) = pairs.split_first()
        {
            let others: Vec<&str> = news.iter().skip(1).copied().collect();
            let map = Map::learn(rest, &others, parts.style);
            if map == Map::Same || rest.len() > 1 && !matches!(map, Map::Table(_) | Map::Unknown) {
                return Self {
                    map,
                    as_written: false,
                    first_apart: true,
                };
            }
        }
        Self {
            map,
            as_written: false,
            first_apart: false,
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
        if let Some(image) = self.map.image(asked) {
            return Ok(image);
        }
        // Between two lines that stand equally deep in both, a line as deep as they are in the copy is as deep in the file.
        let before = partners
            .iter()
            .take(index)
            .rev()
            .find_map(|partner| *partner)
            .and_then(known);
        let after = partners
            .iter()
            .skip(index + 1)
            .find_map(|partner| *partner)
            .and_then(known);
        match (before, after) {
            (Some(before), Some(after)) if before == after && before.0 == asked => Ok(before.1.to_owned()),
            _ => Err(Doubt::Indentation(line.trim().to_owned())),
        }
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
            let opens = line.trim_end().ends_with(['{', '(', '[', ':']);
            let closes = after.trim_start().starts_with(['}', ')', ']']);
            if *fresh && opens && !closes && indent::of(after).len() <= indent::of(line).len() {
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

/// Whose indentation the new text has, where the copy's is not the file's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Terms {
    Copy,
    File,
    /// Some lines speak for the one and some for the other.
    Unclear,
}

/// Whether the new text has the file's indentation already although the copy of the old has not: it is as deep as the
/// file's part, or made of the file's character, where the copy is not; and no line with a partner speaks against it.
fn terms(parts: &Parts<'_>, partners: &[Option<usize>]) -> Terms {
    if parts.cut {
        return Terms::Copy;
    }
    let indents = |lines: &[&str]| -> Vec<String> {
        lines
            .iter()
            .filter(|line| !line.trim().is_empty())
            .map(|line| indent::of(line).to_owned())
            .collect()
    };
    let (file, old, new) = (indents(parts.file), indents(parts.old), indents(parts.new));
    let least = |indents: &[String]| indents.iter().min_by_key(|indent| indent.len()).cloned();
    let blank = |indents: &[String]| indent::only_blank(indents.iter().map(String::as_str)).flatten();
    let as_deep = least(&new) == least(&file) && least(&old) != least(&new);
    let same_blank =
        blank(&new).is_some() && blank(&new) == blank(&file) && blank(&old).is_some_and(|old| Some(old) != blank(&new));
    let pair = |partner: &Option<usize>| {
        let old = (*partner)?;
        Some((*parts.old.get(old)?, *parts.file.get(old)?))
    };
    let lines = || {
        let all = parts.new.iter().zip(partners);
        let pairs = all.filter_map(|(new, partner)| Some((*new, pair(partner)?)));
        let moved = pairs.filter(|(new, (old, file))| !new.trim().is_empty() && indent::of(old) != indent::of(file));
        moved.map(|(new, (old, file))| (new, old, indent::of(old), indent::of(file)))
    };
    let as_copied = lines().any(|(new, _, old, _)| indent::of(new) == old);
    let as_filed = || {
        let same = |a: &str, b: &str| key(a, Tolerance::Blanks) == key(b, Tolerance::Blanks);
        lines().any(|(new, old, _, file)| same(new, old) && indent::of(new) == file)
    };
    let no_shallower = || least(&new).map_or(0, |indent| indent.len()) >= least(&file).map_or(0, |indent| indent.len());
    let filed = no_shallower() && as_filed();
    match as_copied {
        true if filed => Terms::Unclear,
        true => Terms::Copy,
        false if as_deep || same_blank || filed => Terms::File,
        false => Terms::Copy,
    }
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
