//! Reads the input of a run from the command line, and converts it to the format that the recipe declares.

use super::inputs;
use super::refusal::Refusal;
use crate::base::secret::shortened;
use crate::diag::{Diagnostic, SourceFiles};
use crate::recipe::Recipe;
use crate::recipe::input::{self, ReadInput};
use crate::recipe::plan::InputFormat;
use serde_json::Value;
use std::path::Path;

/// The input before it is parsed.
#[derive(Clone, Debug)]
pub enum GivenInput {
    /// The bytes of a file or of stdin, with the name for messages.
    Bytes { name: String, bytes: Vec<u8> },
    /// A value that another run or a batch recorded.
    Value(Value),
}

impl GivenInput {
    /// Reads the file that the flag names, or stdin for `-`.
    ///
    /// # Errors
    /// The flag's value is JSON instead of a file name (exit code 2); there is no such file (exit code 3); it cannot be
    /// read (exit code 8).
    pub fn of_flag(value: &str) -> Result<Self, Refusal> {
        if value == "-" {
            let bytes = inputs::stdin_bytes()?;
            let name = "stdin".to_owned();
            return Ok(Self::Bytes { name, bytes });
        }
        let path = Path::new(value);
        let is_json = value.trim_start().starts_with(['{', '[', '"']);
        if is_json && !path.exists() {
            let shown = shortened(value, 60);
            return Err(Refusal::Usage(format!(
                "--input takes the name of a file, and there is no file `{shown}`; give JSON itself on stdin: \
                 `echo '{{…}}' | overnight run RECIPE --input -`"
            )));
        }
        inputs::must_exist("--input", path, "--input takes the name of a file, or `-` for stdin")?;
        let bytes = inputs::bytes(path).map_err(|refusal| match refusal {
            Refusal::Environment(why) => Refusal::Environment(format!("--input: {why}")),
            other => other,
        })?;
        Ok(Self::Bytes {
            name: value.to_owned(),
            bytes,
        })
    }

    /// Reads the input as a JSON value from a file, as a batch writes it for its jobs.
    ///
    /// # Errors
    /// The file cannot be read, or is not JSON.
    pub fn of_value_file(path: &Path) -> Result<Self, Refusal> {
        let text = inputs::text(path)?;
        let value = serde_json::from_str(&text)
            .map_err(|error| Refusal::Environment(format!("`{}`: {error}", path.display())))?;
        Ok(Self::Value(value))
    }

    /// The input in the format of the recipe. Problems are added with their positions; `None` if there are any. If the
    /// recipe declares no input, the value is null, and the caller reports that it takes none.
    pub fn read(&self, recipe: &Recipe, files: &mut SourceFiles, problems: &mut Vec<Diagnostic>) -> Option<ReadInput> {
        let (name, bytes) = match self {
            Self::Value(value) => {
                return Some(ReadInput {
                    value: value.clone(),
                    lines: Vec::new(),
                });
            }
            Self::Bytes { name, bytes } => (name, bytes),
        };
        match &recipe.input {
            None => Some(ReadInput::default()),
            Some(spec) => of_bytes(name, bytes, spec.format, files, problems),
        }
    }

    /// The JSON document for a prompt of the command line.
    ///
    /// # Errors
    /// It is not JSON (exit code 3).
    pub fn json(&self) -> Result<Value, Refusal> {
        let mut files = SourceFiles::default();
        let mut problems = Vec::new();
        let read = match self {
            Self::Value(value) => return Ok(value.clone()),
            Self::Bytes { name, bytes } => of_bytes(name, bytes, InputFormat::Json, &mut files, &mut problems),
        };
        read.map(|read| read.value).ok_or_else(|| {
            for problem in &mut problems {
                problem.help = Some(
                    "with a prompt, --input takes one JSON document; other text is appended to the prompt by --stdin"
                        .to_owned(),
                );
            }
            Refusal::of_problems(&problems, &files)
        })
    }
}

fn of_bytes(
    name: &str,
    bytes: &[u8],
    format: InputFormat,
    files: &mut SourceFiles,
    problems: &mut Vec<Diagnostic>,
) -> Option<ReadInput> {
    let text = match format {
        // A log may contain any bytes, but an argument of a command cannot contain NUL.
        InputFormat::Text => Ok(String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")),
        InputFormat::Json | InputFormat::Jsonl => String::from_utf8(bytes.to_vec()),
    };
    match text {
        Ok(text) if format == InputFormat::Json && text.trim().is_empty() => {
            let file = files.add(name, text);
            let problem = Diagnostic::error("not-json", files.whole(file).point(), format!("{name} is empty"));
            problems
                .push(problem.help("the input is one JSON document; if a command writes it, look whether that failed"));
            None
        }
        Ok(text) if format == InputFormat::Text && text.trim().is_empty() => {
            let file = files.add(name, text);
            let problem = Diagnostic::error("no-input", files.whole(file).point(), format!("{name} is empty"));
            problems.push(
                problem.help("if a command writes it, look whether that failed; omit --input where there is none"),
            );
            None
        }
        Ok(text) => {
            let replaced = format == InputFormat::Text && text.as_bytes() != bytes;
            let file = files.add(name, text);
            if replaced {
                let start = files.whole(file).point();
                let problem = Diagnostic::warning(
                    "not-utf8",
                    start,
                    "the text contains bytes that are not UTF-8, or NUL; they are shown as \u{fffd}",
                );
                problems.push(problem.help("save it as UTF-8 where these bytes matter"));
            }
            input::read(files, file, format, problems)
        }
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let file = files.add(name, String::from_utf8_lossy(bytes.get(..good).unwrap_or_default()));
            let end = crate::diag::Span {
                start: good,
                end: good,
                ..files.whole(file)
            };
            let problem = Diagnostic::error("not-utf8", end, format!("byte {good} is not UTF-8"));
            problems.push(problem.help("save it as UTF-8, or declare `input: { format: text }` in the recipe"));
            None
        }
    }
}
