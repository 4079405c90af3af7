//! The way to stdout and stderr. A reader that went away stops nothing.

use std::io::{self, Write};

/// Writes to stdout. A broken pipe is not an error; any other is.
pub fn stdout(text: &str) -> io::Result<()> {
    stdout_bytes(text.as_bytes())
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
    let mut err = io::stderr().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    // Nobody to tell that nobody can be told.
    let _ = write!(err, "{text}{end}");
}
