//! Tests of what a write preserves, what a read refuses, and that the fallback without `openat2` opens the same files.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

#[test]
fn a_write_keeps_the_mode_and_drops_set_id() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tool");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)).unwrap();
    let door = DirHandle::open(dir.path()).unwrap();
    assert!(!door.write("tool", b"new").unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o751);
    assert!(door.write("new/dir/file", b"x").unwrap());
    assert_eq!(std::fs::read(dir.path().join("new/dir/file")).unwrap(), b"x");
}

#[test]
fn a_write_breaks_hard_links_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("one"), "old").unwrap();
    std::fs::hard_link(dir.path().join("one"), dir.path().join("two")).unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    symlink("one", dir.path().join("link")).unwrap();
    let door = DirHandle::open(dir.path()).unwrap();
    door.write("one", b"new").unwrap();
    assert_eq!(std::fs::read(dir.path().join("two")).unwrap(), b"old");
    assert!(matches!(door.write("sub", b""), Err(FsError::Directory)));
    assert!(matches!(door.write("link", b""), Err(FsError::Moved)));
    assert!(matches!(
        door.write("link/x", b""),
        Err(FsError::NotADirectory | FsError::Moved)
    ));
    assert!(matches!(door.write("", b""), Err(FsError::Directory)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
}

#[test]
fn only_regular_files_of_bounded_size_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    std::fs::write(dir.path().join("file"), "12345").unwrap();
    let door = DirHandle::open(dir.path()).unwrap();
    assert!(matches!(door.read("fifo", 10), Err(FsError::Special)));
    assert!(matches!(door.read("", 10), Err(FsError::Directory)));
    assert!(matches!(
        door.read("file", 4),
        Err(FsError::TooLarge { size: 5, limit: 4 })
    ));
    assert_eq!(door.read("file", 5).unwrap(), b"12345");
    for bad in ["../x", "./file", "/etc/passwd", "a//b", "a/../file"] {
        assert!(matches!(door.read(bad, 5), Err(FsError::Outside)), "{bad}");
    }
}

#[test]
fn the_slow_way_opens_what_the_fast_way_opens() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    std::fs::write(dir.path().join("a/b/file"), "x").unwrap();
    symlink("b", dir.path().join("a/link")).unwrap();
    symlink("file", dir.path().join("a/b/name")).unwrap();
    let door = DirHandle::open(dir.path()).unwrap();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for path in ["a/b/file", "a/link/file", "a/b/name", "a/b/none", "a/b/file/x", "a", ""] {
        let fast = beneath(door.handle.as_fd(), path, flags).map_err(|error| error.to_string());
        let slow = by_steps(door.handle.as_fd(), &names(path).unwrap(), flags).map_err(|error| error.to_string());
        assert_eq!(fast.as_ref().err(), slow.as_ref().err(), "{path}");
        assert_eq!(fast.is_ok(), slow.is_ok(), "{path}");
    }
}

#[test]
fn a_listing_is_sorted_and_capped() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b", "a", "B", ".c", ".overnight-tmp-1-1"] {
        std::fs::write(dir.path().join(name), "12").unwrap();
    }
    let door = DirHandle::open(dir.path()).unwrap();
    let (entries, rest) = door.list("", 3).unwrap();
    let names: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.size)).collect();
    assert_eq!(names, [(".c", 2), ("B", 2), ("a", 2)]);
    assert_eq!(rest, 1);
}

#[test]
fn a_full_disk_is_told_from_other_failures() {
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        assert!(matches!(FsError::from(errno), FsError::NoSpace));
    }
    assert!(matches!(FsError::from(Errno::ROFS), FsError::Denied));
    assert!(matches!(FsError::from(Errno::IO), FsError::Io(_)));
}
