//! Puts paths of the tree back as a snapshot has them. Decides nothing about which.

use super::{Shadow, Snapshot};
use crate::process::plain;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// What came of putting paths back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Paths that are not as the snapshot has them.
    pub failed: Vec<String>,
}

/// One file of a snapshot.
struct Kept {
    mode: String,
    id: String,
}

impl Shadow {
    /// A path of the workspace, from the top of the repository.
    pub fn at_top(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// A path from the top of the repository, relative to the workspace.
    pub fn in_workspace<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(&self.prefix).unwrap_or(path)
    }

    /// Puts `paths`, from the top of the repository, back as `from` has them; those that it does not have are removed. Follows
    /// no link.
    pub async fn restore(&self, from: &Snapshot, paths: &BTreeSet<String>) -> Result<Restored, String> {
        let kept = self.kept(from, paths).await?;
        let mut failed = Vec::new();
        // What is in the way goes first.
        for path in paths.iter().filter(|path| !kept.contains_key(*path)) {
            if remove(&self.top, path).is_err() {
                failed.push(path.clone());
            }
        }
        for (path, kept) in &kept {
            let blob = plain::git(&["cat-file", "blob", &kept.id], &self.top, &self.own_dir(), None).await?;
            let written = blob.ok && write(&self.top, path, &kept.mode, &blob.stdout).is_ok();
            if !written {
                failed.push(path.clone());
            }
        }
        Ok(Restored { failed })
    }

    fn own_dir(&self) -> Vec<(String, String)> {
        vec![("GIT_DIR".to_owned(), self.dir.to_string_lossy().into_owned())]
    }

    async fn kept(&self, from: &Snapshot, paths: &BTreeSet<String>) -> Result<BTreeMap<String, Kept>, String> {
        let listed = self
            .git(&["ls-tree", "-r", "-z", "--full-tree", &from.tree], None)
            .await?;
        if !listed.ok {
            return Err(format!("git ls-tree: {}", listed.stderr));
        }
        let mut kept = BTreeMap::new();
        for record in listed.stdout.split(|byte| *byte == 0) {
            let Ok(record) = str::from_utf8(record) else { continue };
            let Some((head, path)) = record.split_once('\t') else {
                continue;
            };
            let mut words = head.split(' ');
            let (Some(mode), Some(_), Some(id)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            if paths.contains(path) {
                let (mode, id) = (mode.to_owned(), id.to_owned());
                kept.insert(path.to_owned(), Kept { mode, id });
            }
        }
        Ok(kept)
    }
}

/// Makes the directories above a path, none of which may be a link.
fn parents(top: &Path, path: &str, make: bool) -> io::Result<()> {
    let mut at = top.to_owned();
    let Some((above, _)) = path.rsplit_once('/') else {
        return Ok(());
    };
    for name in above.split('/') {
        at.push(name);
        match fs::symlink_metadata(&at) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) if make => {
                fs::remove_file(&at)?;
                fs::create_dir(&at)?;
            }
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && make => fs::create_dir(&at)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn remove(top: &Path, path: &str) -> io::Result<()> {
    match parents(top, path, false).and_then(|()| fs::remove_file(top.join(path))) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        done => done,
    }
}

fn write(top: &Path, path: &str, mode: &str, bytes: &[u8]) -> io::Result<()> {
    parents(top, path, true)?;
    let at = top.join(path);
    match fs::symlink_metadata(&at) {
        // Only an empty one: what else lies in it is not ours to remove.
        Ok(meta) if meta.is_dir() => fs::remove_dir(&at)?,
        Ok(_) => fs::remove_file(&at)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if mode == "120000" {
        let target = str::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
        return symlink(target, &at);
    }
    fs::write(&at, bytes)?;
    let bits = if mode == "100755" { 0o755 } else { 0o644 };
    fs::set_permissions(&at, fs::Permissions::from_mode(bits))
}
