//! Paths as text, without the file system.

use std::path::{Component, Path, PathBuf};

/// Bytes of the longest path that Linux takes, including the NUL at its end.
pub const PATH_MAX: usize = 4096;

/// A path without `.` and `..`, computed lexically: links are not followed.
pub fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_taken_away_and_the_root_stays() {
        for (path, plain) in [
            ("/a/./b/../c", "/a/c"),
            ("/..", "/"),
            ("/a/../../b", "/b"),
            ("./a", "a"),
        ] {
            assert_eq!(lexical(Path::new(path)), Path::new(plain), "{path}");
        }
    }
}
