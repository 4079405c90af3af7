//! Credentials that git's configuration of the workspace's repository, of its submodules and of repositories inside the
//! workspace holds: a checkout of a CI server leaves its token there. They are in no variable, so the redactor learns them
//! from the files.

use crate::base::git_config;
use crate::workspace::patch;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most directories in which configuration files are looked for, git's own first and then those nearest to the top.
const MOST_DIRECTORIES: usize = 20_000;
/// The most time for it.
const MOST_TIME: Duration = Duration::from_secs(1);
/// The most configuration files that are read.
const MOST_FILES: usize = 1_000;
/// The directory of earlier runs in a workspace.
const OWN_DIR: &str = ".overnight";

/// Each credential with a name of its own, made of its key.
pub fn of(workspace: &Path) -> Vec<(String, String)> {
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
        let secrets = git_config::without_credentials(text.as_bytes()).map(|cleaned| cleaned.secrets);
        for (key, value) in secrets.unwrap_or_default() {
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
    found
}

/// The configuration files in git directories: in those of the repository, which may lie outside of the workspace, and in
/// those inside of it. Git names the directory of a submodule by its path, and one in a submodule lies in that of the
/// submodule: `modules/vendor/lib/modules/deep`.
fn files(workspace: &Path, own: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let until = Instant::now() + MOST_TIME;
    let mut files = Vec::new();
    // Each with whether it is in a git directory.
    let mut dirs: VecDeque<(PathBuf, bool)> = own.iter().map(|dir| (dir.clone(), true)).collect();
    dirs.push_back((workspace.to_owned(), false));
    let mut left = MOST_DIRECTORIES;
    while let Some((dir, in_git)) = dirs.pop_front() {
        if left == 0 || files.len() >= MOST_FILES || Instant::now() > until {
            break;
        }
        left -= 1;
        let is_git = in_git && dir.join("HEAD").is_file();
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_str().unwrap_or_default();
            if !kind.is_dir() {
                // Git follows a link at this place.
                if in_git && git_config::is_config(name) {
                    files.push(path);
                }
                continue;
            }
            let is_plain = is_git && git_config::holds_no_settings(name) && !path.join("config").is_file();
            let is_own = name == OWN_DIR && dir == workspace;
            if is_plain || is_own || own.contains(&path) || dirs.len() >= left {
                continue;
            }
            match in_git || name == ".git" {
                // Before the other directories of the tree.
                true => dirs.push_front((path, true)),
                false => dirs.push_back((path, false)),
            }
        }
    }
    files.sort();
    files
}
