//! Writes the files of a commit without git: no filter, hook or attribute applies, so each file has exactly the stored
//! bytes.

use super::handle_writes::HandleWriter;
use super::index::{NewIndexEntry, bytes_of};
use super::object::{DIRECTORY, EXECUTABLE, FILE, Id, LINK, METADATA, ObjectKind};
use super::repository::Repository;
use super::scan::MOST_DEPTH;
use super::store::Store;
use super::trees::{Leaf, ObjectReader};
use crate::process::own_git::Scratch;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Beginning of a Git LFS pointer file.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// The result of a checkout.
pub(in crate::workspace) struct Checkout {
    /// The bytes of a git index for it.
    pub index: Vec<u8>,
    /// Number of Git LFS pointer files.
    pub pointers: usize,
    /// The submodules, whose directories are empty.
    pub submodules: Vec<String>,
}

/// The error of work that was cancelled.
pub(in crate::workspace) const STOPPED: &str = "it was interrupted";

/// Writes the files of `commit` into the empty directory `into`, until `stop` is cancelled.
pub(in crate::workspace) fn checkout(
    repository: &Repository,
    commit: &str,
    into: &Path,
    stop: &CancellationToken,
) -> Result<Checkout, String> {
    let format = repository.format();
    // The scratch store is empty: all objects are the repository's.
    let scratch = Scratch::make(format == super::object::ObjectFormat::Sha256)?;
    let store = Store::open(scratch.path(), format)?;
    let mut objects = ObjectReader::new(format, &store, Some(repository.objects()));
    let tree = objects.tree_of(commit)?;
    let mut files = Vec::new();
    list(&mut objects, &tree, &mut Vec::new(), &mut files, MOST_DEPTH, stop)?;
    files.sort();
    let writer = HandleWriter::open(into)?;
    let about = |path: &[u8], why: String| format!("{}: {why}", String::from_utf8_lossy(path));
    let mut blobs = Vec::new();
    for (path, (mode, id)) in &files {
        match *mode {
            FILE | EXECUTABLE | LINK => blobs.push(*id),
            // A submodule's directory.
            METADATA => writer.make_dir(path).map_err(|why| about(path, why))?,
            mode => return Err(about(path, format!("it has the mode {mode:o}"))),
        }
    }
    let mut written = Vec::with_capacity(blobs.len());
    let mut pointers = 0;
    let mut next = files.iter().filter(|(_, (mode, _))| *mode != METADATA);
    // The scratch store is empty, so contents arrive in the order of the request.
    objects.each(&blobs, ObjectKind::Blob, &mut |id, content| {
        unless_stopped(stop)?;
        let (path, (mode, _)) = next.next().ok_or("more objects than files")?;
        pointers += usize::from(content.starts_with(POINTER));
        let stat = writer.put(path, *mode, &content).map_err(|why| about(path, why))?;
        written.push(NewIndexEntry {
            path: path.clone(),
            mode: *mode,
            id: *id,
            stat: Some(stat),
        });
        Ok(())
    })?;
    let mut submodules = Vec::new();
    for (path, (mode, id)) in files.iter().filter(|(_, (mode, _))| *mode == METADATA) {
        submodules.push(String::from_utf8_lossy(path).into_owned());
        // Without an entry, git would take the submodule for deleted.
        written.push(NewIndexEntry {
            path: path.clone(),
            mode: *mode,
            id: *id,
            stat: None,
        });
    }
    written.sort_by(|a, b| a.path.cmp(&b.path));
    let index = bytes_of(format, &written)?;
    Ok(Checkout {
        index,
        pointers,
        submodules,
    })
}

fn unless_stopped(stop: &CancellationToken) -> Result<(), String> {
    match stop.is_cancelled() {
        true => Err(STOPPED.to_owned()),
        false => Ok(()),
    }
}

fn list(
    objects: &mut ObjectReader<'_>,
    tree: &Id,
    path: &mut Vec<u8>,
    files: &mut Vec<(Vec<u8>, Leaf)>,
    depth: usize,
    stop: &CancellationToken,
) -> Result<(), String> {
    unless_stopped(stop)?;
    let depth = depth.checked_sub(1).ok_or("a tree is nested too deeply")?;
    for entry in objects.tree(tree)? {
        let length = path.len();
        path.extend_from_slice(&entry.name);
        if entry.mode == DIRECTORY {
            path.push(b'/');
            list(objects, &entry.id, path, files, depth, stop)?;
        } else {
            files.push((path.clone(), (entry.mode, entry.id)));
        }
        path.truncate(length);
    }
    Ok(())
}
