//! Credentials that git's configuration holds: that of the workspace's repository, of its submodules, and of repositories
//! in the directories at its top, bare ones too. A checkout of a CI server leaves its token there. They are in no
//! variable, so the redactor learns them from the files.

use crate::base::git_config;
use crate::process::is_git_dir;
use crate::workspace::patch;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most directories in which configuration files are looked for, git's own first.
const MOST_DIRECTORIES: usize = 20_000;
/// The most directories at the top of the workspace that may be repositories. Deeper ones are not looked for: every start
/// of a command would wait for a walk of the tree.
const MOST_AT_TOP: usize = 1_000;
/// The most time for it.
const MOST_TIME: Duration = Duration::from_secs(1);
/// The most configuration files that are read.
const MOST_FILES: usize = 1_000;

/// Each credential with a name of its own, made of its key.
///
/// # Errors
/// A configuration file is too long to be searched, as a sentence for people.
pub fn of(workspace: &Path) -> Result<Vec<(String, String)>, String> {
    let repository = patch::repository(workspace);
    let own = repository.iter().flat_map(|found| [&found.git_dir, &found.common_dir]);
    let own: BTreeSet<PathBuf> = own.filter_map(|dir| dir.canonicalize().ok()).collect();
    let mut waiting: VecDeque<PathBuf> = files(workspace, &own).into();
    let mut read = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    while let Some(file) = waiting.pop_front() {
        if read.len() >= MOST_FILES || !read.insert(file.clone()) {
            continue;
        }
        let Some(text) = patch::regular_text(&file) else {
            continue;
        };
        if text.len() > git_config::MOST_SEARCHED {
            return Err(format!(
                "git's configuration {} is longer than {} MiB, so credentials in it could not be redacted; make it shorter",
                file.display(),
                git_config::MOST_SEARCHED >> 20
            ));
        }
        for (key, value) in git_config::secrets(text.as_bytes()) {
            if known.insert(value.clone()) {
                found.push((format!("git {key} {}", known.len()), value));
            }
        }
        let included = git_config::included(text.as_bytes()).into_iter();
        let included = included
            .filter_map(|named| git_config::included_path(&file, &named, home.as_deref()))
            .filter_map(|place| place.canonicalize().ok());
        let is_seen = |place: &PathBuf| place.starts_with(workspace) || own.iter().any(|dir| place.starts_with(dir));
        waiting.extend(included.filter(is_seen));
    }
    Ok(found)
}

/// The configuration files of the repository, whose git directory may be outside the workspace, and of repositories in the
/// directories at the workspace's top. The git directory of a submodule is named after its path, and that of a nested
/// submodule is inside it: `modules/vendor/lib/modules/deep`.
fn files(workspace: &Path, own: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let until = Instant::now() + MOST_TIME;
    let mut files = Vec::new();
    let nested = subdirectories(workspace).into_iter().take(MOST_AT_TOP);
    let nested = nested
        .flat_map(|dir| [dir.join(".git"), dir])
        .filter(|dir| match dir.ends_with(".git") {
            true => dir.is_dir(),
            false => is_git_dir(dir),
        });
    let bare = Some(workspace.to_path_buf()).filter(|dir| is_git_dir(dir));
    let mut dirs: Vec<PathBuf> = nested
        .chain(bare)
        .chain([workspace.join(".git")])
        .chain(own.iter().cloned())
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(dir) = dirs.pop() {
        if seen.len() >= MOST_DIRECTORIES || files.len() >= MOST_FILES || Instant::now() > until {
            break;
        }
        if !seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())) {
            continue;
        }
        // A submodule may have the name `HEAD`.
        let is_git = dir.join("HEAD").symlink_metadata().is_ok_and(|data| !data.is_dir());
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_str().unwrap_or_default();
            // Git follows a link at the place of a configuration file.
            if !kind.is_dir() && git_config::is_config(name) {
                files.push(path);
            } else if kind.is_dir() {
                let is_plain = is_git && git_config::holds_no_settings(name) && !path.join("config").is_file();
                dirs.extend((!is_plain).then_some(path));
            }
        }
    }
    files.sort();
    files
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}
