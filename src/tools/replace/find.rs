//! Finds the model's copy in a file by its words and punctuation, whatever whitespace is between them.

use super::lines::indent_of;
use super::tokens::{EACH_TOKEN, Pairs, Token, gap, pair, tokens};
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// The method that found the old text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    Exact,
    Indentation,
    Whitespace,
    LineBreaks,
    Fuzzy,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Indentation => "indentation-tolerant",
            Self::Whitespace => "whitespace-tolerant",
            Self::LineBreaks => "line-break-tolerant",
            Self::Fuzzy => "fuzzy",
        })
    }
}

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
    /// The offsets of the line breaks.
    breaks: Vec<usize>,
    /// How much work the searches may still do; `None` once they had to stop.
    left: Cell<Option<usize>>,
}

/// Upper limit for the work of all searches of one edit, in compared pairs of characters: a few seconds. In a
/// repetitive text each place may match, or nearly match, up to the length of the copy.
const WORK: usize = 4_000_000_000;
/// What a found place costs for each token of the copy, because the tokens are kept as pairs.
const EACH_PAIR: usize = 1_024;
/// What a byte costs that is compared with the copy once more.
const EACH_BYTE: usize = 16;

/// Allowed differences in spelling: one character in this many.
const NEAR: usize = 10;
/// Shortest copy, in characters without whitespace, that may be misspelt.
const SHORTEST: usize = 14;

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let all = tokens(text);
        let words = all.iter().map(|token| token.raw).collect();
        Self {
            text,
            all,
            words,
            breaks: memchr::memchr_iter(b'\n', text.as_bytes()).collect(),
            left: Cell::new(Some(WORK)),
        }
    }

    /// Whether a search had to stop, so that places may be missing.
    pub(super) fn is_over_limit(&self) -> bool {
        self.left.get().is_none()
    }

    /// Takes from the work that is left; `false` if less is left, now or before.
    fn spend(&self, work: usize) -> bool {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(work)));
        !self.is_over_limit()
    }

    /// The offset at which the line with the offset `at` ends.
    fn line_end(&self, at: usize) -> usize {
        let next = self.breaks.partition_point(|end| *end < at);
        self.breaks.get(next).copied().unwrap_or(self.text.len())
    }

    /// The offset at which the line with the offset `at` begins.
    fn line_start(&self, at: usize) -> usize {
        let before = self.breaks.partition_point(|end| *end < at).checked_sub(1);
        before.and_then(|index| self.breaks.get(index)).map_or(0, |end| end + 1)
    }

    /// The places with the same tokens as the copy, in lines that correspond to its lines.
    pub(super) fn places(&self, copy: &str) -> Vec<Hit> {
        let copied = tokens(copy);
        let after = |at: usize| self.all[at..].iter();
        let mut hits = self.runs(&copied, &after);
        hits.retain_mut(|hit| {
            let compared = EACH_BYTE.saturating_mul(hit.range.len() + copy.len());
            if !self.spend(compared) {
                return false;
            }
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
            let end = self.line_end(self.all[at].at);
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
                if !self.spend(EACH_TOKEN) {
                    return None;
                }
                end = file.next().filter(|token| copy.is_copied_from(token))?.end();
            }
            self.spend(EACH_PAIR * copied.len()).then(|| Hit {
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
        let (start, end) = (self.line_start(hit.range.start), self.line_end(hit.range.end));
        // Whatever is not whitespace belongs to a token.
        let first = self.all.partition_point(|token| token.at < hit.range.start);
        let next = self.all.partition_point(|token| token.at < hit.range.end);
        let begins = first == 0 || self.all[first - 1].end() <= start;
        let ends = self.all.get(next).is_none_or(|token| token.at >= end);
        hit.part = !begins || !ends;
        if begins {
            hit.range.start = start;
        }
        if ends {
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
        let spend = |work: usize| self.spend(work);
        let mut hits = Vec::new();
        for (at, token) in self.all.iter().enumerate() {
            let begins = at == 0 || gap(self.text, &self.all, at).contains('\n');
            let Some(mut pairs) = begins
                .then(|| pair(&copied, &self.all[at..], 2 * allowed, &known, &spend))
                .flatten()
            else {
                continue;
            };
            let ends = |at: usize| at == self.all.len() || gap(self.text, &self.all, at).contains('\n');
            let mut end = at + pairs.length;
            if !ends(end) && self.all.get(end).is_some_and(Token::is_comma) {
                (end, pairs.cost) = (end + 1, pairs.cost + 1);
            }
            if ends(end) && end > at && self.spend(EACH_PAIR * copied.len()) {
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
            let start = at + indent_of(line).len();
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
