//! Maps positions of a text from which something was taken out, or in which it was replaced, back to the original.

/// For each stretch of the text that is as in the original: where it begins in the text, and where it began there.
#[derive(Default)]
pub(super) struct OffsetMap(Vec<(usize, usize)>);

impl OffsetMap {
    /// Forgets all, as for a text that is the original.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// From `at` in the text on it is as the original from `source` on.
    pub fn push(&mut self, at: usize, source: usize) {
        self.0.push((at, source));
    }

    /// Whether the text is the original.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The position in the original.
    pub fn place(&self, at: usize) -> usize {
        let stretch = self.0.partition_point(|(begin, _)| *begin <= at);
        let (begin, source) = stretch
            .checked_sub(1)
            .and_then(|i| self.0.get(i))
            .copied()
            .unwrap_or((0, 0));
        source + (at - begin)
    }
}
