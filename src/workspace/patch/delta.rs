//! Computes the patch between two snapshots. The git process that writes it sees a private store with only the files
//! that differ, each verified against its id; it only reads, starts no program and uses no settings of the tree or the
//! user.

use super::bound::Bound;
use super::name_status::stands_for_content;
use super::object::{Id, ObjectFormat, ObjectKind};
use super::patch_lines::cr_lines;
use super::patch_names;
use super::store::Store;
use super::trees::{Leaf, ObjectReader, TreeChange};
use super::{Shadow, Snapshot};
use crate::base::event::FileChange;
use crate::process::own_git::{self, May, Scratch};
use std::collections::{BTreeMap, BTreeSet};

/// The difference between two snapshots.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// A patch for `git apply`; empty if nothing changed that a patch can contain.
    pub patch: Vec<u8>,
    /// All changes, including those that a patch cannot contain, but not what is below these.
    pub files: Vec<FileChange>,
    /// Added and removed lines of the patch that end in CR alone, which git does not count.
    pub cr_lines: u64,
    /// The changes that are not in the patch.
    pub unpatched: Vec<Unpatched>,
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
    let mut ends = memchr::memchr_iter(b'/', path).chain([path.len()]);
    ends.any(|end| path.get(..end).is_some_and(|top| tops.contains(top)))
}

/// Whether `git diff-tree -z --raw` reports a renamed symbolic link.
fn moves_a_link(printed: &[u8]) -> bool {
    printed.split(|byte| *byte == 0).any(|record| {
        record.starts_with(b":120000 ")
            && record
                .rsplit(|byte| *byte == b' ')
                .next()
                .is_some_and(|status| status.starts_with(b"R"))
    })
}

impl Shadow {
    /// The changes from one snapshot to another.
    ///
    /// # Errors
    /// A sentence: an object is missing or was altered, or git failed.
    pub async fn delta(&self, from: &Snapshot, to: &Snapshot) -> Result<Delta, String> {
        if from == to {
            return Ok(Delta::default());
        }
        let (from, to) = (self.id(from)?, self.id(to)?);
        let (mut delta, changed, scratch) = self
            .beside(move |shadow, state| {
                let mut objects = shadow.objects(&state.store);
                let changes = objects.differences(&from, &to)?;
                let (changes, delta) = shadow.sort_out(&mut objects, changes)?;
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
        let git = own_git::git(&args, scratch.path(), &env, None, May::Read);
        let mut printed = self.end.within(git).await?;
        if printed.ok && moves_a_link(&printed.stdout) {
            // With a renamed link, `git apply` does not notice that the old name is free, and refuses a directory in
            // its place.
            args[2] = "--no-renames";
            let git = own_git::git(&args, scratch.path(), &env, None, May::Read);
            printed = self.end.within(git).await?;
        }
        if !printed.ok {
            return Err(format!("git diff-tree: {}", printed.stderr));
        }
        let (raw, patch) = parts(&printed.stdout).ok_or("git diff-tree printed something other than a patch")?;
        patch_names::check(raw, patch, &changed)?;
        delta.cr_lines = cr_lines(patch).ok_or("git diff-tree printed a patch that cannot be read")?;
        delta.files.splice(0..0, changes(raw, &self.prefix));
        delta.patch = patch.to_vec();
        Ok(delta)
    }

    /// Separates the changes that a patch cannot contain, and everything below them.
    fn sort_out(
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
            let lacks_content = stands_for_content(&why);
            delta.unpatched.push(Unpatched {
                path,
                why,
                lacks_content,
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
    bound: &Bound,
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

/// The raw records and the patch after them, which an empty field separates.
fn parts(printed: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    // Paths that follow, which are never empty but may look like counts.
    let mut paths = 0_u32;
    loop {
        let rest = printed.get(at..)?;
        let end = memchr::memchr(0, rest)?;
        let field = rest.get(..end)?;
        if paths > 0 {
            paths -= 1;
        } else if field.is_empty() {
            return Some((printed.get(..at)?, printed.get(at + 1..)?));
        } else if let Some(record) = field.strip_prefix(b":") {
            let status = record.rsplit(|byte| *byte == b' ').next()?;
            paths = if status.starts_with(b"R") { 2 } else { 1 };
        } else if is_counts_alone(field) {
            paths = 2;
        }
        at += end + 1;
    }
}

/// Whether this is the counts of a renamed file, whose two paths follow.
pub(super) fn is_counts_alone(field: &[u8]) -> bool {
    field.ends_with(b"\t") && memchr::memchr_iter(b'\t', field).count() == 2
}

/// The changed files, from the output of `git diff-tree -z --raw --numstat`: records `:mode mode id id
/// STATUS\0path\0[path\0]`, then `added\tremoved\tpath\0` or `added\tremoved\t\0from\0to\0`.
///
/// `prefix`: what is cut off the beginning of the paths.
pub fn changes(raw: &[u8], prefix: &str) -> Vec<FileChange> {
    let mut files: Vec<FileChange> = Vec::new();
    let mut by_path: BTreeMap<String, usize> = BTreeMap::new();
    let mut fields = raw
        .split(|byte| *byte == 0)
        .map(|field| String::from_utf8_lossy(field).into_owned());
    let local = |path: String| path.strip_prefix(prefix).map(str::to_owned).unwrap_or(path);
    while let Some(field) = fields.next() {
        if let Some(record) = field.strip_prefix(':') {
            let mut words = record.split(' ');
            let (old_mode, new_mode) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (old_id, new_id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let status = words.next().unwrap_or_default();
            let first = fields.next().unwrap_or_default();
            let (from, path) = match status.chars().next() {
                Some('R' | 'C') => (Some(local(first)), local(fields.next().unwrap_or_default())),
                _ => (None, local(first)),
            };
            let kind = match status.chars().next() {
                Some('A' | 'C') => "added",
                Some('D') => "deleted",
                Some('R') => "renamed",
                _ if old_id == new_id && old_mode != new_mode => "mode",
                _ => "modified",
            };
            // Git counts no lines of a binary file, even if only its mode or name is new.
            let lines = (old_id == new_id).then_some(0);
            by_path.insert(path.clone(), files.len());
            files.push(FileChange {
                path,
                kind: kind.to_owned(),
                from,
                added: lines,
                removed: lines,
            });
        } else if let Some((added, rest)) = field.split_once('\t')
            && let Some((removed, path)) = rest.split_once('\t')
        {
            let path = if path.is_empty() {
                fields.next();
                fields.next().unwrap_or_default()
            } else {
                path.to_owned()
            };
            if let Some(file) = by_path.get(&local(path)).and_then(|at| files.get_mut(*at)) {
                file.added = added.parse().ok().or(file.added);
                file.removed = removed.parse().ok().or(file.removed);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_file_has_uncounted_lines_only_if_its_content_changed() {
        let raw =
            b":100644 100755 aa aa M\0mode\0:100644 100644 aa aa R100\0old\0\"new\n\0:100644 100644 aa bb M\0bytes\0\
            :100644 100644 cc dd M\0text\0-\t-\tmode\0-\t-\t\0old\0\"new\n\0-\t-\tbytes\x002\t1\ttext\0";
        let found = changes(raw, "");
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
}
