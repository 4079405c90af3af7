//! Line ends in a patch: git may have written with CRLF what the commit has with LF (`eol=crlf`, `core.autocrlf`), and a
//! patch with CRLF does not fit the commit. Such files are compared with LF. Looks at contents only: no attribute and no
//! setting is read.

use super::object::{EXECUTABLE, FILE, Id, ObjectKind};
use super::packer::Packer;
use super::snapshot_limits::SnapshotLimits;
use super::store::Store;
use super::trees::{Leaf, ObjectReader, TreeChange};
use super::{Shadow, State};
use std::collections::BTreeMap;

impl Shadow {
    /// The changes with LF on both sides where the old content is that of `commit` but for its line ends, CRLF against
    /// LF: the old side is then the file of the commit. A change of nothing but these line ends is left out. Any other
    /// content stays as it is, also that of a file with zero bytes.
    ///
    /// # Errors
    /// A sentence: an object of the run's own store is missing or was altered, or the work took too long.
    pub(super) fn with_line_ends_of(
        &self,
        state: &mut State,
        commit: &str,
        changes: Vec<TreeChange>,
    ) -> Result<Vec<TreeChange>, String> {
        let bound = state.times.begin(&self.end);
        let mut packer = state.store.packer();
        let changed = self.with_lf(&mut packer, (&state.store, &bound), commit, changes);
        state.times.finish(&bound);
        let changed = changed?;
        state.store.keep(packer)?;
        Ok(changed)
    }

    fn with_lf(
        &self,
        packer: &mut Packer,
        (store, bound): (&Store, &SnapshotLimits),
        commit: &str,
        mut changes: Vec<TreeChange>,
    ) -> Result<Vec<TreeChange>, String> {
        let mut objects = self.objects(store);
        let mut stored: BTreeMap<Vec<u8>, Id> = BTreeMap::new();
        for change in &changes {
            // What the repository has just so is not in this store.
            let Some(id) = regular(change.old).filter(|id| store.contains(id)) else {
                continue;
            };
            let content = text(&mut objects, bound, &id)?;
            if let Some(with_lf) = content.as_deref().and_then(in_lf) {
                stored.insert(change.path.clone(), self.format.id_of(ObjectKind::Blob, &with_lf)?);
            }
        }
        if stored.is_empty() {
            return Ok(changes);
        }
        // A partial clone may lack trees; then the patch has the bytes of the files. By another reader, because one cannot
        // be used after an error.
        let paths = stored.keys().map(Vec::as_slice);
        let committed = self.objects(store).leaves(commit, paths).unwrap_or_default();
        stored.retain(|path, id| regular(committed.get(path).copied()) == Some(*id));
        let mut put = |objects: &mut ObjectReader<'_>, id: &Id| -> Result<Option<Id>, String> {
            let Some(content) = text(objects, bound, id)? else {
                return Ok(None);
            };
            match in_lf(&content) {
                Some(with_lf) => store.put(packer, ObjectKind::Blob, &with_lf).map(Some),
                None => Ok(Some(*id)),
            }
        };
        // From contents with CRLF to those with LF.
        let mut shown: BTreeMap<Id, Id> = BTreeMap::new();
        for change in &mut changes {
            let (Some(old), Some((mode, id))) = (stored.get(&change.path), change.old) else {
                continue;
            };
            if let (Some(new), Some((mode, _))) = (regular(change.new), change.new) {
                match put(&mut objects, &new)? {
                    Some(new) => change.new = Some((mode, new)),
                    // With zero bytes it is no text any more.
                    None => continue,
                }
            }
            put(&mut objects, &id)?;
            change.old = Some((mode, *old));
            shown.insert(id, *old);
        }
        // A file that was only moved.
        for change in changes.iter_mut().filter(|change| change.old.is_none()) {
            let Some((mode, _)) = change.new else { continue };
            if let Some(new) = regular(change.new).and_then(|id| shown.get(&id)) {
                change.new = Some((mode, *new));
            }
        }
        changes.retain(|change| change.old != change.new);
        Ok(changes)
    }
}

/// The content of a regular file, by its id.
fn regular(leaf: Option<Leaf>) -> Option<Id> {
    leaf.filter(|(mode, _)| matches!(*mode, FILE | EXECUTABLE))
        .map(|(_, id)| id)
}

/// A content without zero bytes; `None` for any other.
fn text(objects: &mut ObjectReader<'_>, bound: &SnapshotLimits, id: &Id) -> Result<Option<Vec<u8>>, String> {
    let content = objects.read(id, ObjectKind::Blob)?;
    bound.check_read(content.len() as u64)?;
    Ok(memchr::memchr(0, &content).is_none().then_some(content))
}

/// The text with LF in place of CRLF; `None` if it has no CRLF. A CR alone is not a line end for git.
fn in_lf(text: &[u8]) -> Option<Vec<u8>> {
    let mut found = memchr::memmem::find_iter(text, b"\r\n").peekable();
    found.peek()?;
    let mut with_lf = Vec::with_capacity(text.len());
    let mut from = 0;
    for cr in found {
        with_lf.extend_from_slice(text.get(from..cr).unwrap_or_default());
        from = cr + 1;
    }
    with_lf.extend_from_slice(text.get(from..).unwrap_or_default());
    Some(with_lf)
}

#[cfg(test)]
mod tests {
    use super::in_lf;

    #[test]
    fn only_cr_before_lf_goes() {
        for (text, expected) in [
            (b"".as_slice(), None),
            (b"a\nb", None),
            (b"a\rb\r", None),
            (b"\r\n", Some(b"\n".as_slice())),
            (b"a\r\nb\nc\rd\r\n", Some(b"a\nb\nc\rd\n")),
            (b"\r\r\n\r\n\r", Some(b"\r\n\n\r")),
        ] {
            assert_eq!(in_lf(text).as_deref(), expected, "{text:?}");
        }
    }
}
