//! Where this program finds the programs that it starts for itself and outside the sandbox (git and what git starts,
//! `sh`): in the directories of `PATH` in which neither a command of a run nor the author of a tree can put a program.

use crate::base::access::package_dir;
use crate::base::sync::lock;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// A directory that has no files.
const NOWHERE: &str = "/dev/null";
/// Directories in which a path can lead each process somewhere else.
const CHANGING: [&str; 2] = ["/proc", "/dev"];
/// Upper limit for links on one path, as in the kernel (path_resolution(7)).
const LINKS: usize = 40;
/// Upper limit of the programs that [`left_out`] names.
const MOST_NAMED: usize = 8;

/// Trees whose content commands or other people write, canonical.
static TREES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// `PATH`, examined when the first program is started: before anything runs that could change what is found.
static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();

/// One directory of `PATH`.
#[derive(Debug)]
struct Entry {
    dir: PathBuf,
    /// The directory as it is in `PATH`, each link that leads to it, and its real path. A process that can write one of
    /// these decides which program is found.
    places: Vec<PathBuf>,
    /// Why no program is taken from it, independently of the trees of [`exclude_tree`].
    unfit: Option<String>,
}

/// Excludes this tree and the rest of its repository from the search for programs. Call it before anything runs in the
/// tree, and before git reads it. If the home directory is a repository (for settings), only the tree itself is
/// excluded.
pub fn exclude_tree(tree: &Path) {
    let home = home();
    let declared = declared(tree, &exempt(home.as_deref()));
    let mut trees = lock(&TREES);
    for tree in declared {
        if !trees.contains(&tree) {
            trees.push(tree);
        }
    }
}

/// The work tree that this tree is in, and the tree itself.
fn declared(tree: &Path, exempt: &[PathBuf]) -> Vec<PathBuf> {
    let tree = settled(tree);
    let mut all: Vec<PathBuf> = work_tree(&tree, exempt).map(Path::to_path_buf).into_iter().collect();
    all.push(tree);
    all
}

/// `PATH` without relative directories, those of a project's packages, those in a git work tree, and those in a tree of
/// [`exclude_tree`], whether they exist yet or not. A home directory that is a repository (for settings) does not count as
/// a work tree, and neither does `/`.
///
/// If another program looks something up in it (git: `ssh` and helpers), only the directory has been checked: a link in
/// one of these directories may lead into a tree.
#[must_use]
pub fn own_path() -> OsString {
    let trees = trees();
    let entries = entries().iter();
    joined(entries.filter(|entry| entry.refusal(&trees).is_none()))
}

/// A program that this program starts for itself, from a directory of [`own_path`], which is also its `PATH`. One that
/// is a link into a tree of [`exclude_tree`] is rejected.
#[must_use]
pub fn command(program: &str) -> Command {
    // If the program is missing, it must not be searched anywhere else.
    let file = located(program).unwrap_or_else(|| Path::new(NOWHERE).join(program));
    let mut command = Command::new(file);
    command.arg0(program).env("PATH", own_path());
    command
}

/// Whether a directory of [`own_path`] has this program, as [`command`] takes it.
#[must_use]
pub fn has(program: &str) -> bool {
    located(program).is_some()
}

/// A message about the programs of this name that are in `PATH` but not used, with the reasons. `None` if there are
/// none.
#[must_use]
pub fn left_out(program: &str) -> Option<String> {
    not_taken(program, entries(), &trees())
}

fn not_taken(program: &str, entries: &[Entry], trees: &[PathBuf]) -> Option<String> {
    let named = entries.iter().filter_map(|entry| {
        let file = entry.dir.join(program);
        let why = entry.refusal(trees).or_else(|| leads_into(&file, trees))?;
        is_program(&file).then(|| format!("{} is not used, because {why}", file.display()))
    });
    let named: Vec<String> = named.take(MOST_NAMED).collect();
    (!named.is_empty()).then(|| named.join("; "))
}

fn located(program: &str) -> Option<PathBuf> {
    taken(program, entries(), &trees())
}

fn taken(program: &str, entries: &[Entry], trees: &[PathBuf]) -> Option<PathBuf> {
    let usable = entries.iter().filter(|entry| entry.refusal(trees).is_none());
    usable
        .map(|entry| entry.dir.join(program))
        .find(|file| is_program(file) && leads_into(file, trees).is_none())
}

/// Why a file in an accepted directory is not used: its links lead through a tree, and a process that can write that
/// tree decides what is run.
fn leads_into(file: &Path, trees: &[PathBuf]) -> Option<String> {
    let Some(way) = way(file, true) else {
        return Some("where it leads cannot be determined".to_owned());
    };
    if let Some(place) = way.iter().find(|place| is_changing(place)) {
        return Some(format!(
            "it leads through {}, which is not the same for every process",
            place.display()
        ));
    }
    let holds = |tree: &&PathBuf| way.iter().any(|place| place.starts_with(tree));
    let tree = trees.iter().find(holds)?;
    Some(format!("it leads into the tree {}", tree.display()))
}

/// Whether this is a file that this program may execute.
#[must_use]
pub fn is_program(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The trees of [`exclude_tree`], canonical.
#[must_use]
pub fn trees() -> Vec<PathBuf> {
    lock(&TREES).clone()
}

fn entries() -> &'static [Entry] {
    ENTRIES.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        examined(&path, home().as_deref())
    })
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

fn examined(path: &OsStr, home: Option<&Path>) -> Vec<Entry> {
    let exempt = exempt(home);
    std::env::split_paths(path).map(|dir| Entry::of(dir, &exempt)).collect()
}

/// Directories whose `.git` says nothing about what is below them: the home, in which people keep their settings with
/// git, and `/`.
fn exempt(home: Option<&Path>) -> Vec<PathBuf> {
    let home = home.filter(|home| home.is_absolute());
    let real = home.and_then(|home| home.canonicalize().ok());
    let mut exempt = vec![PathBuf::from("/")];
    exempt.extend(home.map(Path::to_path_buf));
    exempt.extend(real);
    exempt
}

impl Entry {
    fn of(dir: PathBuf, exempt: &[PathBuf]) -> Self {
        let unfit = |dir: PathBuf, why: String| Self {
            dir,
            places: Vec::new(),
            unfit: Some(why),
        };
        if !dir.is_absolute() {
            let why = format!("`{}` in PATH is not an absolute path", dir.display());
            return unfit(dir, why);
        }
        let Some(mut places) = way(&dir, false) else {
            let why = format!("where {} leads cannot be determined", dir.display());
            return unfit(dir, why);
        };
        if !places.contains(&dir) {
            places.push(dir.clone());
        }
        let changing = places.iter().find(|place| is_changing(place));
        // Whether the project has a `.git` or not, and even where it is the home.
        let of_project = places.iter().find_map(|place| package_dir(place));
        let top = places.iter().find_map(|place| work_tree(place, exempt));
        let why = if let Some(place) = changing {
            Some(format!("{} is not the same for every process", place.display()))
        } else if let Some(name) = of_project {
            Some(format!("a `{name}` belongs to a project"))
        } else {
            top.map(|top| format!("it is in the git work tree {}", top.display()))
        };
        Self {
            dir,
            places,
            unfit: why,
        }
    }

    /// Why no program is taken from it.
    fn refusal(&self, trees: &[PathBuf]) -> Option<String> {
        let holds = |tree: &&PathBuf| self.places.iter().any(|place| place.starts_with(tree));
        self.unfit.clone().or_else(|| {
            let tree = trees.iter().find(holds)?;
            Some(format!("it is in the tree {}", tree.display()))
        })
    }
}

fn is_changing(place: &Path) -> bool {
    CHANGING.iter().any(|dir| place.starts_with(dir))
}

/// The innermost git work tree that a place is in, without these.
#[must_use]
pub fn work_tree<'a>(place: &'a Path, exempt: &[PathBuf]) -> Option<&'a Path> {
    let mut tops = place
        .ancestors()
        .filter(|top| !exempt.iter().any(|exempt| exempt == top));
    tops.find(|top| has_git_entry(top))
}

fn has_git_entry(dir: &Path) -> bool {
    // A directory, the file of a linked worktree or a submodule, or a link to either.
    dir.join(".git").symlink_metadata().is_ok()
}

fn joined<'a>(entries: impl Iterator<Item = &'a Entry>) -> OsString {
    // No directory contains the separator: they came from such a list.
    let path = std::env::join_paths(entries.map(|entry| &entry.dir)).unwrap_or_default();
    match path.is_empty() {
        // An empty `PATH` means the current directory, which may be that of a tree.
        true => OsString::from(NOWHERE),
        false => path,
    }
}

/// The real path of every link that is followed, and last of the file itself. `None` if the path cannot be resolved;
/// unless it `must_exist`, a name that does not exist yet is taken for a directory.
#[must_use]
pub fn way(path: &Path, must_exist: bool) -> Option<Vec<PathBuf>> {
    let mut left: VecDeque<OsString> = parts(&std::path::absolute(path).ok()?);
    let mut at = PathBuf::from("/");
    let mut passed = Vec::new();
    while let Some(part) = left.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let found = match next.symlink_metadata() {
            Ok(found) => found,
            Err(error) if !must_exist && error.kind() == std::io::ErrorKind::NotFound => {
                at = next;
                continue;
            }
            Err(_) => return None,
        };
        if !found.file_type().is_symlink() {
            at = next;
            continue;
        }
        let target = std::fs::read_link(&next).ok()?;
        passed.push(next);
        if passed.len() > LINKS {
            return None;
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for part in parts(&target).into_iter().rev() {
            left.push_front(part);
        }
    }
    passed.push(at);
    Some(passed)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let kept = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    kept.collect()
}

/// The absolute path with links resolved, as far as it exists. For comparisons, and for commands with another current
/// directory.
pub fn settled(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    let mut known = path.as_path();
    loop {
        if let Ok(found) = known.canonicalize() {
            return rest.iter().rev().fold(found, |path, part| path.join(part));
        }
        match (known.parent(), known.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name.to_owned());
                known = parent;
            }
            _ => return path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a `PATH` of these directories.
    fn kept(path: &[String], home: &Path, trees: &[PathBuf]) -> OsString {
        let entries = examined(OsStr::new(&path.join(":")), Some(home));
        joined(entries.iter().filter(|entry| entry.refusal(trees).is_none()))
    }

    #[test]
    fn a_tree_gives_no_programs() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("ws/.venv/bin")).unwrap();
        let link = |target: PathBuf, at: &str| std::os::unix::fs::symlink(target, top.join(at)).unwrap();
        link(top.join("ws/.venv"), "active");
        link(top.join("ws/chosen"), "through");
        std::fs::create_dir_all(top.join("out/bin")).unwrap();
        link(top.join("out"), "ws/chosen");
        let at = |path: &str| top.join(path).to_string_lossy().into_owned();
        let path = [
            at("ws/.venv/bin"),
            at("ws/node_modules/.bin"),
            at("active/bin"),
            at("active/not/yet"),
            // The tree decides where it leads.
            at("through/bin"),
            "relative".to_owned(),
            String::new(),
            at("wsx/bin"),
            "/usr/bin".to_owned(),
        ];
        let left = kept(&path, Path::new("/"), &[top.join("ws")]);
        assert_eq!(left, OsString::from(format!("{}:/usr/bin", at("wsx/bin"))));
    }

    #[test]
    fn a_work_tree_gives_none_whether_it_was_named_or_not() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        for dir in [
            "home/.git",
            "home/.local/bin",
            "home/clone/.git",
            "home/clone/a/bin",
            "linked/bin",
            "plain/bin",
        ] {
            std::fs::create_dir_all(top.join(dir)).unwrap();
        }
        std::fs::write(top.join("linked/.git"), "gitdir: /x\n").unwrap();
        std::os::unix::fs::symlink(top.join("home/clone/a"), top.join("home/link")).unwrap();
        let at = |path: &str| top.join(path).to_string_lossy().into_owned();
        let path = [
            at("home/clone/a/bin"),
            at("home/clone/not/yet"),
            at("home/link/bin"),
            at("linked/bin"),
            at("home/.local/bin"),
            at("plain/bin"),
        ];
        let home = top.join("home");
        let left = format!("{}:{}", at("home/.local/bin"), at("plain/bin"));
        assert_eq!(kept(&path, &home, &[]), OsString::from(left));
        // The home itself is the tree that is worked on.
        assert_eq!(
            kept(&path, &home, std::slice::from_ref(&home)),
            OsString::from(at("plain/bin"))
        );
        assert_eq!(kept(&path, Path::new("."), &[]), OsString::from(at("plain/bin")));
        // An empty `PATH` would be the current directory.
        assert_eq!(kept(&path[..1], &home, &[]), OsString::from(NOWHERE));
    }

    #[test]
    fn packages_of_a_project_and_paths_that_differ_by_process_give_none() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().canonicalize().unwrap();
        // The home is the checkout, as some services have it.
        for dir in [".git", ".venv/bin", "sub/node_modules/.bin", ".local/bin"] {
            std::fs::create_dir_all(home.join(dir)).unwrap();
        }
        std::os::unix::fs::symlink(home.join(".venv"), home.join("active")).unwrap();
        let at = |path: &str| home.join(path).to_string_lossy().into_owned();
        let path = [
            at(".venv/bin"),
            at("active/bin"),
            at("sub/node_modules/.bin"),
            "/proc/self/cwd/bin".to_owned(),
            "/dev/fd/3/bin".to_owned(),
            at(".local/bin"),
        ];
        assert_eq!(kept(&path, &home, &[]), OsString::from(at(".local/bin")));
    }

    #[test]
    fn the_rest_of_a_home_with_settings_stays_usable() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().canonicalize().unwrap();
        for dir in [".git", ".nix-profile/bin", "notes", "clone/.git", "clone/a"] {
            std::fs::create_dir_all(home.join(dir)).unwrap();
        }
        let trees = |tree: &str| declared(&home.join(tree), &exempt(Some(&home)));
        assert_eq!(trees("notes"), [home.join("notes")]);
        assert_eq!(trees("clone/a"), [home.join("clone"), home.join("clone/a")]);
        let bin = home.join(".nix-profile/bin").to_string_lossy().into_owned();
        let path = std::slice::from_ref(&bin);
        assert_eq!(kept(path, &home, &trees("notes")), OsString::from(&bin));
        // The home itself is the tree that is worked on.
        assert_eq!(declared(&home, &exempt(Some(&home))), std::slice::from_ref(&home));
        assert_eq!(kept(path, &home, std::slice::from_ref(&home)), OsString::from(NOWHERE));
    }

    #[test]
    fn a_link_into_a_tree_is_not_taken() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        for dir in ["first", "second", "ws/.git"] {
            std::fs::create_dir_all(top.join(dir)).unwrap();
        }
        for file in ["ws/git", "second/git"] {
            std::fs::write(top.join(file), "").unwrap();
            std::fs::set_permissions(top.join(file), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink(top.join("second/git"), top.join("ws/link")).unwrap();
        let path = std::env::join_paths([top.join("first"), top.join("second")]).unwrap();
        let entries = examined(&path, None);
        let trees = [top.join("ws")];
        // The last one leads out of the tree again, but the tree can change that.
        for target in ["ws/git", "ws/link"] {
            let _ = std::fs::remove_file(top.join("first/git"));
            symlink(top.join(target), top.join("first/git")).unwrap();
            assert_eq!(taken("git", &entries, &[]), Some(top.join("first/git")));
            assert_eq!(taken("git", &entries, &trees), Some(top.join("second/git")), "{target}");
            let told = not_taken("git", &entries, &trees).unwrap();
            let why = format!(
                "{} is not used, because it leads into the tree",
                top.join("first/git").display()
            );
            assert!(told.starts_with(&why), "{told}");
            assert_eq!(not_taken("git", &entries, &[]), None);
        }
    }
}
