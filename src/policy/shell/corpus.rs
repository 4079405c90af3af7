//! Test support: judges the corpora of commands with a minimal judge over a fictional tree.

use super::{FileUse, Grants, PrefixWord, Simple, covers, open_concern, parse_prefix, read};
use crate::base::access::{FsView, PathStatus, ResolvedPath};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Corpus {
    policies: Vec<CorpusPolicy>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
pub struct CorpusPolicy {
    name: String,
    commands: Vec<String>,
    write: Vec<String>,
    hosts: Vec<String>,
}

#[derive(Deserialize)]
struct Case {
    class: String,
    policy: String,
    commands: Vec<String>,
}

/// The files of the fictional workspace, `/ws`. `link` leads to `/etc`.
const TREE: [&str; 24] = [
    "README.md",
    "Cargo.toml",
    "Cargo.lock",
    "package.json",
    "tsconfig.json",
    "Makefile",
    "gradlew",
    "src/lib.rs",
    "src/main.rs",
    "src/a.txt",
    "src/b.txt",
    "src/list.txt",
    "docs/guide.md",
    "sub/package.json",
    "tests/test_a.py",
    "scripts/check.sh",
    "scripts/lint.sh",
    ".git/config",
    ".env",
    ".gitignore",
    ".github/workflows/ci.yml",
    "target/debug/app",
    "build.log",
    "list",
];

fn normal(path: &str) -> Option<String> {
    let path = path
        .strip_prefix("/ws")
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))
        .unwrap_or(path);
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

fn locate(asked: &str) -> ResolvedPath {
    let outside = || ResolvedPath {
        asked: asked.to_owned(),
        path: format!("/outside/{asked}"),
        inside: false,
        found: PathStatus::Nothing,
    };
    if asked.starts_with('/') && !asked.starts_with("/ws/") && asked != "/ws" {
        return outside();
    }
    let Some(path) = normal(asked).filter(|path| path != "link" && !path.starts_with("link/")) else {
        return outside();
    };
    let dir = format!("{path}/");
    let found = if TREE.contains(&path.as_str()) {
        PathStatus::File
    } else if path.is_empty() || TREE.iter().any(|name| name.starts_with(&dir)) {
        PathStatus::Dir
    } else {
        PathStatus::Nothing
    };
    ResolvedPath {
        asked: asked.to_owned(),
        path,
        inside: true,
        found,
    }
}

fn expand(pattern: &str) -> Vec<String> {
    let Ok(glob) = GlobBuilder::new(pattern.trim_start_matches("./"))
        .literal_separator(true)
        .build()
    else {
        return Vec::new();
    };
    let matcher = glob.compile_matcher();
    let mut names: Vec<String> = TREE
        .iter()
        .flat_map(|name| [(*name).to_owned(), name.split('/').next().unwrap().to_owned()])
        .collect();
    names.extend(["link".to_owned(), "link/passwd".to_owned()]);
    names.retain(|name| matcher.is_match(name) && (!name.starts_with('.') || pattern.starts_with('.')));
    names
}

fn below(dir: &str) -> Option<std::sync::Arc<[String]>> {
    let inside = |name: &&&str| dir.is_empty() || name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
    Some(TREE.iter().filter(inside).map(|name| (*name).to_owned()).collect())
}

pub const FS_VIEW: FsView<'static> = FsView {
    locate: &locate,
    expand: &expand,
    over_limit: &|| false,
    below: &below,
};

fn globs(all: &[&str]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for glob in all {
        set.add(
            GlobBuilder::new(glob)
                .literal_separator(true)
                .case_insensitive(true)
                .build()
                .unwrap(),
        );
    }
    set.build().unwrap()
}

/// A parsed policy.
pub struct CorpusJudge {
    prefixes: Vec<Vec<PrefixWord>>,
    write: GlobSet,
    protected: GlobSet,
    secret: GlobSet,
    hosts: Vec<String>,
}

impl CorpusJudge {
    pub fn new(policy: &CorpusPolicy) -> Self {
        let write: Vec<&str> = policy.write.iter().map(String::as_str).collect();
        Self {
            prefixes: policy
                .commands
                .iter()
                .map(|entry| parse_prefix(entry).unwrap())
                .collect(),
            write: globs(&write),
            protected: globs(&[
                "**/.git/**",
                "**/.git",
                ".github/workflows/**",
                "**/.gitattributes",
                "**/.envrc",
                "**/.npmrc",
                ".vscode/**",
                "**/.cargo/**",
                ".bashrc",
            ]),
            secret: globs(&[
                "**/.env",
                "**/.env.*",
                "**/*.pem",
                "**/id_*",
                "**/.netrc",
                "**/.npmrc",
                "**/.ssh/**",
                "**/.aws/**",
                "**/.git-credentials",
            ]),
            hosts: policy.hosts.clone(),
        }
    }

    /// The same judge without one of its rules.
    pub fn without(&self, rule: usize) -> Self {
        let mut prefixes = self.prefixes.clone();
        prefixes.remove(rule % prefixes.len());
        Self {
            prefixes,
            write: self.write.clone(),
            protected: self.protected.clone(),
            secret: self.secret.clone(),
            hosts: self.hosts.clone(),
        }
    }

    /// `None` if the command is allowed before it starts, otherwise the reason. Unknown words are refused.
    pub fn refusal(&self, text: &str) -> Option<String> {
        self.refusal_with(text, false)
    }

    /// The same if each program is judged again at its exec.
    pub fn refusal_with(&self, text: &str, witness: bool) -> Option<String> {
        let grants = Grants {
            witness,
            ..Grants::default()
        };
        let reading = match read(text, "", &FS_VIEW, &grants) {
            Ok(reading) => reading,
            Err(refusal) => return Some(format!("{}: {}", refusal.code, refusal.reason)),
        };
        reading
            .commands
            .iter()
            .find_map(|simple| self.command(simple))
            .or_else(|| self.files(&reading.reads, &reading.writes))
            .or_else(|| self.files(&reading.tested, &[]))
    }

    fn command(&self, simple: &Simple) -> Option<String> {
        if !simple.state_only {
            let covering: Vec<_> = self.prefixes.iter().filter(|prefix| covers(prefix, simple)).collect();
            if covering.is_empty() {
                return Some(format!("no_rule: {}", simple.program));
            }
            if let Some(concern) = open_concern(covering.iter().map(|prefix| prefix.as_slice()), simple) {
                return Some(format!("{}: {}", concern.code, concern.reason));
            }
        }
        let host = |url: &String| {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            authority
                .rsplit_once(':')
                .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
                .map_or(authority, |(host, _)| host)
                .to_owned()
        };
        if let Some(url) = simple.hosts.iter().find(|url| !self.hosts.contains(&host(url))) {
            return Some(format!("host: {url}"));
        }
        self.files(&simple.reads, &simple.writes)
    }

    fn files(&self, reads: &[FileUse], writes: &[FileUse]) -> Option<String> {
        let bad_read = reads.iter().find(|used| {
            used.place
                .as_ref()
                .is_some_and(|place| !place.inside || self.secret.is_match(&place.path))
        });
        let bad_write = writes.iter().find(|used| {
            used.place.as_ref().is_some_and(|place| {
                !place.inside
                    || !self.write.is_match(&place.path)
                    || self.protected.is_match(&place.path)
                    || self.secret.is_match(&place.path)
            })
        });
        bad_read
            .map(|used| format!("read: {}", used.asked))
            .or_else(|| bad_write.map(|used| format!("write: {}", used.asked)))
    }
}

/// `(class, policy, command)`.
type Row = (String, String, String);

/// The rows of a corpus of `fixtures/policy/commands`.
pub fn cases(text: &str) -> (BTreeMap<String, CorpusJudge>, Vec<Row>) {
    let options = serde_saphyr::options! { budget: None };
    let corpus: Corpus = serde_saphyr::from_str_with_options(text, options).unwrap();
    let judges = corpus
        .policies
        .iter()
        .map(|policy| (policy.name.clone(), CorpusJudge::new(policy)))
        .collect();
    let flat = corpus.cases.into_iter().flat_map(|case| {
        let (class, policy) = (case.class, case.policy);
        case.commands
            .into_iter()
            .map(move |command| (class.clone(), policy.clone(), command))
    });
    (judges, flat.collect())
}

pub const ATTACKS: &str = include_str!("../../../fixtures/policy/commands/attacks.yaml");
pub const BENIGN: &str = include_str!("../../../fixtures/policy/commands/benign.yaml");

#[test]
fn no_attack_is_allowed() {
    let (judges, cases) = cases(ATTACKS);
    assert!(cases.len() >= 300);
    let allowed: Vec<_> = cases
        .iter()
        .filter(|(_, policy, command)| judges[policy].refusal(command).is_none())
        .collect();
    assert!(allowed.is_empty(), "allowed: {allowed:#?}");
}

#[test]
fn every_everyday_command_is_allowed() {
    let (judges, cases) = cases(BENIGN);
    assert!(cases.len() >= 150);
    let refused: Vec<_> = cases
        .iter()
        .filter_map(|(_, policy, command)| judges[policy].refusal_with(command, true).map(|why| (command, why)))
        .collect();
    assert!(refused.is_empty(), "refused: {refused:#?}");
}
