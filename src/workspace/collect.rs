//! Expands paths, directories and globs to a sorted list of files.

use super::pattern::WorkspacePattern;
use super::root::Workspace;
use super::walk::Filter;
use crate::base::access::{PathStatus, ResolvedPath};
use std::collections::{BTreeMap, BTreeSet};

/// The files to collect.
pub struct FileQuery<'a> {
    pub include: &'a [WorkspacePattern],
    pub exclude: &'a [WorkspacePattern],
    pub filter: Filter,
    /// The tool whose rules decide which of the found files may be shown.
    pub tool: &'a str,
    /// Upper limit for the files.
    pub cap: usize,
}

/// A collected file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub place: ResolvedPath,
    /// Whether the file was named itself, rather than found by a glob or in a directory.
    pub named: bool,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    /// Sorted by the bytes of their paths.
    pub files: Vec<Item>,
    /// Paths and patterns that match nothing, as written.
    pub missing: Vec<String>,
    /// Number of files, found by globs or in directories, that a search must not show.
    pub withheld: usize,
    /// Whether there are more files than the limit.
    pub cut: bool,
}

impl Workspace {
    /// Collects the files in `wanted`. The caller must have ruled on every start path, because a file that is named
    /// itself is returned even if ignore files exclude it.
    pub fn collect(&self, wanted: &FileQuery<'_>, stop: &(dyn Fn() -> bool + Sync)) -> Collection {
        let mut found: BTreeMap<String, Item> = BTreeMap::new();
        let mut withheld = BTreeSet::new();
        let mut out = Collection::default();
        for pattern in wanted.include {
            if pattern.is_exact() {
                match pattern.start.found {
                    PathStatus::File | PathStatus::HardLinked if pattern.start.inside => {
                        let item = Item {
                            place: pattern.start.clone(),
                            named: true,
                        };
                        found.insert(pattern.start.path.clone(), item);
                    }
                    _ => out.missing.push(pattern.asked.clone()),
                }
                continue;
            }
            if !pattern.start.inside {
                out.missing.push(pattern.asked.clone());
                continue;
            }
            let walked = self.files_like(pattern, wanted.filter, stop);
            let mut matched = false;
            for path in &walked.files {
                matched = true;
                if found.contains_key(path) || wanted.exclude.iter().any(|exclude| exclude.matches(path)) {
                    continue;
                }
                if !self.may_search(wanted.tool, path) {
                    withheld.insert(path.clone());
                } else if found.len() >= wanted.cap {
                    out.cut = true;
                } else {
                    found.insert(path.clone(), self.item(path));
                }
            }
            if !matched {
                out.missing.push(pattern.asked.clone());
            }
        }
        out.withheld = withheld.len();
        out.files = found.into_values().collect();
        out
    }

    fn item(&self, path: &str) -> Item {
        Item {
            place: self.locate(path),
            named: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_paths_directories_and_globs_are_put_together() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "src/a.rs",
            "src/b.rs",
            "src/skip.rs",
            "docs/x.md",
            "secret.pem",
            "out.log",
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::fs::write(dir.path().join(".gitignore"), "*.log\n").unwrap();
        let mut workspace = Workspace::open(dir.path()).unwrap();
        workspace.set_unreadable(Box::new(|tool, path| {
            tool == "read_many_files" && path.ends_with(".pem")
        }));
        let patterns = |all: &[&str]| -> Vec<WorkspacePattern> {
            all.iter()
                .map(|one| WorkspacePattern::parse(&workspace, "", one, true).unwrap())
                .collect()
        };
        let collection = workspace.collect(
            &FileQuery {
                include: &patterns(&["src", "**/*.rs", "out.log", "*.pem", "none.rs", "*.zig", "../up"]),
                exclude: &patterns(&["**/skip.*"]),
                filter: Filter::all(),
                tool: "read_many_files",
                cap: 100,
            },
            &|| false,
        );
        let names: Vec<_> = collection
            .files
            .iter()
            .map(|item| (item.place.path.as_str(), item.named))
            .collect();
        assert_eq!(names, [("out.log", true), ("src/a.rs", false), ("src/b.rs", false)]);
        assert_eq!(collection.missing, ["none.rs", "*.zig", "../up"]);
        assert_eq!((collection.withheld, collection.cut), (1, false));
    }
}
