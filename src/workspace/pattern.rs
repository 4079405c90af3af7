//! Path patterns of tools and prompts: splits one into a start directory and a matcher for what is below it.

use super::root::beneath;
use super::root::{Workspace, join};
use crate::base::access::{PathStatus, ResolvedPath};
use crate::base::glob::check;
use globset::{GlobBuilder, GlobMatcher};

/// A path, a directory or a glob, resolved against the tree.
#[derive(Clone, Debug)]
pub struct WorkspacePattern {
    /// As written.
    pub asked: String,
    /// The file itself, or the directory to search.
    pub start: ResolvedPath,
    fits: Fits,
}

#[derive(Clone, Debug)]
enum Fits {
    /// The path of `start` and nothing else.
    Exact,
    /// Everything below `start`.
    Below,
    /// Paths relative to `start`.
    Glob(GlobMatcher),
}

impl WorkspacePattern {
    /// Parses `asked`: absolute, or relative to `base`, which is relative to the root. A path that exists under exactly
    /// this name is taken literally, even with wildcards. `*` stays within a component, `**` spans components, `{a,b}`
    /// and `[a-z]` have their usual meaning.
    ///
    /// # Errors
    /// What is wrong with an invalid glob, or which limit it exceeds.
    pub fn parse(workspace: &Workspace, base: &str, asked: &str, case_sensitive: bool) -> Result<Self, String> {
        let full = if asked.starts_with('/') || base.is_empty() {
            asked.to_owned()
        } else {
            join(base, asked)
        };
        let pattern = |start, fits| Self {
            asked: asked.to_owned(),
            start,
            fits,
        };
        let named = workspace.locate(&full);
        if named.found == PathStatus::Dir {
            return Ok(pattern(named, Fits::Below));
        }
        if named.found != PathStatus::Nothing || !asked.contains(['*', '?', '[', '{']) {
            return Ok(pattern(named, Fits::Exact));
        }
        let (fixed, rest) = split(&full);
        let mut start = workspace.locate(&fixed);
        let mut glob = rest;
        if start.inside && start.found == PathStatus::Nothing && !case_sensitive {
            // The part without wildcards may exist with other letter case.
            start = workspace.locate(base);
            glob = asked.trim_start_matches("./").to_owned();
        }
        check(&glob)?;
        let matcher = GlobBuilder::new(&glob)
            .literal_separator(true)
            .case_insensitive(!case_sensitive)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| error.to_string())?
            .compile_matcher();
        Ok(pattern(start, Fits::Glob(matcher)))
    }

    /// Whether it names exactly one file.
    pub fn is_exact(&self) -> bool {
        matches!(self.fits, Fits::Exact)
    }

    /// Whether it names a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.fits, Fits::Below)
    }

    /// Whether it matches a path relative to the root.
    pub fn matches(&self, path: &str) -> bool {
        match &self.fits {
            Fits::Exact => path == self.start.path,
            Fits::Below => beneath(path, &self.start.path),
            Fits::Glob(glob) if self.start.path.is_empty() => glob.is_match(path),
            Fits::Glob(glob) => path
                .strip_prefix(self.start.path.as_str())
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|rest| glob.is_match(rest)),
        }
    }
}

/// Splits before the first component with a wildcard.
fn split(full: &str) -> (String, String) {
    let mut at = 0;
    for part in full.split_inclusive('/') {
        if part.contains(['*', '?', '[', '{', '\\']) {
            break;
        }
        at += part.len();
    }
    let (fixed, rest) = full.split_at(at);
    (fixed.to_owned(), rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_begin_where_their_fixed_part_leads() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["src/deep/a.rs", "src/b.rs", "app/[id]/page.tsx", "README.md"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("src", dir.path().join("link")).unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let absolute = format!("{}/src/*.rs", workspace.root().display());
        let cases = [
            ("", "*.rs", true, "", "a.rs", "src/b.rs"),
            ("", "**/*.rs", true, "", "src/deep/a.rs", "README.md"),
            ("src", "**/*.rs", true, "src", "src/b.rs", "b.rs"),
            ("", "src/**", true, "src", "src/deep/a.rs", "README.md"),
            ("", "link/**/*.rs", true, "src", "src/deep/a.rs", "link/b.rs"),
            ("", "./src/*.{rs,md}", true, "src", "src/b.rs", "src/deep/a.rs"),
            (
                "",
                "app/[id]/page.tsx",
                true,
                "app/[id]/page.tsx",
                "app/[id]/page.tsx",
                "app/i/page.tsx",
            ),
            ("", "src", true, "src", "src/deep/a.rs", "README.md"),
            ("", "src/{deep/,}b.rs", true, "src", "src/b.rs", "b.rs"),
            ("", "SRC/*.RS", false, "", "src/b.rs", "src/deep/a.rs"),
            ("", absolute.as_str(), true, "src", "src/b.rs", "src/deep/a.rs"),
            ("src/deep", "../*.rs", true, "src", "src/b.rs", "src/deep/a.rs"),
        ];
        for (base, asked, case, start, yes, no) in cases {
            let pattern = WorkspacePattern::parse(&workspace, base, asked, case).unwrap();
            assert_eq!(pattern.start.path, start, "{asked}");
            assert!(pattern.matches(yes) && !pattern.matches(no), "{asked}");
        }
        assert!(
            !WorkspacePattern::parse(&workspace, "", "../*", true)
                .unwrap()
                .start
                .inside
        );
        assert!(WorkspacePattern::parse(&workspace, "", "a[", true).is_err());
        let deep = format!("{}a{}", "{".repeat(20_000), "}".repeat(20_000));
        assert!(WorkspacePattern::parse(&workspace, "", &deep, true).is_err());
    }
}
