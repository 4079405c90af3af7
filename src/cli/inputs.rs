//! Reads the user's files and stdin, up to a limit.

use super::refusal::Refusal;
use super::{shipped, unread_stdin};
use crate::base::sync::lock;
use crate::diag::similar_word;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Mutex;

/// Upper limit in bytes for a file or stdin.
pub const SIZE: u64 = 32 << 20;
/// The most names of a directory among which a misspelt one is looked for.
const MOST_NAMES: usize = 10_000;

/// What is being read, for messages.
static AWAITED: Mutex<Option<String>> = Mutex::new(None);

/// The file or stdin that is being read at the moment, for messages.
pub fn awaited() -> Option<String> {
    lock(&AWAITED).clone()
}

/// Opens what has this name and reads it to its end, at most one byte more than [`SIZE`]. Both may wait for a writer.
fn read_all<R: Read>(name: String, open: impl FnOnce() -> std::io::Result<R>) -> std::io::Result<Vec<u8>> {
    *lock(&AWAITED) = Some(name);
    let mut bytes = Vec::new();
    let read = open().and_then(|from| from.take(SIZE + 1).read_to_end(&mut bytes));
    *lock(&AWAITED) = None;
    read.map(|_| bytes)
}

/// Reads a text file of the user.
///
/// # Errors
/// It is no UTF-8 text or too long (exit code 3), or cannot be read (exit code 8).
pub fn text(path: &Path) -> Result<String, Refusal> {
    utf8(bytes(path)?, &path.display().to_string())
}

/// Reads the text file that a flag or variable names; errors name it too. A missing file is reported like a missing
/// recipe (exit code 3), because it is the user's mistake too and no other machine would have the file.
///
/// # Errors
/// [`Refusal::Invalid`] if the file is missing, a directory, too large or not UTF-8; [`Refusal::Environment`] if it
/// cannot be read.
pub fn text_of(flag: &str, path: &Path) -> Result<String, Refusal> {
    must_exist(flag, path, "name a file that exists")?;
    text(path).map_err(|refusal| match refusal {
        Refusal::Environment(why) => Refusal::Environment(format!("{flag}: {why}")),
        other => other,
    })
}

/// Refuses a path at which there is no file to read. `flag` is what names it.
///
/// # Errors
/// Nothing is there, or a directory (exit code 3). Whatever else makes a file unreadable is found when it is read.
pub fn must_exist(flag: &str, path: &Path, help: &str) -> Result<(), Refusal> {
    let why = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => "it is a directory".to_owned(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => error.to_string(),
        _ => return Ok(()),
    };
    let name = path.display();
    Err(Refusal::Invalid(format!(
        "{name}:1:1: error[no-file]: {flag}: cannot read `{name}`: {why}\nhelp: {help}"
    )))
}

/// Reads a file of the user as bytes.
///
/// # Errors
/// [`Refusal::Environment`] if it cannot be read; [`Refusal::Invalid`] if it is too large.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Refusal> {
    let open = |error: std::io::Error| Refusal::Environment(format!("cannot read `{}`: {error}", path.display()));
    let name = path.display().to_string();
    let bytes = read_all(format!("`{name}`"), || std::fs::File::open(path)).map_err(open)?;
    small_enough(bytes, &name)
}

fn small_enough(bytes: Vec<u8>, name: &str) -> Result<Vec<u8>, Refusal> {
    match bytes.len() as u64 > SIZE {
        true => Err(Refusal::Invalid(format!(
            "{name}:1:1: error[too-large]: more than {} MiB\nhelp: give a smaller file, or its end",
            SIZE >> 20
        ))),
        false => Ok(bytes),
    }
}

/// Decodes bytes as UTF-8; `name` is for messages.
///
/// # Errors
/// [`Refusal::Invalid`] if it is too large or not UTF-8.
pub fn utf8(bytes: Vec<u8>, name: &str) -> Result<String, Refusal> {
    let text = String::from_utf8(small_enough(bytes, name)?).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Refusal::Invalid(format!(
            "{name}:1:1: error[not-utf8]: byte {place} is not UTF-8\nhelp: save it as UTF-8"
        ))
    })?;
    // Editors of some systems write a byte order mark, which no parser of JSON takes.
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Reads a recipe file.
///
/// # Errors
/// [`Refusal::Invalid`] if it is missing (the user's mistake too), a directory, too large or not UTF-8;
/// [`Refusal::Usage`] if it is missing and its name has blanks, like a prompt; [`Refusal::Environment`] if it cannot be
/// read.
pub fn recipe(path: &Path) -> Result<String, Refusal> {
    // `exists` and not `is_file`: a pipe (`<(…)`, /dev/stdin) is allowed too.
    if path.exists() && !path.is_dir() {
        return text(path);
    }
    let name = path.display();
    let words = name.to_string();
    if words.contains(char::is_whitespace) {
        return Err(Refusal::Usage(format!(
            "there is no recipe file `{words}`; for a prompt, write `overnight run -p \"{words}\"`"
        )));
    }
    if path.is_dir() {
        return Err(Refusal::Invalid(format!(
            "{name}:1:1: error[no-file]: {name} is a directory\nhelp: name a recipe file in it; `overnight recipe list {name}` shows them"
        )));
    }
    let stem = path.file_stem().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let shipped = shipped::names().into_iter().find(|shipped| *shipped == stem);
    let shipped = shipped.map(|shipped| format!("builtin:{shipped}"));
    // The bare name of a recipe of this program hardly means a file.
    let meant = match words == stem {
        true => shipped.or_else(|| near_file(path)),
        false => near_file(path).or(shipped),
    };
    let help = match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "`overnight recipe list` shows the recipes of ./recipes and of this program".to_owned(),
    };
    Err(Refusal::Invalid(format!(
        "{name}:1:1: error[no-file]: there is no recipe file {name}\nhelp: {help}"
    )))
}

/// The file in the same directory whose name a missing one is probably a misspelling of.
pub fn near_file(path: &Path) -> Option<String> {
    let wanted = path.file_name()?.to_str()?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let listed = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    // Name and extension are compared each for itself: a common extension makes different short names look alike.
    let parts = |name: &str| match name.rsplit_once('.') {
        Some((stem, extension)) => (stem.to_owned(), extension.to_owned()),
        None => (name.to_owned(), String::new()),
    };
    let (wanted_stem, wanted_extension) = parts(wanted);
    let entries = std::fs::read_dir(listed).ok()?.flatten().take(MOST_NAMES);
    let is_file = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_dir());
    let names = entries
        .filter(is_file)
        .filter_map(|entry| entry.file_name().into_string().ok());
    let is_near = |name: &String| {
        let (stem, extension) = parts(name);
        let is_like = |one: &str, other: &str| similar_word(one, [other]).is_some();
        !stem.is_empty() && is_like(&wanted_stem, &stem) && is_like(&wanted_extension, &extension)
    };
    let names: Vec<String> = names.filter(|name| name.contains('.')).filter(is_near).collect();
    let near = similar_word(wanted, names.iter().map(String::as_str))?;
    Some(dir.join(near).display().to_string())
}

/// Reads stdin to its end.
///
/// # Errors
/// [`Refusal::Usage`] if stdin was read before; [`Refusal::Environment`] if it cannot be read; [`Refusal::Invalid`] if
/// it is too large or not UTF-8.
pub fn stdin() -> Result<String, Refusal> {
    utf8(stdin_bytes()?, "stdin")
}

/// The refusal of a command line on which two options read stdin.
pub fn stdin_twice() -> Refusal {
    Refusal::Usage("stdin (`-`) can be read by one option only: put the others into files".to_owned())
}

/// Reads stdin to its end as bytes.
///
/// # Errors
/// Another option has read it before (exit code 2); it cannot be read (exit code 8), or is too large (exit code 3).
pub fn stdin_bytes() -> Result<Vec<u8>, Refusal> {
    if unread_stdin::was_read() {
        return Err(stdin_twice());
    }
    let read = read_all("stdin".to_owned(), || Ok(std::io::stdin()));
    let bytes = read.map_err(|error| Refusal::Environment(format!("cannot read stdin: {error}")))?;
    small_enough(bytes, "stdin")
}

/// A value that may be text, `-` for stdin, or `@FILE`.
///
/// # Errors
/// As for [`text_of`] and [`stdin`].
pub fn text_or_file(value: &str) -> Result<String, Refusal> {
    match value.strip_prefix('@') {
        // A prompt may begin with a reference (`@src/a.rs explain this`); only a bare file name means a file.
        Some(path) if path.contains(char::is_whitespace) && !Path::new(path).is_file() => Ok(value.to_owned()),
        Some(path) => text_of(&format!("`@{path}`"), Path::new(path)),
        None if value == "-" => stdin(),
        None => Ok(value.to_owned()),
    }
}

/// Reads the file that a flag names, or stdin for `-`.
///
/// # Errors
/// As for [`text_of`] and [`stdin`].
pub fn file_or_stdin(flag: &str, value: &str) -> Result<String, Refusal> {
    match value {
        "-" => stdin(),
        name => text_of(flag, Path::new(name)),
    }
}

/// The name for diagnostics and the text of the file that a flag names; `-` is stdin.
///
/// # Errors
/// As for [`file_or_stdin`].
pub fn named_text(flag: &str, path: &Path) -> Result<(String, String), Refusal> {
    let name = path.display().to_string();
    let text = file_or_stdin(flag, &name)?;
    Ok((if name == "-" { "stdin".to_owned() } else { name }, text))
}

/// JSON from the command line: text, `@FILE`, or `@-` for stdin.
///
/// # Errors
/// [`Refusal::Usage`] if the text is not JSON; otherwise as for [`file_or_stdin`].
pub fn json(value: &str, flag: &str) -> Result<serde_json::Value, Refusal> {
    let text = match value.strip_prefix('@') {
        Some(path) => file_or_stdin(flag, path)?,
        None => value.to_owned(),
    };
    serde_json::from_str(&text).map_err(|error| {
        let help = match error.to_string().contains("key must be a string") {
            true => "; write keys in double quotes, as in {\"a\": 1}",
            false => "",
        };
        Refusal::Usage(format!("{flag}: not JSON: {error}{help}"))
    })
}
