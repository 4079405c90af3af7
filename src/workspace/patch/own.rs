//! Trees path by path: which paths differ, whether one is a commit's, and one without what others than the run changed. Decides
//! nothing about whose a change is.

use super::{Shadow, Snapshot};
use std::collections::BTreeSet;
use std::path::Path;

/// An index beside the one that follows the tree.
const INDEX: &str = "index.own";

/// One path that differs between two trees.
struct Entry {
    path: String,
    /// Whether it was a link to another repository and is gone.
    opened: bool,
    /// Mode and id in the second tree; mode `000000` where it is not there.
    mode: String,
    id: String,
}

impl Shadow {
    /// Goes on in the directory that the store was moved to. Nothing may be at work in it.
    pub fn moved_to(&mut self, dir: &Path) {
        self.dir = dir.to_owned();
    }

    /// Takes away a store that a run left which was killed before its record began. Anything else of that name is no store of
    /// ours and is refused: a tree may bring a directory of that name with it.
    pub fn clear(dir: &Path) -> std::io::Result<()> {
        let found = match std::fs::symlink_metadata(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let ours = match std::fs::read(dir.join("HEAD")) {
            Ok(head) => head == super::HEAD,
            // Half made.
            Err(_) if found.is_dir() => std::fs::read_dir(dir)?.flatten().all(|entry| {
                let name = entry.file_name();
                ["config", "info", "objects", "refs"].iter().any(|known| name == *known)
            }),
            Err(_) => false,
        };
        match ours && found.is_dir() {
            true => std::fs::remove_dir_all(dir),
            false => Err(std::io::Error::other(format!(
                "{} is there already and is no store of ours",
                dir.display()
            ))),
        }
    }

    /// Whether `snapshot` is the tree of this commit. What lies in repositories inside the tree is not compared.
    pub async fn is_commit(&self, snapshot: &Snapshot, commit: &str) -> bool {
        let Ok(printed) = self.git(&["rev-parse", &format!("{commit}^{{tree}}")], None).await else {
            return false;
        };
        let tree = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
        let Ok(entries) = self.entries(&Snapshot { tree }, snapshot).await else {
            return false;
        };
        let links: Vec<&str> = entries
            .iter()
            .filter(|entry| entry.opened)
            .map(|entry| entry.path.as_str())
            .collect();
        let below = |path: &str| links.iter().any(|link| Path::new(path).starts_with(link));
        entries.iter().all(|entry| below(&entry.path))
    }

    /// The paths that differ, from the top of the repository. Those that are not UTF-8 are left out.
    pub async fn changed_paths(&self, from: &Snapshot, to: &Snapshot) -> Result<BTreeSet<String>, String> {
        Ok(self
            .entries(from, to)
            .await?
            .into_iter()
            .map(|entry| entry.path)
            .collect())
    }

    /// Those of `paths`, relative to the workspace, that git leaves out of every snapshot.
    pub async fn ignored(&self, paths: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
        // A file outside the tree would make git refuse to answer at all.
        let inside = paths.iter().filter(|path| Path::new(path).is_relative());
        let lines: String = inside.map(|path| format!("{}{path}\0", self.prefix)).collect();
        if lines.is_empty() {
            return Ok(BTreeSet::new());
        }
        let printed = self
            .git(&["check-ignore", "-z", "--stdin"], Some(lines.as_bytes()))
            .await?;
        let found = printed.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let local = |path: &[u8]| {
            let path = String::from_utf8_lossy(path).into_owned();
            path.strip_prefix(&self.prefix).map(str::to_owned).unwrap_or(path)
        };
        Ok(found.map(local).collect())
    }

    /// The tree `now` with `paths` as they are in `base`.
    pub async fn without(&self, now: &Snapshot, base: &Snapshot, paths: &BTreeSet<String>) -> Result<Snapshot, String> {
        let mut lines = Vec::new();
        for entry in self.entries(now, base).await? {
            if !paths.contains(&entry.path) {
                continue;
            }
            lines.extend_from_slice(format!("{} {}\t{}\0", entry.mode, entry.id, entry.path).as_bytes());
        }
        let index = [(
            "GIT_INDEX_FILE".to_owned(),
            self.dir.join(INDEX).to_string_lossy().into_owned(),
        )];
        let mut tree = String::new();
        let steps: [(&[&str], Option<&[u8]>); 3] = [
            (&["read-tree", &now.tree], None),
            (&["update-index", "-z", "--index-info"], Some(&lines)),
            (&["write-tree"], None),
        ];
        for (args, stdin) in steps {
            let printed = self.git_with(args, &index, stdin).await?;
            if !printed.ok {
                return Err(format!("git {}: {}", args.join(" "), printed.stderr));
            }
            tree = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
        }
        Ok(Snapshot { tree })
    }

    /// Reads `-z --raw`: records `:mode mode id id STATUS\0path\0`.
    async fn entries(&self, from: &Snapshot, to: &Snapshot) -> Result<Vec<Entry>, String> {
        if from == to {
            return Ok(Vec::new());
        }
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", &from.tree, &to.tree];
        let printed = self.git(&args, None).await?;
        if !printed.ok {
            return Err(format!("git diff-tree: {}", printed.stderr));
        }
        let mut fields = printed.stdout.split(|byte| *byte == 0);
        let mut entries = Vec::new();
        while let (Some(record), Some(path)) = (fields.next(), fields.next()) {
            let record = String::from_utf8_lossy(record);
            let mut words = record.split(' ');
            let (Some(old), Some(mode), Some(_), Some(id)) = (words.next(), words.next(), words.next(), words.next())
            else {
                return Err(format!("git diff-tree said `{record}`"));
            };
            if let Ok(path) = str::from_utf8(path) {
                entries.push(Entry {
                    path: path.to_owned(),
                    opened: old == ":160000" && mode == "000000",
                    mode: mode.to_owned(),
                    id: id.to_owned(),
                });
            }
        }
        Ok(entries)
    }
}
