//! Limits the work of one edit. A text of equal lines in a file of the same lines would otherwise be compared at every
//! place almost to its end, which takes hours.

use std::cell::Cell;

/// Upper limit for the steps of one edit. A step compares two tokens, or a few characters, which takes some
/// nanoseconds.
const MAX_STEPS: u64 = 200_000_000;

/// The steps that are left for one edit; all methods share them.
pub(super) struct Steps {
    /// `None` once more were wanted than were left.
    left: Cell<Option<u64>>,
}

impl Steps {
    /// All steps of one edit.
    pub(super) fn new() -> Self {
        Self {
            left: Cell::new(Some(MAX_STEPS)),
        }
    }

    /// Takes steps, before the work is done; `false` if fewer are left, now or before. Then the edit fails, whatever
    /// the current method returns.
    pub(super) fn take(&self, count: usize) -> bool {
        let left = self.left.get().and_then(|left| left.checked_sub(count as u64));
        self.left.set(left);
        left.is_some()
    }

    /// Whether more steps were wanted than were left.
    pub(super) fn are_used_up(&self) -> bool {
        self.left.get().is_none()
    }
}
