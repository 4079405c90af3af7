//! Whether a directory of the file system is a git directory.

use crate::base::git_dir;
use std::path::Path;

/// Like [`git_dir::is_git_dir`], for a directory of the file system. A directory that cannot be searched does not
/// count.
#[must_use]
pub fn is_git_dir(dir: &Path) -> bool {
    git_dir::is_git_dir(|name| dir.join(name).symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::is_git_dir;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_that_leads_nowhere_is_a_head() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_git_dir(dir.path()));
        std::fs::create_dir(dir.path().join("objects")).unwrap();
        assert!(!is_git_dir(dir.path()));
        symlink("refs/heads/main", dir.path().join("HEAD")).unwrap();
        assert!(is_git_dir(dir.path()));
    }
}
