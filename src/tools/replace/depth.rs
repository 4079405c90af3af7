//! How deep each new line stands in the file, learned from the lines that were found. Finds no places, makes no text.

use super::between;
use super::indent::{self, Map};
use super::terms::{Terms, is_rewrapped, terms};
use super::tokens::likeness;
use super::weave::{Doubt, Parts};

/// Lines less alike than this are not taken for the same one.
const ALIKE: f64 = 0.5;

/// What the depths of the copy are to those of the file.
#[derive(Debug, PartialEq)]
enum How {
    /// The new text has the file's depths, although the copy has not.
    AsWritten,
    /// Whose depths it has cannot be told.
    Unclear,
    Mapped(Map),
    /// The copy lost blanks of its first line alone; the others map like this.
    FirstApart(Map),
    /// One line of the copy lost all its blanks; the others have theirs.
    LostOne,
}

/// The depths of one edit. `partners`: for each new line the old line that it is.
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

    /// Whether the copy has the file's depths.
    pub(super) fn is_same(&self) -> bool {
        matches!(
            self.how,
            How::AsWritten | How::LostOne | How::Mapped(Map::Same) | How::FirstApart(Map::Same)
        )
    }

    /// The blanks in the copy and in the file of an old line.
    fn known(&self, old: usize) -> Option<(&'a str, &'a str)> {
        Some((
            indent::of(self.parts.old.get(old)?),
            indent::of(self.parts.file.get(old)?),
        ))
    }

    fn partner(&self, new: usize) -> Option<usize> {
        self.partners.get(new).copied().flatten()
    }

    /// The blanks of the new line at `index` in the file.
    pub(super) fn image(&self, index: usize, line: &str) -> Result<String, Doubt> {
        let asked = indent::of(line);
        if self.how == How::AsWritten || self.parts.cut && index == 0 {
            return Ok(asked.to_owned());
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

    /// A line that is not, or not only, as deep as its old self.
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
        image.or_else(|| between::depth(index, self.parts, self.partners).map(str::to_owned))
    }

    /// A first line without its blanks, that was another line in the copy: it stood as deep as the copy's first line.
    fn agrees(&self, asked: &str, own: Option<usize>) -> bool {
        match (own.and_then(|old| self.known(old)), self.known(0)) {
            (Some((_, own)), Some((lost, first))) if asked == lost => own == first,
            _ => true,
        }
    }

    /// Where blanks come in steps of another width, a new depth is one step of the file below the line above it; else the
    /// copy may be shifted instead.
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

    /// Whether only the first line of the copy is this deep.
    fn is_first_alone(&self, asked: &str) -> bool {
        let deep = |old: usize| self.known(old).is_some_and(|(depth, _)| depth == asked);
        deep(0) && !(1..self.parts.old.len()).any(deep)
    }

    /// Whether the last line before that stays stands at the margin, the first one not counted.
    fn at_margin(&self, index: usize) -> bool {
        let before = (1..index).rev().find_map(|new| self.partner(new));
        before.and_then(|old| self.known(old)) == Some(("", ""))
    }

    /// The depth in the file of all old lines that are this deep in the copy.
    fn only_image(&self, asked: &str) -> Option<&'a str> {
        let solid = |old: &usize| self.parts.old.get(*old).is_some_and(|line| !line.trim().is_empty());
        let known = (0..self.parts.old.len())
            .filter(solid)
            .filter_map(|old| self.known(old));
        let mut images = known.filter(|(depth, _)| *depth == asked).map(|(_, file)| file);
        let image = images.next()?;
        images.all(|other| other == image).then_some(image)
    }

    /// Where the copy tells one depth for several of the file, a line in place of others is as deep as they were only
    /// if they all were equally deep.
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

    /// Where the copy is less deep than the file, a new line that opens a block and nothing deeper after it was flattened:
    /// how deep the block stands cannot be told.
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
            if *fresh && between::opens(line) && !between::closes(after) && !deeper {
                return Err(Doubt::Indentation(after.trim().to_owned()));
            }
        }
        Ok(())
    }
}

/// What the lines that were found say, where the new text is in the copy's terms.
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

/// One line alone that is less deep by a factor may have lost some of its blanks as well.
fn is_vague(pairs: &[(&str, &str)], map: &Map) -> bool {
    let by_factor = matches!(map, Map::Scale { num, den, to: ' ', .. } if num != den);
    let blanks = pairs.iter().all(|(old, _)| !old.contains('\t'));
    let moved = pairs.iter().filter(|(old, file)| old != file).count();
    by_factor && blanks && moved == 1 && pairs.len() > 1
}

/// How the lines but the first map, where the first alone lost blanks. `loose`: all together say too little.
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

/// Whether one line of the copy lost all its blanks and no other stands at the margin.
fn lost_one(pairs: &[(&str, &str)]) -> bool {
    let mut apart = pairs.iter().filter(|(old, file)| old != file);
    let lost = apart.next().is_some_and(|(old, _)| old.is_empty());
    lost && apart.next().is_none() && pairs.len() > 2 && !pairs.contains(&("", ""))
}
