//! Protected paths before and after a command: what changed is put back and named. Starts nothing; judges nothing else.
//!
//! At `full` what exists is read-only already, and the seal is for names that do not exist yet and for directories that were
//! moved with what is in them. At the other levels it is all there is. Looking is bounded: at most `MOST_ENTRIES` names, nothing
//! inside build and dependency directories, contents of at most `MOST_BYTES` together; `.git/objects` by size and time only, and by
//! size alone where a local clone shares the file.

mod names;

use super::{Confinement, Level};
use names::Names;
use std::collections::BTreeMap;
use std::fs::{self, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// Names looked at in one pass.
const MOST_ENTRIES: usize = 60_000;
/// Bytes of contents held.
const MOST_BYTES: u64 = 64 << 20;
/// A larger file is known by size and time only.
const MOST_FILE: u64 = 8 << 20;
/// Directories that tools fill; their names are their own affair.
const NOT_ENTERED: [&str; 4] = ["node_modules", "target", ".venv", "__pycache__"];

/// The protected paths as they were.
#[derive(Default)]
pub(super) struct Seal {
    workspace: PathBuf,
    names: Names,
    /// Run directories, relative: this program writes them itself while a command runs.
    own: Vec<PathBuf>,
    /// Each protected path and all below it, relative to the workspace.
    before: BTreeMap<PathBuf, Node>,
    /// The tops among them that a mount can make read-only.
    frozen: Vec<PathBuf>,
    bytes: u64,
}

/// One file, link or directory.
struct Node {
    kind: Kind,
    print: Print,
}

enum Kind {
    /// With its content, where that is held.
    File(Option<Vec<u8>>),
    Link(PathBuf),
    Dir,
    Other,
}

/// What changes when something is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Print {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
    links: u64,
}

impl Seal {
    /// Looks at what is there. Level `full` relies on mounts for what lies at the top of the tree.
    pub fn take(confinement: &Confinement) -> Self {
        let names = Names::new(&confinement.protected);
        let mut seal = Self {
            workspace: confinement.workspace.clone(),
            names,
            own: confinement
                .hidden
                .iter()
                .filter_map(|dir| dir.strip_prefix(&confinement.workspace).ok())
                .map(Path::to_path_buf)
                .collect(),
            ..Self::default()
        };
        if seal.names.is_empty() {
            return seal;
        }
        for top in seal.find() {
            let link = fs::symlink_metadata(seal.workspace.join(&top)).is_ok_and(|data| data.is_symlink());
            let freeze = !link && !seal.names.opens_below(&top);
            if freeze {
                seal.frozen.push(top.clone());
            }
            // A mount point cannot be moved, nor can the root that it lies in.
            let held_by_mount = freeze && confinement.level == Level::Full && top.components().count() == 1;
            seal.record(&top, !held_by_mount);
        }
        seal
    }

    /// Existing protected paths that can be made read-only.
    pub fn frozen(&self) -> Vec<PathBuf> {
        self.frozen.clone()
    }

    /// The tops of all protected paths that exist, in order.
    fn find(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![PathBuf::new()];
        let mut seen = 0;
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(self.workspace.join(&dir)).into_iter().flatten().flatten() {
                seen += 1;
                let path = dir.join(entry.file_name());
                if self.names.protects(&path) {
                    found.push(path);
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir())
                    && !NOT_ENTERED.iter().any(|name| entry.file_name() == *name)
                {
                    dirs.insert(0, path);
                }
            }
            if seen > MOST_ENTRIES {
                break;
            }
        }
        found.sort();
        found
    }

    fn record(&mut self, path: &Path, whole: bool) {
        let at = self.workspace.join(path);
        let Ok(data) = fs::symlink_metadata(&at) else { return };
        if self.leaves_alone(path) {
            return;
        }
        let kind = if data.is_dir() {
            Kind::Dir
        } else if data.is_symlink() {
            fs::read_link(&at).map_or(Kind::Other, Kind::Link)
        } else if data.is_file() {
            Kind::File(self.content(path, &at, &data, whole))
        } else {
            Kind::Other
        };
        let below = matches!(kind, Kind::Dir) && whole;
        let print = Print::of(&data);
        self.before.insert(path.to_path_buf(), Node { kind, print });
        if below && self.before.len() < MOST_ENTRIES {
            for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
                self.record(&path.join(entry.file_name()), whole);
            }
        }
    }

    /// What a rule opened, and what is our own.
    fn leaves_alone(&self, path: &Path) -> bool {
        self.names.opens(path) || self.own.iter().any(|own| path.starts_with(own))
    }

    fn content(&mut self, path: &Path, at: &Path, data: &Metadata, whole: bool) -> Option<Vec<u8>> {
        if !whole || data.len() > MOST_FILE || self.bytes + data.len() > MOST_BYTES || is_object(path) {
            return None;
        }
        self.bytes += data.len();
        fs::read(at).ok()
    }

    /// Puts back what changed. Names it, sorted; what could not be put back says so.
    pub fn mend(&self) -> Vec<String> {
        let mut undone = Vec::new();
        if self.names.is_empty() {
            return undone;
        }
        for (path, node) in &self.before {
            if let Some(word) = self.mend_one(path, node) {
                undone.push(format!("{}{word}", path.display()));
            }
        }
        for path in self.news() {
            let at = self.workspace.join(&path);
            let gone = match fs::symlink_metadata(&at) {
                Ok(data) if data.is_dir() => remove_tree(&at),
                _ => fs::remove_file(&at),
            };
            undone.push(match gone {
                Ok(()) => path.display().to_string(),
                Err(_) => format!("{} (could not be removed)", path.display()),
            });
        }
        undone.sort();
        undone.dedup();
        undone
    }

    /// `None` when nothing changed, else what to say after the name.
    fn mend_one(&self, path: &Path, node: &Node) -> Option<&'static str> {
        let at = self.workspace.join(path);
        let now = fs::symlink_metadata(&at).ok().filter(|_| !self.through_link(path));
        if now.as_ref().is_some_and(|data| same(node, data, path, &at)) {
            return None;
        }
        match self.put_back(path, &at, node) {
            Ok(()) => Some(""),
            Err(_) => Some(" (could not be put back)"),
        }
    }

    fn put_back(&self, path: &Path, at: &Path, node: &Node) -> io::Result<()> {
        self.make_parents(path)?;
        let mode = Permissions::from_mode(node.print.mode & 0o7777);
        let now = fs::symlink_metadata(at).ok();
        let is_dir = now.as_ref().is_some_and(Metadata::is_dir);
        match &node.kind {
            Kind::Dir if is_dir => return fs::set_permissions(at, mode),
            Kind::File(None) | Kind::Other => return Err(io::ErrorKind::Unsupported.into()),
            _ => {}
        }
        match now {
            Some(_) if is_dir => remove_tree(at)?,
            Some(_) => fs::remove_file(at)?,
            None => {}
        }
        match &node.kind {
            Kind::Dir => fs::create_dir(at)?,
            Kind::Link(target) => return symlink(target, at),
            Kind::File(content) => {
                let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(at)?;
                file.write_all(content.as_deref().unwrap_or_default())?;
            }
            Kind::Other => return Err(io::ErrorKind::Unsupported.into()),
        }
        fs::set_permissions(at, mode)
    }

    /// Each directory above is one again, and no link.
    fn make_parents(&self, path: &Path) -> io::Result<()> {
        let mut at = self.workspace.clone();
        for part in path.parent().into_iter().flat_map(Path::components) {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Ok(data) if data.is_dir() => {}
                Ok(_) => {
                    fs::remove_file(&at)?;
                    fs::create_dir(&at)?;
                }
                Err(_) => fs::create_dir(&at)?,
            }
        }
        Ok(())
    }

    fn through_link(&self, path: &Path) -> bool {
        let mut at = self.workspace.clone();
        path.parent()
            .into_iter()
            .flat_map(Path::components)
            .any(|part: Component<'_>| {
                at.push(part);
                fs::symlink_metadata(&at).is_ok_and(|data| data.is_symlink())
            })
    }

    /// Protected paths that were not there before: whole new tops, and new names below known ones.
    fn news(&self) -> Vec<PathBuf> {
        let mut news = Vec::new();
        for top in self.find() {
            if self.before.contains_key(&top) {
                self.news_below(&top, &mut news);
            } else if !self.leaves_alone(&top) {
                news.push(top);
            }
        }
        news
    }

    fn news_below(&self, dir: &Path, news: &mut Vec<PathBuf>) {
        let recorded_below = self
            .before
            .range(dir.to_path_buf()..)
            .nth(1)
            .is_some_and(|(path, _)| path.starts_with(dir));
        let Some(node) = self.before.get(dir) else { return };
        if !matches!(node.kind, Kind::Dir) || (self.frozen_top(dir) && !recorded_below) {
            return;
        }
        for entry in fs::read_dir(self.workspace.join(dir)).into_iter().flatten().flatten() {
            let path = dir.join(entry.file_name());
            if self.leaves_alone(&path) {
                continue;
            }
            if self.before.contains_key(&path) {
                self.news_below(&path, news);
            } else {
                news.push(path);
            }
        }
    }

    fn frozen_top(&self, path: &Path) -> bool {
        path.components().count() == 1 && self.frozen.iter().any(|frozen| frozen == path)
    }
}

/// Whether the entry is what it was. A time that moved while the content did not is no change.
fn same(node: &Node, data: &Metadata, path: &Path, at: &Path) -> bool {
    let now = Print::of(data);
    if now == node.print {
        return true;
    }
    if now.mode != node.print.mode {
        return false;
    }
    match &node.kind {
        Kind::Dir => true,
        Kind::Link(target) => fs::read_link(at).is_ok_and(|now| now == *target),
        Kind::File(Some(content)) => now.size == node.print.size && fs::read(at).is_ok_and(|now| now == *content),
        Kind::File(None) => {
            // Git renews the time of an object it would have written again, and a local clone shares the file.
            let shared = node.print.links > 1 && is_object(path);
            (now.inode, now.size) == (node.print.inode, node.print.size)
                && (now.modified == node.print.modified || shared)
        }
        Kind::Other => now.inode == node.print.inode,
    }
}

/// Git's own store: immutable by name, and large.
fn is_object(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    parts.windows(2).any(|pair| pair == [".git", "objects"]) && !parts.contains(&"info")
}

/// Removes a directory that may have been made unreadable.
fn remove_tree(at: &Path) -> io::Result<()> {
    fs::remove_dir_all(at).or_else(|_| {
        open_up(at);
        fs::remove_dir_all(at)
    })
}

fn open_up(dir: &Path) {
    // What cannot be opened cannot be removed either, and that is told.
    let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

impl Print {
    fn of(data: &Metadata) -> Self {
        Self {
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
            mode: data.mode(),
            links: data.nlink(),
        }
    }
}

#[cfg(test)]
mod tests;
