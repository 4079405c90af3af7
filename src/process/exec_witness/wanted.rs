//! Reads everything about the program that a suspended process wants to execute.

use super::file::{self, ExecutableFile, FileId, ScriptInterpreter, Start};
use super::memory::{ProcessMemory, Unread};
use crate::base::grant::{Exec, Interpreter, Starts};
use crate::process::seccomp_listener::SeccompNotification;
use rustix::io::Errno;

/// The complete data of an exec, and the file that would run.
pub(super) struct ExecRequest {
    pub exec: Exec,
    /// Whether the kernel can run the file; if not, a shell would read it as its own script.
    pub is_program: bool,
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
pub(super) fn wanted(asked: &SeccompNotification, caller: Starts) -> Result<ExecRequest, Nothing> {
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
        interpreters,
        is_program,
        is_unread,
        image,
    } = found;
    // What the kernel calls a script that it passes to an interpreter.
    let script = match start {
        Start::Descriptor(_) if !name.starts_with(b"/") => path.to_string_lossy().into_owned(),
        Start::Directory | Start::Descriptor(_) => String::from_utf8_lossy(&name).into_owned(),
    };
    let exec = Exec {
        caller,
        path,
        real,
        interpreters: with_words(interpreters, script, &argv),
        is_unread,
        argv,
        cwd: file::working_directory(process).ok_or(Unread::Memory)?,
    };
    Ok(ExecRequest {
        exec,
        is_program,
        image,
    })
}

/// The interpreters with their words: each gets its line's argument, then the name and words of what it runs.
fn with_words(found: Vec<ScriptInterpreter>, script: String, argv: &[String]) -> Vec<Interpreter> {
    let mut behind: Vec<String> = std::iter::once(script).chain(argv.iter().skip(1).cloned()).collect();
    found
        .into_iter()
        .map(|one| {
            let own = std::iter::once(one.name).chain(one.argument);
            behind = own.chain(std::mem::take(&mut behind)).collect();
            Interpreter {
                path: one.path,
                real: one.real,
                argv: behind.clone(),
            }
        })
        .collect()
}
