//! Finds the model's copy in a file by its words and signs, whatever blanks and line breaks are between them.

use super::indent;
use super::tokens::{Pairs, Token, gap, key, pair, tokens};
use std::collections::HashSet;
use std::ops::Range;

/// How the place differs from the copy, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tolerance {
    /// In trailing blanks.
    Ends,
    /// In leading and trailing blanks.
    Indent,
    /// In the width of gaps, and in the form of quotes, dashes and entities.
    Blanks,
    /// In gaps next to signs.
    Gaps,
    /// In blank lines.
    BlankLines,
    /// In where lines break.
    Breaks,
    /// In spelling.
    Spelling,
}

/// A place that the copy fits.
#[derive(Clone, Debug)]
pub(super) struct Hit {
    pub(super) tolerance: Tolerance,
    /// Whether it begins or ends inside a line.
    pub(super) part: bool,
    /// Bytes of the text.
    pub(super) range: Range<usize>,
    /// The tokens of the copy beside those of the range.
    pub(super) pairs: Pairs,
    /// Whether the marks that continue a comment are left out of the tokens.
    pub(super) folded: bool,
}

/// A file as tokens.
pub(super) struct Tokens<'a> {
    text: &'a str,
    all: Vec<Token<'a>>,
    words: HashSet<&'a str>,
}

/// Allowed differences in spelling: one character in this many.
const NEAR: usize = 10;
/// Shortest copy, in characters without blanks, that may be misspelt.
const SHORTEST: usize = 14;

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let all = tokens(text);
        let words = all.iter().map(|token| token.raw).collect();
        Self { text, all, words }
    }

    pub(super) fn words(&self) -> &HashSet<&'a str> {
        &self.words
    }

    /// The places with the same tokens as the copy, in lines that correspond to its lines.
    pub(super) fn places(&self, copy: &str) -> Vec<Hit> {
        let copied = tokens(copy);
        let after = |at: usize| self.all[at..].iter();
        let mut hits = self.runs(&copied, &after);
        hits.retain_mut(|hit| {
            self.judge(copy, hit);
            hit.tolerance < Tolerance::Breaks && self.may_start(copy, hit)
        });
        hits
    }

    /// The places with the same tokens in other lines. Comments may go on with their mark or without.
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
            self.may_start(copy, hit)
        });
        hits
    }

    /// Every run of the copy's tokens. `after`: the file's tokens from one on.
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
        let starts = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, token)| first.is_copied_from(token));
        let hit = |(at, token): (usize, &Token<'_>)| {
            let mut file = after(at);
            let mut end = token.at;
            for copy in copied {
                end = file.next().filter(|token| copy.is_copied_from(token))?.end();
            }
            Some(Hit {
                tolerance: Tolerance::Breaks,
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

    /// Widens a range over the blanks beside it, and tells how it differs from the copy.
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
        let count = |line: &str| tokens(line).len();
        hit.tolerance = if !hit.part && all(&|copy, file| copy.trim_end() == file.trim_end()) {
            Tolerance::Ends
        } else if all(&|copy, file| copy.trim() == file.trim()) {
            Tolerance::Indent
        } else if all(&|copy, file| key(copy) == key(file)) {
            Tolerance::Blanks
        } else if all(&|copy, file| count(copy) == count(file)) {
            Tolerance::Gaps
        } else {
            let solid = |text: &str| {
                text.split('\n')
                    .map(count)
                    .filter(|count| *count > 0)
                    .collect::<Vec<_>>()
            };
            if solid(copy) == solid(place) {
                Tolerance::BlankLines
            } else {
                Tolerance::Breaks
            }
        };
    }

    /// Widens a range to the whole of its first and last lines if these hold nothing else.
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

    /// Whether the copy may begin and end there: one that begins with blanks begins a line, one with a line end ends one.
    fn may_start(&self, copy: &str, hit: &Hit) -> bool {
        let starts = hit.range.start == 0 || self.text[..hit.range.start].ends_with('\n');
        let ends = self.text[hit.range.end..].is_empty() || self.text[hit.range.end..].starts_with('\n');
        (starts || !copy.trim_start_matches('\n').starts_with([' ', '\t'])) && (ends || !copy.ends_with('\n'))
    }

    /// The places of whole lines where only the spelling differs; if there are several, all that are about as near. The
    /// second-best place must be worse than the best by the whole allowance, or contain other names.
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
                let tolerance = if pairs.cost == 0 {
                    Tolerance::Breaks
                } else {
                    Tolerance::Spelling
                };
                let mut hit = Hit {
                    tolerance,
                    part: false,
                    range: token.at..self.all[end - 1].end(),
                    pairs,
                    folded: false,
                };
                self.widen(&mut hit);
                hits.push(hit);
            }
        }
        let Some(best) = hits
            .iter()
            .map(|hit| hit.pairs.cost)
            .min()
            .filter(|best| *best <= allowed)
        else {
            return Vec::new();
        };
        let other = hits.iter().any(|hit| hit.pairs.cost == best && hit.pairs.other);
        hits.retain(|hit| hit.pairs.cost <= best + allowed && (other || hit.pairs.cost == best || !hit.pairs.other));
        hits
    }
}

/// Marks of comments that stand on each of their lines.
const MARKS: [&str; 8] = ["///", "//!", "//", "#", "*", "--", ";;", "%"];

/// The mark with which a line goes on in the comment of the line before.
fn mark(line: &str) -> Option<&'static str> {
    let body = line.trim_start();
    let goes_on = |mark: &&str| body.strip_prefix(*mark).is_some_and(|rest| rest.starts_with(' '));
    MARKS.into_iter().find(goes_on)
}

/// The tokens of a text without the marks that continue a comment.
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
