//! The second search: rare encodings of secrets, searched for only in the few ranges of a text that could contain one.
//! Skips most text by looking at one byte in ten or twenty.

use super::encode::{SecretPattern, rare};
use super::filter::{ByteFilter, PrefixFilter};
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use std::ops::Range;
use std::sync::OnceLock;

/// The rare encodings of all secrets; built when the first range is found that could contain one.
pub(super) struct RareEncodings {
    pieces: Vec<(String, usize)>,
    /// For each class: the length of its shortest pattern, or less.
    least: [usize; 2],
    made: OnceLock<RareIndex>,
}

struct RareIndex {
    /// A fast test that rules out most ranges. `None`: every range is searched.
    filter: Option<ByteFilter>,
    starts: PrefixFilter,
    /// Built when the first range passes the filter; contains `None` if it cannot be built.
    automaton: OnceLock<Option<AhoCorasick>>,
    /// In byte order; indices are the automaton's pattern ids.
    patterns: Vec<SecretPattern>,
}

impl RareEncodings {
    /// From these pieces, each with the index of its secret's name.
    pub fn new(pieces: Vec<(String, usize)>) -> Self {
        let shortest = pieces
            .iter()
            .map(|(piece, _)| piece.len())
            .min()
            .unwrap_or(usize::MAX / 16);
        Self {
            pieces,
            least: rare::CharClass::ALL.map(|class| class.least(shortest)),
            made: OnceLock::new(),
        }
    }

    fn made(&self) -> &RareIndex {
        let make = || {
            let all = self
                .pieces
                .iter()
                .flat_map(|(piece, name)| rare::patterns(piece, *name));
            let mut patterns: Vec<SecretPattern> = all.collect();
            patterns.sort();
            patterns.dedup_by(|a, b| a.bytes == b.bytes);
            RareIndex {
                starts: PrefixFilter::new(patterns.iter().map(|pattern| pattern.bytes.as_slice())),
                filter: ByteFilter::new(patterns.iter().map(|pattern| pattern.bytes.as_slice())),
                automaton: OnceLock::new(),
                patterns,
            }
        };
        self.made.get_or_init(make)
    }

    /// Calls `found` for each place of `text` where a pattern occurs.
    pub fn each<'a>(&'a self, text: &[u8], mut found: impl FnMut(Range<usize>, &'a SecretPattern)) {
        for (class, least) in rare::CharClass::ALL.into_iter().zip(self.least) {
            let mut from = 0;
            while let Some(run) = next_run(text, from, class, least) {
                from = run.end;
                let stretch = text.get(run.clone()).unwrap_or_default();
                let made = self.made();
                if made.filter.as_ref().is_some_and(|filter| !filter.may_hold(stretch)) {
                    continue;
                }
                let Some(automaton) = made.automaton() else { return };
                for hit in automaton.find_iter(stretch) {
                    if let Some(pattern) = made.patterns.get(hit.pattern().as_usize()) {
                        found(run.start + hit.start()..run.start + hit.end(), pattern);
                    }
                }
            }
        }
    }

    /// Whether some pattern starts with these bytes and is longer.
    pub fn may_go_on(&self, bytes: &[u8]) -> bool {
        let in_class = |class: rare::CharClass| bytes.iter().rev().all(|byte| class.has(*byte));
        if !rare::CharClass::ALL.into_iter().any(in_class) {
            return false;
        }
        let made = self.made();
        if !made.starts.may_be(bytes) {
            return false;
        }
        let patterns = made.patterns.as_slice();
        let at = patterns.partition_point(|pattern| pattern.bytes.as_slice() <= bytes);
        patterns.get(at).is_some_and(|pattern| pattern.bytes.starts_with(bytes))
    }

    /// An upper bound for the length of a pattern.
    pub fn longest(&self) -> usize {
        let longest = self.pieces.iter().map(|(piece, _)| piece.len()).max();
        // `&#x1f600;` is nine bytes for the four of one character, `0x61, ` six for one.
        longest.map_or(0, |longest| 6 * longest)
    }
}

impl RareIndex {
    fn automaton(&self) -> Option<&AhoCorasick> {
        let make = || {
            let patterns = self.patterns.iter().map(|pattern| pattern.bytes.as_slice());
            let builder = &mut AhoCorasick::builder();
            builder.match_kind(MatchKind::LeftmostLongest);
            builder
                .kind(Some(AhoCorasickKind::NoncontiguousNFA))
                .build(patterns)
                .ok()
        };
        self.automaton.get_or_init(make).as_ref()
    }
}

/// The next run of at least `least` bytes of a class, extended as far as possible.
fn next_run(text: &[u8], from: usize, class: rare::CharClass, least: usize) -> Option<Range<usize>> {
    let mut begin = from;
    loop {
        let all = text.get(begin..begin.checked_add(least)?)?;
        // A digest has no separators, so it can be skipped without reading all of it.
        let last = all
            .get(least.saturating_sub(rare::MAX_DIGITS + 1)..)
            .unwrap_or_default();
        if class == rare::CharClass::Dump && last.iter().all(u8::is_ascii_hexdigit) {
            begin += least.saturating_sub(rare::MAX_DIGITS).max(1);
            continue;
        }
        match all.iter().rposition(|byte| !class.has(*byte)) {
            // No run of this length can begin at or before this byte.
            Some(other) => begin += other + 1,
            None => {
                let rest = text.get(begin + least..).unwrap_or_default();
                let more = rest.iter().position(|byte| !class.has(*byte)).unwrap_or(rest.len());
                return Some(begin..begin + least + more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_whole() {
        let runs = |text: &str| {
            let (mut found, mut from) = (Vec::new(), 0);
            while let Some(run) = next_run(text.as_bytes(), from, rare::CharClass::Dense, 4) {
                from = run.end;
                found.push(&text[run]);
            }
            found.join("|")
        };
        assert_eq!(runs("abc abcd (abcdef).ab.abcde"), "abcd|abcdef|abcde");
        assert_eq!(runs("abcd"), "abcd");
        assert_eq!(runs("abc"), "");
        assert_eq!(runs("...abcdabcdabcd"), "abcdabcdabcd");
    }
}
