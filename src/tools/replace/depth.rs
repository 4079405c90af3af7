//! Computes the indentation of each new line from the aligned lines of `old_string` and the file.

use super::indent::{self, Map};
use super::indent_basis::{Terms, is_rewrapped, terms};
use super::infer_indent;
use super::merge::{Doubt, Parts};
use super::tokens::{ALIKE, likeness};

/// How the indentation in `old_string` relates to that of the file.
#[derive(Debug, PartialEq)]
enum How {
    /// The new text is indented like the file, although `old_string` is not.
    AsWritten,
    /// It is ambiguous which of the two the new text is indented like.
    Unclear,
    Mapped(Map),
    /// Only the first line of `old_string` lost indentation; the others are mapped like this.
    FirstApart(Map),
    /// One line of `old_string` lost all its indentation; the others are unchanged.
    LostOne,
}

/// The indentation mapping of one edit. `partners`: for each new line the old line that it is aligned with.
pub(super) struct Depths<'a> {
    parts: &'a Parts<'a>,
    partners: &'a [Option<usize>],
    how: How,
}

impl<'a> Depths<'a> {
    pub(super) fn learn(parts: &'a Parts<'a>, partners: &'a [Option<usize>]) -> Self {
        let how = match terms(parts, partners) {
            Terms::Unclear => How::Unclear,
            Terms::File => How::AsWritten,
            Terms::Copy => of_pairs(parts),
        };
        Self { parts, partners, how }
    }

    /// Whether `old_string` is indented like the file.
    pub(super) fn is_same(&self) -> bool {
        matches!(
            self.how,
            How::AsWritten | How::LostOne | How::Mapped(Map::Same) | How::FirstApart(Map::Same)
        )
    }

    /// The indentation of an old line in `old_string` and in the file.
    fn known(&self, old: usize) -> Option<(&'a str, &'a str)> {
        Some((
            indent::of(self.parts.old.get(old)?),
            indent::of(self.parts.file.get(old)?),
        ))
    }

    /// Whether only the first line of `old_string` has lost its indentation.
    fn is_first_lost(&self) -> bool {
        let same = |old| self.known(old).is_some_and(|(old, file)| old == file);
        self.known(0).is_some_and(|(old, _)| old.is_empty())
            && !same(0)
            && self.parts.old.len() > 1
            && (1..self.parts.old.len()).all(same)
    }

    fn partner(&self, new: usize) -> Option<usize> {
        self.partners.get(new).copied().flatten()
    }

    /// The indentation in the file for the new line at `index`.
    pub(super) fn image(&self, index: usize, line: &str) -> Result<String, Doubt> {
        let asked = indent::of(line);
        if self.how == How::AsWritten || self.parts.cut && index == 0 {
            let lost = (index == 0 && asked.is_empty() && self.is_first_lost())
                .then(|| self.known(0))
                .flatten();
            return Ok(lost.map_or(asked, |(_, file)| file).to_owned());
        }
        let first_apart = matches!(self.how, How::FirstApart(_));
        let own = match self.partner(index) {
            partner if first_apart && index == 0 => self.agrees(asked, partner).then_some(0),
            partner => partner.filter(|&old| !(self.parts.cut && old == 0)),
        };
        let found = match own.and_then(|old| self.known(old)) {
            Some((old, file)) if old == asked => match self.how {
                How::Unclear => (old == file).then(|| file.to_owned()),
                _ => own.filter(|&old| self.is_certain(index, old)).map(|_| file.to_owned()),
            },
            None if first_apart && index == 0 => None,
            _ => self.mapped(index, asked),
        };
        found.ok_or_else(|| Doubt::Indentation(line.trim().to_owned()))
    }

    /// The indentation of a line that is not aligned, or differs in indentation from its old line.
    fn mapped(&self, index: usize, asked: &str) -> Option<String> {
        let lone = || self.at_margin(index);
        let image = match &self.how {
            How::AsWritten => return Some(asked.to_owned()),
            How::Unclear => return None,
            How::FirstApart(_) if index > 0 && asked.is_empty() && !lone() => return None,
            How::FirstApart(_) if !asked.is_empty() && self.is_first_alone(asked) => return None,
            How::LostOne if asked.is_empty() => return None,
            How::LostOne => Some(asked.to_owned()),
            How::Mapped(Map::Scale { num, den, to: ' ', .. })
                if num != den && !self.is_step(index, asked, (*num, *den)) =>
            {
                return None;
            }
            How::Mapped(Map::Unknown) if !asked.is_empty() => self.only_image(asked).map(str::to_owned),
            How::Mapped(map) | How::FirstApart(map) => map.image(asked),
        };
        image.or_else(|| infer_indent::depth(index, self.parts, self.partners).map(str::to_owned))
    }

    /// For a first line without indentation that is aligned with another old line: whether both have the same
    /// indentation in the file.
    fn agrees(&self, asked: &str, own: Option<usize>) -> bool {
        match (own.and_then(|old| self.known(old)), self.known(0)) {
            (Some((_, own)), Some((lost, first))) if asked == lost => own == first,
            _ => true,
        }
    }

    /// If the mapping scales by a factor, an indented line must be one step of the file deeper than the line above it;
    /// otherwise `old_string` may be shifted and not scaled.
    fn is_step(&self, index: usize, asked: &str, (num, den): (i64, i64)) -> bool {
        let mut above = self.parts.new.iter().take(index).rev();
        let above = above
            .find(|line| !line.trim().is_empty())
            .map(|line| indent::of(line).len());
        let Some(deeper) = above
            .and_then(|above| asked.len().checked_sub(above))
            .filter(|&deeper| deeper > 0)
        else {
            return true;
        };
        let known = self.only_image(asked).is_some() || asked.contains('\t');
        let rise = i64::try_from(deeper).ok().map(|deeper| deeper * num);
        known || rise == i64::try_from(self.parts.style.step).ok().map(|step| step * den)
    }

    /// Whether only the first line of `old_string` has this indentation.
    fn is_first_alone(&self, asked: &str) -> bool {
        let deep = |old: usize| self.known(old).is_some_and(|(depth, _)| depth == asked);
        deep(0) && !(1..self.parts.old.len()).any(deep)
    }

    /// Whether the last aligned line before this one, not counting the first, has no indentation.
    fn at_margin(&self, index: usize) -> bool {
        let before = (1..index).rev().find_map(|new| self.partner(new));
        before.and_then(|old| self.known(old)) == Some(("", ""))
    }

    /// The indentation in the file of all old lines with this indentation, if they agree.
    fn only_image(&self, asked: &str) -> Option<&'a str> {
        let solid = |old: &usize| self.parts.old.get(*old).is_some_and(|line| !line.trim().is_empty());
        let known = (0..self.parts.old.len())
            .filter(solid)
            .filter_map(|old| self.known(old));
        let mut images = known.filter(|(depth, _)| *depth == asked).map(|(_, file)| file);
        let image = images.next()?;
        images.all(|other| other == image).then_some(image)
    }

    /// If one indentation of `old_string` stands for several in the file, a replacing line can only be placed if all
    /// the lines that it replaces have the same indentation in the file.
    fn is_certain(&self, new: usize, old: usize) -> bool {
        let asked = self.known(old).map_or("", |(asked, _)| asked);
        if !matches!(self.how, How::Mapped(Map::Unknown)) || self.only_image(asked).is_some() {
            return true;
        }
        if is_rewrapped(self.parts, self.partners, (new, old)) {
            return false;
        }
        let lines = self.parts.new.get(new).zip(self.parts.old.get(old));
        match lines.map_or(0.0, |(new, old)| likeness(new, old)) {
            1.0 => return true,
            alike if alike < ALIKE => return false,
            _ => {}
        }
        let gone = |at: &usize| {
            let solid = self.parts.old.get(*at).is_some_and(|line| !line.trim().is_empty());
            solid && !self.partners.contains(&Some(*at))
        };
        let level = |at: usize| self.known(at) == self.known(old);
        let below = (old + 1..self.parts.old.len()).take_while(gone).all(level);
        below && (0..old).rev().take_while(gone).all(level)
    }

    /// If `old_string` is indented less than the file, refuses a new line that opens a block without a deeper line
    /// after it: the indentation of the block was lost and cannot be inferred.
    pub(super) fn refuse_flat(&self) -> Result<(), Doubt> {
        if self.is_same() || matches!(self.how, How::FirstApart(_)) {
            return Ok(());
        }
        let lines = self.parts.new.iter().zip(self.partners);
        let lines: Vec<(&str, bool)> = lines
            .filter(|(line, _)| !line.trim().is_empty())
            .map(|(line, partner)| (*line, partner.is_none()))
            .collect();
        for ((line, fresh), (after, _)) in lines.iter().zip(lines.iter().skip(1)) {
            let deeper = indent::of(after).len() > indent::of(line).len();
            if *fresh && infer_indent::opens(line) && !infer_indent::closes(after) && !deeper {
                return Err(Doubt::Indentation(after.trim().to_owned()));
            }
        }
        Ok(())
    }
}

/// Learns the mapping from the aligned lines, if the new text is indented like `old_string`.
fn of_pairs(parts: &Parts<'_>) -> How {
    let pairs: Vec<(&str, &str)> = parts
        .old
        .iter()
        .zip(parts.file)
        .skip(usize::from(parts.cut))
        .filter(|(old, file)| !old.trim().is_empty() && !file.trim().is_empty())
        .map(|(old, file)| (indent::of(old), indent::of(file)))
        .collect();
    if pairs.is_empty() {
        return How::AsWritten;
    }
    let solid = parts.new.iter().filter(|line| !line.trim().is_empty());
    let news: Vec<&str> = solid.map(|line| indent::of(line)).collect();
    let map = Map::learn(&pairs, &news, parts.style);
    if is_vague(&pairs, &map) {
        return How::Mapped(indent::table(&pairs).unwrap_or(Map::Unknown));
    }
    let flat = pairs.iter().zip(pairs.iter().skip(1)).all(|(a, b)| a.0 == b.0);
    let loose = !flat && matches!(map, Map::Table(_) | Map::Unknown);
    match first_apart(&pairs, &news, parts, loose) {
        Some(rest) if !parts.cut => How::FirstApart(rest),
        _ if !parts.cut && lost_one(&pairs) => How::LostOne,
        _ => How::Mapped(map),
    }
}

/// If a single line differs by a factor, it may just have lost some spaces.
fn is_vague(pairs: &[(&str, &str)], map: &Map) -> bool {
    let by_factor = matches!(map, Map::Scale { num, den, to: ' ', .. } if num != den);
    let blanks = pairs.iter().all(|(old, _)| !old.contains('\t'));
    let moved = pairs.iter().filter(|(old, file)| old != file).count();
    by_factor && blanks && moved == 1 && pairs.len() > 1
}

/// The mapping of all lines but the first, if only the first lost indentation. `loose`: the mapping of all lines is
/// inconclusive.
fn first_apart(pairs: &[(&str, &str)], news: &[&str], parts: &Parts<'_>, loose: bool) -> Option<Map> {
    let ((old, file), rest) = pairs.split_first()?;
    if old.is_empty() && !file.is_empty() && !rest.is_empty() && rest.iter().all(|(old, file)| old == file) {
        return Some(Map::Same);
    }
    let map = Map::learn(rest, news.get(1..).unwrap_or_default(), parts.style);
    let told = match map {
        Map::Table(_) | Map::Unknown => false,
        Map::Same => rest.iter().any(|(old, _)| !old.is_empty()),
        _ => rest.len() > 1,
    };
    (loose && told).then_some(map)
}

/// Whether exactly one line of `old_string` lost all its indentation, and no other line is unindented.
fn lost_one(pairs: &[(&str, &str)]) -> bool {
    let mut apart = pairs.iter().filter(|(old, file)| old != file);
    let lost = apart.next().is_some_and(|(old, _)| old.is_empty());
    lost && apart.next().is_none() && pairs.len() > 2 && !pairs.contains(&("", ""))
}
