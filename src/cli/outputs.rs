//! Writes the output files of a run from its journal, and prints the result on stdout.

mod files;

pub use files::{Copy, NOTE};

use self::files::OutputFiles;
use super::args::{RunFlags, StdoutFormat as Stdout};
use super::{environment, exit, out};
use crate::base::event::Event;
use crate::base::ids::sha256_hex;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::base::quote::shell_word;
use crate::journal::{self, Journal, JournalError, artefacts, chain_key, state_dir};
use crate::report::export::{self, RenderContext, ReportFile};
use crate::report::result::{JournalHead, OutputFacts, RunResult, Waiting};
use crate::report::summary::RunSummary;
use crate::report::transcript::DeclaredPrompt;
use crate::report::{junit, result, stream};
use std::collections::BTreeMap;
use std::path::Path;

/// The message for `git am` that a delivery leaves in the run directory.
pub const MBOX: &str = "changes.mbox";

/// Additional output paths that flags name.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    pub patch: Option<Copy>,
    pub junit: Option<Copy>,
    pub transcript: Option<Copy>,
}

impl Copies {
    /// Those that can be written again: files, but no device and no pipe.
    pub fn replaced(&self) -> Self {
        Self {
            patch: self.patch.clone().filter(Copy::is_replaced),
            junit: self.junit.clone().filter(Copy::is_replaced),
            transcript: self.transcript.clone().filter(Copy::is_replaced),
        }
    }
}

impl From<&RunFlags> for Copies {
    fn from(shared: &RunFlags) -> Self {
        Self {
            patch: Copy::of(&shared.patch),
            junit: Copy::of(&shared.junit),
            transcript: Copy::of(&shared.transcript),
        }
    }
}

/// The result of writing, with its exit code.
pub struct WrittenOutputs {
    pub result: RunResult,
    pub code: u8,
    /// Files that could not be written, and why.
    pub problems: Vec<String>,
}

/// Writes all files of a run from its journal in `home`. If the journal was moved out of reach of commands, the files
/// are also written to the run directory, and they name the paths there. `tree`: the user's workspace; `unwritten`: an
/// output that could not be written before these files.
///
/// # Errors
/// [`JournalError`] if the journal, a blob or a kept file cannot be read, or the key is not valid. A file that cannot
/// be written is one of the problems of the result.
pub fn write(
    home: &Path,
    tree: &Path,
    copies: &Copies,
    unwritten: Option<String>,
) -> Result<WrittenOutputs, JournalError> {
    write_read(home, tree, copies, unwritten, None)
}

/// How a run ended whose journal could not be continued, what the journal could not take, and what it had, for the case
/// that it is no longer found.
pub type UnrecordedEnd = (RunOutcome, Option<Event>, Option<Journal>);

/// Like [`write`], of a run whose journal could not be continued.
///
/// # Errors
/// As for [`write`].
pub fn write_unrecorded_end(
    home: &Path,
    tree: &Path,
    copies: &Copies,
    broken: UnrecordedEnd,
) -> Result<WrittenOutputs, JournalError> {
    write_read(home, tree, copies, None, Some(broken))
}

fn write_read(
    home: &Path,
    tree: &Path,
    copies: &Copies,
    unwritten: Option<String>,
    broken: Option<UnrecordedEnd>,
) -> Result<WrittenOutputs, JournalError> {
    let (outcome, event, had) = broken.map_or((None, None, None), |(outcome, event, had)| (Some(outcome), event, had));
    let mut journal = match (journal::read(home), had) {
        (Err(JournalError::Missing(_)), Some(had)) => had,
        (read, _) => read?,
    };
    let journal_head = head(&journal);
    journal.events.extend(event);
    let mut sum = RunSummary::fold(&journal.events);
    if let Some(outcome) = outcome {
        sum.outcome = outcome;
    }
    let mut files = OutputFiles::of(home, tree);
    files.problems.extend(unwritten);
    let patch = patch_bytes(home, &sum).unwrap_or_else(|error| {
        files.problems.push(error.to_string());
        Vec::new()
    });
    let patch = (!patch.is_empty()).then_some(patch);
    let wanted = wanted(&sum, copies, patch.is_some());
    for (format, _) in &wanted {
        files.name(*format);
    }
    for format in [ReportFile::Patch, ReportFile::Suspension, ReportFile::Review] {
        if !wanted.iter().any(|(wanted, _)| *wanted == format) {
            let copy = copies.patch.as_ref().filter(|_| format == ReportFile::Patch);
            files.remove_stale(format, copy);
        }
    }
    let mut code = exit::code(&sum.outcome);
    let mut ending = OutputFacts {
        exit_code: i32::from(code),
        artefacts: files.names.clone(),
        ..OutputFacts::default()
    };
    put_all(&mut files, &wanted, &sum, &ending, patch.as_deref());
    if !files.problems.is_empty() {
        code = exit::stronger(code, exit::OUTPUT);
        ending.exit_code = i32::from(code);
        if code == exit::OUTPUT {
            sum.outcome = unwritten_outcome(&sum.outcome, &files.problems);
        }
        // Those that could be written must not claim another ending than that of the process.
        let again: Vec<_> = wanted
            .iter()
            .filter(|(format, _)| *format != ReportFile::Patch)
            .map(|(format, copy)| (*format, copy.filter(|copy| copy.is_replaced())))
            .collect();
        put_all(&mut files, &again, &sum, &ending, patch.as_deref());
    }
    ending.journal = Some(journal_head);
    ending.digests = std::mem::take(&mut files.digests);
    ending.digests.extend(kept_digests(home)?);
    let mut object = result::result(&sum, &ending);
    seal(&mut object, journal.keyed)?;
    let known = files.problems.len();
    files.put(ReportFile::Result, object.to_pretty().as_bytes(), None);
    if files.problems.len() > known && code != exit::OUTPUT {
        code = add_unwritten(code, &mut object);
        object.message = format!("{}; not written: {}", object.message, files.problems.join("; "));
    }
    Ok(WrittenOutputs {
        result: object,
        code,
        problems: files.problems,
    })
}

/// Writes the files of a run except its result. A problem that is known is not added again.
fn put_all(
    files: &mut OutputFiles<'_>,
    wanted: &[(ReportFile, Option<&Copy>)],
    sum: &RunSummary<'_>,
    ending: &OutputFacts,
    patch: Option<&[u8]>,
) {
    for (format, copy) in wanted.iter().filter(|(format, _)| *format != ReportFile::Result) {
        let beside = RenderContext {
            ending,
            declared: declared(sum),
            patch,
        };
        match export::render(*format, sum, beside) {
            Ok(bytes) => files.put(*format, &bytes, *copy),
            Err(error) => files.note(format!("{}: {error}", format.as_str())),
        }
    }
}

/// The outcome of a run whose outputs could not all be written.
pub fn unwritten_outcome(outcome: &RunOutcome, problems: &[String]) -> RunOutcome {
    let message = format!("{}; not written: {}", outcome.message, problems.join("; "));
    RunOutcome {
        partial: outcome.partial,
        ..RunOutcome::new(Verdict::Output, Verdict::Output.as_str(), message)
    }
}

/// Adds to a result with the exit code `code` that outputs could not be written. Returns the code that applies then; the
/// verdict is changed only if it is the code of unwritten outputs.
#[must_use]
pub fn add_unwritten(code: u8, object: &mut RunResult) -> u8 {
    let code = exit::stronger(code, exit::OUTPUT);
    object.exit_code = i32::from(code);
    if code == exit::OUTPUT {
        object.verdict = Verdict::Output;
        object.reason = Verdict::Output.as_str().to_owned();
    }
    code
}

/// Length and head of a journal, for the result.
pub fn head(journal: &journal::Journal) -> JournalHead {
    JournalHead {
        head: journal.chain.clone(),
        events: journal.events.len() as u64,
        seal: None,
    }
}

/// Adds a MAC over the result, including the digests, if the journal is keyed.
///
/// # Errors
/// [`JournalError::Key`] if the key in the environment is not valid.
pub fn seal(object: &mut RunResult, keyed: bool) -> Result<(), JournalError> {
    if let Some(key) = chain_key::key()?.filter(|_| keyed) {
        let text = object.to_value().to_string();
        let seal = key.mac(&[SEAL, text.as_bytes()]);
        if let Some(journal) = &mut object.journal {
            journal.seal = Some(seal);
        }
    }
    Ok(())
}

/// Prefix of the MAC input of a result, so that its MAC never equals that of a journal line.
pub const SEAL: &[u8] = b"overnight/result\n";

/// Digests of blobs, kept results and patches of what was put back, by their path in the run directory.
fn kept_digests(home: &Path) -> Result<BTreeMap<String, String>, JournalError> {
    let mut digests = BTreeMap::new();
    for kind in ["blobs", "results", artefacts::PUT_BACK] {
        let dir = home.join(kind);
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(JournalError::read(&dir))?,
        };
        for entry in entries {
            let entry = entry.map_err(JournalError::read(&dir))?;
            let name = format!("{kind}/{}", entry.file_name().to_string_lossy());
            digests.insert(name, file_digest(&entry.path())?);
        }
    }
    Ok(digests)
}

/// Digests of all files of a run except journal and result.
///
/// # Errors
/// [`JournalError::Read`] if a directory or file of the run cannot be read.
pub fn digests(home: &Path) -> Result<BTreeMap<String, String>, JournalError> {
    let mut digests = kept_digests(home)?;
    for file in ReportFile::ALL
        .into_iter()
        .filter(|format| *format != ReportFile::Result)
        .filter_map(ReportFile::file)
    {
        let path = home.join(file);
        if std::fs::symlink_metadata(&path).is_ok() {
            digests.insert(file.to_owned(), file_digest(&path)?);
        }
    }
    Ok(digests)
}

/// The digest of a file; for a link, of its target path.
///
/// # Errors
/// [`JournalError::Read`].
pub fn file_digest(path: &Path) -> Result<String, JournalError> {
    let read = || match std::fs::symlink_metadata(path)?.is_symlink() {
        true => Ok(format!("link to {}", std::fs::read_link(path)?.display()).into_bytes()),
        false => std::fs::read(path),
    };
    let bytes = read().map_err(JournalError::read(path))?;
    Ok(sha256_hex(&[&bytes]))
}

/// The files of this run, each with the additional copy that a flag names.
fn wanted<'a>(sum: &RunSummary<'_>, copies: &'a Copies, changed: bool) -> Vec<(ReportFile, Option<&'a Copy>)> {
    let mut wanted = vec![
        (ReportFile::Transcript, copies.transcript.as_ref()),
        (ReportFile::Junit, copies.junit.as_ref()),
        (ReportFile::Html, None),
        (ReportFile::Summary, None),
        (ReportFile::Result, None),
    ];
    if changed {
        wanted.push((ReportFile::Patch, copies.patch.as_ref()));
    }
    if sum.suspended().next().is_some() {
        wanted.extend([(ReportFile::Suspension, None), (ReportFile::Review, None)]);
    }
    wanted
}

/// The patch of a run; empty if nothing changed.
///
/// # Errors
/// [`JournalError::Read`] if its blob is missing or cannot be read; [`JournalError::Damaged`] if it does not have its
/// hash.
pub fn patch_bytes(dir: &Path, sum: &RunSummary<'_>) -> Result<Vec<u8>, JournalError> {
    match sum.patch.and_then(|patch| patch.blob.as_ref()) {
        Some(blob) => artefacts::read_blob(dir, blob),
        None => Ok(Vec::new()),
    }
}

/// What the model receives besides messages: system prompt and tools.
pub fn declared<'a>(sum: &RunSummary<'a>) -> DeclaredPrompt<'a> {
    DeclaredPrompt {
        system: sum.equipped.map(|equipped| equipped.system.as_str()),
        tools: sum
            .equipped
            .map(|equipped| equipped.tools.as_slice())
            .unwrap_or_default(),
    }
}

/// The result of a command that could not start, for stdout only.
pub fn unstarted(outcome: &RunOutcome, recipe: &str) -> WrittenOutputs {
    let code = exit::code(outcome);
    let ending = OutputFacts {
        exit_code: i32::from(code),
        ..OutputFacts::default()
    };
    WrittenOutputs {
        result: result::unstarted(outcome, recipe, &ending),
        code,
        problems: Vec::new(),
    }
}

/// Writes the outputs of a run that never started: `result.json` and JUnit. Removes patch and transcript of an earlier run
/// from the paths that flags name. `outcome`: why it did not start. The result names absolute paths, as that of a run: another
/// step of a job may read it in another directory.
pub fn write_unstarted(dir: Option<&Path>, copies: &Copies, recipe: &str, outcome: &RunOutcome) -> WrittenOutputs {
    let (verdict, message) = (outcome.verdict, outcome.message.as_str());
    let dir = dir.map(environment::absolute);
    let dir = dir.as_deref();
    let mut code = exit::code(outcome);
    let mut problems = Vec::new();
    let mut ending = OutputFacts {
        exit_code: i32::from(code),
        ..OutputFacts::default()
    };
    let mut noted = |done: Result<(), String>| match done {
        Ok(()) => true,
        Err(problem) => {
            problems.push(problem);
            false
        }
    };
    let replace = |path: &Path, bytes: &[u8]| artefacts::replace(path, bytes).map_err(|error| error.to_string());
    let xml = junit::unstarted(verdict, recipe, message, &ending).unwrap_or_default();
    if let Some(copy) = &copies.junit {
        noted(copy.write(xml.as_bytes()));
    }
    for stale in [&copies.patch, &copies.transcript].into_iter().flatten() {
        noted(stale.remove());
    }
    if let Some(dir) = dir {
        noted(artefacts::make_run_dir(dir).map_err(|error| error.to_string()));
        if noted(replace(&dir.join("junit.xml"), xml.as_bytes())) {
            ending
                .artefacts
                .insert("junit".to_owned(), dir.join("junit.xml").display().to_string());
        }
        for (name, path) in [("result", dir.join("result.json")), (result::DIRECTORY, dir.to_owned())] {
            ending.artefacts.insert(name.to_owned(), path.display().to_string());
        }
    }
    let mut object = result::unstarted(outcome, recipe, &ending);
    if let Some(dir) = dir {
        noted(replace(&dir.join("result.json"), object.to_pretty().as_bytes()));
    }
    if !problems.is_empty() {
        code = add_unwritten(code, &mut object);
    }
    WrittenOutputs {
        result: object,
        code,
        problems,
    }
}

/// Waiting calls that are named on stderr; `suspension.md` has all.
const NAMED_CALLS: usize = 5;

/// What a person can do about a run that waits or was denied something, in lines: how to answer each call, or what shows
/// the missing rules. `dir`: the run directory.
pub fn next_steps(result: &RunResult, dir: &str) -> Vec<String> {
    match result.verdict {
        Verdict::Suspended => {
            let one = |call: &Waiting| {
                let why = call.reason.trim_end_matches('.');
                format!(
                    "{} `{}`: {why}; answer: `{}` or `--deny {}`",
                    call.call, call.title, call.approve, call.call
                )
            };
            let rest = result.suspended.len().saturating_sub(NAMED_CALLS);
            let more = (rest > 0).then(|| format!("{rest} more are in suspension.md"));
            result.suspended.iter().take(NAMED_CALLS).map(one).chain(more).collect()
        }
        Verdict::Denied => {
            let run = shell_word(dir);
            vec![format!(
                "`overnight policy suggest {run}` prints the rules that would allow what was denied"
            )]
        }
        _ => {
            let resume = result.resume.iter();
            resume.map(|command| format!("`{command}` continues it")).collect()
        }
    }
}

/// Names the files that could not be written, on stderr.
pub fn report_problems(written: &WrittenOutputs) {
    for problem in &written.problems {
        out::stderr(&format!("error: not written: {problem}"));
    }
}

/// Prints the result in the given format. Returns the exit code, which is 9 if stdout fails.
pub fn print(format: Stdout, written: &WrittenOutputs) -> u8 {
    match try_print(format, written) {
        Ok(()) => written.code,
        Err(_) => exit::stronger(written.code, exit::OUTPUT),
    }
}

/// Like [`print`], for a result that is written again if stdout fails.
///
/// # Errors
/// The reason why stdout could not be written, or does not hold what was printed; it has also been printed on stderr.
pub fn try_print(format: Stdout, written: &WrittenOutputs) -> Result<(), String> {
    report_problems(written);
    let text = match format {
        Stdout::Text => result::text(&written.result),
        Stdout::Json => written.result.to_line(),
        Stdout::StreamJson => stream::last(&written.result),
    };
    compared(out::stdout_of_others(&text).map_err(|error| format!("stdout: {error}")))
}

/// Compares stdout with what was printed, at the end of a run that prints no result.
///
/// # Errors
/// As for [`try_print`].
pub fn compare_stdout() -> Result<(), String> {
    compared(Ok(()))
}

fn compared(printed: Result<(), String>) -> Result<(), String> {
    printed
        .and_then(|()| out::own_file::compare())
        .inspect_err(|problem| out::stderr(&format!("error: {problem}")))
}

/// The absolute paths of the output files that exist, by name.
pub fn existing(home: &Path) -> BTreeMap<String, String> {
    let home = environment::absolute(home);
    let out = state_dir::outputs_of(&home).unwrap_or_else(|| home.clone());
    let files = ReportFile::ALL
        .into_iter()
        .filter_map(|format| Some((format.as_str(), out.join(format.file()?))));
    files
        .chain([
            (result::DIRECTORY, out.clone()),
            ("journal", home.join("journal.jsonl")),
        ])
        .filter(|(_, path)| path.exists())
        .map(|(name, path)| (name.to_owned(), path.display().to_string()))
        .collect()
}
