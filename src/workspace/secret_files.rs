//! Finds secret files and all their hard links in the tree, by name and metadata only.

use super::Workspace;
use ignore::{DirEntry, WalkBuilder};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

impl Workspace {
    /// The regular files whose relative path is `secret`, and their hard links, as absolute paths sorted by bytes.
    /// Ignore files do not apply, links are not followed, and `.git` is skipped. `None` if there are more than `most`.
    pub fn unseen(&self, secret: &dyn Fn(&str) -> bool, most: usize) -> Option<Vec<PathBuf>> {
        let mut found = BTreeSet::new();
        let mut twins = BTreeSet::new();
        // Git must read its own configuration, but a hard link to it elsewhere counts as secret.
        if let Ok(data) = std::fs::symlink_metadata(self.root().join(".git/config"))
            && data.nlink() > 1
        {
            twins.insert((data.dev(), data.ino()));
        }
        for entry in self.plain_files() {
            let Ok(path) = entry.path().strip_prefix(self.root()) else {
                continue;
            };
            if !secret(&path.to_string_lossy()) {
                continue;
            }
            if let Ok(data) = entry.metadata()
                && data.nlink() > 1
            {
                twins.insert((data.dev(), data.ino()));
            }
            found.insert(entry.into_path());
            if found.len() > most {
                return None;
            }
        }
        if !twins.is_empty() {
            let same = |entry: &DirEntry| {
                let data = entry.metadata();
                data.is_ok_and(|data| data.nlink() > 1 && twins.contains(&(data.dev(), data.ino())))
            };
            found.extend(self.plain_files().filter(same).map(DirEntry::into_path));
        }
        (found.len() <= most).then(|| found.into_iter().collect())
    }

    fn plain_files(&self) -> impl Iterator<Item = DirEntry> {
        let mut builder = WalkBuilder::new(self.root());
        builder.standard_filters(false).follow_links(false);
        builder.filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
        let entries = builder.build().flatten();
        entries.filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_files_are_found_under_all_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("deep/.git")).unwrap();
        for name in [".env", "deep/.env", "deep/.git/.env", "plain"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::fs::write(at(".gitignore"), ".env\n").unwrap();
        std::fs::hard_link(at(".env"), at("deep/other")).unwrap();
        std::os::unix::fs::symlink("plain", at("link.env")).unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let secret = |path: &str| path.ends_with(".env");
        let found = workspace.unseen(&secret, 10).unwrap();
        let root = workspace.root();
        let wanted = [".env", "deep/.env", "deep/other"].map(|name| root.join(name));
        assert_eq!(found, wanted);
        assert_eq!(workspace.unseen(&secret, 1), None);
    }
}
