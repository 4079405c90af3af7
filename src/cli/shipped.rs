//! The recipes inside this program, with the files that they name and their samples: `builtin:NAME`.

use include_dir::{Dir, include_dir};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// `recipes/` of this project as it was at the build.
static RECIPES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/recipes");

/// How a name of one begins.
pub const PREFIX: &str = "builtin:";

/// The names of all, in order, without the prefix.
pub fn names() -> Vec<&'static str> {
    let mut all: Vec<&str> = RECIPES
        .files()
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "yaml"))
        .filter_map(|file| file.path().file_stem()?.to_str())
        .collect();
    all.sort_unstable();
    all
}

/// The text of a recipe; `name` is without the prefix.
pub fn recipe(name: &str) -> Option<&'static str> {
    RECIPES.get_file(format!("{name}.yaml"))?.contents_utf8()
}

/// The text of a file that a recipe names, by its path from the recipes' directory.
pub fn file(path: &str) -> Option<&'static str> {
    RECIPES.get_file(path)?.contents_utf8()
}

/// The description page of a recipe, where it has one.
pub fn page(name: &str) -> Option<&'static str> {
    file(&format!("pages/{name}.md"))
}

/// Whether a recipe has a sample.
pub fn has_sample(name: &str) -> bool {
    RECIPES.get_file(format!("samples/{name}/replies.yaml")).is_some()
}

/// Writes the sample of a recipe below a directory: `repo/`, `replies.yaml`, and `input.json` where there is one. `None`: it has none.
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
                // The program holds contents only; a script of a sample must be one again.
                if file.contents().starts_with(b"#!") {
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
                }
            }
        }
    }
    Ok(())
}
