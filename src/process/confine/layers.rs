//! Mounts caches of the machine as overlays, with a private upper directory per command.
//!
//! Two overlays must not share an upper directory at the same time (undefined behaviour), so each running command holds
//! a slot of its own, locked until its tree has ended. Consecutive commands get the same slot, so one finds what the
//! previous one fetched.

use super::piece::Piece;
use super::spec::Spec;
use crate::process::placed::Layer;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The most commands of one run that have layers at the same time. Further ones can read the caches but add nothing.
const MOST_SLOTS: u32 = 64;

/// Adds the layers to the view. The returned descriptors hold the slots.
pub(super) fn take(spec: &Spec, pieces: &mut BTreeMap<PathBuf, Piece>) -> Vec<OwnedFd> {
    let placed = &spec.placed;
    let mut all_held = Vec::new();
    for (slots, of_tree) in [(&placed.slots, false), (&placed.tree_slots, true)] {
        let layers: Vec<&Layer> = placed.layers.iter().filter(|layer| layer.of_tree == of_tree).collect();
        if layers.is_empty() {
            continue;
        }
        let slot = slot(slots);
        for layer in layers {
            let writable = !layer.of_tree || spec.reach.tree;
            let joined = slot
                .as_ref()
                .ok()
                .and_then(|(dir, _)| piece(&dir.join(&layer.name), layer, writable));
            // Without a slot, the machine's own directory is mounted read-only.
            if let Some(piece) = joined.or_else(|| Piece::of(&layer.below, false)) {
                pieces.insert(layer.place.clone(), piece);
            }
        }
        all_held.extend(slot.ok().map(|(_, held)| held));
    }
    all_held
}

/// Locks the first slot that no running command holds.
fn slot(dir: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    for number in 0..MOST_SLOTS {
        let at = dir.join(number.to_string());
        make(&at)?;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = open(at.join("lock"), flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok((at, lock)),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::QuotaExceeded.into())
}

fn make(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// One layer: the overlay; if the lower directory is missing or the overlay cannot be mounted, the upper directory
/// alone, provided that the tool can work with it.
fn piece(at: &Path, layer: &Layer, writable: bool) -> Option<Piece> {
    let (upper, work) = (at.join("upper"), at.join("work"));
    make(&upper).and_then(|()| make(&work)).ok()?;
    let there = std::fs::symlink_metadata(&layer.below).is_ok_and(|data| data.is_dir());
    if there && let Ok(tree) = overlay(&layer.below, &upper, &work) {
        return Some(Piece::made(tree, writable));
    }
    (layer.alone || !there).then(|| Piece::of(&upper, writable)).flatten()
}

/// A detached overlay mount. The directories are passed as descriptors, because a path could contain characters with a
/// meaning in mount options.
fn overlay(below: &Path, upper: &Path, work: &Path) -> io::Result<OwnedFd> {
    let dir = |path: &Path| {
        open(
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
    };
    let (below, upper, work) = (dir(below)?, dir(upper)?, dir(work)?);
    let named = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "lowerdir", named(&below))?;
    fsconfig_set_string(&fs, "upperdir", named(&upper))?;
    fsconfig_set_string(&fs, "workdir", named(&work))?;
    fsconfig_set_string(&fs, "index", "off")?;
    // Without privileges the overlay keeps its metadata in `user.*` attributes.
    fsconfig_set_flag(&fs, "userxattr")?;
    fsconfig_create(&fs)?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
