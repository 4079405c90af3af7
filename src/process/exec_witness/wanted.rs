//! Reads everything about the program that a suspended process wants to execute.

use super::file::{self, ExecutableFile, ExecutableFormat, FileId, Start};
use super::listener::ExecNotification;
use super::memory::{ProcessMemory, Unread};
use crate::base::grant::{Exec, Starts};
use rustix::io::Errno;

/// The complete data of an exec, and the file that would run.
pub(super) struct ExecRequest {
    pub exec: Exec,
    pub content: ExecutableFormat,
    /// The file that the process will run after the exec.
    pub image: FileId,
}

/// Why there is no exec to judge.
pub(super) enum Nothing {
    /// The exec fails with this error.
    Fails(Errno),
    Unread(Unread),
}

impl From<Unread> for Nothing {
    fn from(unread: Unread) -> Self {
        Nothing::Unread(unread)
    }
}

/// Reads an exec. The arguments are those of `execve` (path, argv, …) or `execveat` (directory descriptor, path, argv,
/// …).
pub(super) fn wanted(asked: &ExecNotification, caller: Starts) -> Result<ExecRequest, Nothing> {
    let process = asked.thread;
    let mut memory = ProcessMemory::of(process)?;
    let [first, second, third, ..] = asked.arguments;
    let (name, words, start) = if asked.call == libc::SYS_execveat {
        // The kernel uses only the low half of the register.
        let number = (first & 0xffff_ffff) as u32 as i32;
        let start = match number {
            libc::AT_FDCWD => Start::Directory,
            number => Start::Descriptor(number),
        };
        (second, third, start)
    } else {
        (first, second, Start::Directory)
    };
    let name = memory.path(name)?.ok_or(Nothing::Fails(Errno::NAMETOOLONG))?;
    let found = file::find(process, &name, start).map_err(Nothing::Fails)?;
    let argv = memory.words(words)?;
    let ExecutableFile {
        path,
        real,
        content,
        image,
    } = found;
    let exec = Exec {
        caller,
        path,
        real,
        argv,
        cwd: file::working_directory(process).ok_or(Unread::Memory)?,
        interpreter: match &content {
            ExecutableFormat::Script(line) => Some(line.clone()),
            ExecutableFormat::Binary | ExecutableFormat::Neither => None,
        },
    };
    Ok(ExecRequest { exec, content, image })
}
