//! Finds the file that a suspended process wants to execute, resolving its path as that process would, and the programs
//! that the kernel starts in place of a script: for these it makes no further notification.

use crate::base::path::PATH_MAX;
use crate::process::confine::mediate::named_descriptor;
use crate::process::write_guard::at;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, open, readlinkat, stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
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
    /// The programs that the kernel starts in its place, each because of the first line of the one before.
    pub interpreters: Vec<ScriptInterpreter>,
    /// Whether it, or the last of its interpreters, is a binary. If not, the exec fails, and a shell would read the file
    /// as a shell script in its own process.
    pub is_program: bool,
    /// Whether its first line, or that of an interpreter, cannot be read although the process may have written it.
    pub is_unread: bool,
    /// The file that `/proc/PID/exe` will refer to: this one, or a script's last interpreter.
    pub image: FileId,
}

/// A program that the first line of a script names.
#[derive(Debug)]
pub(super) struct ScriptInterpreter {
    /// Absolute, links not followed.
    pub path: PathBuf,
    /// With links followed.
    pub real: PathBuf,
    /// Its path as the line names it: its `argv[0]`.
    pub name: String,
    /// The rest of the line, which the kernel passes as one word.
    pub argument: Option<String>,
}

/// The format according to the first bytes.
#[derive(Debug, PartialEq, Eq)]
enum ExecutableFormat {
    /// A binary, or a file that cannot be read and that another user keeps.
    Binary,
    Script(FirstLine),
    /// It cannot be read, and the process may have written it. The kernel obeys a first line that nobody may read.
    Unread,
    Neither,
}

/// What the kernel reads in the first line of a script.
#[derive(Debug, PartialEq, Eq)]
struct FirstLine {
    /// Relative to the working directory of the process unless it is absolute.
    name: OsString,
    argument: Option<String>,
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
    let real = real(&file).unwrap_or_else(|| path.clone());
    let mut interpreters = Vec::new();
    let (last, image) = match content(&file, &data)? {
        ExecutableFormat::Script(line) => follow(process, &root, line, &mut interpreters)?,
        other => (other, id(&data)),
    };
    Ok(ExecutableFile {
        path,
        real,
        interpreters,
        is_program: last != ExecutableFormat::Neither,
        is_unread: last == ExecutableFormat::Unread,
        image,
    })
}

/// Paths that mean something different to each process (`/proc/self`); rewritten, because opening them here would find
/// this process's own.
fn own_file(process: i32, name: &[u8]) -> Option<String> {
    let number = match name {
        b"/proc/self/exe" | b"/proc/thread-self/exe" => return Some(format!("/proc/{process}/exe")),
        b"/dev/stdin" => 0,
        name => named_descriptor(name)?,
    };
    Some(format!("/proc/{process}/fd/{number}"))
}

/// Follows a magic link of `/proc`, which leads to the file itself.
fn open_magic(at: &str) -> Result<(PathBuf, OwnedFd), Errno> {
    let path = link(at).ok_or(Errno::NOENT)?;
    let file = open(at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok((path, file))
}

/// Opens an absolute path below the root directory of the process; links are resolved within that root.
fn open_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    match path.as_os_str().len() >= PATH_MAX {
        true => Err(Errno::NAMETOOLONG),
        false => at::handle_in_root(root, path),
    }
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

fn content(file: &OwnedFd, data: &Stat) -> Result<ExecutableFormat, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty());
    let readable = match opened {
        Ok(readable) => readable,
        Err(Errno::ACCESS | Errno::PERM) => {
            let is_own = data.st_uid == rustix::process::geteuid().as_raw() || data.st_mode & 0o022 != 0;
            return Ok(match is_own {
                true => ExecutableFormat::Unread,
                false => ExecutableFormat::Binary,
            });
        }
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
    match first_line(head) {
        Some(line) => ExecutableFormat::Script(line),
        None => ExecutableFormat::Neither,
    }
}

/// Reads the line exactly as the kernel does. `None` if the kernel takes the file for no script: the line is missing or
/// empty, or the name does not end within what the kernel reads.
fn first_line(head: &[u8]) -> Option<FirstLine> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let rest = head.strip_prefix(b"#!")?;
    let end = rest.iter().position(|byte| matches!(byte, b'\n' | 0));
    let is_cut = end.is_none() && head.len() == FIRST_LINE;
    let line = match end {
        Some(end) => &rest[..end],
        // The last byte of the kernel's buffer is always zero.
        None if is_cut => &rest[..rest.len() - 1],
        None => rest,
    };
    let line = &line[line.iter().position(|byte| !is_blank(byte))?..];
    let (name, rest) = match line.iter().position(is_blank) {
        Some(at) => line.split_at(at),
        None if is_cut => return None,
        None => (line, &line[line.len()..]),
    };
    let argument = trimmed(rest);
    Some(FirstLine {
        name: OsStr::from_bytes(name).to_owned(),
        argument: (!argument.is_empty()).then(|| String::from_utf8_lossy(argument).into_owned()),
    })
}

/// Without the blanks around it.
fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Finds the program that a first line names; if that is a script too, the one that its line names, and so on. Returns
/// the format and identity of the last. An error is the one with which the exec must fail: a program that was not seen
/// here must not run.
fn follow(
    process: i32,
    root: &OwnedFd,
    mut line: FirstLine,
    found: &mut Vec<ScriptInterpreter>,
) -> Result<(ExecutableFormat, FileId), Errno> {
    let directory = working_directory(process).ok_or(Errno::NOENT)?;
    while found.len() < MOST_SCRIPTS {
        let path = directory.join(&line.name);
        let file = open_below(root, &path)?;
        let data = executable(&file)?;
        found.push(ScriptInterpreter {
            real: real(&file).unwrap_or_else(|| path.clone()),
            path: path.components().collect(),
            name: line.name.to_string_lossy().into_owned(),
            argument: line.argument,
        });
        match content(&file, &data)? {
            ExecutableFormat::Script(next) => line = next,
            last => return Ok((last, id(&data))),
        }
    }
    Err(Errno::LOOP)
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
        let script = |name: &str, argument: Option<&str>| {
            ExecutableFormat::Script(FirstLine {
                name: name.into(),
                argument: argument.map(str::to_owned),
            })
        };
        assert_eq!(
            classified(b"#! /usr/bin/env -S  a b\t\nx"),
            script("/usr/bin/env", Some("-S  a b"))
        );
        assert_eq!(classified(b"#!/bin/sh"), script("/bin/sh", None));
        // Other white space belongs to the name.
        assert_eq!(classified(b"#!/bin/sh\r\n"), script("/bin/sh\r", None));
        assert_eq!(classified(b"#!/bin/sh\0x\n"), script("/bin/sh", None));
        for neither in [&b"echo x\n"[..], b"", b"#!\n", b"#! \t\n/bin/sh"] {
            assert_eq!(classified(neither), ExecutableFormat::Neither, "{neither:?}");
        }
    }

    /// The kernel reads 256 bytes, of which it uses 255.
    #[test]
    fn long_first_lines() {
        let of = |text: &str| classified(&text.as_bytes()[..text.len().min(FIRST_LINE)]);
        let (long, blanks) = ("x".repeat(300), " ".repeat(300));
        for neither in [format!("#!/{long}"), format!("#!{blanks}/bin/sh\n")] {
            assert_eq!(of(&neither), ExecutableFormat::Neither);
        }
        let ExecutableFormat::Script(line) = of(&format!("#!/bin/cat {long}")) else {
            panic!("a script");
        };
        assert_eq!((line.name, line.argument.unwrap().len()), ("/bin/cat".into(), 255 - 11));
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
        assert_eq!((found.path, found.is_program), (at("link"), true));
        assert_eq!(found.interpreters[0].path, Path::new("/bin/sh"));
        assert_eq!(found.interpreters[0].real, std::fs::canonicalize("/bin/sh").unwrap());
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

    #[test]
    fn interpreters_are_followed_as_the_kernel_does() {
        let dir = tempfile::tempdir().unwrap();
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let at = |name: &str| dir.path().join(name);
        let script = |name: &str, line: &str| {
            std::fs::write(at(name), format!("#!{line}\n")).unwrap();
            std::fs::set_permissions(at(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        let find_it = |name: &str| find(me, at(name).as_os_str().as_bytes(), Start::Directory);
        script("1", "/bin/cat -n");
        for n in 2..=6 {
            script(&n.to_string(), &format!("{} {n}", at(&(n - 1).to_string()).display()));
        }
        let found = find_it("3").unwrap();
        let names: Vec<_> = found.interpreters.iter().map(|one| one.path.clone()).collect();
        assert_eq!(names, [at("2"), at("1"), PathBuf::from("/bin/cat")]);
        let arguments: Vec<_> = found.interpreters.iter().map(|one| one.argument.as_deref()).collect();
        assert_eq!(arguments, [Some("3"), Some("2"), Some("-n")]);
        assert_eq!(found.interpreters[2].real, std::fs::canonicalize("/bin/cat").unwrap());
        // The kernel starts five interpreters, but no sixth.
        assert_eq!(find_it("5").unwrap().interpreters.len(), 5);
        assert_eq!(find_it("6").unwrap_err(), Errno::LOOP);
        script("own", "/proc/self/cwd/x");
        assert_eq!(find_it("own").unwrap_err(), Errno::LOOP);
        script("none", "/no/such");
        assert_eq!(find_it("none").unwrap_err(), Errno::NOENT);
        std::fs::write(at("text"), "echo x\n").unwrap();
        std::fs::set_permissions(at("text"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        script("by-text", &at("text").display().to_string());
        assert!(!find_it("by-text").unwrap().is_program);
    }
}
