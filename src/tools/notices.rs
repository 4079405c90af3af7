//! Collects what tools report besides their results: warnings, for example about a restarted server, and changes
//! without a grant that servers and abandoned calls made.

use crate::base::grant::{Undone, described};
use crate::base::ids::CallId;
use crate::base::sync::lock;
use crate::process::FoundOnDrop;
use std::sync::{Arc, Mutex, MutexGuard};

/// What tools tell; the loop takes and records it. Clones share the lists.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    warnings: Vec<ToolNotice>,
    /// How many more warnings there were than the limit.
    dropped: usize,
    /// Changes that were not granted, with the one who made them. No list is dropped, because a change that could not be
    /// undone ends the run; there are few, because a server is started at most twice, and a call has one command.
    undone: Vec<(LateAuthor, Vec<Undone>)>,
}

/// Who made changes that are in no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LateAuthor {
    /// The MCP server with this name.
    Server(String),
    /// The command of an abandoned call.
    Call(CallId),
}

/// Reports, when dropped, the changes without a grant that the command of a call made, if the call has no result of the
/// command: the call was abandoned, or the command failed to start. Keep it until the command has ended.
pub struct ReportOnDrop {
    notices: Notices,
    call: CallId,
    /// The changes that were found, filled by [`crate::process::run_reporting_changes`].
    pub found: FoundOnDrop,
}

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        let undone = std::mem::take(&mut *lock(&self.found));
        if !undone.is_empty() {
            self.notices
                .lists()
                .undone
                .push((LateAuthor::Call(self.call.clone()), undone));
        }
    }
}

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolNotice {
    /// A code for scripts, for example `mcp_server`.
    pub code: &'static str,
    pub message: String,
}

/// Upper limit for pending warnings; any more are only counted.
const MOST: usize = 200;

impl Notices {
    /// Adds a warning.
    pub fn add(&self, code: &'static str, message: impl Into<String>) {
        let mut lists = self.lists();
        if lists.warnings.len() < MOST {
            let message = message.into();
            lists.warnings.push(ToolNotice { code, message });
        } else {
            lists.dropped += 1;
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
        self.lists()
            .undone
            .push((LateAuthor::Server(server.to_owned()), undone));
    }

    /// Returns a guard that reports the changes of a call's command if the call has no result.
    #[must_use]
    pub fn report_on_drop(&self, call: &CallId) -> ReportOnDrop {
        ReportOnDrop {
            notices: self.clone(),
            call: call.clone(),
            found: FoundOnDrop::default(),
        }
    }

    /// Takes all warnings since the last time.
    pub fn take(&self) -> Vec<ToolNotice> {
        let mut lists = self.lists();
        let mut warnings = std::mem::take(&mut lists.warnings);
        let dropped = std::mem::take(&mut lists.dropped);
        if dropped > 0 {
            let message =
                format!("{dropped} more warnings of tools and servers are left out: at most {MOST} are kept at once");
            warnings.push(ToolNotice {
                code: "warnings_dropped",
                message,
            });
        }
        warnings
    }

    /// Takes all changes since the last time.
    pub fn take_undone(&self) -> Vec<(LateAuthor, Vec<Undone>)> {
        std::mem::take(&mut self.lists().undone)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_beyond_the_limit_are_counted() {
        let notices = Notices::default();
        for number in 0..MOST + 3 {
            notices.add("mcp_server", format!("warning {number}"));
        }
        let taken = notices.take();
        assert_eq!(taken.len(), MOST + 1);
        assert!(taken[MOST].message.starts_with("3 more warnings"), "{:?}", taken[MOST]);
        assert!(notices.take().is_empty());
    }
}
