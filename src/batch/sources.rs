//! Provides the trees of jobs: local repositories, and bare mirrors of remote ones in a cache. Finds base commits and
//! creates worktrees; runs no hook and no filter.

use crate::base::address::has_host;
use crate::base::ids::sha256_hex;
use crate::base::percent;
use crate::base::sync::lock;
use crate::process::own_git::{self, GitAccess};
use crate::process::own_path;
use crate::process::unsandboxed;
use crate::workspace::patch::{self, Repository};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OnceCell;

/// The variable that tells a job's process the source of its tree, if that is on this machine: files there count as
/// written by the change under test, although the tree is a worktree of another repository.
pub const VARIABLE: &str = "OVERNIGHT_BATCH_SOURCE";
/// Time limit of one fetch.
const FETCH_TIME: Duration = Duration::from_secs(1_800);
/// The refspecs of a mirror: branches, tags and the default branch.
const REFSPECS: [&str; 3] = [
    "+HEAD:refs/overnight/HEAD",
    "+refs/heads/*:refs/remotes/origin/*",
    "+refs/tags/*:refs/tags/*",
];

/// Where a job's tree comes from, as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TreeSource {
    /// Relative to the manifest.
    Path(String),
    /// A repository URL or path that `git clone` accepts.
    Repo(String),
}

impl TreeSource {
    /// As the manifest names it.
    pub fn as_str(&self) -> &str {
        match self {
            TreeSource::Path(text) | TreeSource::Repo(text) => text,
        }
    }

    /// The key of the manifest that names it.
    pub fn key(&self) -> &'static str {
        match self {
            TreeSource::Path(_) => "path",
            TreeSource::Repo(_) => "repo",
        }
    }
}

/// A mirror, which is fetched once per call, or why that failed.
type FetchedMirror = OnceCell<Result<Repository, String>>;

/// The tree of a job before its worktree is created.
#[derive(Clone, Debug)]
pub struct ResolvedSource {
    pub repository: Repository,
    /// The full id of the base commit.
    pub commit: String,
    /// The target's directory, relative to the top of the repository.
    pub below: PathBuf,
    /// Commits of `git:REV:PATH` names, which are part of the job's digest.
    pub revisions: Vec<String>,
    /// The absolute path of the source, if it is on this machine; links are not resolved.
    pub local: Option<PathBuf>,
}

impl ResolvedSource {
    /// The place of the source this was resolved from, whatever the current directory is: an absolute path if it is on this
    /// machine, else its URL.
    pub fn place(&self, source: &TreeSource) -> String {
        match &self.local {
            Some(path) => path.to_string_lossy().into_owned(),
            None => source.as_str().to_owned(),
        }
    }
}

/// Cache of one call: each repository is fetched once, each reference resolved once.
#[derive(Debug, Default)]
pub struct SourceCache {
    mirrors: Mutex<HashMap<String, Arc<FetchedMirror>>>,
    commits: Mutex<HashMap<(PathBuf, String), String>>,
    /// Directory of the mirrors.
    dir: PathBuf,
    /// Directory that relative paths of the manifest refer to.
    base: PathBuf,
}

impl SourceCache {
    /// A cache with mirrors in `dir`; relative paths refer to `base`.
    pub fn new(dir: PathBuf, base: PathBuf) -> Self {
        Self {
            dir,
            base,
            ..Self::default()
        }
    }

    /// The repository and base commit of a target; fetches a repository that is not on this machine.
    ///
    /// # Errors
    /// A sentence that says what is wrong with this target; other targets are not affected.
    pub async fn resolve(
        &self,
        source: &TreeSource,
        git_ref: Option<&str>,
        revisions: &[&str],
    ) -> Result<ResolvedSource, String> {
        let (repository, below) = match source {
            TreeSource::Path(path) => self.local(path)?,
            TreeSource::Repo(url) => (self.mirror(url).await?, PathBuf::new()),
        };
        let is_mirror = matches!(source, TreeSource::Repo(_));
        let commit = self.commit(&repository, git_ref, is_mirror).await?;
        let mut resolved = Vec::new();
        for name in revisions {
            resolved.push(self.commit(&repository, Some(name), is_mirror).await?);
        }
        Ok(ResolvedSource {
            repository,
            commit,
            below,
            revisions: resolved,
            local: self.place(source),
        })
    }

    /// The path of a source on this machine.
    fn place(&self, source: &TreeSource) -> Option<PathBuf> {
        let location = match source {
            TreeSource::Path(path) => {
                let path = self.base.join(path);
                return Some(std::path::absolute(&path).unwrap_or(path));
            }
            TreeSource::Repo(url) => self.location(url),
        };
        let path = match location.split_once("://") {
            // `file://HOST/PATH` too: git looks at no host.
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => {
                let path = percent::decode(rest.get(rest.find('/')?..)?);
                PathBuf::from(OsString::from_vec(path))
            }
            None if !has_host(&location) => PathBuf::from(&location),
            _ => return None,
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        let mut with_git = path.clone().into_os_string();
        with_git.push(".git");
        // As git, which adds the ending where there is none.
        Some(match path.exists() {
            true => path,
            false => PathBuf::from(with_git),
        })
    }

    fn local(&self, path: &str) -> Result<(Repository, PathBuf), String> {
        let dir = self.base.join(path);
        let root = dir
            .canonicalize()
            .map_err(|error| format!("{}: {error}", dir.display()))?;
        own_path::exclude_tree(&root);
        let repository = patch::repository(&root).ok_or_else(|| {
            format!(
                "{} is not in a git repository, and jobs run in git worktrees",
                dir.display()
            )
        })?;
        let below = root.strip_prefix(&repository.top).unwrap_or(Path::new("")).to_owned();
        Ok((repository, below))
    }

    /// The mirror of a URL, fetched once per call.
    async fn mirror(&self, url: &str) -> Result<Repository, String> {
        let cell = {
            let mut mirrors = lock(&self.mirrors);
            Arc::clone(mirrors.entry(url.to_owned()).or_default())
        };
        cell.get_or_init(|| self.fetch(url)).await.clone()
    }

    async fn fetch(&self, url: &str) -> Result<Repository, String> {
        let from = self.location(url);
        let digest = sha256_hex(&[from.as_bytes()]);
        let dir = self.dir.join(format!("{}.git", &digest[..24]));
        let said = |error: std::io::Error| format!("the cache {}: {error}", dir.display());
        std::fs::create_dir_all(&self.dir).map_err(said)?;
        let lock = File::create(self.dir.join(format!("{}.lock", &digest[..24]))).map_err(said)?;
        // Wait for another batch that fetches the same repository, without blocking this process.
        let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock))
            .await
            .map_err(|error| error.to_string())?
            .map_err(said)?;
        if !dir.join("HEAD").exists() {
            own_git::lay_out(&dir, false).map_err(said)?;
        }
        let mirror = Repository {
            top: dir.clone(),
            git_dir: dir.clone(),
            common_dir: dir.clone(),
        };
        let mut fetched = fetch_into(&dir, &from, &lock).await?;
        if fetched.is_err() && remove_locks(&dir) {
            fetched = fetch_into(&dir, &from, &lock).await?;
        }
        // The repository answers, so the mirror is damaged, or has ids of the other format.
        if fetched.is_err()
            && let Some(sha256) = has_sha256(&from, &lock).await
            && made_again(&dir, sha256, &from, &lock).await?
        {
            fetched = Ok(());
        }
        fetched.map_err(|why| format!("{url} cannot be fetched: {why}"))?;
        Ok(mirror)
    }

    /// A URL unchanged, or a path made absolute from the manifest's directory.
    fn location(&self, url: &str) -> String {
        match has_host(url) {
            true => url.to_owned(),
            false => self.base.join(url).to_string_lossy().into_owned(),
        }
    }

    async fn commit(&self, repository: &Repository, git_ref: Option<&str>, is_mirror: bool) -> Result<String, String> {
        let key = (repository.git_dir.clone(), git_ref.unwrap_or_default().to_owned());
        if let Some(found) = self.known(&key) {
            return Ok(found);
        }
        let found = match (git_ref, is_mirror) {
            (None, false) => patch::head(repository).await?.ok_or("the repository has no commit")?,
            (None, true) => verified(repository, "refs/overnight/HEAD")
                .await?
                .ok_or("the repository has no default branch")?,
            (Some(name), _) => named(repository, name, is_mirror)
                .await?
                .ok_or_else(|| format!("`{name}` is not a branch, tag or commit of the repository"))?,
        };
        let mut commits = lock(&self.commits);
        commits.insert(key, found.clone());
        Ok(found)
    }

    fn known(&self, key: &(PathBuf, String)) -> Option<String> {
        let commits = lock(&self.commits);
        commits.get(key).cloned()
    }
}

/// Fetches; the inner error is git's message. `lock` is that of the mirror.
async fn fetch_into(dir: &Path, from: &str, lock: &File) -> Result<Result<(), String>, String> {
    let dir = dir.to_string_lossy();
    let mut args = vec![
        "--git-dir",
        dir.as_ref(),
        "fetch",
        "--quiet",
        "--prune",
        "--force",
        "--no-tags",
        "--no-write-fetch-head",
        "--",
        from,
    ];
    args.extend(REFSPECS);
    let printed = unsandboxed::git_as_user(&args, FETCH_TIME, lock).await?;
    Ok(match printed.ok {
        true => Ok(()),
        false => Err(printed.stderr),
    })
}

/// Removes the lock files that a killed git left in a mirror, and says whether there were any. Only who holds the
/// mirror's own lock may do so.
fn remove_locks(dir: &Path) -> bool {
    let mut found = false;
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            // No reference has a name with this ending.
            if kind.is_file() && path.extension().is_some_and(|end| end == "lock") {
                found |= std::fs::remove_file(&path).is_ok();
            } else if kind.is_dir() && (next != dir || entry.file_name() == "refs") {
                open.push(path);
            }
        }
    }
    found
}

/// Fetches into a new mirror, which takes the place of the one at `dir` if that succeeds. Returns whether it does.
async fn made_again(dir: &Path, sha256: bool, from: &str, lock: &File) -> Result<bool, String> {
    let fresh = dir.with_extension("new");
    let said = |error: std::io::Error| format!("the cache {}: {error}", dir.display());
    let removed = |path: &Path| match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(said(error)),
        _ => Ok(()),
    };
    removed(&fresh)?;
    own_git::lay_out(&fresh, sha256).map_err(said)?;
    if fetch_into(&fresh, from, lock).await?.is_err() {
        removed(&fresh)?;
        return Ok(false);
    }
    removed(dir)?;
    std::fs::rename(&fresh, dir).map_err(said)?;
    Ok(true)
}

/// Whether the object ids of a remote repository are SHA-256; `None` if it does not answer or has no default branch.
async fn has_sha256(from: &str, lock: &File) -> Option<bool> {
    // Not the mirror, which may be damaged.
    let scratch = own_git::Scratch::make(false).ok()?;
    let dir = scratch.path().to_string_lossy();
    let args = ["--git-dir", dir.as_ref(), "ls-remote", "--", from, "HEAD"];
    let printed = unsandboxed::git_as_user(&args, unsandboxed::GIT_TIME, lock)
        .await
        .ok()?;
    let text = String::from_utf8_lossy(&printed.stdout);
    match text.split_whitespace().next()?.len() {
        40 => Some(false),
        64 => Some(true),
        _ => None,
    }
}

/// The names in a mirror that a branch, tag or id may mean, in order. A mirror has its branches where a clone has those
/// of `origin`, and the commit of the default branch as `refs/overnight/HEAD`.
fn in_mirror(name: &str) -> Vec<String> {
    if let Some(branch) = name.strip_prefix("refs/heads/") {
        return vec![format!("refs/remotes/origin/{branch}")];
    }
    let name = name.strip_prefix("origin/").unwrap_or(name);
    if let Some(steps) = name.strip_prefix("HEAD")
        && (steps.is_empty() || steps.starts_with(['~', '^']))
    {
        return vec![format!("refs/overnight/HEAD{steps}")];
    }
    let mut tries = vec![format!("refs/remotes/origin/{name}"), format!("refs/tags/{name}")];
    let is_id = name.len() >= 4 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id || name.contains('/') {
        tries.push(name.to_owned());
    }
    tries
}

/// The commit of a branch, tag or id.
async fn named(repository: &Repository, name: &str, is_mirror: bool) -> Result<Option<String>, String> {
    let tries = match is_mirror {
        true => in_mirror(name),
        false => {
            repository.check()?;
            vec![name.to_owned()]
        }
    };
    for name in tries {
        if let Some(found) = verified(repository, &name).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

async fn verified(repository: &Repository, name: &str) -> Result<Option<String>, String> {
    let dir = repository.git_dir.to_string_lossy();
    let object = format!("{name}^{{commit}}");
    let args = ["--git-dir", dir.as_ref(), "rev-parse", "--verify", "--quiet", &object];
    let printed = own_git::git(&args, Path::new("/"), &[], None, GitAccess::Read).await?;
    let id = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    Ok((printed.ok && !id.is_empty()).then_some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn git(dir: &Path, args: &[&str]) -> String {
        let identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"];
        let args = [identity.as_slice(), args].concat();
        let printed = unsandboxed::git(&args, dir, &[], None).await.unwrap();
        assert!(printed.ok, "{args:?}: {}", printed.stderr);
        String::from_utf8(printed.stdout).unwrap().trim().to_owned()
    }

    async fn repository(dir: &Path, format: &str) {
        std::fs::create_dir_all(dir).unwrap();
        let format = format!("--object-format={format}");
        git(dir, &["init", "-q", "-b", "main", format.as_str()]).await;
        git(dir, &["commit", "-q", "--allow-empty", "-m", "base"]).await;
    }

    /// As a call resolves the repository at `origin`, with its mirror below `dir`.
    async fn resolved(dir: &Path, origin: &Path, git_ref: Option<&str>) -> Result<ResolvedSource, String> {
        let cache = SourceCache::new(dir.join("mirrors"), dir.to_owned());
        let source = TreeSource::Repo(origin.to_string_lossy().into_owned());
        cache.resolve(&source, git_ref, &[]).await
    }

    #[tokio::test]
    async fn a_mirror_is_made_again_only_for_another_object_format() {
        let dir = tempfile::tempdir().unwrap();
        let (dir, origin) = (dir.path(), dir.path().join("algorithms/origin"));
        repository(&origin, "sha1").await;
        let first = resolved(dir, &origin, None).await.unwrap();
        assert_eq!(first.commit.len(), 40);
        let kept = first.repository.git_dir.join("kept");
        std::fs::write(&kept, "").unwrap();
        std::fs::remove_dir_all(&origin).unwrap();
        let why = resolved(dir, &origin, None).await.unwrap_err();
        assert!(why.contains("cannot be fetched") && kept.exists(), "{why}");
        for (format, length) in [("sha256", 64), ("sha1", 40)] {
            repository(&origin, format).await;
            assert_eq!(resolved(dir, &origin, None).await.unwrap().commit.len(), length);
            std::fs::remove_dir_all(&origin).unwrap();
        }
    }

    #[tokio::test]
    async fn a_mirror_that_a_killed_git_left_behind_is_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let (dir, origin) = (dir.path(), dir.path().join("origin"));
        repository(&origin, "sha1").await;
        let mirror = resolved(dir, &origin, None).await.unwrap().repository.git_dir;
        git(&origin, &["commit", "-q", "--allow-empty", "-m", "more"]).await;
        for left in ["refs/remotes/origin/main.lock", "packed-refs.lock"] {
            std::fs::write(mirror.join(left), "").unwrap();
        }
        let kept = mirror.join("kept");
        std::fs::write(&kept, "").unwrap();
        let new = git(&origin, &["rev-parse", "main"]).await;
        assert_eq!(resolved(dir, &origin, None).await.unwrap().commit, new);
        assert!(kept.exists(), "what is whole is not fetched again");
        for lost in ["config", "objects"] {
            let lost = mirror.join(lost);
            if lost.is_dir() {
                std::fs::remove_dir_all(&lost).unwrap();
            } else {
                std::fs::remove_file(&lost).unwrap();
            }
            assert_eq!(resolved(dir, &origin, None).await.unwrap().commit, new);
        }
    }

    #[tokio::test]
    async fn a_mirror_knows_the_names_that_the_repository_knows() {
        let dir = tempfile::tempdir().unwrap();
        let (dir, origin) = (dir.path(), dir.path().join("origin"));
        repository(&origin, "sha1").await;
        git(&origin, &["tag", "v1"]).await;
        git(&origin, &["commit", "-q", "--allow-empty", "-m", "more"]).await;
        let (new, old) = (
            git(&origin, &["rev-parse", "main"]).await,
            git(&origin, &["rev-parse", "v1"]).await,
        );
        for (name, commit) in [
            ("HEAD", &new),
            ("HEAD~1", &old),
            ("main", &new),
            ("main^", &old),
            ("origin/main", &new),
            ("refs/heads/main", &new),
            ("v1", &old),
            ("refs/tags/v1", &old),
            (old.as_str(), &old),
        ] {
            let found = resolved(dir, &origin, Some(name)).await.unwrap();
            assert_eq!(&found.commit, commit, "{name}");
        }
        for name in ["refs/heads/v1", "HEADER"] {
            let why = resolved(dir, &origin, Some(name)).await.unwrap_err();
            assert!(why.contains("is not a branch, tag or commit"), "{why}");
        }
    }
}
