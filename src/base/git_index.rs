//! Reads git's index, sets the `skip-worktree` bit of entries (git takes such a file as unchanged, whatever the tree holds
//! at its path), and takes entries out. The format is gitformat-index(5), versions 2 to 4.

use super::path::PATH_MAX;
use sha1_checked::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256};

const SIGNATURE: &[u8] = b"DIRC";
/// Bytes of signature, version and number of entries.
const HEADER: usize = 12;
/// Bytes of an entry before its object id: times, device, inode, mode, owner and size.
const STATUS: usize = 40;
/// Bytes of an object id and of the trailer: SHA-1 or SHA-256.
const HASHES: [usize; 2] = [20, 32];
/// The entry has a second field of flags.
const EXTENDED: u16 = 0x4000;
/// Bits of the merge stage.
const STAGE: u16 = 0x3000;
/// In the second field: git does not look at the file in the tree.
const SKIP_WORKTREE: u16 = 0x4000;
/// Extensions that say where the entries lie, which changes when they get longer; git does without them.
const OFFSETS: [&[u8]; 2] = [b"EOIE", b"IEOT"];
/// Extensions about all entries, which are wrong when one is missing; git makes them again.
const OF_ALL: [&[u8]; 3] = [b"TREE", b"UNTR", b"FSMN"];
/// The object whose id is that of an empty file.
const EMPTY_BLOB: &[u8] = b"blob 0\0";
/// The extension of a split index: most entries are in another file.
const LINK: &[u8] = b"link";

/// One entry of an index.
#[derive(Clone, Copy, Debug)]
pub struct IndexEntry<'a> {
    /// Its path, relative to the top of the tree.
    pub path: &'a [u8],
    /// Whether it has the bit.
    pub is_marked: bool,
    /// Whether it is one side of a merge conflict.
    pub in_conflict: bool,
    /// Whether its content is that of an empty file.
    pub is_empty: bool,
}

/// What to do with an entry.
///
/// The bit is the one that tells git not to look at the file in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextEntry {
    /// It has the bit.
    Marked,
    /// It does not have the bit.
    Unmarked,
    /// It is gone.
    Removed,
}

impl NextEntry {
    /// An entry with the bit or without it.
    pub fn marked_if(is_marked: bool) -> Self {
        match is_marked {
            true => Self::Marked,
            false => Self::Unmarked,
        }
    }
}

/// The bytes are no index of a known version.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAnIndex;

/// What was read and changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The new index; `None` if no entry changes.
    pub bytes: Option<Vec<u8>>,
    /// For a split index the name of the file with the other entries, beside the index.
    pub shared: Option<String>,
}

/// Makes of each entry what `next` says. The sides of a merge conflict become one entry if they get the bit.
///
/// # Errors
/// The bytes are no index.
pub fn change(bytes: &[u8], next: &mut dyn FnMut(IndexEntry<'_>) -> NextEntry) -> Result<Rewritten, NotAnIndex> {
    // Nothing in the file says how long its ids are. With the wrong length its parts do not end where they should.
    let as_it_is = |entry: IndexEntry<'_>| NextEntry::marked_if(entry.is_marked);
    let hash = HASHES
        .into_iter()
        .find(|hash| rewrite(bytes, *hash, &mut { as_it_is }).is_some());
    hash.and_then(|hash| rewrite(bytes, hash, next)).ok_or(NotAnIndex)
}

fn rewrite(bytes: &[u8], hash: usize, next: &mut dyn FnMut(IndexEntry<'_>) -> NextEntry) -> Option<Rewritten> {
    let end = bytes.len().checked_sub(hash)?;
    let version = number(bytes, 4)?;
    if !bytes.starts_with(SIGNATURE) || !(2..=4).contains(&version) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() + 64);
    out.extend_from_slice(bytes.get(..HEADER)?);
    let (mut at, mut name) = (HEADER, Vec::new());
    let (mut changes, mut extended, mut removes) = (false, false, false);
    let entries = number(bytes, 8)?;
    let mut count = entries;
    let mut resolved: Option<Vec<u8>> = None;
    let empty = match hash {
        20 => Sha1::digest(EMPTY_BLOB).to_vec(),
        _ => Sha256::digest(EMPTY_BLOB).to_vec(),
    };
    // The path of the last entry that was written.
    let mut written = Vec::new();
    for _ in 0..entries {
        let entry = Entry::read(bytes, (at, end), hash, version, &mut name)?;
        let in_conflict = entry.flags & STAGE != 0;
        let is_now = entry.more & SKIP_WORKTREE != 0;
        let becomes = next(IndexEntry {
            path: &name,
            is_marked: is_now,
            in_conflict,
            is_empty: entry.head.get(STATUS..)? == empty,
        });
        at = entry.end;
        if becomes == NextEntry::Removed {
            (changes, removes) = (true, true);
            count = count.checked_sub(1)?;
            continue;
        }
        let is_next = becomes == NextEntry::Marked;
        changes |= is_now != is_next;
        let more = match is_next {
            true => entry.more | SKIP_WORKTREE,
            false => entry.more & !SKIP_WORKTREE,
        };
        let flags = match is_next {
            true => entry.flags & !STAGE,
            false => entry.flags,
        };
        extended |= more != 0;
        // The other sides follow the first.
        if in_conflict && is_next && resolved.as_ref() == Some(&name) {
            count = count.checked_sub(1)?;
        } else {
            match removes && version == 4 {
                true => entry.write(&mut out, (flags, more), version, &relative(&written, &name)),
                false => entry.write(&mut out, (flags, more), version, entry.stored),
            }
            written.clone_from(&name);
            resolved = Some(name.clone()).filter(|_| in_conflict);
        }
    }
    let mut shared = None;
    while at < end {
        let size = usize::try_from(number(bytes, at + 4)?).ok()?;
        let next = at.checked_add(8)?.checked_add(size).filter(|next| *next <= end)?;
        let extension = bytes.get(at..next)?;
        if extension.starts_with(LINK) {
            let id = extension.get(8..8 + hash)?;
            shared = id
                .iter()
                .any(|byte| *byte != 0)
                .then(|| format!("sharedindex.{}", super::ids::hex(id)));
        }
        let is_wrong = removes && OF_ALL.iter().any(|name| extension.starts_with(name));
        if !is_wrong && !OFFSETS.iter().any(|name| extension.starts_with(name)) {
            out.extend_from_slice(extension);
        }
        at = next;
    }
    if !changes {
        return Some(Rewritten { bytes: None, shared });
    }
    out.get_mut(8..HEADER)?.copy_from_slice(&count.to_be_bytes());
    if version < 4 {
        let version: u32 = if extended { 3 } else { 2 };
        out.get_mut(4..8)?.copy_from_slice(&version.to_be_bytes());
    }
    let trailer = bytes.get(end..)?;
    match (trailer.iter().all(|byte| *byte == 0), hash) {
        // `index.skipHash`
        (true, _) => out.extend_from_slice(trailer),
        (false, 20) => {
            let digest = Sha1::digest(&out);
            out.extend_from_slice(&digest);
        }
        (false, _) => {
            let digest = Sha256::digest(&out);
            out.extend_from_slice(&digest);
        }
    }
    Some(Rewritten {
        bytes: Some(out),
        shared,
    })
}

/// One entry as it is in the file.
struct Entry<'a> {
    /// All before the flags.
    head: &'a [u8],
    flags: u16,
    /// The second field of flags; 0 without one.
    more: u16,
    /// The path as it is stored, in version 4 relative to that of the entry before, with its end.
    stored: &'a [u8],
    /// Where the next entry begins.
    end: usize,
}

impl<'a> Entry<'a> {
    /// `name` is the path of the entry before, and becomes that of this one.
    fn read(
        bytes: &'a [u8],
        (at, limit): (usize, usize),
        hash: usize,
        version: u32,
        name: &mut Vec<u8>,
    ) -> Option<Self> {
        let flags_at = at.checked_add(STATUS + hash)?;
        let head = bytes.get(at..flags_at)?;
        let flags = short(bytes, flags_at)?;
        let mut path_at = flags_at + 2;
        let mut more = 0;
        if flags & EXTENDED != 0 {
            more = short(bytes, path_at).filter(|_| version > 2)?;
            path_at += 2;
        }
        let mut text_at = path_at;
        if version == 4 {
            let (stripped, after) = variable(bytes, path_at)?;
            name.truncate(name.len().checked_sub(stripped)?);
            text_at = after;
        } else {
            name.clear();
        }
        let text = bytes.get(text_at..limit)?;
        let length = text.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(text.get(..length)?);
        // A small file could hold any number of longer ones.
        if version == 4 && name.len() > PATH_MAX {
            return None;
        }
        let nul = text_at + length;
        let end = match version {
            4 => nul + 1,
            _ => at + padded(nul - at),
        };
        Some(Self {
            head,
            flags,
            more,
            stored: bytes.get(path_at..nul)?,
            end: Some(end).filter(|end| *end <= limit)?,
        })
    }

    /// `stored`: its path as it is stored after the entry that was written before it.
    fn write(&self, out: &mut Vec<u8>, (flags, more): (u16, u16), version: u32, stored: &[u8]) {
        let start = out.len();
        out.extend_from_slice(self.head);
        let flags = match more {
            0 => flags & !EXTENDED,
            _ => flags | EXTENDED,
        };
        out.extend_from_slice(&flags.to_be_bytes());
        if more != 0 {
            out.extend_from_slice(&more.to_be_bytes());
        }
        out.extend_from_slice(stored);
        match version {
            4 => out.push(0),
            _ => out.resize(start + padded(out.len() - start), 0),
        }
    }
}

/// The length of an entry in versions 2 and 3: one to eight NUL bytes make it a multiple of 8.
fn padded(length: usize) -> usize {
    (length + 8) & !7
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(two.try_into().ok()?))
}

/// A number of variable length, as in the offsets of a pack (gitformat-pack(5)), and where it ends.
fn variable(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 127);
    while byte & 128 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 127);
    }
    Some((value, at + 1))
}

/// A path as version 4 stores it after this one: how many bytes of that are not at its beginning, and its other bytes.
fn relative(before: &[u8], path: &[u8]) -> Vec<u8> {
    let pairs = before.iter().zip(path);
    let common = pairs.take_while(|(one, other)| one == other).count();
    let mut rest = before.len() - common;
    // Bytes of the number, the last one first, as in [`variable`].
    let mut number = vec![low_bits(rest)];
    while rest > 127 {
        rest = (rest >> 7) - 1;
        number.push(128 | low_bits(rest));
    }
    number.reverse();
    number.extend(path.iter().skip(common));
    number
}

fn low_bits(number: usize) -> u8 {
    u8::try_from(number & 127).unwrap_or_default()
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "git makes and reads the indexes of these tests"
)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    fn mark(bytes: &[u8], is_marked: &mut dyn FnMut(IndexEntry<'_>) -> bool) -> Result<Rewritten, NotAnIndex> {
        change(bytes, &mut |entry| NextEntry::marked_if(is_marked(entry)))
    }

    fn git(dir: &Path, args: &[&str]) -> String {
        let done = Command::new("git")
            .args(["-c", "user.name=n", "-c", "user.email=e@example.org"])
            .args(args)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8(done.stdout).unwrap()
    }

    /// A repository whose index has this version, with files that share beginnings of names.
    fn repository(version: &str, format: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        git(top, &["init", "-q", &format!("--object-format={format}")]);
        for name in ["a", "dir/key.pem", "dir/key.pem.txt", "dir/other", "zzzzzzz"] {
            std::fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
            std::fs::write(top.join(name), format!("{name}\n")).unwrap();
        }
        git(top, &["add", "-A"]);
        git(top, &["commit", "-q", "-m", "x"]);
        git(
            top,
            &["update-index", "--index-version", version, "--force-write-index"],
        );
        dir
    }

    #[test]
    fn git_takes_marked_files_as_unchanged_until_the_mark_is_gone() {
        for (version, format) in [
            ("2", "sha1"),
            ("3", "sha1"),
            ("4", "sha1"),
            ("2", "sha256"),
            ("4", "sha256"),
        ] {
            let dir = repository(version, format);
            let (top, index) = (dir.path(), dir.path().join(".git/index"));
            std::fs::write(top.join("dir/key.pem"), "").unwrap();
            let before = std::fs::read(&index).unwrap();
            let mut names = Vec::new();
            let marked = mark(&before, &mut |entry| {
                names.push(String::from_utf8(entry.path.to_vec()).unwrap());
                entry.path == b"dir/key.pem"
            });
            let marked = marked.unwrap().bytes.unwrap();
            assert_eq!(names, ["a", "dir/key.pem", "dir/key.pem.txt", "dir/other", "zzzzzzz"]);
            std::fs::write(&index, &marked).unwrap();
            assert_eq!(git(top, &["status", "--porcelain"]), "", "version {version}, {format}");
            assert!(git(top, &["ls-files", "-t"]).contains("S dir/key.pem\n"));
            git(top, &["fsck"]);
            let back = mark(&std::fs::read(&index).unwrap(), &mut |_| false).unwrap();
            std::fs::write(&index, back.bytes.unwrap()).unwrap();
            assert_eq!(git(top, &["status", "--porcelain"]), " M dir/key.pem\n");
        }
    }

    #[test]
    fn a_path_of_version_4_has_a_limit() {
        for (length, is_read) in [(PATH_MAX, true), (PATH_MAX + 1, false)] {
            let entry = |name: &[u8]| [&[0; 60][..], &[0x0f, 0xff, 0], name, &[0]].concat();
            let bytes = [&b"DIRC\0\0\0\x04\0\0\0\x01"[..], &entry(&vec![b'a'; length]), &[0; 20]].concat();
            assert_eq!(mark(&bytes, &mut |_| false).is_ok(), is_read, "{length}");
        }
    }

    #[test]
    fn an_entry_of_an_empty_file_is_taken_out() {
        for (version, format) in [("2", "sha1"), ("4", "sha1"), ("2", "sha256"), ("4", "sha256")] {
            let dir = repository(version, format);
            let (top, index) = (dir.path(), dir.path().join(".git/index"));
            let long = format!("dir/{}/a", "k".repeat(200));
            for name in ["dir/key", long.as_str(), "empty"] {
                std::fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
                std::fs::write(top.join(name), "").unwrap();
            }
            git(top, &["config", "core.untrackedCache", "true"]);
            git(top, &["add", "-A"]);
            git(top, &["commit", "-q", "-m", "y"]);
            let mut empty = Vec::new();
            let taken = change(&std::fs::read(&index).unwrap(), &mut |entry| {
                if entry.is_empty {
                    empty.push(String::from_utf8(entry.path.to_vec()).unwrap());
                }
                match entry.is_empty && entry.path != b"empty" {
                    true => NextEntry::Removed,
                    false => NextEntry::marked_if(entry.is_marked),
                }
            });
            std::fs::write(&index, taken.unwrap().bytes.unwrap()).unwrap();
            assert_eq!(
                empty,
                ["dir/key", long.as_str(), "empty"],
                "version {version}, {format}"
            );
            assert_eq!(
                git(top, &["ls-files"]),
                "a\ndir/key.pem\ndir/key.pem.txt\ndir/other\nempty\nzzzzzzz\n"
            );
            let status = format!("D  dir/key\nD  {long}\n?? dir/key\n?? dir/{}/\n", "k".repeat(200));
            assert_eq!(
                git(top, &["status", "--porcelain"]),
                status,
                "version {version}, {format}"
            );
            git(top, &["fsck"]);
        }
    }

    #[test]
    fn paths_of_version_4_are_relative_to_the_one_before() {
        for (before, path) in [
            ("", "a"),
            ("abc", "abd"),
            (&*"x".repeat(40_000), "xy"),
            (&*"y".repeat(128), "z"),
        ] {
            let stored = relative(before.as_bytes(), path.as_bytes());
            let (stripped, after) = variable(&stored, 0).unwrap();
            let kept = before.get(..before.len() - stripped).unwrap();
            assert_eq!([kept.as_bytes(), &stored[after..]].concat(), path.as_bytes());
        }
    }

    #[test]
    fn the_sides_of_a_conflict_become_one_marked_entry() {
        for version in ["2", "4"] {
            let dir = repository(version, "sha1");
            let (top, index) = (dir.path(), dir.path().join(".git/index"));
            let id = git(top, &["rev-parse", "HEAD:a"]);
            let mode = |stage: u8| format!("100644 {} {stage}\tdir/key.pem\n", id.trim());
            let info = top.join("info");
            let sides = [1, 2, 3].map(mode).concat();
            std::fs::write(&info, format!("0 {}\tdir/key.pem\n{sides}", "0".repeat(40))).unwrap();
            let done = Command::new("git")
                .args(["update-index", "--index-info"])
                .stdin(std::fs::File::open(&info).unwrap())
                .current_dir(top)
                .status();
            assert!(done.unwrap().success());
            assert!(git(top, &["ls-files", "-u"]).contains("dir/key.pem"));
            let marked = mark(&std::fs::read(&index).unwrap(), &mut |entry| {
                entry.path == b"dir/key.pem"
            });
            std::fs::write(&index, marked.unwrap().bytes.unwrap()).unwrap();
            assert_eq!(git(top, &["ls-files", "-u"]), "");
            assert!(
                git(top, &["ls-files", "-t"]).contains("S dir/key.pem\nH dir/key.pem.txt\nH dir/other\nH zzzzzzz\n")
            );
            assert_eq!(git(top, &["diff"]), "");
        }
    }

    #[test]
    fn what_is_no_index_is_an_error_and_what_needs_no_change_has_none() {
        let dir = repository("2", "sha1");
        let bytes = std::fs::read(dir.path().join(".git/index")).unwrap();
        assert_eq!(mark(&bytes, &mut |entry| entry.is_marked).unwrap().bytes, None);
        for cut in [0, 11, 40, bytes.len() / 2, bytes.len() - 21] {
            assert_eq!(
                mark(&bytes[..cut], &mut |entry| entry.is_marked),
                Err(NotAnIndex),
                "{cut} bytes"
            );
        }
    }

    #[test]
    fn a_split_index_names_its_other_file() {
        let dir = repository("2", "sha1");
        git(dir.path(), &["update-index", "--split-index"]);
        let bytes = std::fs::read(dir.path().join(".git/index")).unwrap();
        let shared = mark(&bytes, &mut |entry| entry.is_marked).unwrap().shared.unwrap();
        assert!(dir.path().join(".git").join(shared).is_file());
    }
}
