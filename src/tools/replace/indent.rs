//! Maps the indentation of a copied snippet to that of the file.

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
    /// The file's indentation is the snippet's with this in front.
    Add(String),
    /// The reverse: the snippet's indentation is the file's with this in front.
    Strip(String),
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
        if let Some(map) = by_prefix(pairs) {
            return map;
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
            Self::Add(prefix) => Some(format!("{prefix}{indent}")),
            Self::Strip(prefix) => indent.strip_prefix(prefix.as_str()).map(str::to_owned),
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

/// A mapping for exactly these pairs; `None` if they contradict each other.
pub(super) fn table(pairs: &[(&str, &str)]) -> Option<Map> {
    let mut table: Vec<(String, String)> = Vec::new();
    for (snippet, file) in pairs {
        match table.iter().find(|(known, _)| known == snippet) {
            Some((_, image)) if image != file => return None,
            Some(_) => {}
            None => table.push(((*snippet).to_owned(), (*file).to_owned())),
        }
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

fn by_prefix(pairs: &[(&str, &str)]) -> Option<Map> {
    let &(snippet, file) = pairs.first()?;
    if let Some(prefix) = file.strip_suffix(snippet)
        && pairs
            .iter()
            .all(|(snippet, file)| file.strip_prefix(prefix) == Some(snippet))
    {
        return Some(Map::Add(prefix.to_owned()));
    }
    let prefix = snippet.strip_suffix(file)?;
    let all = pairs
        .iter()
        .all(|(snippet, file)| snippet.strip_prefix(prefix) == Some(file));
    all.then(|| Map::Strip(prefix.to_owned()))
}

fn reduced(a: i64, b: i64) -> Option<(i64, i64)> {
    let divisor = gcd(a.abs(), b.abs());
    let sign = if b < 0 { -1 } else { 1 };
    (divisor > 0).then(|| (sign * a / divisor, sign * b / divisor))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
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
}
