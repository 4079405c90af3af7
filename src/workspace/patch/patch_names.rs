//! Checks that a patch printed by git changes exactly the files that differ between the trees, and these by their names:
//! what is ruled on are the trees, what is delivered and applied is the text.

use super::patch_lines::{PatchLines, binary, hunk};
use super::raw_diff::{RawEntry, RawFile};
use super::trees::TreeChange;
use std::collections::BTreeSet;

/// What `git apply` may read between the name of a file and its first hunk, without the lines that name a file again.
const ATTRIBUTES: [&[u8]; 7] = [
    b"old mode ",
    b"new mode ",
    b"deleted file mode ",
    b"new file mode ",
    b"similarity index ",
    b"dissimilarity index ",
    b"index ",
];

/// Whether the entries and the patch are about these changes and nothing else.
///
/// # Errors
/// A sentence for people.
pub(super) fn check(entries: &[RawEntry<'_>], patch: &[u8], changes: &[TreeChange]) -> Result<(), String> {
    let wrong = |what: &str| format!("git diff-tree printed {what}, which is not what differs between the trees");
    let files = || {
        entries.iter().filter_map(|entry| match entry {
            RawEntry::File(file) => Some(file),
            RawEntry::Counts { .. } => None,
        })
    };
    let named: BTreeSet<&[u8]> = files().flat_map(|file| [file.from, file.to]).collect();
    let differ: BTreeSet<&[u8]> = changes.iter().map(|change| change.path.as_slice()).collect();
    if named != differ {
        return Err(wrong("the names of other files"));
    }
    let mut lines = PatchLines::of(patch);
    for file in files() {
        // A file becomes a link or the reverse: the patch deletes one and adds the other.
        let times = if file.status == b'T' { 2 } else { 1 };
        for _ in 0..times {
            section(&mut lines, file).ok_or_else(|| wrong("a patch of something else"))?;
        }
    }
    match lines.is_empty() {
        true => Ok(()),
        false => Err(wrong("more than a patch")),
    }
}

/// Reads the part of a patch that is about one file. `None` if it is about another one, or not as git writes it.
fn section(lines: &mut PatchLines<'_>, file: &RawFile<'_>) -> Option<()> {
    let (old, new) = (quoted(b"a/", file.from), quoted(b"b/", file.to));
    let begin = [
        b"diff --git ".as_slice(),
        old.as_slice(),
        b" ".as_slice(),
        new.as_slice(),
    ]
    .concat();
    if lines.next()? != begin {
        return None;
    }
    while let Some(line) = lines.peek() {
        if line.starts_with(b"diff --git ") {
            break;
        }
        lines.next()?;
        let names = |prefix: &[u8], name: &[u8]| {
            let rest = line.strip_prefix(prefix)?;
            // A tab ends a name with a space.
            let rest = rest.strip_suffix(b"\t").unwrap_or(rest);
            (rest == name).then_some(())
        };
        let null = b"/dev/null";
        if line.starts_with(b"@@ ") {
            hunk(lines, line)?;
        } else if line == b"GIT binary patch" {
            binary(lines)?;
        } else if line.starts_with(b"--- ") {
            names(b"--- ", &old).or_else(|| names(b"--- ", null))?;
        } else if line.starts_with(b"+++ ") {
            names(b"+++ ", &new).or_else(|| names(b"+++ ", null))?;
        } else if line.starts_with(b"rename ") {
            let from = names(b"rename from ", &quoted(b"", file.from));
            from.or_else(|| names(b"rename to ", &quoted(b"", file.to)))?;
        } else if !ATTRIBUTES.iter().any(|prefix| line.starts_with(prefix)) {
            return None;
        }
    }
    Some(())
}

/// A name as git prints it with `core.quotePath`.
fn quoted(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    if name.iter().all(is_plain) {
        return [prefix, name].concat();
    }
    let mut text = [b"\"".as_slice(), prefix].concat();
    for byte in name {
        match byte {
            0x07 => text.extend(b"\\a"),
            0x08 => text.extend(b"\\b"),
            b'\t' => text.extend(b"\\t"),
            b'\n' => text.extend(b"\\n"),
            0x0b => text.extend(b"\\v"),
            0x0c => text.extend(b"\\f"),
            b'\r' => text.extend(b"\\r"),
            b'"' => text.extend(b"\\\""),
            b'\\' => text.extend(b"\\\\"),
            byte if is_plain(byte) => text.push(*byte),
            byte => text.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    text.push(b'"');
    text
}

#[cfg(test)]
mod tests {
    use super::super::raw_diff;
    use super::TreeChange;

    const RAW: &[u8] = b":100644 100644 1 2 M\0src/a.rs\0:100644 100644 3 4 R090\0b c\0d\xc3\xa9\0:100644 120000 5 6 T\0t\x001\t1\tsrc/a.rs\x000\t0\t\0b c\0d\xc3\xa9\x001\t1\tt\0";
    const PATCH: &str = concat!(
        "diff --git a/src/a.rs b/src/a.rs\nindex 1..2 100644\n--- a/src/a.rs\n+++ b/src/a.rs\n",
        "@@ -1 +1,2 @@ fn x\n--- a/old\n+++ b/new\n+diff --git a/x b/x\n\\ No newline at end of file\n",
        "diff --git a/b c \"b/d\\303\\251\"\nsimilarity index 90%\nrename from b c\nrename to \"d\\303\\251\"\nindex 3..4 100644\n",
        "GIT binary patch\nliteral 1\nIcmZQz\n\nliteral 0\nHcmV?d00001\n\n",
        "diff --git a/t b/t\ndeleted file mode 100644\nindex 5..0\n--- a/t\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        "diff --git a/t b/t\nnew file mode 120000\nindex 0..6\n--- /dev/null\n+++ b/t\n@@ -0,0 +1 @@\n+x\n",
    );

    fn check(raw: &[u8], patch: &[u8], changes: &[TreeChange]) -> Result<(), String> {
        super::check(&raw_diff::read(raw).unwrap().0, patch, changes)
    }

    fn changes(names: &[&[u8]]) -> Vec<TreeChange> {
        let change = |name: &&[u8]| TreeChange {
            path: name.to_vec(),
            old: None,
            new: None,
        };
        names.iter().map(change).collect()
    }

    #[test]
    fn a_patch_of_other_files_is_refused() {
        let all: [&[u8]; 4] = [b"src/a.rs", b"b c", b"d\xc3\xa9", b"t"];
        assert_eq!(check(RAW, PATCH.as_bytes(), &changes(&all)), Ok(()));
        assert_eq!(check(b"", b"", &[]), Ok(()));
        let more: [&[u8]; 5] = [b"src/a.rs", b"b c", b"d\xc3\xa9", b"t", b"u"];
        for names in [&all[..3], &more[..]] {
            assert!(check(RAW, PATCH.as_bytes(), &changes(names)).is_err(), "{names:?}");
        }
        let git = "diff --git a/e b/e\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/e\n@@ -0,0 +1 @@\n+x\n";
        let plain = "--- /dev/null\n+++ b/e\n@@ -0,0 +1 @@\n+x\n";
        let end = "diff --git a/b c ";
        for other in [
            format!("{PATCH}{git}"),
            format!("{PATCH}{plain}"),
            format!("{PATCH}x\n"),
            format!("{PATCH}x"),
            format!("{git}{PATCH}"),
            format!("{plain}{PATCH}"),
            PATCH.replacen(end, &format!("{git}{end}"), 1),
            PATCH.replacen(end, &format!("{plain}{end}"), 1),
            PATCH.replacen("+++ b/src/a.rs", "+++ b/e", 1),
            PATCH.replacen("rename to \"d\\303\\251\"", "rename to e", 1),
            PATCH.replacen("a/src/a.rs b/src/a.rs", "a/e b/e", 1),
            PATCH.replacen("+1,2 @@", "+1 @@", 1),
            PATCH.replacen("\nliteral 0\n", "\nrename to e\nliteral 0\n", 1),
        ] {
            assert!(check(RAW, other.as_bytes(), &changes(&all)).is_err(), "{other}");
        }
    }
}
