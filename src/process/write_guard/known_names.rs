//! What the last walk of a run's workspace found, so that the walk before the next command lists only directories that
//! have changed since: those between two commands are few, and a large tree has thousands.

use super::walk::{Known, TreeWalk, WalkResult};
use crate::base::grant::ClosedPaths;
use crate::base::sync::lock;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Upper limit for the names that are kept between two commands; in a larger tree all directories are listed again.
const MOST_KEPT: usize = 1_000_000;

/// The result of the last walk for closed paths, if it can be used again.
#[derive(Debug, Default)]
pub struct KnownNames(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    /// What the walk searched for, and the directories that it left out. Another search needs another walk.
    closed: Arc<dyn ClosedPaths>,
    own: Vec<PathBuf>,
    known: Arc<Known>,
}

impl KnownNames {
    /// Searches the whole tree for the closed paths of `walk`, which are `closed`, and keeps all names.
    pub(super) fn find(&self, walk: &TreeWalk<'_>, closed: &Arc<dyn ClosedPaths>) -> (WalkResult, Arc<Known>) {
        let mut kept = lock(&self.0);
        let walk = TreeWalk {
            listings: true,
            ..*walk
        };
        let same = kept
            .take()
            .filter(|kept| std::ptr::addr_eq(Arc::as_ptr(&kept.closed), Arc::as_ptr(closed)) && kept.own == walk.own);
        // The guard of a command that is still running uses what was known before it.
        let (found, known) = match same.and_then(|kept| Arc::try_unwrap(kept.known).ok()) {
            Some(known) => walk.find_anew(Path::new(""), known),
            None => walk.find(Path::new("")),
        };
        let known = Arc::new(known);
        if found.over.is_empty() && known.is_reusable() && known.names() <= MOST_KEPT {
            *kept = Some(Kept {
                closed: Arc::clone(closed),
                own: walk.own.to_vec(),
                known: Arc::clone(&known),
            });
        }
        (found, known)
    }
}
