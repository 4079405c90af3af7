//! The root of the tree, and the only way to resolve a path in it. Decides what is visible; the policy decides what is
//! allowed.

use super::fs::{DirEntry, DirHandle, FsError};
use crate::base::access::{PathStatus, ResolvedPath};
use crate::base::path::lexical;
use crate::base::sync::lock;
use crate::process::{own_path, own_write};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Upper limit for links in one path, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The directory that contains run directories; never visible to tools.
const OWN_DIR: &str = ".overnight";

/// Tool name for reads that no call makes: previews, context files, references in prompts. They are judged by the rules
/// for `grep_search` that have no conditions on arguments.
pub const UNASKED: &str = "unasked";

/// Whether a tool, given by its name, must not open a relative path that it found.
pub type Unreadable = Box<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// The tree that a run works on.
///
/// It is configured once (`hide`, `set_unreadable`, `set_ignore`), then shared. Files are opened through the root's
/// handle, so that the file that was ruled on is the one that is opened.
pub struct Workspace {
    root: PathBuf,
    dir: Arc<DirHandle>,
    hidden: Vec<String>,
    ignore: Vec<String>,
    unreadable: Option<Unreadable>,
    seen: Mutex<HashMap<String, Seen>>,
    /// The last edit of a part of each file.
    edits: Mutex<HashMap<String, LastEdit>>,
    /// Number of the model's commands so far that could write.
    commands: AtomicU64,
    /// Whether one of them may still be running.
    background: AtomicBool,
}

/// What a tool last saw of a file, and the number of commands by then.
struct Seen {
    digest: [u8; 32],
    commands: u64,
}

/// The last edit of a part of a file.
struct LastEdit {
    /// What was replaced by what, as a digest.
    edit: String,
    /// The file afterwards.
    digest: [u8; 32],
    line: usize,
}

/// Who changed a file since a tool saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    No,
    /// The model's commands could write in between, so it was probably one of them.
    ByCommand,
    ByOthers,
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Workspace {
    /// Opens an existing directory. From then on this program starts no program of its own from there.
    ///
    /// # Errors
    /// As the system reports them for the directory; they reveal neither its path nor anything above it.
    pub fn open(path: &Path) -> Result<Self, FsError> {
        let root = path.canonicalize()?;
        own_path::exclude_tree(&root);
        Ok(Self {
            dir: Arc::new(DirHandle::open(&root)?),
            root,
            hidden: vec![OWN_DIR.to_owned()],
            ignore: Vec::new(),
            unreadable: None,
            seen: Mutex::new(HashMap::new()),
            edits: Mutex::new(HashMap::new()),
            commands: AtomicU64::new(0),
            background: AtomicBool::new(false),
        })
    }

    /// The canonical path of the root. Never shown to the model.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Hides a directory of this program (`--out` inside the tree). The path is absolute or relative to the root; one
    /// outside has no effect. The root itself cannot be hidden.
    pub fn hide(&mut self, path: &Path) {
        let place = self.locate(&path.to_string_lossy());
        if place.inside && !place.path.is_empty() {
            self.hidden.push(place.path);
        }
    }

    /// Whether a relative path is, or is inside, a hidden directory.
    pub fn is_hidden(&self, path: &str) -> bool {
        self.hidden.iter().any(|hidden| {
            path.strip_prefix(hidden.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The handle of the root, for work that outlives a borrow of the workspace.
    pub(super) fn handle(&self) -> Arc<DirHandle> {
        Arc::clone(&self.dir)
    }

    pub(super) fn hidden_names(&self) -> &[String] {
        &self.hidden
    }

    /// Sets the recipe's ignore patterns in `.gitignore` format, relative to the root; they apply to every walk.
    pub fn set_ignore(&mut self, patterns: Vec<String>) {
        self.ignore = patterns;
    }

    /// The recipe's ignore patterns.
    pub fn ignore(&self) -> &[String] {
        &self.ignore
    }

    /// Sets which relative paths a tool (the first argument) must not show when it finds them: files that look secret,
    /// and what the policy denies to that tool.
    pub fn set_unreadable(&mut self, unreadable: Unreadable) {
        self.unreadable = Some(unreadable);
    }

    /// Whether a tool may show a relative path that it found in a search.
    pub fn may_search(&self, tool: &str, path: &str) -> bool {
        let unreadable = self.unreadable.as_ref();
        !self.is_hidden(path) && unreadable.is_none_or(|unreadable| !unreadable(tool, path))
    }

    /// Resolves a path, absolute or relative to the root. `.`, `..` and links are resolved one component at a time, as
    /// the kernel does; components that do not exist are resolved lexically. A path that cannot be resolved (a loop of
    /// links, a NUL, a directory that cannot be searched) counts as outside, where nothing is allowed.
    pub fn locate(&self, asked: &str) -> ResolvedPath {
        let place = |path: String, inside: bool, found: PathStatus| ResolvedPath {
            asked: asked.to_owned(),
            path,
            inside,
            found,
        };
        let Some((path, found)) = resolve(&self.root, asked) else {
            let letters = lexical(&self.root.join(asked));
            return place(letters.to_string_lossy().into_owned(), false, PathStatus::Nothing);
        };
        match path.strip_prefix(&self.root) {
            Ok(inside) => {
                let inside = inside.to_string_lossy().into_owned();
                let found = if self.is_hidden(&inside) {
                    PathStatus::Nothing
                } else {
                    found
                };
                place(inside, true, found)
            }
            Err(_) => place(path.to_string_lossy().into_owned(), false, found),
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`FsError::Outside`], [`FsError::Missing`] (also for what is hidden), or what keeps it from being opened.
    pub fn open_file(&self, place: &ResolvedPath) -> Result<File, FsError> {
        self.dir.file(self.visible(place)?)
    }

    /// Reads a regular file of at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Workspace::open_file`]; [`FsError::TooLarge`].
    pub fn read(&self, place: &ResolvedPath, limit: u64) -> Result<Vec<u8>, FsError> {
        self.dir.read(self.visible(place)?, limit)
    }

    /// The entries of a directory, sorted by bytes, at most `cap`; the second value is the number of further ones.
    ///
    /// # Errors
    /// As [`Workspace::open_file`]; [`FsError::NotADirectory`].
    pub fn list(&self, place: &ResolvedPath, cap: usize) -> Result<(Vec<DirEntry>, usize), FsError> {
        let path = self.visible(place)?;
        let (mut entries, rest) = self.dir.list(path, cap)?;
        entries.retain(|entry| !self.is_hidden(&join(path, &entry.name)));
        Ok((entries, rest))
    }

    /// Writes `bytes` atomically, see `DirHandle::write`. Returns whether the file is new.
    ///
    /// # Errors
    /// [`FsError::Outside`]; [`FsError::Denied`], also for what is hidden; or what keeps it from being written.
    pub fn write(&self, place: &ResolvedPath, bytes: &[u8]) -> Result<bool, FsError> {
        let path = match self.visible(place) {
            Err(FsError::Missing) => return Err(FsError::Denied),
            path => path?,
        };
        if path.is_empty() {
            return Err(FsError::Directory);
        }
        let _told = own_write(&self.root.join(path));
        let created = self.dir.write(path, bytes)?;
        self.note_read(path, bytes);
        Ok(created)
    }

    fn visible<'a>(&self, place: &'a ResolvedPath) -> Result<&'a str, FsError> {
        if !place.inside {
            return Err(FsError::Outside);
        }
        if self.is_hidden(&place.path) {
            return Err(FsError::Missing);
        }
        Ok(&place.path)
    }

    /// Records the content of a relative path that the model has seen.
    pub fn note_read(&self, path: &str, bytes: &[u8]) {
        let seen = Seen {
            digest: Sha256::digest(bytes).into(),
            commands: self.commands.load(Ordering::SeqCst),
        };
        lock(&self.seen).insert(path.to_owned(), seen);
    }

    /// Records that an edit, given by its digest, has changed a part of a file at a line. `bytes`: the file afterwards.
    pub fn note_edit(&self, path: &str, edit: String, bytes: &[u8], line: usize) {
        let last = LastEdit {
            edit,
            digest: Sha256::digest(bytes).into(),
            line,
        };
        lock(&self.edits).insert(path.to_owned(), last);
    }

    /// The line of the edit, if it is the one that left a file as `bytes`, which were just read.
    pub fn line_of_edit(&self, path: &str, edit: &str, bytes: &[u8]) -> Option<usize> {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let all = lock(&self.edits);
        let last = all.get(path).filter(|last| last.edit == edit && last.digest == digest);
        last.map(|last| last.line)
    }

    /// Notes that a command of the model that could write has started in the background, or has ended.
    pub fn note_command(&self, background: bool) {
        self.commands.fetch_add(1, Ordering::SeqCst);
        self.background.fetch_or(background, Ordering::SeqCst);
    }

    /// Whether `bytes`, which were just read, differ from what a tool last read or wrote, and who changed them. A path
    /// that no tool has touched counts as unchanged.
    pub fn changed_since(&self, path: &str, bytes: &[u8]) -> Changed {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let all = lock(&self.seen);
        match all.get(path).filter(|seen| seen.digest != digest) {
            None => Changed::No,
            Some(seen)
                if self.background.load(Ordering::SeqCst) || seen.commands < self.commands.load(Ordering::SeqCst) =>
            {
                Changed::ByCommand
            }
            Some(_) => Changed::ByOthers,
        }
    }
}

/// Whether `path` is `dir` or inside it; everything is inside `""`.
pub fn beneath(path: &str, dir: &str) -> bool {
    dir.is_empty()
        || path
            .strip_prefix(dir)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// `dir/name`, or `name` in the root.
pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

/// A path that prints on one line: control characters and bidirectional controls, which could forge lines of a result,
/// are escaped.
pub fn printable(name: &str) -> Cow<'_, str> {
    if !name.chars().any(is_deceptive) {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if is_deceptive(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a character is invisible, breaks a line or changes the text direction.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

enum PathComponent {
    Name(OsString),
    Up,
}

fn pieces(path: &Path) -> impl DoubleEndedIterator<Item = PathComponent> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathComponent::Name(name.to_owned())),
        Component::ParentDir => Some(PathComponent::Up),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

/// Resolves `asked` from `root`; `None` if the kernel could not resolve it either.
fn resolve(root: &Path, asked: &str) -> Option<(PathBuf, PathStatus)> {
    if asked.contains('\0') {
        return None;
    }
    let asked = Path::new(asked);
    let mut at = if asked.is_absolute() {
        PathBuf::from("/")
    } else {
        root.to_owned()
    };
    let mut todo: VecDeque<PathComponent> = pieces(asked).collect();
    let mut links = 0;
    while let Some(piece) = todo.pop_front() {
        let PathComponent::Name(name) = piece else {
            at.pop();
            continue;
        };
        let next = at.join(&name);
        match next.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                let target = std::fs::read_link(&next).ok()?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                for piece in pieces(&target).rev() {
                    todo.push_front(piece);
                }
            }
            Ok(_) => at = next,
            Err(error) if is_absent(&error) => at = next,
            Err(_) => return None,
        }
    }
    let found = match at.symlink_metadata() {
        Ok(meta) => found(&meta),
        Err(error) if is_absent(&error) => PathStatus::Nothing,
        Err(_) => return None,
    };
    Some((at, found))
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename
    )
}

fn found(meta: &Metadata) -> PathStatus {
    if meta.is_dir() {
        PathStatus::Dir
    } else if !meta.is_file() {
        PathStatus::Special
    } else if meta.nlink() > 1 {
        PathStatus::HardLinked
    } else {
        PathStatus::File
    }
}

#[cfg(test)]
mod tests;
