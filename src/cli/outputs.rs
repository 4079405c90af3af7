//! The files that a run leaves, made from its journal, and what goes to stdout. Decides no verdict but that of writing.

use super::args::{Format as Stdout, Shared};
use super::{exit, out};
use crate::base::outcome::{Outcome, Verdict};
use crate::journal::{self, JournalError, artefacts};
use crate::report::export::{self, Beside, Format};
use crate::report::result::{Ending, RunResult};
use crate::report::summary::RunSummary;
use crate::report::transcript::Declared;
use crate::report::{junit, result, stream};
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
    let mut files = Files {
        dir,
        names: BTreeMap::from([("journal".to_owned(), dir.join("journal.jsonl").display().to_string())]),
        problems: Vec::new(),
    };
    let patch = patch_bytes(dir, &sum).unwrap_or_else(|error| {
        files.problems.push(error.to_string());
        Vec::new()
    });
    let patch = (!patch.is_empty()).then_some(patch);
    let wanted = wanted(&sum, copies, patch.is_some());
    for (format, _) in &wanted {
        files.name(*format);
    }
    if patch.is_none() {
        files.remove_stale(Format::Patch, copies.patch.as_deref());
    }
    let mut code = exit::code(&sum.outcome);
    let mut ending = Ending {
        exit_code: i32::from(code),
        artefacts: files.names.clone(),
    };
    let beside = |ending| Beside {
        ending,
        declared: declared(&sum),
        patch: patch.as_deref(),
    };
    for (format, copy) in wanted.iter().filter(|(format, _)| *format != Format::Result) {
        match export::render(*format, &sum, beside(&ending)) {
            Ok(bytes) => files.put(*format, &bytes, *copy),
            Err(error) => files.problems.push(format!("{}: {error}", format.as_str())),
        }
    }
    let unwritten = |object: &mut RunResult, code: u8, problems: &[String]| {
        object.exit_code = i32::from(code);
        object.verdict = Verdict::Output;
        object.message = format!("{}; not written: {}", object.message, problems.join("; "));
    };
    if !files.problems.is_empty() {
        code = exit::stronger(code, exit::OUTPUT);
        ending.exit_code = i32::from(code);
    }
    let mut object = result::result(&sum, &ending);
    if code == exit::OUTPUT {
        unwritten(&mut object, code, &files.problems);
    }
    files.put(Format::Result, object.to_pretty().as_bytes(), None);
    if !files.problems.is_empty() && code != exit::OUTPUT {
        code = exit::stronger(code, exit::OUTPUT);
        unwritten(&mut object, code, &files.problems);
    }
    Ok(Written {
        result: object,
        code,
        problems: files.problems,
    })
}

/// The files of this run, each with the copy that a flag asks for.
fn wanted<'a>(sum: &RunSummary<'_>, copies: &'a Copies, changed: bool) -> Vec<(Format, Option<&'a Path>)> {
    let mut wanted = vec![
        (Format::Transcript, copies.transcript.as_deref()),
        (Format::Junit, copies.junit.as_deref()),
        (Format::Html, None),
        (Format::Summary, None),
        (Format::Result, None),
    ];
    if changed {
        wanted.push((Format::Patch, copies.patch.as_deref()));
    }
    if sum.suspended().next().is_some() {
        wanted.extend([(Format::Suspension, None), (Format::Review, None)]);
    }
    wanted
}

struct Files<'a> {
    dir: &'a Path,
    names: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl Files<'_> {
    fn path(&self, format: Format) -> Option<PathBuf> {
        format.file().map(|file| self.dir.join(file))
    }

    fn name(&mut self, format: Format) {
        if let Some(path) = self.path(format) {
            self.names
                .insert(format.as_str().to_owned(), path.display().to_string());
        }
    }

    fn put(&mut self, format: Format, bytes: &[u8], copy: Option<&Path>) {
        let own = self.path(format);
        for path in own.iter().map(PathBuf::as_path).chain(copy) {
            if let Err(error) = artefacts::write(path, bytes) {
                self.problems.push(error.to_string());
            }
        }
    }

    /// A file of an earlier session, or of an earlier run at the same place, would pass for this run's.
    fn remove_stale(&mut self, format: Format, copy: Option<&Path>) {
        let own = self.path(format);
        for stale in own
            .iter()
            .map(PathBuf::as_path)
            .chain(copy)
            .filter(|path| path.is_file())
        {
            if let Err(error) = std::fs::remove_file(stale) {
                self.problems.push(format!("{}: {error}", stale.display()));
            }
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
        tools: sum
            .equipped
            .map(|equipped| equipped.tools.as_slice())
            .unwrap_or_default(),
    }
}

/// Writes what there is of a run that never started: `result.json` and JUnit.
pub fn write_unstarted(dir: Option<&Path>, copies: &Copies, recipe: &str, verdict: Verdict, message: &str) -> Written {
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
            ending
                .artefacts
                .insert("junit".to_owned(), dir.join("junit.xml").display().to_string());
        }
        ending
            .artefacts
            .insert("result".to_owned(), dir.join("result.json").display().to_string());
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
pub fn print(format: Stdout, written: &Written) -> u8 {
    for problem in &written.problems {
        out::tell(&format!("error: not written: {problem}"));
    }
    let text = match format {
        Stdout::Text => result::text(&written.result),
        Stdout::Json => written.result.to_line(),
        Stdout::StreamJson => stream::last(&written.result),
    };
    match out::stdout(&text) {
        Ok(()) => written.code,
        Err(error) => {
            out::tell(&format!("error: stdout: {error}"));
            exit::stronger(written.code, exit::OUTPUT)
        }
    }
}

/// The files that a run directory has, by name.
pub fn existing(dir: &Path) -> BTreeMap<String, String> {
    let files = Format::ALL
        .into_iter()
        .filter_map(|format| Some((format.as_str(), dir.join(format.file()?))));
    files
        .chain([("journal", dir.join("journal.jsonl"))])
        .filter(|(_, path)| path.exists())
        .map(|(name, path)| (name.to_owned(), path.display().to_string()))
        .collect()
}
