//! Before a command starts: determines its mounts and write rights, and records the entries to compare afterwards. Does
//! not change the tree.

use super::node::{HeldContents, NodeKind, TreeNode, is_object};
use super::overlap::{self, Older, RECORDING};
use super::registrations;
use super::walk::{ExceededLimit, MOST_NAMES, TreeWalk, UNREADABLE};
use super::{Allowed, Area, MOST_HELD, MOST_MOUNTS, SandboxLevel, WriteGuard, at, limit_message};
use crate::base::grant::{WriteKind, WritePath, Writes};
use crate::base::sync::lock;
use crate::process::Confinement;
use crate::process::change_times::exact_device;
use crate::process::confine::spec::WorkspaceReach;
use crate::process::live;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

/// How often an entry is read again if another process replaces it each time.
const TAKE_TRIES: usize = 3;
/// Attributes and modes of entries are reached through `/proc`.
const NO_PROC: &str = "limit:guard_unreadable: `/proc/self/fd` does not lead to the open files of this program, so what \
                       the command writes could not be checked; mount `/proc`";

/// One entry of a directory listing.
struct Listed {
    path: PathBuf,
    name: Vec<u8>,
    kind: FileType,
    number: u64,
}

impl WriteGuard {
    /// `None` if nothing needs to be compared.
    pub(super) fn take(
        confinement: &Confinement,
        writes: &Writes,
    ) -> Result<(Option<Arc<Self>>, WorkspaceReach), String> {
        let _recording = lock(&RECORDING);
        let root =
            at::root(&confinement.workspace).map_err(|error| format!("the workspace cannot be opened: {error}"))?;
        if !at::has_own_links(&root) {
            return Err(NO_PROC.to_owned());
        }
        let mut guard = Self {
            root,
            closed: Arc::clone(&confinement.closed),
            objects: Arc::clone(&confinement.objects),
            names: Arc::clone(&confinement.names),
            repositories: BTreeMap::new(),
            own: confinement.hidden_inside(),
            writes: writes.clone(),
            places: registrations::places_of(confinement),
            allowed: Allowed::default(),
            effective: OnceLock::new(),
            areas: Vec::new(),
            mounted: BTreeMap::new(),
            older: Vec::new(),
            made_by_older: BTreeMap::new(),
            changed_by_older: BTreeMap::new(),
            before: BTreeMap::new(),
            held: HeldContents::default(),
            taken: SystemTime::now(),
            exact: exact_device(&confinement.workspace),
            unlisted: BTreeSet::new(),
            most_names: MOST_NAMES,
            lost: Mutex::default(),
            origins: OnceLock::new(),
            lived: live::begin(&confinement.workspace, writes),
        };
        guard.older = Older::of(&guard);
        let whole_tree = |path: &WritePath| path.kind == WriteKind::Entry && matches!(path.path.as_str(), "" | ".");
        let reach = match writes {
            Writes::Paths { paths, maybe }
                if confinement.level != SandboxLevel::None && !paths.iter().any(whole_tree) =>
            {
                guard.allowed.paths.clone_from(paths);
                guard.prepare_paths(confinement.level, paths, maybe)
            }
            _ => {
                guard.allowed.tree = true;
                guard.prepare_tree(confinement.level)
            }
        };
        let reach = reach.map_err(|over| limit_message(&over))?;
        guard.take_over_removed();
        guard.older.clear();
        let guard = Arc::new(guard);
        overlap::add(&guard);
        Ok((Some(guard), reach))
    }

    fn prepare_tree(&mut self, level: SandboxLevel) -> Result<WorkspaceReach, ExceededLimit> {
        let mut reach = WorkspaceReach {
            tree: true,
            sockets: true,
            ..WorkspaceReach::default()
        };
        if self.closed.is_empty() && level != SandboxLevel::Full {
            return Ok(reach);
        }
        self.prepare_closed(level, Path::new(""), &mut reach)?;
        Ok(reach)
    }

    /// Finds and records closed paths, and lists those that can be mounted read-only, and sockets, which are covered.
    fn prepare_closed(
        &mut self,
        level: SandboxLevel,
        top: &Path,
        reach: &mut WorkspaceReach,
    ) -> Result<(), ExceededLimit> {
        let (found, known) = match top.as_os_str().is_empty() {
            true => self.names.find(&self.walk(), &self.closed),
            false => {
                let walk = TreeWalk {
                    listings: true,
                    ..self.walk()
                };
                let (found, known) = walk.find(top);
                (found, Arc::new(known))
            }
        };
        if let Some(over) = found.over.into_iter().next() {
            return Err(over);
        }
        for path in found.closed {
            if self.is_own(&path) {
                continue;
            }
            let data = at::stat_below(&self.root, &path);
            let kind = data.map_or(FileType::Unknown, |data| FileType::from_raw_mode(data.st_mode));
            let mountable = kind.is_dir() || kind.is_file();
            let freeze = level == SandboxLevel::Full && mountable && reach.read_only.len() < MOST_MOUNTS;
            if freeze {
                reach.read_only.push(path.clone());
            }
            // A mount point and the mounted root cannot be moved, but a directory between them can.
            let held_by_mount =
                freeze && path.components().count() == 1 && !self.is_known_to_older(&path, kind.is_dir());
            if held_by_mount {
                self.record_mounted(&path)?;
            } else {
                self.record(&path, true)?;
            }
        }
        if level == SandboxLevel::Full {
            self.cover_sockets(found.sockets, reach);
        }
        self.areas.push(Area::Closed(top.to_path_buf(), known));
        Ok(())
    }

    /// Covers sockets on which a process listens; an abandoned one is treated like any other entry.
    fn cover_sockets(&self, sockets: Vec<PathBuf>, reach: &mut WorkspaceReach) {
        let living = sockets.into_iter().filter(|path| live_socket::is(&self.root, path));
        for path in living {
            if reach.covered.len() < MOST_MOUNTS {
                reach.covered.push(path);
            } else {
                reach.sockets = false;
            }
        }
    }

    /// Determines mounts and comparisons for a grant of single places.
    fn prepare_paths(
        &mut self,
        level: SandboxLevel,
        paths: &[WritePath],
        maybe: &[String],
    ) -> Result<WorkspaceReach, ExceededLimit> {
        let mut reach = WorkspaceReach::default();
        // Directories in which entries are created, replaced or removed; directories in which any path may be granted
        // at exec.
        let mut dirs: BTreeSet<PathBuf> = BTreeSet::new();
        let ruled = paths.iter().filter(|granted| granted.kind == WriteKind::Ruled);
        let open = maybe.iter().chain(ruled.map(|granted| &granted.path));
        let mut whole: BTreeSet<PathBuf> = open.filter_map(|dir| self.nearest(Path::new(dir))).collect();
        let mut below: BTreeSet<PathBuf> = BTreeSet::new();
        let mut shared = false;
        let entry = |path: &Path| {
            let mut entries = paths.iter().filter(|granted| granted.kind == WriteKind::Entry);
            entries.any(|granted| path.starts_with(&granted.path))
        };
        for granted in paths {
            let path = PathBuf::from(&granted.path);
            if !is_plain(&path) || self.closed.closed(&granted.path, false) {
                continue;
            }
            let data = at::stat_below(&self.root, &path).ok();
            let kind = data.map_or(FileType::Unknown, |data| FileType::from_raw_mode(data.st_mode));
            shared |= kind.is_file() && data.is_some_and(|data| data.st_nlink > 1);
            match granted.kind {
                // A mount on the entry itself would prevent replacing it.
                WriteKind::InPlace if kind.is_file() && !entry(&path) => reach.writable.push(path),
                WriteKind::InPlace | WriteKind::Ruled => {}
                WriteKind::Entry => {
                    let parent = path.parent().unwrap_or(Path::new(""));
                    dirs.extend(self.nearest(parent));
                    if kind.is_dir() {
                        below.insert(path);
                    }
                }
            }
        }
        for dir in dirs {
            if whole.iter().any(|top| dir.starts_with(top)) || below.iter().any(|top| dir.starts_with(top)) {
                continue;
            }
            if level != SandboxLevel::Full || !self.mount_rest_read_only(&dir, &mut reach)? {
                whole.insert(dir);
            }
        }
        let tops: Vec<PathBuf> = outermost(&whole);
        for dir in &tops {
            self.record(dir, true)?;
            if self.held.full {
                return Err(ExceededLimit::whole("limit:guard_bytes"));
            }
            reach.writable.push(dir.clone());
            self.areas.push(Area::Whole(dir.clone()));
        }
        // Another hard link of a granted file may be a closed path.
        if shared && !self.closed.is_empty() {
            let mut unused = WorkspaceReach::default();
            self.prepare_closed(SandboxLevel::None, Path::new(""), &mut unused)?;
        } else if !self.closed.is_empty() {
            for dir in outermost(&below) {
                if !tops.iter().any(|top| dir.starts_with(top)) {
                    self.prepare_closed(level, &dir, &mut reach)?;
                }
            }
        }
        // If the command cannot create Unix sockets, those in the workspace are unreachable without a cover.
        reach.covered.clear();
        reach.sockets = false;
        Ok(reach)
    }

    /// The nearest existing directory at or above `path` that is reached without links. `None` when it is closed or
    /// belongs to this program.
    fn nearest(&self, path: &Path) -> Option<PathBuf> {
        if !is_plain(path) && !path.as_os_str().is_empty() {
            return None;
        }
        for dir in path.ancestors() {
            match at::dir(&self.root, dir) {
                Ok(_) => {
                    let closed = !dir.as_os_str().is_empty() && self.closed.closed(&dir.to_string_lossy(), true);
                    return (!closed && !self.is_own(dir)).then(|| dir.to_path_buf());
                }
                Err(Errno::NOENT) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Mounts a directory writable, and every ungranted entry in it read-only. `false` if that would take too many
    /// mounts.
    fn mount_rest_read_only(&mut self, dir: &Path, reach: &mut WorkspaceReach) -> Result<bool, ExceededLimit> {
        let listed = self.listed(dir)?;
        let granted = |entry: &Listed| {
            self.allowed.paths.iter().any(|path| {
                Path::new(&path.path) == entry.path && (path.kind != WriteKind::Ruled || entry.kind.is_dir())
            }) && !self.closed.closed(&entry.path.to_string_lossy(), entry.kind.is_dir())
        };
        let (mounted, other): (Vec<&Listed>, Vec<&Listed>) = listed
            .iter()
            .filter(|entry| !granted(entry))
            .partition(|entry| entry.kind.is_dir() || entry.kind.is_file());
        if reach.read_only.len() + mounted.len() > MOST_MOUNTS {
            return Ok(false);
        }
        // The mode of the directory itself could be changed through its writable mount.
        if let Ok(node) = TreeNode::take(&self.root, dir, &mut self.held, false) {
            self.before.insert(dir.to_path_buf(), node);
        }
        reach.writable.push(dir.to_path_buf());
        reach
            .read_only
            .extend(mounted.into_iter().map(|entry| entry.path.clone()));
        // A link, FIFO or socket cannot be mounted read-only, so it is compared.
        let other: Vec<PathBuf> = other.into_iter().map(|entry| entry.path.clone()).collect();
        // An entry that it may remove is put back if the new name that it created instead is not granted.
        let is_held = |kind: FileType| kind.is_file() || kind.is_symlink();
        let removable = listed.iter().filter(|entry| is_held(entry.kind) && granted(entry));
        let removable: Vec<PathBuf> = removable.map(|entry| entry.path.clone()).collect();
        for path in removable {
            let size = at::stat_below(&self.root, &path).map_or(u64::MAX / 2, |data| data.st_size.unsigned_abs());
            if self.held.has_room(size)
                && let Ok(node) = TreeNode::take(&self.root, &path, &mut self.held, true)
            {
                self.before.insert(path, node);
            }
        }
        let mut numbers: BTreeMap<Vec<u8>, u64> = listed.into_iter().map(|entry| (entry.name, entry.number)).collect();
        if !self.older.is_empty() {
            numbers.retain(|name, _| !self.is_name_made_by_older(dir, name));
        }
        for path in other {
            self.record(&path, true)?;
        }
        self.areas.push(Area::Names(dir.to_path_buf(), numbers));
        Ok(true)
    }

    /// The entries of a directory.
    fn listed(&mut self, dir: &Path) -> Result<Vec<Listed>, ExceededLimit> {
        Ok(self.opened(dir)?.map(|(_, listed)| listed).unwrap_or_default())
    }

    /// A directory and its entries. `None` if only its owner, who is not this user, can list it.
    fn opened(&mut self, dir: &Path) -> Result<Option<(OwnedFd, Vec<Listed>)>, ExceededLimit> {
        let cannot = |_| ExceededLimit {
            code: UNREADABLE,
            path: dir.to_path_buf(),
        };
        let handle = match at::dir(&self.root, dir) {
            // A directory of another owner that this user cannot read cannot be written by a command of this user
            // either.
            Err(Errno::ACCESS) if !self.is_mine(dir) => {
                self.unlisted.insert(dir.to_path_buf());
                return Ok(None);
            }
            handle => handle.map_err(cannot)?,
        };
        let mut listed = Vec::new();
        let mut unknown = Ok(());
        at::list(&handle, &mut Vec::new(), |name, kind, number| {
            let name = OsStr::from_bytes(name.to_bytes());
            match at::kind(&handle, name, kind) {
                Ok(Some(kind)) => listed.push(Listed {
                    path: dir.join(name),
                    name: name.as_bytes().to_vec(),
                    kind,
                    number,
                }),
                Ok(None) => {}
                Err(error) => unknown = Err(error),
            }
        })
        .and(unknown)
        .map_err(cannot)?;
        Ok(Some((handle, listed)))
    }

    fn is_mine(&self, path: &Path) -> bool {
        let me = rustix::process::geteuid().as_raw();
        at::stat_below(&self.root, path).is_ok_and(|data| data.st_uid == me)
    }

    /// Records an entry and everything below it, except what belongs to this program.
    fn record(&mut self, path: &Path, contents: bool) -> Result<(), ExceededLimit> {
        let mut waiting = Vec::new();
        self.record_entry(None, path.to_path_buf(), contents, &mut waiting)?;
        while let Some(path) = waiting.pop() {
            let (dir, listed) = match self.opened(&path) {
                Ok(Some(opened)) => opened,
                Ok(None) => continue,
                // Removed since it was recorded.
                Err(_) if matches!(at::stat_below(&self.root, &path), Err(Errno::NOENT)) => {
                    self.before.remove(&path);
                    continue;
                }
                Err(over) => return Err(over),
            };
            for entry in listed {
                self.record_entry(Some(&dir), entry.path, contents, &mut waiting)?;
            }
        }
        Ok(())
    }

    /// Records one entry. `dir`: its directory, where that is open: the names of a large tree are not resolved from its
    /// top each time. If the entry is a directory, it is added to `waiting`.
    fn record_entry(
        &mut self,
        dir: Option<&OwnedFd>,
        path: PathBuf,
        contents: bool,
        waiting: &mut Vec<PathBuf>,
    ) -> Result<(), ExceededLimit> {
        if self.is_own(&path) {
            return Ok(());
        }
        if self.before.len() >= MOST_HELD {
            return Err(ExceededLimit::whole("limit:guard_entries"));
        }
        if self.take_over(&path) {
            let is_recorded = self
                .before
                .get(&path)
                .is_some_and(|node| matches!(node.kind, NodeKind::Dir));
            if is_recorded && at::stat_below(&self.root, &path).is_ok_and(|data| at::is_dir(&data)) {
                waiting.push(path);
            }
            return Ok(());
        }
        let node = match self.node(dir, &path, contents) {
            Ok(Some(node)) => node,
            Ok(None) => return Ok(()),
            Err(_) => {
                return Err(ExceededLimit { code: UNREADABLE, path });
            }
        };
        if node.is_sealed_object(&path) {
            self.objects.keep(&self.root, &path, &node.fingerprint);
        }
        if matches!(node.kind, NodeKind::Dir) {
            self.keep_place(&path);
            waiting.push(path.clone());
        }
        self.before.insert(path, node);
        Ok(())
    }

    /// The state of an entry; `None` if it was removed in the meantime. What is still there is never left out: afterwards
    /// it would count as new.
    fn node(&mut self, dir: Option<&OwnedFd>, path: &Path, contents: bool) -> rustix::io::Result<Option<TreeNode>> {
        for tried in 0..TAKE_TRIES {
            let taken = match (dir, path.file_name()) {
                (Some(dir), Some(name)) if tried == 0 => TreeNode::take_in(dir, name, path, &mut self.held, contents),
                // The directory may have been replaced.
                _ => TreeNode::take(&self.root, path, &mut self.held, contents),
            };
            match taken {
                Err(Errno::NOENT) => {}
                taken => return taken.map(Some),
            }
            if matches!(at::stat_below(&self.root, path), Err(Errno::NOENT)) {
                return Ok(None);
            }
        }
        Err(Errno::NOENT)
    }

    /// Records what tells whether a mounted path is still what was mounted. The kernel takes a mount away if another command,
    /// for which nothing is mounted there, removes or replaces the place.
    fn record_mounted(&mut self, path: &Path) -> Result<(), ExceededLimit> {
        let size = at::stat_below(&self.root, path).map_or(u64::MAX / 2, |data| data.st_size.unsigned_abs());
        let contents = self.held.has_room(size);
        match self.node(None, path, contents) {
            Ok(Some(node)) => {
                self.mounted.insert(path.to_path_buf(), node);
                self.record_shared(path)
            }
            Ok(None) => Ok(()),
            Err(_) => Err(ExceededLimit {
                code: UNREADABLE,
                path: path.to_path_buf(),
            }),
        }
    }

    /// Records the files at or below a mounted path that have further hard links, through which they could be written.
    fn record_shared(&mut self, path: &Path) -> Result<(), ExceededLimit> {
        let mut waiting = vec![path.to_path_buf()];
        while let Some(path) = waiting.pop() {
            if is_object(&path) || self.is_own(&path) {
                continue;
            }
            let Ok(data) = at::stat_below(&self.root, &path) else {
                continue;
            };
            let kind = FileType::from_raw_mode(data.st_mode);
            if kind.is_dir() {
                waiting.extend(self.listed(&path)?.into_iter().map(|entry| entry.path));
            } else if kind.is_file() && data.st_nlink > 1 {
                self.record(&path, true)?;
            }
        }
        Ok(())
    }
}

/// Whether the path is relative, not empty, and without `.` or `..`.
fn is_plain(path: &Path) -> bool {
    !path.as_os_str().is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// The directories that are inside no other one.
fn outermost(dirs: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let inside = |dir: &PathBuf| dirs.iter().any(|other| other != dir && dir.starts_with(other));
    dirs.iter().filter(|dir| !inside(dir)).cloned().collect()
}

mod live_socket {
    //! Whether a process listens on a socket file.

    use super::at;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::path::Path;

    /// Connects with a socket type that is rarely served, so that a server does not notice it: the connection is
    /// refused either because of the type or because nobody listens. Returns true in case of doubt.
    pub fn is(root: &OwnedFd, path: &Path) -> bool {
        let Ok(handle) = at::handle(root, path) else {
            return true;
        };
        let ask = || -> rustix::io::Result<()> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            let place = SocketAddrUnix::new(format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
            connect(&socket, &place)
        };
        !matches!(ask(), Err(Errno::CONNREFUSED))
    }
}
