//! Finds the single place that is nearly equal to the snippet, within the limits in this file.

use super::find::{Line, Tolerance, key};
use super::tokens::{is_word, tokens};
use similar::{Algorithm, DiffTag, capture_diff_slices};
use std::collections::HashSet;

/// Allowed edit distance: one in this many characters, with repeated blanks counted once.
pub const NEAR: usize = 10;
/// Shortest snippet, in characters, that is matched approximately.
pub const SHORTEST: usize = 16;
/// Upper limit for the product of the characters of file and snippet; above it nothing is searched.
const WORK: usize = 200_000_000;

/// The result of the search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Near {
    /// The file's line for each non-blank line of the snippet, and the edit distance in characters.
    One {
        lines: Vec<usize>,
        distance: usize,
    },
    /// Several places are about equally near; their first lines, from 0.
    Several(Vec<usize>),
    /// Near enough, but the place has other numbers or other known names.
    Other(usize),
    Nothing,
}

/// Searches for the snippet without its blank lines at both ends. The second-best place must be worse than the best by
/// the whole allowance (at distance 0: by anything), or contain other names.
pub(super) fn nearest(file: &[Line<'_>], snippet: &[&str]) -> Near {
    let solid: Vec<(usize, Vec<char>)> = file
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.text.trim().is_empty())
        .map(|(index, line)| (index, key(line.text, Tolerance::Blanks).chars().collect()))
        .collect();
    let snippet: Vec<&str> = snippet.iter().copied().filter(|line| !line.trim().is_empty()).collect();
    let wanted: Vec<Vec<char>> = snippet
        .iter()
        .map(|line| key(line, Tolerance::Blanks).chars().collect())
        .collect();
    let length: usize = wanted.iter().map(Vec::len).sum();
    let size: usize = solid.iter().map(|(_, line)| line.len()).sum();
    if wanted.is_empty() || length.saturating_mul(size) > WORK {
        return Near::Nothing;
    }
    let allowed = if length < SHORTEST { 0 } else { (length / NEAR).max(1) };
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (at, window) in solid.windows(wanted.len()).enumerate() {
        if let Some(distance) = window_distance(window, &wanted, 2 * allowed) {
            found.push((distance, at));
        }
    }
    let Some(&(best, at)) = found.iter().min() else {
        return Near::Nothing;
    };
    if best > allowed {
        return Near::Nothing;
    }
    let margin = if best == 0 { 0 } else { best + allowed };
    let line_of = |at: usize| solid.get(at).map_or(0, |(index, _)| *index);
    let words: HashSet<&str> = file.iter().flat_map(|line| tokens(line.text)).collect();
    let names_others = |at: usize| {
        (at..at + wanted.len()).zip(&snippet).any(|(at, copied)| {
            let real = file.get(line_of(at)).map_or("", |line| line.text);
            about_something_else(copied, real, &words)
        })
    };
    let other = names_others(at);
    // A place with other names does not compete with one that differs only by typing errors.
    let rivals: Vec<usize> = found
        .iter()
        .filter(|(distance, rival)| {
            *distance <= margin && (*rival == at || other || *distance == best || !names_others(*rival))
        })
        .map(|(_, at)| *at)
        .collect();
    if rivals.len() > 1 {
        return Near::Several(rivals.into_iter().map(line_of).collect());
    }
    if other {
        return Near::Other(line_of(at));
    }
    let lines = (at..at + wanted.len()).map(line_of).collect();
    Near::One { lines, distance: best }
}

fn window_distance(window: &[(usize, Vec<char>)], wanted: &[Vec<char>], limit: usize) -> Option<usize> {
    let gaps: usize = window
        .iter()
        .zip(wanted)
        .map(|((_, line), wanted)| line.len().abs_diff(wanted.len()))
        .sum();
    if gaps > limit {
        return None;
    }
    window.iter().zip(wanted).try_fold(0, |sum, ((_, line), wanted)| {
        let distance = if line == wanted {
            0
        } else {
            distance(line, wanted, limit - sum)?
        };
        (sum + distance <= limit).then_some(sum + distance)
    })
}

/// The edit distance of two lines, `None` above `limit`. Computes only the diagonal band within the limit.
fn distance(a: &[char], b: &[char], limit: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let far = limit + 1;
    let mut row: Vec<usize> = (0..=b.len()).map(|cost| cost.min(far)).collect();
    for (i, ca) in a.iter().enumerate() {
        let (from, to) = ((i + 1).saturating_sub(limit), (i + 1 + limit).min(b.len()));
        let mut next = vec![far; b.len() + 1];
        if from == 0
            && let Some(first) = next.first_mut()
        {
            *first = i + 1;
        }
        for j in from.max(1)..=to {
            let above = row.get(j).copied().unwrap_or(far);
            let left = next.get(j - 1).copied().unwrap_or(far);
            let corner = row.get(j - 1).copied().unwrap_or(far);
            let change = usize::from(b.get(j - 1) != Some(ca));
            if let Some(cell) = next.get_mut(j) {
                *cell = (above + 1).min(left + 1).min(corner + change).min(far);
            }
        }
        if next.iter().all(|&cost| cost >= far) {
            return None;
        }
        row = next;
    }
    row.last().copied().filter(|&cost| cost <= limit)
}

/// Whether a copied line contains other names than the file's line: another number, another name that occurs in the
/// file, or a name with another last character.
fn about_something_else(copied: &str, real: &str, known: &HashSet<&str>) -> bool {
    let (copied, real) = (tokens(copied), tokens(real));
    capture_diff_slices(Algorithm::Myers, &copied, &real).iter().any(|op| {
        if op.tag() != DiffTag::Replace && op.tag() != DiffTag::Delete && op.tag() != DiffTag::Insert {
            return false;
        }
        let ours = copied.get(op.old_range()).unwrap_or_default();
        let theirs = real.get(op.new_range()).unwrap_or_default();
        let word = |token: &&&str| token.starts_with(is_word);
        let (mut our_words, mut their_words) = (ours.iter().filter(word), theirs.iter().filter(word));
        our_words.any(|word| {
            let rival = their_words.next();
            let swapped = rival.is_some() && known.contains(word);
            swapped || rival.is_some_and(|rival| !is_slip(word, rival))
        })
    })
}

/// A misspelt word of `old_string` that does not occur in the file and would get into it with the new lines.
pub(super) fn repeated<'a>(file: &str, old: &'a str, lines: &[String]) -> Option<&'a str> {
    let known: HashSet<&str> = words(file).collect();
    let made: HashSet<&str> = lines.iter().flat_map(|line| words(line)).collect();
    words(old).find(|word| !known.contains(word) && made.contains(word))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    tokens(text).into_iter().filter(|token| token.starts_with(is_word))
}

/// Whether one word is a misspelling of the other: at most two edits (one in short words), but neither another number
/// nor another last character (`test_a`, `test_b`).
pub(super) fn is_slip(copied: &str, real: &str) -> bool {
    let digits = |word: &str| word.chars().filter(char::is_ascii_digit).collect::<String>();
    let shorter = copied.chars().count().min(real.chars().count());
    let head = |word: &str| word.char_indices().next_back().map_or(0, |(at, _)| at);
    let last_only = copied.len() == real.len() && copied.get(..head(copied)) == real.get(..head(real));
    let most = if shorter < 6 { 1 } else { 2 };
    shorter >= 4 && !last_only && digits(copied) == digits(real) && strsim::osa_distance(copied, real) <= most
}

#[cfg(test)]
mod tests {
    use super::super::find::lines;
    use super::*;

    fn chars(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    #[test]
    fn distances_are_bounded() {
        assert_eq!(distance(&chars("kitten"), &chars("sitting"), 3), Some(3));
        assert_eq!(distance(&chars("kitten"), &chars("sitting"), 2), None);
        assert_eq!(distance(&chars(""), &chars("ab"), 2), Some(2));
        assert_eq!(distance(&chars("abc"), &chars("abc"), 0), Some(0));
    }

    #[test]
    fn one_near_place_is_found_and_two_are_not() {
        let file = lines("fn first() {\n    let value = compute(1);\n}\n\nfn second() {\n    other();\n}\n");
        let near = nearest(&file, &["fn first() {", "    let valeu = compute(1);"]);
        assert_eq!(
            near,
            Near::One {
                lines: vec![0, 1],
                distance: 2
            }
        );
        let twice = lines("    let value = compute(a);\n    let value = compute(b);\n");
        assert!(matches!(
            nearest(&twice, &["    let value = comptue(a);"]),
            Near::One { distance: 2, .. }
        ));
        let alike = lines("    let value = compute(a);\n    let value = compute(a,);\n");
        assert_eq!(
            nearest(&alike, &["    let value = comptue(a);"]),
            Near::Several(vec![0, 1])
        );
        assert_eq!(nearest(&file, &["    let value = compute(2);"]), Near::Other(1));
    }

    #[test]
    fn slips_are_told_from_other_names() {
        assert!(is_slip("retrun", "return") && is_slip("valeu", "value"));
        assert!(!is_slip("test_a", "test_b") && !is_slip("x1", "x2") && !is_slip("item1", "item2"));
    }
}
