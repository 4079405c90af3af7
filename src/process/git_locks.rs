//! Lock files that git leaves in `.git` when it is killed: as long as they exist, later git commands fail.
//!
//! A lock file is removed only if it must come from the killed command: the command could write `.git`, the file was
//! created after it began, no other command of the run may write the workspace, and no other git process works in this
//! repository. If any of these cannot be established, all lock files stay and a message says why. Lock files of linked
//! worktrees always stay, because they belong to whoever works there.

use super::live::own_write;
use super::process_tree::table;
use crate::base::grant::{ClosedPaths, Writes};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
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
    pub fn message(&self) -> Option<String> {
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

/// The most bytes of the command line and of the environment of a process, each, that are looked through.
const MOST_WORDS: u64 = 128 << 10;
/// The most bytes of a file that names a git directory.
const MOST_POINTER: u64 = 8 << 10;
/// Variables that name the repository in which git works.
const REPOSITORY_VARIABLES: [&str; 5] = [
    "GIT_DIR",
    "GIT_COMMON_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
];

/// Whether a command with this grant could make lock files in `.git`.
pub(super) fn could_make(writes: &Writes, closed: &dyn ClosedPaths) -> bool {
    let reaches = |path: &str| path.is_empty() || path == "." || path.split('/').next() == Some(".git");
    let is_granted = match writes {
        Writes::Nothing => false,
        Writes::Paths { paths, maybe } => {
            paths.iter().any(|one| reaches(&one.path)) || maybe.iter().any(|dir| reaches(dir))
        }
        Writes::Tree => true,
    };
    is_granted && !closed.closed(".git", true)
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
    let mut present = BTreeSet::new();
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
        if before != found {
            // Whoever made them is among these.
            present = table().into_iter().map(|entry| entry.pid).collect();
        }
        left.why_kept = match (is_alone(), before == found) {
            (false, _) => Some("another command of this run may have made them".to_owned()),
            (true, false) => Some("they change".to_owned()),
            (true, true) => holder(workspace, &git, &found, &present),
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
            let is_of_others = dir == git && name == "worktrees";
            // A branch may have any name.
            if kind.is_dir() && (in_refs || name != "objects") && !is_of_others {
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

/// Why a process of this machine may hold one of the lock files. Git closes a lock file that it goes on holding, so each
/// git counts of which it is not known that it works in another repository. `present`: the processes that were there when
/// all of these lock files were; a git that is not among them cannot have made one.
fn holder(workspace: &Path, git: &Path, locks: &BTreeMap<PathBuf, Stamp>, present: &BTreeSet<i32>) -> Option<String> {
    if present.is_empty() {
        return Some("the processes of this machine cannot be seen".to_owned());
    }
    let (Ok(top), Ok(real)) = (workspace.canonicalize(), git.canonicalize()) else {
        return Some("the place of .git is not known".to_owned());
    };
    let here = Repository { top, git: real };
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
        if !name.starts_with("git") || !present.contains(&pid) {
            continue;
        }
        let is_elsewhere = match is_elsewhere(pid, &here) {
            // It has ended since.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => true,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => true,
            Err(_) => false,
            Ok(is_elsewhere) => is_elsewhere && !opened.iter().any(|path| path.starts_with(&here.git)),
        };
        if !is_elsewhere {
            return Some(format!("process {pid} is a git that may hold them"));
        }
    }
    None
}

/// The repository of the workspace, by real paths.
struct Repository {
    top: PathBuf,
    git: PathBuf,
}

/// Whether a process certainly works in another repository: it is not in this one or in a linked worktree of it, and its
/// command line and environment do not name it.
fn is_elsewhere(pid: i32, here: &Repository) -> io::Result<bool> {
    let link = |what: &str| std::fs::read_link(format!("/proc/{pid}/{what}"));
    let dir = link("cwd")?;
    // Its paths are those of another view, or its directory has no path.
    if link("ns/mnt")? != std::fs::read_link("/proc/self/ns/mnt")? || !dir.is_dir() {
        return Ok(false);
    }
    if dir.starts_with(&here.top)
        || dir
            .ancestors()
            .any(|dir| leads_to(&dir.join(".git"), here) || leads_to(dir, here))
    {
        return Ok(false);
    }
    for (what, is_environment) in [("cmdline", false), ("environ", true)] {
        let mut words = Vec::new();
        File::open(format!("/proc/{pid}/{what}"))?
            .take(MOST_WORDS)
            .read_to_end(&mut words)?;
        if words.len() as u64 == MOST_WORDS {
            return Ok(false);
        }
        let mut is_next = false;
        for word in words.split(|byte| *byte == 0).filter(|word| !word.is_empty()) {
            let (key, value) = match word.iter().position(|byte| *byte == b'=') {
                Some(at) => (&word[..at], &word[at + 1..]),
                None => (word, word),
            };
            let is_variable = REPOSITORY_VARIABLES.iter().any(|name| name.as_bytes() == key);
            if is_environment && !is_variable {
                continue;
            }
            // `--git-dir X` and `--git-dir=X`.
            let names_one = is_variable || is_next || key == b"--git-dir" && key != word;
            is_next = !is_environment && word == b"--git-dir";
            match dir.join(OsStr::from_bytes(value)).canonicalize() {
                Ok(path) if path.starts_with(&here.top) || leads_to(&path, here) => return Ok(false),
                Err(_) if names_one => return Ok(false),
                _ => {}
            }
        }
    }
    Ok(true)
}

/// Whether a path is the git directory of this repository, or one of its linked worktrees, or a file that names one, or
/// may be.
fn leads_to(path: &Path, here: &Repository) -> bool {
    let mut path = path.to_path_buf();
    // A `.git` file names a directory, and its `commondir` the one of the repository.
    for _ in 0..3 {
        let real = match path.canonicalize() {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return false;
            }
            Err(_) => return true,
            Ok(real) => real,
        };
        if real.starts_with(&here.git) {
            return true;
        }
        let is_dir = real.is_dir();
        let (file, base) = match is_dir {
            true => (real.join("commondir"), real.clone()),
            false => (real.clone(), real.parent().unwrap_or(&real).to_path_buf()),
        };
        // A pipe would not end.
        match file.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
            Err(_) => return true,
            Ok(data) if !data.is_file() || data.len() > MOST_POINTER => return false,
            Ok(_) => {}
        }
        let Ok(text) = std::fs::read(&file) else { return true };
        let named = match is_dir {
            true => Some(text.as_slice()),
            false => text.strip_prefix(b"gitdir:"),
        };
        let Some(named) = named else { return false };
        path = base.join(OsStr::from_bytes(named.trim_ascii()));
    }
    true
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
        // That of a worktree belongs to whoever works there.
        let wanted = [".git/index.lock", ".git/refs/heads/objects/x.lock"];
        assert_eq!(done.removed, wanted, "{done:?}");
        assert_eq!(
            (left(dir.path()), done.why_kept.as_deref()),
            (vec!["config.lock".to_owned()], None)
        );
        assert!(dir.path().join(".git/index").exists());
        assert!(dir.path().join(".git/worktrees/one/HEAD.lock").exists());
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
            done.removed.is_empty() && done.message().unwrap().contains("has one of them open"),
            "{done:?}"
        );
        drop(held);
        let done = remove_left(dir.path(), begun, || false).await;
        assert!(
            done.removed.is_empty() && done.message().unwrap().contains("another command"),
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
            done.removed.is_empty() && done.message().unwrap().contains("is a git"),
            "{done:?}"
        );
        assert_eq!(left(dir.path()).len(), 3);
    }

    /// On a machine where others work with git all the time, each look finds some that this user cannot look into. One that
    /// came later than the lock files has made none.
    #[tokio::test]
    async fn a_git_that_came_later_holds_none() {
        let (dir, begun) = ground();
        let program = dir.path().join("git");
        fs::copy("/bin/sleep", &program).unwrap();
        let later = std::cell::RefCell::new(Vec::new());
        let done = remove_left(dir.path(), begun, || {
            // Called in each look, before the processes are looked at.
            let mut later = later.borrow_mut();
            if later.len() == 1 {
                let mut other = std::process::Command::new(&program);
                later.push(Some(other.arg("60").current_dir(dir.path()).spawn().unwrap()));
            } else if later.is_empty() {
                later.push(None);
            }
            true
        })
        .await;
        for mut other in later.into_inner().into_iter().flatten() {
            other.kill().unwrap();
            other.wait().unwrap();
        }
        assert_eq!(done.removed.len(), 2, "{done:?}");
    }

    /// A git may work in a repository from outside of it.
    #[tokio::test]
    async fn a_git_that_is_outside_may_work_here() {
        let (dir, begun) = ground();
        let outside = tempfile::tempdir().unwrap();
        let program = outside.path().join("git");
        fs::copy("/bin/sleep", &program).unwrap();
        let linked = outside.path().join("linked");
        fs::create_dir(&linked).unwrap();
        let named = dir.path().join(".git/worktrees/one");
        fs::write(linked.join(".git"), format!("gitdir: {}\n", named.display())).unwrap();
        for (at, variable) in [(outside.path(), true), (linked.as_path(), false)] {
            let mut other = std::process::Command::new(&program);
            other.arg("60").current_dir(at).env_clear();
            if variable {
                other.env("GIT_DIR", dir.path().join(".git"));
            }
            let mut other = other.spawn().unwrap();
            let done = remove_left(dir.path(), begun, || true).await;
            other.kill().unwrap();
            other.wait().unwrap();
            let told = done.message().unwrap_or_default();
            assert!(
                done.removed.is_empty() && told.contains("is a git"),
                "{variable} {done:?}"
            );
        }
    }

    #[test]
    fn only_a_command_that_may_write_the_git_directory_makes_them() {
        use crate::base::grant::{NothingClosed, WriteKind, WritePath};
        let paths = |path: &str| Writes::Paths {
            paths: vec![WritePath {
                path: path.to_owned(),
                kind: WriteKind::InPlace,
            }],
            maybe: Vec::new(),
        };
        for (writes, could) in [
            (Writes::Nothing, false),
            (Writes::Tree, true),
            (paths("src/a"), false),
            (paths(".git/index"), true),
        ] {
            assert_eq!(could_make(&writes, &NothingClosed), could, "{writes:?}");
        }
    }
}
