//! Finds secret values in text, in any common encoding, and redacts them.
//!
//! Text is searched as it is and again without its line breaks, so that wrapped encodings are found too; and each of
//! these is searched again with percent encoding, HTML entities and backslash escapes decoded, so that it does not
//! matter which characters are encoded.
//! Long values and values of several lines are searched for in parts.

mod cut;
mod encode;
mod escapes;
mod filter;
mod names;
mod offset_map;
mod parts;
mod windows;
mod wraps;

use self::encode::SecretPattern;
use self::encode::rare;
use self::escapes::{Decoded, End, Escapes, SecretBytes};
use self::filter::{ByteFilter, PrefixFilter};
use self::windows::RareEncodings;
use self::wraps::Breaks;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

#[cfg(test)]
pub use cut::check_cut;
pub use cut::{bounded, last_line, shortened, start, use_redactor};
pub use names::{MODEL_KEYS, is_model_key, is_secret_name, is_setting};

/// The shortest value, line or part that is searched for, in bytes.
pub const MIN_BYTES: usize = 8;
/// The most bytes that a stream holds back.
const MAX_HELD: usize = 64 << 10;

/// Finds every known secret value, in every encoding that `encode` covers, and redacts it.
#[derive(Clone, Default)]
pub struct Redactor {
    index: Option<Arc<Index>>,
}

struct Index {
    /// A fast test that rules out most texts. `None`: every text is searched.
    filter: Option<ByteFilter>,
    starts: PrefixFilter,
    automaton: AhoCorasick,
    /// In byte order; indices are the automaton's pattern ids.
    patterns: Vec<SecretPattern>,
    /// Length of the shortest and of the longest pattern.
    shortest: usize,
    longest: usize,
    names: Vec<String>,
    /// Rare encodings, searched for only where they are likely.
    rare: RareEncodings,
    bytes: SecretBytes,
}

/// A range of text that reveals a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hit {
    bytes: Range<usize>,
    /// Index into `Index::names`.
    name: usize,
}

impl Hit {
    fn of(text: &[u8], bytes: Range<usize>, pattern: &SecretPattern) -> Self {
        Self {
            bytes: pattern.widened(text, bytes),
            name: pattern.name,
        }
    }
}

impl Redactor {
    /// From `(name, value)` pairs of the environment: values of at least 8 bytes whose names look secret, and the secret
    /// parts of URLs, connection strings, lists of headers and JSON in any value.
    pub fn from_env(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::with_values(parts::secrets(vars))
    }

    /// As [`Redactor::from_env`], with further pairs that are secret whatever their names.
    pub fn from_env_and(vars: impl IntoIterator<Item = (String, String)>, more: Vec<(String, String)>) -> Self {
        let mut values = parts::secrets(vars);
        for (name, value) in more {
            let parts = parts::secret_parts(&value, true).into_iter();
            values.extend(parts.map(|part| (name.clone(), part)));
            values.push((name, value));
        }
        Self::with_values(values)
    }

    /// From `(name, value)` pairs that are all secret, whatever their names. Values below 8 bytes are left out.
    pub fn with_values(values: Vec<(String, String)>) -> Self {
        let values: BTreeSet<(String, String)> = values.into_iter().collect();
        let mut names = Vec::new();
        let (mut patterns, mut rarely) = (Vec::new(), Vec::new());
        let mut bytes = SecretBytes::default();
        for (name, value) in values {
            let pieces = encode::pieces(&value);
            let found: Vec<SecretPattern> = pieces
                .iter()
                .flat_map(|piece| encode::patterns(piece, names.len()))
                .collect();
            if !found.is_empty() {
                let long = pieces.iter().filter(|piece| piece.len() >= MIN_BYTES).take(rare::PARTS);
                rarely.extend(long.map(|piece| ((*piece).to_owned(), names.len())));
                bytes.add(value.as_bytes());
                names.push(name);
                patterns.extend(found);
            }
        }
        Self {
            index: Index::new(names, patterns, RareEncodings::new(rarely), bytes).map(Arc::new),
        }
    }

    /// From `(name, value)` pairs of the environment: only the keys of model services. They are redacted by value, so
    /// other variables with the same value are covered too.
    pub fn of_model_keys(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let keys = vars.into_iter().filter(|(name, _)| is_model_key(name));
        Self::with_values(keys.map(|(name, value)| (name, value.trim().to_owned())).collect())
    }

    /// Whether there is nothing to search for.
    pub fn is_empty(&self) -> bool {
        self.index.is_none()
    }

    /// `text` with each secret replaced by `[redacted:NAME]`.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(index) = &self.index else {
            return Cow::Borrowed(text);
        };
        let mut hits = index.hits(text.as_bytes());
        if hits.is_empty() {
            return Cow::Borrowed(text);
        }
        for hit in &mut hits {
            while !text.is_char_boundary(hit.bytes.start) {
                hit.bytes.start -= 1;
            }
            while !text.is_char_boundary(hit.bytes.end) {
                hit.bytes.end += 1;
            }
        }
        let out = index.replace(text.as_bytes(), &hits);
        Cow::Owned(String::from_utf8_lossy(&out).into_owned())
    }

    /// Redacts every string (including keys) of `value` in place.
    pub fn redact_json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact(text) {
                    *text = redacted;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Value::Object(map) => {
                if map.keys().any(|key| matches!(self.redact(key), Cow::Owned(_))) {
                    *map = self.renamed(std::mem::take(map));
                }
                map.values_mut().for_each(|item| self.redact_json(item));
            }
            // A number may be a secret made of digits.
            Value::Number(number) => {
                if let Cow::Owned(redacted) = self.redact(&number.to_string()) {
                    *value = Value::String(redacted);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// The map with redacted keys; keys that become equal are numbered, so that no entry is lost.
    fn renamed(&self, map: Map<String, Value>) -> Map<String, Value> {
        let mut renamed = Map::new();
        for (key, value) in map {
            let key = self.redact(&key).into_owned();
            let mut free = key.clone();
            let mut number = 2;
            while renamed.contains_key(&free) {
                free = format!("{key}#{number}");
                number += 1;
            }
            renamed.insert(free, value);
        }
        renamed
    }

    /// The name of the first secret found in `bytes`, in any encoding.
    pub fn find(&self, bytes: &[u8]) -> Option<&str> {
        let index = self.index.as_ref()?;
        let hits = index.hits(bytes);
        let first = hits.first()?;
        index.names.get(first.name).map(String::as_str)
    }

    /// A redactor for a stream that arrives in pieces.
    pub fn stream(&self) -> RedactStream {
        RedactStream {
            index: self.index.clone(),
            held: Vec::new(),
        }
    }
}

impl Index {
    /// `None` if there is nothing to search for.
    fn new(
        names: Vec<String>,
        mut patterns: Vec<SecretPattern>,
        rare: RareEncodings,
        bytes: SecretBytes,
    ) -> Option<Self> {
        // A pattern that contains a line break is also searched for in the form that it has after joining.
        let joined: Vec<SecretPattern> = Breaks::ALL
            .iter()
            .flat_map(|breaks| patterns.iter().filter_map(|pattern| pattern.joined(*breaks)))
            .collect();
        patterns.extend(joined);
        // One that contains escapes is also searched for in the form that it has in a decoded text.
        let decoded: Vec<SecretPattern> = patterns.iter().flat_map(|pattern| pattern.decoded(bytes)).collect();
        patterns.extend(decoded);
        patterns.sort();
        patterns.dedup_by(|a, b| a.bytes == b.bytes);
        // Building a DFA of the same patterns would delay the first request by milliseconds.
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(patterns.iter().map(|pattern| pattern.bytes.as_slice()))
            .ok()?;
        let longest = patterns
            .iter()
            .map(|pattern| pattern.bytes.len())
            .max()?
            .max(rare.longest());
        let filter = ByteFilter::new(patterns.iter().map(|pattern| pattern.bytes.as_slice()));
        let shortest = patterns.iter().map(|pattern| pattern.bytes.len()).min()?.min(MIN_BYTES);
        Some(Self {
            shortest,
            starts: PrefixFilter::new(patterns.iter().map(|pattern| pattern.bytes.as_slice())),
            filter,
            automaton,
            patterns,
            longest,
            names,
            rare,
            bytes,
        })
    }

    /// All hits in order. Adjacent or overlapping hits are merged under the name of the first.
    fn hits(&self, text: &[u8]) -> Vec<Hit> {
        let mut hits = Vec::new();
        if text.len() < self.shortest {
            return hits;
        }
        self.each(text, |range, pattern| hits.push(Hit::of(text, range, pattern)));
        self.each_decoded(text, |hit| hits.push(hit));
        if wraps::has_break(text) {
            let mut joined = wraps::Joined::default();
            for breaks in Breaks::of(text) {
                joined.join(text, breaks);
                self.each(&joined.bytes, |range, pattern| {
                    hits.push(Hit::of(text, joined.source(range), pattern));
                });
                self.each_decoded(&joined.bytes, |hit| {
                    hits.push(Hit {
                        bytes: joined.source(hit.bytes),
                        ..hit
                    });
                });
            }
        }
        hits.sort_by_key(|hit| (hit.bytes.start, std::cmp::Reverse(hit.bytes.end)));
        let mut merged: Vec<Hit> = Vec::new();
        for hit in hits {
            match merged.last_mut() {
                Some(last) if hit.bytes.start <= last.bytes.end => last.bytes.end = last.bytes.end.max(hit.bytes.end),
                _ => merged.push(hit),
            }
        }
        merged
    }

    /// Calls `found` for each place of `text` where a pattern occurs.
    fn each<'a>(&'a self, text: &[u8], mut found: impl FnMut(Range<usize>, &'a SecretPattern)) {
        if self.may_hold(text) {
            for hit in self.automaton.find_iter(text) {
                if let Some(pattern) = self.patterns.get(hit.pattern().as_usize()) {
                    found(hit.range(), pattern);
                }
            }
        }
        self.rare.each(text, found);
    }

    /// Calls `found` for each hit that appears only when escapes are decoded, with its place in `text`.
    fn each_decoded(&self, text: &[u8], mut found: impl FnMut(Hit)) {
        for which in Escapes::of(text, self.bytes) {
            let levels = escapes::levels(text, which, self.bytes, End::Known);
            for (at, level) in levels.iter().enumerate() {
                let inner = levels.get(..=at).unwrap_or_default();
                self.each(&level.bytes, |range, pattern| {
                    let hit = Hit::of(&level.bytes, range, pattern);
                    found(Hit {
                        bytes: escapes::source(inner, hit.bytes),
                        ..hit
                    });
                });
            }
        }
    }

    fn may_hold(&self, text: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_hold(text))
    }

    fn replace(&self, text: &[u8], hits: &[Hit]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        for hit in hits {
            out.extend_from_slice(text.get(at..hit.bytes.start).unwrap_or_default());
            let name = self.names.get(hit.name).map_or("", String::as_str);
            out.extend_from_slice(format!("[redacted:{name}]").as_bytes());
            at = hit.bytes.end;
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        out
    }

    /// Whether some pattern starts with these bytes and is longer.
    fn may_go_on(&self, bytes: &[u8]) -> bool {
        let goes_on = || {
            let at = self
                .patterns
                .partition_point(|pattern| pattern.bytes.as_slice() <= bytes);
            self.patterns
                .get(at)
                .is_some_and(|pattern| pattern.bytes.starts_with(bytes))
        };
        (self.starts.may_be(bytes) && goes_on()) || self.rare.may_go_on(bytes)
    }

    /// The index of the first byte that must be held back: a secret may begin there.
    fn hold_from(&self, text: &[u8]) -> usize {
        let tail = text.get(text.len().saturating_sub(MAX_HELD)..).unwrap_or_default();
        let from = Breaks::of(tail).map(|breaks| self.hold_from_with(text, breaks));
        from.min().unwrap_or(text.len())
    }

    fn hold_from_with(&self, text: &[u8], breaks: Breaks) -> usize {
        let mut window = 2 * self.longest;
        let (oldest, tail, decoded) = loop {
            let oldest = text.len().saturating_sub(window.min(MAX_HELD));
            let tail = wraps::join(text.get(oldest..).unwrap_or_default(), breaks);
            let decoded: Vec<Vec<Decoded>> = Escapes::of(&tail.bytes, self.bytes)
                .map(|which| escapes::levels(&tail.bytes, which, self.bytes, End::Open))
                .collect();
            let last = decoded.iter().filter_map(|levels| levels.last());
            let least = last.map(|level| level.bytes.len()).min().unwrap_or(tail.bytes.len());
            if least >= self.longest || oldest == 0 || window >= MAX_HELD {
                break (oldest, tail, decoded);
            }
            window *= 4;
        };
        let mut from = self.may_begin(&tail.bytes);
        for levels in &decoded {
            for (at, level) in levels.iter().enumerate() {
                let begin = self.may_begin(&level.bytes);
                let inner = levels.get(..=at).unwrap_or_default();
                from = from.min(escapes::source(inner, begin..begin).start);
            }
        }
        if from < tail.bytes.len() {
            oldest + tail.source(from..from + 1).start
        } else {
            text.len()
        }
    }

    /// Where the first secret may begin that continues after the end of a text without line breaks; the length of the
    /// text if none may.
    fn may_begin(&self, text: &[u8]) -> usize {
        let mut ends = wraps::possible_ends(text);
        let unfinished: Vec<usize> = ends
            .iter()
            .filter_map(|end| text.get(..*end))
            .flat_map(escapes::possible_ends)
            .collect();
        // An escape may be the beginning of a secret, too.
        let first = unfinished.iter().copied().min().unwrap_or(text.len());
        ends.extend(unfinished);
        for at in text.len().saturating_sub(self.longest)..first {
            let rests = ends.iter().filter_map(|end| text.get(at..*end));
            if rests.into_iter().any(|rest| !rest.is_empty() && self.may_go_on(rest)) {
                return at;
            }
        }
        first
    }
}

/// Redacts a stream of bytes; holds back a tail that could be the beginning of a secret.
pub struct RedactStream {
    index: Option<Arc<Index>>,
    held: Vec<u8>,
}

impl RedactStream {
    /// Takes a piece and returns what is safe to output.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let Some(index) = &self.index else {
            return piece.to_vec();
        };
        self.held.extend_from_slice(piece);
        let hits = index.hits(&self.held);
        let mut cut = index.hold_from(&self.held);
        // A hit at the very end may still be extended by padding or by the next part of a long value.
        if let Some(last) = hits.last()
            && (last.bytes.end + 4 > self.held.len() || last.bytes.end > cut)
            && self.held.len() - last.bytes.start < MAX_HELD
        {
            cut = cut.min(last.bytes.start);
        }
        let now: Vec<Hit> = hits.into_iter().filter(|hit| hit.bytes.start < cut).collect();
        // Too long to be held back any longer, so all of it is output.
        if let Some(last) = now.last() {
            cut = cut.max(last.bytes.end);
        }
        let rest = self.held.split_off(cut);
        let out = index.replace(&self.held, &now);
        self.held = rest;
        out
    }

    /// Ends the stream and returns what was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        match &self.index {
            Some(index) => index.replace(&held, &index.hits(&held)),
            None => held,
        }
    }
}

#[cfg(test)]
mod tests;
