//! Detects the toolchains of a tree, and the directories that they write, by the names of typical project files.

use super::patch::regular_text;
use std::collections::VecDeque;
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

/// The file with which programs mark a directory that they can make again, and how it begins
/// (<https://bford.info/cachedir/>).
const CACHE_TAG: (&str, &[u8]) = ("CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55");

/// Whether a build writes this directory of the tree: by its name and the project file beside it, or because it is marked
/// as a cache. A link is no directory.
pub fn is_build_output(dir: &Path) -> bool {
    let kind = |path: &Path| std::fs::symlink_metadata(path).map(|found| found.file_type());
    if !kind(dir).is_ok_and(|kind| kind.is_dir()) {
        return false;
    }
    let beside = |file: &&str| kind(&dir.with_file_name(file)).is_ok_and(|kind| kind.is_file());
    let is_named =
        |(name, files): &(&str, &[&str])| dir.file_name().is_some_and(|own| own == *name) && files.iter().any(beside);
    OUTPUTS.iter().any(is_named) || is_marked(&dir.join(CACHE_TAG.0))
}

fn is_marked(tag: &Path) -> bool {
    regular_text(tag).is_some_and(|text| text.as_bytes().starts_with(CACHE_TAG.1))
}

/// The toolchains, each once, in the order of the table. Directories that cannot be read, or are beyond the limits, are
/// skipped; links are not followed.
pub fn of(root: &Path) -> Vec<String> {
    let found: Vec<&str> = places(root).into_iter().map(|(_, toolchain)| toolchain).collect();
    in_order(&found)
}

/// Whether a directory is marked as a cache.
pub fn is_cache(dir: &Path) -> bool {
    is_marked(&dir.join(CACHE_TAG.0))
}

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
    fn the_output_of_a_build_lies_beside_its_project_file_or_is_marked() {
        let dir = tree(&[
            "a/Cargo.toml",
            "a/target/debug/x",
            "a/build/x",
            "b/pom.xml",
            "b/target/x",
            "b/node_modules",
            "c/settings.gradle.kts",
            "c/build/x",
            "c/.gradle/x",
            "d/target/x",
            "e/cache/CACHEDIR.TAG",
            "f/cache/CACHEDIR.TAG",
            "g/package.json",
            "g/node_modules/x",
        ]);
        let tag = [CACHE_TAG.1, b"\n# made again\n"].concat();
        std::fs::write(dir.path().join("e/cache/CACHEDIR.TAG"), tag).unwrap();
        std::os::unix::fs::symlink("../d", dir.path().join("f/target")).unwrap();
        std::fs::write(dir.path().join("f/Cargo.toml"), "").unwrap();
        for (path, expected) in [
            ("a/target", true),
            ("a/target/debug", false),
            ("a/build", false),
            ("b/target", true),
            ("b/node_modules", false),
            ("c/build", true),
            ("c/.gradle", true),
            ("d/target", false),
            ("e/cache", true),
            ("f/cache", false),
            ("f/target", false),
            ("g/node_modules", true),
            ("g/nothing", false),
        ] {
            assert_eq!(is_build_output(&dir.path().join(path)), expected, "{path}");
        }
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
