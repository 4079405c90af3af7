//! Writes the outputs of a batch besides `runs.jsonl`: `result.json`, JUnit, HTML and the summary, all made from the
//! ended jobs.

use super::result::{BatchResult, JobReport, ReportHead};
use super::{BatchError, html, junit, summary};
use crate::journal::artefacts;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes all files; `result.json` last.
///
/// # Errors
/// One of the files could not be written.
pub fn write(dir: &Path, head: &ReportHead<'_>, jobs: &[JobReport], result: &BatchResult) -> Result<(), BatchError> {
    stream(&dir.join("junit.xml"), |out| junit::write(out, head, jobs))?;
    stream(&dir.join("report.html"), |out| html::write(out, result, jobs))?;
    artefacts::replace(
        &dir.join("summary.md"),
        summary::page(result, head.name, jobs).as_bytes(),
    )?;
    let mut text = serde_json::to_string_pretty(result).map_err(|error| BatchError::Output(error.to_string()))?;
    text.push('\n');
    artefacts::replace(&dir.join("result.json"), text.as_bytes())?;
    Ok(())
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
    let draft = tempfile::NamedTempFile::new_in(parent).map_err(said)?;
    let mut out = BufWriter::new(draft.as_file());
    fill(&mut out).map_err(said)?;
    out.flush().map_err(said)?;
    drop(out);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    draft.as_file().set_permissions(mode).map_err(said)?;
    draft.persist(path).map_err(|error| said(error.error))?;
    Ok(())
}
