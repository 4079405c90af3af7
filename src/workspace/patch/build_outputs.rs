//! Finds the directories that builds have made since the start of a run.

use super::index::GitIndex;
use super::object::{DIRECTORY, EXECUTABLE, FILE, Id};
use super::trees::{Leaf, ObjectReader};
use super::{Shadow, Snapshot};
use crate::workspace::toolchains::output_dirs;
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl Shadow {
    /// The directories, relative to the workspace, with these new files that builds have made since the snapshot `start`: by
    /// their names, beside a project file of `start`. What `start` has of that name, or git tracks below it, was there
    /// before the build, so that its directory is none.
    ///
    /// # Errors
    /// A sentence: an object is missing or was altered.
    pub async fn build_outputs(&self, start: &Snapshot, added: &[&str]) -> Result<BTreeSet<String>, String> {
        let named = added.iter().flat_map(|path| output_dirs(path));
        let named: BTreeMap<String, &[&str]> = named.map(|(dir, files)| (dir.to_owned(), files)).collect();
        if named.is_empty() {
            return Ok(BTreeSet::new());
        }
        let start = self.id(start)?;
        self.beside(move |shadow, state| {
            let mut objects = shadow.objects(&state.store);
            let Some(top) = objects.below(&start, shadow.prefix.as_bytes())? else {
                return Ok(BTreeSet::new());
            };
            // An index that cannot be read may track anything.
            let Ok(index) = shadow.index() else {
                return Ok(BTreeSet::new());
            };
            let mut known = HashMap::from([(String::new(), entries(&mut objects, &top)?)]);
            let mut found = BTreeSet::new();
            for (dir, files) in named {
                let (parent, name) = dir.rsplit_once('/').unwrap_or(("", &dir));
                look_at(&mut objects, parent, &mut known)?;
                let Some(beside) = known.get(parent) else { continue };
                let is_file = |file: &&str| matches!(beside.get(file.as_bytes()), Some((FILE | EXECUTABLE, _)));
                let is_tracked = index
                    .as_ref()
                    .is_some_and(|index| tracks_below(index, &shadow.at_top(&dir)));
                if !beside.contains_key(name.as_bytes()) && files.iter().any(is_file) && !is_tracked {
                    found.insert(dir);
                }
            }
            Ok(found)
        })
        .await
    }
}

/// The entries of a directory by their names.
type Entries = BTreeMap<Vec<u8>, Leaf>;

fn entries(objects: &mut ObjectReader<'_>, tree: &Id) -> Result<Entries, String> {
    let all = objects.tree(tree)?.into_iter();
    Ok(all.map(|entry| (entry.name, (entry.mode, entry.id))).collect())
}

/// Adds this directory, and those above it, to the known ones; one that does not exist has no entries. The top is known.
fn look_at(objects: &mut ObjectReader<'_>, dir: &str, known: &mut HashMap<String, Entries>) -> Result<(), String> {
    let ends = dir.match_indices('/').map(|(at, _)| at).chain([dir.len()]);
    for dir in ends.filter_map(|end| dir.get(..end)) {
        if known.contains_key(dir) {
            continue;
        }
        let (parent, name) = dir.rsplit_once('/').unwrap_or(("", dir));
        let found = known.get(parent).and_then(|beside| beside.get(name.as_bytes()));
        let here = match found.copied() {
            Some((DIRECTORY, id)) => entries(objects, &id)?,
            _ => Entries::new(),
        };
        known.insert(dir.to_owned(), here);
    }
    Ok(())
}

/// Whether git tracks something below this directory.
fn tracks_below(index: &GitIndex, dir: &str) -> bool {
    !index.below(format!("{dir}/").as_bytes(), 0..index.len()).is_empty()
}
