//! Writes the outputs of a batch besides `runs.jsonl`: `result.json`, JUnit, HTML and the summary, all made from the
//! ended jobs.

use super::result::{BatchResult, JobReport, ReportHead};
use super::{BatchError, bundle, html, junit, plan, record, rows, summary};
use crate::base::exit;
use crate::journal::{artefacts, deliveries, writer};
use crate::report::junit as report_junit;
use crate::report::result::OutputFacts;
use std::fs::{DirEntry, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The mode of the files, less what the umask takes away.
const MODE: u32 = 0o644;

/// The subdirectory in which a merge keeps the bundles that it fetched from object stores.
pub const DOWNLOADS: &str = "bundles";

/// The names that may be in a batch directory without a record: outputs of a merge, and files of a call that was
/// refused or killed before it wrote its record.
const KNOWN: [&str; 18] = [
    "shards",
    "logs",
    "jobs",
    "work",
    "gate",
    "patches",
    ".gitignore",
    "result.json",
    "junit.xml",
    "report.html",
    "summary.md",
    DOWNLOADS,
    deliveries::FILE,
    plan::FILE,
    rows::FILE,
    bundle::FILE,
    record::FILE,
    record::STORE_FILE,
];

/// What is in a directory that people call empty.
const EMPTY: [&str; 2] = [".gitkeep", "lost+found"];

/// The name of something in a directory that no batch put there; `None` for an empty or missing directory, and for that of
/// an earlier batch.
pub fn foreign_entry(dir: &Path) -> Option<String> {
    if std::fs::symlink_metadata(dir.join(record::FILE)).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    // The log of this call is not foreign: `overnight batch … --out out > out/batch.log`.
    let streams = own_streams();
    let is_stream = |entry: &DirEntry| {
        let found = entry.metadata().ok();
        found.is_some_and(|found| found.is_file() && streams.contains(&(found.dev(), found.ino())))
    };
    let names = entries.filter(|entry| !is_stream(entry));
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| !KNOWN.contains(&name.as_str()) && !EMPTY.contains(&name.as_str()) && !artefacts::is_draft(name))
        .min()
}

/// Device and inode of the files to which this process prints.
fn own_streams() -> Vec<(u64, u64)> {
    let printed = [
        rustix::fs::fstat(std::io::stdout()),
        rustix::fs::fstat(std::io::stderr()),
    ];
    let files = printed.into_iter().flatten();
    files.map(|file| (file.st_dev, file.st_ino)).collect()
}

/// Whether the result in a directory is that of a batch of another name. The result of a call that was refused before it
/// began belongs to nobody.
fn is_of_another(dir: &Path, name: &str) -> bool {
    let text = std::fs::read_to_string(dir.join("result.json")).unwrap_or_default();
    let recorded = serde_json::from_str::<BatchResult>(&text);
    recorded.is_ok_and(|recorded| !recorded.manifest.is_empty() && recorded.name != name)
}

/// Writes the outputs of a call that was refused before it began, so that those of an earlier call do not pass for its own:
/// `result.json` and `junit.xml`; the pages for people are removed. What the jobs left stays. Nothing is written while
/// another call works in the directory, or where the result is that of a batch of another name.
///
/// `is_known`: whether the manifest says that its batch has this name. A manifest that cannot be read has no name to
/// compare, and a result that says `passed` must not stay because of that.
///
/// # Errors
/// [`BatchError::Output`]: a file could not be written or removed.
pub fn write_refused(dir: &Path, name: &str, is_known: bool, exit_code: u8, message: &str) -> Result<(), BatchError> {
    let record = File::open(dir.join(record::FILE)).ok();
    if record.as_ref().is_some_and(|record| writer::lock(record, dir).is_err()) {
        return Ok(());
    }
    if is_known && is_of_another(dir, name) {
        return Ok(());
    }
    for page in ["summary.md", "report.html"] {
        let path = dir.join(page);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(BatchError::write(&path, &error)),
            _ => {}
        }
    }
    let ending = OutputFacts {
        exit_code: i32::from(exit_code),
        ..OutputFacts::default()
    };
    let xml = report_junit::unstarted(exit::verdict(exit_code), name, message, &ending);
    let xml = xml.map_err(|error| BatchError::Output(error.to_string()))?;
    artefacts::replace(&dir.join("junit.xml"), xml.as_bytes())?;
    let mut result = BatchResult::unstarted(exit_code, message.to_owned());
    name.clone_into(&mut result.name);
    put_result(dir, &result)
}

fn put_result(dir: &Path, result: &BatchResult) -> Result<(), BatchError> {
    let mut text = serde_json::to_string_pretty(result).map_err(|error| BatchError::Output(error.to_string()))?;
    text.push('\n');
    artefacts::replace(&dir.join("result.json"), text.as_bytes())?;
    Ok(())
}

/// Writes all files; `result.json` last.
///
/// # Errors
/// One of the files could not be written.
pub fn write(dir: &Path, head: &ReportHead<'_>, jobs: &[JobReport], result: &BatchResult) -> Result<(), BatchError> {
    stream(&dir.join("junit.xml"), |out| junit::write(out, result, jobs))?;
    stream(&dir.join("report.html"), |out| html::write(out, result, jobs))?;
    artefacts::replace(
        &dir.join("summary.md"),
        summary::page(result, head.name, jobs).as_bytes(),
    )?;
    put_result(dir, result)
}

/// Removes the files that a killed call was writing in a batch directory, which nobody else writes to now.
pub fn remove_drafts(dir: &Path) {
    artefacts::remove_drafts(dir);
    artefacts::remove_drafts(&dir.join("patches"));
}

/// Writes a file in chunks to a temporary name and renames it, so that it appears whole or not at all.
///
/// # Errors
/// An I/O error.
pub fn stream(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), BatchError> {
    let said = |error: std::io::Error| BatchError::write(path, &error);
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(MODE);
    let draft = tempfile::Builder::new().permissions(mode).tempfile_in(parent);
    let draft = draft.map_err(said)?;
    let mut out = BufWriter::new(draft.as_file());
    fill(&mut out).map_err(said)?;
    out.flush().map_err(said)?;
    drop(out);
    draft.persist(path).map_err(|error| said(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_call_empty_is_not_foreign() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".gitkeep"), "").unwrap();
        std::fs::create_dir(dir.path().join("lost+found")).unwrap();
        assert_eq!(foreign_entry(dir.path()), None);
        std::fs::write(dir.path().join("notes.txt"), "").unwrap();
        assert_eq!(foreign_entry(dir.path()).as_deref(), Some("notes.txt"));
    }

    #[test]
    fn a_refusal_leaves_the_result_of_another_batch() {
        let dir = tempfile::tempdir().unwrap();
        let mut result = BatchResult::unstarted(0, String::new());
        "fleet".clone_into(&mut result.name);
        "digest".clone_into(&mut result.manifest);
        put_result(dir.path(), &result).unwrap();
        std::fs::write(dir.path().join("report.html"), "page").unwrap();
        let left = |name: &str, is_known: bool| {
            write_refused(dir.path(), name, is_known, 3, "wrong").unwrap();
            dir.path().join("report.html").exists()
        };
        assert!(left("other", true));
        assert!(!left("fleet", true));
        put_result(dir.path(), &result).unwrap();
        std::fs::write(dir.path().join("report.html"), "page").unwrap();
        assert!(!left("other", false));
        assert!(!is_of_another(dir.path(), "other"));
    }
}
