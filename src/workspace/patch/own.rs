//! Trees path by path: which paths differ, and a tree without what others than the run changed. Decides nothing about whose a
//! change is.

use super::{Shadow, Snapshot};
use std::collections::BTreeSet;

/// An index beside the one that follows the tree.
const INDEX: &str = "index.own";

/// One path that differs between two trees.
struct Entry {
    path: String,
    /// Mode and id in the second tree; mode `000000` where it is not there.
    mode: String,
    id: String,
}

impl Shadow {
    /// The paths that differ, from the top of the repository. Those that are not UTF-8 are left out.
    pub async fn changed_paths(&self, from: &Snapshot, to: &Snapshot) -> Result<BTreeSet<String>, String> {
        Ok(self
            .entries(from, to)
            .await?
            .into_iter()
            .map(|entry| entry.path)
            .collect())
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
            let mut words = record.split(' ').skip(1);
            let (Some(mode), Some(_), Some(id)) = (words.next(), words.next(), words.next()) else {
                return Err(format!("git diff-tree said `{record}`"));
            };
            if let Ok(path) = str::from_utf8(path) {
                entries.push(Entry {
                    path: path.to_owned(),
                    mode: mode.to_owned(),
                    id: id.to_owned(),
                });
            }
        }
        Ok(entries)
    }
}
