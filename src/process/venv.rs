//! Virtual environments and program directories in the workspace that the user's own environment has activated, so that
//! commands use them too. Starts no process.

use std::path::{Component, Path, PathBuf};

/// Settings of the user's shell that point into the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Active {
    /// `VIRTUAL_ENV`.
    pub environment: Option<PathBuf>,
    /// Entries of `PATH` in their order. Programs there are found by name alone, so a run must not write these
    /// directories.
    pub programs: Vec<PathBuf>,
}

/// What to do about a missing program that is in a virtual environment below `root` which is not active, as a fragment
/// of a message. `None` if neither `.venv` nor `venv` has it.
pub fn inactive(root: &Path, program: &str) -> Option<String> {
    let has = |venv: &&str| !program.contains('/') && root.join(venv).join("bin").join(program).exists();
    let venv = [".venv", "venv"].into_iter().find(has)?;
    Some(format!(
        "it is in `{venv}/bin`, and this virtual environment is not active: run `. {venv}/bin/activate` first, or write \
         `{venv}/bin/{program}` in the command"
    ))
}

/// The settings of `parent` that point into the workspace. `origin` is the tree that an isolated workspace was made
/// from: a path there stands for the same path in the workspace. Includes only existing directories that are reached
/// without links, and never the workspace itself.
pub fn active(workspace: &Path, origin: Option<&Path>, parent: &[(String, String)]) -> Active {
    let origin = origin.and_then(|origin| origin.canonicalize().ok());
    let var = |name: &str| {
        let found = parent.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    };
    let inside = |path: &str| -> Option<PathBuf> {
        let path = Path::new(path);
        let roots = std::iter::once(workspace).chain(origin.as_deref());
        let below = roots.into_iter().find_map(|root| {
            let canonical = path.canonicalize().ok()?;
            canonical.strip_prefix(root).ok().map(Path::to_path_buf)
        })?;
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        let there = workspace.join(&below);
        let real = there.canonicalize().is_ok_and(|real| real == there);
        // A colon would split the entry in two.
        let sayable = there.to_str().is_some_and(|text| !text.contains(':'));
        (path.is_absolute() && plain && below.components().next().is_some() && real && there.is_dir() && sayable)
            .then_some(there)
    };
    let mut programs: Vec<PathBuf> = Vec::new();
    for dir in var("PATH").unwrap_or_default().split(':').filter_map(inside) {
        if !programs.contains(&dir) {
            programs.push(dir);
        }
    }
    let environment = var("VIRTUAL_ENV").and_then(inside);
    if let Some(bin) = environment
        .as_ref()
        .map(|env| env.join("bin"))
        .filter(|bin| bin.is_dir())
        && !programs.contains(&bin)
    {
        programs.insert(0, bin);
    }
    Active { environment, programs }
}

/// Directories outside the workspace that these virtual environments in it depend on: the Python installation that each
/// was made with. A path named by a file of the workspace counts only if a Python installation is there, and only that
/// installation's own directories are returned.
pub fn bases(environments: &[PathBuf]) -> Vec<PathBuf> {
    let mut bases = Vec::new();
    for dir in environments {
        if !dir.join("pyvenv.cfg").is_file() {
            continue;
        }
        let link = dir.join("bin/python");
        let first = std::fs::read_link(&link).ok().filter(|target| target.is_absolute());
        let programs = first.into_iter().chain(link.canonicalize().ok());
        for prefix in programs.filter_map(|program| installation(&program)) {
            let parts = ["bin", "lib", "include"].map(|part| prefix.join(part));
            let new = parts.into_iter().filter(|part| part.is_dir());
            let is_outside = |part: &PathBuf| dir.parent().is_some_and(|workspace| !part.starts_with(workspace));
            bases.extend(new.filter(is_outside));
        }
    }
    bases.sort();
    bases.dedup();
    bases
}

/// The Python installation that a program belongs to.
fn installation(program: &Path) -> Option<PathBuf> {
    let name = program.file_name()?.to_str()?;
    let prefix = program.parent().filter(|bin| bin.ends_with("bin"))?.parent()?;
    let prefix = prefix.canonicalize().ok()?;
    let libraries = std::fs::read_dir(prefix.join("lib")).ok()?;
    let library = libraries.flatten().any(|entry| {
        let named = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with("python3."));
        named && entry.path().join("os.py").is_file()
    });
    let is_python = name.starts_with("python") && program.is_file();
    // A home directory that contains a library is not an installation.
    (is_python && library && prefix.components().count() > 2).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(pairs: &[(&str, String)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    }

    #[test]
    fn what_leads_into_the_workspace_holds_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let ws = root.join("ws");
        for name in ["ws/.venv/bin", "ws/node_modules/.bin", "out"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("../out", ws.join("link")).unwrap();
        let at = |name: &str| root.join(name).display().to_string();
        let path = [
            at("ws/node_modules/.bin"),
            "node_modules/.bin".to_owned(),
            at("ws"),
            at("ws/link"),
            at("ws/none"),
            at("out"),
            "/usr/bin".to_owned(),
            at("ws/node_modules/.bin"),
        ];
        let parent = vars(&[("PATH", path.join(":")), ("VIRTUAL_ENV", at("ws/.venv"))]);
        let found = active(&ws, None, &parent);
        assert_eq!(found.environment, Some(ws.join(".venv")));
        assert_eq!(found.programs, [ws.join(".venv/bin"), ws.join("node_modules/.bin")]);
    }

    #[test]
    fn the_original_of_an_isolated_tree_means_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["origin/.venv/bin", "origin/other", "tree/.venv/bin"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        let at = |name: &str| root.join(name).display().to_string();
        let parent = vars(&[("PATH", format!("{}:{}", at("origin/.venv/bin"), at("origin/other")))]);
        let found = active(&root.join("tree"), Some(&root.join("origin")), &parent);
        assert_eq!(found.programs, [root.join("tree/.venv/bin")]);
    }

    #[test]
    fn only_a_python_installation_is_a_base() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["ws/.venv/bin", "py/bin", "py/lib/python3.12", "home/bin", "home/.ssh"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        let file = |name: &str| std::fs::write(root.join(name), "").unwrap();
        for name in [
            "ws/.venv/pyvenv.cfg",
            "py/bin/python3.12",
            "py/lib/python3.12/os.py",
            "home/bin/python3",
        ] {
            file(name);
        }
        let python = root.join("ws/.venv/bin/python");
        let lead = |to: &str| {
            let _ = std::fs::remove_file(&python);
            std::os::unix::fs::symlink(root.join(to), &python).unwrap();
            bases(&[root.join("ws/.venv")])
        };
        assert_eq!(lead("py/bin/python3.12"), [root.join("py/bin"), root.join("py/lib")]);
        assert!(lead("home/bin/python3").is_empty());
        assert!(lead("home/.ssh").is_empty());
    }
}
