//! Gives a request the line breaks of the place in the file, where the model's copy has others.

use super::find::{Hit, folded};
use super::indent;
use super::merge::Doubt;
use super::tokens::{Pairs, Token, changes, gap, tokens};
use similar::DiffTag;
use std::ops::Range;

/// How often lines break in a gap.
fn breaks(gap: &str) -> usize {
    gap.matches('\n').count()
}

/// The texts of a request with the line breaks of `file`, the place that `old` was found at, in what the edit keeps.
///
/// # Errors
/// The edit changes something next to a line break that the copy does not have, or one ends a comment.
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
    // Whether the gap before the next token is one of the copy, and which.
    let mut kept = Some(0);
    for (tag, olds, news) in changes(&copied, &fresh) {
        let own = |to: usize| gap(new, &fresh, to);
        if tag != DiffTag::Equal
            && let Some(at) = gaps.comments.iter().find(|at| gaps.beside(**at, &olds))
        {
            return Err(gaps.doubt(*at));
        }
        if tag != DiffTag::Equal && (olds.is_empty() || news.is_empty()) {
            // What is added or deleted may as well be so some tokens before or after, if these are the same.
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
                _ => asked.push_str(own(to)),
            }
            asked.push_str(fresh[to].raw);
        }
        kept = (!olds.is_empty() && !news.is_empty()).then_some(olds.end);
    }
    asked.push_str(gap(new, &fresh, fresh.len()));
    Ok((out, asked))
}

/// The gaps of a copy and of the place that it was found at.
struct Gaps<'a> {
    copied: Vec<&'a str>,
    real: Vec<&'a str>,
    words: Vec<&'a str>,
    /// The gaps at which a comment ends in one of the texts only.
    comments: Vec<usize>,
}

impl<'a> Gaps<'a> {
    fn of(old: (&'a str, &[Token<'a>]), file: (&'a str, &[Token<'a>]), pairs: &Pairs) -> Result<Self, Doubt> {
        let mut gaps = Self {
            copied: Vec::new(),
            real: Vec::new(),
            words: Vec::new(),
            comments: Vec::new(),
        };
        let mut before = None;
        for (at, token) in old.1.iter().enumerate() {
            let copied = gap(old.0, old.1, at);
            let here = pairs.of[at];
            let real = match (before, here) {
                (Some(before), Some(here)) if before + 1 == here => gap(file.0, file.1, here),
                // The beginning, and gaps with a comma that only one of the texts has.
                _ => copied,
            };
            gaps.copied.push(copied);
            gaps.real.push(real);
            gaps.words.push(token.raw);
            before = here.or(before);
        }
        let shifted = gaps
            .copied
            .iter()
            .zip(&gaps.real)
            .any(|(copied, real)| breaks(copied) > 0 && breaks(real) > 0 && last(copied) != last(real))
            || indent::of(old.0) != indent::of(file.0);
        for at in 0..gaps.copied.len() {
            let (copied, real) = (breaks(gaps.copied[at]), breaks(gaps.real[at]));
            // A line of its own needs the file's indentation, which the copy's other lines must have too.
            let lost = copied == 0 && real > 0 && shifted;
            if gaps.differs(at) && lost {
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
        tokens.start < end && from < tokens.end || (from..=end).contains(&tokens.start)
    }

    fn doubt(&self, at: usize) -> Doubt {
        Doubt::Breaks(self.words.get(at).copied().unwrap_or_default().to_owned())
    }

    /// Whether a comment ends at a line break that only one of the texts has, so that its neighbour would become a part
    /// of it.
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

    /// The gap of the copy before a token, or `own` in its place, with the file's line breaks.
    fn in_file(&self, at: usize, own: Option<&str>) -> String {
        let (copied, real) = (self.copied[at], self.real[at]);
        let own = own.unwrap_or(copied);
        if !self.differs(at) || breaks(own) != breaks(copied) {
            return own.to_owned();
        }
        match (breaks(copied), real.rfind('\n')) {
            // Blank lines: the indentation of the next line stays as it was sent.
            (1.., Some(end)) => real[..=end].to_owned() + last(own),
            _ => real.to_owned(),
        }
    }
}

/// What stands in a gap after its last line break.
fn last(gap: &str) -> &str {
    gap.rsplit('\n').next().unwrap_or_default()
}
