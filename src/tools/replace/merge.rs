//! Merges an edit into the file: computes the new lines from the file's lines, `old_string` and `new_string`. Lines
//! that the edit does not change stay as they are in the file. If the copy has other line breaks, the request first
//! gets those of the file.

use super::find::{Hit, folded};
use super::indent::IndentMapping;
use super::lines::indent_of;
use super::parts::{Doubt, Parts, align};
use super::tokens::{ALIKE, Pairs, Token, changes, gap, likeness, merge, pair, tokens};
use similar::DiffTag;
use std::ops::Range;

/// The lines that replace `parts.file`.
pub(super) fn merge_lines(parts: &Parts<'_>) -> Result<Vec<String>, Doubt> {
    if parts.old.len() != parts.file.len() {
        return Err(Doubt::Breaks(
            parts.old.first().map_or(String::new(), |line| line.trim().to_owned()),
        ));
    }
    let partners = align(parts.old, parts.new);
    let depths = IndentMapping::learn(parts, &partners);
    let conventions = FileConventions::learn(parts)?;
    depths.refuse_flat()?;
    let mut out = Vec::with_capacity(parts.new.len());
    for (index, (line, partner)) in parts.new.iter().zip(&partners).enumerate() {
        let pair = partner.and_then(|old| Some((*parts.old.get(old)?, *parts.file.get(old)?)));
        if line.trim().is_empty() {
            out.push(
                pair.filter(|(_, file)| file.trim().is_empty())
                    .map_or(String::new(), |(_, file)| file.to_owned()),
            );
            continue;
        }
        let indent = depths.image(index, line)?;
        let asked = conventions.plain(body(line));
        let content = match pair {
            Some((old, file)) if likeness(old, line) >= ALIKE => {
                merge(&conventions.plain(body(old)), body(file), &asked)
                    .ok_or_else(|| Doubt::Conflict(old.trim().to_owned()))?
            }
            _ => moved(line, parts, &partners).map_or(asked, |file| body(file).to_owned()),
        };
        let trailing = match pair {
            Some((old, file)) if tail(old) == tail(line) => tail(file),
            _ => tail(&content),
        };
        out.push(indent + content.trim_end() + trailing);
    }
    Ok(out)
}

/// The file's version of a line that the edit moves.
fn moved<'a>(line: &str, parts: &Parts<'a>, partners: &[Option<usize>]) -> Option<&'a str> {
    let same = |at: &usize| parts.old.get(*at).is_some_and(|old| body(old) == body(line));
    let left = |at: &usize| !partners.contains(&Some(*at));
    let mut found = (0..parts.old.len()).filter(same).filter(left);
    let at = found.next().filter(|_| found.next().is_none())?;
    parts.file.get(at).copied()
}

/// The whitespace at the end of a line.
fn tail(line: &str) -> &str {
    line.get(line.trim_end().len()..).unwrap_or_default()
}

fn body(line: &str) -> &str {
    line.get(indent_of(line).len()..).unwrap_or_default()
}

/// Whether it is whitespace other than ASCII.
fn is_wide(c: char) -> bool {
    c.is_whitespace() && !c.is_ascii()
}

/// Differences between `old_string` and the file that new lines must not add to the file.
struct FileConventions<'a> {
    no_trailing: bool,
    /// Characters as spelled in `old_string` and in the file, if one of them uses a typographic form or an HTML entity.
    signs: Vec<(Token<'a>, &'a str)>,
}

impl<'a> FileConventions<'a> {
    fn learn(parts: &Parts<'a>) -> Result<Self, Doubt> {
        let mut pairs = parts
            .old
            .iter()
            .zip(parts.file)
            .filter(|(old, _)| !old.trim().is_empty());
        let no_trailing = pairs.any(|(old, file)| !tail(old).is_empty() && tail(old) != tail(file));
        let mut signs = Vec::new();
        for (old, file) in parts.old.iter().zip(parts.file) {
            let (copied, real) = (tokens(old), tokens(file));
            let pairs = pair(&copied, &real, usize::MAX, &|_| false, &|_| true).unwrap_or_default();
            let both = copied.iter().zip(&pairs.of);
            let special = both
                .filter_map(|(copy, at)| Some((*copy, real[(*at)?].raw)))
                .filter(|(copy, real)| copy.raw != copy.plain || *real != copy.plain);
            signs.extend(special);
        }
        let count = |lines: &[&str], raw: &str| {
            let all = lines.iter().flat_map(|line| tokens(line));
            all.filter(|token| token.raw == raw).count()
        };
        for (copy, real) in &signs {
            // It is unknown how the file would spell a new one.
            let unclear = copy.raw == copy.plain && real.starts_with('&');
            if unclear && count(parts.new, copy.raw) > count(parts.old, copy.raw) {
                return Err(Doubt::Spelling(copy.raw.to_owned()));
            }
        }
        Ok(Self { no_trailing, signs })
    }

    /// A token as the file spells it.
    fn sign<'x>(&'x self, token: &Token<'x>) -> &'x str {
        let mut same = self.signs.iter().filter(|(copy, _)| copy.raw == token.raw);
        // Quotes come in pairs: if one of them is wrong, so is the other.
        let kin = |copy: &Token<'_>| copy.raw != copy.plain && copy.raw.starts_with('&') == token.raw.starts_with('&');
        match same.next() {
            _ if token.raw == token.plain => token.raw,
            Some((_, real)) if same.all(|(_, other)| other == real) => real,
            Some(_) => token.raw,
            None if self.signs.iter().any(|(copy, _)| kin(copy))
                && self.signs.iter().all(|(copy, real)| !kin(copy) || *real == copy.plain) =>
            {
                token.plain
            }
            None => token.raw,
        }
    }

    fn plain(&self, text: &str) -> String {
        let text = if self.no_trailing { text.trim_end() } else { text };
        let all = tokens(text);
        let mut out = String::with_capacity(text.len());
        for (at, token) in all.iter().enumerate() {
            out.push_str(&gap(text, &all, at).replace(is_wide, " "));
            out.push_str(self.sign(token));
        }
        out + &gap(text, &all, all.len()).replace(is_wide, " ")
    }
}

/// The number of line breaks in a gap.
fn breaks(gap: &str) -> usize {
    gap.matches('\n').count()
}

/// The texts of a request, where everything that the edit keeps gets the line breaks of `file`, the place where `old`
/// was found.
///
/// # Errors
/// The edit changes text next to a line break that differs, or next to one that ends a comment.
pub(super) fn like_file(old: &str, new: &str, file: &str, hit: &Hit) -> Result<(String, String), Doubt> {
    let split = |text| if hit.folded { folded(text) } else { tokens(text) };
    let (copied, fresh, real) = (split(old), split(new), split(file));
    let gaps = Gaps::of((old, &copied), (file, &real), &hit.pairs)?;
    let mut out = String::with_capacity(file.len());
    for (at, token) in copied.iter().enumerate() {
        out.push_str(&gaps.in_file(at, None));
        out.push_str(token.raw);
    }
    out.push_str(gap(old, &copied, copied.len()));
    let mut asked = String::with_capacity(new.len());
    // The index of the copy's gap that is before the next token, if it is one of the copy.
    let mut kept = Some(0);
    for (tag, olds, news) in changes(&copied, &fresh) {
        let own = |to: usize| gap(new, &fresh, to);
        if tag != DiffTag::Equal
            && let Some(at) = gaps.comments.iter().find(|at| gaps.beside(**at, &olds))
        {
            return Err(gaps.doubt(*at));
        }
        if tag != DiffTag::Equal && (olds.is_empty() || news.is_empty()) {
            // Among equal tokens, the added or deleted ones could equally be some tokens earlier or later.
            let (all, part) = if news.is_empty() {
                (&copied, &olds)
            } else {
                (&fresh, &news)
            };
            let same = |a: usize, b: usize| all.get(a).zip(all.get(b)).is_some_and(|(a, b)| a.plain == b.plain);
            let before = (1..=part.start)
                .take_while(|by| same(part.start - by, part.end - by))
                .count();
            let after = (0..).take_while(|by| same(part.start + by, part.end + by)).count();
            let here = olds.start.saturating_sub(before)..olds.end + after + 1;
            let mut written =
                (news.start.saturating_sub(before)..=(news.end + after).min(fresh.len())).map(|to| breaks(own(to)));
            let as_in_file = |count: usize| here.clone().any(|at| gaps.differs(at) && gaps.count(at) == count);
            if here.clone().any(|at| gaps.differs(at)) && !written.any(as_in_file) {
                return Err(gaps.doubt(olds.start));
            }
        }
        for to in news.clone() {
            let at = match tag {
                DiffTag::Equal if to > news.start => Some(olds.start + to - news.start),
                _ if to == news.start => kept.filter(|at| *at == olds.start && !(olds.is_empty() || news.is_empty())),
                _ => None,
            };
            match at {
                Some(at) if to > 0 => asked.push_str(&gaps.in_file(at, Some(own(to)))),
                // The words around a kept gap may have been aligned with other, equal words.
                _ => match gaps.same(to, &fresh, own(to)) {
                    Some(at) => return Err(gaps.doubt(at)),
                    None => asked.push_str(own(to)),
                },
            }
            asked.push_str(fresh[to].raw);
        }
        kept = (!olds.is_empty() && !news.is_empty()).then_some(olds.end);
    }
    asked.push_str(gap(new, &fresh, fresh.len()));
    Ok((out, asked))
}

/// The gaps (whitespace between tokens) of a copy and of the place where it was found.
#[derive(Default)]
struct Gaps<'a> {
    copied: Vec<&'a str>,
    real: Vec<&'a str>,
    words: Vec<&'a str>,
    /// The gaps at which a comment ends in only one of the texts.
    comments: Vec<usize>,
}

impl<'a> Gaps<'a> {
    fn of(old: (&'a str, &[Token<'a>]), file: (&'a str, &[Token<'a>]), pairs: &Pairs) -> Result<Self, Doubt> {
        let mut gaps = Self::default();
        let mut before = None;
        for (at, token) in old.1.iter().enumerate() {
            let copied = gap(old.0, old.1, at);
            let here = pairs.of[at];
            let real = match (before, here) {
                (Some(before), Some(here)) if before + 1 == here => gap(file.0, file.1, here),
                // The beginning, and gaps next to a token that only one of the texts has.
                _ => copied,
            };
            gaps.copied.push(copied);
            gaps.real.push(real);
            gaps.words.push(token.raw);
            before = here.or(before);
        }
        let shifted = indent_of(old.0) != indent_of(file.0);
        for at in 0..gaps.copied.len() {
            let (copied, real) = (breaks(gaps.copied[at]), breaks(gaps.real[at]));
            // A new line gets the file's indentation, so the copy must be indented like the file.
            if copied == 0 && real > 0 && shifted {
                return Err(gaps.doubt(at));
            }
            if gaps.differs(at) && (copied == 0 || real == 0) && gaps.ends_comment(old, file, at, pairs) {
                gaps.comments.push(at);
            }
        }
        Ok(gaps)
    }

    fn differs(&self, at: usize) -> bool {
        let count = |gaps: &[&str]| gaps.get(at).map_or(0, |gap| breaks(gap));
        count(&self.copied) != count(&self.real)
    }

    fn count(&self, at: usize) -> usize {
        self.real.get(at).map_or(0, |gap| breaks(gap))
    }

    /// Whether a change of these tokens is in one of the lines before and after a gap.
    fn beside(&self, at: usize, tokens: &Range<usize>) -> bool {
        let breaks = |at: usize| breaks(self.copied[at]).min(breaks(self.real[at])) > 0;
        let from = (0..at).rev().find(|at| breaks(*at)).unwrap_or(0);
        let end = (at + 1..self.copied.len())
            .find(|at| breaks(*at))
            .unwrap_or(self.copied.len());
        tokens.start < end && from < tokens.end
    }

    /// The gap of the copy between the same words with as many line breaks, if the file has other line breaks there.
    fn same(&self, to: usize, fresh: &[Token<'_>], own: &str) -> Option<usize> {
        let before = to.checked_sub(1)?;
        (1..self.words.len()).find(|at| {
            self.differs(*at)
                && breaks(self.copied[*at]) == breaks(own)
                && self.words[*at] == fresh[to].raw
                && self.words[*at - 1] == fresh[before].raw
        })
    }

    fn doubt(&self, at: usize) -> Doubt {
        Doubt::Breaks(self.words.get(at).copied().unwrap_or_default().to_owned())
    }

    /// Whether a comment ends at a line break that only one of the texts has, so that without the break the text after
    /// it would become part of the comment.
    fn ends_comment(&self, old: (&str, &[Token<'_>]), file: (&str, &[Token<'_>]), at: usize, pairs: &Pairs) -> bool {
        let ((text, tokens), at) = match breaks(self.copied[at]) {
            0 => (file, pairs.of[at].unwrap_or(0)),
            _ => (old, at),
        };
        let gap = gap(text, tokens, at);
        let (head, rest) = (&text[..tokens[at].at - gap.len()], &text[tokens[at].at..]);
        let line = head.rsplit('\n').next().unwrap_or_default();
        let comment =
            |mark: &&str| line.trim_start().starts_with(mark.trim_end()) || line.contains(&format!(" {mark}"));
        let mut marks = ["//", "# ", "-- "].into_iter();
        gap.trim().is_empty() && marks.find(comment).is_some_and(|mark| !rest.starts_with(mark))
    }

    /// The gap of the copy before a token, or `own` instead, with the file's line breaks.
    fn in_file(&self, at: usize, own: Option<&str>) -> String {
        let (copied, real) = (self.copied[at], self.real[at]);
        let own = own.unwrap_or(copied);
        if !self.differs(at) || breaks(own) != breaks(copied) {
            return own.to_owned();
        }
        match (breaks(copied), real.rfind('\n')) {
            // A different number of blank lines: the indentation of the next line stays as sent.
            (1.., Some(end)) => real[..=end].to_owned() + last(own),
            _ => real.to_owned(),
        }
    }
}

/// The part of a gap after its last line break.
fn last(gap: &str) -> &str {
    gap.rsplit('\n').next().unwrap_or_default()
}
