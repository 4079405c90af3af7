//! The way to stdout and stderr. A reader that went away stops nothing. Text of others is made inert where a terminal or the log
//! of a CI job shows it; a program that reads gets it as it is.

use crate::report::inert::inert;
use rustix::fs::{FileType, fstat};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// Variables by which the runners of CI systems are known whose logs take commands.
const RUNNERS: [&str; 4] = ["GITHUB_ACTIONS", "GITLAB_CI", "TEAMCITY_VERSION", "TF_BUILD"];

/// Whether a job of such a CI system runs us.
fn is_ci() -> bool {
    static CI: OnceLock<bool> = OnceLock::new();
    *CI.get_or_init(|| {
        RUNNERS
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    })
}

/// Whether what is written there is shown to people as it comes: on a terminal, or, in such a CI job, through anything but a
/// regular file. A pipe cannot be told from the runner's own.
fn is_shown(stream: &(impl AsFd + IsTerminal)) -> bool {
    let to_file = || fstat(stream).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile);
    stream.is_terminal() || (is_ci() && !to_file())
}

/// Writes to stdout. A broken pipe is not an error; any other is.
pub fn stdout(text: &str) -> io::Result<()> {
    stdout_bytes(text.as_bytes())
}

/// As [`stdout`], for text that a model or a file of the tree may have written.
pub fn stdout_of_others(text: &str) -> io::Result<()> {
    match is_shown(&io::stdout()) {
        true => stdout(&inert(text)),
        false => stdout(text),
    }
}

/// As [`stdout`], for outputs that a program reads and that need not be text; on a terminal they are made inert too.
pub fn stdout_of_programs(bytes: &[u8]) -> io::Result<()> {
    match io::stdout().is_terminal() {
        true => stdout(&inert(&String::from_utf8_lossy(bytes))),
        false => stdout_bytes(bytes),
    }
}

/// As [`stdout`], for outputs that need not be text.
pub fn stdout_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line to stdout; see [`stdout`].
pub fn line(text: &str) -> io::Result<()> {
    stdout(&format!("{text}\n"))
}

/// Tells people something on stderr, whatever becomes of it.
pub fn tell(text: &str) {
    let text = match is_shown(&io::stderr()) {
        true => inert(text),
        false => text.into(),
    };
    let mut err = io::stderr().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    // Nobody to tell that nobody can be told.
    let _ = write!(err, "{text}{end}");
}
