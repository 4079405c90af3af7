//! Queries about snapshots: which paths differ, whether one equals a commit, one without some paths' changes, and which
//! paths are ignored.

use super::delta::lies_below_any;
use super::ignored::{IgnoreRules, read_patterns};
use super::object::{METADATA, ObjectKind};
use super::open::open_dir;
use super::trees::{Leaf, ObjectReader, TreeChange};
use super::unknown::UnknownContent;
use super::{Shadow, Snapshot};
use crate::base::event::PathChange;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

impl Shadow {
    /// Whether `snapshot` equals the tree of this commit. Nested repositories, FIFOs, sockets and devices are not
    /// compared.
    pub async fn is_commit(&self, snapshot: &Snapshot, commit: &str) -> bool {
        let (snapshot, commit) = (snapshot.clone(), commit.to_owned());
        let same = self.beside(move |shadow, state| {
            let mut objects = shadow.objects(&state.store);
            let prefix = shadow.prefix.as_bytes();
            let theirs = objects.tree_of(&commit)?;
            let (theirs, ours) = (
                objects.below(&theirs, prefix)?,
                objects.below(&shadow.id(&snapshot)?, prefix)?,
            );
            let empty = shadow.format.id_of(ObjectKind::Tree, b"")?;
            let changes = objects.differences(&theirs.unwrap_or(empty), &ours.unwrap_or(empty))?;
            let link = |change: &&TreeChange| matches!(change.old, Some((METADATA, _)));
            let links: BTreeSet<Vec<u8>> = changes.iter().filter(link).map(|change| change.path.clone()).collect();
            for change in &changes {
                if lies_below_any(&change.path, &links) {
                    continue;
                }
                match change.new {
                    Some((METADATA, id)) if change.old.is_none() => {
                        if !objects.why(&id)?.is_empty() {
                            return Ok(false);
                        }
                    }
                    _ => return Ok(false),
                }
            }
            Ok(true)
        });
        same.await.unwrap_or(false)
    }

    /// The paths that differ, relative to the top of the repository; bytes that are not UTF-8 appear as `U+FFFD`.
    ///
    /// # Errors
    /// A sentence: an object is missing or was altered.
    pub async fn changed_paths(&self, from: &Snapshot, to: &Snapshot) -> Result<BTreeSet<String>, String> {
        if from == to {
            return Ok(BTreeSet::new());
        }
        let (from, to) = (self.id(from)?, self.id(to)?);
        self.beside(move |shadow, state| {
            let changes = shadow.objects(&state.store).differences(&from, &to)?;
            Ok(changes.iter().map(TreeChange::lossy).collect())
        })
        .await
    }

    /// What happened to each path that differs; paths are relative to the workspace, bytes that are not UTF-8 appear as
    /// `U+FFFD`. A rename counts as one deleted and one added path. Unlike [`super::Delta::files`], it has also what is
    /// below a path whose content is not known.
    ///
    /// # Errors
    /// A sentence: an object is missing or was altered, or a directory can no longer be read, so that what happened to its
    /// files is not known.
    pub async fn path_changes(&self, from: &Snapshot, to: &Snapshot) -> Result<BTreeMap<String, PathChange>, String> {
        if from == to {
            return Ok(BTreeMap::new());
        }
        let (from, to) = (self.id(from)?, self.id(to)?);
        self.beside(move |shadow, state| {
            let mut objects = shadow.objects(&state.store);
            let changes = objects.differences(&from, &to)?;
            let mut found = BTreeMap::new();
            for change in &changes {
                let path = shadow.local(change.lossy());
                if hides_files(&mut objects, change, &changes)? {
                    return Err(format!(
                        "{path}: this directory can no longer be read, so its contents are unknown"
                    ));
                }
                let kind = change.kind();
                // Of names that are displayed alike, one that existed before decides.
                found
                    .entry(path)
                    .and_modify(|known| {
                        if *known == PathChange::Added {
                            *known = kind;
                        }
                    })
                    .or_insert(kind);
            }
            Ok(found)
        })
        .await
    }

    /// Those of `paths` (relative to the workspace) that git's ignore rules exclude from snapshots.
    ///
    /// # Errors
    /// A sentence: an ignore file cannot be read.
    pub async fn ignored(&self, paths: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
        let paths: BTreeSet<String> = paths
            .iter()
            .filter(|path| Path::new(path).is_relative())
            .cloned()
            .collect();
        if paths.is_empty() {
            return Ok(paths);
        }
        self.beside(move |shadow, state| {
            let known = |path: &str| state.last.as_ref().is_some_and(|last| last.has(path.as_bytes()));
            let mut found = BTreeSet::new();
            for path in paths.into_iter().filter(|path| !known(path)) {
                let own = path.starts_with(".overnight/");
                if own
                    || shadow.at_workspace(&mut |handle, rules, ignored| {
                        Ok(ignored || shadow.ignores(&handle, shadow.prefix.len(), rules, &path)?)
                    })?
                {
                    found.insert(path);
                }
            }
            Ok(found)
        })
        .await
    }

    fn ignores(&self, dir: &OwnedFd, base: usize, rules: &IgnoreRules<'_>, path: &str) -> Result<bool, String> {
        let text = read_patterns(dir.as_fd())?.unwrap_or_default();
        let rules = IgnoreRules::new(Some(rules), base, &text);
        let whole = format!("{}{path}", self.prefix);
        let Some((name, _)) = whole.get(base..).and_then(|rest| rest.split_once('/')) else {
            return Ok(rules.ignores(whole.as_bytes(), false));
        };
        let end = base + name.len();
        if rules.ignores(whole.get(..end).unwrap_or_default().as_bytes(), true) {
            return Ok(true);
        }
        let name = CString::new(name).map_err(|error| error.to_string())?;
        match open_dir(dir.as_fd(), &name) {
            Ok(below) => self.ignores(&below, end + 1, &rules, path),
            Err(_) => Ok(rules.ignores(whole.as_bytes(), false)),
        }
    }

    /// The tree `now` with `paths` (relative to the top of the repository) as in `base`.
    ///
    /// # Errors
    /// A sentence: an object is missing or was altered, or the store cannot be written.
    pub async fn without(&self, now: &Snapshot, base: &Snapshot, paths: &BTreeSet<String>) -> Result<Snapshot, String> {
        let (now, base, paths) = (self.id(now)?, self.id(base)?, paths.clone());
        self.beside(move |shadow, state| {
            let mut packer = state.store.packer();
            let mut objects = shadow.objects(&state.store);
            let changes = objects.differences(&now, &base)?;
            let chosen = changes.into_iter().filter(|change| paths.contains(&change.lossy()));
            let edits: BTreeMap<Vec<u8>, Option<Leaf>> = chosen.map(|change| (change.path, change.new)).collect();
            let mut put = |tree: &[u8]| state.store.put(&mut packer, ObjectKind::Tree, tree);
            let id = match objects.edited(Some(&now), &edits, &mut put)? {
                Some(id) => id,
                None => put(b"")?,
            };
            state.store.keep(packer)?;
            Ok(Snapshot {
                tree: shadow.format.hex(&id),
            })
        })
        .await
    }

    /// The content of a file (or the target of a link) in a snapshot; `path` is relative to the workspace. `None` if it
    /// does not exist, or if only its metadata is known.
    ///
    /// # Errors
    /// A sentence: an object is missing or was altered.
    pub async fn content(&self, snapshot: &Snapshot, path: &str) -> Result<Option<Vec<u8>>, String> {
        let (tree, path) = (self.id(snapshot)?, format!("{}{path}", self.prefix));
        self.beside(move |shadow, state| {
            let mut objects = shadow.objects(&state.store);
            match objects.leaf(&tree, path.as_bytes())? {
                Some((mode, id)) if mode != METADATA => objects.read(&id, ObjectKind::Blob).map(Some),
                _ => Ok(None),
            }
        })
        .await
    }
}

/// Whether a change replaces files by a directory that cannot be read; `all` are all changes, sorted by path.
fn hides_files(objects: &mut ObjectReader<'_>, change: &TreeChange, all: &[TreeChange]) -> Result<bool, String> {
    let Some((METADATA, id)) = change.new else {
        return Ok(false);
    };
    let inside = [change.path.as_slice(), b"/"].concat();
    let next = all.partition_point(|other| other.path < inside);
    if !all.get(next).is_some_and(|other| other.path.starts_with(&inside)) {
        return Ok(false);
    }
    Ok(objects.why(&id)? == UnknownContent::Directory)
}
