//! Maps the indentation of a request to that of the file.

use super::merge::{Doubt, Parts};
use super::tokens::{ALIKE, key, likeness};

/// The indentation style of a file: its character and step width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) blank: char,
    pub(super) step: usize,
    /// Whether the indentation of every line is a multiple of the step.
    pub(super) even: bool,
}

impl Style {
    /// Detected from lines that are indented more than the line before; four spaces if there are none.
    pub(super) fn of(text: &str) -> Self {
        let mut tabs = 0;
        let mut widths = Vec::new();
        let mut steps = [0_usize; 9];
        let mut before = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let indent = of(line);
            tabs += usize::from(indent.starts_with('\t'));
            let width = if indent.starts_with('\t') { 0 } else { indent.len() };
            if let Some(count) = width
                .checked_sub(before)
                .filter(|&step| step > 1)
                .and_then(|step| steps.get_mut(step))
            {
                *count += 1;
            }
            before = width;
            widths.push(width);
        }
        let spaced: usize = steps.iter().sum();
        if tabs > spaced {
            return Self {
                blank: '\t',
                step: 1,
                even: widths.iter().all(|width| *width == 0),
            };
        }
        let most = steps.iter().enumerate().rev().max_by_key(|(_, count)| **count);
        let step = most.filter(|(_, count)| **count > 0).map_or(4, |(step, _)| step);
        Self {
            blank: ' ',
            step,
            even: tabs == 0 && widths.iter().all(|width| width % step == 0),
        }
    }
}

/// The leading spaces and tabs of a line.
pub(super) fn of(line: &str) -> &str {
    let end = line.find(|c| c != ' ' && c != '\t').unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

/// A mapping from the snippet's indentation to the file's.
#[derive(Debug, PartialEq)]
pub(super) enum Map {
    Same,
    /// `to` repeated `count * num / den + base` times.
    Scale {
        num: i64,
        den: i64,
        base: i64,
        to: char,
    },
    /// Only for known indentations.
    Table(Vec<(String, String)>),
    /// One indentation of the snippet stands for several in the file.
    Unknown,
}

impl Map {
    /// Learns from pairs (snippet, file) of aligned lines; `others`: further indentations that will be mapped.
    pub(super) fn learn(pairs: &[(&str, &str)], others: &[&str], style: Style) -> Self {
        if pairs.iter().all(|(snippet, file)| snippet == file) {
            return Self::Same;
        }
        if let Some(scale) = by_count(pairs, others, style) {
            return scale;
        }
        table(pairs).unwrap_or(Self::Unknown)
    }

    /// The file's indentation for one of the snippet. `None` if it is unknown.
    pub(super) fn image(&self, indent: &str) -> Option<String> {
        match self {
            Self::Same => Some(indent.to_owned()),
            Self::Scale { num, den, base, to } => {
                let scaled = i64::try_from(indent.len()).ok()? * num;
                let count = usize::try_from(scaled / den + base).ok()?;
                (scaled % den == 0).then(|| to.to_string().repeat(count))
            }
            Self::Table(table) => table
                .iter()
                .find(|(known, _)| known == indent)
                .map(|(_, image)| image.clone()),
            Self::Unknown => None,
        }
    }
}

/// The single character that all of these consist of. `None`: they are mixed. `Some(None)`: all are empty.
pub(super) fn only_blank<'a>(indents: impl Iterator<Item = &'a str>) -> Option<Option<char>> {
    let mut found = None;
    for c in indents.flat_map(str::chars) {
        if *found.get_or_insert(c) != c {
            return None;
        }
    }
    Some(found)
}

fn by_count(pairs: &[(&str, &str)], others: &[&str], style: Style) -> Option<Map> {
    let snippets = || pairs.iter().map(|(snippet, _)| *snippet).chain(others.iter().copied());
    let to = only_blank(pairs.iter().map(|(_, file)| *file))?.unwrap_or(style.blank);
    let from = only_blank(snippets())?.unwrap_or(to);
    let counts: Vec<(i64, i64)> = pairs
        .iter()
        .map(|(snippet, file)| Some((i64::try_from(snippet.len()).ok()?, i64::try_from(file.len()).ok()?)))
        .collect::<Option<_>>()?;
    let &(first, image) = counts.first()?;
    let scale = |num: i64, den: i64| {
        let base = (first * num % den == 0).then(|| image - first * num / den)?;
        // If one line has the same indentation in both, the others are not scaled.
        if (num, den) != (1, 1) && base != 0 && to == from && counts.iter().any(|(n, f)| n == f && *n > 0) {
            return None;
        }
        let fits = |(n, f): &(i64, i64)| n * num % den == 0 && n * num / den + base == *f;
        counts.iter().all(fits).then_some(Map::Scale { num, den, base, to })
    };
    if let Some(&(second, other)) = counts.iter().find(|(n, _)| *n != first) {
        let (run, rise) = (second - first, other - image);
        let (num, den) = reduced(rise, run)?;
        let plain = num > 0 && (num == 1 || den == 1) && num.max(den) <= 8;
        return if plain { scale(num, den) } else { None };
    }
    if counts.iter().any(|(_, f)| *f != image) {
        return None;
    }
    let widths: Vec<i64> = snippets()
        .filter_map(|indent| i64::try_from(indent.len()).ok())
        .collect();
    let step = widths.iter().fold(0, |step, width| gcd(step, (width - first).abs()));
    match one_level(first, image, step, (from, to), style) {
        Some((num, den)) => scale(num, den),
        None => table(pairs),
    }
}

/// A mapping for exactly these pairs; `None` if one indentation stands for two, or two for one.
fn table(pairs: &[(&str, &str)]) -> Option<Map> {
    let mut table: Vec<(String, String)> = Vec::new();
    for (snippet, file) in pairs {
        if table.iter().any(|(known, image)| (known == snippet) != (image == file)) {
            return None;
        }
        table.push(((*snippet).to_owned(), (*file).to_owned()));
    }
    Some(Map::Table(table))
}

/// The factor if all known lines have the same indentation. `step`: how much the snippet's other lines differ from it,
/// 0 if there are none.
fn one_level(first: i64, image: i64, step: i64, blanks: (char, char), style: Style) -> Option<(i64, i64)> {
    let usual = |count: i64| matches!(count, 2 | 3 | 4 | 8);
    let file_step = i64::try_from(style.step).ok()?;
    match blanks {
        _ if step == 0 && (blanks.0 == blanks.1 || first == 0) => Some((1, 1)),
        (' ', '\t') if first > 0 && image > 0 && first % image == 0 && usual(first / image) => {
            let step_fits = step == 0 && first / image != 3 || step % (first / image) == 0 && step != 0;
            step_fits.then_some((1, first / image))
        }
        (' ', '\t') => usual(step).then_some((1, step)),
        ('\t', ' ') if style.even || first == 0 || image == first * file_step => Some((file_step, 1)),
        ('\t', ' ') => None,
        // The file itself has lines at half steps.
        (' ', ' ') if step >= 2 && step < file_step && file_step % step == 0 && !style.even => None,
        (' ', ' ') if step >= 2 && step < file_step && file_step % step == 0 => {
            let same_level = first == 0 || (first % step == 0 && first * file_step == image * step);
            Some(if same_level { (file_step / step, 1) } else { (1, 1) })
        }
        // One level in both, with a wider step in the snippet. (Twice the step may also be a continuation line.)
        (' ', ' ') if file_step > 1 && step > file_step && step % file_step == 0 && first > 0 => {
            let same_level = first % step == 0 && first * file_step == image * step;
            Some(if same_level { (1, step / file_step) } else { (1, 1) })
        }
        _ => Some((1, 1)),
    }
}

fn reduced(a: i64, b: i64) -> Option<(i64, i64)> {
    let divisor = gcd(a.abs(), b.abs());
    let sign = if b < 0 { -1 } else { 1 };
    (divisor > 0).then(|| (sign * a / divisor, sign * b / divisor))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether the line opens a block.
pub(super) fn opens(line: &str) -> bool {
    line.trim_end().ends_with(['{', '(', '[', ':'])
}

/// Whether the line begins with the end of a block.
pub(super) fn closes(line: &str) -> bool {
    line.trim_start().starts_with(['}', ')', ']'])
}

/// Whether the line closes as many brackets as it opens.
pub(super) fn is_balanced(line: &str) -> bool {
    let count = |signs: [char; 3]| line.chars().filter(|c| signs.contains(c)).count();
    count(['(', '[', '{']) == count([')', ']', '}'])
}

/// Whether `new_string` is indented like the file or like `old_string`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terms {
    Copy,
    File,
    /// The lines are contradictory.
    Unclear,
}

/// Whether the new text is indented like the file although the old text is not. Lines that the edit keeps in their block
/// decide, then those that it changes, then the first line.
fn terms(parts: &Parts<'_>, partners: &[Option<usize>]) -> Terms {
    if parts.cut {
        return Terms::Copy;
    }
    let indents = |lines: &[&'_ str]| -> Vec<String> {
        let solid = lines.iter().filter(|line| !line.trim().is_empty());
        solid.map(|line| of(line).to_owned()).collect()
    };
    let (file, old, new) = (indents(parts.file), indents(parts.old), indents(parts.new));
    let least = |all: &[String]| all.iter().map(String::len).min().unwrap_or(0);
    let blank = |all: &[String]| only_blank(all.iter().map(String::as_str)).flatten();
    let (mut as_copied, mut as_filed, mut elsewhere, mut stays, mut like_copy) = (false, false, false, false, false);
    // An old text without any indentation cannot be what the new one is indented like.
    let mut flat = old.iter().all(String::is_empty) && least(&file) < file.iter().map(String::len).max().unwrap_or(0);
    for (index, now) in parts.new.iter().enumerate() {
        let Some(at) = partners[index].filter(|_| !now.trim().is_empty()) else {
            continue;
        };
        let (in_copy, in_file) = (of(now) == of(parts.old[at]), of(now) == of(parts.file[at]));
        let same = key(now) == key(parts.old[at]);
        // Where the parent block changed, an equal indentation is a coincidence.
        let inside = !is_rewrapped(parts, partners, (index, at));
        // A first line that lost its indentation may have come from another place.
        let lost = index == 0 && of(now).is_empty() && of(parts.old[0]).is_empty();
        elsewhere |= same && inside && !in_copy && !in_file && !lost;
        if of(parts.old[at]) == of(parts.file[at]) {
            continue;
        }
        as_copied |= same && inside && in_copy;
        as_filed |= same && inside && in_file;
        stays |= inside && in_file && likeness(now, parts.old[at]) >= ALIKE;
        like_copy |= in_copy;
        flat &= !same || in_file;
    }
    let of_file = new.iter().any(|indent| file.contains(indent) && !old.contains(indent));
    let begins_as_file = new.first() == file.first() && new.first() != old.first();
    match (as_copied, as_filed) {
        (true, true) => Terms::Unclear,
        (false, _)
            if blank(&new).is_some()
                && blank(&new) == blank(&file)
                && blank(&old).is_some_and(|old| Some(old) != blank(&new)) =>
        {
            Terms::File
        }
        (true, false) => Terms::Copy,
        (false, _) if elsewhere => Terms::Unclear,
        (false, true) if least(&new) < least(&file) => Terms::Unclear,
        (false, true) => Terms::File,
        (false, false) if flat && of_file && !like_copy => Terms::File,
        (false, false) if !like_copy && (stays || begins_as_file && least(&old) == 0) => Terms::File,
        (false, false) if new.first() == old.first() && !of_file => Terms::Copy,
        (false, false) => Terms::Unclear,
    }
}

/// Whether the line has other parent lines than its old line had. The old lines are indented as in the file, because
/// the old text may have lost its indentation.
fn is_rewrapped(parts: &Parts<'_>, partners: &[Option<usize>], (new, old): (usize, usize)) -> bool {
    // A first line that alone lost its indentation is no parent.
    let lost = |lines: &[&str]| lines.first().is_some_and(|line| of(line).is_empty());
    let alone = parts.old.iter().any(|line| !of(line).is_empty());
    let begin = usize::from(alone && lost(parts.new) && lost(parts.old) && !lost(parts.file));
    let above = |lines: &[&str], at: usize, alone: &dyn Fn(usize) -> bool| {
        let depth = |at: usize| lines.get(at).map_or(0, |line| of(line).len());
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

/// How the indentation in `old_string` relates to that of the file.
#[derive(Debug, PartialEq)]
enum How {
    /// The new text is indented like the file, although `old_string` is not.
    AsWritten,
    /// It is ambiguous which of the two the new text is indented like.
    Unclear,
    Mapped(Map),
    /// Only the first line of `old_string` lost its indentation.
    FirstApart,
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
        matches!(self.how, How::AsWritten | How::Mapped(Map::Same) | How::FirstApart)
    }

    /// The indentation of an old line in `old_string` and in the file.
    fn known(&self, old: usize) -> Option<(&'a str, &'a str)> {
        Some((of(self.parts.old.get(old)?), of(self.parts.file.get(old)?)))
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
        let asked = of(line);
        if self.how == How::AsWritten || self.parts.cut && index == 0 {
            let lost = (index == 0 && asked.is_empty() && self.is_first_lost())
                .then(|| self.known(0))
                .flatten();
            return Ok(lost.map_or(asked, |(_, file)| file).to_owned());
        }
        let first_apart = matches!(self.how, How::FirstApart);
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
        match &self.how {
            How::AsWritten => Some(asked.to_owned()),
            How::Unclear => None,
            How::FirstApart if index > 0 && asked.is_empty() && !self.at_margin(index) => None,
            How::FirstApart if !asked.is_empty() && self.is_first_alone(asked) => None,
            How::FirstApart => Some(asked.to_owned()),
            How::Mapped(map) => map.image(asked),
        }
    }

    /// For a first line without indentation that is aligned with another old line: whether both have the same
    /// indentation in the file.
    fn agrees(&self, asked: &str, own: Option<usize>) -> bool {
        match (own.and_then(|old| self.known(old)), self.known(0)) {
            (Some((_, own)), Some((lost, first))) if asked == lost => own == first,
            _ => true,
        }
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

    /// If one indentation of `old_string` stands for several in the file, only a line that stays in its block can be
    /// placed.
    fn is_certain(&self, new: usize, old: usize) -> bool {
        let alike = || likeness(self.parts.new[new], self.parts.old[old]) >= ALIKE;
        !matches!(self.how, How::Mapped(Map::Unknown))
            || alike() && !is_rewrapped(self.parts, self.partners, (new, old))
    }

    /// If `old_string` is indented less than the file, refuses a new line that opens a block without a deeper line
    /// after it: the indentation of the block was lost and cannot be inferred.
    pub(super) fn refuse_flat(&self) -> Result<(), Doubt> {
        if self.is_same() || matches!(self.how, How::FirstApart) {
            return Ok(());
        }
        let lines = self.parts.new.iter().zip(self.partners);
        let lines: Vec<(&str, bool)> = lines
            .filter(|(line, _)| !line.trim().is_empty())
            .map(|(line, partner)| (*line, partner.is_none()))
            .collect();
        for ((line, fresh), (after, _)) in lines.iter().zip(lines.iter().skip(1)) {
            let deeper = of(after).len() > of(line).len();
            if *fresh && opens(line) && !closes(after) && !deeper {
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
        .map(|(old, file)| (of(old), of(file)))
        .collect();
    if pairs.is_empty() {
        return How::AsWritten;
    }
    let solid = parts.new.iter().filter(|line| !line.trim().is_empty());
    let news: Vec<&str> = solid.map(|line| of(line)).collect();
    let map = Map::learn(&pairs, &news, parts.style);
    match pairs.split_first() {
        Some(((old, file), rest))
            if !parts.cut
                && old.is_empty()
                && !file.is_empty()
                && !rest.is_empty()
                && rest.iter().all(|(old, file)| old == file) =>
        {
            How::FirstApart
        }
        _ => How::Mapped(map),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Style = Style {
        blank: ' ',
        step: 4,
        even: true,
    };
    const TABS: Style = Style {
        blank: '\t',
        step: 1,
        even: true,
    };

    fn image(pairs: &[(&str, &str)], others: &[&str], style: Style, asked: &str) -> Option<String> {
        Map::learn(pairs, others, style).image(asked)
    }

    #[test]
    fn shifts_and_units_are_learned() {
        let s = |n: usize| " ".repeat(n);
        let t = |n: usize| "\t".repeat(n);
        assert_eq!(
            image(&[("", "    "), ("    ", "        ")], &[], FOUR, "        "),
            Some(s(12))
        );
        assert_eq!(
            image(&[("        ", "    ")], &["            "], FOUR, "            "),
            Some(s(8))
        );
        assert_eq!(image(&[("        ", "    ")], &["  "], FOUR, "  "), None);
        assert_eq!(
            image(&[("    ", "\t"), ("        ", "\t\t")], &[], TABS, &s(12)),
            Some(t(3))
        );
        assert_eq!(image(&[("  ", "\t")], &["    "], TABS, "    "), Some(t(2)));
        assert_eq!(image(&[("", "\t")], &["    "], TABS, "    "), Some(t(2)));
        assert_eq!(image(&[("\t", "    ")], &["\t\t"], FOUR, "\t\t"), Some(s(8)));
        assert_eq!(
            image(&[("  ", "    "), ("    ", "        ")], &[], FOUR, "      "),
            Some(s(12))
        );
        assert_eq!(image(&[("  ", "    ")], &["    "], FOUR, "    "), Some(s(8)));
        assert_eq!(image(&[("", "    "), ("", "        ")], &[], FOUR, ""), None);
        assert_eq!(image(&[("", "\t  ")], &[""], TABS, ""), Some("\t  ".to_owned()));
    }

    #[test]
    fn the_style_of_a_file_is_found() {
        assert_eq!(Style::of("a\n    b\n        c\n"), FOUR);
        assert_eq!(Style::of("a:\n\tb\n"), TABS);
        assert_eq!(Style::of("a:\n  b:\n    c\n"), Style { step: 2, ..FOUR });
        assert!(!Style::of("a:\n    b:\n      c\nd:\n    e\n").even);
    }

    fn told(file: &[&str], old: &[&str], new: &[&str]) -> Terms {
        let style = Style::of(&file.join("\n"));
        let parts = Parts {
            file,
            old,
            new,
            cut: false,
            style,
        };
        terms(&parts, &crate::tools::replace::merge::align(old, new))
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
