//! Reads what `git diff-tree -z --raw --numstat` prints, and separates it from the patch that `-p` adds. The only reader
//! of this format: output that git does not write so is not read at all.

/// One entry of the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RawEntry<'a> {
    /// `:mode mode id id STATUS\0path\0[path\0]`
    File(RawFile<'a>),
    /// `added\tremoved\tpath\0` or, for a renamed file, `added\tremoved\t\0from\0to\0`.
    Counts {
        /// Added and removed lines; `None` for a binary file.
        lines: Option<(u64, u64)>,
        /// The new path.
        path: &'a [u8],
    },
}

/// A changed file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RawFile<'a> {
    /// Before and after, in octal digits; zeros where there is no file.
    pub modes: [&'a [u8]; 2],
    /// Before and after, in hex digits; zeros where there is no file.
    pub ids: [&'a [u8]; 2],
    /// The letter of the change: `A`, `C`, `D`, `M`, `R` or `T`.
    pub status: u8,
    /// The old path.
    pub from: &'a [u8],
    /// The new path; equal to `from` if the file is neither renamed nor copied.
    pub to: &'a [u8],
}

impl RawFile<'_> {
    /// Whether the entry has two paths: the file is renamed or copied.
    pub(super) fn is_moved(&self) -> bool {
        has_two_paths(self.status)
    }
}

fn has_two_paths(status: u8) -> bool {
    matches!(status, b'R' | b'C')
}

/// The entries, and the patch after the empty field that follows them; `None` for the patch if there is no such field.
///
/// `None` if the output is not in this format or is incomplete.
pub(super) fn read(printed: &[u8]) -> Option<(Vec<RawEntry<'_>>, Option<&[u8]>)> {
    let mut entries = Vec::new();
    let mut rest = printed;
    while !rest.is_empty() {
        let head = field(&mut rest)?;
        if head.is_empty() {
            return Some((entries, Some(rest)));
        }
        entries.push(match head.strip_prefix(b":") {
            Some(record) => RawEntry::File(file(record, &mut rest)?),
            None => counts(head, &mut rest)?,
        });
    }
    Some((entries, None))
}

fn file<'a>(record: &'a [u8], rest: &mut &'a [u8]) -> Option<RawFile<'a>> {
    let mut words = record.split(|byte| *byte == b' ');
    let modes = [words.next()?, words.next()?];
    let ids = [words.next()?, words.next()?];
    let status = *words.next()?.first()?;
    if words.next().is_some() {
        return None;
    }
    let from = path(rest)?;
    let to = if has_two_paths(status) { path(rest)? } else { from };
    Some(RawFile {
        modes,
        ids,
        status,
        from,
        to,
    })
}

fn counts<'a>(head: &'a [u8], rest: &mut &'a [u8]) -> Option<RawEntry<'a>> {
    let mut words = head.splitn(3, |byte| *byte == b'\t');
    let lines = match (words.next()?, words.next()?) {
        (b"-", b"-") => None,
        (added, removed) => Some((number(added)?, number(removed)?)),
    };
    let named = words.next()?;
    let path = if named.is_empty() {
        path(rest)?;
        path(rest)?
    } else {
        named
    };
    Some(RawEntry::Counts { lines, path })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The next field, without the zero byte that ends it.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let all = *rest;
    let end = memchr::memchr(0, all)?;
    *rest = all.get(end + 1..)?;
    all.get(..end)
}

/// The next field, which is a path and therefore not empty, whatever else it looks like.
fn path<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    field(rest).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_look_like_records_or_counts_are_paths() {
        let printed = b":100644 100644 aa bb M\0:120000 x R\0:100644 100644 cc cc R100\x001\t1\t\0-\t-\tb\0\
            1\t2\t:120000 x R\x000\t0\t\x001\t1\t\0-\t-\tb\0\0diff\0";
        let (entries, patch) = read(printed).unwrap();
        let found: Vec<_> = entries
            .iter()
            .map(|entry| match entry {
                RawEntry::File(file) => (file.from, file.to, None),
                RawEntry::Counts { lines, path } => (*path, *path, *lines),
            })
            .collect();
        let (odd, old, new) = (b":120000 x R".as_slice(), b"1\t1\t".as_slice(), b"-\t-\tb".as_slice());
        assert_eq!(
            found,
            [
                (odd, odd, None),
                (old, new, None),
                (odd, odd, Some((1, 2))),
                (new, new, Some((0, 0))),
            ]
        );
        assert_eq!(patch, Some(b"diff\0".as_slice()));
    }

    #[test]
    fn output_that_git_does_not_write_is_not_read() {
        assert_eq!(read(b""), Some((Vec::new(), None)));
        for printed in [
            b"x\0".as_slice(),
            b"fatal: x\n",
            b":100644 100644 aa bb M\0",
            b":100644 100644 aa bb M\0a",
            b":100644 100644 aa bb\0a\0",
            b":100644 100644 aa bb M x\0a\0",
            b":100644 100644 aa aa R100\0a\0",
            b":100644 100644 aa aa R100\0a\0\0",
            b"1\t1\0",
            b"1\tx\ta\0",
            b"-\t1\ta\0",
            b"1\t1\t\0a\0",
        ] {
            assert_eq!(read(printed), None, "{}", String::from_utf8_lossy(printed));
        }
    }
}
