//! A fast test whether one of many patterns may begin somewhere in a text: the shift table of Wu and Manber ("A fast
//! algorithm for multi-pattern searching", 1994) over blocks of three bytes. May report false positives, never false
//! negatives.

/// Bytes of a block.
const BLOCK: usize = 3;
/// Bits of a block's hash; blocks with equal hashes make the filter slower, but not wrong.
const BITS: u32 = 16;
/// Bytes of a pattern's beginning that are compared.
const BEGINNING: usize = 8;
/// The longest window; a shift must fit a byte.
const MOST_WINDOW: usize = 64;
/// The most blocks in the table before the window is made smaller: with more blocks few shifts would be long.
const MOST_BLOCKS: usize = 1 << 13;

/// Rules out most texts.
pub(super) struct ByteFilter {
    /// Bytes of each pattern that are used.
    window: usize,
    /// By a block's hash: how far the window may move if it ends in this block.
    shifts: Vec<u8>,
    /// The first eight bytes of each pattern, sorted.
    beginnings: Vec<u64>,
}

impl ByteFilter {
    /// `None` if there is no pattern, or one is too short.
    pub fn new<'a>(patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let shortest = patterns.clone().map(<[u8]>::len).min()?;
        if shortest < BEGINNING {
            return None;
        }
        let fitting = MOST_BLOCKS / patterns.clone().count();
        let window = fitting.clamp(BEGINNING, MOST_WINDOW).min(shortest);
        let most = window - BLOCK + 1;
        let mut shifts = vec![u8::try_from(most).ok()?; 1 << BITS];
        let mut beginnings = Vec::new();
        for pattern in patterns {
            beginnings.extend(beginning(pattern));
            for (at, block) in pattern.get(..window)?.windows(BLOCK).enumerate() {
                let shift = u8::try_from(most - 1 - at).ok()?;
                let known = shifts.get_mut(number(block))?;
                *known = shift.min(*known);
            }
        }
        beginnings.sort_unstable();
        beginnings.dedup();
        Some(Self {
            window,
            shifts,
            beginnings,
        })
    }

    /// Whether a pattern may occur in the text. No false negatives.
    pub fn may_hold(&self, text: &[u8]) -> bool {
        let mut end = self.window;
        while let Some(block) = text.get(end - BLOCK..end) {
            match self.shifts.get(number(block)) {
                Some(0) => {
                    let begins = text.get(end - self.window..).and_then(beginning);
                    if begins.is_none_or(|begins| self.beginnings.binary_search(&begins).is_ok()) {
                        return true;
                    }
                    end += 1;
                }
                Some(shift) => end += usize::from(*shift),
                None => return true,
            }
        }
        false
    }
}

#[inline]
fn number(block: &[u8]) -> usize {
    let bytes = block.iter().fold(0_u32, |bytes, byte| bytes << 8 | u32::from(*byte));
    // Multiplicative hashing spreads similar blocks over the table (Knuth, The Art of Computer Programming, 6.4).
    (bytes.wrapping_mul(0x9e37_79b1) >> (32 - BITS)) as usize
}

fn beginning(text: &[u8]) -> Option<u64> {
    text.first_chunk::<BEGINNING>().map(|bytes| u64::from_be_bytes(*bytes))
}

/// A fast test whether a pattern may begin with given bytes.
pub(super) struct PrefixFilter {
    /// One bit for each possible first byte.
    singles: [u64; 4],
    /// One bit for each possible pair of first bytes.
    pairs: Vec<u64>,
}

impl PrefixFilter {
    /// Records the beginnings of these patterns.
    pub fn new<'a>(patterns: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut starts = Self {
            singles: [0; 4],
            pairs: vec![0; 1 << 10],
        };
        for pattern in patterns {
            if let Some(word) = pattern
                .first()
                .and_then(|byte| starts.singles.get_mut(usize::from(*byte >> 6)))
            {
                *word |= 1 << (pattern.first().copied().unwrap_or(0) & 63);
            }
            let pair = pair(pattern).unwrap_or(0);
            if let Some(word) = starts.pairs.get_mut(usize::from(pair >> 6)) {
                *word |= 1 << (pair & 63);
            }
        }
        starts
    }

    /// Whether a pattern may begin with these bytes. No false negatives.
    pub fn may_be(&self, bytes: &[u8]) -> bool {
        let word = match (pair(bytes), bytes.first()) {
            (Some(pair), _) => self.pairs.get(usize::from(pair >> 6)).map(|word| word >> (pair & 63)),
            (None, Some(byte)) => self
                .singles
                .get(usize::from(*byte >> 6))
                .map(|word| word >> (byte & 63)),
            (None, None) => None,
        };
        word.is_some_and(|word| word & 1 == 1)
    }
}

fn pair(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk::<2>().map(|pair| u16::from_be_bytes(*pair))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(patterns: &[&str]) -> Option<ByteFilter> {
        ByteFilter::new(patterns.iter().map(|pattern| pattern.as_bytes()))
    }

    #[test]
    fn it_knows_its_patterns_and_little_else() {
        let filter = of(&["hunter2-of-the-west", "correcthorse"]).unwrap();
        for text in [
            "hunter2-of-the-west",
            "a correcthorse b",
            "correcthors correcthorse",
            "xxhunter2-of-the-west",
        ] {
            assert!(filter.may_hold(text.as_bytes()), "{text}");
        }
        let long = "correct horse battery staple; hunter of the west. ".repeat(100);
        assert!(!filter.may_hold(long.as_bytes()) && !filter.may_hold(b"") && !filter.may_hold(b"correctho"));
        assert!(of(&["short"]).is_none() && of(&[]).is_none());
    }

    #[test]
    fn beginnings_are_known() {
        let starts = PrefixFilter::new([&b"ab"[..], b"cdef", &[255, 254, 1]].into_iter());
        for (bytes, known) in [
            (&b"a"[..], true),
            (b"ab", true),
            (b"abx", true),
            (b"ac", false),
            (b"b", false),
            (b"cdxx", true),
            (&[255], true),
            (&[255, 254], true),
            (&[255, 255], false),
            (b"", false),
        ] {
            assert_eq!(starts.may_be(bytes), known, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn it_never_says_no_to_a_pattern(
            patterns in prop::collection::vec(prop::collection::vec(97_u8..101, 8..40), 1..300),
            before in prop::collection::vec(97_u8..101, 0..80),
            behind in prop::collection::vec(97_u8..101, 0..80),
            which in any::<prop::sample::Index>(),
        ) {
            let filter = ByteFilter::new(patterns.iter().map(Vec::as_slice)).unwrap();
            let text = [before, which.get(&patterns).clone(), behind].concat();
            prop_assert!(filter.may_hold(&text));
        }
    }
}
