//! Registers worktrees in their repository, in the layout of gitrepository-layout(5). Does not use `git worktree`: it
//! writes a registration piece by piece, and while it does so, every other git that lists worktrees fails and every one
//! that prunes them takes the piece away. Here a registration appears by one rename and disappears by one. Only where
//! references are in a reftable, git sets its `HEAD` after that.

use super::patch;
use crate::base::git_dir::{OUR_WORKTREES, UNREGISTERED};
use crate::base::ids::sha256_hex;
use crate::process::own_git::{self, GitAccess};
use crate::process::private;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Age of one that was left so by a process that was killed.
const MOST_AGE: Duration = Duration::from_secs(3600);
/// The most entries of a git directory that are looked at.
const MOST_ENTRIES: usize = 10_000;
/// How often `worktrees` is created, which git removes when it finds it empty.
const TRIES: usize = 20;

/// Registers `tree`, an existing directory given by its canonical path, as a worktree of `commit`, and writes the
/// worktree's `.git` file. `common`: the canonical git directory that all worktrees share. `lock`: the reason for which
/// git keeps the registration although the worktree is missing; without one it prunes it. Blocks.
///
/// # Errors
/// A sentence: a file cannot be written, or git cannot set `HEAD`. What was written by then stays, and [`remove`] and
/// [`remove_left`] remove it.
pub(super) fn register(common: &Path, tree: &Path, commit: &str, lock: Option<&str>) -> Result<(), String> {
    let said = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let admin = admin_dir(common, tree);
    let draft = outside(&admin, common, UNREGISTERED[0]);
    private::remove(&draft).map_err(|error| said(&draft, error))?;
    let write = |path: PathBuf, text: &str| std::fs::write(&path, text).map_err(|error| said(&path, error));
    let pointer = tree.join(".git");
    // Written before the registration is seen, so that git finds it valid, and before the files, so that an incomplete
    // worktree can be found and removed. What guards the git directory against the commands of another run takes a draft
    // for one only if it names a worktree that names it, so these two come first.
    write(pointer.clone(), &format!("gitdir: {}\n", admin.display()))?;
    std::fs::create_dir(&draft).map_err(|error| said(&draft, error))?;
    write(draft.join("gitdir"), &format!("{}\n", pointer.display()))?;
    if let Some(reason) = lock {
        write(draft.join("locked"), reason)?;
    }
    write(draft.join("commondir"), "../..\n")?;
    // Where references are not files, these are placeholders for them, and git itself writes `HEAD`.
    let in_tables = common.join("reftable").is_dir();
    if in_tables {
        write(draft.join("HEAD"), "ref: refs/heads/.invalid\n")?;
        let (refs, tables) = (draft.join("refs"), draft.join("reftable"));
        for dir in [&refs, &tables] {
            std::fs::create_dir(dir).map_err(|error| said(dir, error))?;
        }
        write(refs.join("heads"), "this repository uses the reftable format\n")?;
        write(tables.join("tables.list"), "")?;
    } else {
        write(draft.join("HEAD"), &format!("{commit}\n"))?;
    }
    move_in(&draft, &admin).map_err(|error| said(&admin, error))?;
    if in_tables {
        set_head(common, &admin, commit)
    } else {
        Ok(())
    }
}

/// Writes the index of a registered worktree and renames it into place: the write guard of another run, which records
/// this git directory, could otherwise see a half-written index.
///
/// # Errors
/// I/O errors.
pub(super) fn write_index(admin: &Path, index: &[u8]) -> Result<(), String> {
    let (draft, place) = (admin.join("index.lock"), admin.join("index"));
    let written = std::fs::write(&draft, index).and_then(|()| std::fs::rename(&draft, &place));
    written.map_err(|error| format!("{}: {error}", place.display()))
}

/// Renames the draft to its place, in a directory that other processes may remove.
fn move_in(draft: &Path, admin: &Path) -> io::Result<()> {
    private::remove(admin)?;
    let worktrees = admin.parent().unwrap_or(admin);
    let mut tries = 1..TRIES;
    loop {
        match std::fs::create_dir_all(worktrees).and_then(|()| std::fs::rename(draft, admin)) {
            // Whoever removes it between two steps of `create_dir_all` makes that one say that it exists.
            Err(error) if is_gone(&error) && tries.next().is_some() => {}
            done => return done,
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

/// Lets git write a detached `HEAD`.
fn set_head(common: &Path, admin: &Path, commit: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Handle::try_current().map_err(|error| error.to_string())?;
    let dir = admin.to_string_lossy();
    let args = ["--git-dir", dir.as_ref(), "update-ref", "--no-deref", "HEAD", commit];
    let places = [common.to_path_buf()];
    let git = own_git::git(&args, Path::new("/"), &[], None, GitAccess::WriteAndStart(&places));
    let done = runtime.block_on(git)?;
    if done.ok { Ok(()) } else { Err(done.stderr) }
}

/// Removes the registration at `admin`, a directory in `worktrees`, and `worktrees` too if it was the last one. One that
/// does not exist is no error. Blocks.
///
/// # Errors
/// I/O errors.
pub(super) fn remove(admin: &Path) -> io::Result<()> {
    let Some(worktrees) = admin.parent() else {
        return Ok(());
    };
    unlink_pointer(admin);
    let removed = outside(admin, worktrees.parent().unwrap_or(worktrees), UNREGISTERED[1]);
    private::remove(&removed)?;
    match std::fs::rename(admin, &removed) {
        Ok(()) => private::remove(&removed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // What is here was not made by `register`, for example a link.
        Err(_) => private::remove(admin)?,
    }
    // Fails if there are others.
    let _ = std::fs::remove_dir(worktrees);
    Ok(())
}

/// Removes the `.git` file of the worktree, if it names this registration. It shows the write guard of another run that
/// the worktree was given up, and that no command of that run removed the registration.
fn unlink_pointer(admin: &Path) {
    let text = |path: &Path| patch::regular_text(path).unwrap_or_default();
    let gitdir = text(&admin.join("gitdir"));
    let pointer = Path::new(gitdir.trim_end());
    let named = text(pointer);
    if pointer.is_absolute() && named.strip_prefix("gitdir:").map(str::trim).map(Path::new) == Some(admin) {
        // If this fails, the guard of another run may put the registration back; then the next run removes it.
        let _ = std::fs::remove_file(pointer);
    }
}

/// Removes what killed processes left while they made or removed registrations in this git directory.
pub(super) fn remove_left(common: &Path) {
    let entries = std::fs::read_dir(common).into_iter().flatten();
    for entry in entries.take(MOST_ENTRIES).flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_outside = name.starts_with(OUR_WORKTREES) && UNREGISTERED.iter().any(|end| name.ends_with(end));
        let modified = entry.metadata().and_then(|data| data.modified());
        let age = modified.ok().and_then(|since| since.elapsed().ok());
        if is_outside && age.is_some_and(|age| age > MOST_AGE) {
            let _ = private::remove(&entry.path());
        }
    }
}

/// The directory of a worktree in `worktrees`, named after its path so that it can be found again.
pub(super) fn admin_dir(common: &Path, tree: &Path) -> PathBuf {
    let digest = sha256_hex(&[tree.as_os_str().as_encoded_bytes()]);
    common
        .join("worktrees")
        .join(format!("{OUR_WORKTREES}{}", &digest[..16]))
}

/// Whether a directory in `worktrees` has a name from [`admin_dir`].
pub(super) fn is_named_by_us(admin: &Path) -> bool {
    admin
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(OUR_WORKTREES))
}

/// Where the registration is while it is not in `worktrees`.
fn outside(admin: &Path, common: &Path, end: &str) -> PathBuf {
    let name = admin.file_name().unwrap_or_default().to_string_lossy();
    let prefix = if is_named_by_us(admin) { "" } else { OUR_WORKTREES };
    common.join(format!("{prefix}{name}{end}"))
}
