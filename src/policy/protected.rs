//! The protected names, which are never written unless a rule names them, and whether a path is one of them. Only names
//! are examined.
#![doc = include_str!("protected.md")]

mod table;

use super::name_folding::fold_path;
use crate::base::git_dir::is_git_dir;

pub use table::LIST;

/// One protected name. Everything below it is protected too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectedName {
    /// Folded, `/`-separated; the last component is only a prefix if `prefix` is set, only a suffix if `ending` is set.
    pub path: &'static str,
    /// At any depth; otherwise only at the top of the workspace.
    pub anywhere: bool,
    pub prefix: bool,
    pub ending: bool,
    /// What it is, for people.
    pub what: &'static str,
    /// Why it is protected: what changing it could cause.
    pub why: &'static str,
}

impl ProtectedName {
    fn matches_at(&self, parts: &[String], at: usize) -> bool {
        let mut wanted = self.path.split('/').peekable();
        let mut index = at;
        while let Some(name) = wanted.next() {
            let Some(part) = parts.get(index) else {
                return false;
            };
            let last = wanted.peek().is_none();
            let fits = match last {
                true if self.prefix => part.starts_with(name),
                true if self.ending => part.ends_with(name),
                _ => part == name,
            };
            if !fits {
                return false;
            }
            index += 1;
        }
        true
    }

    /// Whether a path is this name or below it, and the name begins in the first `above` components.
    fn begins_above(&self, parts: &[String], above: usize) -> bool {
        let starts = if self.anywhere { above } else { above.min(1) };
        (0..starts).any(|at| self.matches_at(parts, at))
    }

    /// Whether a directory is above this name, where the name begins in the first `starts` components.
    fn lies_below(&self, parts: &[String], starts: usize) -> bool {
        let wanted: Vec<&str> = self.path.split('/').collect();
        let leads = |parts: &[String]| {
            !parts.is_empty() && wanted.len() > parts.len() && wanted.iter().zip(parts).all(|(a, b)| a == b)
        };
        (0..starts).any(|at| leads(parts.get(at..).unwrap_or_default()))
    }

    /// Whether a path, given by its folded components, is this name or below it.
    pub fn holds(&self, parts: &[String]) -> bool {
        if self.anywhere {
            (0..parts.len()).any(|at| self.matches_at(parts, at))
        } else {
            self.matches_at(parts, 0)
        }
    }
}

/// The protected name that a workspace path is, or is below.
pub fn entry_of(path: &str) -> Option<&'static ProtectedName> {
    let parts = fold_path(path);
    LIST.iter().find(|entry| entry.holds(&parts))
}

/// The protected name that a workspace path is, or is below, because of where the workspace lies: the name begins in
/// `above`, the folded components of the workspace's path from the top of its repository.
pub fn entry_above(above: &[String], path: &str) -> Option<&'static ProtectedName> {
    let parts = from_top(above, path)?;
    LIST.iter().find(|entry| entry.begins_above(&parts, above.len()))
}

/// A protected name below a directory of the workspace that begins in `above`, as in [`entry_above`].
pub fn below_above(above: &[String], dir: &str) -> Option<&'static ProtectedName> {
    let parts = from_top(above, dir)?;
    LIST.iter().find(|entry| {
        let starts = if entry.anywhere { above.len() } else { 1 };
        entry.lies_below(&parts, starts)
    })
}

/// The folded components of a workspace path from the top of the repository; `None` if the workspace is the top.
fn from_top(above: &[String], path: &str) -> Option<Vec<String>> {
    if above.is_empty() {
        return None;
    }
    let mut parts = above.to_vec();
    parts.extend(fold_path(path));
    Some(parts)
}

/// The directory above a path (`""` is the workspace) that git takes for a repository although no protected name says so,
/// or would once the path exists: by its `HEAD` with `objects` and `refs`, or with `commondir`, which says where those
/// are. `exists`: whether an entry, also a link that leads nowhere, is at this path, relative to the workspace.
pub fn repository_above<'p>(path: &'p str, exists: &dyn Fn(&str) -> bool) -> Option<&'p str> {
    let starts = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
    starts
        .map(|from| (from, path.split_at(from)))
        .filter(|(_, (_, rest))| !rest.is_empty())
        .find_map(|(from, (lead, rest))| {
            let own = fold_path(rest.split('/').next().unwrap_or_default()).join("/");
            let has = |name: &str| own == name.to_ascii_lowercase() || exists(&format!("{lead}{name}"));
            // Without `refs` git takes it for none; the write that adds them is then the one that is refused.
            let is_one = is_git_dir(|name| has(name) && (name != "objects" || has("refs")));
            let dir = path.get(..from.saturating_sub(1)).unwrap_or_default();
            (is_one && entry_of(dir).is_none()).then_some(dir)
        })
}

/// How to find out whether something protected is below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Below {
    /// Counts even if it does not exist, because the directory exists only for it.
    Always(String),
    /// Counts if an entry, also a link that leads nowhere, is at this path.
    Path(String),
    /// Counts if this shell pattern matches something.
    Pattern(String),
}

/// What changing an entire directory could change. Paths are relative to the workspace.
pub fn below(dir: &str) -> Vec<Below> {
    let parts = fold_path(dir);
    let within = |path: &str| {
        if dir.is_empty() {
            path.to_owned()
        } else {
            format!("{dir}/{path}")
        }
    };
    let mut found = Vec::new();
    for entry in LIST {
        let starts = if entry.anywhere {
            parts.len()
        } else {
            parts.len().min(1)
        };
        if entry.lies_below(&parts, starts) {
            found.push(Below::Always(entry.path.to_owned()));
        } else if entry.anywhere || parts.is_empty() {
            found.push(match (entry.prefix, entry.ending) {
                (true, _) => Below::Pattern(within(&format!("{}*", entry.path))),
                (false, true) => Below::Pattern(within(&format!("*{}", entry.path))),
                (false, false) => Below::Path(within(entry.path)),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_and_prefix() {
        for path in [
            ".git",
            ".git/hooks/pre-commit",
            "a/b/.GIT/config",
            ".github/workflows",
            ".GitHub/Workflows/x.yml",
            "sub/.npmrc",
            ".yarnrc.yml",
            "x/.cargo/config.toml",
            "azure-pipelines-2.yml",
            ".envrc.local",
            "docs/CODEOWNERS",
            "AGENTS.md",
            "docs/Claude.md",
            "rust-toolchain.toml",
            "app.code-workspace",
            "gradle/wrapper/gradle-wrapper.properties",
            ".mvn/jvm.config",
        ] {
            assert!(entry_of(path).is_some(), "{path}");
        }
        for path in [
            "src/a.rs",
            ".github/ISSUE_TEMPLATE.md",
            "sub/.github/workflows/x.yml",
            ".gitignore",
            ".cargo/registry",
            "docs/azure-pipelines.md",
            "docs/agents.md.txt",
            "code-workspace",
            "rust-toolchain.md",
            "git",
            "",
        ] {
            assert!(entry_of(path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_name_may_begin_above_the_workspace() {
        for (above, path, held) in [
            (".github/workflows", "ci.yml", true),
            (".GitHub", "Workflows/ci.yml", true),
            (".github", "workflows", true),
            (".github", "ISSUE_TEMPLATE.md", false),
            ("sub/.github/workflows", "ci.yml", false),
            ("sub/.vscode", "settings.json", true),
            ("x/.cargo", "config.toml", true),
            ("x/.cargo", "registry", false),
            // The name begins in the workspace, so it is that of `entry_of`.
            ("sub", ".npmrc", false),
            ("", ".github/workflows/ci.yml", false),
        ] {
            assert_eq!(entry_above(&fold_path(above), path).is_some(), held, "{above} {path}");
        }
        assert!(below_above(&fold_path(".github"), "").is_some());
        assert!(below_above(&fold_path("x/.cargo"), "").is_some());
        assert!(below_above(&fold_path("sub/.github"), "").is_none());
        assert!(below_above(&fold_path(".github"), "docs").is_none());
        assert!(below_above(&[], ".github").is_none());
    }

    #[test]
    fn a_repository_is_known_by_what_is_in_it() {
        let above =
            |there: &[&str], path: &str| repository_above(path, &|path| there.contains(&path)).map(str::to_owned);
        let bare = ["d/r/HEAD", "d/r/objects", "d/r/refs"];
        for path in ["d/r/config", "d/r/hooks/post-update", "d/r/HEAD", "d/r/Refs/x"] {
            assert_eq!(above(&bare, path).as_deref(), Some("d/r"), "{path}");
        }
        for path in ["d/r", "d/a", "d", "", "d/rr/config"] {
            assert_eq!(above(&bare, path), None, "{path}");
        }
        // The write that makes it one.
        assert_eq!(above(&["d/HEAD", "d/objects"], "d/refs/heads/a").as_deref(), Some("d"));
        assert_eq!(above(&["HEAD", "refs"], "OBJECTS").as_deref(), Some(""));
        assert_eq!(above(&["HEAD"], "commondir").as_deref(), Some(""));
        assert_eq!(above(&["d/HEAD", "d/objects"], "d/config"), None);
        assert_eq!(above(&["d/objects", "d/refs"], "d/config"), None);
        // Its name protects it already.
        assert_eq!(above(&[".git/HEAD", ".git/commondir"], ".git/config"), None);
    }

    #[test]
    fn a_directory_holds_what_lies_below() {
        assert!(below(".github").contains(&Below::Always(".github/workflows".to_owned())));
        assert!(below("a/.cargo").contains(&Below::Always(".cargo/config".to_owned())));
        assert!(!below("sub/.github").iter().any(|look| matches!(look, Below::Always(_))));
        assert!(below("sub").contains(&Below::Path("sub/.npmrc".to_owned())));
        assert!(below("sub").contains(&Below::Pattern("sub/.yarnrc*".to_owned())));
        assert!(below("").contains(&Below::Path(".git".to_owned())));
        assert!(!below("").iter().any(|look| matches!(look, Below::Always(_))));
    }
}
