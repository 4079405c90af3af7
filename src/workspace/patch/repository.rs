//! Finds the repository of a directory and reads git's files directly; runs git only where that is not enough.

use super::index::GitIndex;
use super::object::ObjectFormat;
use crate::base::ids::is_object_id;
use crate::process::is_git_dir;
use crate::process::own_git::{self, GitAccess};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Upper limit in bytes for a git file that is read whole.
const MOST_TEXT: u64 = 64 << 20;
/// Upper limit of repositories in each other.
const MOST_OWNERS: usize = 64;

/// Upper limit of names in a git directory that [`Repository::check`] looks at.
const MOST_NAMES: usize = 4096;
/// Directories of a git directory whose files git opens by their names, besides the objects. Looked at from the last to
/// the first: those that may be large are the first ones here.
const OPENED: [&str; 7] = [
    "logs",
    "refs",
    "worktrees",
    "objects/pack",
    "reftable",
    "objects/info",
    "info",
];

/// The directories of a repository.
#[derive(Clone, Debug)]
pub struct Repository {
    pub top: PathBuf,
    /// Git directory of this worktree: `index`, `HEAD`.
    pub git_dir: PathBuf,
    /// Git directory that all worktrees share: `objects`, `info`.
    pub common_dir: PathBuf,
}

/// The repository of a directory or a file, found without running git.
pub fn repository(workspace: &Path) -> Option<Repository> {
    for top in workspace.ancestors() {
        let dot_git = top.join(".git");
        let git_dir = if dot_git.is_dir() {
            dot_git
        } else {
            let Some(text) = text(&dot_git) else {
                continue;
            };
            top.join(text.strip_prefix("gitdir:")?.trim())
        };
        let common_dir = match text(&git_dir.join("commondir")) {
            Some(text) => git_dir.join(text.trim()),
            None => git_dir.clone(),
        };
        return Some(Repository {
            top: top.to_owned(),
            git_dir,
            common_dir,
        });
    }
    None
}

/// Whether an object directory is one of a partial clone, which leaves objects with its remote.
pub(super) fn is_partial(objects: &Path) -> bool {
    let packs = std::fs::read_dir(objects.join("pack")).into_iter().flatten();
    packs
        .filter_map(Result::ok)
        .any(|entry| entry.path().extension().is_some_and(|ending| ending == "promisor"))
}

/// What a person does about [`Repository::borrowed`]; `None` if nothing is borrowed.
pub fn borrowed_text(borrowed: &[String]) -> Option<String> {
    let first = borrowed.first()?;
    let more = match borrowed.len() {
        1 => String::new(),
        all => format!(" and {} more", all - 1),
    };
    Some(format!(
        "the repository borrows objects from {first}{more} (`objects/info/alternates`), which commands in the sandbox cannot read: \
         their git commands fail; make it whole with `git repack -a -d` and remove that file, or clone without `--shared` and \
         `--reference`"
    ))
}

/// Whether a repository around this directory tracks something in it, so that it may have come with a checkout.
pub fn is_in_a_checkout(dir: &Path) -> bool {
    let dir = real(dir);
    let at = |top: &Path| repository(top).filter(|found| found.top == top);
    dir.ancestors().filter_map(at).any(|found| found.tracks_below(&dir))
}

/// The git directory of a workspace, if it is outside the workspace: the workspace is a linked worktree (as for
/// isolated runs and jobs of a batch), or a subdirectory of its repository. Git commands do not work without it.
///
/// A tree can name any directory as its git directory, so that directory is accepted only if it names the tree in turn.
/// A repository at the user's `home` does not count.
pub fn outer_git_dir(workspace: &Path, home: &Path) -> Option<PathBuf> {
    let workspace = workspace.canonicalize().ok()?;
    let found = repository(&workspace)?;
    let pointer = found.top.join(".git");
    let common = found.common_dir.canonicalize().ok()?;
    if std::fs::symlink_metadata(&pointer).ok()?.is_dir() {
        let own = found.top != workspace && common == pointer && home.canonicalize().ok()? != found.top;
        return own.then_some(common);
    }
    let admin = found.git_dir.canonicalize().ok()?;
    let named = PathBuf::from(text(&admin.join("gitdir"))?.trim()).canonicalize().ok()?;
    let mutual = admin.parent() == Some(&common.join("worktrees")) && named == pointer;
    let is_one = || common.join("objects").is_dir() && is_git_dir(&common);
    (mutual && is_one() && !common.starts_with(&workspace)).then_some(common)
}

/// The repositories whose changes decide which repository this one is, from the inside out: a repository around it that
/// tracks it as a submodule, or one that keeps its git directory among those of its submodules. A clone that merely lies
/// in the tree of another repository has no owner.
pub fn owners(inner: &Repository) -> Vec<Repository> {
    let mut all: Vec<Repository> = Vec::new();
    let mut at = inner.clone();
    while all.len() < MOST_OWNERS
        && let Some(owner) = owner(&at)
        && owner.top != inner.top
        && all.iter().all(|known| known.top != owner.top)
    {
        all.push(owner.clone());
        at = owner;
    }
    all
}

fn owner(inner: &Repository) -> Option<Repository> {
    let common = real(&inner.common_dir);
    // The tree of a linked worktree may lie anywhere; its main worktree is the parent of the common directory.
    let main = common.parent().filter(|_| common.ends_with(".git"));
    let tops = [Some(real(&inner.top)), main.map(Path::to_path_buf)];
    tops.into_iter()
        .flatten()
        .find_map(|top| around(&top))
        .or_else(|| keeper(&common))
}

/// The repository around this tree that tracks it as a submodule.
fn around(top: &Path) -> Option<Repository> {
    let mut outer = top.ancestors().skip(1).filter_map(|dir| {
        let found = repository(dir)?;
        (found.top == dir).then_some(found)
    });
    outer.find(|outer| outer.tracks(top))
}

/// The repository whose `modules` directory has this git directory.
fn keeper(common: &Path) -> Option<Repository> {
    let mut above = common.ancestors().skip(1).filter(|dir| dir.ends_with("modules"));
    let git_dir = above
        .find_map(|modules| modules.parent().filter(|dir| is_git_dir(dir)))?
        .to_owned();
    let common_dir = match text(&git_dir.join("commondir")) {
        Some(text) => real(&git_dir.join(text.trim())),
        None => git_dir.clone(),
    };
    let of_worktree = text(&git_dir.join("gitdir")).and_then(|text| Some(Path::new(text.trim()).parent()?.to_owned()));
    let top = match git_dir.parent() {
        Some(parent) if git_dir.ends_with(".git") => parent.to_owned(),
        _ => of_worktree
            .or_else(|| Some(git_dir.join(set_worktree(&git_dir)?)))
            .unwrap_or_else(|| git_dir.clone()),
    };
    Some(Repository {
        top: real(&top),
        git_dir,
        common_dir,
    })
}

/// `core.worktree` of a git directory, as git writes it for a submodule.
fn set_worktree(git_dir: &Path) -> Option<String> {
    let config = text(&git_dir.join("config"))?;
    config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let is_set = key.trim().eq_ignore_ascii_case("worktree");
        is_set.then(|| value.trim().trim_matches('"').to_owned())
    })
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The repository of a directory as in [`repository`], or the directory itself if it is a bare repository.
pub fn repository_at(dir: &Path) -> Option<Repository> {
    // A git directory of a linked worktree is not bare, and without `refs` git takes none.
    let is_bare = dir.join("objects").is_dir() && dir.join("refs").is_dir() && is_git_dir(dir);
    if !is_bare {
        return repository(dir);
    }
    Some(Repository {
        top: dir.to_owned(),
        git_dir: dir.to_owned(),
        common_dir: dir.to_owned(),
    })
}

/// Whether a directory is itself a bare repository. Beside a `.git`, git does not take it for one.
pub fn is_bare(dir: &Path) -> bool {
    !dir.join(".git").exists() && repository_at(dir).is_some_and(|found| found.git_dir == dir)
}

/// The text of a regular file, cut after 64 MiB; does not wait for a named pipe.
pub fn text(path: &Path) -> Option<String> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST_TEXT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Refuses a directory with a file that is [`endless`]; adds its directories to `below`.
fn look(dir: &Path, left: &mut usize, mut below: Option<&mut Vec<PathBuf>>) -> Result<(), String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    for entry in entries.take(*left) {
        *left = left.saturating_sub(1);
        // Without a system call for each file.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_file() {
            continue;
        }
        if kind.is_dir() {
            if let Some(below) = &mut below {
                below.push(entry.path());
            }
            continue;
        }
        let path = entry.path();
        if let Some(what) = endless(&path) {
            return Err(format!(
                "{} is {what}, and git would wait for it: remove it, or work in a new clone of the repository",
                path.display()
            ));
        }
    }
    Ok(())
}

/// What a file is, if it is one that keeps whoever reads it waiting, or has no end.
fn endless(path: &Path) -> Option<&'static str> {
    // Through links, as git opens it.
    let data = std::fs::metadata(path).ok()?;
    let kind = data.file_type();
    let is_null = || std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == data.rdev());
    if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_block_device() || (kind.is_char_device() && !is_null()) {
        Some("a device")
    } else {
        None
    }
}

/// The commit of `HEAD`; `None` before the first commit.
///
/// # Errors
/// As [`Repository::check`], or git cannot be run.
pub async fn head(repository: &Repository) -> Result<Option<String>, String> {
    repository.check()?;
    if let Some(id) = branch_head(repository) {
        return Ok(Some(id));
    }
    let dir = repository.git_dir.to_string_lossy();
    let args = [
        "--git-dir",
        dir.as_ref(),
        "rev-parse",
        "--verify",
        "--quiet",
        "HEAD^{commit}",
    ];
    let printed = own_git::git(&args, &repository.top, &[], None, GitAccess::Read).await?;
    let id = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    Ok((printed.ok && !id.is_empty()).then_some(id))
}

/// The commit of a branch or a detached `HEAD`, read from git's files to save a process at every start. `None` if git
/// itself must be run (no commit yet, or another reference format).
fn branch_head(repository: &Repository) -> Option<String> {
    let id = |text: &str| {
        let text = text.trim();
        is_object_id(text).then(|| text.to_owned())
    };
    let head = text(&repository.git_dir.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return id(&head);
    };
    if !name.starts_with("refs/heads/") || name.split('/').any(|part| part == "..") {
        return None;
    }
    if let Some(text) = text(&repository.common_dir.join(name)) {
        return id(&text);
    }
    let packed = text(&repository.common_dir.join("packed-refs"))?;
    packed.lines().find_map(|line| {
        let (commit, at) = line.split_once(' ')?;
        (at == name).then(|| id(commit)).flatten()
    })
}

impl Repository {
    /// Refuses a repository with a named pipe or a device where git reads a file: git would wait for it. A repository
    /// with such a file was made by hand, for example in an archive. To be called before git is run on it.
    ///
    /// Loose objects are not looked at, and no more than a few thousand names: what is beyond them ends with the time limit
    /// of git or of the run.
    ///
    /// # Errors
    /// One sentence that names the file and says what to do.
    pub fn check(&self) -> Result<(), String> {
        let tops = match self.git_dir == self.common_dir {
            true => vec![&self.git_dir],
            false => vec![&self.git_dir, &self.common_dir],
        };
        let mut open: Vec<PathBuf> = OPENED
            .iter()
            .flat_map(|name| tops.iter().map(move |top| top.join(name)))
            .collect();
        let mut left = MOST_NAMES;
        for top in tops {
            look(top, &mut left, None)?;
        }
        while let Some(dir) = open.pop() {
            look(&dir, &mut left, Some(&mut open))?;
        }
        Ok(())
    }

    /// Whether exactly this path (real, and in the tree) is tracked: a directory that is tracked itself is a submodule.
    /// An index that cannot be read may track anything.
    pub fn tracks(&self, path: &Path) -> bool {
        self.has_entry(path, |entry, name| entry == name)
    }

    /// Whether this path (real, and in the tree) or anything below it is tracked. An index that cannot be read may track
    /// anything.
    pub fn tracks_below(&self, path: &Path) -> bool {
        self.has_entry(path, |entry, name| {
            entry
                .strip_prefix(name)
                .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        })
    }

    /// Whether an entry of the index that begins with the name of `path` is one that is meant.
    fn has_entry(&self, path: &Path, is_meant: impl Fn(&[u8], &[u8]) -> bool) -> bool {
        let Ok(below) = path.strip_prefix(real(&self.top)) else {
            return false;
        };
        let name = below.as_os_str().as_bytes();
        match GitIndex::of(&self.git_dir, self.format()) {
            Ok(Some(index)) => {
                let mut found = index.below(name, 0..index.len());
                !name.is_empty() && found.any(|at| is_meant(index.name(at), name))
            }
            Ok(None) => false,
            Err(_) => true,
        }
    }

    fn config(&self) -> String {
        text(&self.common_dir.join("config"))
            .unwrap_or_default()
            .to_ascii_lowercase()
    }

    pub(super) fn format(&self) -> ObjectFormat {
        match self.config().replace([' ', '\t'], "").contains("objectformat=sha256") {
            true => ObjectFormat::Sha256,
            false => ObjectFormat::Sha1,
        }
    }

    /// The boundary commits of a shallow clone, as in git's `shallow` file; `None` for a complete history.
    pub fn shallow(&self) -> Option<String> {
        text(&self.common_dir.join("shallow")).filter(|text| !text.trim().is_empty())
    }

    /// The object directories outside this repository's tree that it borrows from, as git's `alternates` file names them.
    /// Commands in a sandbox cannot read them.
    pub fn borrowed(&self) -> Vec<String> {
        let objects = self.objects();
        let listed = text(&objects.join("info/alternates")).unwrap_or_default();
        let lines = listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let outside = lines.filter(|line| !real(&objects.join(line)).starts_with(real(&self.top)));
        outside.map(str::to_owned).collect()
    }

    /// The object database's directory.
    pub fn objects(&self) -> PathBuf {
        let objects = self.common_dir.join("objects");
        std::fs::canonicalize(&objects).unwrap_or(objects)
    }

    /// Whether attributes or settings, of the repository or the user, can make a stored file differ from the one in the
    /// tree. `names`: whether the index has a `.gitattributes` file.
    pub(super) fn bytes_may_differ(&self, names: bool) -> bool {
        let own = self.config();
        let converts = ["autocrlf", "[filter", "eol", "attributesfile", "sparse", "[include"];
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let settings = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
        let users = [
            home.join(".gitconfig"),
            settings.join("git/config"),
            PathBuf::from("/etc/gitconfig"),
        ];
        let users: String = users.iter().filter_map(|path| text(path)).collect();
        let users = users.to_ascii_lowercase();
        names
            || converts.iter().any(|word| own.contains(word))
            || ["autocrlf", "eol", "attributesfile", "[include"]
                .iter()
                .any(|word| users.contains(word))
            || settings.join("git/attributes").exists()
            || Path::new("/etc/gitattributes").exists()
            || self.common_dir.join("info/attributes").exists()
            || self.top.join(".gitattributes").exists()
    }
}
