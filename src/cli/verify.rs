//! Verifies that a run is as it was recorded: its journal, the files beside it, and its result. Changes nothing.

use super::outputs;
use crate::base::event::{Event, EventKind};
use crate::base::ids::sha256_hex;
use crate::base::outcome::Verdict;
use crate::base::quote::shell_word;
use crate::journal::{self, Journal, JournalError, artefacts, chain_key, deliveries, state_dir};
use crate::report::export::{self, RenderContext, ReportFile};
use crate::report::result::{self, JournalHead, OutputFacts};
use crate::report::summary::RunSummary;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Upper limit in bytes for `result.json`.
const RESULT_BYTES: u64 = 256 << 20;

/// What a run directory has besides the files made from the journal. Deliveries add the last two after the run.
const BESIDE: [&str; 4] = [".gitignore", outputs::NOTE, deliveries::FILE, outputs::MBOX];
/// What is in the directory of the journal only.
const RECORD: [&str; 6] = [
    "journal.jsonl",
    "blobs",
    "results",
    artefacts::PUT_BACK,
    STORE,
    state_dir::PLACE,
];
/// The run's own object store.
const STORE: &str = "git";

/// The result of a verification: every problem as a sentence.
pub struct Verified {
    pub journal: Journal,
    pub problems: Vec<String>,
    /// Added entries and a missing store. No output and no delivery depends on them.
    pub beside: Vec<String>,
}

/// Verifies the run whose journal is in `home`.
///
/// # Errors
/// The journal itself is damaged or truncated, or has the MAC of another key.
pub fn run(home: &Path) -> Result<Verified, JournalError> {
    let journal = journal::read_strictly(home)?;
    let sum = RunSummary::fold(&journal.events);
    let mut problems = Vec::new();
    kept(home, &journal, &sum, &mut problems);
    match stored_result(home) {
        Ok(None) if is_finished(&journal) => {
            problems.push(format!("result.json is missing: {}", made_again(home)));
        }
        Ok(None) => {}
        Ok(Some(text)) => of_result(home, &journal, &sum, &text, &mut problems)?,
        Err(why) => problems.push(why),
    }
    let beside = beside(home, &journal);
    Ok(Verified {
        journal,
        problems,
        beside,
    })
}

/// The command that renders the outputs again.
fn made_again(home: &Path) -> String {
    let dir = state_dir::outputs_of(home).unwrap_or_else(|| home.to_owned());
    let name = shell_word(&dir.to_string_lossy());
    format!("`overnight report {name}` renders it again from the journal")
}

/// Whether the run has ended and was not resumed since.
fn is_finished(journal: &Journal) -> bool {
    journal
        .events
        .last()
        .is_some_and(|event| matches!(event.kind, EventKind::RunFinished { .. }))
}

/// Reports a missing store, and entries of the run's directories that no command of this program makes.
fn beside(home: &Path, journal: &Journal) -> Vec<String> {
    let mut problems = Vec::new();
    let names_trees = |event: &Event| matches!(event.kind, EventKind::Baseline { .. });
    if journal.events.iter().any(names_trees) && !home.join(STORE).is_dir() {
        problems.push(format!("{STORE}/ is missing: it had the trees that the journal names"));
    }
    let name_in_home = |name: &str| name.to_owned();
    unknown_entries(home, &[&BESIDE[..], &RECORD].concat(), &name_in_home, &mut problems);
    if let Some(out) = state_dir::outputs_of(home) {
        unknown_entries(
            &out,
            &BESIDE,
            &|name| out.join(name).display().to_string(),
            &mut problems,
        );
    }
    problems
}

/// Reports the entries of a directory that are neither in `own` nor a file made from the journal.
fn unknown_entries(dir: &Path, own: &[&str], shown: &dyn Fn(&str) -> String, problems: &mut Vec<String>) {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        // Every file in it is reported as missing.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => {
            problems.push(format!("{}: {error}", dir.display()));
            return;
        }
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !own.contains(&name.as_str()) && !is_output(name) && !artefacts::is_draft(name))
        .collect();
    names.sort();
    let unknown = names
        .iter()
        .map(|name| format!("{} does not belong to this run", shown(name)));
    problems.extend(unknown);
}

fn is_output(name: &str) -> bool {
    ReportFile::ALL.into_iter().any(|format| format.file() == Some(name))
}

/// Verifies the blobs and kept results that the journal names.
fn kept(home: &Path, journal: &Journal, sum: &RunSummary<'_>, problems: &mut Vec<String>) {
    for event in &journal.events {
        match &event.kind {
            EventKind::PatchTaken(patch) => {
                let Some(blob) = &patch.blob else { continue };
                if let Err(error) = artefacts::read_blob(home, blob) {
                    problems.push(format!("blobs/{blob}: {error}"));
                }
            }
            EventKind::CallFinished { output, .. } => {
                let Some(whole) = &output.kept else { continue };
                let name = format!("results/{}", whole.id);
                if !home.join(&name).is_file() {
                    problems.push(format!("{name} is missing"));
                }
            }
            _ => {}
        }
    }
    if let Ok(patch) = std::fs::read(home.join("changes.patch"))
        && outputs::patch_bytes(home, sum).is_ok_and(|recorded| recorded != patch)
    {
        problems.push("changes.patch is not the patch that the journal names".to_owned());
    }
}

fn stored_result(home: &Path) -> Result<Option<String>, String> {
    let path = home.join("result.json");
    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("result.json: {error}")),
        Ok(found) if !found.is_file() => return Err("result.json is not a regular file".to_owned()),
        Ok(found) if found.len() > RESULT_BYTES => {
            return Err(format!("result.json has more than {} MiB", RESULT_BYTES >> 20));
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("result.json: {error}"))?;
    Ok(Some(text))
}

/// Checks that the journal is the one that its result refers to, or a later state of it.
///
/// # Errors
/// Why it is neither, or why `result.json` cannot be read.
pub fn against_result(home: &Path, journal: &Journal) -> Result<(), String> {
    let Some(text) = stored_result(home)? else {
        return Ok(());
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| format!("result.json: {error}"))?;
    match head_in(&value) {
        Some(head) => compatible(journal, &head),
        // Results of older versions do not refer to a journal.
        None => Ok(()),
    }
}

fn head_in(result: &Value) -> Option<JournalHead> {
    serde_json::from_value(result.get("journal")?.clone()).ok()
}

fn compatible(journal: &Journal, head: &JournalHead) -> Result<(), String> {
    match journal.lacks(head.events, &head.head) {
        None => Ok(()),
        Some(why) => Err(format!("the journal is not the one of result.json: {why}")),
    }
}

/// Verifies the result against the journal, and all other files against the result.
fn of_result(
    home: &Path,
    journal: &Journal,
    sum: &RunSummary<'_>,
    text: &str,
    problems: &mut Vec<String>,
) -> Result<(), JournalError> {
    let Ok(Value::Object(stored)) = serde_json::from_str(text) else {
        problems.push("result.json is not a JSON object".to_owned());
        return Ok(());
    };
    if format!("{:#}\n", Value::Object(stored.clone())) != text {
        problems.push("result.json is not as it was written".to_owned());
    }
    let value = Value::Object(stored.clone());
    let Some(head) = head_in(&value) else {
        problems.push(format!(
            "result.json does not name its journal (the first versions wrote such results): {}",
            made_again(home)
        ));
        return Ok(());
    };
    if let Err(why) = compatible(journal, &head) {
        problems.push(why);
        return Ok(());
    }
    sealed(&value, &head, journal.keyed, problems)?;
    let digests = strings(stored.get("digests"));
    let whole = head.events == journal.events.len() as u64;
    let goes_on = journal.run().and_then(state_dir::head).is_some_and(|head| head.open);
    let broken_off = !is_finished(journal) && value["verdict"] == Verdict::Output.as_str();
    if whole && journal.torn && !goes_on && !broken_off {
        problems.push("journal.jsonl has bytes after its last event, where result.json says that it ends".to_owned());
    }
    digested(home, &digests, whole, problems)?;
    if broken_off {
        // The journal could not be written any more, so it lacks the end that the outputs tell.
        return Ok(());
    }
    if !whole {
        if is_finished(journal) {
            problems.push(format!("result.json is of an earlier session: {}", made_again(home)));
        }
        return Ok(());
    }
    let ending = OutputFacts {
        exit_code: i32::from(super::exit::code(&sum.outcome)),
        artefacts: strings(stored.get("artefacts")),
        digests,
        journal: Some(head),
    };
    for (name, path) in ending.artefacts.iter().filter(|(name, _)| *name != result::DIRECTORY) {
        let file = ReportFile::named(name)
            .and_then(ReportFile::file)
            .unwrap_or("journal.jsonl");
        if Path::new(path).file_name().is_none_or(|last| last != file) {
            problems.push(format!("result.json: `artefacts` gives {path} as the {name}"));
        }
    }
    // A run that was moved has other directories than the result says, but the same one for all files.
    let others = ending.artefacts.iter().filter(|(name, _)| *name != "journal");
    let directories = others.map(|(name, path)| match name == result::DIRECTORY {
        true => Some(Path::new(path)),
        false => Path::new(path).parent(),
    });
    let mut dirs: Vec<Option<&Path>> = directories.collect();
    if state_dir::outputs_of(home).is_none() {
        dirs.extend(ending.artefacts.get("journal").map(|path| Path::new(path).parent()));
    }
    dirs.dedup();
    if dirs.len() > 1 {
        problems.push("result.json: `artefacts` names files in several directories".to_owned());
    }
    rendered(home, sum, &ending, problems);
    let expected = result::result(sum, &ending).to_value();
    differing(home, &expected, &stored, problems);
    Ok(())
}

fn strings(value: Option<&Value>) -> BTreeMap<String, String> {
    value
        .and_then(|value| serde_json::from_value(value.clone()).ok())
        .unwrap_or_default()
}

fn sealed(value: &Value, head: &JournalHead, keyed: bool, problems: &mut Vec<String>) -> Result<(), JournalError> {
    let Some(key) = chain_key::key()?.filter(|_| keyed) else {
        return Ok(());
    };
    let mut open = value.clone();
    if let Some(Value::Object(journal)) = open.get_mut("journal") {
        journal.shift_remove("seal");
    }
    let text = open.to_string();
    let holds = head
        .seal
        .as_ref()
        .is_some_and(|seal| key.verifies(&[outputs::SEAL, text.as_bytes()], seal));
    if !holds {
        problems.push("result.json is not authenticated by the key: it was changed".to_owned());
    }
    Ok(())
}

/// Verifies every file with a digest in the result, and reports files that are missing. `whole`: nothing was recorded
/// since the result, so no newer blob or kept result may exist.
fn digested(
    home: &Path,
    digests: &BTreeMap<String, String>,
    whole: bool,
    problems: &mut Vec<String>,
) -> Result<(), JournalError> {
    let mut places = vec![home.to_owned()];
    places.extend(state_dir::outputs_of(home));
    let found = outputs::digests(home)?;
    for (name, digest) in digests {
        match found.get(name) {
            Some(actual) if actual == digest => {}
            Some(_) => problems.push(format!("{name} was changed")),
            None => problems.push(format!("{name} is missing")),
        }
    }
    let unknown = found.keys().filter(|name| !digests.contains_key(*name));
    for name in unknown.filter(|name| whole || !name.contains('/')) {
        problems.push(format!("{name} does not belong to this run"));
    }
    // The copies in a run directory that commands could write to.
    for place in places.iter().skip(1) {
        for (name, digest) in digests.iter().filter(|(name, _)| !name.contains('/')) {
            let path = place.join(name);
            match outputs::file_digest(&path) {
                Ok(actual) if actual == *digest => {}
                Ok(_) => problems.push(format!("{} was changed", path.display())),
                Err(_) => problems.push(format!("{} is missing", path.display())),
            }
        }
        let (own, copy) = (home.join("result.json"), place.join("result.json"));
        if std::fs::read(own).ok() != std::fs::read(&copy).ok() {
            problems.push(format!("{} was changed", copy.display()));
        }
    }
    Ok(())
}

/// Verifies the files that were rendered from the journal, if this version rendered them.
fn rendered(home: &Path, sum: &RunSummary<'_>, ending: &OutputFacts, problems: &mut Vec<String>) {
    if sum.head.is_none_or(|head| head.version != env!("CARGO_PKG_VERSION")) {
        return;
    }
    let Ok(patch) = outputs::patch_bytes(home, sum) else {
        return;
    };
    // Digests and journal head are added to the result after these files are rendered.
    let ending = OutputFacts {
        exit_code: ending.exit_code,
        artefacts: ending.artefacts.clone(),
        ..OutputFacts::default()
    };
    let beside = RenderContext {
        ending: &ending,
        declared: outputs::declared(sum),
        patch: (!patch.is_empty()).then_some(patch.as_slice()),
    };
    for format in ReportFile::ALL
        .into_iter()
        .filter(|format| *format != ReportFile::Result)
    {
        let Some(file) = format.file().filter(|file| home.join(file).is_file()) else {
            continue;
        };
        let stored = std::fs::read(home.join(file)).unwrap_or_default();
        if export::render(format, sum, beside).is_ok_and(|made| sha256_hex(&[&made]) != sha256_hex(&[&stored])) {
            problems.push(format!("{file} does not match the journal"));
        }
    }
}

/// Reports each entry of the result that differs from the journal.
fn differing(home: &Path, expected: &Value, stored: &Map<String, Value>, problems: &mut Vec<String>) {
    let Value::Object(expected) = expected else {
        return;
    };
    if stored.get("verdict") == Some(&Value::from("output")) && expected.get("verdict") != stored.get("verdict") {
        problems.push(format!(
            "result.json reports files that could not be written: {}",
            made_again(home)
        ));
        return;
    }
    for (name, value) in expected {
        match stored.get(name) {
            Some(found) if found == value || name == "journal" => {}
            Some(_) => problems.push(format!("result.json: `{name}` does not match the journal")),
            None => problems.push(format!("result.json: `{name}` is missing")),
        }
    }
    for name in stored.keys().filter(|name| !expected.contains_key(*name)) {
        problems.push(format!("result.json: `{name}` is not an entry of a result"));
    }
}
