//! A value that can be replaced once while others hold references to it.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// Holds the initial value until it is replaced; dereferences to the current value.
#[derive(Default)]
pub struct ReplaceOnce<T> {
    first: T,
    then: OnceLock<T>,
}

impl<T> ReplaceOnce<T> {
    /// Replaces the value; further calls have no effect.
    pub fn replace(&self, value: T) {
        let _ = self.then.set(value);
    }
}

impl<T> From<T> for ReplaceOnce<T> {
    fn from(first: T) -> Self {
        let then = OnceLock::new();
        Self { first, then }
    }
}

impl<T> Deref for ReplaceOnce<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.then.get().unwrap_or(&self.first)
    }
}

impl<T: fmt::Debug> fmt::Debug for ReplaceOnce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_replaced_once() {
        let value = ReplaceOnce::from(1);
        assert_eq!(*value, 1);
        value.replace(2);
        value.replace(3);
        assert_eq!(*value, 2);
    }
}
