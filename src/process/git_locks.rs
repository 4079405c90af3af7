//! Lock files that git leaves in `.git` when it is killed: as long as they exist, later git commands fail.
//!
//! A lock file is removed only if the killed command must have created it: it was created after the command began, no
//! other command of the run may write the workspace, and no other git process works there. If one of these conditions
//! cannot be confirmed, no lock file is removed, and the reason is reported.

use super::live::own_write;
use super::process_tree::table;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Upper limit for the entries of `.git`, without its objects, that a search for lock files visits.
const MOST_ENTRIES: usize = 50_000;
/// Upper limit for searches. They are repeated until two in a row find the same lock files and no process that holds
/// one.
const MOST_LOOKS: usize = 20;
/// The pause between two searches.
const PAUSE: Duration = Duration::from_millis(50);
/// Upper limit for the lock files that a message names.
const MOST_NAMED: usize = 10;

/// What was done about the git lock files that a killed command left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftLocks {
    /// Paths of the removed lock files, relative to the workspace.
    pub removed: Vec<String>,
    /// Paths of the lock files that still exist, relative to the workspace.
    pub kept: Vec<String>,
    /// Why lock files were not removed, or why the search is not complete.
    pub why_kept: Option<String>,
}

impl LeftLocks {
    /// The message about it, as a sentence. `None` if there is nothing to report.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let named = |names: &[String]| {
            let more = names.len().saturating_sub(MOST_NAMED);
            let mut text = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
            if more > 0 {
                text.push_str(&format!(" and {more} more"));
            }
            text
        };
        if let Some(why) = &self.why_kept {
            let kept = match self.kept.is_empty() {
                true => String::new(),
                false => format!(": {}", named(&self.kept)),
            };
            return Some(format!(
                "lock files that a killed git may have left in .git were not removed, because {why}{kept}; remove them when no \
                 git runs"
            ));
        }
        (!self.removed.is_empty()).then(|| {
            format!(
                "lock files that a killed git left were removed: {}",
                named(&self.removed)
            )
        })
    }
}

/// The identity of a lock file: device, inode number, and change time.
type Stamp = (u64, u64, i64, i64);

fn stamp(data: &Metadata) -> Stamp {
    (data.dev(), data.ino(), data.ctime(), data.ctime_nsec())
}

/// Removes the lock files that a killed command created in the `.git` of its workspace. `begun`: when the command
/// began. `is_alone`: whether no other live command may write the workspace.
pub(super) async fn remove_left(workspace: &Path, begun: SystemTime, is_alone: impl Fn() -> bool) -> LeftLocks {
    let git = workspace.join(".git");
    if !git.symlink_metadata().is_ok_and(|data| data.is_dir()) {
        return LeftLocks::default();
    }
    let name = |path: &Path| match path.strip_prefix(workspace) {
        Ok(below) => below.to_string_lossy().into_owned(),
        Err(_) => path.to_string_lossy().into_owned(),
    };
    let mut before = BTreeMap::new();
    let mut left = LeftLocks::default();
    for look in 0..MOST_LOOKS {
        if look > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let found = match locks_since(&git, begun) {
            Ok(found) => found,
            Err(why) => {
                left.why_kept = Some(why);
                return left;
            }
        };
        if found.is_empty() {
            return LeftLocks::default();
        }
        left.kept = found.keys().map(|path| name(path)).collect();
        left.why_kept = match (is_alone(), before == found) {
            (false, _) => Some("another command of this run may have made them".to_owned()),
            (true, false) => Some("they change".to_owned()),
            (true, true) => holder(workspace, &git, &found),
        };
        before = found;
        if left.why_kept.is_none() {
            break;
        }
    }
    if left.why_kept.is_some() {
        return left;
    }
    let mut done = LeftLocks::default();
    for (path, then) in before {
        let own = own_write(&path);
        let is_same = path.symlink_metadata().is_ok_and(|now| stamp(&now) == then);
        match is_same.then(|| std::fs::remove_file(&path)) {
            Some(Ok(())) => done.removed.push(name(&path)),
            Some(Err(error)) => {
                done.kept.push(name(&path));
                done.why_kept = Some(format!("one cannot be removed ({error})"));
            }
            None => {}
        }
        drop(own);
    }
    done
}

/// The lock files in a git directory that were created since a time. An error says why the search is not complete.
fn locks_since(git: &Path, begun: SystemTime) -> Result<BTreeMap<PathBuf, Stamp>, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(git.to_path_buf(), false)];
    let mut seen = 0;
    while let Some((dir, in_refs)) = waiting.pop() {
        let listed = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            listed => listed.map_err(|error| format!("a directory of .git cannot be read ({error})"))?,
        };
        for entry in listed {
            let unread = |error: io::Error| format!("an entry of .git cannot be read ({error})");
            let entry = entry.map_err(unread)?;
            seen += 1;
            if seen > MOST_ENTRIES {
                return Err(format!(".git has more than {MOST_ENTRIES} entries without its objects"));
            }
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(unread)?);
            // Below `refs`, `objects` may be part of a branch's name.
            if kind.is_dir() && (in_refs || name != "objects") {
                waiting.push((entry.path(), in_refs || name == "refs"));
            }
            if !kind.is_file() || !is_lock(&name) {
                continue;
            }
            let data = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                data => data.map_err(unread)?,
            };
            let made = data
                .created()
                .map_err(|_| "the file system does not tell when a file was made")?;
            if made >= begun {
                found.insert(entry.path(), stamp(&data));
            }
        }
    }
    Ok(found)
}

fn is_lock(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".lock")
}

/// Why a process of this machine may hold one of the lock files. `None` if no process does. Git closes the descriptor
/// of a lock file that it still holds, so every git process counts unless it is known to work outside the workspace.
fn holder(workspace: &Path, git: &Path, locks: &BTreeMap<PathBuf, Stamp>) -> Option<String> {
    let link = |pid: i32, what: &str| std::fs::read_link(format!("/proc/{pid}/{what}"));
    let here = std::fs::read_link("/proc/self/ns/mnt");
    for entry in table().into_iter().filter(|entry| !entry.zombie) {
        let pid = entry.pid;
        let opened: Vec<PathBuf> = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(fds) => fds
                .flatten()
                .filter_map(|fd| std::fs::read_link(fd.path()).ok())
                .collect(),
            Err(_) => Vec::new(),
        };
        if opened.iter().any(|path| locks.contains_key(path)) {
            return Some(format!("process {pid} has one of them open"));
        }
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if !name.starts_with("git") {
            continue;
        }
        let is_elsewhere = match (link(pid, "cwd"), link(pid, "ns/mnt"), &here) {
            // The process has ended meanwhile.
            (Err(error), ..) if error.kind() == io::ErrorKind::NotFound => true,
            (Ok(dir), Ok(there), Ok(here)) if there == *here => {
                !dir.starts_with(workspace) && !opened.iter().any(|path| path.starts_with(git))
            }
            _ => false,
        };
        if !is_elsewhere {
            return Some(format!("process {pid} is a git that may hold them"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A workspace with a lock file from before the returned time, and others that were created after it.
    fn ground() -> (tempfile::TempDir, SystemTime) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["refs/heads/objects", "objects/ab", "worktrees/one"] {
            fs::create_dir_all(dir.path().join(".git").join(name)).unwrap();
        }
        let git = dir.path().join(".git");
        fs::write(git.join("config.lock"), "old").unwrap();
        // The clock of the file system advances in steps.
        let old = git.join("config.lock").metadata().unwrap().created().unwrap();
        let begun = old + Duration::from_nanos(1);
        let later = |name: &str| loop {
            fs::write(git.join(name), "new").unwrap();
            if git.join(name).metadata().unwrap().created().unwrap() > old {
                break;
            }
            fs::remove_file(git.join(name)).unwrap();
        };
        for name in [
            "index.lock",
            "refs/heads/objects/x.lock",
            "worktrees/one/HEAD.lock",
            "index",
        ] {
            later(name);
        }
        (dir, begun)
    }

    fn left(dir: &Path) -> Vec<String> {
        let all = locks_since(&dir.join(".git"), SystemTime::UNIX_EPOCH).unwrap();
        all.keys()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect()
    }

    #[tokio::test]
    async fn only_lock_files_created_since_the_command_began_are_removed() {
        let (dir, begun) = ground();
        let done = remove_left(dir.path(), begun, || true).await;
        let wanted = [
            ".git/index.lock",
            ".git/refs/heads/objects/x.lock",
            ".git/worktrees/one/HEAD.lock",
        ];
        assert_eq!(done.removed, wanted, "{done:?}");
        assert_eq!(
            (left(dir.path()), done.why_kept.as_deref()),
            (vec!["config.lock".to_owned()], None)
        );
        assert!(dir.path().join(".git/index").exists());
        assert_eq!(remove_left(dir.path(), begun, || true).await, LeftLocks::default());
        assert_eq!(
            remove_left(&dir.path().join("none"), begun, || true).await,
            LeftLocks::default()
        );
    }

    #[tokio::test]
    async fn lock_files_that_another_process_may_hold_are_kept() {
        let (dir, begun) = ground();
        let held = fs::File::open(dir.path().join(".git/index.lock")).unwrap();
        let done = remove_left(dir.path(), begun, || true).await;
        assert!(
            done.removed.is_empty() && done.told().unwrap().contains("has one of them open"),
            "{done:?}"
        );
        drop(held);
        let done = remove_left(dir.path(), begun, || false).await;
        assert!(
            done.removed.is_empty() && done.told().unwrap().contains("another command"),
            "{done:?}"
        );
        // A program named `git` whose current directory is the workspace.
        let git = dir.path().join("git");
        fs::copy("/bin/sleep", &git).unwrap();
        let mut other = std::process::Command::new(&git)
            .arg("60")
            .current_dir(dir.path())
            .spawn()
            .unwrap();
        let done = remove_left(dir.path(), begun, || true).await;
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(
            done.removed.is_empty() && done.told().unwrap().contains("is a git"),
            "{done:?}"
        );
        assert_eq!(left(dir.path()).len(), 4);
    }
}
