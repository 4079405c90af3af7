//! Computes the patch between two snapshots. The git process that writes it sees a scratch store with only the files
//! that differ, each verified against its id; it only reads, starts no program and uses no settings of the tree or the
//! user.

use super::index::GitIndex;
use super::object::{Id, ObjectFormat, ObjectKind};
use super::patch_lines::cr_lines;
use super::patch_names;
use super::raw_diff::{self, RawEntry};
use super::snapshot_limits::SnapshotLimits;
use super::store::Store;
use super::trees::{Leaf, ObjectReader, TreeChange};
use super::{Shadow, Snapshot, State};
use crate::base::event::FileChange;
use crate::process::own_git::{self, GitAccess, Scratch};
use std::collections::{BTreeMap, BTreeSet};

/// The difference between two snapshots.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// A patch for `git apply`; empty if nothing changed that a patch can contain.
    pub patch: Vec<u8>,
    /// All changes: those of the patch in its order, then those that a patch cannot contain, without what is below
    /// these.
    pub files: Vec<FileChange>,
    /// Added and removed lines of the patch that end in CR alone, which git does not count.
    pub cr_lines: u64,
    /// The changes that are not in the patch.
    pub unpatched: Vec<Unpatched>,
    /// Submodules of the repository below which files changed, relative to the workspace. Only for a patch that is made
    /// for a commit.
    pub submodules: BTreeSet<String>,
}

/// A changed path whose content is not known: a large file that git does not have, a FIFO, an unreadable file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpatched {
    /// Relative to the workspace.
    pub path: String,
    /// What it is, for example `a file over 32 MiB`.
    pub why: String,
    /// Whether it is a file with content that the patch lacks; a pipe or a socket has none.
    pub lacks_content: bool,
}

/// Whether a path is one of `tops` or is below one.
pub(super) fn lies_below_any(path: &[u8], tops: &BTreeSet<Vec<u8>>) -> bool {
    top_of(path, tops).is_some()
}

/// The first of `tops` that a path is, or is below.
fn top_of<'p>(path: &'p [u8], tops: &BTreeSet<Vec<u8>>) -> Option<&'p [u8]> {
    let ends = memchr::memchr_iter(b'/', path).chain([path.len()]);
    ends.filter_map(|end| path.get(..end)).find(|top| tops.contains(*top))
}

/// Whether a symbolic link is renamed.
fn moves_a_link(entries: &[RawEntry<'_>]) -> bool {
    entries.iter().any(|entry| match entry {
        RawEntry::File(file) => file.modes[0] == b"120000" && file.status == b'R',
        RawEntry::Counts { .. } => false,
    })
}

impl Shadow {
    /// The changes from one snapshot to another.
    ///
    /// # Errors
    /// A sentence: an object is missing or was altered, or git failed.
    pub async fn delta(&self, from: &Snapshot, to: &Snapshot) -> Result<Delta, String> {
        self.delta_on(None, from, to).await
    }

    /// As [`Shadow::delta`]; where an old content differs from that of `commit` only in its line ends, CRLF against LF,
    /// the patch is made with LF and fits the commit.
    ///
    /// # Errors
    /// As [`Shadow::delta`].
    pub async fn delta_on(&self, commit: Option<&str>, from: &Snapshot, to: &Snapshot) -> Result<Delta, String> {
        if from == to {
            return Ok(Delta::default());
        }
        let (from, to) = (self.id(from)?, self.id(to)?);
        let commit = commit.map(str::to_owned);
        let (mut delta, changed, scratch) = self
            .beside(move |shadow, state| {
                let mut changes = shadow.objects(&state.store).differences(&from, &to)?;
                let mut submodules = BTreeSet::new();
                if let Some(commit) = &commit {
                    submodules = shadow.submodules_with(state, &changes);
                    changes = shadow.with_line_ends_of(state, commit, changes)?;
                }
                let mut objects = shadow.objects(&state.store);
                let (changes, mut delta) = shadow.sort_out(&mut objects, changes)?;
                delta.submodules = submodules;
                let scratch = match changes.is_empty() {
                    true => None,
                    false => {
                        let bound = state.times.begin(&shadow.end);
                        let made = reduced(shadow.format, &mut objects, &changes, &bound);
                        state.times.finish(&bound);
                        Some(made?)
                    }
                };
                Ok((delta, changes, scratch))
            })
            .await?;
        let Some((scratch, from, to)) = scratch else {
            return Ok(delta);
        };
        let (from, to) = (self.format.hex(&from), self.format.hex(&to));
        let mut args = [
            "diff-tree",
            "-r",
            "-M",
            "-z",
            "--raw",
            "--numstat",
            "-p",
            "--binary",
            "--full-index",
            "--no-ext-diff",
            "--no-textconv",
            &from,
            &to,
        ];
        let env = scratch.env();
        let git = own_git::git(&args, scratch.path(), &env, None, GitAccess::Read);
        let mut printed = self.end.within(git).await?;
        if printed.ok && raw_diff::read(&printed.stdout).is_some_and(|(entries, _)| moves_a_link(&entries)) {
            // With a renamed link, `git apply` does not notice that the old name is free, and refuses a directory in
            // its place.
            args[2] = "--no-renames";
            let git = own_git::git(&args, scratch.path(), &env, None, GitAccess::Read);
            printed = self.end.within(git).await?;
        }
        if !printed.ok {
            return Err(format!("git diff-tree: {}", printed.stderr));
        }
        let (entries, patch) = raw_diff::read(&printed.stdout)
            .and_then(|(entries, patch)| Some((entries, patch?)))
            .ok_or("git diff-tree printed something other than a patch")?;
        let files = file_changes(&entries, &self.prefix).ok_or("git diff-tree counted lines of other files")?;
        patch_names::check(&entries, patch, &changed)?;
        delta.cr_lines = cr_lines(patch).ok_or("git diff-tree printed a patch that cannot be read")?;
        delta.files.splice(0..0, files);
        delta.patch = patch.to_vec();
        Ok(delta)
    }

    /// The submodules below which these changes are.
    fn submodules_with(&self, state: &mut State, changes: &[TreeChange]) -> BTreeSet<String> {
        let known = state.submodules.get_or_insert_with(|| {
            // An earlier process took the baseline. This is for a warning only, so an index that cannot be read has none.
            let index = self.index().ok().flatten();
            index.as_ref().map(GitIndex::submodules).unwrap_or_default()
        });
        let found: BTreeSet<&[u8]> = changes
            .iter()
            .filter_map(|change| top_of(&change.path, known))
            .collect();
        found
            .into_iter()
            .map(|path| self.local(String::from_utf8_lossy(path).into_owned()))
            .collect()
    }

    /// Separates the changes that a patch cannot contain, and everything below them.
    pub(super) fn sort_out(
        &self,
        objects: &mut ObjectReader<'_>,
        changes: Vec<TreeChange>,
    ) -> Result<(Vec<TreeChange>, Delta), String> {
        let mut delta = Delta::default();
        let mut tops = BTreeSet::new();
        for change in &changes {
            let Some(id) = change.unknown() else { continue };
            let why = objects.why(&id)?;
            let path = self.local(change.lossy());
            let kind = match (&change.old, &change.new) {
                (None, _) => "added",
                (_, None) => "deleted",
                _ => "modified",
            };
            delta.files.push(FileChange {
                path: path.clone(),
                kind: kind.to_owned(),
                from: None,
                added: None,
                removed: None,
            });
            delta.unpatched.push(Unpatched {
                path,
                why: why.to_string(),
                lacks_content: why.is_file(),
            });
            tops.insert(change.path.clone());
        }
        let kept = changes
            .into_iter()
            .filter(|change| !lies_below_any(&change.path, &tops));
        let kept = kept.collect();
        Ok((kept, delta))
    }

    /// Converts a path relative to the top of the repository to one relative to the workspace.
    pub(super) fn local(&self, path: String) -> String {
        path.strip_prefix(&self.prefix).map(str::to_owned).unwrap_or(path)
    }
}

/// A store with two trees that contain only what differs, and their ids.
fn reduced(
    format: ObjectFormat,
    objects: &mut ObjectReader<'_>,
    changes: &[TreeChange],
    bound: &SnapshotLimits,
) -> Result<(Scratch, Id, Id), String> {
    let scratch = Scratch::make(format == ObjectFormat::Sha256)?;
    let mut store = Store::open(scratch.path(), format)?;
    let mut packer = store.packer();
    let wanted: BTreeSet<Id> = changes
        .iter()
        .flat_map(|change| [change.old, change.new])
        .flatten()
        .map(|(_, id)| id)
        .collect();
    let wanted: Vec<Id> = wanted.into_iter().collect();
    objects.each(&wanted, ObjectKind::Blob, &mut |id, content| {
        bound.check_read(content.len() as u64)?;
        packer.add(id, ObjectKind::Blob, &content)
    })?;
    let mut tree = |side: &dyn Fn(&TreeChange) -> Option<Leaf>| -> Result<Id, String> {
        let edits: BTreeMap<_, _> = changes
            .iter()
            .map(|change| (change.path.clone(), side(change)))
            .collect();
        let mut put = |tree: &[u8]| store.put(&mut packer, ObjectKind::Tree, tree);
        match objects.edited(None, &edits, &mut put)? {
            Some(id) => Ok(id),
            None => put(b""),
        }
    };
    let (from, to) = (tree(&|change| change.old)?, tree(&|change| change.new)?);
    store.keep(packer)?;
    Ok((scratch, from, to))
}

/// The changed files, from the output of `git diff-tree -z --raw --numstat`. `None` if it cannot be read: nothing is
/// known about the changes then.
///
/// `prefix`: what is cut off the beginning of the paths.
pub fn changes(printed: &[u8], prefix: &str) -> Option<Vec<FileChange>> {
    let (entries, _) = raw_diff::read(printed)?;
    file_changes(&entries, prefix)
}

/// `None` if lines of a file that is not among the changed ones are counted.
fn file_changes(entries: &[RawEntry<'_>], prefix: &str) -> Option<Vec<FileChange>> {
    let mut files: Vec<FileChange> = Vec::new();
    let mut by_path: BTreeMap<&[u8], usize> = BTreeMap::new();
    let local = |path: &[u8]| {
        let path = String::from_utf8_lossy(path);
        path.strip_prefix(prefix).unwrap_or(&path).to_owned()
    };
    for entry in entries {
        match entry {
            RawEntry::File(file) => {
                let has_same_content = file.ids[0] == file.ids[1];
                let kind = match file.status {
                    b'A' | b'C' => "added",
                    b'D' => "deleted",
                    b'R' => "renamed",
                    _ if has_same_content && file.modes[0] != file.modes[1] => "mode",
                    _ => "modified",
                };
                // Git counts no lines of a binary file, even if only its mode or name is new.
                let lines = has_same_content.then_some(0);
                by_path.insert(file.to, files.len());
                files.push(FileChange {
                    path: local(file.to),
                    kind: kind.to_owned(),
                    from: file.is_moved().then(|| local(file.from)),
                    added: lines,
                    removed: lines,
                });
            }
            RawEntry::Counts { lines, path } => {
                let file = by_path.get(path).and_then(|at| files.get_mut(*at))?;
                if let Some((added, removed)) = lines {
                    file.added = Some(*added);
                    file.removed = Some(*removed);
                }
            }
        }
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_file_has_uncounted_lines_only_if_its_content_changed() {
        let raw =
            b":100644 100755 aa aa M\0mode\0:100644 100644 aa aa R100\0old\0\"new\n\0:100644 100644 aa bb M\0bytes\0\
            :100644 100644 cc dd M\0text\0-\t-\tmode\0-\t-\t\0old\0\"new\n\0-\t-\tbytes\x002\t1\ttext\0";
        let found = changes(raw, "").unwrap();
        let told: Vec<_> = found
            .iter()
            .map(|file| (file.path.as_str(), file.kind.as_str(), file.added, file.removed))
            .collect();
        assert_eq!(
            told,
            [
                ("mode", "mode", Some(0), Some(0)),
                ("\"new\n", "renamed", Some(0), Some(0)),
                ("bytes", "modified", None, None),
                ("text", "modified", Some(2), Some(1)),
            ]
        );
    }

    #[test]
    fn only_a_renamed_link_counts_as_one_whatever_files_are_called() {
        let moves = |printed: &[u8]| moves_a_link(&raw_diff::read(printed).unwrap().0);
        assert!(moves(b":120000 120000 aa aa R100\0old\0new\0"));
        assert!(!moves(b":100644 100644 aa bb M\0:120000 x R\0"));
    }

    #[test]
    fn counts_of_another_file_are_not_overlooked() {
        assert_eq!(changes(b":100644 100644 aa bb M\0a\x009\t9\tb\0", ""), None);
    }
}
