//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. That another thread panicked while it held the lock changes nothing: what it guards is usable at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
