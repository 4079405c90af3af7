//! Reads files from a commit of the workspace's repository, and decides which commits the change under test cannot
//! move. Reads no file of the working tree.

use super::change_reach;
use super::environment;
use super::inputs;
use super::refusal::Refusal;
use crate::base::ids::is_object_id;
use crate::process::own_git::{self, GitAccess};
use crate::process::unsandboxed::Printed;
use crate::workspace::patch::{self, Repository};
use std::path::Path;

/// Variables in which CI systems name the target branch of a change, or the repository's default branch.
const TARGETS: [&str; 6] = [
    "GITHUB_BASE_REF",
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME",
    "CI_DEFAULT_BRANCH",
    "CHANGE_TARGET",
    "BITBUCKET_PR_DESTINATION_BRANCH",
    "SYSTEM_PULLREQUEST_TARGETBRANCH",
];
/// Remotes that belong to the project. Other remotes may be forks of anyone.
pub const REMOTES: [&str; 2] = ["origin", "upstream"];
/// Names to try if nothing says what the default branch is.
const USUAL: [&str; 2] = ["main", "master"];

/// A revision of the workspace's repository, resolved once so that all files come from the same commit.
#[derive(Clone, Debug)]
pub struct Commit {
    repository: Repository,
    /// The revision as given.
    pub revision: String,
    /// The full object id.
    pub id: String,
}

/// Why the revisions of a workspace's repository say nothing about a base, as a message fragment for people: a change
/// in another repository decides which one it is, so that it may be a repository of whoever made the change.
pub fn owned(workspace: &Path) -> Option<String> {
    let source = change_reach::source();
    std::iter::once(workspace).chain(source.as_deref()).find_map(owned_tree)
}

fn owned_tree(tree: &Path) -> Option<String> {
    let root = std::fs::canonicalize(tree).unwrap_or_else(|_| tree.to_owned());
    let repositories = [patch::repository(&root), patch::repository_at(&root)];
    let owner = repositories
        .iter()
        .flatten()
        .find_map(|own| patch::owners(own).into_iter().next());
    if let Some(owner) = owner {
        return Some(format!(
            "the workspace is a submodule of {}, and a change there decides which repository it is",
            owner.top.display()
        ));
    }
    let decider = change_reach::deciders(tree).into_iter().next()?;
    Some(format!(
        "the path to the workspace leads through a link of {}, and a change there decides which repository it is",
        decider.top.display()
    ))
}

/// What to do instead where [`owned`] says why.
pub const OWNED_HELP: &str = "take recipe and policy from files of a checkout of the base";

impl Commit {
    /// Resolves a revision.
    ///
    /// # Errors
    /// The inner error is a message fragment for people; `Refusal::Environment` if git cannot be run.
    pub async fn resolve(revision: &str, workspace: &Path) -> Result<Result<Self, String>, Refusal> {
        if revision.is_empty() || revision.starts_with('-') {
            return Ok(Err("no revision is given".to_owned()));
        }
        if let Some(why) = owned(workspace) {
            return Ok(Err(why));
        }
        let root = std::fs::canonicalize(workspace).unwrap_or_else(|_| workspace.to_owned());
        let Some(repository) = patch::repository(&root) else {
            return Ok(Err("the workspace is not in a git repository".to_owned()));
        };
        repository.check().map_err(Refusal::Environment)?;
        let full = match full_name(revision, &repository).await? {
            Ok(full) => full,
            Err(why) => return Ok(Err(why)),
        };
        let object = format!("{full}^{{commit}}");
        let found = git(&repository, &["rev-parse", "--verify", "--quiet", &object]).await?;
        Ok(match text(&found) {
            Some(id) if is_object_id(&id) => Ok(Self {
                repository,
                revision: revision.to_owned(),
                id,
            }),
            _ => Err(format!("`{revision}` is not a commit of the workspace's repository")),
        })
    }

    /// The repository of the commit.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Reads a file of the commit; `path` is `/`-separated from the top of the repository, without `.` and `..`.
    ///
    /// # Errors
    /// The inner error is a message fragment for people: the file does not exist or is too large.
    pub async fn read(&self, path: &str) -> Result<Result<Vec<u8>, String>, Refusal> {
        let object = format!("{}:{path}", self.id);
        let size = git(&self.repository, &["cat-file", "-s", &object]).await?;
        let Some(size) = text(&size).and_then(|size| size.parse::<u64>().ok()) else {
            return Ok(Err(format!("there is no `{path}` in {}", self.revision)));
        };
        if size > inputs::SIZE {
            return Ok(Err(format!("more than {} MiB", inputs::SIZE >> 20)));
        }
        let printed = git(&self.repository, &["cat-file", "blob", &object]).await?;
        Ok(match printed.ok {
            true => Ok(printed.stdout),
            false => Err(format!("`{path}` is not a file in {}", self.revision)),
        })
    }

    /// The files of this path, or below this directory, each with its size and whether it is executable; links and
    /// submodules are left out. An empty path is the whole tree.
    ///
    /// # Errors
    /// The inner error is a message fragment for people: there is nothing of that path.
    pub async fn list(&self, path: &str) -> Result<Result<Vec<(String, u64, bool)>, String>, Refusal> {
        let mut args = vec!["ls-tree", "-r", "-z", "-l", "--full-tree", &self.id];
        if !path.is_empty() {
            args.extend(["--", path]);
        }
        let printed = git(&self.repository, &args).await?;
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        let one = |line: &str| {
            let (about, name) = line.split_once('\t')?;
            let mut about = about.split_ascii_whitespace();
            let mode = about.next().filter(|mode| mode.starts_with("100"))?;
            let size = about.nth(2)?.parse().ok()?;
            Some((name.to_owned(), size, mode == "100755"))
        };
        let files: Vec<(String, u64, bool)> = text.split('\0').filter_map(one).collect();
        Ok(match printed.ok && !files.is_empty() {
            true => Ok(files),
            false => Err(format!("there is no `{path}` in {}", self.revision)),
        })
    }

    /// Whether the change under test cannot move the revision: it is not `HEAD`, and it is part of a base branch. The
    /// inner error says why not.
    ///
    /// Base branches are the default branch of `origin` and `upstream` (`refs/remotes/R/HEAD`, else `R/main` or
    /// `R/master`), and those of their branches that the CI system names as the target of the change or as the default
    /// branch.
    ///
    /// # Errors
    /// [`Refusal::Environment`] if git cannot be started.
    pub async fn pinned(&self) -> Result<Result<String, String>, Refusal> {
        if moves_with_checkout(&self.revision) {
            let why = format!("`{}` moves with the change under test", self.revision);
            return Ok(Err(why));
        }
        let bases = self.bases().await?;
        for base in &bases {
            let args = ["merge-base", "--is-ancestor", &self.id, base];
            if git(&self.repository, &args).await?.ok {
                let name = base.strip_prefix("refs/remotes/").unwrap_or(base);
                return Ok(Ok(format!(
                    "commit {} of {name}",
                    self.id.get(..12).unwrap_or(&self.id)
                )));
            }
        }
        let names: Vec<&str> = bases
            .iter()
            .map(|base| base.strip_prefix("refs/remotes/").unwrap_or(base))
            .collect();
        let revision = &self.revision;
        Ok(Err(match names.is_empty() {
            true => format!(
                "no base branch is known that `{revision}` could be part of; `git remote set-head origin --auto` records it"
            ),
            false => format!("`{revision}` is not part of the base branch ({})", names.join(", ")),
        }))
    }

    /// The existing base branches, as full reference names.
    async fn bases(&self) -> Result<Vec<String>, Refusal> {
        let mut wanted = Vec::new();
        for remote in REMOTES {
            let head = format!("refs/remotes/{remote}/HEAD");
            let named = text(&git(&self.repository, &["symbolic-ref", "--quiet", &head]).await?);
            let of_remote = format!("refs/remotes/{remote}/");
            match named.filter(|name| name.starts_with(&of_remote)) {
                Some(name) => wanted.push(name),
                None => wanted.extend(USUAL.iter().map(|branch| format!("{of_remote}{branch}"))),
            }
            for branch in targets() {
                wanted.push(format!("{of_remote}{branch}"));
            }
        }
        let mut bases: Vec<String> = Vec::new();
        for name in wanted {
            let exists = git(&self.repository, &["show-ref", "--verify", "--quiet", &name])
                .await?
                .ok;
            if exists && !bases.contains(&name) {
                bases.push(name);
            }
        }
        Ok(bases)
    }
}

/// The revision with its reference written in full. Git itself prefers a tag over a branch of the same name, so anybody
/// who may push tags could replace `origin/main`. Here a remote-tracking branch has precedence, and any other name must
/// be unambiguous. The inner error is a message fragment for people.
async fn full_name(revision: &str, repository: &Repository) -> Result<Result<String, String>, Refusal> {
    let cut = ["~", "^", "@{"].iter().filter_map(|mark| revision.find(mark)).min();
    let (name, rest) = revision.split_at(cut.unwrap_or(revision.len()));
    let literal = name.starts_with("refs/") || matches!(name, "" | "@" | "HEAD") || is_object_id(name);
    // A name that git would treat as a pattern is not a reference name.
    if literal || name.contains(['*', '?', '[']) {
        return Ok(Ok(revision.to_owned()));
    }
    let kinds = ["refs/remotes/", "refs/tags/", "refs/heads/"].map(|kind| format!("{kind}{name}"));
    let mut args = vec!["for-each-ref", "--format=%(refname)"];
    args.extend(kinds.iter().map(String::as_str));
    let listed = text(&git(repository, &args).await?).unwrap_or_default();
    let there: Vec<&String> = kinds
        .iter()
        .filter(|kind| listed.lines().any(|line| line == kind.as_str()))
        .collect();
    let hex = (4..40).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let object = hex && !there.is_empty() && {
        let prefix = format!("--disambiguate={name}");
        text(&git(repository, &["rev-parse", &prefix]).await?).is_some()
    };
    Ok(match there.as_slice() {
        [] => Ok(revision.to_owned()),
        [first, ..] if first.starts_with("refs/remotes/") && !object => Ok(format!("{first}{rest}")),
        [only] if !object => Ok(format!("{only}{rest}")),
        _ => Err(format!(
            "`{name}` is ambiguous; write refs/heads/{name} or refs/tags/{name}"
        )),
    })
}

/// Branch names from the CI system, without `refs/heads/`.
fn targets() -> Vec<String> {
    let named = TARGETS.iter().filter_map(|name| environment::variable(name));
    let plain = |name: String| name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned();
    named.chain(default_of_event()).map(plain).collect()
}

/// The default branch from the event file of GitHub's runner. The runner writes that field, not the person who caused
/// the event.
fn default_of_event() -> Option<String> {
    let file = environment::variable("GITHUB_EVENT_PATH")?;
    let event: serde_json::Value = serde_json::from_str(&inputs::text(Path::new(&file)).ok()?).ok()?;
    let branch = event.get("repository")?.get("default_branch")?.as_str()?;
    Some(branch.to_owned())
}

/// Whether a revision is relative to the current checkout.
fn moves_with_checkout(revision: &str) -> bool {
    let own = |rest: &str| rest.is_empty() || rest.starts_with(['~', '^', '@', '{']);
    let last = revision.rsplit('/').next().unwrap_or_default();
    let of_worktree = revision.contains("worktree") && last.strip_prefix("HEAD").is_some_and(own);
    of_worktree
        || [revision.strip_prefix("HEAD"), revision.strip_prefix('@')]
            .into_iter()
            .flatten()
            .any(own)
}

async fn git(repository: &Repository, args: &[&str]) -> Result<Printed, Refusal> {
    let dir = repository.git_dir.to_string_lossy();
    let mut all = vec!["--git-dir", dir.as_ref()];
    all.extend(args);
    // Git must not fetch a missing object, and must not substitute another (git-replace(1)) or other parents of a
    // commit (`info/grafts`).
    let env = [
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_GRAFT_FILE", "/dev/null"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    own_git::git(&all, &repository.top, &env, None, GitAccess::Read)
        .await
        .map_err(Refusal::Environment)
}

/// The output of a successful command, without the final newline.
fn text(printed: &Printed) -> Option<String> {
    let text = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    (printed.ok && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_with_the_checkout() {
        for revision in [
            "HEAD",
            "HEAD~1",
            "HEAD^2",
            "HEAD@{1}",
            "@",
            "@~3",
            "@{u}",
            "main-worktree/HEAD",
            "worktrees/a/HEAD^",
        ] {
            assert!(moves_with_checkout(revision), "{revision}");
        }
        for revision in ["origin/main", "origin/HEAD", "HEADLINE", "v1", "feature/@home", "main"] {
            assert!(!moves_with_checkout(revision), "{revision}");
        }
    }
}
