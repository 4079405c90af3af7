//! Worktrees with a place of their own that outlive a process: for jobs that are killed and go on. Written without git, so that no
//! hook, filter or setting of the repository runs; the layout is that of gitrepository-layout(5).

use super::patch::{self, Repository};
use std::io;
use std::path::{Path, PathBuf};

/// What stands in the worktree's `locked` file, for people who list worktrees.
const LOCKED: &str = "in use by overnight batch\n";

/// Makes a worktree of `commit` in `tree`, which must not exist. Blocks.
///
/// # Errors
/// One sentence: the commit cannot be read, or the disk said no. What was written stays; [`remove`] takes it away.
pub fn create(repository: &Repository, commit: &str, tree: &Path) -> Result<Option<String>, String> {
    let said = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(tree).map_err(|error| said(tree, error))?;
    let tree = place_of(tree).map_err(|error| said(tree, error))?;
    let common = repository
        .common_dir
        .canonicalize()
        .map_err(|error| said(&repository.common_dir, error))?;
    let admin = admin_dir(&common, &tree);
    std::fs::create_dir_all(&admin).map_err(|error| said(&admin, error))?;
    let write = |name: &str, text: String| {
        let path = admin.join(name);
        std::fs::write(&path, text).map_err(|error| said(&path, error))
    };
    write("locked", LOCKED.to_owned())?;
    write("commondir", "../..\n".to_owned())?;
    write("gitdir", format!("{}\n", tree.join(".git").display()))?;
    write("HEAD", format!("{commit}\n"))?;
    // First, so that a half-made worktree leads to what git knows of it.
    let pointer = tree.join(".git");
    std::fs::write(&pointer, format!("gitdir: {}\n", admin.display())).map_err(|error| said(&pointer, error))?;
    let checkout = patch::checkout(repository, commit, &tree)?;
    let index = admin.join("index");
    std::fs::write(&index, checkout.index).map_err(|error| said(&index, error))?;
    Ok((checkout.pointers > 0).then(|| {
        format!(
            "{} files of the worktree are pointers of Git LFS: filters do not run for a batch",
            checkout.pointers
        )
    }))
}

/// Removes a worktree of [`create`], whole or half made, and what git knows of it. Blocks.
///
/// `repository`: whose it is; without it the tree's own pointer is followed, if it leads to a directory of ours.
///
/// # Errors
/// Those of the file system; nothing there is no error.
pub fn remove(repository: Option<&Repository>, tree: &Path) -> io::Result<()> {
    match (repository.map(|found| found.common_dir.canonicalize()), place_of(tree)) {
        (Some(Ok(common)), Ok(tree)) => gone(&admin_dir(&common, &tree))?,
        (None, _) => {
            let text = patch::pointer(&tree.join(".git")).unwrap_or_default();
            let admin = PathBuf::from(text.strip_prefix("gitdir:").unwrap_or_default().trim());
            let is_ours = admin
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("overnight-"));
            let among_worktrees = admin.parent().is_some_and(|parent| parent.ends_with("worktrees"));
            if is_ours && among_worktrees {
                gone(&admin)?;
            }
        }
        _ => {}
    }
    gone(tree)
}

/// The real place of a tree, whether it is there or not.
fn place_of(tree: &Path) -> io::Result<PathBuf> {
    match (tree.parent(), tree.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => tree.canonicalize(),
    }
}

fn gone(dir: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The directory of a worktree below `worktrees/`: named after its place, so that it is found again.
fn admin_dir(common: &Path, tree: &Path) -> PathBuf {
    let digest = crate::base::ids::sha256_hex(&[tree.as_os_str().as_encoded_bytes()]);
    common.join("worktrees").join(format!("overnight-{}", &digest[..16]))
}
