//! Writes to stdout and stderr. A closed pipe is not an error. Untrusted text is escaped on a terminal and in logs of
//! CI jobs that interpret commands; a program that reads the output gets it unchanged.

pub mod bounded;
pub mod own_file;

use super::args::Color;
use super::environment;
use super::refusal::Refusal;
use crate::report::inert::inert;
use rustix::fs::{FileType, fstat};
use serde_json::Value;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock};

/// Variables that identify runners of CI systems whose logs interpret commands.
const RUNNERS: [&str; 4] = ["GITHUB_ACTIONS", "GITLAB_CI", "TEAMCITY_VERSION", "TF_BUILD"];

/// Whether this process runs in a job of such a CI system.
fn is_ci() -> bool {
    static CI: OnceLock<bool> = OnceLock::new();
    *CI.get_or_init(|| {
        RUNNERS
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    })
}

/// Whether people or a CI log see this output directly: on a terminal or, in such a CI job, anywhere except in a
/// regular file, because a pipe cannot be distinguished from the runner's own.
fn is_shown(stream: &(impl AsFd + IsTerminal)) -> bool {
    let to_file = || fstat(stream).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile);
    stream.is_terminal() || (is_ci() && !to_file())
}

/// Writes to stdout, without the secrets of this environment.
///
/// # Errors
/// Any but a broken pipe, which is no error.
pub fn stdout(text: &str) -> io::Result<()> {
    stdout_bytes(without_secrets(text).as_bytes())
}

/// JSON stays JSON: a secret of digits in place of a number would break it, so only its strings are redacted.
fn without_secrets(text: &str) -> Cow<'_, str> {
    let redactor = environment::redactor();
    if redactor.find(text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let of_json = |text: &str| {
        let mut value: Value = serde_json::from_str(text).ok()?;
        redactor.redact_json(&mut value);
        match text.trim_end().contains('\n') {
            true => serde_json::to_string_pretty(&value).ok(),
            false => serde_json::to_string(&value).ok(),
        }
    };
    let end = if text.ends_with('\n') { "\n" } else { "" };
    if let Some(whole) = of_json(text) {
        return Cow::Owned(whole + end);
    }
    let is_lines = text.lines().all(|line| line.starts_with('{') && line.ends_with('}'));
    if let Some(lines) = is_lines
        .then(|| text.lines().map(of_json).collect::<Option<Vec<_>>>())
        .flatten()
    {
        return Cow::Owned(lines.join("\n") + end);
    }
    redactor.redact(text)
}

/// Like [`stdout`], for text or JSON that a model or a file of the tree may contain.
///
/// # Errors
/// As for [`stdout`].
pub fn stdout_of_others(text: &str) -> io::Result<()> {
    match is_shown(&io::stdout()) {
        true if text.starts_with(['{', '[']) => stdout(&inert_json(text)),
        true => stdout(&inert(text)),
        false => stdout(text),
    }
}

/// JSON with the same values and no `##`, with which some CI systems begin a command anywhere in a line. Their other
/// markers stand at the beginning of a line or need a control character, and JSON has neither.
fn inert_json(text: &str) -> String {
    text.replace("##", "#\\u0023")
}

/// Standard output for JSON Lines; each write must be one whole line.
#[derive(Debug)]
pub struct JsonLines;

impl Write for JsonLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match is_shown(&io::stdout()) {
            true => bounded::stdout(inert_json(&String::from_utf8_lossy(line)).as_bytes())?,
            false => bounded::stdout(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Like [`stdout`], for output that programs read and that may be binary; it is escaped on a terminal too.
///
/// # Errors
/// As for [`stdout`].
pub fn stdout_of_programs(bytes: &[u8]) -> io::Result<()> {
    match io::stdout().is_terminal() {
        true => stdout(&inert(&String::from_utf8_lossy(bytes))),
        false => stdout_bytes(bytes),
    }
}

/// Like [`stdout`], for output that may be binary.
///
/// # Errors
/// As for [`stdout`].
pub fn stdout_bytes(bytes: &[u8]) -> io::Result<()> {
    match bounded::stdout(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line to stdout; see [`stdout_of_others`].
///
/// # Errors
/// As for [`stdout`].
pub fn line(text: &str) -> io::Result<()> {
    stdout_of_others(&format!("{text}\n"))
}

/// Lines for stderr that are held until the end of the command; `None` if lines are written at once.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Messages for stderr that are written in place of the held lines if the command succeeds.
static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Upper limit in bytes for held lines; further lines are written at once.
const HELD_LIMIT: usize = 1 << 20;

/// Starts holding back stderr until the result of the command is known (`--quiet`).
pub fn hold() {
    if let Ok(mut held) = HELD.lock() {
        held.get_or_insert_default();
    }
}

/// Whether lines for stderr are written at once.
pub fn is_shown_at_once() -> bool {
    HELD.lock().is_ok_and(|held| held.is_none())
}

/// Ends [`hold`]: writes the held lines if the command failed, else drops them and writes what [`keep`] was given.
pub fn release(failed: bool) {
    let held = HELD.lock().ok().and_then(|mut held| held.take());
    let kept = KEPT.lock().ok().map(|mut kept| std::mem::take(&mut *kept));
    let told = if failed { held } else { kept };
    if let Some(told) = told.filter(|told| !told.is_empty()) {
        bounded::stderr(&told);
    }
}

/// Writes to stderr, or to the held lines if [`hold`] is active. Never an error: there is nowhere to report it.
#[derive(Debug)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Ok(mut held) = HELD.lock()
            && let Some(held) = held.as_mut()
            && held.len() + bytes.len() <= HELD_LIMIT
        {
            held.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        bounded::stderr(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints on stderr why a command cannot be carried out.
pub fn refusal(refusal: &Refusal) {
    let text = refusal.to_string();
    // Problems of files have their position before the word, those of flags begin with it.
    match refusal {
        Refusal::Invalid(_) if text.contains("error[") => stderr(&text),
        Refusal::Usage(_) if text.starts_with("error[") => stderr(&text),
        _ => stderr(&format!("error: {text}")),
    }
}

/// Prints a message on stderr, without the secrets of this environment. Errors of stderr are ignored.
pub fn stderr(text: &str) {
    let _ = Stderr.write_all(printable(text).as_bytes());
}

/// A message that a quiet command must print even when it succeeds. It has to be among the held lines too, which are
/// written when the command fails.
pub fn keep(text: &str) {
    if let Ok(mut kept) = KEPT.lock() {
        kept.extend_from_slice(printable(text).as_bytes());
    }
}

/// A message for stderr as whole lines, without secrets.
fn printable(text: &str) -> String {
    let text = environment::redactor().redact(text);
    let text = match is_shown(&io::stderr()) {
        true => inert(&text),
        false => text,
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{}{end}", colored(&text))
}

/// Writes workflow commands to stderr, where the runner reads them as on stdout. They are not escaped again: untrusted
/// text in them already is.
pub fn workflow_commands(lines: &str) {
    bounded::stderr(lines.as_bytes());
}

/// Whether stderr is coloured; set once, before the first message.
static COLORED: OnceLock<bool> = OnceLock::new();

/// Selects colour for stderr: as the flag says, else if stderr is a terminal, unless `NO_COLOR` is set or `TERM` is
/// `dumb`.
pub fn choose_color(color: Color) {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let colored = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => io::stderr().is_terminal() && !set("NO_COLOR") && !dumb,
    };
    let _ = COLORED.set(colored);
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// Colours the severity (`error`, `warning` or `help`) at the beginning of a line or after a source location.
fn colored(text: &str) -> Cow<'_, str> {
    if !COLORED.get().copied().unwrap_or(false) {
        return Cow::Borrowed(text);
    }
    let lines: Vec<String> = text.split('\n').map(colored_line).collect();
    Cow::Owned(lines.join("\n"))
}

fn colored_line(line: &str) -> String {
    for (word, color) in [("error", RED), ("warning", YELLOW), ("help:", CYAN)] {
        let at = match line.find(word) {
            Some(0) => 0,
            Some(at) if line.get(..at).is_some_and(|before| before.ends_with(": ")) => at,
            _ => continue,
        };
        let rest = line.get(at + word.len()..).unwrap_or_default();
        if word.ends_with(':') || rest.starts_with([':', '[']) {
            let before = line.get(..at).unwrap_or_default();
            return format!("{before}{color}{word}{PLAIN}{rest}");
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_says_how_bad_it_is_has_a_colour() {
        assert_eq!(
            colored_line("p.yaml:2:5: error[unknown-key]: x"),
            format!("p.yaml:2:5: {RED}error{PLAIN}[unknown-key]: x")
        );
        assert_eq!(colored_line("warning: y"), format!("{YELLOW}warning{PLAIN}: y"));
        assert_eq!(colored_line("no errors: z"), "no errors: z");
    }
}
