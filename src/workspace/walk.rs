//! Walks the tree with its ignore files, with the same result on every machine.

use super::fs::TEMP_PREFIX;
use super::ignore_files::{IgnoreFiles, add_pattern};
use super::pattern::WorkspacePattern;
use super::root::{Workspace, beneath, join};
use crate::base::sync::lock;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, WalkBuilder, WalkState};
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use super::ignore_files::Filter;

/// The result of a walk.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Relative to the root, in byte order.
    pub files: Vec<String>,
    /// Whether there are more files than the limit, or the walk was stopped.
    pub cut: bool,
    /// Number of directories and names that could not be read.
    pub failed: usize,
}

impl Workspace {
    /// All regular files below a relative directory, at most `cap`; `stop` is polled. Links and special files are not
    /// included.
    pub fn files(&self, start: &str, filter: Filter, cap: usize, stop: &(dyn Fn() -> bool + Sync)) -> Walked {
        self.gather(start, filter, cap, &|_| true, stop)
    }

    /// Like [`Workspace::files`], for all files that match a pattern, without a limit.
    pub fn files_like(&self, pattern: &WorkspacePattern, filter: Filter, stop: &(dyn Fn() -> bool + Sync)) -> Walked {
        self.gather(
            &pattern.start.path,
            filter,
            usize::MAX,
            &|path| pattern.matches(path),
            stop,
        )
    }

    fn gather(
        &self,
        start: &str,
        filter: Filter,
        cap: usize,
        fits: &(dyn Fn(&str) -> bool + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Walked {
        let all = Mutex::new(Vec::new());
        let cut = AtomicBool::new(false);
        let failed = self.each_file(start, filter, &|| {
            let (all, cut) = (&all, &cut);
            Box::new(move |path| {
                let full = || {
                    cut.store(true, Ordering::Relaxed);
                    false
                };
                if stop() {
                    return full();
                }
                if !fits(path) {
                    return true;
                }
                let mut all = lock(all);
                if all.len() >= cap {
                    return full();
                }
                all.push(path.to_owned());
                true
            })
        });
        let mut files = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        files.sort_unstable();
        Walked {
            files,
            cut: cut.into_inner(),
            failed,
        }
    }

    /// Calls a visitor (one per thread) with each regular file below `start`, in no particular order; a visitor that
    /// returns `false` ends the walk. Returns the number of names that could not be read.
    ///
    /// The ignore files between the root and `start` apply. If `start` itself is ignored, it is walked anyway, because
    /// it was named explicitly.
    pub fn each_file<'v>(&self, start: &str, filter: Filter, visitors: &(dyn Fn() -> Visitor<'v> + Sync)) -> usize {
        if self.is_hidden(start) || start.split('/').any(|name| name == ".git") {
            return 0;
        }
        let (failed, reached) = self.walk("", start, filter, visitors);
        if reached || start.is_empty() {
            return failed;
        }
        self.walk(start, start, filter, visitors).0
    }

    /// A function that says which names of one directory (relative to the root) a walk would include, given the name
    /// and whether it is a directory. In a directory that is ignored itself, ignore files do not apply.
    pub fn visible_names<'a>(&'a self, dir: &'a str, filter: Filter) -> impl FnMut(&str, bool) -> bool + 'a {
        let files = IgnoreFiles::new(self.handle(), "", filter);
        let recipe = recipe_patterns(self);
        let all = files.hides(dir);
        move |name, is_dir| {
            let path = join(dir, name);
            name != ".git"
                && !self.is_hidden(&path)
                && (filter.hidden || !name.starts_with('.'))
                && !recipe.matched(&path, is_dir).is_ignore()
                && (all || !files.ignores(&path, is_dir))
        }
    }

    fn walk<'v>(
        &self,
        from: &str,
        start: &str,
        filter: Filter,
        visitors: &(dyn Fn() -> Visitor<'v> + Sync),
    ) -> (usize, bool) {
        let files = Arc::new(IgnoreFiles::new(self.handle(), from, filter));
        let failed = AtomicUsize::new(0);
        let reached = Arc::new(AtomicBool::new(false));
        let top = self.root().join(from);
        let builder = self.builder(&top, start, filter, Arc::clone(&files), Arc::clone(&reached));
        let walk = builder.build_parallel();
        walk.run(|| {
            let mut visit = visitors();
            let failed = &failed;
            Box::new(move |entry| {
                let Ok(entry) = entry else {
                    failed.fetch_add(1, Ordering::Relaxed);
                    return WalkState::Continue;
                };
                if !entry.file_type().is_some_and(|kind| kind.is_file()) {
                    return WalkState::Continue;
                }
                let Some(path) = relative(self.root(), &entry) else {
                    return WalkState::Continue;
                };
                if !beneath(&path, start) || visit(&path) {
                    WalkState::Continue
                } else {
                    WalkState::Quit
                }
            })
        });
        let reached = reached.load(Ordering::Relaxed);
        (failed.into_inner() + files.failed(), reached)
    }

    /// The library only walks. It would open ignore files by their paths and follow links, so they are read and matched
    /// here.
    fn builder(
        &self,
        top: &Path,
        start: &str,
        filter: Filter,
        files: Arc<IgnoreFiles>,
        reached: Arc<AtomicBool>,
    ) -> WalkBuilder {
        let mut builder = WalkBuilder::new(top);
        builder
            .standard_filters(false)
            .follow_links(false)
            .threads(std::thread::available_parallelism().map_or(1, usize::from).min(8));
        let root = self.root().to_owned();
        let start = start.to_owned();
        let hidden = self.hidden_names().to_vec();
        let recipe = recipe_patterns(self);
        builder.filter_entry(move |entry| {
            let Some(path) = relative(&root, entry) else {
                return false;
            };
            let dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            let on_the_way = dir && beneath(&start, &path);
            if !(on_the_way || beneath(&path, &start)) || files.ignores(&path, dir) {
                return false;
            }
            if *path == start {
                reached.store(true, Ordering::Relaxed);
            }
            let name = path.rsplit('/').next().unwrap_or_default();
            if name == ".git" || name.starts_with(TEMP_PREFIX) || hidden.iter().any(|hidden| *hidden == path) {
                return false;
            }
            if on_the_way {
                return true;
            }
            (filter.hidden || !name.starts_with('.')) && (recipe.is_empty() || !recipe.matched(&*path, dir).is_ignore())
        });
        builder
    }
}

/// Receives the path of a file, relative to the root; `false` ends the walk.
pub type Visitor<'v> = Box<dyn FnMut(&str) -> bool + Send + 'v>;

/// Compares bytes, which is fast; sufficient because a walk only appends names to its root.
fn relative<'e>(root: &Path, entry: &'e DirEntry) -> Option<Cow<'e, str>> {
    let below = entry
        .path()
        .as_os_str()
        .as_bytes()
        .strip_prefix(root.as_os_str().as_bytes())?;
    let path = match below.strip_prefix(b"/") {
        Some(path) => path,
        None if below.is_empty() || root.as_os_str() == "/" => below,
        None => return None,
    };
    Some(String::from_utf8_lossy(path))
}

fn recipe_patterns(workspace: &Workspace) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for pattern in workspace.ignore() {
        // An invalid pattern, or one beyond the limits, has no effect.
        let _within_limits = add_pattern(&mut builder, pattern);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests;
