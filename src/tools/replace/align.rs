//! Aligns the lines of `new_string` with those of `old_string`.

use super::find::{Tolerance, key};
use super::tokens::likeness;
use similar::{Algorithm, DiffTag, capture_diff_slices};

/// Lines less similar than this are not treated as one changed line.
const ALIKE: f64 = 0.6;

/// For each line of the new text, the line of the old text that it keeps or replaces. Among lines with the same words,
/// those with the same indentation are paired, unless fewer lines are paired that way.
pub(super) fn align(old: &[&str], new: &[&str]) -> Vec<Option<usize>> {
    let loose = by_words(old, new);
    let mut strict = vec![None; new.len()];
    for op in capture_diff_slices(
        Algorithm::Myers,
        &keys(old, Tolerance::Ends),
        &keys(new, Tolerance::Ends),
    ) {
        let (tag, olds, news) = op.as_tag_tuple();
        let found: Vec<Option<usize>> = match tag {
            DiffTag::Equal => olds.map(Some).collect(),
            _ => {
                let (part, by) = (old.get(olds.clone()), new.get(news.clone()));
                let found = by_words(part.unwrap_or_default(), by.unwrap_or_default());
                found.into_iter().map(|old| old.map(|old| old + olds.start)).collect()
            }
        };
        for (partner, found) in strict.iter_mut().skip(news.start).zip(found) {
            *partner = found;
        }
    }
    let kept = |partners: &[Option<usize>]| {
        let same = |(new, partner): &(&&str, &Option<usize>)| {
            let line = partner.and_then(|at| old.get(at));
            line.is_some_and(|old| key(old, Tolerance::Blanks) == key(new, Tolerance::Blanks))
        };
        new.iter().zip(partners).filter(same).count()
    };
    if kept(&strict) >= kept(&loose) { strict } else { loose }
}

fn keys(lines: &[&str], tolerance: Tolerance) -> Vec<String> {
    lines.iter().map(|line| key(line, tolerance)).collect()
}

fn by_words(old: &[&str], new: &[&str]) -> Vec<Option<usize>> {
    let mut partners = vec![None; new.len()];
    let mut set = |new: usize, old: usize| {
        if let Some(partner) = partners.get_mut(new) {
            *partner = Some(old);
        }
    };
    for op in capture_diff_slices(
        Algorithm::Myers,
        &keys(old, Tolerance::Blanks),
        &keys(new, Tolerance::Blanks),
    ) {
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
                            .is_some_and(|old| !line.trim().is_empty() && likeness(old, line) >= ALIKE)
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

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn lines_equally_deep_belong_together() {
        let old = ["a {", "  b", "}"];
        let new = ["if x {", "  a {", "    b", "  }", "}"];
        assert_eq!(align(&old, &new), [None, Some(0), Some(1), None, Some(2)]);
        let old = ["{", "x", "    }", "  }"];
        let new = ["{", "x", "    }", "  },"];
        assert_eq!(align(&old, &new), [Some(0), Some(1), Some(2), Some(3)]);
        // If all indentation differs, lines are paired by their words alone.
        let deeper = ["  a {", "    b", "  }"];
        assert_eq!(align(&["a {", "  b", "}"], &deeper), [Some(0), Some(1), Some(2)]);
    }
}
