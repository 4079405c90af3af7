//! Collects what tools tell besides their results: warnings, such as a server that was restarted, and changes of servers
//! that were not granted.

use crate::base::grant::{Undone, described};
use crate::base::sync::lock;
use std::sync::{Arc, Mutex, MutexGuard};

/// What tools tell; the loop takes and records it. Clones share the lists.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    warnings: Vec<ToolNotice>,
    /// Changes of servers, each list with the server's name. No list is dropped, because a change that could not be undone
    /// ends the run; there are few, because a server is started at most twice.
    undone: Vec<(String, Vec<Undone>)>,
}

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
        let mut lists = self.lists();
        if lists.warnings.len() < MOST {
            let message = message.into();
            lists.warnings.push(ToolNotice { code, message });
        }
    }

    /// Adds the changes that the process of an MCP server made without a grant, with a warning.
    pub fn add_undone(&self, server: &str, undone: Vec<Undone>) {
        if undone.is_empty() {
            return;
        }
        let message = format!(
            "MCP server {server} changed paths that it may not change: {}",
            described(&undone)
        );
        self.add("protected_path", message);
        self.lists().undone.push((server.to_owned(), undone));
    }

    /// Takes all warnings since the last time.
    pub fn take(&self) -> Vec<ToolNotice> {
        std::mem::take(&mut self.lists().warnings)
    }

    /// Takes all changes of servers since the last time.
    pub fn take_undone(&self) -> Vec<(String, Vec<Undone>)> {
        std::mem::take(&mut self.lists().undone)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        lock(&self.0)
    }
}
