//! Determines which files the change under test may have written, and whether the path to a file passes through one of
//! them. Reads only names and links.

use super::environment;
use crate::batch::sources;
use crate::policy::secrets_like::secret_like;
use crate::process::{is_git_dir, own_path};
use crate::workspace::patch::{self, Repository};
use std::path::{Path, PathBuf};

/// Whether a file does not exist, or is in one of these directories after following all links.
pub fn ends_in(file: &Path, places: &[PathBuf]) -> bool {
    let ends = way(file).and_then(|way| way.last().cloned());
    ends.is_none_or(|end| places.iter().any(|place| end.starts_with(place)))
}

/// Directories that the change under test may have written: the workspace, its repository and all worktrees of it, and
/// the same of every repository whose change decides what the workspace is; with links resolved. In a job of a batch,
/// also those of the source of its tree.
pub fn places(workspace: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    of_tree(workspace, &mut places);
    if let Some(source) = source() {
        of_tree(&source, &mut places);
        if let Some(bare) = patch::repository_at(&real(&source)) {
            for repository in patch::owners(&bare).iter().chain([&bare]) {
                of_repository(repository, &mut places);
            }
        }
    }
    places.retain(|place| place.components().count() > 1);
    places
}

/// The source of the workspace's tree, if this is a job of a batch and the source is on this machine.
pub fn source() -> Option<PathBuf> {
    environment::variable(sources::VARIABLE).map(PathBuf::from)
}

/// Adds the directories of a tree, its repository and those that decide which one that is.
fn of_tree(tree: &Path, places: &mut Vec<PathBuf>) {
    let root = real(tree);
    let own = patch::repository(&root);
    places.push(root);
    for repository in own.into_iter().chain(deciders(tree)) {
        of_repository(&repository, places);
    }
}

/// Adds the directories of a repository and of all its worktrees.
fn of_repository(repository: &Repository, places: &mut Vec<PathBuf>) {
    let common = real(&repository.common_dir);
    places.extend([real(&repository.top), real(&repository.git_dir), common.clone()]);
    // The main worktree is the parent of the common directory.
    if common.file_name().is_some_and(|name| name == ".git") {
        places.extend(common.parent().map(Path::to_path_buf));
    }
    let others = std::fs::read_dir(common.join("worktrees"));
    for entry in others.into_iter().flatten().filter_map(Result::ok) {
        let pointer = patch::regular_text(&entry.path().join("gitdir")).unwrap_or_default();
        places.extend(Path::new(pointer.trim()).parent().map(real));
    }
}

/// Other repositories than the workspace's own in which a change decides which repository that is: those that have it
/// as a submodule, and those that track a link on the path to the workspace, with those that have them as a submodule.
pub fn deciders(workspace: &Path) -> Vec<Repository> {
    let own = patch::repository(&real(workspace));
    let mut all = own.as_ref().map(patch::owners).unwrap_or_default();
    let mut links = way(&logical(workspace)).unwrap_or_default();
    links.pop();
    for link in links {
        let holder = link.parent().and_then(patch::repository);
        let Some(holder) = holder.filter(|holder| holder.tracks(&link)) else {
            continue;
        };
        let owners = patch::owners(&holder);
        all.extend([holder].into_iter().chain(owners));
    }
    all.retain(|one| own.as_ref().is_none_or(|own| real(&own.top) != real(&one.top)));
    all
}

/// A path relative to the current directory as the shell names that directory, which may be through links.
fn logical(path: &Path) -> PathBuf {
    let here = real(Path::new("."));
    let named = environment::variable("PWD").map(PathBuf::from);
    match named.filter(|named| named.is_absolute() && real(named) == here) {
        Some(named) => named.join(path),
        None => path.to_owned(),
    }
}

/// Why a file that a recipe names must not be read, as a message fragment for people: with all links followed, its name
/// looks like that of a secret file, or it is in a git directory. `None` if it may be read or does not exist.
pub fn held_back(file: &Path) -> Option<String> {
    let end = way(file)?.pop()?;
    // A directory that is the top of a repository belongs to that one, as its files do.
    let top = patch::repository(&end).map(|found| found.top);
    let below = top.as_ref().and_then(|top| end.strip_prefix(top).ok()).unwrap_or(&end);
    let in_git = below
        .components()
        .any(|part| part.as_os_str().eq_ignore_ascii_case(".git"))
        || end
            .ancestors()
            .take_while(|dir| top.as_deref() != Some(*dir))
            .any(is_git_dir);
    let why = match secret_like(&below.to_string_lossy()) {
        Some(why) => why,
        None if in_git => "it is in a git directory",
        None => return None,
    };
    Some(format!("it is `{}`: {why}", below.display()))
}

/// The same for a file that the user names. Such a file is refused only if a link inside a repository leads to it.
pub fn reached_through_link(file: &Path) -> Option<String> {
    let mut links = way(file)?;
    links.pop();
    let of_repository = |link: &PathBuf| link.parent().is_some_and(|dir| patch::repository(dir).is_some());
    links.iter().any(of_repository).then(|| held_back(file)).flatten()
}

fn real(path: &Path) -> PathBuf {
    let path = environment::absolute(path);
    path.canonicalize().unwrap_or(path)
}

/// The directory that a path leads through: where a link on it is, or where it ends.
pub fn reaches(file: &Path, places: &[PathBuf]) -> Option<PathBuf> {
    // A path that cannot be resolved may lead anywhere.
    let Some(way) = way(file) else {
        return Some(file.to_path_buf());
    };
    way.into_iter()
        .find(|at| places.iter().any(|place| at.starts_with(place)))
}

/// As [`own_path::way`], of a file that exists.
fn way(file: &Path) -> Option<Vec<PathBuf>> {
    own_path::way(file, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_repository_is_held_back_for_no_other_reason_than_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in [".git", "env/.ssh/.git/objects"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["env/.ssh/.git/HEAD", "env/.ssh/notes.md", "env/.ssh/.env", "env/.env"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        for (name, held) in [
            ("env", false),
            ("env/.ssh", false),
            ("env/.ssh/notes.md", false),
            ("env/.ssh/.env", true),
            ("env/.ssh/.git", true),
            ("env/.ssh/.git/HEAD", true),
            ("env/.env", true),
        ] {
            assert_eq!(held_back(&root.join(name)).is_some(), held, "{name}");
        }
    }

    #[test]
    fn a_way_passes_every_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["in", "out", "out/real"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::fs::write(root.join("out/real/r.yaml"), "").unwrap();
        let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, root.join(at)).unwrap();
        link("../out/real", "in/dir");
        link("../in/dir/r.yaml", "out/through.yaml");
        link("loop", "out/loop");
        let places = [root.join("in")];
        let reaches = |name: &str| reaches(&root.join(name), &places).is_some();
        assert!(reaches("out/through.yaml"), "a link in the tree decides where it ends");
        assert!(reaches("in/dir/r.yaml") && reaches("out/../in/dir/r.yaml"));
        assert!(reaches("out/loop") && reaches("out/nothing"));
        assert!(!reaches("out/real/r.yaml") && !reaches("in/../out/real/r.yaml"));
    }
}
