//! Opens paths one component at a time where `openat2(2)` is refused: by a kernel before Linux 5.6 (ENOSYS), or by the
//! seccomp filter of a container (EPERM). Slower, with the same guarantees and errors.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, openat, readlinkat, statat};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// Upper limit for the links in one path: that of the kernel.
const MOST_LINKS: usize = 40;
/// Upper limit for the directories that are open at the same time.
const MOST_DIRS: usize = 256;

const ENTRY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = ENTRY.union(OFlags::DIRECTORY);

/// Whether an error of `openat2(2)` may mean that the call itself is refused.
pub(crate) fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

/// Opens `path` below `root` (`""` is `root`) as `openat2(2)` does with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`. A
/// path with `..` is refused.
pub(crate) fn without_links(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    let Some((last, parents)) = names.split_last() else {
        return openat(root, c".", flags, Mode::empty());
    };
    let mut at = openat(root, c".", DIRECTORY, Mode::empty())?;
    for name in parents {
        at = match openat(&at, *name, DIRECTORY, Mode::empty()) {
            // For a link the kernel says this too.
            Err(Errno::NOTDIR) if is_link(&at, name) => return Err(Errno::LOOP),
            next => next?,
        };
    }
    openat(&at, *last, flags | OFlags::NOFOLLOW, Mode::empty())
}

fn is_link(dir: &OwnedFd, name: &OsStr) -> bool {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|data| FileType::from_raw_mode(data.st_mode) == FileType::Symlink)
}

/// Opens an `O_PATH` handle as `openat2(2)` does with `RESOLVE_NO_MAGICLINKS`, links followed. All links of a `/proc` are
/// refused, also those that `openat2` would follow: what they lead to depends on who asks.
///
/// `from`: where a relative path starts. Without it, a path starts at `root` and leads nowhere above it, as with
/// `RESOLVE_IN_ROOT`. `follow`: whether a link as the last component is followed.
pub(crate) fn through_links(root: &OwnedFd, from: Option<OwnedFd>, path: &[u8], follow: bool) -> Result<OwnedFd> {
    let mut way = PathWalk {
        root,
        from,
        below: Vec::new(),
        names: Vec::new(),
    };
    way.add(path);
    let mut links = 0;
    while let Some(name) = way.names.pop() {
        if matches!(name.as_slice(), b"" | b"." | b"..") {
            // Fails where the path has led to a file.
            let here = openat(way.here(), c".", DIRECTORY, Mode::empty())?;
            if name == b".." {
                way.up(&here)?;
            }
            continue;
        }
        let entry = openat(way.here(), name.as_slice(), ENTRY, Mode::empty())?;
        let is_link = FileType::from_raw_mode(fstat(&entry)?.st_mode) == FileType::Symlink;
        if !is_link || (way.names.is_empty() && !follow) {
            if way.below.len() >= MOST_DIRS {
                return Err(Errno::NAMETOOLONG);
            }
            way.below.push(entry);
            continue;
        }
        links += 1;
        if links > MOST_LINKS || fstatfs(&entry)?.f_type == PROC_SUPER_MAGIC {
            return Err(Errno::LOOP);
        }
        way.add(readlinkat(&entry, c"", Vec::new())?.as_bytes());
    }
    match way.below.pop() {
        Some(entry) => Ok(entry),
        None => openat(way.here(), c".", ENTRY, Mode::empty()),
    }
}

/// How far a path has been followed.
struct PathWalk<'a> {
    root: &'a OwnedFd,
    /// Where it started; `None` for `root`.
    from: Option<OwnedFd>,
    /// What was opened since, each in the one before it.
    below: Vec<OwnedFd>,
    /// The components that are left, the next one last.
    names: Vec<Vec<u8>>,
}

impl PathWalk<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.below.last().or(self.from.as_ref()).unwrap_or(self.root).as_fd()
    }

    /// Continues with the components of `path`.
    fn add(&mut self, path: &[u8]) {
        if path.starts_with(b"/") {
            self.from = None;
            self.below.clear();
        }
        let names = path.split(|byte| *byte == b'/').rev();
        self.names.extend(names.map(<[u8]>::to_vec));
    }

    /// Goes to the directory above `here`, which is the current one.
    fn up(&mut self, here: &OwnedFd) -> Result<()> {
        if self.below.pop().is_none() && self.from.is_some() {
            self.from = Some(openat(here, c"..", DIRECTORY, Mode::empty())?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, ResolveFlags, open, openat2};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    /// A root with files, directories, links of all kinds, and something outside.
    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("root/a/b")).unwrap();
        std::fs::write(at("root/a/b/file"), "").unwrap();
        std::fs::write(at("outside"), "").unwrap();
        for (target, name) in [
            ("a", "root/dir"),
            ("a/b/file", "root/to-file"),
            ("/a/b", "root/absolute"),
            ("../../outside", "root/a/out"),
            ("nowhere", "root/dangling"),
            ("loop", "root/loop"),
            ("dir/b/", "root/slash"),
            ("../b/./file", "root/a/b/up"),
            ("/proc/self/exe", "root/magic"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        let root = open(at("root"), DIRECTORY, Mode::empty()).unwrap();
        (dir, root)
    }

    const PATHS: [&str; 26] = [
        "",
        ".",
        "a",
        "a/",
        "a/b/file",
        "a/b/file/",
        "a/b/file/.",
        "a/b/file/..",
        "a/./b//file",
        "a/../a/b",
        "..",
        "../outside",
        "a/../../../a",
        "none",
        "none/x",
        "a/b/file/x",
        "dir",
        "dir/",
        "dir/b/file",
        "dir/../a",
        "to-file",
        "absolute/file",
        "a/out",
        "dangling",
        "loop",
        "slash/up",
    ];

    /// The file that was opened, by its numbers, or the error.
    fn found(opened: Result<OwnedFd>) -> Result<(u64, u64)> {
        fstat(&opened?).map(|data| (data.st_dev, data.st_ino))
    }

    #[test]
    fn links_are_followed_as_the_kernel_does() {
        let (_dir, root) = tree();
        for path in PATHS.iter().filter(|path| !path.is_empty()) {
            let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            let by_kernel = openat2(&root, *path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside);
            let by_steps = through_links(&root, None, path.as_bytes(), true);
            assert_eq!(found(by_steps), found(by_kernel), "{path}");
            for (follow, flags) in [(true, OFlags::empty()), (false, OFlags::NOFOLLOW)] {
                let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
                let by_kernel = openat2(&root, *path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
                let top = open("/", DIRECTORY, Mode::empty()).unwrap();
                let by_steps = through_links(&top, Some(root.try_clone().unwrap()), path.as_bytes(), follow);
                assert_eq!(found(by_steps), found(by_kernel), "{path} {follow}");
            }
        }
        let top = open("/", DIRECTORY, Mode::empty()).unwrap();
        let magic = through_links(&top, Some(root.try_clone().unwrap()), b"magic", true);
        assert_eq!(found(magic), Err(Errno::LOOP));
        assert_eq!(
            found(through_links(&top, None, b"/proc/self/exe", true)),
            Err(Errno::LOOP)
        );
    }

    #[test]
    fn no_link_is_followed_below_a_directory() {
        let (_dir, root) = tree();
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for path in PATHS
            .iter()
            .filter(|path| !path.contains("..") && !path.contains("file/"))
        {
            for flags in [read, read | OFlags::DIRECTORY, ENTRY] {
                let whole = if path.is_empty() { "." } else { *path };
                let by_kernel = openat2(&root, whole.trim_end_matches('/'), flags, Mode::empty(), beneath);
                let by_steps = without_links(&root, Path::new(path), flags);
                assert_eq!(found(by_steps), found(by_kernel), "{path} {flags:?}");
            }
        }
        for path in ["..", "a/../a", "/a"] {
            let by_steps = without_links(&root, Path::new(OsStr::from_bytes(path.as_bytes())), read);
            assert_eq!(found(by_steps), Err(Errno::XDEV), "{path}");
        }
        let here = open(".", DIRECTORY, Mode::empty()).unwrap();
        assert_eq!(
            found(without_links(&here, Path::new(""), ENTRY)),
            found(openat(CWD, c".", ENTRY, Mode::empty()))
        );
    }
}
