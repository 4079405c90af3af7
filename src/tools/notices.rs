//! What a tool must tell the run beside its results, such as a server that had to be started again. Records nothing itself.

use std::sync::{Arc, Mutex, PoisonError};

/// Told by tools, taken by the loop, which records each as a warning. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<Vec<Notice>>>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A word for scripts, for example `mcp_server`.
    pub code: &'static str,
    pub message: String,
}

/// More than so many wait for nobody.
const MOST: usize = 200;

impl Notices {
    /// Leaves one.
    pub fn tell(&self, code: &'static str, message: impl Into<String>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MOST {
            let message = message.into();
            list.push(Notice { code, message });
        }
    }

    /// Takes all that were left since the last time.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
