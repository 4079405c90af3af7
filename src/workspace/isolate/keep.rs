//! Brings untracked directories, such as dependencies and build results, into an isolated worktree: as clones if the
//! file system supports reflinks, else as an overlay in the sandbox, else as copies.

use super::STOPPED;
use crate::base::quote::{counted, first_names, yaml_word};
use crate::process::placed::Brought;
use crate::workspace::fs::DirHandle;
use crate::workspace::ignore_files::rules_of;
use crate::workspace::toolchains::is_cache;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Upper limit in bytes for one directory that must be copied.
const MOST_BYTES: u64 = 8 << 30;
/// Upper limit for the names in one directory.
const MOST_NAMES: u64 = 2_000_000;
/// Upper limit in bytes for the ignore file of a directory that may ignore itself.
const MOST_PATTERNS: u64 = 64 << 10;
/// Upper limit for the names in a warning.
const NAMED: usize = 8;
/// Usual directories of installed packages and of builds. A recipe for many projects names several of them, so it is no
/// mistake if a project lacks one.
const USUAL: [&str; 4] = ["node_modules", ".venv", "venv", "target"];
/// The bytes of a file that are copied before it is looked whether to stop.
const PIECE: u64 = 64 << 20;

/// The original tree of an isolated worktree, and what was brought from it.
#[derive(Clone, Debug, Default)]
pub struct BroughtFiles {
    /// The user's own tree, canonical.
    pub origin: PathBuf,
    pub brought: Vec<Brought>,
    /// What the worktree lacks, for the journal of a new run.
    pub warnings: Vec<String>,
}

/// A message for people.
#[derive(Debug, PartialEq, Eq)]
pub enum KeepMessage {
    Note(String),
    Warning(String),
}

/// Brings `keep`, paths relative to both trees, from `origin` to `tree`. `layers`: whether the sandbox supports an
/// overlay on the original. Blocks until it is done or `stop` is cancelled.
///
/// # Errors
/// A path contains a symbolic link or is not a directory, and has none of the usual names; a limit was reached, or it was
/// interrupted.
pub fn bring(
    origin: &Path,
    tree: &Path,
    keep: &[String],
    layers: bool,
    stop: &CancellationToken,
) -> Result<(BroughtFiles, Vec<KeepMessage>), String> {
    let origin = origin
        .canonicalize()
        .map_err(|error| format!("{}: {error}", origin.display()))?;
    let mut told = Vec::new();
    let mut brought = Vec::new();
    for path in keep {
        let path = relative(path)?;
        let (from, to) = (origin.join(&path), tree.join(&path));
        let name = path.display();
        let is_usual = USUAL.iter().any(|usual| path.ends_with(usual));
        let Ok(data) = std::fs::symlink_metadata(&from) else {
            if !is_usual {
                told.push(KeepMessage::Warning(format!(
                    "isolate.keep names {name}, which is not in {}",
                    origin.display()
                )));
            }
            continue;
        };
        let real = from.canonicalize().is_ok_and(|real| real == from);
        if !data.is_dir() || !real {
            if is_usual {
                told.push(KeepMessage::Warning(format!(
                    "isolate.keep names {name}, which is not a directory, or whose path contains a symbolic link: it is left out"
                )));
                continue;
            }
            return Err(format!(
                "isolate.keep: {name} is not a directory, or its path contains a symbolic link"
            ));
        }
        // A worktree that an earlier process left holds what its commands made.
        let is_link = |dir: &Path| std::fs::symlink_metadata(tree.join(dir)).is_ok_and(|data| data.is_symlink());
        if path.ancestors().skip(1).any(is_link) {
            told.push(KeepMessage::Warning(format!(
                "isolate.keep names {name}, whose path in the worktree leads through a symbolic link: it is left out"
            )));
            continue;
        }
        if std::fs::symlink_metadata(&to).is_ok() {
            told.push(KeepMessage::Warning(format!(
                "isolate.keep names {name}, which is in the commit: the worktree has the content of the commit"
            )));
            continue;
        }
        let begun = Instant::now();
        let (how, count) = one(&from, &to, layers, stop).map_err(|why| format!("isolate.keep: {name}: {why}"))?;
        let (size, more) = (size(count.bytes), if count.more { "more than " } else { "" });
        told.push(KeepMessage::Note(format!(
            "overnight: {name}: {more}{size} in {more}{}, {} in {:.1} s",
            counted(count.names, "file"),
            how.words(),
            begun.elapsed().as_secs_f64()
        )));
        let layered = how == How::Layered;
        brought.push(Brought { path, from, layered });
    }
    let missing = missing(&origin, tree);
    if !missing.is_empty() {
        told.push(KeepMessage::Warning(format!(
            "the worktree of --isolate has no {}, which git ignores: if checks need them, run a recipe file that names them, as \
             `isolate: {{ keep: [{}] }}` (`overnight recipe new` writes one, with `--from` a copy of a built-in one)",
            first_names(&missing, NAMED),
            yaml_word(&missing[0])
        )));
    }
    let files = BroughtFiles {
        origin,
        brought,
        warnings: Vec::new(),
    };
    Ok((files, told))
}

/// The path as it is below both trees.
///
/// # Errors
/// It leads out of the workspace, or to files of git or of this program.
pub(super) fn relative(path: &str) -> Result<PathBuf, String> {
    let path: PathBuf = Path::new(path)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let own = path
        .components()
        .any(|part| matches!(part.as_os_str().to_str(), Some(".git" | ".overnight")));
    match plain && !own && path.components().next().is_some() {
        true => Ok(path),
        false => Err(format!(
            "isolate.keep: {} is not a directory of the workspace",
            path.display()
        )),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Cloned,
    Layered,
    Copied,
}

impl How {
    fn words(self) -> &'static str {
        match self {
            How::Cloned => "cloned",
            How::Layered => "visible to commands under a private overlay",
            How::Copied => "copied",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    names: u64,
    bytes: u64,
    /// Whether counting stopped early.
    more: bool,
}

fn one(from: &Path, to: &Path, layers: bool, stop: &CancellationToken) -> Result<(How, Count), String> {
    let problem = |error: io::Error| error.to_string();
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(problem)?;
    }
    let clones = clones(from, to);
    if layers && !clones {
        std::fs::create_dir(to).map_err(problem)?;
        // An entry of `PATH` takes effect only if its directory exists.
        for name in ["bin", ".bin"] {
            if from.join(name).is_dir() {
                std::fs::create_dir(to.join(name)).map_err(problem)?;
            }
        }
        return Ok((How::Layered, count(from)));
    }
    let mut count = Count::default();
    match copy(from, to, clones, &mut count, stop) {
        Ok(()) => Ok((if clones { How::Cloned } else { How::Copied }, count)),
        Err(why) => {
            let _ = std::fs::remove_dir_all(to);
            Err(why)
        }
    }
}

/// Whether the two paths are on a file system with reflinks, tried with one file.
fn clones(from: &Path, to: &Path) -> bool {
    let Some(dir) = to.parent() else { return false };
    let mut left = vec![from.to_path_buf()];
    let mut looked = 0;
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            looked += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                Ok(kind) if kind.is_file() => {
                    let source = File::open(entry.path());
                    let target = tempfile::tempfile_in(dir);
                    return matches!((source, target), (Ok(source), Ok(target))
                        if rustix::fs::ioctl_ficlone(&target, &source).is_ok());
                }
                _ => {}
            }
            if looked > 10_000 {
                return false;
            }
        }
    }
    false
}

/// Copies a tree with modes and times; copies links as links, and skips special files.
fn copy(from: &Path, to: &Path, clone: bool, count: &mut Count, stop: &CancellationToken) -> Result<(), String> {
    let problem = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let data = std::fs::symlink_metadata(from).map_err(|error| problem(from, error))?;
    std::fs::create_dir(to).map_err(|error| problem(to, error))?;
    for entry in std::fs::read_dir(from).map_err(|error| problem(from, error))? {
        let entry = entry.map_err(|error| problem(from, error))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let data = entry.metadata().map_err(|error| problem(&source, error))?;
        if stop.is_cancelled() {
            return Err(STOPPED.to_owned());
        }
        count.names += 1;
        if count.names > MOST_NAMES {
            return Err(format!("more than {MOST_NAMES} files"));
        }
        if data.is_dir() {
            copy(&source, &target, clone, count, stop)?;
        } else if data.is_symlink() {
            let lead = std::fs::read_link(&source).map_err(|error| problem(&source, error))?;
            std::os::unix::fs::symlink(lead, &target).map_err(|error| problem(&target, error))?;
            times(&target, &data);
        } else if data.is_file() {
            count.bytes += data.len();
            if !clone && count.bytes > MOST_BYTES {
                return Err(format!(
                    "more than {} GiB would be copied; sandbox level `full` needs no copy",
                    MOST_BYTES >> 30
                ));
            }
            file(&source, &target, clone, stop).map_err(|error| problem(&source, error))?;
            let mode = std::fs::Permissions::from_mode(data.mode() & 0o777);
            std::fs::set_permissions(&target, mode).map_err(|error| problem(&target, error))?;
            times(&target, &data);
        }
    }
    let mode = std::fs::Permissions::from_mode(data.mode() & 0o777 | 0o700);
    std::fs::set_permissions(to, mode).map_err(|error| problem(to, error))?;
    times(to, &data);
    Ok(())
}

fn file(from: &Path, to: &Path, clone: bool, stop: &CancellationToken) -> io::Result<()> {
    let source = File::open(from)?;
    let mut target = File::options().write(true).create_new(true).open(to)?;
    if !clone || rustix::fs::ioctl_ficlone(&target, &source).is_err() {
        // In pieces, so that a large file does not keep a signal waiting.
        while io::copy(&mut (&source).take(PIECE), &mut target)? > 0 {
            if stop.is_cancelled() {
                return Err(io::Error::other(STOPPED));
            }
        }
    }
    Ok(())
}

/// Sets the times, because build tools compare them. A failure is harmless: something is built again.
fn times(path: &Path, data: &std::fs::Metadata) {
    let time = |seconds: i64, nanos: i64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    let times = Timestamps {
        last_access: time(data.atime(), data.atime_nsec()),
        last_modification: time(data.mtime(), data.mtime_nsec()),
    };
    let _ = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
}

/// Counts files and bytes below a directory; stops at 200,000 names.
fn count(dir: &Path) -> Count {
    let mut count = Count::default();
    let mut left = vec![dir.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            count.names += 1;
            if count.names >= 200_000 {
                count.more = true;
                return count;
            }
            match entry.metadata() {
                Ok(data) if data.is_dir() => left.push(entry.path()),
                Ok(data) => count.bytes += data.len(),
                Err(_) => {}
            }
        }
    }
    count
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Directories at the top of the original that git ignores and the worktree lacks, without caches: nothing needs these.
fn missing(origin: &Path, tree: &Path) -> Vec<String> {
    let Ok(handle) = DirHandle::open(origin) else {
        return Vec::new();
    };
    // If a file does not exist, is no regular file or has a bad pattern, fewer directories are ignored.
    let rules: Vec<_> = [".gitignore", ".git/info/exclude"]
        .into_iter()
        .filter_map(|path| rules_of(&handle, "", path).ok().flatten())
        .map(|(rules, _)| rules)
        .collect();
    let entries = std::fs::read_dir(origin).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = dirs.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| !matches!(name.as_str(), ".git" | ".overnight" | "__pycache__"))
        // Some tools mark virtual environments as caches, too.
        .filter(|name| !is_cache(&origin.join(name)) || origin.join(name).join("pyvenv.cfg").is_file())
        .filter(|name| std::fs::symlink_metadata(tree.join(name)).is_err())
        // A directory may also ignore itself with its own `.gitignore`.
        .filter(|name| {
            let decided = rules
                .iter()
                .map(|rules| rules.matched(name, true))
                .find(|found| !found.is_none());
            decided.is_some_and(|found| found.is_ignore())
                || handle
                    .read(&format!("{name}/.gitignore"), MOST_PATTERNS)
                    .is_ok_and(|text| text.trim_ascii() == b"*")
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees(files: &[&str]) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (origin, tree) = (root.join("origin"), root.join("tree"));
        std::fs::create_dir_all(&tree).unwrap();
        for file in files {
            let path = origin.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        (dir, origin, tree)
    }

    fn kept(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn copies_keep_modes_times_and_links() {
        let (_dir, origin, tree) = trees(&["target/debug/a", "web/node_modules/x/index.js"]);
        let file = origin.join("target/debug/a");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("debug/a", origin.join("target/link")).unwrap();
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000, 5))
            .unwrap();
        let (files, told) = bring(
            &origin,
            &tree,
            &kept(&["./target/", "web/node_modules"]),
            false,
            &CancellationToken::new(),
        )
        .unwrap();
        assert_eq!(files.brought.len(), 2);
        assert!(
            matches!(&told[0], KeepMessage::Note(text) if text.contains("target: ") && text.contains(" s")),
            "{told:?}"
        );
        let (was, is) = (
            file.metadata().unwrap(),
            tree.join("target/debug/a").metadata().unwrap(),
        );
        assert_eq!(
            (was.mode(), was.mtime_nsec(), was.mtime()),
            (is.mode(), is.mtime_nsec(), is.mtime())
        );
        assert_eq!(
            std::fs::read_link(tree.join("target/link")).unwrap(),
            Path::new("debug/a")
        );
        assert_eq!(
            std::fs::read_to_string(tree.join("web/node_modules/x/index.js")).unwrap(),
            "web/node_modules/x/index.js"
        );
    }

    #[test]
    fn nothing_is_brought_through_a_link_that_a_command_left() {
        for layers in [false, true] {
            let (dir, origin, tree) = trees(&["web/node_modules/x", "target/a"]);
            let outside = dir.path().join("outside");
            std::fs::create_dir(&outside).unwrap();
            std::os::unix::fs::symlink(&outside, tree.join("web")).unwrap();
            let names = kept(&["web/node_modules", "target"]);
            let (files, told) = bring(&origin, &tree, &names, layers, &CancellationToken::new()).unwrap();
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
            assert!(
                matches!(&told[0], KeepMessage::Warning(text) if text.contains("web/node_modules") && text.contains("symbolic link")),
                "{told:?}"
            );
            assert_eq!(files.brought.len(), 1);
        }
    }

    #[test]
    fn a_layer_leaves_a_place_to_mount_it_on() {
        let (_dir, origin, tree) = trees(&[".venv/bin/pytest", ".venv/lib/x.py"]);
        let (files, told) = bring(&origin, &tree, &kept(&[".venv"]), true, &CancellationToken::new()).unwrap();
        let brought = &files.brought[0];
        // With reflinks, no overlay is needed.
        if brought.layered {
            assert!(tree.join(".venv/bin").is_dir() && !tree.join(".venv/lib").exists());
            assert!(
                matches!(&told[0], KeepMessage::Note(text) if text.contains("2 files") || text.contains("4 files")),
                "{told:?}"
            );
        }
        assert_eq!(
            (&brought.from, brought.path.as_path()),
            (&origin.join(".venv"), Path::new(".venv"))
        );
    }

    #[test]
    fn nothing_outside_comes_along_and_nothing_of_git() {
        let (_dir, origin, tree) = trees(&["a/b", "../outside/secret"]);
        std::os::unix::fs::symlink("../outside", origin.join("link")).unwrap();
        for name in ["../outside", "/etc", "link", ".git", "a/.git", "", "a/b", "link/.."] {
            assert!(
                bring(&origin, &tree, &kept(&[name]), false, &CancellationToken::new()).is_err(),
                "{name}"
            );
        }
        // What recipes for many projects name is left out.
        std::os::unix::fs::symlink("../outside", origin.join("venv")).unwrap();
        let (files, told) = bring(&origin, &tree, &kept(&["venv"]), false, &CancellationToken::new()).unwrap();
        assert!(files.brought.is_empty());
        assert!(
            matches!(&told[..], [KeepMessage::Warning(text)] if text.contains("venv") && text.contains("left out")),
            "{told:?}"
        );
        assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 0);
    }

    #[test]
    fn what_is_missing_is_named_once() {
        let (_dir, origin, tree) = trees(&[
            "node_modules/x",
            "target/y",
            ".venv/pyvenv.cfg",
            "plain/p",
            ".git/config",
        ]);
        for dir in [".venv", ".pytest_cache"] {
            std::fs::create_dir_all(origin.join(dir)).unwrap();
            std::fs::write(
                origin.join(dir).join("CACHEDIR.TAG"),
                "Signature: 8a477f597d28d172789f06886806bc55\n",
            )
            .unwrap();
        }
        std::fs::write(origin.join(".pytest_cache/.gitignore"), "*\n").unwrap();
        std::fs::write(origin.join(".gitignore"), "node_modules/\n/target\n").unwrap();
        std::fs::write(origin.join(".venv/.gitignore"), "*\n").unwrap();
        let (_, told) = bring(
            &origin,
            &tree,
            &kept(&["target", "gone", "venv", "web/node_modules"]),
            false,
            &CancellationToken::new(),
        )
        .unwrap();
        let warnings: Vec<_> = told
            .iter()
            .filter_map(|told| match told {
                KeepMessage::Warning(text) => Some(text.as_str()),
                KeepMessage::Note(_) => None,
            })
            .collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("names gone"), "{warnings:?}");
        assert!(
            warnings[1].contains("has no .venv, node_modules, which git ignores"),
            "{warnings:?}"
        );
    }
}
