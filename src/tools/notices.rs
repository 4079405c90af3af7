//! Collects warnings that tools make besides their results, such as a server that was restarted.

use std::sync::{Arc, Mutex, PoisonError};

/// Warnings from tools; the loop takes and records them. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<Vec<ToolNotice>>>);

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolNotice {
    /// A code for scripts, for example `mcp_server`.
    pub code: &'static str,
    pub message: String,
}

/// Upper limit for waiting warnings; further ones are dropped.
const MOST: usize = 200;

impl Notices {
    /// Adds a warning.
    pub fn add(&self, code: &'static str, message: impl Into<String>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MOST {
            let message = message.into();
            list.push(ToolNotice { code, message });
        }
    }

    /// Takes all warnings since the last time.
    pub fn take(&self) -> Vec<ToolNotice> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
