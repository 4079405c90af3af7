//! Detects the toolchains of a tree, and the directories that they write, by the names of typical project files.

use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Search depth below the top: `services/api/package.json` is found.
const DEPTH: usize = 3;

/// Upper limit for the entries that are examined.
const ENTRIES: usize = 20_000;

/// Directories with third-party code or build output, which are skipped.
const PASSED: &[&str] = &[
    "node_modules",
    "target",
    "vendor",
    "third_party",
    "dist",
    "build",
    "out",
    "venv",
    "site-packages",
    "fixtures",
    "testdata",
];

/// File names and the toolchains that they indicate.
const MARKS: &[(&str, &str)] = &[
    ("Cargo.toml", "rust"),
    ("package.json", "node"),
    ("pyproject.toml", "python"),
    ("setup.py", "python"),
    ("setup.cfg", "python"),
    ("requirements.txt", "python"),
    ("Pipfile", "python"),
    ("tox.ini", "python"),
    ("go.mod", "go"),
    ("go.work", "go"),
    ("pom.xml", "java"),
    ("build.gradle", "java"),
    ("build.gradle.kts", "java"),
    ("settings.gradle", "java"),
    ("settings.gradle.kts", "java"),
];

/// Directories that builds write, each with the project files that it lies beside. Only names that hold nothing else there.
const OUTPUTS: &[(&str, &[&str])] = &[
    ("target", &["Cargo.toml", "pom.xml"]),
    ("build", GRADLE),
    (".gradle", GRADLE),
    ("node_modules", &["package.json"]),
];

const GRADLE: &[&str] = &[
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "settings.gradle.kts",
];

/// The directories above this path that builds write, by their names, outermost first; each with the project files beside
/// one of which it must be.
pub fn output_dirs(path: &str) -> impl Iterator<Item = (&str, &'static [&'static str])> {
    let above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
    above.filter_map(|dir| {
        let name = dir.rsplit('/').next()?;
        let (_, files) = OUTPUTS.iter().find(|(output, _)| *output == name)?;
        Some((dir, *files))
    })
}

/// The toolchains, each once, in the order of the table. Directories that cannot be read, or are beyond the limits, are
/// skipped; links are not followed.
pub fn of(root: &Path) -> Vec<String> {
    let found: Vec<&str> = places(root).into_iter().map(|(_, toolchain)| toolchain).collect();
    in_order(&found)
}

/// Whether a directory has the tag of <https://bford.info/cachedir/>. For messages only: anybody can write it.
pub fn is_cache(dir: &Path) -> bool {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let tag = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(dir.join("CACHEDIR.TAG"));
    let mut head = [0; CACHE_TAG.len()];
    tag.and_then(|mut tag| tag.read_exact(&mut head)).is_ok() && head == *CACHE_TAG
}

/// The beginning of the tag.
const CACHE_TAG: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// The directories with files of projects, relative to `root`, each with the toolchain that they indicate; with the limits
/// of [`of`], nearest first.
pub fn places(root: &Path) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    let mut left: VecDeque<(PathBuf, usize)> = VecDeque::from([(root.to_path_buf(), 0)]);
    let mut seen = 0;
    while let Some((dir, depth)) = left.pop_front() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().filter_map(Result::ok) {
            seen += 1;
            if seen > ENTRIES {
                return found;
            }
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_file() {
                let below = dir.strip_prefix(root).unwrap_or(&dir);
                let marks = MARKS.iter().filter(|(mark, _)| *mark == name);
                found.extend(marks.map(|(_, toolchain)| (below.to_owned(), *toolchain)));
            } else if kind.is_dir() && depth < DEPTH && !name.starts_with('.') && !PASSED.contains(&name) {
                left.push_back((entry.path(), depth + 1));
            }
        }
    }
    found
}

fn in_order(found: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for (_, toolchain) in MARKS {
        if found.contains(toolchain) && !all.iter().any(|name| name == toolchain) {
            all.push((*toolchain).to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::toolchain;

    #[test]
    fn every_toolchain_has_its_file_names() {
        let all: Vec<String> = toolchain::NAMES.map(str::to_owned).to_vec();
        let marked: Vec<&str> = MARKS.iter().map(|(_, name)| *name).collect();
        assert_eq!(in_order(&marked), all);
    }

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        dir
    }

    #[test]
    fn the_output_of_a_build_has_a_name_of_its_own() {
        let found = |path| output_dirs(path).map(|(dir, _)| dir).collect::<Vec<_>>();
        assert_eq!(found("a/target/debug/target/x"), ["a/target", "a/target/debug/target"]);
        assert_eq!(found("node_modules/a/b"), ["node_modules"]);
        assert!(found("target").is_empty());
        assert!(found("my-target/x").is_empty());
    }

    #[test]
    fn files_of_a_project_tell_its_toolchain() {
        let dir = tree(&[
            "services/api/package.json",
            "Cargo.toml",
            "crates/a/Cargo.toml",
            "README.md",
        ]);
        assert_eq!(of(dir.path()), ["rust", "node"]);
        assert!(of(tree(&["README.md", "a.py"]).path()).is_empty());
    }

    #[test]
    fn what_others_wrote_tells_nothing() {
        let dir = tree(&[
            "node_modules/a/package.json",
            "vendor/b/go.mod",
            "tests/fixtures/x/pom.xml",
            ".venv/lib/setup.py",
            "a/b/c/d/Cargo.toml",
        ]);
        std::os::unix::fs::symlink("/usr", dir.path().join("usr")).unwrap();
        assert!(of(dir.path()).is_empty());
    }
}
