//! Handles exact matches of whole lines whose new text is indented with tabs where the file uses spaces, or the
//! reverse.

use super::find::Line;
use super::indent::{self, Style};
use super::merge::align;
use super::tokens::{ALIKE, key, likeness};

/// Number of indented lines that show how a file is indented.
const SHOWN: usize = 3;

/// The new text for an exact match of whole lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blanks {
    /// As written: whole lines that match exactly are replaced byte by byte.
    Literal,
    /// The same lines with the file's kind of indentation.
    OfFile(String),
    /// It mixes tabs and spaces, and no unchanged line shows how to convert them. The reason for the model.
    Doubt(String),
}

/// Decides about `new`, which replaces the whole lines `old` of the file.
pub(super) fn judge(lines: &[Line<'_>], old: &str, new: &str, style: Style) -> Blanks {
    let (olds, news): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let Some((file, other)) = strange(lines, &olds, &news) else {
        return Blanks::Literal;
    };
    if is_reindented(&olds, &news) {
        return Blanks::Literal;
    }
    translated(&olds, &news, other, style).map_or_else(
        || {
            let line = news.iter().find(|line| indent::of(line).starts_with(other));
            Blanks::Doubt(format!(
                "the file indents with {} only and the new line `{}` with {}: write it with {0}",
                named(file),
                line.map_or("", |line| line.trim()),
                named(other),
            ))
        },
        Blanks::OfFile,
    )
}

fn named(blank: char) -> &'static str {
    if blank == '\t' { "tabs" } else { "blanks" }
}

/// The file's indentation character and the other one, if the new lines use the other one and the old lines do not.
fn strange(lines: &[Line<'_>], olds: &[&str], news: &[&str]) -> Option<(char, char)> {
    let (mut tabs, mut blanks) = (0, 0);
    for line in lines.iter().filter(|line| !line.text.trim().is_empty()) {
        let indent = indent::of(line.text);
        tabs += usize::from(indent.contains('\t'));
        // A single space is the margin of a block comment.
        blanks += usize::from(indent.len() > 1 && indent.contains(' '));
    }
    let (file, other, sign) = match (tabs, blanks) {
        (0, SHOWN..) => (' ', '\t', "\t"),
        (SHOWN.., 0) => ('\t', ' ', "  "),
        _ => return None,
    };
    let has = |lines: &[&str]| {
        let mut solid = lines.iter().filter(|line| !line.trim().is_empty());
        solid.any(|line| indent::of(line).contains(sign))
    };
    (has(news) && !has(olds)).then_some((file, other))
}

/// Whether the edit changes nothing but whitespace, which is then its purpose.
fn is_reindented(olds: &[&str], news: &[&str]) -> bool {
    let keys = |lines: &[&str]| {
        let all = lines.iter().map(|line| key(line));
        all.filter(|key| !key.is_empty()).collect::<Vec<_>>()
    };
    keys(olds) == keys(news)
}

/// The new lines with the file's indentation, converted at the ratio that unchanged lines show.
fn translated(olds: &[&str], news: &[&str], other: char, style: Style) -> Option<String> {
    let solid = || news.iter().filter(|line| !line.trim().is_empty());
    let pure = solid().all(|line| indent::of(line).chars().all(|c| c == other));
    let pairs: Vec<(usize, usize)> = news
        .iter()
        .zip(align(olds, news))
        .filter_map(|(new, partner)| Some((*new, *olds.get(partner?)?)))
        .filter(|(new, old)| !indent::of(new).is_empty() && likeness(new, old) >= ALIKE)
        .map(|(new, old)| (indent::of(new).len(), indent::of(old).len()))
        .collect();
    let blanks: &[usize] = if other == '\t' { &[style.step] } else { &[2, 3, 4, 8] };
    let image = |count: usize, step: usize| match other {
        '\t' => Some(" ".repeat(count * step)),
        _ => count.is_multiple_of(step).then(|| "\t".repeat(count / step)),
    };
    let shown = |step: &usize| {
        let same = |&(new, old): &(usize, usize)| image(new, *step).is_some_and(|image| image.len() == old);
        pairs.iter().any(same)
    };
    let mut steps = blanks.iter().copied().filter(shown);
    let step = steps.next().filter(|_| pure && steps.next().is_none())?;
    let line = |line: &&str| {
        let indent = indent::of(line);
        Some(image(indent.len(), step)? + line.get(indent.len()..)?)
    };
    let lines = news.iter().map(|text| match text.trim().is_empty() {
        true => Some((*text).to_owned()),
        false => line(text),
    });
    Some(lines.collect::<Option<Vec<_>>>()?.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::replace::find;

    fn judged(file: &str, old: &str, new: &str) -> Blanks {
        assert!(file.contains(old));
        judge(&find::lines(file), old, new, Style::of(file))
    }

    const RUST: &str = "fn f() {\n    if a {\n        b();\n        c();\n    }\n    e();\n}\n";
    const GO: &str = "func f() {\n\tif a {\n\t\tb()\n\t}\n}\n";

    #[test]
    fn whole_lines_are_taken_at_their_word() {
        for (old, new) in [
            ("        c();\n", "c(1);\n"),
            ("    if a {\n        b();\n", "if a {\nb(1);\n"),
            ("        c();\n", "        if x {\n          c();\n        }\n"),
            ("        c();\n", "\t\tc();\n"),
        ] {
            assert_eq!(judged(RUST, old, new), Blanks::Literal, "{new:?}");
        }
        assert_eq!(judged("a:\n\tb\n", "\tb\n", "    c\n"), Blanks::Literal);
        assert_eq!(judged(GO, "\t\tb()\n", "\t\t// * a\n"), Blanks::Literal);
    }

    #[test]
    fn the_other_kind_of_blanks_becomes_that_of_the_file() {
        let ours = |file, old, new| match judged(file, old, new) {
            Blanks::OfFile(text) => text,
            other => panic!("{other:?}"),
        };
        let new = "\tif a {\n\t\tb(1);\n\t\tif d {\n\t\t\tc();\n";
        let asked = "    if a {\n        b(1);\n        if d {\n            c();\n";
        assert_eq!(ours(RUST, "    if a {\n        b();\n        c();\n", new), asked);
        assert_eq!(ours(GO, "\t\tb()\n", "    b(1)\n"), "\t\tb(1)\n");
        for (file, old, new) in [
            (RUST, "        c();\n", "\t\twholly_other(x);\n"),
            (RUST, "        c();\n", "\t\tc(1);\n        d();\n"),
            (GO, "\tif a {\n\t\tb()\n", "  if x {\n\t\tb(1)\n"),
            (RUST, "        b();\n", "\t\tif d {\n\t\t\tb();\n\t\t}\n"),
        ] {
            assert!(matches!(judged(file, old, new), Blanks::Doubt(_)), "{new:?}");
        }
    }
}
