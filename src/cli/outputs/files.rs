//! Writes the files of a run to the run directory, the directory of the journal, and the paths that flags name.

use crate::base::ids::sha256_hex;
use crate::journal::no_follow::settled;
pub use crate::journal::state_dir::NOTE;
use crate::journal::{artefacts, no_follow, run_dirs, state_dir};
use crate::report::export::ReportFile;
use crate::report::result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file that a flag names. Its path is resolved before the run begins, because a command could later put a link
/// there.
#[derive(Clone, Debug)]
pub struct Copy {
    path: PathBuf,
    led_to: PathBuf,
    /// `None` for a device or a pipe, which is written to as it is.
    file: Option<PathBuf>,
}

impl Copy {
    pub(super) fn of(path: &Option<PathBuf>) -> Option<Self> {
        let path = path.clone()?;
        let led_to = settled(&path);
        let file = artefacts::file_of(&path);
        Some(Self { path, led_to, file })
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), String> {
        self.unmoved()?;
        let written = match &self.file {
            Some(file) => artefacts::write_at(file, bytes),
            None => artefacts::write(&self.path, bytes),
        };
        written.map_err(|error| error.to_string())
    }

    /// Removes the file of an earlier run.
    pub(super) fn remove(&self) -> Result<(), String> {
        self.unmoved()?;
        let removed = self.file.as_deref().map_or(Ok(()), artefacts::remove_at);
        removed.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// Whether it can be written again: a device or a pipe would get the bytes twice.
    pub(super) fn is_replaced(&self) -> bool {
        self.file.is_some()
    }

    fn unmoved(&self) -> Result<(), String> {
        match settled(&self.path) == self.led_to {
            true => Ok(()),
            false => Err(format!(
                "{} leads elsewhere than when the run began: there is a new link in its path",
                self.path.display()
            )),
        }
    }
}

pub(super) struct OutputFiles<'a> {
    /// Directory of the journal.
    home: &'a Path,
    /// The run directory.
    out: PathBuf,
    pub(super) names: BTreeMap<String, String>,
    pub(super) digests: BTreeMap<String, String>,
    pub(super) problems: Vec<String>,
}

impl<'a> OutputFiles<'a> {
    pub(super) fn of(home: &'a Path, tree: &Path) -> Self {
        let journal = home.join("journal.jsonl").display().to_string();
        let moved = state_dir::outputs_of(home);
        let mut files = Self {
            home,
            out: moved.clone().unwrap_or_else(|| home.to_owned()),
            names: BTreeMap::from([("journal".to_owned(), journal)]),
            digests: BTreeMap::new(),
            problems: Vec::new(),
        };
        if let Some(out) = moved
            && let Err(problem) = files.prepare(&out, tree)
        {
            files.problems.push(problem);
            files.out = home.to_owned();
        }
        let directory = files.out.display().to_string();
        files.names.insert(result::DIRECTORY.to_owned(), directory);
        files
    }

    /// Prepares a run directory that commands could write to: refuses links, and removes files that look like a
    /// journal.
    fn prepare(&self, out: &Path, tree: &Path) -> Result<(), String> {
        run_dirs::refuse_link(tree, out).map_err(|error| error.to_string())?;
        let made = || -> std::io::Result<()> {
            no_follow::make_dirs(tree, out)?;
            for name in state_dir::ENTRIES {
                let path = out.join(name);
                match std::fs::symlink_metadata(&path) {
                    Ok(found) if found.is_dir() => std::fs::remove_dir_all(&path)?,
                    Ok(_) => std::fs::remove_file(&path)?,
                    Err(_) => {}
                }
            }
            Ok(())
        };
        made().map_err(|error| format!("{}: {error}", out.display()))?;
        let run = self.home.file_name().unwrap_or_default().to_string_lossy();
        let note = format!(
            "The journal of this run is in {}, out of reach of the commands that ran here.\n\
             `overnight resume {run}`, `overnight report {run}` and `overnight runs verify {run}` find it there.\n",
            self.home.display()
        );
        artefacts::replace(&out.join(NOTE), note.as_bytes()).map_err(|error| error.to_string())
    }

    pub(super) fn name(&mut self, format: ReportFile) {
        if let Some(file) = format.file() {
            let path = self.out.join(file).display().to_string();
            self.names.insert(format.as_str().to_owned(), path);
        }
    }

    /// The paths of an output: in the run directory and, if it differs, the directory of the journal.
    fn places(&self, format: ReportFile) -> Vec<PathBuf> {
        let mut dirs = vec![self.out.as_path(), self.home];
        dirs.dedup();
        let file = format.file();
        file.map(|file| dirs.into_iter().map(|dir| dir.join(file)).collect())
            .unwrap_or_default()
    }

    /// Adds a problem that is not known yet.
    pub(super) fn note(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    pub(super) fn put(&mut self, format: ReportFile, bytes: &[u8], copy: Option<&Copy>) {
        for path in self.places(format) {
            if let Err(error) = artefacts::replace(&path, bytes) {
                self.note(error.to_string());
            }
        }
        if let Some(Err(problem)) = copy.map(|copy| copy.write(bytes)) {
            self.note(problem);
        }
        if let Some(file) = format.file() {
            self.digests.insert(file.to_owned(), sha256_hex(&[bytes]));
        }
    }

    /// Removes a file of an earlier session or run, so that it is not taken for this run's.
    pub(super) fn remove_stale(&mut self, format: ReportFile, copy: Option<&Copy>) {
        for stale in self.places(format).iter().filter(|path| path.is_file()) {
            if let Err(error) = std::fs::remove_file(stale) {
                self.problems.push(format!("{}: {error}", stale.display()));
            }
        }
        if let Some(Err(problem)) = copy.map(Copy::remove) {
            self.problems.push(problem);
        }
    }
}
