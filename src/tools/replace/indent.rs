//! Maps the indentation of a request to that of the file.

use super::lines::{Style, closes, indent_of, opens};
use super::parts::{Doubt, Parts};
use super::tokens::{ALIKE, key, likeness};

/// A mapping from the snippet's indentation to the file's.
#[derive(Debug, PartialEq)]
pub(super) enum IndentMap {
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

impl IndentMap {
    /// Learns from pairs (snippet, file) of aligned lines; `others`: further indentations that will be mapped.
    pub(super) fn learn(pairs: &[(&str, &str)], others: &[&str], style: Style) -> Self {
        if pairs.iter().all(|(snippet, file)| snippet == file) {
            return Self::Same;
        }
        let scale = by_count(pairs, others, style).or_else(|| table(pairs));
        scale.unwrap_or(Self::Unknown)
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

fn by_count(pairs: &[(&str, &str)], others: &[&str], style: Style) -> Option<IndentMap> {
    let snippets = || pairs.iter().map(|(snippet, _)| *snippet).chain(others.iter().copied());
    let to = only_blank(pairs.iter().map(|(_, file)| *file))?.unwrap_or(style.blank);
    let from = only_blank(snippets())?.unwrap_or(to);
    let width = |indent: &str| i64::try_from(indent.len()).unwrap_or(i64::from(u16::MAX));
    let counts: Vec<(i64, i64)> = pairs
        .iter()
        .map(|(snippet, file)| (width(snippet), width(file)))
        .collect();
    let &(first, image) = counts.first()?;
    let step = snippets().fold(0, |step, indent| gcd(step, (width(indent) - first).abs()));
    let (num, den) = match counts.iter().find(|(n, _)| *n != first) {
        Some(&(second, other)) => (other - image, second - first),
        // All known lines have the same indentation.
        None if (from, to) == ('\t', ' ') => (style.step, 1),
        None if (from, to) == (' ', '\t') => {
            let width = if first > 0 { first.checked_div(image)? } else { step };
            (1, Some(width).filter(|width| matches!(width, 2..=4 | 8))?)
        }
        None if first > 0 && step > 0 && first * style.step == image * step => (style.step, step),
        None => (1, 1),
    };
    let plain = num * den > 0 && (num % den == 0 || den % num == 0);
    let base = image - (first * num).checked_div(den)?;
    // Steps of another width and a shift at once are more likely a coincidence.
    let shifted = num == den || base == 0 || from != to;
    let fits = |(n, f): &(i64, i64)| n * num % den == 0 && n * num / den + base == *f;
    (plain && shifted && counts.iter().all(fits)).then_some(IndentMap::Scale { num, den, base, to })
}

/// A mapping for exactly these pairs; `None` if one indentation stands for two, or two for one.
fn table(pairs: &[(&str, &str)]) -> Option<IndentMap> {
    let mut table: Vec<(String, String)> = Vec::new();
    for (snippet, file) in pairs {
        if table.iter().any(|(known, image)| (known == snippet) != (image == file)) {
            return None;
        }
        table.push(((*snippet).to_owned(), (*file).to_owned()));
    }
    Some(IndentMap::Table(table))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How the indentation of the new text relates to that of the file.
#[derive(Debug, PartialEq)]
enum IndentBasis {
    /// It is indented like the file, although `old_string` is not.
    AsWritten,
    /// The lines are contradictory.
    Unclear,
    /// It is indented like `old_string`.
    Mapped(IndentMap),
    /// It is indented like `old_string`, of which only the first line lost its indentation.
    FirstApart,
}

/// Whether the new text is indented like the file although the old text is not. Lines that the edit keeps in their block
/// decide, then those that it changes, then the first line.
fn how(parts: &Parts<'_>, partners: &[Option<usize>]) -> IndentBasis {
    if parts.cut {
        return of_pairs(parts);
    }
    let indents = |lines: &[&'_ str]| -> Vec<String> {
        let solid = lines.iter().filter(|line| !line.trim().is_empty());
        solid.map(|line| indent_of(line).to_owned()).collect()
    };
    let (file, old, new) = (indents(parts.file), indents(parts.old), indents(parts.new));
    let (mut as_copied, mut as_filed, mut elsewhere, mut stays, mut like_copy) = (false, false, false, false, false);
    for (index, now) in parts.new.iter().enumerate() {
        let Some(at) = partners[index].filter(|_| !now.trim().is_empty()) else {
            continue;
        };
        let (in_copy, in_file) = (
            indent_of(now) == indent_of(parts.old[at]),
            indent_of(now) == indent_of(parts.file[at]),
        );
        let same = key(now) == key(parts.old[at]);
        // Where the parent block changed, an equal indentation is a coincidence.
        let inside = !is_rewrapped(parts, partners, (index, at));
        // A first line that lost its indentation may have come from another place.
        let lost = index == 0 && indent_of(now).is_empty() && indent_of(parts.old[0]).is_empty();
        elsewhere |= same && inside && !in_copy && !in_file && !lost;
        if indent_of(parts.old[at]) == indent_of(parts.file[at]) {
            continue;
        }
        as_copied |= same && inside && in_copy;
        as_filed |= same && inside && in_file;
        stays |= inside && in_file && likeness(now, parts.old[at]) >= ALIKE;
        like_copy |= in_copy;
    }
    let begins = !like_copy
        && new.first() == file.first()
        && old.first().is_some_and(String::is_empty)
        && new.first() != old.first();
    // An old text without any indentation cannot be what the new one is indented like.
    let flat = old.iter().all(String::is_empty) && file.iter().any(|indent| Some(indent) != file.first());
    let of_file = |indent: &String| file.contains(indent) && !old.contains(indent);
    let mut deep = new.iter().filter(|indent| !indent.is_empty()).peekable();
    let only_of_file = deep.peek().is_some() && deep.all(of_file);
    // Below a new line that opens a block, lines are deeper for that reason.
    let wraps = partners.first() == Some(&None) && parts.new.first().is_some_and(|line| opens(line));
    match (as_copied, as_filed) {
        (true, true) => IndentBasis::Unclear,
        (true, false) => of_pairs(parts),
        (false, _) if elsewhere => IndentBasis::Unclear,
        (false, true) => IndentBasis::AsWritten,
        (false, false) if stays || begins => IndentBasis::AsWritten,
        (false, false) if !like_copy && flat && new.iter().any(of_file) => IndentBasis::AsWritten,
        (false, false) if new.first() == old.first() && !like_copy && only_of_file && !wraps => IndentBasis::AsWritten,
        (false, false) if new.first() == old.first() => of_pairs(parts),
        (false, false) => IndentBasis::Unclear,
    }
}

/// Whether the line has other parent lines than its old line had. The old lines are indented as in the file, because
/// the old text may have lost its indentation.
fn is_rewrapped(parts: &Parts<'_>, partners: &[Option<usize>], (new, old): (usize, usize)) -> bool {
    let above = |lines: &[&str], at: usize, alone: &dyn Fn(usize) -> bool| {
        let depth = |at: usize| lines.get(at).map_or(0, |line| indent_of(line).len());
        let mut least = depth(at);
        let mut count = 0;
        for above in (0..at).rev() {
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

/// The indentation mapping of one edit. `partners`: for each new line the old line that it is aligned with.
pub(super) struct IndentMapping<'a> {
    parts: &'a Parts<'a>,
    partners: &'a [Option<usize>],
    how: IndentBasis,
}

impl<'a> IndentMapping<'a> {
    pub(super) fn learn(parts: &'a Parts<'a>, partners: &'a [Option<usize>]) -> Self {
        let how = how(parts, partners);
        Self { parts, partners, how }
    }

    /// The indentation of an old line in `old_string` and in the file.
    fn known(&self, old: usize) -> Option<(&'a str, &'a str)> {
        Some((
            indent_of(self.parts.old.get(old)?),
            indent_of(self.parts.file.get(old)?),
        ))
    }

    fn partner(&self, new: usize) -> Option<usize> {
        self.partners.get(new).copied().flatten()
    }

    /// The indentation in the file for the new line at `index`.
    pub(super) fn image(&self, index: usize, line: &str) -> Result<String, Doubt> {
        let asked = indent_of(line);
        let own = match index {
            0 if asked.is_empty() && is_first_apart(self.parts) => Some(0),
            _ => self.partner(index),
        };
        let found = match own.and_then(|old| Some((old, self.known(old)?))) {
            Some((old, (copied, file))) if copied == asked => self.is_certain(index, old).then(|| file.to_owned()),
            _ => self.mapped(index, asked),
        };
        found.ok_or_else(|| Doubt::Indentation(line.trim().to_owned()))
    }

    /// The indentation of a line that is not aligned, or differs in indentation from its old line.
    fn mapped(&self, index: usize, asked: &str) -> Option<String> {
        match &self.how {
            IndentBasis::AsWritten => Some(asked.to_owned()),
            IndentBasis::Unclear => None,
            IndentBasis::FirstApart if index > 0 && asked.is_empty() && !self.at_margin(index) => None,
            IndentBasis::FirstApart => Some(asked.to_owned()),
            IndentBasis::Mapped(map) => map.image(asked),
        }
    }

    /// Whether the last aligned line before this one, not counting the first, has no indentation.
    fn at_margin(&self, index: usize) -> bool {
        let before = (1..index).rev().find_map(|new| self.partner(new));
        before.and_then(|old| self.known(old)) == Some(("", ""))
    }

    /// If one indentation of `old_string` stands for several in the file, only a line that stays in its block can be
    /// placed.
    fn is_certain(&self, new: usize, old: usize) -> bool {
        match self.how {
            IndentBasis::Unclear => self.known(old).is_some_and(|(copied, file)| copied == file),
            IndentBasis::Mapped(IndentMap::Unknown) => !is_rewrapped(self.parts, self.partners, (new, old)),
            _ => true,
        }
    }

    /// If `old_string` is indented less than the file, refuses a new line that opens a block without a deeper line
    /// after it: the indentation of the block was lost and cannot be inferred.
    pub(super) fn refuse_flat(&self) -> Result<(), Doubt> {
        if matches!(self.how, IndentBasis::AsWritten | IndentBasis::Mapped(IndentMap::Same)) {
            return Ok(());
        }
        let lines = self.parts.new.iter().zip(self.partners);
        let lines: Vec<(&str, bool)> = lines
            .filter(|(line, _)| !line.trim().is_empty())
            .map(|(line, partner)| (*line, partner.is_none()))
            .collect();
        for ((line, fresh), (after, _)) in lines.iter().zip(lines.iter().skip(1)) {
            let deeper = indent_of(after).len() > indent_of(line).len();
            if *fresh && opens(line) && !closes(after) && !deeper {
                return Err(Doubt::Indentation(after.trim().to_owned()));
            }
        }
        Ok(())
    }
}

/// Learns the mapping from the aligned lines, if the new text is indented like `old_string`.
fn of_pairs(parts: &Parts<'_>) -> IndentBasis {
    if is_first_apart(parts) {
        return IndentBasis::FirstApart;
    }
    let pairs: Vec<(&str, &str)> = parts
        .old
        .iter()
        .zip(parts.file)
        .skip(usize::from(parts.cut))
        .filter(|(old, file)| !old.trim().is_empty() && !file.trim().is_empty())
        .map(|(old, file)| (indent_of(old), indent_of(file)))
        .collect();
    let solid = parts.new.iter().filter(|line| !line.trim().is_empty());
    let news: Vec<&str> = solid.map(|line| indent_of(line)).collect();
    IndentBasis::Mapped(IndentMap::learn(&pairs, &news, parts.style))
}

/// Whether only the first line of `old_string` lost its indentation.
fn is_first_apart(parts: &Parts<'_>) -> bool {
    let mut pairs = parts
        .old
        .iter()
        .zip(parts.file)
        .map(|(old, file)| (indent_of(old), indent_of(file)));
    let lost = pairs
        .next()
        .is_some_and(|(old, file)| old.is_empty() && !file.is_empty());
    lost && parts.old.len() > 1 && pairs.all(|(old, file)| old == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Style = Style { blank: ' ', step: 4 };
    const TABS: Style = Style { blank: '\t', step: 1 };

    fn image(pairs: &[(&str, &str)], others: &[&str], style: Style, asked: &str) -> Option<String> {
        IndentMap::learn(pairs, others, style).image(asked)
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
    }

    fn told(file: &[&str], old: &[&str], new: &[&str]) -> &'static str {
        let style = Style::of(&file.join("\n"));
        let parts = Parts {
            file,
            old,
            new,
            cut: false,
            style,
        };
        match how(&parts, &crate::tools::replace::parts::align(old, new)) {
            IndentBasis::AsWritten => "file",
            IndentBasis::Mapped(_) | IndentBasis::FirstApart => "copy",
            IndentBasis::Unclear => "unclear",
        }
    }

    #[test]
    fn lines_that_stay_speak_first() {
        let file = ["    if a {", "        b();", "    }"];
        let old = ["if a {", "    b();", "}"];
        assert_eq!(told(&file, &old, &["if a {", "    c(); d();", "}"]), "copy");
        assert_eq!(told(&file, &old, &["    if a {", "        c(); d();", "    }"]), "file");
        assert_eq!(told(&file, &old, &["if a {", "    c();", "    }"]), "unclear");
        // A line that was moved out of its block happens to have the indentation that both readings give.
        assert_eq!(told(&file, &old, &["    b();"]), "unclear");
        assert_eq!(
            told(&["  a();"], &["    a();"], &["    if x {", "      a();", "    }"]),
            "copy"
        );
        assert_eq!(
            told(&["  a();"], &["    a();"], &["  if x {", "    a();", "  }"]),
            "unclear"
        );
    }

    #[test]
    fn tabs_and_copies_without_depth_tell_by_themselves() {
        let file = ["def f():", "    a = 1", "    b = 2"];
        assert_eq!(
            told(&file[1..], &["\ta = 1", "\tb = 2"], &["    if x:", "        a = 1"]),
            "unclear"
        );
        assert_eq!(
            told(&file, &["def f():", "a = 1", "b = 2"], &["def f():", "    a = 3"]),
            "file"
        );
        assert_eq!(told(&file[1..], &["      a = 1"], &["    other(thing)"]), "unclear");
    }
}
