//! Restores paths of the tree to a snapshot, and makes the changes of a delta again. Writes through handles only, and
//! verifies the result.

use super::delta::lies_below_any;
use super::handle_writes::{HandleWriter, KnownAccess, Opened};
use super::object::{Id, METADATA, ObjectKind};
use super::trees::{ObjectReader, TreeChange};
use super::{Shadow, Snapshot, State};
use crate::process::{OwnWrite, own_write};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

/// The result of a restore; all paths are relative to the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Paths that had changed and are restored.
    pub done: BTreeSet<String>,
    /// Paths that still differ, and why.
    pub failed: BTreeMap<String, String>,
}

/// How often what is closed by its mode is opened up; each time shows the next level of directories.
const MOST_OPENED: usize = 32;

/// Which directories are removed when they become empty.
#[derive(Clone, Copy, Debug)]
enum Emptied {
    All,
    /// Those that were certainly made later. Snapshots have no empty directories, so others may have been there.
    MadeAfter(Option<SystemTime>),
}

/// What differs from a snapshot, and what brings it back once it is reverted.
#[derive(Clone, Debug)]
pub struct Reversal {
    /// The patch from the snapshot to the tree as it was found.
    pub patch: Vec<u8>,
    /// Paths with content that the patch lacks, and why. They are not reverted.
    pub kept: BTreeMap<String, String>,
    to: Snapshot,
    found: Snapshot,
    paths: BTreeSet<String>,
    known: KnownAccess,
    opened: Opened,
}

impl Shadow {
    /// Restores `paths` (relative to the workspace, as in [`super::Delta::files`]) to their state in `from`: content,
    /// mode, link target. What did not exist then is removed, together with directories that become empty. Other paths
    /// are not touched, and links are never followed. For a name that is not UTF-8, all names that are displayed alike
    /// are restored.
    ///
    /// # Errors
    /// A sentence: the tree cannot be read. Paths that could not be restored are in [`Restored::failed`].
    pub async fn restore(&self, from: &Snapshot, paths: &BTreeSet<String>) -> Result<Restored, String> {
        self.restore_found(from, paths, None).await
    }

    /// As [`Shadow::restore`]; a path that is no longer as `reversal` found it is left alone, and has failed.
    async fn restore_found(
        &self,
        from: &Snapshot,
        paths: &BTreeSet<String>,
        reversal: Option<(&Reversal, Option<SystemTime>)>,
    ) -> Result<Restored, String> {
        let (from, paths) = (self.id(from)?, paths.clone());
        let found = reversal.map(|(reversal, _)| self.id(&reversal.found)).transpose()?;
        let earlier = reversal.map(|(reversal, _)| (reversal.known.clone(), reversal.opened.clone()));
        let emptied = reversal.map_or(Emptied::All, |(_, begun)| Emptied::MadeAfter(begun));
        self.beside(move |shadow, state| {
            let (known, opened) = earlier.unwrap_or_else(|| (shadow.known_access(state), Opened::new()));
            let now = shadow.current(state, None, true)?;
            let now = shadow.id(&now)?;
            let mut objects = shadow.objects(&state.store);
            let mut changes = objects.differences(&now, &from)?;
            changes.retain(|change| paths.contains(&shadow.local(change.lossy())));
            let newer: BTreeSet<Vec<u8>> = match found {
                Some(found) => objects
                    .differences(&found, &now)?
                    .into_iter()
                    .map(|change| change.path)
                    .collect(),
                None => BTreeSet::new(),
            };
            let as_found: Vec<TreeChange> = changes
                .iter()
                .filter(|change| !newer.contains(&change.path))
                .cloned()
                .collect();
            let paths = as_found.iter().map(|change| OsStr::from_bytes(&change.path));
            let told: Vec<OwnWrite> = paths.map(|path| own_write(&shadow.top.join(path))).collect();
            let writer = HandleWriter::open(&shadow.top)?.knowing(known, opened);
            let mut why = restore_all((&writer, emptied), &mut objects, &from, &as_found)?;
            drop(told);
            // The current tree decides what differs.
            let now = shadow.current(state, None, true)?;
            let left = shadow.objects(&state.store).differences(&shadow.id(&now)?, &from)?;
            let left: BTreeSet<Vec<u8>> = left.into_iter().map(|change| change.path).collect();
            let mut restored = Restored::default();
            for change in changes {
                let path = shadow.local(change.lossy());
                if left.contains(&change.path) {
                    let again = || "it was changed again meanwhile".to_owned();
                    let why = why.remove(&change.path).unwrap_or_else(again);
                    restored.failed.insert(path, why);
                } else {
                    restored.done.insert(path);
                }
            }
            restored.done.retain(|path| !restored.failed.contains_key(path));
            Ok(restored)
        })
        .await
    }

    /// Finds every path that differs from a snapshot, for [`Shadow::revert`]; `None` if there is none. An ignore file that
    /// was changed since hides nothing, because it is reverted too. `exact`: as for [`Shadow::ruled_snapshot`].
    ///
    /// # Errors
    /// A sentence: the tree cannot be read, or no patch can be made of what differs.
    pub async fn reversal(&self, to: &Snapshot, exact: bool) -> Result<Option<Reversal>, String> {
        let known = self.beside(|shadow, state| Ok(shadow.known_access(state))).await?;
        let mut opened = Opened::new();
        let reversal = self.reversal_opening(to, exact, &known, &mut opened).await;
        if reversal.is_err() {
            self.close_up(&known, &opened)?;
        }
        reversal
    }

    /// Gives what was opened up for a reversal its mode back, where nothing is put back.
    ///
    /// # Errors
    /// A sentence: the workspace cannot be opened.
    pub fn close_again(&self, what: &Reversal) -> Result<(), String> {
        self.close_up(&what.known, &what.opened)
    }

    fn close_up(&self, known: &KnownAccess, opened: &Opened) -> Result<(), String> {
        let writer = HandleWriter::open(&self.top)?.knowing(known.clone(), opened.clone());
        writer.close_up();
        Ok(())
    }

    async fn reversal_opening(
        &self,
        to: &Snapshot,
        exact: bool,
        known: &KnownAccess,
        opened: &mut Opened,
    ) -> Result<Option<Reversal>, String> {
        let mut found = self.ruled_snapshot(exact, |_| false).await?;
        for _ in 0..MOST_OPENED {
            let more = self.open_up(to, &found, opened.clone()).await?;
            if more.len() == opened.len() {
                break;
            }
            *opened = more;
            found = self.ruled_snapshot(exact, |_| false).await?;
        }
        let changed = self.changed_paths(to, &found).await?;
        if changed.is_empty() && opened.is_empty() {
            return Ok(None);
        }
        let kept = self.not_in_a_patch(to, &found).await?;
        let paths = changed.into_iter().map(|path| self.local(path));
        Ok(Some(Reversal {
            patch: self.delta(to, &found).await?.patch,
            paths: paths.filter(|path| !kept.contains_key(path)).collect(),
            kept,
            to: to.clone(),
            found,
            known: known.clone(),
            opened: opened.clone(),
        }))
    }

    /// Who could use the files of the last snapshot, or of the first one.
    fn known_access(&self, state: &State) -> KnownAccess {
        let dirs: Vec<_> = [&state.last, &state.base].into_iter().flatten().cloned().collect();
        KnownAccess {
            // What an earlier process knew is lost; it may have been a private file.
            private: !state
                .base
                .as_ref()
                .is_some_and(|base| base.entries().any(|(_, entry)| entry.access.is_some())),
            dirs,
            prefix: self.prefix.clone(),
        }
    }

    /// Opens up files and directories of this user in `found` that differ from `to` and that their modes close, so that
    /// their content can be saved and removed. Returns them together with those in `opened`.
    async fn open_up(&self, to: &Snapshot, found: &Snapshot, opened: Opened) -> Result<Opened, String> {
        let (to, found) = (self.id(to)?, self.id(found)?);
        self.beside(move |shadow, state| {
            let mut objects = shadow.objects(&state.store);
            let writer = HandleWriter::open(&shadow.top)?.knowing(KnownAccess::default(), opened);
            for change in objects.differences(&to, &found)? {
                let Some((METADATA, id)) = change.new else { continue };
                if objects.why(&id)?.is_closed() {
                    // One that belongs to another user stays closed.
                    writer.open_up(&change.path);
                }
            }
            Ok(writer.into_opened())
        })
        .await
    }

    /// The paths in `found` that differ from `to` and have content which [`Shadow::delta`] leaves out of the patch, and
    /// why.
    async fn not_in_a_patch(&self, to: &Snapshot, found: &Snapshot) -> Result<BTreeMap<String, String>, String> {
        let (to, found) = (self.id(to)?, self.id(found)?);
        self.beside(move |shadow, state| {
            let mut objects = shadow.objects(&state.store);
            let changes = objects.differences(&to, &found)?;
            let tops: BTreeSet<Vec<u8>> = changes
                .iter()
                .filter(|change| change.unknown().is_some())
                .map(|change| change.path.clone())
                .collect();
            let mut kept = BTreeMap::new();
            for change in &changes {
                let why = match change.new {
                    Some((METADATA, id)) => Some(objects.why(&id)?)
                        .filter(|why| !why.is_empty())
                        .map(|why| why.to_string()),
                    Some(_) if lies_below_any(&change.path, &tops) => {
                        Some("it replaced what no patch can contain".to_owned())
                    }
                    _ => None,
                };
                kept.extend(why.map(|why| (shadow.local(change.lossy()), why)));
            }
            Ok(kept)
        })
        .await
    }

    /// Restores the paths that were found to differ, as [`Shadow::restore`] does. What has changed since, and what the
    /// patch lacks, is left alone and has failed. A directory that becomes empty stays, unless it was made after `begun`.
    ///
    /// # Errors
    /// As for [`Shadow::restore`].
    pub async fn revert(&self, what: &Reversal, begun: Option<SystemTime>) -> Result<Restored, String> {
        let restored = self.restore_found(&what.to, &what.paths, Some((what, begun))).await;
        if restored.is_err() {
            self.close_again(what)?;
        }
        let mut restored = restored?;
        restored.failed.extend(what.kept.clone());
        Ok(restored)
    }

    /// Makes the changes of a delta again, on the tree that it began at; `to`: where it ended. Snapshots and not the patch,
    /// because [`Shadow::delta_on`] does not make the patch for the line ends of the tree. What no patch can contain is left
    /// out as there.
    ///
    /// # Errors
    /// A sentence: an object is missing or was altered, or a file cannot be written.
    pub async fn apply(&self, to: &Snapshot) -> Result<(), String> {
        let to = self.id(to)?;
        self.beside(move |shadow, state| {
            let now = shadow.current(state, None, true)?;
            let from = shadow.id(&now)?;
            let mut objects = shadow.objects(&state.store);
            let changes = objects.differences(&from, &to)?;
            let (changes, _) = shadow.sort_out(&mut objects, changes)?;
            let writer = HandleWriter::open(&shadow.top)?;
            let failed = restore_all((&writer, Emptied::All), &mut objects, &to, &changes)?;
            match failed.iter().next() {
                Some((path, why)) => Err(format!("{}: {why}", String::from_utf8_lossy(path))),
                None => Ok(()),
            }
        })
        .await
    }
}

/// Changes paths from the old side of each change to the new one; `tree` contains them all. Gives what was opened up its
/// mode back, also after an error. Returns the failures.
fn restore_all(
    (writer, emptied): (&HandleWriter, Emptied),
    objects: &mut ObjectReader<'_>,
    tree: &Id,
    changes: &[TreeChange],
) -> Result<BTreeMap<Vec<u8>, String>, String> {
    let failed = restore_each((writer, emptied), objects, tree, changes);
    writer.close_up();
    failed
}

fn restore_each(
    (writer, emptied): (&HandleWriter, Emptied),
    objects: &mut ObjectReader<'_>,
    tree: &Id,
    changes: &[TreeChange],
) -> Result<BTreeMap<Vec<u8>, String>, String> {
    let mut failed = BTreeMap::new();
    // Deeper paths are removed first, and all removals precede additions, because a file's name may have been a
    // directory.
    for change in changes.iter().rev().filter(|change| change.new.is_none()) {
        if let Err(why) = writer.remove(&change.path) {
            failed.insert(change.path.clone(), why);
            continue;
        }
        let mut path = change.path.as_slice();
        while let Some(slash) = memchr::memrchr(b'/', path) {
            path = path.get(..slash).unwrap_or_default();
            let may_go = match emptied {
                Emptied::All => true,
                Emptied::MadeAfter(begun) => {
                    begun.is_some_and(|begun| writer.made(path).is_some_and(|made| made > begun))
                }
            };
            if !may_go || objects.below(tree, path)?.is_some() || !writer.remove_empty(path) {
                break;
            }
        }
    }
    for change in changes {
        let Some((mode, id)) = change.new else { continue };
        let put = match mode {
            METADATA => Err("its content was not kept".to_owned()),
            mode => objects
                .read(&id, ObjectKind::Blob)
                .and_then(|content| writer.put(&change.path, mode, &content)),
        };
        if let Err(why) = put {
            failed.insert(change.path.clone(), why);
        }
    }
    Ok(failed)
}
