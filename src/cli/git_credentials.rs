//! Credentials that git's configuration of the workspace's repository holds: a checkout of a CI server leaves its token
//! there. They are in no variable, so the redactor learns them from the files.

use crate::base::git_config;
use crate::workspace::patch;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most configuration files of submodules that are read.
const MOST_MODULES: usize = 100;

/// Each credential with a name of its own, made of its key.
pub fn of(workspace: &Path) -> Vec<(String, String)> {
    let Some(repository) = patch::repository(workspace) else {
        return Vec::new();
    };
    let modules = std::fs::read_dir(repository.common_dir.join("modules"));
    let modules = modules.into_iter().flatten().flatten().take(MOST_MODULES);
    let own = [
        repository.common_dir.join("config"),
        repository.git_dir.join("config.worktree"),
    ];
    let files = own.into_iter().chain(modules.map(|entry| entry.path().join("config")));
    let found = files.filter_map(|file| git_config::without_credentials(&start_of(&file)?));
    let removed = found.flat_map(|cleaned| cleaned.removed).enumerate();
    removed
        .map(|(number, (key, value))| (format!("git {key} {}", number + 1), value))
        .collect()
}

/// As much of a regular file as is examined; `None` if it cannot be read.
fn start_of(path: &Path) -> Option<Vec<u8>> {
    if !std::fs::metadata(path).is_ok_and(|data| data.is_file()) {
        return None;
    }
    let mut bytes = Vec::new();
    let most = git_config::MOST_BYTES as u64 + 1;
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
