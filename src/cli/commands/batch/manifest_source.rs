//! Reads the manifest that the command line names.

use crate::batch::manifest;
use crate::cli::args::BatchArgs;
use crate::cli::inputs as texts;
use crate::cli::refusal::Refusal;
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// A manifest's text and location.
pub struct ManifestSource {
    pub name: String,
    pub text: String,
    /// Base of its relative paths.
    pub base: PathBuf,
    /// Name of a batch whose manifest has none.
    pub fallback: String,
    /// Whether stdin was read, which is possible only once.
    pub stdin_read: Cell<bool>,
}

/// The name of the batch of a manifest that could not be read as one, or whose batch did not begin: what its line `name:`
/// says, or else the file's name.
pub fn likely_name(path: &Path) -> String {
    let text = match path.is_file() {
        true => std::fs::read_to_string(path).unwrap_or_default(),
        false => String::new(),
    };
    let lines = text.lines().filter_map(|line| line.strip_prefix("name:"));
    let named = lines.map(|rest| rest.split(" #").next().unwrap_or_default().trim());
    let named = named.map(|name| name.trim_matches(['"', '\'']).to_owned());
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut named = named.filter(|name| manifest::is_job_name(name));
    named
        .next()
        .unwrap_or_else(|| match stem.is_empty() || manifest::is_job_name(&stem) {
            true => stem.into_owned(),
            false => "batch".to_owned(),
        })
}

/// The manifest that the command line names.
///
/// # Errors
/// It cannot be read.
pub fn source(args: &BatchArgs) -> Result<ManifestSource, Refusal> {
    let path = args.manifest.clone().unwrap_or_default();
    if path.as_os_str() == "-" {
        return Ok(ManifestSource {
            name: "stdin".to_owned(),
            text: texts::stdin()?,
            base: PathBuf::new(),
            fallback: "stdin".to_owned(),
            stdin_read: Cell::new(true),
        });
    }
    if path.is_dir() {
        let name = path.display();
        return Err(Refusal::Invalid(format!(
            "{name}:1:1: error[no-file]: {name} is a directory\nhelp: name the manifest in it, a YAML or JSON Lines file"
        )));
    }
    if !path.is_file() {
        let name = path.display();
        return Err(Refusal::Invalid(format!(
            "{name}:1:1: error[no-file]: there is no manifest {name}\nhelp: name a YAML or JSON Lines file, or `-` for stdin"
        )));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(ManifestSource {
        name: path.display().to_string(),
        text: texts::text(&path)?,
        base: path.parent().unwrap_or_else(|| Path::new("")).to_owned(),
        fallback: if manifest::is_job_name(&stem) {
            stem
        } else {
            "batch".to_owned()
        },
        stdin_read: Cell::new(false),
    })
}
