//! The root of the tree and the only way from a name to a place in it. Decides what is visible, not what is allowed.

use super::fs::{Dir, Entry, FsError};
use crate::base::access::{Found, Place};
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
use std::sync::{Mutex, PoisonError};

/// Links followed before a path counts as a loop, as in Linux.
const MAX_LINKS: usize = 40;

/// The directory of run directories; never visible to a tool.
const OWN_DIR: &str = ".overnight";

type Unreadable = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The tree that a run works on.
///
/// Set up once (`hide`, `set_unreadable`, `set_ignore`), then shared. Files are opened through the root's handle, so
/// that the place which was judged is the place which is opened.
pub struct Workspace {
    root: PathBuf,
    dir: Dir,
    hidden: Vec<String>,
    ignore: Vec<String>,
    unreadable: Option<Unreadable>,
    seen: Mutex<HashMap<String, Seen>>,
    /// Commands of the model that could write so far.
    commands: AtomicU64,
    /// Whether one of them may still run.
    background: AtomicBool,
}

/// What a tool has last seen of a file, and how many commands had run by then.
struct Seen {
    digest: [u8; 32],
    commands: u64,
}

/// Who changed a file since a tool saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    No,
    /// Commands of the model could write in between, so that it was probably one of them.
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
    /// Opens an existing directory. Errors name neither it nor anything above it.
    pub fn open(path: &Path) -> Result<Self, FsError> {
        let root = path.canonicalize()?;
        Ok(Self {
            dir: Dir::open(&root)?,
            root,
            hidden: vec![OWN_DIR.to_owned()],
            ignore: Vec::new(),
            unreadable: None,
            seen: Mutex::new(HashMap::new()),
            commands: AtomicU64::new(0),
            background: AtomicBool::new(false),
        })
    }

    /// The canonical path of the root. Never shown to the model.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a directory of ours (`--out` inside the tree) invisible. Absolute, or relative to the root; a path
    /// outside changes nothing. The root itself cannot be hidden.
    pub fn hide(&mut self, path: &Path) {
        let place = self.locate(&path.to_string_lossy());
        if place.inside && !place.path.is_empty() {
            self.hidden.push(place.path);
        }
    }

    /// Whether a relative path is, or lies in, a directory of ours.
    pub fn is_hidden(&self, path: &str) -> bool {
        self.hidden.iter().any(|hidden| {
            path.strip_prefix(hidden.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    pub(super) fn hidden_names(&self) -> &[String] {
        &self.hidden
    }

    /// Patterns of the recipe in `.gitignore` form, relative to the root: left out of every walk.
    pub fn set_ignore(&mut self, patterns: Vec<String>) {
        self.ignore = patterns;
    }

    /// The recipe's own ignore patterns.
    pub fn ignore(&self) -> &[String] {
        &self.ignore
    }

    /// Which relative paths a search must not open: secret-like files and what the policy denies.
    pub fn set_unreadable(&mut self, unreadable: Box<dyn Fn(&str) -> bool + Send + Sync>) {
        self.unreadable = Some(unreadable);
    }

    /// Whether a search may show the content of a relative path.
    pub fn may_search(&self, path: &str) -> bool {
        !self.is_hidden(path) && self.unreadable.as_ref().is_none_or(|unreadable| !unreadable(path))
    }

    /// Where a path leads: absolute, or relative to the root; `.`, `..` and links are resolved one component after
    /// the other, as the kernel does. What does not exist is resolved by its letters. A path that cannot be resolved
    /// (a loop of links, a NUL, a directory that may not be looked into) counts as outside: nothing is allowed there.
    pub fn locate(&self, asked: &str) -> Place {
        let place = |path: String, inside: bool, found: Found| Place {
            asked: asked.to_owned(),
            path,
            inside,
            found,
        };
        let Some((path, found)) = resolve(&self.root, asked) else {
            let letters = by_letters(&self.root.join(asked));
            return place(letters.to_string_lossy().into_owned(), false, Found::Nothing);
        };
        match path.strip_prefix(&self.root) {
            Ok(inside) => {
                let inside = inside.to_string_lossy().into_owned();
                let found = if self.is_hidden(&inside) { Found::Nothing } else { found };
                place(inside, true, found)
            }
            Err(_) => place(path.to_string_lossy().into_owned(), false, found),
        }
    }

    /// Opens a located regular file for reading.
    pub fn open_file(&self, place: &Place) -> Result<File, FsError> {
        self.dir.file(self.visible(place)?)
    }

    /// The bytes of a located regular file of at most `limit` bytes.
    pub fn read(&self, place: &Place, limit: u64) -> Result<Vec<u8>, FsError> {
        self.dir.read(self.visible(place)?, limit)
    }

    /// The names in a located directory in byte order, at most `cap`; the second value counts the rest.
    pub fn list(&self, place: &Place, cap: usize) -> Result<(Vec<Entry>, usize), FsError> {
        let path = self.visible(place)?;
        let (mut entries, rest) = self.dir.list(path, cap)?;
        entries.retain(|entry| !self.is_hidden(&join(path, &entry.name)));
        Ok((entries, rest))
    }

    /// Puts `bytes` at a located place, all or nothing; see `Dir::write`. Gives whether the file is new.
    pub fn write(&self, place: &Place, bytes: &[u8]) -> Result<bool, FsError> {
        let path = match self.visible(place) {
            Err(FsError::Missing) => return Err(FsError::Denied),
            path => path?,
        };
        if path.is_empty() {
            return Err(FsError::Directory);
        }
        let created = self.dir.write(path, bytes)?;
        self.note_read(path, bytes);
        Ok(created)
    }

    fn visible<'a>(&self, place: &'a Place) -> Result<&'a str, FsError> {
        if !place.inside {
            return Err(FsError::Outside);
        }
        if self.is_hidden(&place.path) {
            return Err(FsError::Missing);
        }
        Ok(&place.path)
    }

    /// Remembers what the model has seen of a relative path.
    pub fn note_read(&self, path: &str, bytes: &[u8]) {
        let seen = Seen {
            digest: Sha256::digest(bytes).into(),
            commands: self.commands.load(Ordering::SeqCst),
        };
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path.to_owned(), seen);
    }

    /// A command of the model that could write has begun in the background, or has ended.
    pub fn note_command(&self, background: bool) {
        self.commands.fetch_add(1, Ordering::SeqCst);
        self.background.fetch_or(background, Ordering::SeqCst);
    }

    /// Whether `bytes`, read just now, differ from what was last read or written by a tool, and through whom. A path that no tool
    /// has touched has not changed.
    pub fn changed_since(&self, path: &str, bytes: &[u8]) -> Changed {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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

/// `dir/name`, or `name` in the root.
pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

/// A name or path on one line: control and direction-changing characters, which could forge lines of a result, as
/// escapes.
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

/// Whether a character is invisible, breaks a line or turns the direction of reading.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

enum Piece {
    Name(OsString),
    Up,
}

fn pieces(path: &Path) -> impl DoubleEndedIterator<Item = Piece> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(Piece::Name(name.to_owned())),
        Component::ParentDir => Some(Piece::Up),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

/// An absolute path without `.` and `..`, links not looked at.
fn by_letters(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for piece in pieces(path) {
        match piece {
            Piece::Name(name) => out.push(name),
            Piece::Up => {
                out.pop();
            }
        }
    }
    out
}

/// Walks `asked` from `root`; `None` when the kernel could not either.
fn resolve(root: &Path, asked: &str) -> Option<(PathBuf, Found)> {
    if asked.contains('\0') {
        return None;
    }
    let asked = Path::new(asked);
    let mut at = if asked.is_absolute() {
        PathBuf::from("/")
    } else {
        root.to_owned()
    };
    let mut todo: VecDeque<Piece> = pieces(asked).collect();
    let mut links = 0;
    while let Some(piece) = todo.pop_front() {
        let Piece::Name(name) = piece else {
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
        Err(error) if is_absent(&error) => Found::Nothing,
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

fn found(meta: &Metadata) -> Found {
    if meta.is_dir() {
        Found::Dir
    } else if !meta.is_file() {
        Found::Special
    } else if meta.nlink() > 1 {
        Found::HardLinked
    } else {
        Found::File
    }
}

/// The absolute path without links, as far as it exists: what git, commands and comparisons with the tree are given,
/// since each of them may stand in another directory than we do.
pub fn settled(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for there in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (there.canonicalize(), path.strip_prefix(there)) {
            return if rest.as_os_str().is_empty() {
                real
            } else {
                real.join(rest)
            };
        }
    }
    path
}

#[cfg(test)]
mod tests;
