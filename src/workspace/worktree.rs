//! Creates worktrees that outlive a process, for batch jobs that can be killed and resumed. Does not use git, so that
//! no hook, filter or setting of the repository runs.

use super::patch::{self, Repository};
use super::registration;
use crate::base::quote::counted;
use crate::process::private;
use std::io;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Content of the worktree's `locked` file, which `git worktree list` shows.
const LOCKED: &str = "in use by overnight batch\n";

/// Creates a worktree of `commit` in `tree`, which must not exist. Blocks.
///
/// # Errors
/// A sentence: the commit cannot be read, or a file cannot be written. What was already written stays; [`remove`]
/// removes it.
pub fn create(repository: &Repository, commit: &str, tree: &Path) -> Result<Option<String>, String> {
    let said = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(tree).map_err(|error| said(tree, error))?;
    let tree = place_of(tree).map_err(|error| said(tree, error))?;
    let common = repository
        .common_dir
        .canonicalize()
        .map_err(|error| said(&repository.common_dir, error))?;
    registration::register(&common, &tree, commit, Some(LOCKED))?;
    let checkout = patch::checkout(repository, commit, &tree, &CancellationToken::new())?;
    registration::write_index(&registration::admin_dir(&common, &tree), &checkout.index)?;
    Ok((checkout.pointers > 0).then(|| {
        format!(
            "the worktree has Git LFS pointers in place of {}: filters do not run for a batch",
            counted(checkout.pointers, "file")
        )
    }))
}

/// Removes a worktree from [`create`], complete or not, and its registration in the repository. Blocks.
///
/// `repository`: the worktree's repository; without it, the `.git` file of the worktree is followed if it leads to a
/// directory that [`create`] made.
///
/// # Errors
/// I/O errors; a worktree that does not exist is no error.
pub fn remove(repository: Option<&Repository>, tree: &Path) -> io::Result<()> {
    match (repository.map(|found| found.common_dir.canonicalize()), place_of(tree)) {
        (Some(Ok(common)), Ok(tree)) => registration::remove(&registration::admin_dir(&common, &tree))?,
        (None, _) => {
            let text = patch::regular_text(&tree.join(".git")).unwrap_or_default();
            let admin = PathBuf::from(text.strip_prefix("gitdir:").unwrap_or_default().trim());
            let among_worktrees = admin.parent().is_some_and(|parent| parent.ends_with("worktrees"));
            if registration::is_named_by_us(&admin) && among_worktrees {
                registration::remove(&admin)?;
            }
        }
        _ => {}
    }
    private::remove(tree)
}

/// The canonical path of a tree, whether it exists or not.
fn place_of(tree: &Path) -> io::Result<PathBuf> {
    match (tree.parent(), tree.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => tree.canonicalize(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::os::unix::fs::PermissionsExt;

    /// Runs `work` on a thread without the privileges that let root write everywhere.
    fn unprivileged(work: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            work();
        });
        thread.join().unwrap();
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "git makes the repository and looks at the worktree"
    )]
    fn git(dir: &Path, args: &[&str]) -> String {
        let output = std::process::Command::new("git")
            .current_dir(dir)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(args)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    #[test]
    fn a_worktree_with_a_submodule_has_no_changes() {
        let top = tempfile::tempdir().unwrap();
        let (main, tree) = (top.path().join("main"), top.path().join("tree"));
        std::fs::create_dir(&main).unwrap();
        git(&main, &["init", "-q", "-b", "main"]);
        for name in ["a.txt", "z.txt"] {
            std::fs::write(main.join(name), name).unwrap();
        }
        git(&main, &["add", "-A"]);
        let entry = format!("160000,{},lib/sub", "1".repeat(40));
        git(&main, &["update-index", "--add", "--cacheinfo", &entry]);
        git(&main, &["commit", "-q", "-m", "x"]);
        let repository = patch::repository(&main).unwrap();
        create(&repository, &git(&main, &["rev-parse", "HEAD"]), &tree).unwrap();
        assert_eq!(git(&tree, &["status", "--porcelain"]), "");
        assert_eq!(git(&tree, &["ls-files", "-s"]), git(&main, &["ls-files", "-s"]));
    }

    #[test]
    fn a_worktree_with_read_only_directories_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let tree = top.path().join("tree");
        let module = tree.join("cache/module");
        std::fs::create_dir_all(&module).unwrap();
        std::fs::write(module.join("file"), "x").unwrap();
        for dir in [&module, &tree.join("cache")] {
            std::fs::set_permissions(dir, PermissionsExt::from_mode(0o555)).unwrap();
        }
        let own = tree.clone();
        unprivileged(move || remove(None, &own).unwrap());
        assert!(!tree.exists());
    }
}
