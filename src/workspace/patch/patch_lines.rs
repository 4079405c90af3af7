//! Reads the text of a patch as git writes it, line by line: the hunks of text files, the contents of binary ones. Counts
//! the line ends in them that git does not count.

/// The lines of a patch, without their ends.
pub(super) struct PatchLines<'a> {
    rest: &'a [u8],
}

impl<'a> PatchLines<'a> {
    pub(super) fn of(patch: &'a [u8]) -> Self {
        Self { rest: patch }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next line; `None` at the end, and if its end is missing.
    pub(super) fn peek(&self) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\n', self.rest)?;
        self.rest.get(..end)
    }

    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.peek()?;
        self.rest = self.rest.get(line.len() + 1..)?;
        Some(line)
    }
}

/// Number of added and removed lines in a patch that end in CR alone. Git sees no line end there, but languages do:
/// a file with no other ends is one line to git. `None` if the patch is not as git writes it.
pub fn cr_lines(patch: &[u8]) -> Option<u64> {
    let mut lines = PatchLines::of(patch);
    let mut count = 0;
    while !lines.is_empty() {
        let line = lines.next()?;
        if line.starts_with(b"@@ ") {
            count += hunk(&mut lines, line)?;
        } else if line == b"GIT binary patch" {
            binary(&mut lines)?;
        }
    }
    Some(count)
}

/// Reads the lines of a hunk, whose number its header tells, and counts the line ends in added and removed ones that git
/// does not count.
pub(super) fn hunk(lines: &mut PatchLines<'_>, header: &[u8]) -> Option<u64> {
    let mut words = header.split(|byte| *byte == b' ').skip(1);
    let mut count = |sign: u8| -> Option<u64> {
        let range = std::str::from_utf8(words.next()?.strip_prefix(&[sign])?).ok()?;
        match range.split_once(',') {
            Some((_, count)) => count.parse().ok(),
            None => Some(1),
        }
    };
    let (mut old, mut new) = (count(b'-')?, count(b'+')?);
    let mut uncounted = 0;
    while old > 0 || new > 0 {
        let (sign, line) = lines.next()?.split_first()?;
        match sign {
            b' ' => (old, new) = (old.checked_sub(1)?, new.checked_sub(1)?),
            b'-' => old = old.checked_sub(1)?,
            b'+' => new = new.checked_sub(1)?,
            // "No newline at end of file".
            b'\\' => {}
            _ => return None,
        }
        if matches!(sign, b'-' | b'+') {
            uncounted += ends_within(line);
        }
    }
    if lines.peek().is_some_and(|line| line.starts_with(b"\\")) {
        lines.next()?;
    }
    Some(uncounted)
}

/// Number of CR within a line that LF ended. One that is its last byte belongs to CR LF, or ends a last line without LF,
/// which git counts.
fn ends_within(line: &[u8]) -> u64 {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    memchr::memchr_iter(b'\r', line).count() as u64
}

/// Skips the contents of a binary file: each ends with an empty line.
pub(super) fn binary(lines: &mut PatchLines<'_>) -> Option<()> {
    let begins = |line: &[u8]| line.starts_with(b"literal ") || line.starts_with(b"delta ");
    while lines.peek().is_some_and(begins) {
        while !lines.next()?.is_empty() {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cr_alone_ends_a_line() {
        for (hunk, count) in [
            ("@@ -1 +1 @@\n-x\n+y\n", 0),
            ("@@ -1 +1,2 @@\n-x\r\n+y\r\n+z\r\n", 0),
            ("@@ -1 +1 @@\n-x\n+1\r2\r3\n", 2),
            ("@@ -1 +1 @@\n-1\r2\n+1\r2\r\r\n", 3),
            ("@@ -0,0 +1 @@\n+1\r2\r3\r\n\\ No newline at end of file\n", 2),
            ("@@ -1,2 +1,2 @@ fn a\rb\n c\rd\n-x\n+y\n", 0),
            ("@@ -0,0 +1 @@\n+@@ -1 +1 @@\r\r\n@@ -9 +10,0 @@\n-a\rb\n", 2),
            ("GIT binary patch\nliteral 1\nIcmZQz\n\nliteral 0\nHcmV?d00001\n\n", 0),
            ("", 0),
        ] {
            let file = |name: &str| {
                format!("diff --git a/{name} b/{name}\nindex 1..2 100644\n--- a/{name}\n+++ b/{name}\n{hunk}")
            };
            assert_eq!(cr_lines(file("a").as_bytes()), Some(count), "{hunk}");
            let two = file("a") + &file("b");
            assert_eq!(cr_lines(two.as_bytes()), Some(2 * count), "{hunk}");
        }
        for wrong in ["@@ -1 +1 @@\n-x\n", "@@ -1 +1 @@\n-x\n-x\n", "@@ 1 @@\n", "x"] {
            assert_eq!(cr_lines(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
