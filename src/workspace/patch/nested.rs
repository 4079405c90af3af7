//! Repositories inside the tree: submodules, vendored clones, `git init` in a directory. Git would see each as one link, and no
//! change within it; here they are plain directories. Leaves their own `.git` alone.

use super::Shadow;

/// Repositories within repositories that are looked into.
pub(super) const DEPTH: usize = 8;
/// The mode of a link, as it stands in the file of an index.
const LINK: [u8; 4] = 0o160_000_u32.to_be_bytes();
/// A name below a directory makes git take it for a plain one. The next `git add` finds no such file and drops it.
const SEED: &str = ".overnight-tmp-seed";

impl Shadow {
    /// Replaces links in the index by plain directories, which the next `git add` fills. `told`: what the last one said.
    /// Gives whether there were any.
    pub(super) async fn open_links(&self, told: &str) -> Result<bool, String> {
        let mut paths: Vec<Vec<u8>> = told.lines().filter_map(uncommitted).map(Vec::from).collect();
        let index = std::fs::read(self.dir.join("index")).unwrap_or_default();
        if memchr::memmem::find(&index, &LINK).is_some() {
            let listed = self.git(&["ls-files", "-s", "-z"], None).await?;
            paths.extend(listed.stdout.split(|byte| *byte == 0).filter_map(link).map(Vec::from));
        }
        paths.retain(|path| path.starts_with(self.prefix.as_bytes()));
        if paths.is_empty() {
            return Ok(false);
        }
        // Any id will do: it is gone before a tree is written.
        let id = "1".repeat(if self.uses_sha256() { 64 } else { 40 });
        let mut lines = Vec::new();
        for path in &paths {
            lines.extend_from_slice(format!("0 {id}\t").as_bytes());
            lines.extend_from_slice(path);
            lines.extend_from_slice(format!("\0100644 {id}\t").as_bytes());
            lines.extend_from_slice(path);
            lines.extend_from_slice(format!("/{SEED}\0").as_bytes());
        }
        let printed = self.git(&["update-index", "-z", "--index-info"], Some(&lines)).await?;
        match printed.ok {
            true => Ok(true),
            false => Err(format!("git update-index: {}", printed.stderr)),
        }
    }
}

/// The path of a line of `ls-files -s` (`mode id stage\tpath`) that is a link.
fn link(line: &[u8]) -> Option<&[u8]> {
    let at = memchr::memchr(b'\t', line)?;
    line.starts_with(b"160000 ").then(|| &line[at + 1..])
}

/// The directory of a repository without a commit, which git refuses to add.
fn uncommitted(line: &str) -> Option<&str> {
    let name = line
        .strip_prefix("error: '")?
        .strip_suffix("' does not have a commit checked out")?;
    Some(name.trim_end_matches('/'))
}
