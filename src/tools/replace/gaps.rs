//! Adapts the blank lines of a request to those of the matched place in the file.

use super::align::align;

/// The request with the file's blank lines in the parts that it keeps.
pub(super) struct Level<'a> {
    /// As many lines as the matched part of the file, blank where that is blank.
    pub(super) old: Vec<&'a str>,
    pub(super) new: Vec<&'a str>,
}

fn blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// `file`: the matched lines, beginning and ending with a non-blank one; it has as many non-blank lines as `old`.
pub(super) fn level<'a>(old: &[&'a str], new: &[&'a str], file: &[&'a str]) -> Level<'a> {
    let (old, new) = trimmed(old, new);
    let mut solid = old.iter().copied().filter(|line| !blank(line));
    let levelled = file
        .iter()
        .map(|line| {
            if blank(line) {
                *line
            } else {
                solid.next().unwrap_or(line)
            }
        })
        .collect();
    Level {
        old: levelled,
        new: with_gaps(old, new, file),
    }
}

/// Without the blank lines at the ends of `old`, and with as many fewer at the ends of `new`.
fn trimmed<'x, 'a>(old: &'x [&'a str], new: &'x [&'a str]) -> (&'x [&'a str], &'x [&'a str]) {
    let heads = |lines: &[&str]| lines.iter().take_while(|line| blank(line)).count();
    let tails = |lines: &[&str]| lines.iter().rev().take_while(|line| blank(line)).count();
    let cut = |lines: &'x [&'a str], head: usize, tail: usize| {
        let end = lines.len().saturating_sub(tail).max(head);
        lines.get(head..end).unwrap_or_default()
    };
    let (head, tail) = (heads(old), tails(old));
    (
        cut(old, head, tail),
        cut(new, head.min(heads(new)), tail.min(tails(new))),
    )
}

/// Uses the file's blank lines between two lines that are adjacent in `old` and `new` with the same number of blank
/// lines between them.
fn with_gaps<'a>(old: &[&'a str], new: &[&'a str], file: &[&'a str]) -> Vec<&'a str> {
    let partners = align(old, new);
    let solid_places = |lines: &[&str]| {
        let places = lines.iter().enumerate().filter(|(_, line)| !blank(line));
        places.map(|(index, _)| index).collect::<Vec<_>>()
    };
    let (olds, files) = (solid_places(old), solid_places(file));
    let mut out: Vec<&'a str> = Vec::new();
    let mut last: Option<(usize, usize)> = None;
    for (index, line) in new.iter().enumerate().filter(|(_, line)| !blank(line)) {
        let own = |gap: std::ops::Range<usize>| new.get(gap).unwrap_or_default();
        let rank = partners
            .get(index)
            .copied()
            .flatten()
            .and_then(|old| olds.iter().position(|&place| place == old));
        let from = last.map_or(0, |(before, _)| before + 1);
        let kept = last.zip(rank).and_then(|((_, before), rank)| {
            let (a, b) = (*olds.get(before)?, *olds.get(rank)?);
            let (c, d) = (*files.get(before)?, *files.get(rank)?);
            (rank == before + 1 && b - a == index + 1 - from)
                .then(|| file.get(c + 1..d))
                .flatten()
        });
        out.extend(kept.unwrap_or_else(|| own(from..index)));
        out.push(line);
        last = rank.map(|rank| (index, rank)).or(Some((index, usize::MAX - 1)));
    }
    let from = last.map_or(0, |(before, _)| before + 1);
    out.extend(new.get(from..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn gaps_of_the_file_stay_and_new_ones_come() {
        let old = ["first a", "then b here", "last c"];
        let new = ["first a", "then B here", "", "last c"];
        let found = level(&old, &new, &["first a", "", "then b here", "", "", "last c"]);
        assert_eq!(found.old, ["first a", "", "then b here", "", "", "last c"]);
        assert_eq!(found.new, ["first a", "", "then B here", "", "last c"]);
        let edges = level(
            &["", "a", "", "b there one", ""],
            &["", "a", "", "b there two", "", ""],
            &["a", "b there one"],
        );
        assert_eq!(edges.new, ["a", "b there two", ""]);
    }
}
