//! Where this program looks for the programs that it starts for itself and outside the sandbox (git and what git starts,
//! `sh`): the directories of `PATH` in which no command of a run can put a program.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Trees whose content commands or other people write, canonical.
static TREES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on no program is taken from this tree. Call it before anything runs in the tree.
pub fn keep_out(tree: &Path) {
    let tree = settled(tree);
    let mut trees = TREES.lock().unwrap_or_else(PoisonError::into_inner);
    if !trees.contains(&tree) {
        trees.push(tree);
    }
}

/// `PATH` without relative directories and without those in a tree of [`keep_out`], whether they exist yet or not.
#[must_use]
pub fn own_path() -> OsString {
    let trees = TREES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    kept(&std::env::var_os("PATH").unwrap_or_default(), &trees)
}

/// Whether a directory of [`own_path`] has this program.
#[must_use]
pub fn has(program: &str) -> bool {
    std::env::split_paths(&own_path()).any(|dir| {
        let found = std::fs::metadata(dir.join(program));
        found.is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    })
}

fn kept(path: &OsString, trees: &[PathBuf]) -> OsString {
    let is_safe = |dir: &PathBuf| {
        let real = settled(dir);
        dir.is_absolute() && !trees.iter().any(|tree| dir.starts_with(tree) || real.starts_with(tree))
    };
    // No directory contains the separator: they came from such a list.
    std::env::join_paths(std::env::split_paths(path).filter(is_safe)).unwrap_or_default()
}

/// The absolute path with links resolved, as far as it exists. For comparisons, and for commands with another current
/// directory.
pub fn settled(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    let mut known = path.as_path();
    loop {
        if let Ok(found) = known.canonicalize() {
            return rest.iter().rev().fold(found, |path, part| path.join(part));
        }
        match (known.parent(), known.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name.to_owned());
                known = parent;
            }
            _ => return path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_gives_no_programs() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("ws/.venv/bin")).unwrap();
        std::os::unix::fs::symlink(top.join("ws/.venv"), top.join("active")).unwrap();
        let at = |path: &str| top.join(path).to_string_lossy().into_owned();
        let path = [
            at("ws/.venv/bin"),
            at("ws/node_modules/.bin"),
            at("active/bin"),
            at("active/not/yet"),
            "relative".to_owned(),
            String::new(),
            at("wsx/bin"),
            "/usr/bin".to_owned(),
        ];
        let left = kept(&path.join(":").into(), &[top.join("ws")]);
        assert_eq!(left, OsString::from(format!("{}:/usr/bin", at("wsx/bin"))));
    }
}
