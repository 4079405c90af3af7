//! The warning about changes that commands may have made at protected paths if the process was killed: what a write guard
//! would have undone at their end.

use crate::engine::verdict::first_names;
use crate::policy::PolicySet;
use crate::process;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The code of the warning.
pub const CODE: &str = "unchecked";

/// The warning about protected paths that have changed since a time. `None` without a time, and if there are none. `hidden`: files and
/// directories of this program, absolute.
pub async fn warning(
    since: Option<SystemTime>,
    policies: &PolicySet,
    (workspace, hidden): (&Path, &[PathBuf]),
) -> Option<String> {
    let since = since?;
    let own = hidden.iter().filter_map(|path| path.strip_prefix(workspace).ok());
    let own: Vec<PathBuf> = own.map(Path::to_path_buf).collect();
    let began = "a run was killed while a command may have been running here, so what that changed at protected paths was \
                 neither compared nor undone";
    let (tree, closed) = (workspace.to_owned(), policies.closed());
    let looking = tokio::task::spawn_blocking(move || process::closed_since(&tree, &*closed, &own, since));
    let what = match looking.await.map_err(|error| error.to_string()).flatten() {
        Ok(changed) if changed.is_empty() => return None,
        Ok(mut changed) => {
            changed.sort_by_key(|path| is_data_of_git(path));
            format!(
                "changed since then: {}",
                first_names(changed.iter().map(String::as_str))
            )
        }
        Err(why) => format!("which ones have changed since then is not known: {why}"),
    };
    Some(format!(
        "{began}; {what}. Look at these, and restore what you did not change, before you use git or an editor here: they may start \
         what is written there (hooks, settings)"
    ))
}

/// Whether git only keeps data there, so that others are named first.
fn is_data_of_git(path: &str) -> bool {
    const DATA: [&str; 8] = [
        "objects",
        "refs",
        "logs",
        "index",
        "HEAD",
        "ORIG_HEAD",
        "FETCH_HEAD",
        "COMMIT_EDITMSG",
    ];
    let mut parts = path.split('/').skip_while(|part| *part != ".git").skip(1);
    parts.next().is_some_and(|part| part.is_empty() || DATA.contains(&part))
}
