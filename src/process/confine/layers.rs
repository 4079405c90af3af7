//! Mounts caches of the machine as overlays, with a private upper directory per command.
//!
//! Two overlays must not share an upper directory at the same time (undefined behaviour), so each running command holds
//! a slot of its own, locked until its tree has ended. Consecutive commands get the same slot, so one finds what the
//! previous one fetched.

use super::cloned_mount::{ClonedMount, READ_ONLY, WRITABLE};
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

/// Upper limit for the concurrent commands of one run that have layers. Further commands can read the caches but add
/// nothing.
const MOST_SLOTS: u32 = 64;

/// Adds the layers to the view. The returned descriptors hold the slots.
pub(super) fn take(spec: &Spec, pieces: &mut BTreeMap<PathBuf, ClonedMount>) -> Vec<OwnedFd> {
    let placed = &spec.placed;
    let mut all_held = Vec::new();
    let below = placed.below.as_ref().map(|dir| dir.join("0"));
    for (slots, of_tree) in [(&placed.slots, false), (&placed.tree_slots, true)] {
        let below = below.as_ref().filter(|_| !of_tree);
        let layers: Vec<&Layer> = placed.layers.iter().filter(|layer| layer.of_tree == of_tree).collect();
        if layers.is_empty() {
            continue;
        }
        let slot = slot(slots);
        for layer in layers {
            let attributes = match !layer.of_tree || spec.reach.tree {
                true => WRITABLE,
                false => READ_ONLY,
            };
            let joined = slot.as_ref().ok().and_then(|(dir, _)| {
                let added = below.map(|dir| dir.join(&layer.name).join("upper"));
                piece(&dir.join(&layer.name), layer, added.as_deref(), attributes)
            });
            // Without a slot, the machine's own directory is mounted read-only.
            if let Some(piece) = joined.or_else(|| ClonedMount::of(&layer.below, READ_ONLY)) {
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

/// One layer: the overlay; if there is no lower directory or the overlay cannot be mounted, the upper directory alone,
/// provided that the tool can work with it. `added`: what other commands have written above the lower directory.
fn piece(at: &Path, layer: &Layer, added: Option<&Path>, attributes: u64) -> Option<ClonedMount> {
    let (upper, work) = (at.join("upper"), at.join("work"));
    make(&upper).and_then(|()| make(&work)).ok()?;
    let is_dir = |path: &&Path| std::fs::symlink_metadata(path).is_ok_and(|data| data.is_dir());
    let machine = Some(layer.below.as_path()).filter(is_dir);
    let lower: Vec<&Path> = added.filter(is_dir).into_iter().chain(machine).collect();
    if !lower.is_empty()
        && let Ok(tree) = overlay(&lower, &upper, &work)
    {
        return Some(ClonedMount::made(tree, attributes));
    }
    (layer.alone || machine.is_none())
        .then(|| ClonedMount::of(&upper, attributes))
        .flatten()
}

/// A detached overlay mount; the first lower directory is the topmost. The directories are passed as descriptors,
/// because a path could contain characters with a meaning in mount options.
fn overlay(lower: &[&Path], upper: &Path, work: &Path) -> io::Result<OwnedFd> {
    let dir = |path: &Path| {
        open(
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(io::Error::from)
    };
    let lower = lower.iter().map(|path| dir(path)).collect::<io::Result<Vec<_>>>()?;
    let (upper, work) = (dir(upper)?, dir(work)?);
    let named = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let lower: Vec<String> = lower.iter().map(named).collect();
    fsconfig_set_string(&fs, "lowerdir", lower.join(":"))?;
    fsconfig_set_string(&fs, "upperdir", named(&upper))?;
    fsconfig_set_string(&fs, "workdir", named(&work))?;
    fsconfig_set_string(&fs, "index", "off")?;
    // Without privileges the overlay keeps its metadata in `user.*` attributes.
    fsconfig_set_flag(&fs, "userxattr")?;
    fsconfig_create(&fs)?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
