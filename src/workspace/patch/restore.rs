//! Putting paths of the tree back to what they were in a snapshot, and a patch onto it. Through handles only; what was done is
//! looked at afterwards.

use super::hands::Hands;
use super::object::{Format, Id, Kind, METADATA};
use super::trees::{Change, Objects};
use super::{Shadow, Snapshot};
use crate::process::held::{self, May, Scratch};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What became of paths that were to be put back; all are relative to the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// They had changed and are as they were.
    pub done: BTreeSet<String>,
    /// They differ still, and why.
    pub failed: BTreeMap<String, String>,
}

impl Shadow {
    /// Puts `paths` (relative to the workspace, as [`super::Delta::files`] names them) back to their state in `from`: content,
    /// mode, target of a link; what was not there is removed, with directories that become empty. Other paths are left alone. A
    /// link on the way is never followed. For a name that is not UTF-8 all names that are shown alike are put back.
    ///
    /// # Errors
    /// One sentence: the tree cannot be read. What could not be put back is no error but in [`Restored::failed`].
    pub async fn restore(&self, from: &Snapshot, paths: &BTreeSet<String>) -> Result<Restored, String> {
        let (from, paths) = (self.id(from)?, paths.clone());
        self.beside(move |shadow, state| {
            let now = shadow.now(state)?;
            let mut objects = shadow.objects(&state.store);
            let mut changes = objects.differences(&shadow.id(&now)?, &from)?;
            changes.retain(|change| paths.contains(&shadow.local(change.lossy())));
            let mut why = bring(&shadow.top, &mut objects, &from, &changes)?;
            // What counts is how the tree is now.
            let now = shadow.now(state)?;
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

    /// Applies a delta's patch to the tree as it is now.
    ///
    /// # Errors
    /// One sentence: the patch does not fit, or a file cannot be written.
    pub async fn apply(&self, patch: &[u8]) -> Result<(), String> {
        if patch.is_empty() {
            return Ok(());
        }
        let now = self.snapshot().await?;
        let scratch = Scratch::make(self.format == Format::Sha256)?;
        let mut alternates = quoted(&self.dir.join("objects"));
        if let Some(repository) = &self.repository {
            alternates.push_str(&quoted(&repository.objects()));
        }
        let path = scratch.path().join("objects/info/alternates");
        std::fs::write(&path, alternates).map_err(|error| format!("{}: {error}", path.display()))?;
        let places = [scratch.path().to_owned()];
        let mut tree = String::new();
        let steps: [(&[&str], Option<&[u8]>); 3] = [
            (&["read-tree", &now.tree], None),
            (
                &["apply", "--cached", "--binary", "--whitespace=nowarn", "-"],
                Some(patch),
            ),
            (&["write-tree", "--missing-ok"], None),
        ];
        for (args, stdin) in steps {
            let printed = held::git(args, scratch.path(), &scratch.env(), stdin, May::Write(&places)).await?;
            if !printed.ok {
                return Err(format!("git {}: {}", args.join(" "), printed.stderr));
            }
            tree = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
        }
        let (from, to) = (self.id(&now)?, self.id(&Snapshot { tree })?);
        self.beside(move |shadow, state| {
            let objects = scratch.path().join("objects");
            let mut objects = Objects::new(shadow.format, &state.store, Some(objects));
            let changes = objects.differences(&from, &to)?;
            let failed = bring(&shadow.top, &mut objects, &to, &changes)?;
            match failed.iter().next() {
                Some((path, why)) => Err(format!("{}: {why}", String::from_utf8_lossy(path))),
                None => Ok(()),
            }
        })
        .await
    }
}

/// A line of `objects/info/alternates`.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{path}\"\n")
}

/// Brings paths below `top` from the old side of each change to the new one; `tree` has them all. Gives what failed.
fn bring(
    top: &Path,
    objects: &mut Objects<'_>,
    tree: &Id,
    changes: &[Change],
) -> Result<BTreeMap<Vec<u8>, String>, String> {
    let hands = Hands::open(top)?;
    let mut failed = BTreeMap::new();
    // What lies deeper goes first, and all that goes before what comes: a name may have been a directory.
    for change in changes.iter().rev().filter(|change| change.new.is_none()) {
        if let Err(why) = hands.remove(&change.path) {
            failed.insert(change.path.clone(), why);
            continue;
        }
        let mut path = change.path.as_slice();
        while let Some(slash) = memchr::memrchr(b'/', path) {
            path = path.get(..slash).unwrap_or_default();
            if objects.below(tree, path)?.is_some() || !hands.remove_empty(path) {
                break;
            }
        }
    }
    for change in changes {
        let Some((mode, id)) = change.new else { continue };
        let put = match mode {
            METADATA => Err("its content was not kept".to_owned()),
            mode => objects
                .read(&id, Kind::Blob)
                .and_then(|content| hands.put(&change.path, mode, &content)),
        };
        if let Err(why) = put {
            failed.insert(change.path.clone(), why);
        }
    }
    Ok(failed)
}
