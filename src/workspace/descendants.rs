//! Lists everything below a directory, for exceptions of rules that may fit anywhere. Bounded for one call.

use super::fs::EntryKind;
use super::root::{Workspace, join};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// Upper limit for the names that are listed for one call.
const MAX_NAMES: usize = 100_000;

/// Whether git keeps its objects there: many names that no rule mentions.
fn are_objects(path: &str) -> bool {
    path == ".git/objects" || path.ends_with("/.git/objects")
}

/// What is below the directories that one call searches.
pub struct DescendantLister<'a> {
    workspace: &'a Workspace,
    known: RefCell<HashMap<String, Option<Arc<[String]>>>>,
    left: Cell<usize>,
}

impl<'a> DescendantLister<'a> {
    /// For one call.
    pub fn new(workspace: &'a Workspace) -> Self {
        Self {
            workspace,
            known: RefCell::default(),
            left: Cell::new(MAX_NAMES),
        }
    }

    /// The paths below a directory, relative to the root; links are not followed. `None` if there are too many, or if a
    /// directory cannot be read.
    pub fn below(&self, dir: &str) -> Option<Arc<[String]>> {
        if let Some(known) = self.known.borrow().get(dir) {
            return known.clone();
        }
        let found = self.list(dir).map(Arc::from);
        self.known.borrow_mut().insert(dir.to_owned(), found.clone());
        found
    }

    fn list(&self, dir: &str) -> Option<Vec<String>> {
        let mut found = Vec::new();
        let mut waiting = vec![dir.to_owned()];
        while let Some(dir) = waiting.pop() {
            let place = self.workspace.locate(&dir);
            let left = self.left.get();
            let (entries, rest) = self.workspace.list(&place, left).ok()?;
            self.left.set(left.saturating_sub(entries.len() + rest));
            if rest > 0 {
                return None;
            }
            for entry in entries {
                let path = join(&dir, &entry.name);
                if entry.kind == EntryKind::Dir && !are_objects(&path) {
                    waiting.push(path.clone());
                }
                found.push(path);
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_below_is_listed_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/.env"), "x").unwrap();
        std::os::unix::fs::symlink("../..", dir.path().join("a/up")).unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let lister = DescendantLister::new(&workspace);
        let mut found = lister.below("a").unwrap().to_vec();
        found.sort();
        assert_eq!(found, ["a/b", "a/b/.env", "a/up"]);
        assert_eq!(lister.below("a/b").unwrap().to_vec(), ["a/b/.env"]);
        assert_eq!(lister.below("none"), None);
        lister.left.set(1);
        assert_eq!(lister.below(""), None);
    }
}
