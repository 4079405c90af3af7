//! The built-in recipes (`builtin:NAME`) with the files that they name and their samples.

use crate::diag::diagnostic::list;
use crate::diag::similar_word;
use include_dir::{Dir, include_dir};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The directory `recipes/` at build time.
static RECIPES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/recipes");

/// Prefix of built-in names.
pub const PREFIX: &str = "builtin:";

/// All names, sorted, without the prefix.
pub fn names() -> Vec<&'static str> {
    let mut all: Vec<&str> = RECIPES
        .files()
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "yaml"))
        .filter_map(|file| file.path().file_stem()?.to_str())
        .collect();
    all.sort_unstable();
    all
}

/// The help text for an unknown name, which has no prefix: the nearest one, or all of them.
pub fn did_you_mean(name: &str) -> String {
    let names = names();
    match similar_word(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{PREFIX}{near}`?"),
        None => {
            let all: Vec<String> = names.iter().map(|name| format!("{PREFIX}{name}")).collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            format!("known are {}", list(&all))
        }
    }
}

/// The text of a recipe; `name` has no prefix.
pub fn recipe(name: &str) -> Option<&'static str> {
    RECIPES.get_file(format!("{name}.yaml"))?.contents_utf8()
}

/// The text of a file that a recipe names, by its path relative to the recipes' directory.
pub fn file(path: &str) -> Option<&'static str> {
    RECIPES.get_file(path)?.contents_utf8()
}

/// The files of this path relative to the recipes' directory: the file itself, or all below the directory.
pub fn files_below(path: &str) -> Vec<(String, &'static [u8])> {
    let path = path.trim_end_matches('/');
    if let Some(file) = RECIPES.get_file(path) {
        return vec![(path.to_owned(), file.contents())];
    }
    let mut left: Vec<&'static Dir<'static>> = RECIPES.get_dir(path).into_iter().collect();
    let mut all = Vec::new();
    while let Some(dir) = left.pop() {
        left.extend(dir.dirs());
        let one =
            |file: &'static include_dir::File<'static>| (file.path().to_string_lossy().into_owned(), file.contents());
        all.extend(dir.files().map(one));
    }
    all
}

/// The documentation page of a recipe, if it has one.
pub fn page(name: &str) -> Option<&'static str> {
    file(&format!("pages/{name}.md"))
}

/// Whether a recipe has a sample.
pub fn has_sample(name: &str) -> bool {
    RECIPES.get_file(format!("samples/{name}/replies.yaml")).is_some()
}

/// Writes the sample of a recipe to a directory: `repo/`, `replies.yaml`, and `input.json` if there is one. `None` if
/// it has no sample.
///
/// # Errors
/// A file cannot be written.
pub fn write_sample(name: &str, to: &Path) -> Option<std::io::Result<()>> {
    let sample = RECIPES.get_dir(format!("samples/{name}"))?;
    Some(write_dir(sample, sample.path(), to))
}

fn write_dir(dir: &Dir<'_>, root: &Path, to: &Path) -> std::io::Result<()> {
    for entry in dir.entries() {
        let path = to.join(entry.path().strip_prefix(root).unwrap_or_else(|_| entry.path()));
        match entry {
            include_dir::DirEntry::Dir(dir) => {
                std::fs::create_dir_all(&path)?;
                write_dir(dir, root, to)?;
            }
            include_dir::DirEntry::File(file) => {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                std::fs::write(&path, file.contents())?;
                // The built-in files have no modes, and a script of a sample must be executable.
                if file.contents().starts_with(b"#!") {
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
                }
            }
        }
    }
    Ok(())
}
