//! Decides whether `new_string` is indented like the file or like `old_string`, if these two differ.

use super::indent;
use super::merge::Parts;
use super::tokens::{ALIKE, key, likeness};

/// Whether `new_string` is indented like the file or like `old_string`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    Copy,
    File,
    /// The lines are contradictory.
    Unclear,
}

/// An aligned new line whose old line is indented differently in `old_string` and in the file.
struct Moved<'a> {
    now: &'a str,
    copy: &'a str,
    file: &'a str,
    /// Nothing but its indentation changed.
    same: bool,
    alike: bool,
    /// Its parent block changed, so an equal indentation is a coincidence.
    rewrapped: bool,
}

/// Whether the new text is indented like the file although the old text is not. Unchanged lines decide first, then the
/// indentation of the whole text.
pub(super) fn terms(parts: &Parts<'_>, partners: &[Option<usize>]) -> Terms {
    if parts.cut {
        return Terms::Copy;
    }
    let moved = moved(parts, partners);
    let (file, old, new) = (Depths::of(parts.file), Depths::of(parts.old), Depths::of(parts.new));
    let kept = || moved.iter().filter(|line| line.same && !line.rewrapped);
    let as_copied = kept().any(|line| line.now == line.copy);
    let as_filed = kept().any(|line| line.now == line.file);
    let elsewhere = kept().any(|line| line.now != line.copy && line.now != line.file);
    let flat = old.most.is_empty() && file.least != file.most;
    let as_deep = new.least == file.least && new.least != old.least;
    let as_deep_as_copy = new.least == old.least && new.least != file.least;
    let stays = moved.iter().any(|line| line.alike && line.now == line.file);
    let like_copy = moved.iter().any(|line| line.now == line.copy);
    let same_blank = new.blank.is_some() && new.blank == file.blank && old.blank.is_some() && new.blank != old.blank;
    match (as_copied, as_filed) {
        (true, true) => Terms::Unclear,
        (false, _) if same_blank => Terms::File,
        // The unchanged lines and the indentation of the whole text contradict each other.
        (true, false) if as_deep => Terms::Unclear,
        (true, false) => Terms::Copy,
        (false, true) if elsewhere || as_deep_as_copy || new.least.len() < file.least.len() => Terms::Unclear,
        (false, true) => Terms::File,
        (false, false) if elsewhere => Terms::Unclear,
        (false, false) if moved.iter().any(|line| line.same && line.rewrapped) => {
            let never = |depth: fn(&Moved<'_>) -> bool| !moved.iter().any(depth);
            // An old text without any indentation cannot be what the new one is indented like.
            if flat && never(|line| line.same && line.now != line.file) {
                Terms::File
            } else if as_deep_as_copy && new.first == old.first && never(|line| line.now == line.file) {
                Terms::Copy
            } else if as_deep && new.first == file.first && never(|line| line.now == line.copy) {
                Terms::File
            } else {
                Terms::Unclear
            }
        }
        (false, false) if !as_deep && like_copy => match new.first == file.first && new.first != old.first {
            true => Terms::Unclear,
            false => Terms::Copy,
        },
        (false, false) if stays && flat => Terms::File,
        // The old text begins at the margin, or a line is nearly unchanged; otherwise a new indentation may be
        // intended.
        (false, false) if as_deep && !like_copy && (stays || old.least.is_empty()) => Terms::File,
        (false, false) if as_deep || stays => Terms::Unclear,
        (false, false) => by_first_line(&new, &old, &file),
    }
}

/// Without unchanged lines: the new text should begin at the same indentation as the lines that it replaces.
fn by_first_line(new: &Depths<'_>, old: &Depths<'_>, file: &Depths<'_>) -> Terms {
    let as_copied = new.first == old.first || new.first != file.first && old.least.is_empty();
    // An indentation that occurs in the file's lines but not in the old text.
    let of_file = new
        .all
        .iter()
        .any(|depth| file.all.contains(depth) && !old.all.contains(depth));
    if as_copied && !of_file {
        Terms::Copy
    } else {
        Terms::Unclear
    }
}

/// The indentation of all lines that are not blank.
struct Depths<'a> {
    all: Vec<&'a str>,
    first: &'a str,
    least: &'a str,
    most: &'a str,
    /// The character that all indentation consists of, if there is only one.
    blank: Option<char>,
}

impl<'a> Depths<'a> {
    fn of(lines: &[&'a str]) -> Self {
        let solid = lines.iter().filter(|line| !line.trim().is_empty());
        let indents: Vec<&str> = solid.map(|line| indent::of(line)).collect();
        let by_length = |indent: &&&str| indent.len();
        Self {
            first: indents.first().copied().unwrap_or_default(),
            least: indents.iter().min_by_key(by_length).copied().unwrap_or_default(),
            most: indents.iter().max_by_key(by_length).copied().unwrap_or_default(),
            blank: indent::only_blank(indents.iter().copied()).flatten(),
            all: indents,
        }
    }
}

fn moved<'a>(parts: &Parts<'a>, partners: &[Option<usize>]) -> Vec<Moved<'a>> {
    let line = |new: usize| {
        let old = partners.get(new).copied().flatten()?;
        let (now, copy, file) = (*parts.new.get(new)?, *parts.old.get(old)?, *parts.file.get(old)?);
        let apart = !now.trim().is_empty() && indent::of(copy) != indent::of(file);
        let same = key(now) == key(copy);
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

/// Whether the line has other parent lines than its old line had. The old lines are indented as in the file, because
/// the old text may have lost its indentation.
pub(super) fn is_rewrapped(parts: &Parts<'_>, partners: &[Option<usize>], (new, old): (usize, usize)) -> bool {
    // A first line that alone lost its indentation is no parent.
    let lost = |lines: &[&str]| lines.first().is_some_and(|line| indent::of(line).is_empty());
    let alone = parts.old.iter().any(|line| !indent::of(line).is_empty());
    let begin = usize::from(alone && lost(parts.new) && lost(parts.old) && !lost(parts.file));
    let above = |lines: &[&str], at: usize, alone: &dyn Fn(usize) -> bool| {
        let depth = |at: usize| lines.get(at).map_or(0, |line| indent::of(line).len());
        let mut least = depth(at);
        let mut count = 0;
        for above in (begin..at).rev() {
            let blank = lines.get(above).is_none_or(|line| line.trim().is_empty());
            if !blank && depth(above) < least {
                least = depth(above);
                count += usize::from(alone(above));
            }
        }
        count
    };
    let fresh = |new: usize| partners.get(new).copied().flatten().is_none();
    let gone = |old: usize| !partners.contains(&Some(old));
    above(parts.new, new, &fresh) != above(parts.file, old, &gone)
}

#[cfg(test)]
mod tests {
    use super::super::indent::Style;
    use super::super::merge::align;
    use super::*;

    fn told(file: &[&str], old: &[&str], new: &[&str]) -> Terms {
        let style = Style::of(&file.join("\n"));
        let parts = Parts {
            file,
            old,
            new,
            cut: false,
            style,
        };
        terms(&parts, &align(old, new))
    }

    #[test]
    fn lines_that_stay_speak_first() {
        let file = ["    if a {", "        b();", "    }"];
        let old = ["if a {", "    b();", "}"];
        assert_eq!(told(&file, &old, &["if a {", "    c(); d();", "}"]), Terms::Copy);
        assert_eq!(
            told(&file, &old, &["    if a {", "        c(); d();", "    }"]),
            Terms::File
        );
        assert_eq!(told(&file, &old, &["if a {", "    c();", "    }"]), Terms::Unclear);
        // A line that was moved out of its block happens to have the indentation that both readings give.
        assert_eq!(told(&file, &old, &["    b();"]), Terms::Unclear);
        assert_eq!(
            told(&["  a();"], &["    a();"], &["    if x {", "      a();", "    }"]),
            Terms::Copy
        );
        assert_eq!(
            told(&["  a();"], &["    a();"], &["  if x {", "    a();", "  }"]),
            Terms::Unclear
        );
    }

    #[test]
    fn tabs_and_copies_without_depth_tell_by_themselves() {
        let file = ["def f():", "    a = 1", "    b = 2"];
        assert_eq!(
            told(&file[1..], &["\ta = 1", "\tb = 2"], &["    if x:", "        a = 1"]),
            Terms::File
        );
        assert_eq!(
            told(&file, &["def f():", "a = 1", "b = 2"], &["def f():", "    a = 3"]),
            Terms::File
        );
        assert_eq!(
            told(&file[1..], &["      a = 1"], &["    other(thing)"]),
            Terms::Unclear
        );
    }
}
