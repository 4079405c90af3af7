//! Files that a run writes beside its journal: blobs named by hash and outputs named by path, each written to a
//! temporary name and renamed.

use super::error::JournalError;
use super::no_follow::{self, settled};
use super::pipe;
use crate::base::ids::BlobId;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory of the patches with the changes of checks that were reverted.
pub const PUT_BACK: &str = "put-back";
/// The most of these patches that a run keeps.
const MOST_PUT_BACK: u32 = 1_000;
/// The mode of what a run keeps of its own, less what the umask takes away.
const OWN: u32 = 0o644;
/// The mode of what it keeps of files that may be private.
const PRIVATE: u32 = 0o600;

/// Limit of links that lead from one to the next.
const LINKS: usize = 40;

/// Stores bytes under their SHA-256 in `blobs/`; equal bytes are stored once. They are on disk before an event can name
/// them, so that a crash of the machine leaves no journal whose blob is empty.
///
/// # Errors
/// [`JournalError::Write`]: it cannot be written.
pub fn keep_blob(dir: &Path, bytes: &[u8]) -> Result<BlobId, JournalError> {
    let id = BlobId::of(bytes);
    let path = blob_path(dir, &id);
    // A file with this name and different content is replaced.
    if read_blob(dir, &id).is_err() {
        place_file(&path, bytes, (OWN, true)).map_err(JournalError::write(&path))?;
    }
    Ok(id)
}

/// Keeps the patch of what is about to be put back, under the next free number; equal patches are kept once. It is on
/// disk when this returns its path, relative to `dir`.
///
/// # Errors
/// It cannot be written, or there are too many.
pub fn keep_put_back(dir: &Path, patch: &[u8]) -> Result<String, JournalError> {
    for number in 1..=MOST_PUT_BACK {
        let name = format!("{PUT_BACK}/{number}.patch");
        let path = dir.join(&name);
        match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                place_file(&path, patch, (PRIVATE, true)).map_err(JournalError::write(&path))?;
                return Ok(name);
            }
            Ok(found)
                if found.is_file()
                    && found.len() == patch.len() as u64
                    && std::fs::read(&path).is_ok_and(|kept| kept == patch) =>
            {
                return Ok(name);
            }
            _ => {}
        }
    }
    let full = io::Error::other(format!("it has {MOST_PUT_BACK} patches, the most that a run keeps"));
    Err(JournalError::write(&dir.join(PUT_BACK))(full))
}

/// The path of a blob.
fn blob_path(dir: &Path, id: &BlobId) -> PathBuf {
    dir.join("blobs").join(id.as_str())
}

/// The bytes of a blob.
///
/// # Errors
/// [`JournalError::Read`]: it cannot be read. [`JournalError::Damaged`]: its bytes do not have the hash that names it.
pub fn read_blob(dir: &Path, id: &BlobId) -> Result<Vec<u8>, JournalError> {
    let path = blob_path(dir, id);
    let bytes = std::fs::read(&path).map_err(JournalError::read(&path))?;
    if BlobId::of(&bytes) == *id {
        Ok(bytes)
    } else {
        Err(JournalError::Damaged {
            path: path.display().to_string(),
            line: 1,
            why: "its bytes do not have the hash that names them".to_owned(),
        })
    }
}

/// Where the bytes of a file that the user named go.
enum Destination {
    /// A path that is no link: its file is replaced by a rename, or created.
    File(PathBuf),
    /// A device, a pipe or an open file of a process (`/dev/stdout`), which is written to and never replaced.
    Open,
}

/// Writes a file that the user named, atomically, and creates its directories. A device or a pipe is written to
/// directly. A link stays: the file that it leads to is written.
///
/// # Errors
/// [`JournalError::Write`]: its directories cannot be made, it cannot be written, or too many links lead to it.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let wrap = JournalError::write(path);
    let written = match destination(path).map_err(wrap)? {
        (_, Destination::Open) => write_open(path, bytes),
        (_, Destination::File(file)) => put(&file, bytes),
    };
    written.map_err(wrap)
}

/// The file that a path leads to, by an absolute path without links. `None` for what is not a file: a device, a pipe.
pub fn file_of(path: &Path) -> Option<PathBuf> {
    match destination(path) {
        Ok((_, Destination::File(file))) => Some(file),
        _ => None,
    }
}

/// As [`write`], of a path from [`file_of`]. No link is followed, even if one has appeared in the path since.
///
/// # Errors
/// [`JournalError::Write`].
pub fn write_at(file: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    put(file, bytes).map_err(JournalError::write(file))
}

fn put(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let (_held, place) = held(file)?;
    place_file(&place, bytes, (OWN, false))
}

/// As [`remove`], of a path from [`file_of`]. No link is followed, even if one has appeared in the path since.
///
/// # Errors
/// Errors of the system.
pub fn remove_at(file: &Path) -> io::Result<()> {
    // Nothing is made where there is nothing to remove.
    if std::fs::symlink_metadata(file).is_err() {
        return Ok(());
    }
    let (_held, place) = held(file)?;
    match std::fs::symlink_metadata(&place).is_ok_and(|found| found.is_file()) {
        true => std::fs::remove_file(place),
        false => Ok(()),
    }
}

/// The directory of a file, opened without links, and the path of the file in it, which holds while it is open.
fn held(file: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let none = || io::Error::from(io::ErrorKind::InvalidInput);
    let dir = no_follow::open_without_links(file.parent().ok_or_else(none)?)?;
    let place = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    let place = place.join(file.file_name().ok_or_else(none)?);
    Ok((dir, place))
}

/// Removes a file that the user named, if it exists. A link stays: the file that it leads to is removed. Devices, pipes
/// and open files of a process stay.
///
/// # Errors
/// Errors of the system.
pub fn remove(path: &Path) -> io::Result<()> {
    match destination(path)? {
        (_, Destination::File(file)) => remove_at(&file),
        _ => Ok(()),
    }
}

/// Why a file that the user named cannot be written, as far as that is known in advance, and what to do. Changes nothing.
pub fn unwritable(path: &Path) -> Option<String> {
    let file = match destination(path) {
        Err(error) => return Some(format!("cannot be written ({error}): name another file")),
        Ok((_, Destination::Open)) => {
            return match std::fs::metadata(path) {
                Ok(found) if found.is_dir() => Some("is a directory: name a file".to_owned()),
                Ok(_) => None,
                Err(error) => Some(format!("cannot be written ({error}): name another file")),
            };
        }
        Ok((_, Destination::File(file))) => file,
    };
    let why = unmakeable(file.parent()?)?;
    Some(format!("cannot be written, because {why}: name a file elsewhere"))
}

/// Why files cannot be made in a directory, which is created if it does not exist. Changes nothing.
pub fn unmakeable(dir: &Path) -> Option<String> {
    let mut at = dir;
    let found = loop {
        match std::fs::metadata(at) {
            Ok(found) => break found,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                at = at.parent()?;
            }
            Err(error) => return Some(format!("{}: {error}", at.display())),
        }
    };
    if !found.is_dir() {
        return Some(format!("{} is a file", at.display()));
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    match rustix::fs::access(at, access) {
        Ok(()) => None,
        Err(error) => Some(format!("{}: {}", at.display(), io::Error::from(error))),
    }
}

/// The links that a file which the user named leads through, as absolute paths. Links above the last component of a
/// path do not count.
pub fn links(path: &Path) -> Vec<PathBuf> {
    destination(path).map(|(links, _)| links).unwrap_or_default()
}

fn destination(path: &Path) -> io::Result<(Vec<PathBuf>, Destination)> {
    let mut at = std::path::absolute(path)?;
    let mut links = Vec::new();
    for _ in 0..LINKS {
        let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
            return Ok((links, Destination::Open));
        };
        let parent = settled(parent);
        let is_shared_memory = parent.starts_with("/dev/shm");
        if parent.starts_with("/proc") || (parent.starts_with("/dev") && !is_shared_memory) {
            return Ok((links, Destination::Open));
        }
        let here = parent.join(name);
        match std::fs::symlink_metadata(&here) {
            Ok(found) if found.is_symlink() => {
                at = parent.join(std::fs::read_link(&here)?);
                links.push(here);
            }
            Ok(found) if !found.is_file() => return Ok((links, Destination::Open)),
            _ => return Ok((links, Destination::File(here))),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// Writes to what is open already. If that is the regular file to which this process's stdout or stderr goes, the bytes
/// are written there in order; a second opening would begin at its start and be overwritten. A pipe that nobody reads is
/// an error after some time.
fn write_open(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Ok(found) = std::fs::metadata(path)
        && found.is_file()
    {
        for stream in [io::stdout().as_fd(), io::stderr().as_fd()] {
            let mut own = File::from(stream.try_clone_to_owned()?);
            let data = own.metadata()?;
            if (data.dev(), data.ino()) == (found.dev(), found.ino()) {
                return own.write_all(bytes);
            }
        }
    }
    pipe::write_to(path, bytes)
}

/// Whether this is the name of a file that is being written, as a kill leaves it behind.
pub fn is_draft(name: &str) -> bool {
    let rest = name.strip_prefix(".tmp");
    rest.is_some_and(|rest| rest.len() == 6 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Removes the files that a killed process was writing in `dir`. Only for a directory that nobody else writes to now.
pub fn remove_drafts(dir: &Path) {
    if !std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir()) {
        return;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(is_draft) {
            // One that stays does no harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Writes a file atomically, replacing whatever has its name, and creates its directories.
///
/// # Errors
/// [`JournalError::Write`]: its directories cannot be made, or it cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    place_file(path, bytes, (OWN, false)).map_err(JournalError::write(path))
}

/// Makes a run directory, with a `.gitignore` that hides it from git. One that is there stays.
///
/// # Errors
/// It cannot be written.
pub fn make_run_dir(dir: &Path) -> Result<(), JournalError> {
    let file = dir.join(".gitignore");
    std::fs::create_dir_all(dir).map_err(JournalError::write(dir))?;
    no_follow::write_new(&file, b"*\n").map_err(JournalError::write(&file))
}

/// `synced`: the bytes are on disk before the file gets its name.
fn place_file(path: &Path, bytes: &[u8], (mode, synced): (u32, bool)) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    let mut draft = tempfile::Builder::new().permissions(mode).tempfile_in(parent)?;
    draft.write_all(bytes)?;
    if synced {
        draft.as_file().sync_data()?;
    }
    draft.persist(path).map_err(|error| error.error)?;
    Ok(())
}
