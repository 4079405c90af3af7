//! Copies the home and the temporary directory of the author's commands for commands of others, within limits. The copy
//! can be cancelled. Sparse files stay sparse, and holes do not count towards the limit.

use crate::process::write_guard::at;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, fchmod, ftruncate, ioctl_ficlone, openat, seek, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// The name of the limits on bytes and entries.
pub(super) const LIMIT: &str = "limit:home";

/// Upper limits for the bytes and entries that are copied for one command. The time is limited by that of the run.
const MOST_BYTES: u64 = 4 << 30;
const MOST_ENTRIES: usize = 200_000;
/// Bytes that are copied between two checks whether the copy was cancelled.
const PIECE: u64 = 16 << 20;
/// Up to this size a file is copied whole. Some file systems write it out first when they are asked for its holes.
const SMALL: u64 = 16 << 10;
/// The mode of a new file. It is changed afterwards only if the original has another mode.
const NEW: u32 = 0o600;

/// A copy in progress, with the remaining limits.
pub(super) struct Copying<'a> {
    bytes: u64,
    entries: usize,
    /// Cancelled when the copy is no longer needed.
    stop: &'a CancellationToken,
    /// Whether files may be able to share their blocks: no file system has refused it yet.
    clones: bool,
}

/// A directory and its copy.
type Pair<'a> = (&'a OwnedFd, &'a OwnedFd);

impl<'a> Copying<'a> {
    /// A copy that has copied nothing yet.
    pub fn new(stop: &'a CancellationToken) -> Self {
        Self {
            bytes: MOST_BYTES,
            entries: MOST_ENTRIES,
            stop,
            clones: true,
        }
    }

    /// Copies the entries of `from` that are not in `to`; no process may write in `to` yet. Entries that their owner
    /// cannot read, and those that are removed meanwhile, are left out.
    ///
    /// # Errors
    /// An entry cannot be read or created, the limit of bytes or entries is reached, or the copy was cancelled. The
    /// error names the path.
    pub fn copy_dir(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut left = vec![(from.to_path_buf(), to.to_path_buf())];
        let mut modes = Vec::new();
        while let Some((from, to)) = left.pop() {
            for (name, mode) in self.copy_entries(&from, &to)? {
                let made = to.join(&name);
                left.push((from.join(&name), made.clone()));
                modes.push((made, mode));
            }
        }
        // Last, and those of inner directories first: they may take the right to write from their owner.
        for (dir, mode) in modes.into_iter().rev() {
            let set = std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode));
            set.map_err(|error| of_path(&dir, error))?;
        }
        Ok(())
    }

    /// Copies the entries of one directory. Returns the names and modes of the directories among them, whose own entries
    /// are still to be copied.
    fn copy_entries(&mut self, from: &Path, to: &Path) -> io::Result<Vec<(PathBuf, u32)>> {
        let dir = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = unless_left_out(openat(CWD, from, dir | OFlags::RDONLY, Mode::empty()));
        let Some(source) = opened.map_err(|error| of_path(from, error))? else {
            return Ok(Vec::new());
        };
        // Nothing can be opened in a directory that may be listed and not entered.
        let listed = unless_left_out(Dir::read_from(&source));
        let Some(entries) = listed.map_err(|error| of_path(from, error))? else {
            return Ok(Vec::new());
        };
        let target = openat(CWD, to, dir | OFlags::PATH, Mode::empty()).map_err(|error| of_path(to, error.into()))?;
        let mut dirs = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| of_path(from, error.into()))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let copied = self.copy_entry((&source, &target), name, entry.file_type());
            if let Some(mode) = copied.map_err(|error| of_path(&from.join(name), error))? {
                dirs.push((PathBuf::from(name), mode));
            }
        }
        Ok(dirs)
    }

    /// Copies one entry, of a directory only itself. Returns the mode of a directory.
    fn copy_entry(&mut self, dirs: Pair<'_>, name: &OsStr, listed: FileType) -> io::Result<Option<u32>> {
        self.go_on()?;
        self.entries = self.entries.checked_sub(1).ok_or_else(|| over("200,000 entries"))?;
        let (source, target) = dirs;
        match unless_left_out(at::kind(source, name, listed))?.flatten() {
            Some(FileType::Directory) => make_dir(dirs, name),
            Some(FileType::RegularFile) => self.copy_file(dirs, name).map(|()| None),
            Some(FileType::Symlink) => {
                if let Some(link) = unless_left_out(at::link(source, name))? {
                    unless_there(at::make_link(target, name, &link))?;
                }
                Ok(None)
            }
            // A pipe or a socket is useless without the process that created it.
            _ => Ok(None),
        }
    }

    fn copy_file(&mut self, (source, target): Pair<'_>, name: &OsStr) -> io::Result<()> {
        let reading = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Some(from) = unless_left_out(openat(source, name, reading, Mode::empty()))? else {
            return Ok(());
        };
        let from = File::from(from);
        let data = from.metadata()?;
        let writing = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = unless_there(openat(target, name, writing, Mode::from_raw_mode(NEW)))?;
        let Some(to) = made.map(File::from) else {
            // The file was copied by an earlier attempt, and counts like then.
            return self.count(counted(&data));
        };
        let filled = self.fill(&from, &to, &data);
        if filled.is_err() {
            // Otherwise a later attempt would take the incomplete copy for a complete one.
            let _ = unlinkat(target, name, AtFlags::empty());
        }
        filled
    }

    /// Gives a new file the content, times and mode of another.
    fn fill(&mut self, from: &File, to: &File, data: &Metadata) -> io::Result<()> {
        self.clones = self.clones && ioctl_ficlone(to, from).is_ok();
        if self.clones {
            self.count(counted(data))?;
        } else if counted(data) < data.len() {
            self.copy_parts(from, to, data.len())?;
        } else {
            self.copy_part(from, to, data.len())?;
        }
        at::set_modified(to, (data.mtime(), data.mtime_nsec()))?;
        match data.mode() & 0o777 {
            NEW => Ok(()),
            mode => Ok(fchmod(to, Mode::from_raw_mode(mode))?),
        }
    }

    /// Copies the parts of a file that are not holes.
    fn copy_parts(&mut self, from: &File, to: &File, size: u64) -> io::Result<()> {
        ftruncate(to, size)?;
        let mut done = 0;
        while done < size {
            let begin = match seek(from, SeekFrom::Data(done)) {
                // The rest is a hole.
                Err(Errno::NXIO) => break,
                // The file system does not report holes.
                Err(Errno::INVAL) => done,
                begin => begin?,
            };
            let end = seek(from, SeekFrom::Hole(begin)).unwrap_or(size).min(size);
            if end > begin {
                seek(from, SeekFrom::Start(begin))?;
                seek(to, SeekFrom::Start(begin))?;
                self.copy_part(from, to, end - begin)?;
            }
            self.go_on()?;
            // The loop ends even if another process changes the file meanwhile.
            done = end.max(begin.saturating_add(1));
        }
        Ok(())
    }

    /// Copies this many bytes from where the files are.
    fn copy_part(&mut self, from: &File, mut to: &File, mut left: u64) -> io::Result<()> {
        self.count(left)?;
        while left > 0 {
            let copied = io::copy(&mut from.take(left.min(PIECE)), &mut to)?;
            self.go_on()?;
            if copied == 0 {
                // It has become shorter since.
                break;
            }
            left = left.saturating_sub(copied);
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| over("4 GiB"))?;
        Ok(())
    }

    fn go_on(&self) -> io::Result<()> {
        match self.stop.is_cancelled() {
            true => Err(io::Error::other("it is no longer wanted")),
            false => Ok(()),
        }
    }
}

/// Creates a directory, if it does not exist, and returns the mode of the original. `None` if another kind of entry is
/// there, or the original cannot be read.
fn make_dir((source, target): Pair<'_>, name: &OsStr) -> io::Result<Option<u32>> {
    let Some(data) = unless_left_out(at::stat(source, name))? else {
        return Ok(None);
    };
    // Homes begin with links to directories of the machine, through which nothing may be written.
    let is_there = match unless_there(at::make_dir(target, name))? {
        Some(()) => true,
        None => at::is_dir(&at::stat(target, name)?),
    };
    Ok(is_there.then_some(data.st_mode & 0o777))
}

/// The bytes of a file that are not in holes, according to its status.
fn counted(data: &Metadata) -> u64 {
    match data.len() {
        size @ ..=SMALL => size,
        size => size.min(data.blocks().saturating_mul(512)),
    }
}

/// The result of reading an entry. `None` if its owner cannot read it, or it no longer exists.
fn unless_left_out<T>(read: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => Ok(None),
        read => Ok(Some(read?)),
    }
}

/// The result of creating an entry. `None` if an entry of this name exists.
fn unless_there<T>(made: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match made {
        Err(Errno::EXIST) => Ok(None),
        made => Ok(Some(made?)),
    }
}

/// Adds the path to an error of the system. Other errors are unchanged: they already say what to do.
fn of_path(path: &Path, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
        None => error,
    }
}

fn over(what: &str) -> io::Error {
    io::Error::other(format!(
        "the `run` steps have left more than {what} in their home and temporary directory, which are copied for it; let the steps remove \
         what nothing else needs, or write it into a directory of the workspace that git ignores"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn two() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        std::fs::create_dir(&to).unwrap();
        (dir, from, to)
    }

    #[test]
    fn holes_stay_holes_and_count_for_nothing() {
        let (_dir, from, to) = two();
        for number in 0..5 {
            let image = File::create(from.join(format!("image{number}"))).unwrap();
            image.set_len(1 << 30).unwrap();
            image.write_all_at(b"in the middle", 512 << 20).unwrap();
        }
        let stop = CancellationToken::new();
        for clones in [true, false] {
            let copy = to.join(clones.to_string());
            std::fs::create_dir(&copy).unwrap();
            let mut copying = Copying {
                clones,
                ..Copying::new(&stop)
            };
            copying.copy_dir(&from, &copy).unwrap();
            assert!(copying.bytes > MOST_BYTES - (5 << 20), "{}", copying.bytes);
            let image = File::open(copy.join("image4")).unwrap();
            let data = image.metadata().unwrap();
            assert_eq!(data.len(), 1 << 30);
            assert!(counted(&data) < 1 << 20, "{}", counted(&data));
            let mut text = [0; 13];
            image.read_exact_at(&mut text, 512 << 20).unwrap();
            assert_eq!(&text, b"in the middle");
        }
    }

    #[test]
    fn content_modes_and_times_are_those_of_the_original() {
        let (_dir, from, to) = two();
        let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().mode() & 0o777;
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::create_dir_all(from.join("closed/inner")).unwrap();
        std::fs::write(from.join("closed/inner/program"), "#!/bin/sh\n").unwrap();
        std::fs::write(from.join("empty"), "").unwrap();
        std::os::unix::fs::symlink("/nowhere", from.join("link")).unwrap();
        set(&from.join("closed/inner/program"), 0o755);
        set(&from.join("empty"), 0o600);
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        File::open(from.join("empty")).unwrap().set_modified(old).unwrap();
        for dir in ["closed/inner", "closed"] {
            set(&from.join(dir), 0o555);
        }
        Copying::new(&CancellationToken::new()).copy_dir(&from, &to).unwrap();
        for (path, expected) in [
            ("closed", 0o555),
            ("closed/inner", 0o555),
            ("closed/inner/program", 0o755),
            ("empty", 0o600),
        ] {
            assert_eq!(mode(&to.join(path)), expected, "{path}");
        }
        assert_eq!(std::fs::metadata(to.join("empty")).unwrap().modified().unwrap(), old);
        assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere"));
        let text = std::fs::read_to_string(to.join("closed/inner/program")).unwrap();
        assert_eq!(text, "#!/bin/sh\n");
        for dir in ["closed", "closed/inner"] {
            set(&from.join(dir), 0o755);
            set(&to.join(dir), 0o755);
        }
    }

    #[test]
    fn what_is_over_a_limit_is_refused_and_leaves_no_part_of_a_file() {
        let (_dir, from, to) = two();
        std::fs::write(from.join("file"), [b'x'; 5_000]).unwrap();
        let stop = CancellationToken::new();
        let copy = |bytes, entries| {
            let mut copying = Copying {
                bytes,
                entries,
                clones: false,
                ..Copying::new(&stop)
            };
            copying.copy_dir(&from, &to)
        };
        for (bytes, entries, limit) in [(4_999, 1, "4 GiB"), (5_000, 0, "200,000 entries")] {
            let told = copy(bytes, entries).unwrap_err().to_string();
            assert!(told.starts_with("the `run` steps") && told.contains(limit), "{told}");
            assert!(!to.join("file").exists());
        }
        copy(5_000, 1).unwrap();
        // The same again, since copying may be tried again.
        copy(4_999, 1).unwrap_err();
    }

    #[test]
    fn a_copy_that_is_no_longer_wanted_ends() {
        let (_dir, from, to) = two();
        std::fs::write(from.join("file"), "x").unwrap();
        let stop = CancellationToken::new();
        stop.cancel();
        Copying::new(&stop).copy_dir(&from, &to).unwrap_err();
        assert!(!to.join("file").exists());
    }
}
