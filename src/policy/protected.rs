//! The names that are never written unless a rule names them: what they are, and whether a path is one. Touches no file.

use super::names::fold_path;

/// One protected name. Everything below it is protected as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Folded, `/`-separated; the last component is only a beginning when `prefix`.
    pub path: &'static str,
    /// At any depth; else only at the top of the workspace.
    pub anywhere: bool,
    pub prefix: bool,
    /// What it is, for people.
    pub what: &'static str,
}

const GIT: &str = "version control";
const CI: &str = "CI definition";
const AGENT: &str = "agent configuration";
const EDITOR: &str = "editor configuration";
const SHELL: &str = "shell start-up file";
const TOOL: &str = "tool start-up file";
const REVIEW: &str = "review rules";
const OURS: &str = "policy, recipe or run directory";

const fn top(path: &'static str, what: &'static str) -> Entry {
    Entry {
        path,
        anywhere: false,
        prefix: false,
        what,
    }
}

const fn any(path: &'static str, what: &'static str) -> Entry {
    Entry {
        anywhere: true,
        ..top(path, what)
    }
}

const fn begins(entry: Entry) -> Entry {
    Entry { prefix: true, ..entry }
}

/// The list, in the order in which it is documented.
pub const LIST: &[Entry] = &[
    any(".git", GIT),
    any(".hg", GIT),
    any(".svn", GIT),
    any(".jj", GIT),
    any(".gitmodules", GIT),
    any(".gitattributes", GIT),
    any(".gitconfig", GIT),
    any(".githooks", GIT),
    top(".github/workflows", CI),
    top(".github/actions", CI),
    begins(top(".github/dependabot.", CI)),
    top(".gitea/workflows", CI),
    top(".forgejo/workflows", CI),
    begins(top(".gitlab-ci.", CI)),
    top(".gitlab/ci", CI),
    top(".circleci", CI),
    begins(top("azure-pipelines", CI)),
    begins(top("jenkinsfile", CI)),
    top(".buildkite", CI),
    begins(top(".drone.", CI)),
    begins(top("bitbucket-pipelines.", CI)),
    begins(top(".travis.", CI)),
    begins(top(".woodpecker", CI)),
    begins(top(".appveyor.", CI)),
    begins(top("appveyor.", CI)),
    begins(top(".cirrus.", CI)),
    begins(top("cloudbuild.", CI)),
    begins(top("buildspec.", CI)),
    top(".semaphore", CI),
    any(".overnight", OURS),
    any(".mcp.json", AGENT),
    any(".gemini", AGENT),
    any(".claude", AGENT),
    begins(top(".claude.", AGENT)),
    any(".codex", AGENT),
    any(".agents", AGENT),
    any(".cursor", AGENT),
    any(".cursorrules", AGENT),
    any(".windsurf", AGENT),
    any(".windsurfrules", AGENT),
    begins(any(".aider", AGENT)),
    any(".goosehints", AGENT),
    any(".clinerules", AGENT),
    any(".roo", AGENT),
    any(".kiro", AGENT),
    any(".opencode", AGENT),
    top("opencode.json", AGENT),
    top(".github/copilot-instructions.md", AGENT),
    any(".vscode", EDITOR),
    any(".idea", EDITOR),
    any(".fleet", EDITOR),
    any(".zed", EDITOR),
    any(".devcontainer", EDITOR),
    begins(top(".devcontainer.", EDITOR)),
    any(".exrc", EDITOR),
    any(".nvimrc", EDITOR),
    any(".nvim.lua", EDITOR),
    any(".vimrc", EDITOR),
    any(".dir-locals.el", EDITOR),
    begins(any(".bashrc", SHELL)),
    begins(any(".bash_", SHELL)),
    any(".profile", SHELL),
    any(".zshrc", SHELL),
    any(".zshenv", SHELL),
    any(".zprofile", SHELL),
    any(".zlogin", SHELL),
    any(".inputrc", SHELL),
    begins(any(".envrc", SHELL)),
    any(".npmrc", TOOL),
    begins(any(".yarnrc", TOOL)),
    any(".yarn/releases", TOOL),
    any(".yarn/plugins", TOOL),
    begins(any(".pnpmfile.", TOOL)),
    begins(any(".cargo/config", TOOL)),
    any("pip.conf", TOOL),
    any("pip.ini", TOOL),
    any(".pypirc", TOOL),
    any(".ripgreprc", TOOL),
    any(".curlrc", TOOL),
    any(".wgetrc", TOOL),
    any(".husky", TOOL),
    begins(any(".pre-commit-config.", TOOL)),
    begins(any("lefthook.", TOOL)),
    begins(any(".lefthook", TOOL)),
    begins(any("lefthook-local.", TOOL)),
    begins(top(".mise.", TOOL)),
    begins(top("mise.", TOOL)),
    any("sitecustomize.py", TOOL),
    any("usercustomize.py", TOOL),
    any("codeowners", REVIEW),
];

impl Entry {
    fn matches_at(&self, parts: &[String], at: usize) -> bool {
        let mut wanted = self.path.split('/').peekable();
        let mut index = at;
        while let Some(name) = wanted.next() {
            let Some(part) = parts.get(index) else {
                return false;
            };
            let last = wanted.peek().is_none();
            let fits = if last && self.prefix {
                part.starts_with(name)
            } else {
                part == name
            };
            if !fits {
                return false;
            }
            index += 1;
        }
        true
    }

    /// Whether folded components lie at or below this name.
    pub fn holds(&self, parts: &[String]) -> bool {
        if self.anywhere {
            (0..parts.len()).any(|at| self.matches_at(parts, at))
        } else {
            self.matches_at(parts, 0)
        }
    }
}

/// The entry that a workspace path is or lies below.
pub fn entry_of(path: &str) -> Option<&'static Entry> {
    let parts = fold_path(path);
    LIST.iter().find(|entry| entry.holds(&parts))
}

/// How to find out whether something protected lies below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Below {
    /// It counts whether it exists or not: the directory is made for it.
    Always(String),
    /// It counts when this path exists.
    Path(String),
    /// It counts when this shell pattern matches something.
    Pattern(String),
}

/// What changing a whole directory could change. Paths are relative to the workspace.
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
        let wanted: Vec<&str> = entry.path.split('/').collect();
        let leads = |parts: &[String]| {
            !parts.is_empty() && wanted.len() > parts.len() && wanted.iter().zip(parts).all(|(a, b)| a == b)
        };
        let starts = if entry.anywhere {
            parts.len()
        } else {
            parts.len().min(1)
        };
        if (0..starts).any(|at| leads(parts.get(at..).unwrap_or_default())) {
            found.push(Below::Always(entry.path.to_owned()));
        } else if entry.anywhere || parts.is_empty() {
            found.push(if entry.prefix {
                Below::Pattern(within(&format!("{}*", entry.path)))
            } else {
                Below::Path(within(entry.path))
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
            "AGENTS.md",
            "git",
            "",
        ] {
            assert!(entry_of(path).is_none(), "{path}");
        }
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
