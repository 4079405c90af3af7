//! Finds the model's copy in a file by its words and punctuation, whatever whitespace is between them.

use super::indent;
use super::matcher::Strategy;
use super::tokens::{Pairs, Token, gap, pair, tokens};
use std::collections::HashSet;
use std::ops::Range;

/// A place that matches the copy.
#[derive(Clone, Debug)]
pub(super) struct Hit {
    pub(super) strategy: Strategy,
    /// Whether it begins or ends inside a line.
    pub(super) part: bool,
    /// Bytes of the text.
    pub(super) range: Range<usize>,
    /// The tokens of the copy, paired with those of the range.
    pub(super) pairs: Pairs,
    /// Whether the comment markers of continuation lines are left out of the tokens.
    pub(super) folded: bool,
}

/// A file as tokens.
pub(super) struct Tokens<'a> {
    text: &'a str,
    all: Vec<Token<'a>>,
    pub(super) words: HashSet<&'a str>,
}

/// Allowed differences in spelling: one character in this many.
const NEAR: usize = 10;
/// Shortest copy, in characters without whitespace, that may be misspelt.
const SHORTEST: usize = 14;

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let all = tokens(text);
        let words = all.iter().map(|token| token.raw).collect();
        Self { text, all, words }
    }

    /// The places with the same tokens as the copy, in lines that correspond to its lines.
    pub(super) fn places(&self, copy: &str) -> Vec<Hit> {
        let copied = tokens(copy);
        let after = |at: usize| self.all[at..].iter();
        let mut hits = self.runs(&copied, &after);
        hits.retain_mut(|hit| {
            self.judge(copy, hit);
            self.may_end(copy, hit)
        });
        hits
    }

    /// The places with the same tokens but other line breaks, with or without comment markers on continuation lines.
    pub(super) fn rewrapped(&self, copy: &str) -> Vec<Hit> {
        let copied = folded(copy);
        let folded = folded(self.text);
        let after = |at: usize| {
            let start = self.all[at].at;
            let end = self.text[start..].find('\n').map_or(self.text.len(), |end| start + end);
            let from = folded.partition_point(|token| token.at < end);
            let line = self.all[at..].iter().take_while(move |token| token.at < end);
            line.chain(folded[from..].iter())
        };
        let mut hits = self.runs(&copied, &after);
        hits.retain_mut(|hit| {
            self.widen(hit);
            hit.folded = true;
            self.may_end(copy, hit)
        });
        hits
    }

    /// Every occurrence of the copy's tokens. `after`: the file's tokens from an index on.
    fn runs<'x, I: Iterator<Item = &'x Token<'a>>>(
        &'x self,
        copied: &[Token<'_>],
        after: &dyn Fn(usize) -> I,
    ) -> Vec<Hit>
    where
        'a: 'x,
    {
        let Some(first) = copied.first() else {
            return Vec::new();
        };
        let all = self.all.iter().enumerate();
        let starts = all.filter(|(_, token)| first.is_copied_from(token));
        let hit = |(at, token): (usize, &Token<'_>)| {
            let mut file = after(at);
            let mut end = token.at;
            for copy in copied {
                end = file.next().filter(|token| copy.is_copied_from(token))?.end();
            }
            Some(Hit {
                strategy: Strategy::LineBreaks,
                part: false,
                range: token.at..end,
                pairs: Pairs {
                    of: (0..copied.len()).map(Some).collect(),
                    length: copied.len(),
                    ..Pairs::default()
                },
                folded: false,
            })
        };
        starts.filter_map(hit).collect()
    }

    /// Widens a range over the whitespace around it, and sets the strategy by how it differs from the copy.
    fn judge(&self, copy: &str, hit: &mut Hit) {
        self.widen(hit);
        let place = &self.text[hit.range.clone()];
        let copy = copy.trim_matches('\n');
        let all = |same: &dyn Fn(&str, &str) -> bool| {
            copy.split('\n').count() == place.split('\n').count()
                && copy
                    .split('\n')
                    .zip(place.split('\n'))
                    .all(|(copy, file)| same(copy, file))
        };
        hit.strategy = match () {
            () if copy == place => Strategy::Exact,
            () if all(&|copy, file| copy.trim_start() == file.trim_start()) => Strategy::Indentation,
            () if all(&|copy, file| tokens(copy).len() == tokens(file).len()) => Strategy::Whitespace,
            () => Strategy::LineBreaks,
        };
    }

    /// Widens a range to its complete first and last lines if they contain nothing else.
    fn widen(&self, hit: &mut Hit) {
        let start = self.text[..hit.range.start].rfind('\n').map_or(0, |end| end + 1);
        let end = self.text[hit.range.end..]
            .find('\n')
            .map_or(self.text.len(), |end| hit.range.end + end);
        let (head, tail) = (&self.text[start..hit.range.start], &self.text[hit.range.end..end]);
        hit.part = !head.trim().is_empty() || !tail.trim().is_empty();
        if head.trim().is_empty() {
            hit.range.start = start;
        }
        if tail.trim().is_empty() {
            hit.range.end = end;
        }
    }

    /// Whether the copy may end there: a copy that ends with a line end must match up to the end of a line.
    fn may_end(&self, copy: &str, hit: &Hit) -> bool {
        let rest = &self.text[hit.range.end..];
        rest.is_empty() || rest.starts_with('\n') || !copy.ends_with('\n')
    }

    /// The places of whole lines where only the spelling differs: the best ones, and those that differ by up to the
    /// allowance more and contain no other names, because then the choice is ambiguous.
    pub(super) fn misspelt(&self, copy: &str) -> Vec<Hit> {
        let copied = tokens(copy);
        let length: usize = copied.iter().map(|token| token.raw.len()).sum();
        if length < SHORTEST {
            return Vec::new();
        }
        let allowed = (length / NEAR).max(1);
        let known = |word: &str| self.words.contains(word);
        let mut hits = Vec::new();
        for (at, token) in self.all.iter().enumerate() {
            let begins = at == 0 || gap(self.text, &self.all, at).contains('\n');
            let Some(mut pairs) = begins
                .then(|| pair(&copied, &self.all[at..], 2 * allowed, &known))
                .flatten()
            else {
                continue;
            };
            let ends = |at: usize| at == self.all.len() || gap(self.text, &self.all, at).contains('\n');
            let mut end = at + pairs.length;
            if !ends(end) && self.all.get(end).is_some_and(Token::is_comma) {
                (end, pairs.cost) = (end + 1, pairs.cost + 1);
            }
            if ends(end) && end > at {
                let mut hit = Hit {
                    strategy: Strategy::Fuzzy,
                    part: false,
                    range: token.at..self.all[end - 1].end(),
                    pairs,
                    folded: false,
                };
                self.widen(&mut hit);
                hits.push(hit);
            }
        }
        let best = hits.iter().map(|hit| hit.pairs.cost).min();
        let Some(best) = best.filter(|best| *best <= allowed) else {
            return Vec::new();
        };
        let other = hits.iter().any(|hit| hit.pairs.cost == best && hit.pairs.other);
        hits.retain(|hit| hit.pairs.cost <= best + allowed && (other || hit.pairs.cost == best || !hit.pairs.other));
        hits
    }
}

/// Markers of line comments, which are repeated on each line.
const MARKS: [&str; 8] = ["///", "//!", "//", "#", "*", "--", ";;", "%"];

/// The comment marker at the start of a line.
fn mark(line: &str) -> Option<&'static str> {
    let body = line.trim_start();
    let goes_on = |mark: &&str| body.strip_prefix(*mark).is_some_and(|rest| rest.starts_with(' '));
    MARKS.into_iter().find(goes_on)
}

/// The tokens of a text, without the comment markers of lines that continue a comment.
pub(super) fn folded(text: &str) -> Vec<Token<'_>> {
    let mut out = tokens(text);
    let mut marks = Vec::new();
    let (mut at, mut before) = (0, None);
    for line in text.split_inclusive('\n') {
        let here = mark(line);
        if let Some(mark) = here.filter(|_| before == here) {
            let start = at + indent::of(line).len();
            marks.push(start..start + mark.len());
        }
        (at, before) = (at + line.len(), here);
    }
    let mut marks = marks.into_iter().peekable();
    out.retain(|token| {
        while marks.next_if(|mark| mark.end <= token.at).is_some() {}
        marks.peek().is_none_or(|mark| token.at < mark.start)
    });
    out
}
