//! What the user gives: recipe, policies, parameters, input, prompt. Reads; judges none of it.

use super::origin;
use super::refusal::Refusal;
use crate::policy::{Source, presets};
use std::io::Read;
use std::path::Path;

/// The largest file or stdin that is taken in.
pub const SIZE: u64 = 32 << 20;

/// The text of a user's file.
pub fn text(path: &Path) -> Result<String, Refusal> {
    let open = |error: std::io::Error| Refusal::Environment(format!("cannot read {}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(open)?;
    let mut bytes = Vec::new();
    file.take(SIZE + 1).read_to_end(&mut bytes).map_err(open)?;
    utf8(bytes, &path.display().to_string())
}

/// Bytes as text; `name` is for messages.
pub fn utf8(bytes: Vec<u8>, name: &str) -> Result<String, Refusal> {
    if bytes.len() as u64 > SIZE {
        return Err(Refusal::Invalid(format!(
            "{name}:1:1: error[too-large]: more than {} MiB",
            SIZE >> 20
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Refusal::Invalid(format!(
            "{name}:1:1: error[not-utf8]: byte {place} is not UTF-8\nhelp: save it as UTF-8"
        ))
    })
}

/// A recipe file: one that is not there is the user's mistake, as a wrong one is.
pub fn recipe(path: &Path) -> Result<String, Refusal> {
    if path.is_file() {
        return text(path);
    }
    let name = path.display();
    Err(Refusal::Invalid(format!(
        "{name}:1:1: error[no-file]: there is no recipe file {name}\nhelp: `overnight recipe list` shows the recipes of ./recipes"
    )))
}

/// stdin to its end.
pub fn stdin() -> Result<String, Refusal> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(SIZE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Refusal::Environment(format!("cannot read stdin: {error}")))?;
    utf8(bytes, "stdin")
}

/// A value that may be text, `-` for stdin or `@FILE`.
pub fn text_or_file(value: &str) -> Result<String, Refusal> {
    match value.strip_prefix('@') {
        // A prompt that begins with a reference (`@src/a.rs explain this`) is a prompt; a file's name alone is a file.
        Some(path) if path.contains(char::is_whitespace) && !Path::new(path).is_file() => Ok(value.to_owned()),
        Some(path) => text(Path::new(path)),
        None if value == "-" => stdin(),
        None => Ok(value.to_owned()),
    }
}

/// A file, or stdin for `-`.
pub fn file_or_stdin(value: &str) -> Result<String, Refusal> {
    if value == "-" { stdin() } else { text(Path::new(value)) }
}

/// JSON of the command line: text or `@FILE`.
pub fn json(value: &str, flag: &str) -> Result<serde_json::Value, Refusal> {
    let text = match value.strip_prefix('@') {
        Some(path) => text(Path::new(path))?,
        None => value.to_owned(),
    };
    serde_json::from_str(&text).map_err(|error| Refusal::Usage(format!("{flag}: not JSON: {error}")))
}

/// The policies that the command line names: files, `builtin:NAME`, `git:REV:PATH`, `-`.
pub async fn policies(names: &[String], workspace: &Path) -> Result<Vec<Source>, Refusal> {
    let mut sources = Vec::new();
    for name in names {
        sources.push(policy(name, workspace).await?);
    }
    Ok(sources)
}

/// A preset by its name.
pub fn builtin(name: &str) -> Result<Source, Refusal> {
    let text = presets::text(name, &[]).ok_or_else(|| {
        Refusal::Invalid(format!(
            "{name}:1:1: error[unknown-preset]: there is no preset {name}\nhelp: builtin:read-only, builtin:edit or builtin:build"
        ))
    })?;
    Ok(Source {
        name: name.to_owned(),
        text,
    })
}

async fn policy(name: &str, workspace: &Path) -> Result<Source, Refusal> {
    let text = if name.starts_with("builtin:") {
        return builtin(name);
    } else if name.starts_with("git:") {
        let (commit, path) = origin::committed(name, workspace).await?;
        origin::text_of(name, &commit, &path).await?
    } else if name == "-" {
        stdin()?
    } else {
        let path = Path::new(name);
        if !path.is_file() {
            return Err(Refusal::Invalid(format!(
                "{name}:1:1: error[no-file]: there is no policy file {name}\nhelp: name a file, builtin:read-only, builtin:edit, builtin:build or git:REV:PATH"
            )));
        }
        text(path)?
    };
    Ok(Source {
        name: name.to_owned(),
        text,
    })
}
