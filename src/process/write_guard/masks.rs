//! The files that a command at level `full` must not read, at every path where it would see them. The list is created
//! again before a command starts if the tree may have changed since, so that neither a later step nor a rename reveals
//! a file. Steps and checks can read files that the run's own steps and checks created.

use super::index_view::{IndexView, IndexViews};
use super::walk::{ExceededLimit, Known, TreeWalk};
use super::{MOST_MOUNTS, at};
use crate::base::grant::{ClosedPaths, NothingClosed, Writes};
use crate::base::sync::lock;
use crate::base::{git_config, git_dir};
use crate::process::confine::spec::WorkspaceReach;
use crate::process::sides::Side;
use crate::process::{Confinement, SandboxLevel, is_git_dir, live};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Upper limit for the files, because each needs a mount in every command. If exceeded, no command is started.
const MOST_FILES: usize = 1_000;
/// Upper limit for the copies of git's configuration; further files are hidden as a whole.
const MOST_COPIES: usize = 100;
/// Upper limit for the files that git's configuration includes. If exceeded, no command is started.
const MOST_INCLUDED: usize = 1_000;
/// Upper limit in bytes for a file that may be a certificate; a longer one is hidden. The bundle of all authorities has
/// 300 KB.
const MOST_CERTIFICATE: u64 = 2 << 20;
/// Upper limit in bytes for all such files in one search; further ones are hidden.
const MOST_EXAMINED: u64 = 32 << 20;
/// The PEM labels of certificates and public keys.
const PUBLIC_LABELS: [&str; 9] = [
    "CERTIFICATE",
    "TRUSTED CERTIFICATE",
    "X509 CERTIFICATE",
    "CERTIFICATE REQUEST",
    "NEW CERTIFICATE REQUEST",
    "X509 CRL",
    "PUBLIC KEY",
    "RSA PUBLIC KEY",
    "DH PARAMETERS",
];
/// The directory of earlier runs in a workspace. It is hidden as a whole: each run leaves many files in it.
const OWN_DIR: &str = ".overnight";
/// The name of the limits.
const LIMIT: &str = "limit:hidden_files";

/// Says which files commands must not read.
pub trait SecretPaths: Send + Sync + fmt::Debug {
    /// Whether a file (relative, `/`-separated) must not be read. Called for every file of a tree.
    fn is_secret(&self, path: &str) -> bool;

    /// Whether a file that must not be read may be read if it holds only certificates and public keys.
    fn is_open_without_key(&self, path: &str) -> bool;
}

/// The masks of a run's commands, and whether they may be out of date.
#[derive(Debug, Default)]
pub struct Masks {
    rules: Option<Arc<dyn SecretPaths>>,
    /// Whether a command that may write was started since the list was created.
    stale: AtomicBool,
    looked: Mutex<Option<Looked>>,
    indexes: Arc<IndexViews>,
    /// The files that were hidden when the run began.
    began: OnceLock<BTreeSet<PathBuf>>,
}

/// The result of the last search of the trees.
#[derive(Debug)]
struct Looked {
    roots: Vec<Root>,
    known: BTreeMap<PathBuf, Known>,
    list: Arc<MaskList>,
}

/// The files that are hidden from one command.
#[derive(Debug, Default)]
pub(super) struct MaskList {
    /// Absolute paths, as the command sees them.
    hidden: Vec<PathBuf>,
    /// Files of git that are seen without their credentials.
    copies: Vec<(PathBuf, Vec<u8>)>,
    /// The directories of the workspace that contain such a file, relative to it.
    above: Vec<PathBuf>,
}

/// A tree in which such files are searched.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Root {
    top: PathBuf,
    /// Its path in the workspace as the rules know it; `""` is the workspace.
    name: String,
    /// Where commands see it.
    seen: Vec<PathBuf>,
}

/// The rules for the paths of one tree, for the walk.
#[derive(Debug)]
struct Names<'a> {
    rules: &'a dyn SecretPaths,
    above: &'a str,
    handle: &'a OwnedFd,
}

impl ClosedPaths for Names<'_> {
    fn is_empty(&self) -> bool {
        false
    }

    /// A directory is reported so that it is not searched.
    fn closed(&self, below: &str, is_dir: bool) -> bool {
        let path = full(self.above, below);
        match is_dir {
            true if path == OWN_DIR => self.rules.is_secret(&path),
            true => below_git(&path).is_some() && holds_no_settings(self.handle, Path::new(below)),
            false => self.rules.is_secret(&path) || is_config_of_bare(self.handle, Path::new(below)),
        }
    }

    fn why(&self, _path: &str) -> (&'static str, Option<String>) {
        ("secret_like_path", None)
    }
}

/// The part of a path below the last `.git` in it.
fn below_git(path: &str) -> Option<&str> {
    let mut end = 0;
    let mut inside = None;
    for name in path.split('/') {
        end += name.len() + 1;
        if name == ".git" {
            inside = Some(end);
        }
    }
    path.get(inside?..)
}

/// Whether a directory below `.git` has no settings below it. One of that name may also be a submodule, whose name has
/// slashes: only the directories of a git directory itself are beside its `HEAD`, which is a file.
fn holds_no_settings(root: &OwnedFd, dir: &Path) -> bool {
    let named = dir.file_name().and_then(OsStr::to_str);
    named.is_some_and(git_config::holds_no_settings)
        && has_head(root, dir)
        && matches!(at::stat_below(root, &dir.join("config")), Err(Errno::NOENT))
}

/// Whether a path is a configuration file in a git directory of any name: a bare repository, or one of its worktrees.
fn is_config_of_bare(root: &OwnedFd, path: &Path) -> bool {
    let named = path.file_name().and_then(OsStr::to_str);
    let beside = |name: &str| at::stat_below(root, &path.with_file_name(name)).is_ok();
    named.is_some_and(git_config::is_config) && git_dir::is_git_dir(beside)
}

/// Whether a file or a link that is `HEAD` is beside a path.
fn has_head(root: &OwnedFd, path: &Path) -> bool {
    let kind = at::stat_below(root, &path.with_file_name("HEAD")).map(|data| FileType::from_raw_mode(data.st_mode));
    matches!(kind, Ok(FileType::RegularFile | FileType::Symlink))
}

/// The last name of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Masks {
    /// Masks of the files that `rules` name.
    pub fn of(rules: Arc<dyn SecretPaths>) -> Self {
        Self {
            rules: Some(rules),
            ..Self::default()
        }
    }

    /// Whether commands at level `full` cannot read such files.
    pub fn hide_files(&self) -> bool {
        self.rules.is_some()
    }

    /// Creates the first list.
    ///
    /// # Errors
    /// A limit that was reached, or a directory that could not be searched: no command would be started.
    pub fn look(&self, confinement: &Confinement) -> Result<(), String> {
        let list = self.current(confinement)?;
        self.began.get_or_init(|| list.hidden.iter().cloned().collect());
        Ok(())
    }

    /// For a step or check of the recipe's author: reveals the hidden files that were not hidden when the run began.
    /// Steps and checks created them, and the next one must be able to create them again (`cp .env.example .env`). They
    /// stay hidden from commands of the model and from servers.
    pub(super) fn show_made(&self, confinement: &Confinement, hidden: &mut Vec<PathBuf>) {
        let Some(began) = self.began.get().filter(|_| sees_made(confinement)) else {
            return;
        };
        let workspace = &confinement.workspace;
        hidden.retain(|path| {
            // Placed directories and git's own are outside the workspace, and run directories are never revealed.
            let is_inside = path
                .strip_prefix(workspace)
                .is_ok_and(|inside| !inside.starts_with(OWN_DIR));
            !is_inside || began.contains(path) || confinement.hidden.contains(path)
        });
    }

    /// Like [`Masks::show_made`], for everything that the command may reach: directories that contain only such files
    /// may be moved.
    pub(super) fn show_made_in(&self, confinement: &Confinement, reach: &mut WorkspaceReach) {
        let before = reach.hidden.len();
        self.show_made(confinement, &mut reach.hidden);
        if reach.hidden.len() == before {
            return;
        }
        let copies = reach.copies.iter().map(|(path, _)| path);
        let left = reach.hidden.iter().chain(copies);
        let inside = left.filter_map(|path| path.strip_prefix(&confinement.workspace).ok());
        let above: BTreeSet<&Path> = inside.flat_map(|path| path.ancestors().skip(1)).collect();
        reach.fixed.retain(|dir| above.contains(dir.as_path()));
    }

    /// The list for a command that starts now. The trees are searched only if a command that may write
    /// has run since the last list.
    pub(super) fn current(&self, confinement: &Confinement) -> Result<Arc<MaskList>, String> {
        let Some(rules) = self
            .rules
            .as_deref()
            .filter(|_| confinement.level == SandboxLevel::Full)
        else {
            return Ok(Arc::default());
        };
        let mut looked = lock(&self.looked);
        let roots = roots(confinement);
        // In this order: a command that begins to write in between sets it again.
        let stale = self.stale.swap(false, Ordering::SeqCst);
        let live = live::may_write(&confinement.workspace);
        if let Some(looked) = &*looked
            && !stale
            && !live
            && looked.roots == roots
        {
            return Ok(Arc::clone(&looked.list));
        }
        // If this fails, the trees are searched again for the next command.
        let known = looked.take().map(|looked| looked.known).unwrap_or_default();
        let mut search = Search {
            own: confinement.hidden_inside(),
            ..Search::default()
        };
        let known = search.all(rules, &roots, known)?;
        let list = Arc::new(search.list());
        *looked = Some(Looked {
            roots,
            known,
            list: Arc::clone(&list),
        });
        if live {
            self.changes();
        }
        Ok(list)
    }

    /// Makes git in a command treat the files that `reach` hides as unchanged.
    ///
    /// # Errors
    /// An index that cannot be read or marked: the command must not be started.
    pub(super) fn show_indexes(
        &self,
        confinement: &Confinement,
        reach: &mut WorkspaceReach,
    ) -> Result<Option<IndexView>, String> {
        let hidden = reach.hidden.clone();
        self.indexes.show(&hidden, confinement, reach, is_movable)
    }

    /// Records that the tree may change from now on.
    pub fn changes(&self) {
        self.stale.store(true, Ordering::SeqCst);
    }
}

impl MaskList {
    /// The confinement with these files as hidden ones: what a command cannot reach is not recorded for comparing.
    pub fn within<'a>(&self, confinement: &'a Confinement) -> Cow<'a, Confinement> {
        if self.hidden.is_empty() {
            return Cow::Borrowed(confinement);
        }
        let mut confinement = confinement.clone();
        confinement.hidden.extend(self.hidden.iter().cloned());
        Cow::Owned(confinement)
    }

    /// Adds the masks to what a command may reach. Directories that it could rename are fixed: it could move a file
    /// away from under the masks of the commands after it.
    pub fn add_to(&self, reach: &mut WorkspaceReach, writes: &Writes) {
        reach.hidden.extend(self.hidden.iter().cloned());
        reach.copies.extend(self.copies.iter().cloned());
        if *writes == Writes::Nothing {
            return;
        }
        let fixed = self
            .above
            .iter()
            .filter(|dir| is_movable(reach, dir))
            .cloned()
            .collect();
        reach.fixed = fixed;
    }
}

/// Whether its commands are steps and checks, not those of the model or of servers, nor what rewrites calls of the model.
fn sees_made(confinement: &Confinement) -> bool {
    let own = confinement.side.as_ref();
    own.is_some_and(|own| own.side == Side::Author && own.sees_made)
}

/// Whether a directory is in a place that is mounted writable, and no mount of its own.
fn is_movable(reach: &WorkspaceReach, dir: &Path) -> bool {
    let nearest = |mounts: &[PathBuf]| {
        let above = mounts.iter().filter(|mount| dir.starts_with(mount));
        above.map(|mount| mount.components().count() + 1).max().unwrap_or(0)
    };
    let (writable, read_only) = (nearest(&reach.writable), nearest(&reach.read_only));
    let is_mount = reach.writable.iter().any(|mount| mount == dir);
    !is_mount && (reach.tree || writable > 0) && writable >= read_only
}

/// The trees whose files commands see: the workspace, what was brought into it, and git's own directory outside it.
fn roots(confinement: &Confinement) -> Vec<Root> {
    let workspace = &confinement.workspace;
    let mut roots = vec![Root {
        top: workspace.clone(),
        name: String::new(),
        seen: vec![workspace.clone()],
    }];
    let placed = &confinement.placed;
    let layers: Vec<_> = placed.layers.iter().filter(|layer| layer.of_tree).collect();
    let slots = match layers.is_empty() {
        true => Vec::new(),
        false => dirs_in(&placed.tree_slots),
    };
    for layer in layers {
        let Ok(name) = layer.place.strip_prefix(workspace) else {
            continue;
        };
        let root = |top: PathBuf, seen: Vec<PathBuf>| Root {
            top,
            name: name.to_string_lossy().into_owned(),
            seen,
        };
        roots.push(root(
            layer.below.clone(),
            vec![layer.place.clone(), layer.below.clone()],
        ));
        for slot in &slots {
            roots.push(root(slot.join(&layer.name).join("upper"), vec![layer.place.clone()]));
        }
    }
    let repositories = confinement.readable.iter().filter(|dir| is_git_dir(dir));
    roots.extend(repositories.map(|dir| Root {
        top: dir.clone(),
        name: ".git".to_owned(),
        seen: vec![dir.clone()],
    }));
    roots
}

/// The directories in a directory, sorted; none if it does not exist.
fn dirs_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    dirs.sort();
    dirs
}

/// One search of all trees.
#[derive(Debug, Default)]
struct Search {
    /// Directories of this program in the workspace.
    own: Vec<PathBuf>,
    hidden: BTreeSet<PathBuf>,
    copies: BTreeMap<PathBuf, Vec<u8>>,
    above: BTreeSet<PathBuf>,
    /// Files found that have further hard links: device and inode number.
    linked: BTreeSet<(u64, u64)>,
    /// Absolute paths of files that git's configuration includes.
    included: BTreeSet<PathBuf>,
    /// The included files that are still to be read.
    waiting: Vec<PathBuf>,
    /// Absolute paths that are the targets of links which must not be read.
    targets: BTreeSet<PathBuf>,
    /// How many bytes were read to distinguish certificates from private keys.
    examined: u64,
}

impl Search {
    fn all(
        &mut self,
        rules: &dyn SecretPaths,
        roots: &[Root],
        mut earlier: BTreeMap<PathBuf, Known>,
    ) -> Result<BTreeMap<PathBuf, Known>, String> {
        let mut all = BTreeMap::new();
        for root in roots {
            let Some(handle) = opened(root)? else { continue };
            let names = Names {
                rules,
                above: &root.name,
                handle: &handle,
            };
            let own = self.own_of(root);
            let walk = TreeWalk::new(&handle, &names, &own);
            let (found, known) = match earlier.remove(&root.top) {
                Some(known) => walk.find_anew(Path::new(""), known),
                None => walk.find(Path::new("")),
            };
            if let Some(over) = found.over.first() {
                return Err(not_searched(root, over));
            }
            for path in &found.closed {
                self.file(root, &names, path)?;
            }
            all.insert(root.top.clone(), known);
        }
        for target in std::mem::take(&mut self.targets) {
            self.target(rules, roots, &target)?;
        }
        while let Some(file) = self.waiting.pop() {
            self.included_file(roots, &file)?;
        }
        if !self.linked.is_empty() {
            roots.iter().try_for_each(|root| self.other_names(root))?;
        }
        Ok(all)
    }

    /// Run directories are in the workspace, whose root is the one without a name.
    fn own_of(&self, root: &Root) -> Vec<PathBuf> {
        match root.name.as_str() {
            "" => self.own.clone(),
            _ => Vec::new(),
        }
    }

    fn file(&mut self, root: &Root, names: &Names<'_>, path: &Path) -> Result<(), String> {
        let handle = names.handle;
        let data = match at::stat_below(handle, path) {
            Ok(data) => data,
            // Removed in the meantime.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(unreadable(root, path, error)),
        };
        let kind = FileType::from_raw_mode(data.st_mode);
        if kind.is_dir() {
            return match root.name.is_empty() && path == Path::new(OWN_DIR) {
                true => self.add(root, path, None),
                false => Ok(()),
            };
        }
        let is_config = is_config_of(root, handle, path);
        if kind.is_symlink() {
            self.link(root, path, is_config);
            return Ok(());
        }
        if !kind.is_file() {
            // Pipes, sockets and devices are hidden too: password managers provide `.env` as a pipe.
            return self.add(root, path, None);
        }
        let file = (data.st_dev, data.st_ino);
        let is_linked = data.st_nlink > 1;
        if is_config {
            return self.config(root, handle, path, is_linked.then_some(file));
        }
        if self.is_public(names, path) {
            return Ok(());
        }
        if is_linked {
            self.linked.insert(file);
        }
        self.add(root, path, None)
    }

    /// Records the target of a link, which is hidden instead of the link. A dangling link reveals nothing.
    fn link(&mut self, root: &Root, path: &Path, is_config: bool) {
        let Ok(target) = root.top.join(path).canonicalize() else {
            return;
        };
        if !is_config {
            self.targets.insert(target);
        } else if self.included.insert(target.clone()) {
            self.waiting.push(target);
        }
    }

    /// The target of a link; those outside the trees are not seen by commands.
    fn target(&mut self, rules: &dyn SecretPaths, roots: &[Root], file: &Path) -> Result<(), String> {
        for root in roots {
            let top = root.top.canonicalize().unwrap_or_else(|_| root.top.clone());
            let Ok(path) = file.strip_prefix(&top) else { continue };
            let Some(handle) = opened(root)? else { continue };
            let names = Names {
                rules,
                above: &root.name,
                handle: &handle,
            };
            self.file(root, &names, path)?;
        }
        Ok(())
    }

    /// Whether a file contains only certificates and public keys, so that it may be read. A file that cannot be read
    /// here is hidden.
    fn is_public(&mut self, names: &Names<'_>, path: &Path) -> bool {
        let named = path.to_string_lossy();
        if self.examined > MOST_EXAMINED || !names.rules.is_open_without_key(&full(names.above, &named)) {
            return false;
        }
        let Ok(Some(bytes)) = contents(names.handle, path, MOST_CERTIFICATE) else {
            return false;
        };
        let length = bytes.len() as u64;
        self.examined += length;
        length <= MOST_CERTIFICATE && holds_only_certificates(&String::from_utf8_lossy(&bytes))
    }

    /// A file that git reads as configuration; `linked` identifies one with further hard links.
    fn config(&mut self, root: &Root, handle: &OwnedFd, path: &Path, linked: Option<(u64, u64)>) -> Result<(), String> {
        let bytes = match contents(handle, path, git_config::MOST_BYTES as u64) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(()),
            // It belongs to another user, for example a backup of an administrator; git cannot read it either.
            Err(Errno::ACCESS) => return self.add(root, path, None),
            Err(error) => return Err(unreadable(root, path, error)),
        };
        self.include(root, path, &bytes)?;
        let Some(cleaned) = git_config::without_credentials(&bytes) else {
            return Ok(());
        };
        self.linked.extend(linked);
        let copy = Some(cleaned.text).filter(|_| self.copies.len() < MOST_COPIES);
        self.add(root, path, copy)
    }

    /// Records the files that a configuration includes: git reads them as parts of it, independently of their names.
    fn include(&mut self, root: &Root, path: &Path, bytes: &[u8]) -> Result<(), String> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let config = root.top.join(path);
        let places = git_config::included(bytes)
            .into_iter()
            .filter_map(|named| git_config::included_path(&config, &named, home.as_deref()));
        for place in places.filter_map(|place| place.canonicalize().ok()) {
            if self.included.insert(place.clone()) {
                self.waiting.push(place);
            }
        }
        match self.included.len() > MOST_INCLUDED {
            true => Err(format!(
                "{LIMIT}: git's configuration includes more than {MOST_INCLUDED} files, so credentials in them could not be \
                 hidden from commands; remove `include.path` settings that are not needed"
            )),
            false => Ok(()),
        }
    }

    /// A file that git's configuration includes; those outside the trees are not seen by commands.
    fn included_file(&mut self, roots: &[Root], file: &Path) -> Result<(), String> {
        for root in roots {
            let top = root.top.canonicalize().unwrap_or_else(|_| root.top.clone());
            let Ok(path) = file.strip_prefix(&top) else { continue };
            let Some(handle) = opened(root)? else { continue };
            let data = match at::stat_below(&handle, path) {
                Ok(data) if FileType::from_raw_mode(data.st_mode).is_file() => data,
                _ => continue,
            };
            let is_hidden = root.seen.iter().any(|place| {
                let place = place.join(path);
                self.hidden.contains(&place) || self.copies.contains_key(&place)
            });
            if !is_hidden {
                let linked = (data.st_nlink > 1).then_some((data.st_dev, data.st_ino));
                self.config(root, &handle, path, linked)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, root: &Root, path: &Path, copy: Option<Vec<u8>>) -> Result<(), String> {
        for place in &root.seen {
            match &copy {
                Some(copy) => {
                    self.copies.insert(place.join(path), copy.clone());
                }
                None => {
                    self.hidden.insert(place.join(path));
                }
            }
        }
        if root.name.is_empty() {
            let dirs = path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
            self.above.extend(dirs.map(Path::to_path_buf));
        }
        if self.hidden.len() > MOST_FILES || self.above.len() > MOST_MOUNTS {
            return Err(format!(
                "{LIMIT}: the workspace contains more than {MOST_FILES} files that commands must not read, or \
                 directories that hold them; name those that they may read in a rule, or move them out"
            ));
        }
        Ok(())
    }

    /// Hides the other hard links of the files that were found.
    fn other_names(&mut self, root: &Root) -> Result<(), String> {
        let Some(handle) = opened(root)? else { return Ok(()) };
        let own = self.own_of(root);
        let walk = TreeWalk {
            links: true,
            ..TreeWalk::new(&handle, &NothingClosed, &own)
        };
        let found = walk.find_linked();
        if let Some(over) = found.over.first() {
            return Err(not_searched(root, over));
        }
        for linked in found.linked {
            let known = root
                .seen
                .iter()
                .any(|place| self.copies.contains_key(&place.join(&linked.path)));
            if !known && self.linked.contains(&linked.file()) && !is_config_of(root, &handle, &linked.path) {
                self.add(root, &linked.path, None)?;
            }
        }
        Ok(())
    }

    fn list(self) -> MaskList {
        MaskList {
            hidden: self.hidden.into_iter().collect(),
            copies: self.copies.into_iter().collect(),
            above: self.above.into_iter().collect(),
        }
    }
}

/// Whether a path is a configuration file of git, which git must be able to read: commands see the file or a copy.
fn is_config_of(root: &Root, handle: &OwnedFd, path: &Path) -> bool {
    let named = path.to_string_lossy();
    below_git(&full(&root.name, &named)).is_some_and(|inside| git_config::is_config(last(inside)))
        || is_config_of_bare(handle, path)
}

/// Whether a text contains PEM blocks (RFC 7468), all of which are public.
fn holds_only_certificates(text: &str) -> bool {
    let mut labels = text.split("-----BEGIN ").skip(1).map(|rest| rest.split("-----").next());
    let is_public = |label: Option<&str>| label.is_some_and(|label| PUBLIC_LABELS.contains(&label));
    let text = text.to_ascii_uppercase();
    let has_key = ["PRIVATE KEY", "PRIVATE-KEY"].iter().any(|words| text.contains(words));
    labels.next().is_some_and(is_public) && labels.all(is_public) && !has_key
}

/// A path below a root, in the form that rules use.
fn full<'p>(above: &str, path: &'p str) -> Cow<'p, str> {
    match above {
        "" => Cow::Borrowed(path),
        above => Cow::Owned(format!("{above}/{path}")),
    }
}

/// The root of a tree; `None` if it does not exist.
fn opened(root: &Root) -> Result<Option<OwnedFd>, String> {
    match at::root(&root.top) {
        Ok(handle) => Ok(Some(handle)),
        Err(Errno::NOENT | Errno::NOTDIR) if !root.name.is_empty() => Ok(None),
        Err(error) => Err(unreadable(root, Path::new(""), error)),
    }
}

/// The bytes of a file, at most `most` and one more. `None` if it no longer exists.
fn contents(root: &OwnedFd, path: &Path, most: u64) -> Result<Option<Vec<u8>>, Errno> {
    let file = match at::file(root, path) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::INVAL) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(Some(bytes))
}

fn unreadable(root: &Root, path: &Path, error: Errno) -> String {
    format!(
        "{LIMIT}: {} cannot be examined ({error}), so files in it could not be hidden from commands; make it readable",
        root.top.join(path).display()
    )
}

fn not_searched(root: &Root, over: &ExceededLimit) -> String {
    format!(
        "{}: {} could not be searched for files that commands must not read; make it readable, or run in a smaller \
         directory",
        over.code,
        root.top.join(&over.path).display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::sides::{OwnSide, Sides};
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use tempfile::TempDir;

    #[derive(Debug)]
    struct Ends;

    impl SecretPaths for Ends {
        fn is_secret(&self, path: &str) -> bool {
            [".env", ".pem", "config", "credentials", ".overnight"]
                .iter()
                .any(|end| path.ends_with(end))
        }

        fn is_open_without_key(&self, path: &str) -> bool {
            path.ends_with(".pem")
        }
    }

    const TOKEN: &str = "[http]\n\textraheader = AUTHORIZATION: basic c2VjcmV0\n";

    /// A tree with these files, and its confinement at level `full`.
    fn tree(files: &[&str]) -> (TempDir, Confinement) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, TOKEN).unwrap();
        }
        let confinement = Confinement {
            level: SandboxLevel::Full,
            masks: Arc::new(Masks::of(Arc::new(Ends))),
            ..Confinement::unconfined(&root)
        };
        (dir, confinement)
    }

    fn hidden(confinement: &Confinement) -> Vec<String> {
        let list = confinement.masks.current(confinement).unwrap();
        let inside = |path: &PathBuf| path.strip_prefix(&confinement.workspace).unwrap().display().to_string();
        list.hidden.iter().map(inside).collect()
    }

    #[test]
    fn secret_files_are_found_under_all_their_names() {
        let (dir, confinement) = tree(&[".env", "deep/.env", "deep/.git/.env", "plain"]);
        fs::write(dir.path().join(".gitignore"), ".env\n").unwrap();
        fs::hard_link(dir.path().join(".env"), dir.path().join("deep/other")).unwrap();
        std::os::unix::fs::symlink("plain", dir.path().join("link.env")).unwrap();
        let odd = OsStr::from_bytes(b"\xff.pem");
        fs::write(dir.path().join(odd), "x").unwrap();
        assert_eq!(
            hidden(&confinement),
            [
                ".env",
                "deep/.env",
                "deep/.git/.env",
                "deep/other",
                "plain",
                "\u{fffd}.pem"
            ]
        );
    }

    #[test]
    fn pipes_and_targets_of_links_are_hidden_and_certificates_are_not() {
        let (dir, confinement) = tree(&["a/keys", "all/x.txt", "b.pem", "c.pem", "d.pem"]);
        let public = "# of Example\n-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n";
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("b.pem", public);
        write(
            "c.pem",
            &format!("{public}-----BEGIN PRIVATE KEY-----\nAA\n-----END PRIVATE KEY-----\n"),
        );
        for (name, target) in [
            ("1.env", "a/keys"),
            ("2.env", "/etc/passwd"),
            ("3.env", "all"),
            ("4.env", "."),
        ] {
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        }
        let pipe = dir.path().join("pipe.env");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(hidden(&confinement), ["a/keys", "c.pem", "d.pem", "pipe.env"]);
        write("b.pem", "a key");
        confinement.masks.changes();
        assert_eq!(hidden(&confinement), ["a/keys", "b.pem", "c.pem", "d.pem", "pipe.env"]);
    }

    #[test]
    fn what_steps_made_is_hidden_from_the_model_only() {
        let (dir, mut confinement) = tree(&["conf/.env"]);
        let sides = tempfile::tempdir().unwrap();
        confinement.side = Some(OwnSide {
            sides: Arc::new(Sides::create(sides.path()).unwrap()),
            side: Side::Model,
            sees_made: true,
        });
        confinement.masks.look(&confinement).unwrap();
        fs::create_dir(dir.path().join("made")).unwrap();
        fs::write(dir.path().join("made/.env"), "x").unwrap();
        confinement.masks.changes();
        let seen = |confinement: &Confinement| {
            let mut reach = WorkspaceReach {
                tree: true,
                ..WorkspaceReach::default()
            };
            let list = confinement.masks.current(confinement).unwrap();
            list.add_to(&mut reach, &Writes::Tree);
            confinement.masks.show_made_in(confinement, &mut reach);
            (reach.hidden.len(), reach.fixed)
        };
        let paths = |names: &[&str]| -> Vec<PathBuf> { names.iter().map(PathBuf::from).collect() };
        assert_eq!(seen(&confinement), (2, paths(&["conf", "made"])));
        assert_eq!(seen(&confinement.of_side(Side::Servers)).0, 2);
        assert_eq!(seen(&confinement.of_side(Side::Author)), (1, paths(&["conf"])));
    }

    #[test]
    fn the_list_is_made_again_only_if_a_command_may_have_written() {
        let (dir, confinement) = tree(&["conf/.env"]);
        assert_eq!(hidden(&confinement), ["conf/.env"]);
        fs::write(dir.path().join("conf/b.env"), "x").unwrap();
        fs::rename(dir.path().join("conf"), dir.path().join("moved")).unwrap();
        assert_eq!(hidden(&confinement), ["conf/.env"]);
        confinement.masks.changes();
        assert_eq!(hidden(&confinement), ["moved/.env", "moved/b.env"]);
        fs::remove_file(dir.path().join("moved/.env")).unwrap();
        confinement.masks.changes();
        assert_eq!(hidden(&confinement), ["moved/b.env"]);
        let writes = Writes::Tree;
        let lived = live::begin(&confinement.workspace, &writes);
        fs::write(dir.path().join("late.env"), "x").unwrap();
        assert_eq!(hidden(&confinement), ["late.env", "moved/b.env"]);
        drop(lived);
    }

    #[test]
    fn settings_of_git_are_copied_where_they_hold_credentials() {
        let (dir, confinement) = tree(&[
            ".git/config",
            ".git/credentials",
            ".git/refs/heads/a.pem",
            ".git/modules/objects/config",
            ".git/modules/a.git/config",
            ".git/modules/HEAD/HEAD",
            ".git/modules/lfs/x/config",
            ".git/HEAD",
            ".git/deploy.pem",
            "lib/.git/config",
            "config",
            "m.git/config",
            "m.git/HEAD",
            "m.git/objects/pack/x",
        ]);
        fs::write(dir.path().join("lib/.git/config"), "[core]\n\tbare = false\n").unwrap();
        assert_eq!(hidden(&confinement), [".git/credentials", ".git/deploy.pem", "config"]);
        let list = confinement.masks.current(&confinement).unwrap();
        let copied: Vec<_> = list.copies.iter().map(|(path, _)| path.clone()).collect();
        let root = &confinement.workspace;
        assert_eq!(
            copied,
            [
                ".git/config",
                ".git/modules/a.git/config",
                ".git/modules/lfs/x/config",
                ".git/modules/objects/config",
                "m.git/config"
            ]
            .map(|name| root.join(name))
        );
        assert!(
            list.copies
                .iter()
                .all(|(_, text)| !String::from_utf8_lossy(text).contains("c2Vj"))
        );
    }

    #[test]
    fn settings_are_found_in_submodules_of_any_name_and_in_included_files() {
        let (dir, confinement) = tree(&[
            ".git/config",
            ".git/logs/config",
            ".git/lfs/x/config",
            ".git/modules/vendor/lfs/config",
            ".git/modules/vendor/logs/config",
            ".git/creds.inc",
            "shared.inc",
            "other.inc",
        ]);
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        for name in [".git/HEAD", ".git/modules/vendor/lfs/HEAD"] {
            write(name, "ref: refs/heads/main\n");
        }
        write(".git/config", "[include]\n\tpath = creds.inc\n\tpath = missing\n");
        write(
            ".git/creds.inc",
            &format!("{TOKEN}[include]\n\tpath = ../shared.inc\n\tpath = config\n"),
        );
        let list = confinement.masks.current(&confinement).unwrap();
        let copied: Vec<_> = list.copies.iter().map(|(path, _)| path.clone()).collect();
        let root = &confinement.workspace;
        let expected = [
            ".git/creds.inc",
            ".git/logs/config",
            ".git/modules/vendor/lfs/config",
            ".git/modules/vendor/logs/config",
            "shared.inc",
        ];
        assert_eq!(copied, expected.map(|name| root.join(name)));
        assert_eq!(list.hidden, Vec::<PathBuf>::new());
    }

    #[test]
    fn earlier_runs_are_hidden_as_a_whole() {
        let (_dir, confinement) = tree(&[
            ".overnight/runs/1/a.env",
            ".overnight/runs/2/a.env",
            "sub/.overnight/b.env",
        ]);
        assert_eq!(hidden(&confinement), [".overnight", "sub/.overnight/b.env"]);
    }

    #[test]
    fn directories_above_are_fixed_where_a_command_could_rename_them() {
        let (_dir, confinement) = tree(&["a/b/.env", "kept/c/.env", "own/.env"]);
        let list = confinement.masks.current(&confinement).unwrap();
        let fixed = |mut reach: WorkspaceReach, writes: &Writes| {
            list.add_to(&mut reach, writes);
            assert_eq!(reach.hidden.len(), 3);
            reach.fixed
        };
        let paths = |names: &[&str]| -> Vec<PathBuf> { names.iter().map(PathBuf::from).collect() };
        let whole = WorkspaceReach {
            tree: true,
            read_only: paths(&["kept"]),
            ..WorkspaceReach::default()
        };
        assert_eq!(fixed(whole, &Writes::Tree), paths(&["a", "a/b", "own"]));
        let part = WorkspaceReach {
            writable: paths(&["a"]),
            ..WorkspaceReach::default()
        };
        assert_eq!(fixed(part, &Writes::Tree), paths(&["a/b"]));
        assert_eq!(fixed(WorkspaceReach::default(), &Writes::Nothing), paths(&[]));
    }
}
