//! Reads the manifest that the command line names.

use crate::batch::manifest;
use crate::cli::args::BatchArgs;
use crate::cli::inputs as texts;
use crate::cli::refusal::Refusal;
use crate::diag::{self, Shape, SourceFiles, YamlNode};
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

/// The name of a batch that did not begin.
pub struct LikelyName {
    pub name: String,
    /// Whether the manifest says it; else it is that of the file, which may be mistyped, and whose manifest may have
    /// another name that cannot be read.
    pub is_known: bool,
}

/// The name of the batch of a manifest that could not be read as one, or whose batch did not begin: what the manifest
/// says, or else the file's name.
pub fn likely_name(path: &Path) -> LikelyName {
    let text = match path.is_file() {
        true => std::fs::read_to_string(path).unwrap_or_default(),
        false => String::new(),
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let of_file = match stem.is_empty() || manifest::is_job_name(&stem) {
        true => stem.into_owned(),
        false => "batch".to_owned(),
    };
    let said = match mapping(&text) {
        Some(root) => match root.get("name") {
            Some(name) => name.to_json().as_str().map(str::to_owned),
            // It has no name of its own, unless it is something else than a manifest.
            None => root.get("version").map(|_| of_file.clone()),
        },
        None => line_of_name(&text),
    };
    let said = said.filter(|name| manifest::is_job_name(name));
    LikelyName {
        is_known: said.is_some(),
        name: said.unwrap_or(of_file),
    }
}

/// The mapping of a manifest, if its text is one.
fn mapping(text: &str) -> Option<YamlNode> {
    let mut files = SourceFiles::new();
    let file = files.add("", text);
    let root = diag::parse(&files, file).ok()?;
    matches!(root.shape, Shape::Map(_)).then_some(root)
}

/// The name in the first line `name:` of a text that is no YAML.
fn line_of_name(text: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("name:"));
    let named = lines.map(|rest| rest.split(" #").next().unwrap_or_default().trim());
    let mut named = named.map(|name| name.trim_matches(['"', '\'']).to_owned());
    named.find(|name| manifest::is_job_name(name))
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
