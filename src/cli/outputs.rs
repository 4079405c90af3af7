//! The files that a run leaves, made from its journal, and what goes to stdout. Decides no verdict but that of writing.

use super::args::{Format, Shared};
use super::{exit, out};
use crate::base::event::Event;
use crate::base::outcome::{Outcome, Verdict};
use crate::journal::{self, JournalError, artefacts};
use crate::report::result::{Ending, RunResult};
use crate::report::summary::RunSummary;
use crate::report::transcript::Declared;
use crate::report::{html, junit, markdown, result, stream, suspension, transcript};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the copies that flags ask for go.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    pub patch: Option<PathBuf>,
    pub junit: Option<PathBuf>,
    pub transcript: Option<PathBuf>,
}

impl From<&Shared> for Copies {
    fn from(shared: &Shared) -> Self {
        Self {
            patch: shared.patch.clone(),
            junit: shared.junit.clone(),
            transcript: shared.transcript.clone(),
        }
    }
}

/// What was written, and the code that follows.
pub struct Written {
    pub result: RunResult,
    pub code: u8,
    /// What could not be written.
    pub problems: Vec<String>,
}

/// Makes all files of a run directory again from its journal.
pub fn write(dir: &Path, copies: &Copies) -> Result<Written, JournalError> {
    let events = journal::read(dir)?.events;
    let sum = RunSummary::fold(&events);
    let mut code = exit::code(&sum.outcome);
    let mut files = Files {
        dir,
        names: BTreeMap::new(),
        problems: Vec::new(),
    };
    files.patch(&sum, copies.patch.as_deref());
    let ending = |files: &Files<'_>, code: u8| Ending {
        exit_code: i32::from(code),
        artefacts: files.names.clone(),
    };
    for (name, file) in NAMES {
        files.names.insert((*name).to_owned(), dir.join(file).display().to_string());
    }
    let so_far = ending(&files, code);
    files.put("transcript.json", transcript::json(&sum, declared(&sum), &so_far).as_bytes(), copies.transcript.as_deref());
    match junit::xml(&sum, &so_far) {
        Ok(xml) => files.put("junit.xml", xml.as_bytes(), copies.junit.as_deref()),
        Err(error) => files.problems.push(format!("junit.xml: {error}")),
    }
    let patch = patch_bytes(dir, &sum).unwrap_or_default();
    files.put("report.html", html::page(&sum, &so_far, &patch).as_bytes(), None);
    files.put("summary.md", markdown::summary(&sum, &so_far).as_bytes(), None);
    if let Some((json, text)) = suspension::files(&sum) {
        files.put("suspension.json", json.as_bytes(), None);
        files.put("suspension.md", text.as_bytes(), None);
    }
    if !files.problems.is_empty() {
        code = exit::stronger(code, exit::OUTPUT);
    }
    let mut object = result::result(&sum, &ending(&files, code));
    if code == exit::OUTPUT {
        object.verdict = Verdict::Output;
        object.message = format!("{}; and not written: {}", object.message, files.problems.join("; "));
    }
    files.put("result.json", object.to_pretty().as_bytes(), None);
    if !files.problems.is_empty() {
        code = exit::stronger(code, exit::OUTPUT);
        object.exit_code = i32::from(code);
    }
    Ok(Written {
        result: object,
        code,
        problems: files.problems,
    })
}

/// The names under which `result.json` lists the files that every run has.
const NAMES: &[(&str, &str)] = &[
    ("journal", "journal.jsonl"),
    ("transcript", "transcript.json"),
    ("junit", "junit.xml"),
    ("report", "report.html"),
    ("summary", "summary.md"),
    ("result", "result.json"),
];

struct Files<'a> {
    dir: &'a Path,
    names: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl Files<'_> {
    fn put(&mut self, name: &str, bytes: &[u8], copy: Option<&Path>) {
        let own = self.dir.join(name);
        for path in std::iter::once(own.as_path()).chain(copy) {
            if let Err(error) = artefacts::write(path, bytes) {
                self.problems.push(error.to_string());
            }
        }
    }

    fn patch(&mut self, sum: &RunSummary<'_>, copy: Option<&Path>) {
        const FILE: &str = "changes.patch";
        let own = self.dir.join(FILE);
        match patch_bytes(self.dir, sum) {
            Ok(bytes) if bytes.is_empty() => {
                // A file of an earlier session, or of an earlier run at the same place, would pass for this run's.
                for stale in std::iter::once(own.as_path()).chain(copy).filter(|path| path.is_file()) {
                    if let Err(error) = std::fs::remove_file(stale) {
                        self.problems.push(format!("{}: {error}", stale.display()));
                    }
                }
            }
            Ok(bytes) => {
                self.put(FILE, &bytes, copy);
                self.names.insert("patch".to_owned(), own.display().to_string());
            }
            Err(error) => self.problems.push(error.to_string()),
        }
    }
}

/// The patch of a run; empty when nothing changed.
pub fn patch_bytes(dir: &Path, sum: &RunSummary<'_>) -> Result<Vec<u8>, JournalError> {
    match sum.patch.and_then(|patch| patch.blob.as_ref()) {
        Some(blob) => artefacts::read_blob(dir, blob),
        None => Ok(Vec::new()),
    }
}

/// What the model was told beside the messages.
pub fn declared<'a>(sum: &RunSummary<'a>) -> Declared<'a> {
    Declared {
        system: sum.equipped.map(|equipped| equipped.system.as_str()),
        tools: sum.equipped.map(|equipped| equipped.tools.as_slice()).unwrap_or_default(),
    }
}

/// Writes what there is of a run that never started: `result.json` and JUnit.
pub fn write_unstarted(
    dir: Option<&Path>,
    copies: &Copies,
    recipe: &str,
    verdict: Verdict,
    message: &str,
) -> Written {
    let outcome = Outcome::new(verdict, verdict.as_str(), message);
    let mut code = exit::code(&outcome);
    let mut problems = Vec::new();
    let mut ending = Ending {
        exit_code: i32::from(code),
        artefacts: BTreeMap::new(),
    };
    let mut put = |path: &Path, bytes: &[u8]| match artefacts::write(path, bytes) {
        Ok(()) => true,
        Err(error) => {
            problems.push(error.to_string());
            false
        }
    };
    let xml = junit::unstarted(verdict, recipe, message, &ending).unwrap_or_default();
    if let Some(path) = &copies.junit {
        put(path, xml.as_bytes());
    }
    if let Some(dir) = dir {
        if put(&dir.join("junit.xml"), xml.as_bytes()) {
            ending.artefacts.insert("junit".to_owned(), dir.join("junit.xml").display().to_string());
        }
        ending.artefacts.insert("result".to_owned(), dir.join("result.json").display().to_string());
    }
    let mut object = result::unstarted(verdict, recipe, message, &ending);
    if let Some(dir) = dir {
        put(&dir.join("result.json"), object.to_pretty().as_bytes());
    }
    if !problems.is_empty() {
        code = exit::stronger(code, exit::OUTPUT);
        object.exit_code = i32::from(code);
        if code == exit::OUTPUT {
            object.verdict = Verdict::Output;
        }
    }
    Written {
        result: object,
        code,
        problems,
    }
}

/// Prints the result in the form that was asked for. Gives the code, which a stdout that fails makes 9.
pub fn print(format: Format, written: &Written) -> u8 {
    for problem in &written.problems {
        out::tell(&format!("error: not written: {problem}"));
    }
    let text = match format {
        Format::Text => result::text(&written.result),
        Format::Json => written.result.to_line(),
        Format::StreamJson => stream::last(&written.result),
    };
    match out::stdout(&text) {
        Ok(()) => written.code,
        Err(error) => {
            out::tell(&format!("error: stdout: {error}"));
            exit::stronger(written.code, exit::OUTPUT)
        }
    }
}

/// The fold of a run directory, for commands that make one output.
pub fn events(dir: &Path) -> Result<Vec<Event>, JournalError> {
    Ok(journal::read(dir)?.events)
}
