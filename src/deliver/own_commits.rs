//! Determines from the contents of commits whether deliveries made them. Pure.
//!
//! A commit was made by a delivery if it has one parent, a delivery's trailers, the tree that its trailer names, and
//! equal author and committer dates: amending or rebasing changes the committer date.

use super::deliverable::Deliverable;

// The trailers of a delivery's commits, in their order.
/// The id of the run.
pub const RUN: &str = "Overnight-Run";
/// The name of the recipe and the digest of its plan: `NAME sha256:HEX`.
pub const RECIPE: &str = "Overnight-Recipe";
/// The digest of one policy: `sha256:HEX`. One trailer for each.
pub const POLICY: &str = "Overnight-Policy";
/// The digest of the patch: `sha256:HEX`.
pub const PATCH: &str = "Overnight-Patch";
/// `git patch-id --stable` of the commit's change: independent of line numbers.
const PATCH_ID: &str = "Overnight-Patch-Id";
/// The commit's own tree, so that an amended commit is recognised.
const TREE: &str = "Overnight-Tree";

/// The trailers of a delivery, one per line.
pub fn trailers(of: &Deliverable, recipe: &str, patch_id: &str, tree: &str) -> String {
    let mut lines = vec![
        format!("{RUN}: {}", of.run),
        format!("{RECIPE}: {recipe} sha256:{}", of.recipe_digest),
    ];
    for policy in &of.policies {
        let line = format!("{POLICY}: sha256:{}", policy.digest);
        // The manifest and the recipe may name the same policy.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.push(format!("{PATCH}: sha256:{}", of.patch_digest));
    if !patch_id.is_empty() {
        lines.push(format!("{PATCH_ID}: {patch_id}"));
    }
    lines.push(format!("{TREE}: {tree}"));
    lines.join("\n")
}

/// The fields of a commit as `git cat-file commit` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawCommit {
    pub tree: String,
    pub parents: Vec<String>,
    /// Seconds since the epoch, and the time zone.
    pub authored: String,
    pub committed: String,
    pub message: String,
}

impl RawCommit {
    /// Parses the output. Missing fields stay empty.
    pub fn parse(text: &str) -> Self {
        let (head, message) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut commit = Self {
            message: message.to_owned(),
            ..Self::default()
        };
        for line in head.lines() {
            let Some((name, value)) = line.split_once(' ') else {
                continue;
            };
            let date = || value.rsplit_once('>').map_or("", |(_, date)| date).trim().to_owned();
            match name {
                "tree" => commit.tree = value.to_owned(),
                "parent" => commit.parents.push(value.to_owned()),
                "author" => commit.authored = date(),
                "committer" => commit.committed = date(),
                _ => {}
            }
        }
        commit
    }

    /// Why no delivery made this commit; `None` when a delivery did.
    pub fn foreign(&self) -> Option<&'static str> {
        let has = |name| trailer(&self.message, name).is_some();
        if self.parents.len() != 1 {
            return Some("it is a merge");
        }
        if ![RUN, RECIPE, PATCH, TREE].into_iter().all(has) {
            return Some("it does not have the trailers of a delivery");
        }
        if trailer(&self.message, TREE) != Some(self.tree.as_str()) {
            return Some("its content is not what was delivered");
        }
        if self.authored != self.committed {
            return Some("it was amended or rebased");
        }
        None
    }
}

/// The value of a trailer in the last paragraph of a message; the last one if it is repeated.
pub fn trailer<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let last = message.trim_end().rsplit("\n\n").next()?;
    let mut lines = last.lines().rev();
    lines
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .map(str::trim)
}

/// The patch that a commit or a request claims to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldPatch {
    /// SHA-256 of the run's patch.
    pub digest: Option<String>,
    pub id: Option<String>,
}

impl HeldPatch {
    /// Reads it from the commit message, or from the marker in a description, which has the same lines.
    pub fn of(message: &str) -> Self {
        let digest = trailer(message, PATCH).and_then(|value| value.strip_prefix("sha256:"));
        Self {
            digest: digest.map(str::to_owned),
            id: trailer(message, PATCH_ID).map(str::to_owned),
        }
    }

    /// Whether it names a patch.
    pub fn is_known(&self) -> bool {
        self.digest.is_some()
    }

    /// Whether it is exactly this patch, byte for byte.
    pub fn is(&self, digest: &str) -> bool {
        self.digest.as_deref() == Some(digest)
    }

    /// Whether it is the same change, even at other lines of the files.
    pub fn is_like(&self, digest: &str, id: &str) -> bool {
        self.is(digest) || (!id.is_empty() && self.id.as_deref() == Some(id))
    }
}

/// Who made the commits of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchState {
    Absent,
    /// At or behind the base, and a delivery made its last commit, which was merged: pushing loses nothing.
    Behind {
        commit: String,
    },
    /// At or behind the base, and no delivery made its last commit: somebody else created the branch, and may want to
    /// work on it.
    Unmade {
        commit: String,
    },
    /// Deliveries made every commit above the base.
    Ours {
        commit: String,
        patch: HeldPatch,
    },
    /// At least one commit that no delivery made, and why it counts as such.
    Foreign {
        commit: String,
        why: String,
    },
}

impl BranchState {
    /// The commit that the branch points at.
    pub fn commit(&self) -> Option<&str> {
        match self {
            Self::Absent => None,
            Self::Behind { commit }
            | Self::Unmade { commit }
            | Self::Ours { commit, .. }
            | Self::Foreign { commit, .. } => Some(commit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(message: &str, committed: &str) -> RawCommit {
        RawCommit::parse(&format!(
            "tree 11\nparent 22\nauthor A <a@b> 100 +0000\ncommitter A <a@b> {committed} +0000\ngpgsig x\n y\n\n{message}"
        ))
    }

    const OURS: &str =
        "t\n\nbody\n\nOvernight-Run: r\nOvernight-Recipe: n sha256:1\nOvernight-Patch: sha256:2\nOvernight-Tree: 11\n";

    #[test]
    fn a_commit_is_ours_or_a_persons() {
        assert_eq!(commit(OURS, "100").foreign(), None);
        for (what, message, committed) in [
            ("amended content", OURS.replace("Tree: 11", "Tree: 12"), "100"),
            ("no trailers", "t\n\nbody\n".to_owned(), "100"),
            ("trailers in the middle", OURS.to_owned() + "\nmore\n", "100"),
            ("amended message", OURS.to_owned(), "101"),
        ] {
            assert!(commit(&message, committed).foreign().is_some(), "{what}");
        }
        let merge = RawCommit {
            parents: vec!["1".into(), "2".into()],
            ..commit(OURS, "100")
        };
        assert!(merge.foreign().is_some());
    }

    #[test]
    fn patches_are_told_by_digest_or_by_what_they_change() {
        let held = HeldPatch::of(&OURS.replace("sha256:2\n", "sha256:2\nOvernight-Patch-Id: 77\n"));
        assert!(held.is("2") && !held.is("3"));
        assert!(held.is_like("3", "77") && !held.is_like("3", "78") && !held.is_like("3", ""));
        assert!(!HeldPatch::of("nothing").is_known());
        assert!(!HeldPatch::of("nothing").is_like("2", ""));
    }
}
