//! Finds the file that a suspended process wants to execute, resolving its path as that process would.

use super::memory::MOST_PATH;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, readlinkat, stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a script's first line; the kernel's own limit.
const FIRST_LINE: usize = 256;
/// Nested script interpreters; the kernel's own limit.
const MOST_SCRIPTS: usize = 5;

/// The identity of a file, independent of its path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

#[cfg(test)]
impl FileId {
    /// An identity that belongs to no real file.
    pub fn of_test(inode: u64) -> Self {
        Self { device: 0, inode }
    }
}

/// A file that can be executed, as far as this program can tell.
#[derive(Debug)]
pub(super) struct ExecutableFile {
    /// Absolute, links not followed.
    pub path: PathBuf,
    /// With links followed; equal to `path` if they cannot be resolved.
    pub real: PathBuf,
    pub content: ExecutableFormat,
    /// The file that `/proc/PID/exe` will refer to: this one, or a script's interpreter.
    pub image: FileId,
}

/// The format according to the first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExecutableFormat {
    /// A binary, or a file that cannot be read, and which therefore no interpreter could read.
    Binary,
    /// A script; the text after `#!`.
    Script(String),
    /// Neither: a shell would read it as a shell script in its own process.
    Neither,
}

/// The directory against which a path is resolved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Directory,
    Descriptor(i32),
}

/// The working directory of a process.
pub(super) fn working_directory(process: i32) -> Option<PathBuf> {
    link(&format!("/proc/{process}/cwd"))
}

/// The program that a process is running.
pub(super) fn image_of(process: i32) -> Option<FileId> {
    stat(format!("/proc/{process}/exe")).ok().map(|data| id(&data))
}

/// Resolves `name` as `process` would. The error is the one with which the exec must fail.
pub(super) fn find(process: i32, name: &[u8], start: Start) -> Result<ExecutableFile, Errno> {
    let root = open(
        format!("/proc/{process}/root"),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let base = match start {
        Start::Directory => working_directory(process),
        Start::Descriptor(number) => link(&format!("/proc/{process}/fd/{number}")),
    };
    let (path, file) = match (own_file(process, name), name, start) {
        (Some(magic), ..) => open_magic(&magic)?,
        (None, b"", Start::Descriptor(number)) => open_magic(&format!("/proc/{process}/fd/{number}"))?,
        (None, b"", Start::Directory) => return Err(Errno::NOENT),
        (None, name, _) => {
            let path = base.ok_or(Errno::NOENT)?.join(OsStr::from_bytes(name));
            let file = open_below(&root, &path)?;
            (path.components().collect(), file)
        }
    };
    let data = executable(&file)?;
    let content = content(&file)?;
    let image = match &content {
        ExecutableFormat::Script(line) => interpreter(process, &root, line, 1).unwrap_or_else(|| id(&data)),
        ExecutableFormat::Binary | ExecutableFormat::Neither => id(&data),
    };
    let real = real(&file).unwrap_or_else(|| path.clone());
    Ok(ExecutableFile {
        path,
        real,
        content,
        image,
    })
}

/// Paths that mean something different to each process (`/proc/self`); rewritten, because opening them here would find
/// this process's own.
fn own_file(process: i32, name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let fd = |rest: &str| {
        let number: u32 = rest.parse().ok()?;
        Some(format!("/proc/{process}/fd/{number}"))
    };
    match name {
        "/proc/self/exe" | "/proc/thread-self/exe" => Some(format!("/proc/{process}/exe")),
        "/dev/stdin" => fd("0"),
        name => ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"]
            .iter()
            .find_map(|start| fd(name.strip_prefix(start)?)),
    }
}

/// Follows a magic link of `/proc`, which leads to the file itself.
fn open_magic(at: &str) -> Result<(PathBuf, OwnedFd), Errno> {
    let path = link(at).ok_or(Errno::NOENT)?;
    let file = open(at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok((path, file))
}

/// Opens an absolute path below the root directory of the process; links are resolved within that root.
fn open_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let inside = path.as_os_str().as_bytes();
    if inside.len() >= MOST_PATH {
        return Err(Errno::NAMETOOLONG);
    }
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..8 {
        match openat2(root, inside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // A rename raced with the lookup.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Applies the kernel's own checks here, so that a file created after this lookup is not executed.
fn executable(file: &OwnedFd) -> Result<Stat, Errno> {
    let data = fstat(file)?;
    let regular = FileType::from_raw_mode(data.st_mode) == FileType::RegularFile;
    if regular && data.st_mode & 0o111 != 0 {
        Ok(data)
    } else {
        Err(Errno::ACCESS)
    }
}

fn content(file: &OwnedFd) -> Result<ExecutableFormat, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty());
    let readable = match opened {
        Ok(readable) => readable,
        Err(Errno::ACCESS | Errno::PERM) => return Ok(ExecutableFormat::Binary),
        Err(error) => return Err(error),
    };
    let mut buffer = [0; FIRST_LINE];
    let got = rustix::io::pread(&readable, &mut buffer, 0)?;
    Ok(classified(&buffer[..got]))
}

fn classified(head: &[u8]) -> ExecutableFormat {
    if head.starts_with(b"\x7fELF") {
        return ExecutableFormat::Binary;
    }
    let Some(rest) = head.strip_prefix(b"#!") else {
        return ExecutableFormat::Neither;
    };
    let line = rest.split(|byte| matches!(byte, b'\n' | 0)).next().unwrap_or_default();
    ExecutableFormat::Script(String::from_utf8_lossy(line).trim().to_owned())
}

/// The binary that finally runs a script. `None` if it cannot be found: the exec fails, or runs a file that was not
/// seen here.
fn interpreter(process: i32, root: &OwnedFd, line: &str, depth: usize) -> Option<FileId> {
    let name = line.split([' ', '\t']).next().filter(|name| !name.is_empty())?;
    let path = working_directory(process)?.join(name);
    let file = open_below(root, &path).ok()?;
    let data = executable(&file).ok()?;
    match content(&file).ok()? {
        ExecutableFormat::Script(line) if depth < MOST_SCRIPTS => interpreter(process, root, &line, depth + 1),
        _ => Some(id(&data)),
    }
}

fn real(file: &OwnedFd) -> Option<PathBuf> {
    link(&format!("/proc/self/fd/{}", file.as_raw_fd())).filter(|path| path.is_absolute())
}

fn link(at: &str) -> Option<PathBuf> {
    let target = readlinkat(CWD, at, Vec::new()).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

fn id(data: &Stat) -> FileId {
    FileId {
        device: data.st_dev,
        inode: data.st_ino,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes() {
        assert_eq!(classified(b"\x7fELF\x02"), ExecutableFormat::Binary);
        let script = |line: &str| ExecutableFormat::Script(line.to_owned());
        assert_eq!(
            classified(b"#! /usr/bin/env python3 \nx"),
            script("/usr/bin/env python3")
        );
        assert_eq!(classified(b"#!/bin/sh"), script("/bin/sh"));
        assert_eq!(classified(b"echo x\n"), ExecutableFormat::Neither);
        assert_eq!(classified(b""), ExecutableFormat::Neither);
    }

    #[test]
    fn files_of_this_process() {
        let dir = tempfile::tempdir().unwrap();
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("tool"), "#!/bin/sh\n").unwrap();
        std::os::unix::fs::symlink("tool", at("link")).unwrap();
        let mode = |mode| std::fs::set_permissions(at("tool"), std::os::unix::fs::PermissionsExt::from_mode(mode));
        let name = at("link").display().to_string();
        mode(0o644).unwrap();
        let find_it = || find(me, name.as_bytes(), Start::Directory);
        assert_eq!(find_it().unwrap_err(), Errno::ACCESS);
        mode(0o755).unwrap();
        let found = find_it().unwrap();
        assert_eq!(
            (found.path, found.content),
            (at("link"), ExecutableFormat::Script("/bin/sh".to_owned()))
        );
        assert_eq!(found.real, std::fs::canonicalize(at("tool")).unwrap());
        assert_eq!(Some(found.image), stat("/bin/sh").ok().map(|data| id(&data)));
        let own = find(me, b"/proc/self/exe", Start::Directory).unwrap();
        assert_eq!(Some(own.image), image_of(me));
        assert_eq!(find(me, b"/no/such", Start::Directory).unwrap_err(), Errno::NOENT);
        assert_eq!(find(me, b"", Start::Directory).unwrap_err(), Errno::NOENT);
        let by_number = format!("/proc/{me}/exe");
        assert_eq!(
            find(me, by_number.as_bytes(), Start::Directory).unwrap_err(),
            Errno::LOOP
        );
    }
}
