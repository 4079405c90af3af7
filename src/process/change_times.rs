//! Tests whether a file's change time (ctime) shows every write. True on disk file systems; false on tmpfs, where a
//! write through a shared mapping of a page that was already read changes no time. The test is made once per file
//! system.

use crate::base::sync::lock;
use std::collections::HashMap;
use std::fs::{File, FileTimes};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

/// Bytes of the file of the trial: one page of every supported machine.
const PAGE: usize = 65_536;
/// Upper limit for the subdirectories in which the trial is made if the directory itself cannot be written.
const MOST_TRIED: usize = 64;

/// What the trials have shown, by device number.
static TRIED: Mutex<Option<HashMap<u64, bool>>> = Mutex::new(None);

/// The device number of the file system that holds `dir`, if there the change time shows every write. For files of other
/// devices, and if the trial is not possible, only the content tells whether a file has changed.
pub fn exact_device(dir: &Path) -> Option<u64> {
    let device = std::fs::metadata(dir).ok()?.dev();
    let mut tried = lock(&TRIED);
    let known = tried.get_or_insert_default();
    let is_exact = match known.get(&device) {
        Some(is_exact) => *is_exact,
        None => {
            // If the trial fails, for example on a full disk, it is repeated later.
            let is_exact = tried_in(dir, device).ok()?;
            known.insert(device, is_exact);
            is_exact
        }
    };
    is_exact.then_some(device)
}

/// The trial in a directory, or if this user may not write there, in one of its directories.
fn tried_in(dir: &Path, device: u64) -> io::Result<bool> {
    match trial(dir) {
        // No process can write there, through a mapping or otherwise.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let is_on = |path: &std::path::PathBuf| {
                std::fs::symlink_metadata(path).is_ok_and(|data| data.is_dir() && data.dev() == device)
            };
            let below = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path());
            below
                .filter(is_on)
                .take(MOST_TRIED)
                .find_map(|dir| trial(&dir).ok())
                .ok_or(error)
        }
        tried => tried,
    }
}

/// Writes what processes have changed through mappings, so that their next write to the same page gives the file a new
/// time again. To be called while these processes are stopped, and before their files are compared.
///
/// # Errors
/// The file system could not write everything.
pub fn flush(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// Writes through a mapping whose page was read before, into a file without a name that has an old time.
fn trial(dir: &Path) -> io::Result<bool> {
    let mut file = tempfile::tempfile_in(dir)?;
    // Written, not only sized: a mapped page for which a full disk has no room would end this process.
    file.write_all(&vec![0; PAGE])?;
    let mapping = Mapping::of(&file)?;
    mapping.read();
    file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH))?;
    mapping.write();
    Ok(file.metadata()?.modified()? != SystemTime::UNIX_EPOCH)
}

/// A shared mapping of the first page of a file.
struct Mapping(*mut u8);

#[expect(unsafe_code, reason = "memory is mapped, read and written by its address")]
impl Mapping {
    fn of(file: &File) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; the file has this length.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                rights,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match at == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Self(at.cast())),
        }
    }

    fn read(&self) {
        // SAFETY: the first byte of the mapping, which lives as long as this value.
        unsafe { self.0.read_volatile() };
    }

    fn write(&self) {
        // SAFETY: as for reading; nothing else refers to this memory.
        unsafe { self.0.write_volatile(1) };
    }
}

#[expect(unsafe_code, reason = "memory is unmapped by its address")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which is not used any more. If it fails, the memory stays mapped.
        unsafe { libc::munmap(self.0.cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_tmpfs_the_time_shows_nothing() {
        // Every Linux system has a tmpfs there.
        assert_eq!(exact_device(Path::new("/dev/shm")), None);
        assert_eq!(exact_device(Path::new("/no/such/directory")), None);
        let dir = tempfile::tempdir().unwrap();
        let disk = [0xef53, 0x5846_5342, 0x9123_683e].contains(&rustix::fs::statfs(dir.path()).unwrap().f_type);
        assert!(!disk || exact_device(dir.path()) == Some(dir.path().metadata().unwrap().dev()));
        flush(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}
