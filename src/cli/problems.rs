//! Prints problems of users' files: text, JSON, GitHub workflow annotations, or SARIF.

use super::args::ProblemFormat;
use super::refusal::Refusal;
use super::{exit, out};
use crate::base::percent::encode_path;
use crate::diag::{self, Diagnostic, Severity, SourceFiles};
use serde_json::{Value, json};

/// The result of checking one file.
pub struct Checked {
    /// As given on the command line.
    pub name: String,
    pub files: SourceFiles,
    pub problems: Vec<Diagnostic>,
    /// A problem without a location, already rendered: the file does not exist or cannot be read.
    pub refused: Option<String>,
    /// Text for people if the file is valid.
    pub text: String,
}

impl Checked {
    /// Whether a run would accept it.
    pub fn is_valid(&self) -> bool {
        self.refused.is_none() && !diag::any_error(&self.problems)
    }
}

/// Prints all results. Returns the exit code: 3 if one file is invalid.
///
/// # Errors
/// stdout cannot be written.
pub fn print(all: &[Checked], format: ProblemFormat) -> Result<u8, Refusal> {
    let valid = all.iter().all(Checked::is_valid);
    match format {
        ProblemFormat::Text => {
            for one in all {
                if let Some(refused) = &one.refused {
                    out::stderr(refused);
                }
                let problems = diag::render_all(&one.files, &one.problems);
                if !problems.is_empty() {
                    out::stderr(&problems);
                }
                if one.is_valid() {
                    printed(&one.text)?;
                }
            }
        }
        ProblemFormat::Json => {
            let files: Vec<Value> = all.iter().map(one_json).collect();
            printed(&format!("{}\n", json!({ "valid": valid, "files": files })))?;
        }
        ProblemFormat::Github => {
            let mut text = String::new();
            for one in all {
                for problem in &one.problems {
                    text.push_str(&diag::github(&one.files, problem));
                    text.push('\n');
                }
                if let Some(refused) = &one.refused {
                    let place = place_of(refused);
                    text.push_str(&format!(
                        "::error file={},line={},col={}::{}\n",
                        diag::github_property(&one.name),
                        place.0,
                        place.1,
                        diag::github_data(message_of(refused))
                    ));
                }
            }
            // Workflow commands must not be escaped here; their values are escaped already.
            out::stdout_bytes(text.as_bytes()).map_err(|error| Refusal::Output(format!("stdout: {error}")))?;
        }
        ProblemFormat::Sarif => printed(&format!("{:#}\n", sarif(all)))?,
    }
    Ok(if valid { exit::PASSED } else { exit::INVALID })
}

fn printed(text: &str) -> Result<(), Refusal> {
    out::stdout_of_others(text).map_err(|error| Refusal::Output(format!("stdout: {error}")))
}

fn one_json(one: &Checked) -> Value {
    let mut problems: Vec<Value> = one
        .problems
        .iter()
        .map(|problem| problem_json(&one.files, problem))
        .collect();
    if let Some(refused) = &one.refused {
        let (line, column) = place_of(refused);
        problems.push(json!({
            "file": one.name,
            "line": line,
            "column": column,
            "severity": "error",
            "code": code_of(refused),
            "message": message_of(refused),
            "help": help_of(refused),
        }));
    }
    json!({ "file": one.name, "valid": one.is_valid(), "problems": problems })
}

/// One problem: `file`, `line`, `column`, `severity`, `code`, `message`, `help`; without location if it concerns the
/// command line.
fn problem_json(files: &SourceFiles, problem: &Diagnostic) -> Value {
    let place = problem.span.map(|span| files.place(span));
    json!({
        "file": place.as_ref().map(|place| place.file.clone()),
        "line": place.as_ref().map(|place| place.line),
        "column": place.as_ref().map(|place| place.column),
        "severity": problem.severity.as_str(),
        "code": problem.code,
        "message": problem.message,
        "help": problem.help,
    })
}

/// SARIF 2.1.0 (OASIS), with the properties that GitHub code scanning requires.
fn sarif(all: &[Checked]) -> Value {
    let mut results = Vec::new();
    for one in all {
        for problem in &one.problems {
            let level = match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            let help = problem
                .help
                .as_ref()
                .map(|help| format!(" ({help})"))
                .unwrap_or_default();
            let place = problem.span.map(|span| one.files.place(span));
            let (file, line, column) =
                place.map_or((one.name.clone(), 1, 1), |place| (place.file, place.line, place.column));
            let message = format!("{}{help}", problem.message);
            results.push(result(level, problem.code, &message, (&file, line, column)));
        }
        if let Some(refused) = &one.refused {
            let (line, column) = place_of(refused);
            results.push(result(
                "error",
                code_of(refused),
                message_of(refused),
                (&one.name, line, column),
            ));
        }
    }
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "overnight", "version": env!("CARGO_PKG_VERSION"), "rules": [] } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(level: &str, code: &str, message: &str, (file, line, column): (&str, usize, usize)) -> Value {
    json!({
        "ruleId": code,
        "level": level,
        "message": { "text": message },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(file) },
            "region": { "startLine": line, "startColumn": column },
        } }],
    })
}

/// A path as a relative reference (RFC 3986).
fn uri(path: &str) -> String {
    encode_path(path.trim_start_matches("./"))
}

/// Line and column of a rendered problem: `FILE:LINE:COLUMN: error[code]: message`.
fn place_of(refused: &str) -> (usize, usize) {
    let first = refused.lines().next().unwrap_or_default();
    let before = first.split(": error[").next().unwrap_or_default();
    let mut numbers = before.rsplit(':').map_while(|part| part.parse().ok());
    let column = numbers.next();
    let line = numbers.next();
    line.zip(column).unwrap_or((1, 1))
}

fn code_of(refused: &str) -> &str {
    let rest = refused.split_once("error[").map_or("", |(_, rest)| rest);
    let code = rest.split(']').next().unwrap_or_default();
    if code.is_empty() { "unreadable" } else { code }
}

fn message_of(refused: &str) -> &str {
    let first = refused.lines().next().unwrap_or_default();
    first.split_once("]: ").map_or(first, |(_, message)| message)
}

fn help_of(refused: &str) -> Option<&str> {
    refused.lines().find_map(|line| line.strip_prefix("help: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_taken_apart() {
        let refused = "ci/a.yaml:3:7: error[no-file]: there is no policy file x\nhelp: name one";
        assert_eq!(place_of(refused), (3, 7));
        assert_eq!(code_of(refused), "no-file");
        assert_eq!(message_of(refused), "there is no policy file x");
        assert_eq!(help_of(refused), Some("name one"));
        assert_eq!(help_of("plain"), None);
        assert_eq!(place_of("plain"), (1, 1));
        assert_eq!(code_of("plain"), "unreadable");
        assert_eq!(uri("./a b/ü.yaml"), "a%20b/%C3%BC.yaml");
    }
}
