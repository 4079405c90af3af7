//! Processes of commands that could not be killed. Such a process may still write the workspace, which makes the
//! results of checks and measurements unreliable, so the run must end.

use super::stat::{StatFields, read_stat};
use crate::base::sync::lock;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// The time that the processes of a tree get to end after SIGKILL: one that waits for a disk or a network file system
/// ends late.
pub(crate) const KILL_TIME: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// Upper limit for the processes that are recorded and named.
const MOST_NAMED: usize = 10;

/// The survivors: the workspace of the command, the PID, and the name of the process. Entries are never removed,
/// because it is not known what a process did after its command ended, even if the process has ended since.
static SURVIVORS: Mutex<Vec<(PathBuf, i32, String)>> = Mutex::new(Vec::new());

/// Records processes that are still alive after the end of their command.
pub(super) fn add(workspace: &Path, pids: &[i32]) {
    let mut all = lock(&SURVIVORS);
    for pid in pids.iter().take(MOST_NAMED) {
        let stat = read_stat(format!("/proc/{pid}/stat"));
        let name = stat.as_deref().and_then(StatFields::name).unwrap_or_default();
        all.push((workspace.to_path_buf(), *pid, name));
    }
}

/// A sentence about the processes of commands in this workspace that could not be killed. `None` if there is none.
#[must_use]
pub fn message(workspace: &Path) -> Option<String> {
    let all = lock(&SURVIVORS);
    let here = all.iter().filter(|(of, ..)| of == workspace);
    let names: Vec<String> = here
        .take(MOST_NAMED)
        .map(|(_, pid, name)| format!("{pid} ({name})"))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "processes that a command left could not be killed within {} s and may still write: {}; end them, and look at the tree \
             before it is used",
            KILL_TIME.as_secs(),
            names.join(", ")
        )
    })
}
