//! Which paths of the workspace are protected, from the words of `Confinement::protected`. Pure.

use std::path::Path;

/// The words, read once. Letters compare without case.
#[derive(Default)]
pub(super) struct Names {
    list: Vec<Name>,
    /// Paths that a rule opened by naming them.
    opened: Vec<Vec<String>>,
}

struct Name {
    parts: Vec<String>,
    anywhere: bool,
    /// The last part is only a beginning.
    prefix: bool,
    /// The only part is an end.
    ending: bool,
}

impl Names {
    /// `a/b` at the top, `**/a/b` below any directory, `…*` for a beginning, `**/*…` for an end, `!a/b` for an exception.
    pub fn new(words: &[String]) -> Self {
        let mut names = Self::default();
        for word in words {
            if let Some(path) = word.strip_prefix('!') {
                let path = path.strip_suffix("/**").unwrap_or(path);
                names.opened.push(parts(Path::new(path)));
                continue;
            }
            let (anywhere, path) = word
                .strip_prefix("**/")
                .map_or((false, word.as_str()), |path| (true, path));
            let (ending, path) = path.strip_prefix('*').map_or((false, path), |path| (true, path));
            let (prefix, path) = path.strip_suffix('*').map_or((false, path), |path| (true, path));
            let parts = parts(Path::new(path));
            if !parts.is_empty() {
                names.list.push(Name {
                    parts,
                    anywhere,
                    prefix,
                    ending,
                });
            }
        }
        names
    }

    /// Whether there is nothing to protect.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether exactly this path is named (not: lies below one) and is not opened.
    pub fn protects(&self, path: &Path) -> bool {
        let path_parts = parts(path);
        self.list.iter().any(|name| name.is(&path_parts)) && !self.opens(path)
    }

    /// Whether a rule opened this path or one above it.
    pub fn opens(&self, path: &Path) -> bool {
        let path = parts(path);
        self.opened.iter().any(|opened| path.starts_with(opened))
    }

    /// Whether a rule opened something below this path.
    pub fn opens_below(&self, path: &Path) -> bool {
        let path = parts(path);
        self.opened.iter().any(|opened| opened.starts_with(&path))
    }
}

impl Name {
    fn is(&self, path: &[String]) -> bool {
        let Some(start) = path.len().checked_sub(self.parts.len()) else {
            return false;
        };
        if start > 0 && !self.anywhere {
            return false;
        }
        let last = self.parts.len() - 1;
        path[start..]
            .iter()
            .zip(&self.parts)
            .enumerate()
            .all(|(at, (have, wanted))| {
                if at == last && self.prefix {
                    have.starts_with(wanted.as_str())
                } else if at == last && self.ending {
                    have.ends_with(wanted.as_str())
                } else {
                    have == wanted
                }
            })
    }
}

fn parts(path: &Path) -> Vec<String> {
    path.iter().map(|part| part.to_string_lossy().to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_paths() {
        let words = [
            ".git",
            "**/.npmrc",
            "**/.cargo/config*",
            "jenkinsfile*",
            "!.git/config",
            ".github/workflows",
            "**/*.code-workspace",
        ];
        let names = Names::new(&words.map(str::to_owned));
        let cases = [
            (".git", true),
            (".GIT", true),
            ("a/.git", false),
            (".npmrc", true),
            ("a/b/.npmrc", true),
            ("a/.npmrc.bak", false),
            ("x/.cargo/config.toml", true),
            ("Jenkinsfile.release", true),
            ("a/Jenkinsfile", false),
            (".github", false),
            (".github/workflows", true),
            (".github/workflows/ci.yml", false),
            ("a/App.code-workspace", true),
            ("a/app.code-workspace.md", false),
        ];
        for (path, expected) in cases {
            assert_eq!(names.protects(Path::new(path)), expected, "{path}");
        }
        assert!(names.opens(Path::new(".git/config")) && names.opens_below(Path::new(".git")));
        assert!(!names.opens(Path::new(".git")) && !names.opens_below(Path::new(".github")));
    }
}
