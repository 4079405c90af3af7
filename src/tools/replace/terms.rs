//! Tells in whose terms the new text is indented, where the copy of the old has lost the file's depth. Makes no text.

use super::between;
use super::find::{Tolerance, key};
use super::indent;
use super::tokens::likeness;
use super::weave::Parts;

/// Lines less alike than this are not taken for the same one.
const ALIKE: f64 = 0.6;

/// Whose indentation the new text has, where the copy's is not the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    Copy,
    File,
    /// Some lines speak for the one and some for the other.
    Unclear,
}

/// A new line with a partner that stands at another depth in the copy than in the file.
struct Moved<'a> {
    now: &'a str,
    copy: &'a str,
    file: &'a str,
    /// Nothing else of it changed.
    same: bool,
    alike: bool,
    /// It comes into a block or out of one: it is as deep as before by chance only.
    rewrapped: bool,
}

/// Whether the new text has the file's indentation already although the copy of the old has not. Lines that stay speak
/// first; then how deep the whole stands.
pub(super) fn terms(parts: &Parts<'_>, partners: &[Option<usize>]) -> Terms {
    if parts.cut {
        return Terms::Copy;
    }
    let moved = moved(parts, partners);
    let (file, old, new) = (Depths::of(parts.file), Depths::of(parts.old), Depths::of(parts.new));
    let kept = || moved.iter().filter(|line| line.same && !line.rewrapped);
    let as_copied = kept().any(|line| line.now == line.copy);
    let as_filed = kept().any(|line| line.now == line.file) && new.least.len() >= file.least.len();
    let elsewhere = kept().any(|line| line.now != line.copy && line.now != line.file);
    let as_deep = new.least == file.least && new.least != old.least;
    let as_deep_as_copy = new.least == old.least && new.least != file.least;
    let same_blank = new.blank.is_some() && new.blank == file.blank && old.blank.is_some() && new.blank != old.blank;
    match (as_copied, as_filed) {
        (true, true) => Terms::Unclear,
        (false, _) if same_blank => Terms::File,
        // What stays says one thing, and how deep the whole stands the other.
        (true, false) if as_deep => Terms::Unclear,
        (true, false) => Terms::Copy,
        (false, true) if elsewhere || as_deep_as_copy => Terms::Unclear,
        (false, true) => Terms::File,
        (false, false) if moved.iter().any(|line| line.same && line.rewrapped) => Terms::Unclear,
        (false, false) if moved.iter().any(|line| line.now == line.copy) => Terms::Copy,
        (false, false) if as_deep => {
            // A copy from the margin, or a line that is much the same: else the new lines may stand elsewhere by intent.
            let stays = moved.iter().any(|line| line.alike && line.now == line.file);
            let sure = old.least.is_empty() || stays;
            if sure { Terms::File } else { Terms::Unclear }
        }
        (false, false) => Terms::Copy,
    }
}

/// How deep the lines stand that are not blank.
struct Depths<'a> {
    least: &'a str,
    /// The only character of all of it.
    blank: Option<char>,
}

impl<'a> Depths<'a> {
    fn of(lines: &[&'a str]) -> Self {
        let solid = lines.iter().filter(|line| !line.trim().is_empty());
        let indents: Vec<&str> = solid.map(|line| indent::of(line)).collect();
        Self {
            least: indents
                .iter()
                .min_by_key(|indent| indent.len())
                .copied()
                .unwrap_or_default(),
            blank: indent::only_blank(indents.iter().copied()).flatten(),
        }
    }
}

fn moved<'a>(parts: &Parts<'a>, partners: &[Option<usize>]) -> Vec<Moved<'a>> {
    let line = |new: usize| {
        let old = partners.get(new).copied().flatten()?;
        let (now, copy, file) = (*parts.new.get(new)?, *parts.old.get(old)?, *parts.file.get(old)?);
        let apart = !now.trim().is_empty() && indent::of(copy) != indent::of(file);
        let same = key(now, Tolerance::Blanks) == key(copy, Tolerance::Blanks);
        apart.then(|| Moved {
            now: indent::of(now),
            copy: indent::of(copy),
            file: indent::of(file),
            same,
            alike: same || likeness(now, copy) >= ALIKE,
            rewrapped: is_rewrapped(parts, partners, (new, old)),
        })
    };
    (0..parts.new.len()).filter_map(line).collect()
}

/// Whether only one of the line and its old self stands right below the opening of a block that the other text has not.
fn is_rewrapped(parts: &Parts<'_>, partners: &[Option<usize>], (new, old): (usize, usize)) -> bool {
    let below = |lines: &[&str], at: usize, alone: &dyn Fn(usize) -> bool| {
        let depth = lines.get(at).map_or(0, |line| indent::of(line).len());
        let solid = |at: &usize| lines.get(*at).is_some_and(|line| !line.trim().is_empty());
        let above = (0..at).rev().find(solid);
        let opens = |line: &&str| between::opens(line) && indent::of(line).len() < depth;
        above.is_some_and(|above| alone(above) && lines.get(above).is_some_and(opens))
    };
    let fresh = |new: usize| partners.get(new).copied().flatten().is_none();
    let gone = |old: usize| !partners.contains(&Some(old));
    below(parts.new, new, &fresh) != below(parts.old, old, &gone)
}
