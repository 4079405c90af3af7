//! The lines of one edit: those of the file, of `old_string` and of `new_string`, which of them belong together, and why
//! the new ones may be ambiguous.

use super::lines::Style;
use super::tokens::{ALIKE, key, likeness};
use similar::{Algorithm, DiffTag, capture_diff_slices};

/// Why the new lines are ambiguous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Doubt {
    #[error("the indentation of the new line `{0}` cannot be inferred from the matched lines")]
    Indentation(String),
    #[error("the new text changes `{0}`, which differs from what the file has")]
    Conflict(String),
    #[error(
        "its line breaks differ from the file, and the edit changes text next to `{0}`: copy the lines as they are there"
    )]
    Breaks(String),
    #[error("it spells characters of the file differently, and the new text adds more of them: `{0}`")]
    Spelling(String),
}

/// The inputs of a merge, as lines without ends; `file` and `old` correspond line by line.
pub(super) struct Parts<'a> {
    pub(super) file: &'a [&'a str],
    pub(super) old: &'a [&'a str],
    pub(super) new: &'a [&'a str],
    /// The match begins inside a line, whose indentation is not part of it.
    pub(super) cut: bool,
    pub(super) style: Style,
}

/// For each line of the new text, the line of the old text that it keeps or replaces.
pub(super) fn align(old: &[&str], new: &[&str]) -> Vec<Option<usize>> {
    let keys = |lines: &[&str]| lines.iter().map(|line| key(line)).collect::<Vec<_>>();
    let mut partners = vec![None; new.len()];
    for op in capture_diff_slices(Algorithm::Myers, &keys(old), &keys(new)) {
        let (tag, olds, news) = op.as_tag_tuple();
        match tag {
            _ if olds.len() == news.len() => olds.zip(news).for_each(|(old, new)| partners[new] = Some(old)),
            DiffTag::Replace => {
                let mut next = olds.start;
                for at in news.filter(|at| !new[*at].trim().is_empty()) {
                    let found = (next..olds.end).find(|from| likeness(old[*from], new[at]) >= ALIKE);
                    partners[at] = found;
                    next = found.map_or(next, |found| found + 1);
                }
            }
            _ => {}
        }
    }
    partners
}

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn lines_belong_together_by_their_words() {
        let deeper = ["  a {", "    b", "  }"];
        assert_eq!(align(&["a {", "  b", "}"], &deeper), [Some(0), Some(1), Some(2)]);
        assert_eq!(align(&["a = 1;"], &["a = 2;"]), [Some(0)]);
        assert_eq!(
            align(&["first();", "last();"], &["first();", "new();", "last();"]),
            [Some(0), None, Some(1)]
        );
    }
}
