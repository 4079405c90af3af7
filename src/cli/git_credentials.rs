//! Credentials that git's configuration of the workspace's repository and of its submodules holds: a checkout of a CI server
//! leaves its token there. They are in no variable, so the redactor learns them from the files.

use crate::base::git_config;
use crate::workspace::patch::{self, Repository};
use std::path::{Path, PathBuf};

/// The most directories in which configuration files of submodules are looked for.
const MOST_DIRECTORIES: usize = 1000;

/// Each credential with a name of its own, made of its key.
pub fn of(workspace: &Path) -> Vec<(String, String)> {
    let Some(repository) = patch::repository(workspace) else {
        return Vec::new();
    };
    let texts = files(&repository)
        .into_iter()
        .filter_map(|file| patch::regular_text(&file));
    let found = texts.filter_map(|text| git_config::without_credentials(text.as_bytes()));
    let removed = found.flat_map(|cleaned| cleaned.removed).enumerate();
    removed
        .map(|(number, (key, value))| (format!("git {key} {}", number + 1), value))
        .collect()
}

/// The configuration files. Git names the directory of a submodule by its path, and one in a submodule lies in that of the
/// submodule: `modules/vendor/lib/modules/deep`. A linked worktree has its own.
fn files(repository: &Repository) -> Vec<PathBuf> {
    let Repository {
        git_dir, common_dir, ..
    } = repository;
    let mut files = vec![common_dir.join("config"), git_dir.join("config.worktree")];
    let mut below = vec![git_dir.join("modules"), common_dir.join("modules")];
    below.dedup();
    for _ in 0..MOST_DIRECTORIES {
        let Some(dir) = below.pop() else {
            break;
        };
        if dir.join("config").is_file() {
            files.extend(["config", "config.worktree"].map(|name| dir.join(name)));
            below.push(dir.join("modules"));
            continue;
        }
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        below.extend(dirs.take(MOST_DIRECTORIES).map(|entry| entry.path()));
    }
    files
}
