//! Determines what a command of the recipe's author may read because it names it: its program, its script and their
//! packages. Also expands the variables in such commands.

use crate::process::Confinement;
use std::path::{Path, PathBuf};

/// Upper limit for nested defaults.
const NESTED: usize = 8;
/// Upper limit for the characters between two braces.
const BRACED: usize = 4_096;

/// How a text names variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableForm {
    /// `$NAME`, `${NAME}` and `${NAME:-text}`.
    Any,
    /// Only with braces: a word of a command line may be the script of a shell, whose own variables have none.
    Braced,
}

/// Expands `$NAME`, `${NAME}` and `${NAME:-text}`. If the variable is unset or empty, `text` is used, with its own
/// variables expanded.
///
/// # Errors
/// A variable is not set (the message names it), or defaults are nested too deeply.
pub fn expand(text: &str, form: VariableForm, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    expand_nested(text, form, variable, NESTED)
}

fn expand_nested(
    text: &str,
    form: VariableForm,
    variable: &dyn Fn(&str) -> Option<String>,
    nested: usize,
) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (inner, after) = match rest.strip_prefix('{').and_then(braced) {
            Some(found) => found,
            None if form == VariableForm::Braced => ("", rest),
            None => rest.split_at(
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len()),
            ),
        };
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let legal = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !legal {
            out.push('$');
            continue;
        }
        let value = variable(name).filter(|value| default.is_none() || !value.is_empty());
        match (value, default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(_)) if nested == 0 => return Err(format!("`${{{name}:-…}}` is nested too deeply")),
            (None, Some(default)) => out.push_str(&expand_nested(default, form, variable, nested - 1)?),
            (None, None) => return Err(format!("the variable {name} is not set")),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// The text before the closing brace, and the text after it.
fn braced(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices().take(BRACED) {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((text.get(..at)?, text.get(at + 1..)?)),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The program as the confined child can find it: a bare name that only this process's `PATH` finds becomes an absolute
/// path.
pub fn program(name: &str, path: &str) -> String {
    let found = |dirs: &str| {
        let dirs = dirs.split(':').filter(|dir| dir.starts_with('/'));
        dirs.map(|dir| Path::new(dir).join(name)).find(|file| file.is_file())
    };
    if name.contains('/') || found(crate::process::env::SYSTEM_PATH).is_some() {
        return name.to_owned();
    }
    found(path).map_or_else(|| name.to_owned(), |file| file.to_string_lossy().into_owned())
}

/// Lets a command read the outside paths that its words name: a directory, or a file together with its package.
pub fn readable(confinement: &mut Confinement, words: &[String], workspace: &Path) {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    for word in words.iter().filter(|word| word.starts_with('/')) {
        let path = crate::base::path::lexical(Path::new(word));
        let real = path.canonicalize().ok();
        for path in std::iter::once(path).chain(real) {
            let Some(mut place) = place(&path, home.as_deref()) else {
                continue;
            };
            if workspace.starts_with(&place) && path.is_file() {
                // For a script in a directory that also contains the workspace, only the script itself is granted.
                place = path;
            }
            let has = confinement
                .readable
                .iter()
                .chain([&confinement.workspace])
                .any(|dir| place.starts_with(dir));
            if !has && !place.starts_with(workspace) && !workspace.starts_with(&place) {
                confinement.readable.push(place);
            }
        }
    }
}

/// The path to grant: a directory itself; for a file in a package tree, that tree; for `X/bin/PROGRAM`, all of `X`;
/// else the file's directory. Never a home directory or its parents, nor a directory that all users share.
fn place(path: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let shared = |dir: &Path| {
        dir.components().count() < 3
            || ["/var/tmp", "/dev/shm"].iter().any(|one| dir == Path::new(one))
            || home.is_some_and(|home| home.starts_with(dir))
    };
    if path.is_dir() {
        let of_all = [
            "/", "/tmp", "/var/tmp", "/home", "/root", "/proc", "/sys", "/dev", "/dev/shm", "/run", "/etc",
        ];
        let refused =
            of_all.iter().any(|one| path == Path::new(one)) || home.is_some_and(|home| home.starts_with(path));
        return (!refused).then(|| path.to_path_buf());
    }
    if !path.is_file() {
        return None;
    }
    let packages = path
        .ancestors()
        .find(|dir| dir.file_name().is_some_and(|name| name == "node_modules"));
    let own = path.parent()?;
    let tree = match (packages, own.file_name().is_some_and(|name| name == "bin")) {
        (Some(packages), _) => packages,
        (None, true) => own.parent().filter(|dir| !shared(dir)).unwrap_or(own),
        (None, false) => own,
    };
    Some(if shared(tree) {
        path.to_path_buf()
    } else {
        tree.to_path_buf()
    })
}

#[cfg(test)]
mod tests {
    use super::VariableForm::{Any, Braced};
    use super::*;

    #[test]
    fn variables_are_filled_in_or_named() {
        let variable = |name: &str| (name == "TOKEN").then(|| "t".to_owned());
        assert_eq!(expand("Bearer ${TOKEN}", Any, &variable).unwrap(), "Bearer t");
        assert_eq!(expand("$TOKEN-$TOKEN $ 5$", Any, &variable).unwrap(), "t-t $ 5$");
        assert_eq!(expand("a$1b", Any, &variable).unwrap(), "a$1b");
        assert_eq!(
            expand("$NONE", Any, &variable).unwrap_err(),
            "the variable NONE is not set"
        );
        assert_eq!(expand("${TOKEN", Any, &variable).unwrap(), "${TOKEN");
        assert_eq!(
            expand("${TOKEN:-x} ${NONE:-https://h/} ${NONE:-}", Any, &variable).unwrap(),
            "t https://h/ "
        );
        assert_eq!(
            expand("${NONE:-$TOKEN} ${NONE:-${TOKEN}}", Any, &variable).unwrap(),
            "t t"
        );
        assert!(expand(&"${NONE:-".repeat(1_000), Any, &variable).is_ok());
        let deep = "${NONE:-".repeat(20) + &"}".repeat(20);
        assert!(expand(&deep, Any, &variable).unwrap_err().contains("too deeply"));
        let script = "for TOKEN in $TOKEN ${NONE:-$TOKEN}; do x; done; ${TOKEN}";
        let filled = "for TOKEN in $TOKEN $TOKEN; do x; done; t";
        assert_eq!(expand(script, Braced, &variable).unwrap(), filled);
    }

    #[test]
    fn a_script_beside_the_workspace_brings_itself_alone() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (workspace, script) = (root.join("ws"), root.join("server.py"));
        std::fs::create_dir(&workspace).unwrap();
        std::fs::write(&script, "").unwrap();
        let mut confinement = Confinement::unconfined(&workspace);
        let before = confinement.readable.clone();
        let words = [
            script.to_string_lossy().into_owned(),
            root.to_string_lossy().into_owned(),
        ];
        readable(&mut confinement, &words, &workspace);
        let added: Vec<_> = confinement
            .readable
            .iter()
            .filter(|path| !before.contains(path))
            .collect();
        assert_eq!(added, [&script]);
    }

    #[test]
    fn a_script_brings_its_packages_and_never_a_home() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let script = root.join("lib/node_modules/@a/b/dist/index.js");
        let program = root.join("venv/bin/python");
        let lone = root.join("server.py");
        for file in [&script, &program, &lone] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let of = |path: &Path, home: &Path| place(path, Some(home)).unwrap();
        assert_eq!(of(&script, Path::new("/h")), root.join("lib/node_modules"));
        assert_eq!(of(&program, Path::new("/h")), root.join("venv"));
        assert_eq!(of(&lone, Path::new("/h")), root);
        assert_eq!(of(&lone, &root), lone);
        assert_eq!(of(&lone, &root.join("u")), lone);
        assert_eq!(place(&root, Some(&root)), None);
    }
}
