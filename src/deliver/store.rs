//! The private bare repository of a delivery: fetches, applies, merges, commits and pushes in it. Objects of a local
//! repository are borrowed as alternates; its configuration, hooks and attributes are not read.

use super::DeliverStop;
use super::address::RemoteAddress;
use super::own_commits::{BranchState, HeldPatch, RawCommit};
use super::wait_budget::WaitBudget;
use crate::base::ids::is_object_id;
use crate::base::quote::first_names;
use crate::process::own_git::{self, GitAccess, Scratch};
use crate::process::unsandboxed::{GIT_TIME, Printed};
use crate::process::user_git;
use crate::workspace::patch::{Repository, changes, cr_lines};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

// References in the store.
const KNOWN: &str = "refs/overnight/known";
const BASE: &str = "refs/overnight/base";
const BRANCH: &str = "refs/overnight/branch";

/// Limit of commits above the base that are examined; a branch with more counts as a person's.
const COMMITS: usize = 50;
/// Limit of paths in one command line of git.
const AT_ONCE: usize = 500;
/// Limit of conflicting paths that are named.
const NAMED: usize = 10;
/// Time limit of one request to a remote. Less than [`GIT_TIME`], which would be reported as a failure of git.
const REACH_TIME: Duration = GIT_TIME.saturating_sub(Duration::from_secs(5));
/// The header of a mail that says how its body is encoded.
const ENCODING: &[u8] = b"Content-Transfer-Encoding:";
/// Length of a line of base64 in a mail, in bytes.
const MAIL_LINE: usize = 76;
/// Length limit of a message of git that is passed on, in bytes.
const SAID: usize = 600;

/// The store of one delivery; removed on drop.
pub struct DeliveryStore<'a> {
    scratch: Scratch,
    /// Object directory of the local repository.
    borrowed: Option<PathBuf>,
    /// The user's environment, for git's transports and for committing.
    user: Vec<(String, String)>,
    /// Masks secrets in git's messages.
    quiet: crate::base::secret::Redactor,
    /// Limits the time of requests to remotes.
    wait_budget: &'a WaitBudget,
}

/// The requested references that a remote has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The branch that `HEAD` names.
    pub default: Option<String>,
    /// Commits of the branches, by name without `refs/heads/`.
    pub branches: Vec<(String, String)>,
}

impl Listed {
    /// The commit of a branch.
    pub fn commit(&self, branch: &str) -> Option<&str> {
        let mut branches = self.branches.iter();
        branches
            .find(|(name, _)| name == branch)
            .map(|(_, commit)| commit.as_str())
    }
}

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeResult {
    Tree(String),
    /// The conflicting paths.
    Conflict(Vec<String>),
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    Done,
    /// The branch has moved, or so it seems: observe again. Holds the server's text, because servers use the same words
    /// for a branch that they can never create.
    Moved(String),
    /// The server refused: a protected branch, a hook, or no write permission.
    Refused(String),
    /// The server was not reached or failed.
    Unreachable(String),
}

/// Why a request to a remote failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteError {
    /// Retrying may help.
    Unreachable(String),
    /// No such repository, no read permission, or git itself failed.
    Environment(String),
}

impl<'a> DeliveryStore<'a> {
    /// Creates an empty store. `sha256`: the object format. `repository`: whose objects are borrowed; it has
    /// passed [`Repository::check`].
    ///
    /// # Errors
    /// [`DeliverStop::Environment`]: no temporary directory, or git cannot read the repository.
    pub fn open(
        sha256: bool,
        repository: Option<&Repository>,
        user: Vec<(String, String)>,
        quiet: crate::base::secret::Redactor,
        wait_budget: &'a WaitBudget,
    ) -> Result<Self, DeliverStop> {
        let scratch = Scratch::make(sha256).map_err(DeliverStop::Environment)?;
        let borrowed = repository.map(Repository::objects);
        if let Some(commits) = repository.and_then(Repository::shallow) {
            scratch.set_shallow(&commits).map_err(DeliverStop::Environment)?;
        }
        // git splits the list of alternates at colons and newlines, and unquotes entries in quotation marks.
        let odd = |path: &PathBuf| path.to_string_lossy().contains([':', '"', '\n']);
        if borrowed.as_ref().is_some_and(odd) {
            return Err(DeliverStop::Environment(
                "the path of the repository contains a colon, a quotation mark or a newline".to_owned(),
            ));
        }
        Ok(Self {
            scratch,
            borrowed,
            user,
            quiet,
            wait_budget,
        })
    }

    fn env(&self) -> Vec<(String, String)> {
        let mut env = self.scratch.env();
        let index = self.scratch.path().join("delivery.index");
        env.push(("GIT_INDEX_FILE".to_owned(), index.to_string_lossy().into_owned()));
        if let Some(objects) = &self.borrowed {
            let objects = objects.to_string_lossy().into_owned();
            env.push(("GIT_ALTERNATE_OBJECT_DIRECTORIES".to_owned(), objects));
        }
        for who in ["AUTHOR", "COMMITTER"] {
            env.push((format!("GIT_{who}_NAME"), "overnight".to_owned()));
            env.push((format!("GIT_{who}_EMAIL"), "overnight@localhost".to_owned()));
            env.push((format!("GIT_{who}_DATE"), "@1 +0000".to_owned()));
        }
        env
    }

    /// Runs git on the store alone: it starts no program, opens no connection and writes nowhere else.
    async fn git(&self, args: &[&str], stdin: Option<&[u8]>) -> Result<Printed, DeliverStop> {
        let places = [self.scratch.path().to_owned()];
        let done = own_git::git(args, self.scratch.path(), &self.env(), stdin, GitAccess::Write(&places)).await;
        done.map_err(DeliverStop::Environment)
    }

    async fn text(&self, args: &[&str], stdin: Option<&[u8]>) -> Result<String, DeliverStop> {
        let printed = self.git(args, stdin).await?;
        if !printed.ok {
            let what = args.first().unwrap_or(&"");
            return Err(DeliverStop::Environment(format!(
                "git {what}: {}",
                self.said(&printed.stderr)
            )));
        }
        Ok(String::from_utf8_lossy(&printed.stdout).trim_end().to_owned())
    }

    /// git's message as one line, without secrets.
    fn said(&self, text: &str) -> String {
        super::message::one_line(&self.quiet.redact(text), SAID)
    }

    /// Whether an object exists.
    async fn has(&self, object: &str) -> Result<bool, DeliverStop> {
        Ok(self.git(&["cat-file", "-e", object], None).await?.ok)
    }

    /// Runs git with the user's configuration, for this remote.
    async fn reach(&self, args: &[&str], remote: &RemoteAddress) -> Result<Printed, RemoteError> {
        let limit = self.wait_budget.limit(REACH_TIME, "the git server");
        let limit = limit.map_err(|stop| RemoteError::Unreachable(stop.to_string()))?;
        let mut env = self.user.clone();
        env.extend(
            self.env()
                .into_iter()
                .filter(|(name, _)| !name.starts_with("GIT_AUTHOR_") && !name.starts_with("GIT_COMMITTER_")),
        );
        let mut places = vec![self.scratch.path().to_owned()];
        // For a directory, git starts the server side on this machine.
        places.extend(remote.directory.clone());
        // This ends the HTTP helper of git where it outlives git. Longer than the limit, so that the
        // limit is what ends the request.
        let silence = format!("http.lowSpeedTime={}", limit.as_secs().saturating_add(2));
        let args = [&["-c", "http.lowSpeedLimit=1", "-c", silence.as_str()][..], args].concat();
        let began = Instant::now();
        let asked = user_git::git(&args, self.scratch.path(), &env, None, Some(GitAccess::Reach(&places)));
        let Ok(done) = tokio::time::timeout(limit, asked).await else {
            self.wait_budget.charge(began.elapsed(), true);
            return Err(RemoteError::Unreachable(format!(
                "the git server: no answer within {:.1} s",
                limit.as_secs_f64()
            )));
        };
        let answered = |printed: &Printed| printed.ok || is_answer(&self.said(&printed.stderr));
        self.wait_budget
            .charge(began.elapsed(), !done.as_ref().is_ok_and(answered));
        done.map_err(RemoteError::Environment)
    }

    fn trouble(&self, printed: &Printed) -> RemoteError {
        let said = self.said(&printed.stderr);
        match is_passing(&said) {
            true => RemoteError::Unreachable(format!("the git server: {said}")),
            false => RemoteError::Environment(format!("the git server: {said}")),
        }
    }

    /// Lists these branches of the remote.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn list(&self, remote: &RemoteAddress, branches: &[&str]) -> Result<Listed, RemoteError> {
        let names: Vec<String> = branches.iter().map(|branch| format!("refs/heads/{branch}")).collect();
        let mut args = vec!["ls-remote", "--symref", "--", &remote.url, "HEAD"];
        args.extend(names.iter().map(String::as_str));
        let printed = self.reach(&args, remote).await?;
        if !printed.ok {
            return Err(self.trouble(&printed));
        }
        let mut listed = Listed::default();
        for line in String::from_utf8_lossy(&printed.stdout).lines() {
            let Some((what, name)) = line.split_once('\t') else {
                continue;
            };
            if let (Some(target), "HEAD") = (what.strip_prefix("ref: refs/heads/"), name) {
                listed.default = Some(target.to_owned());
            } else if let (true, Some(branch)) = (is_object_id(what), name.strip_prefix("refs/heads/")) {
                listed.branches.push((branch.to_owned(), what.to_owned()));
            }
        }
        Ok(listed)
    }

    /// Fetches the base, and the branch if there is one, into the store. `base` and `branch` are names on their
    /// remotes.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn fetch(&self, remote: &RemoteAddress, refs: &[(&str, FetchedRef)]) -> Result<(), RemoteError> {
        let specs: Vec<String> = refs
            .iter()
            .map(|(branch, to)| format!("+refs/heads/{branch}:{}", to.reference()))
            .collect();
        let mut args = vec![
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--",
            &remote.url,
        ];
        args.extend(specs.iter().map(String::as_str));
        let printed = self.reach(&args, remote).await?;
        if printed.ok {
            Ok(())
        } else {
            Err(self.trouble(&printed))
        }
    }

    /// Ensures that the run's base commit is present: in the borrowed objects, or fetched from the remote.
    ///
    /// # Errors
    /// [`DeliverStop::Refused`] when no repository has it, [`DeliverStop::Service`] when the remote does not answer.
    pub async fn need_base(&self, base: &str, remote: Option<&RemoteAddress>) -> Result<(), DeliverStop> {
        if !is_object_id(base) {
            return Err(DeliverStop::Refused("the run's base is not a commit id".to_owned()));
        }
        let tree = format!("{base}^{{tree}}");
        if !self.has(&tree).await?
            && let Some(remote) = remote
        {
            let args = [
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                "--depth=1",
                "--",
                &remote.url,
                base,
            ];
            match self.reach(&args, remote).await {
                Err(RemoteError::Unreachable(why)) => return Err(DeliverStop::Service(why)),
                // Whether it arrived is checked below: a server need not serve a commit that no branch names.
                Ok(_) | Err(RemoteError::Environment(_)) => {}
            }
        }
        match self.has(&tree).await? {
            true => Ok(()),
            false => Err(DeliverStop::Refused(format!(
                "neither the repository nor the remote has the run's base commit {base}: name a repository that has it with --repo"
            ))),
        }
    }

    /// Creates a reference to `base` when it is borrowed, so that the server need not send its objects.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn know(&self, base: &str) -> Result<(), DeliverStop> {
        if self.borrowed.is_some() && is_object_id(base) && self.has(&format!("{base}^{{commit}}")).await? {
            self.text(&["update-ref", KNOWN, base], None).await?;
        }
        Ok(())
    }

    /// The commit that was fetched as the base.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn fetched(&self, which: FetchedRef) -> Result<String, DeliverStop> {
        self.text(
            &["rev-parse", "--verify", &format!("{}^{{commit}}", which.reference())],
            None,
        )
        .await
    }

    /// A submodule of the commit whose files the patch changes.
    async fn submodule_of(&self, base: &str, patch: &[u8]) -> Result<Option<String>, DeliverStop> {
        let printed = self.git(&["apply", "--numstat", "-z", "-"], Some(patch)).await?;
        let mut above: BTreeSet<String> = BTreeSet::new();
        for entry in String::from_utf8_lossy(&printed.stdout).split('\0') {
            let path = entry.splitn(3, '\t').nth(2).unwrap_or_default();
            above.extend(
                path.match_indices('/')
                    .filter_map(|(at, _)| path.get(..at))
                    .map(str::to_owned),
            );
        }
        let above: Vec<&str> = above.iter().map(String::as_str).collect();
        for paths in above.chunks(AT_ONCE) {
            let listed = self
                .text(&[&["ls-tree", "-z", base, "--"][..], paths].concat(), None)
                .await?;
            let found = listed.split('\0').find_map(|line| line.strip_prefix("160000 "));
            if let Some((_, path)) = found.and_then(|line| line.split_once('\t')) {
                return Ok(Some(path.to_owned()));
            }
        }
        Ok(None)
    }

    /// The paths of the patch whose old content the commit does not have.
    async fn differing(&self, base: &str, patch: &[u8]) -> Result<Vec<String>, DeliverStop> {
        let old = old_files(patch);
        let paths: Vec<&str> = old.keys().map(String::as_str).collect();
        let mut committed: BTreeMap<String, String> = BTreeMap::new();
        for paths in paths.chunks(AT_ONCE) {
            let listed = self
                .text(&[&["ls-tree", "-z", base, "--"][..], paths].concat(), None)
                .await?;
            for (about, path) in listed.split('\0').filter_map(|line| line.split_once('\t')) {
                let id = about.rsplit(' ').next().unwrap_or_default();
                committed.insert(path.to_owned(), id.to_owned());
            }
        }
        let differs = |(path, id): &(String, String)| match committed.get(path) {
            Some(there) => there != id,
            None => id.contains(|digit| digit != '0'),
        };
        Ok(old.into_iter().filter(differs).map(|(path, _)| path).collect())
    }

    /// The tree that results from applying the patch to a commit.
    ///
    /// # Errors
    /// [`DeliverStop::Refused`] when the patch does not apply: the tree differed from the commit when the run began, or the
    /// changed files are those of a submodule.
    pub async fn apply(&self, base: &str, patch: &[u8], dirty: bool) -> Result<String, DeliverStop> {
        self.text(&["read-tree", base], None).await?;
        let args = ["apply", "--cached", "--binary", "--whitespace=nowarn", "-"];
        let printed = self.git(&args, Some(patch)).await?;
        if !printed.ok {
            if let Some(submodule) = self.submodule_of(base, patch).await? {
                return Err(DeliverStop::Refused(format!(
                    "the patch changes files of the submodule {submodule}, which is delivered in its own repository: make the change \
                     in a run whose workspace is a clone of that repository"
                )));
            }
            let differing = self.differing(base, patch).await?;
            let why = match (differing.is_empty(), dirty) {
                (false, _) => format!(
                    "when the run began, files differed from its base commit, and the patch does not apply without that: {} \
                     (uncommitted changes, or files that git stores in another form, as those of Git LFS)",
                    self.said(&first_names(&differing, NAMED))
                ),
                (true, true) => {
                    "the patch does not apply to the run's base commit, from which the tree differed when the run began"
                        .to_owned()
                }
                (true, false) => "the patch does not apply to the run's base commit".to_owned(),
            };
            return Err(DeliverStop::Refused(format!("{why}: {}", self.said(&printed.stderr))));
        }
        self.text(&["write-tree"], None).await
    }

    /// The tree of a commit.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn tree_of(&self, commit: &str) -> Result<String, DeliverStop> {
        self.text(&["rev-parse", "--verify", &format!("{commit}^{{tree}}")], None)
            .await
    }

    /// A three-way merge of the patched `base` with the commit `onto`, independent of their histories.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn merge(&self, base: &str, patched: &str, onto: &str) -> Result<MergeResult, DeliverStop> {
        let base = self.tree_of(base).await?;
        let onto = self.tree_of(onto).await?;
        if base == onto {
            return Ok(MergeResult::Tree(patched.to_owned()));
        }
        // These two commits give git the merge base to use.
        let root = self.text(&["commit-tree", &base, "-m", "base"], None).await?;
        let theirs = self
            .text(&["commit-tree", &onto, "-p", &root, "-m", "onto"], None)
            .await?;
        let ours = self
            .text(&["commit-tree", patched, "-p", &root, "-m", "patched"], None)
            .await?;
        let args = [
            "merge-tree",
            "--write-tree",
            "--name-only",
            "--no-messages",
            &theirs,
            &ours,
        ];
        let printed = self.git(&args, None).await?;
        let text = String::from_utf8_lossy(&printed.stdout);
        let mut lines = text.lines();
        let tree = lines.next().unwrap_or_default().to_owned();
        match (printed.ok, is_object_id(&tree)) {
            (true, true) => Ok(MergeResult::Tree(tree)),
            (false, true) => {
                let mut paths: Vec<String> = lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect();
                paths.truncate(NAMED);
                Ok(MergeResult::Conflict(paths))
            }
            _ => Err(DeliverStop::Environment(format!(
                "git merge-tree: {}",
                self.said(&printed.stderr)
            ))),
        }
    }

    /// The paths that differ between two trees.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn changed(&self, from: &str, to: &str) -> Result<Vec<String>, DeliverStop> {
        let text = self
            .text(
                &["diff-tree", "-r", "-z", "--no-renames", "--name-only", from, to],
                None,
            )
            .await?;
        Ok(text
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// Added and removed lines between two trees, and the first file whose content changed and is not text, so that its
    /// lines cannot be counted.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn lines(&self, from: &str, to: &str) -> Result<(u64, u64, Option<String>), DeliverStop> {
        let args = ["diff-tree", "-r", "-z", "--no-renames", "--raw", "--numstat", from, to];
        let unread = || {
            DeliverStop::Environment("git diff-tree printed something other than a list of changed files".to_owned())
        };
        let files = changes(self.text(&args, None).await?.as_bytes(), "").ok_or_else(unread)?;
        let added: u64 = files.iter().filter_map(|file| file.added).sum();
        let removed: u64 = files.iter().filter_map(|file| file.removed).sum();
        let mut uncounted = files.into_iter().find(|file| file.added.is_none());
        if uncounted.is_some() {
            // A binary file that has only moved has no new content.
            let args = ["diff-tree", "-r", "-z", "-M100%", "--raw", "--numstat", from, to];
            let files = changes(self.text(&args, None).await?.as_bytes(), "").ok_or_else(unread)?;
            uncounted = files.into_iter().find(|file| file.added.is_none());
        }
        Ok((added, removed, uncounted.map(|file| file.path)))
    }

    /// Added and removed lines between two trees that end in CR alone, which git does not count.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn cr_lines(&self, from: &str, to: &str) -> Result<u64, DeliverStop> {
        let args = ["diff-tree", "-r", "--no-renames", "-p", "-U0", from, to];
        let printed = self.git(&args, None).await?;
        if !printed.ok {
            let said = self.said(&printed.stderr);
            return Err(DeliverStop::Environment(format!("git diff-tree: {said}")));
        }
        cr_lines(&printed.stdout)
            .ok_or_else(|| DeliverStop::Environment("git diff-tree printed something other than a patch".to_owned()))
    }

    /// `git patch-id --stable`; empty when the patch has none.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn patch_id(&self, patch: &[u8]) -> Result<String, DeliverStop> {
        let text = self.text(&["patch-id", "--stable"], Some(patch)).await?;
        Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
    }

    /// Whether the user's configuration asks for signed commits.
    pub async fn signs(&self) -> bool {
        let mut env = self.user.clone();
        env.extend(self.scratch.env());
        let args = ["config", "--type=bool", "--get", "commit.gpgSign"];
        let printed = user_git::git(&args, self.scratch.path(), &env, None, Some(GitAccess::Read)).await;
        printed.is_ok_and(|printed| printed.ok && printed.stdout.starts_with(b"true"))
    }

    /// Makes a commit under the user's name; with `signed`, signed with the user's key.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`]: git has no user name or cannot sign.
    pub async fn commit(
        &self,
        tree: &str,
        parent: &str,
        message: &str,
        date: Timestamp,
        signed: bool,
    ) -> Result<String, DeliverStop> {
        let ours = |name: &str| name.starts_with("GIT_AUTHOR_") || name.starts_with("GIT_COMMITTER_");
        let mut env = self.user.clone();
        env.extend(self.env().into_iter().filter(|(name, _)| !ours(name)));
        // Author and committer date are equal, so that a later amend or rebase is detected.
        for who in ["AUTHOR", "COMMITTER"] {
            env.push((format!("GIT_{who}_DATE"), format!("@{} +0000", date.as_second())));
        }
        let mut args = vec!["commit-tree", tree, "-p", parent, "-F", "-"];
        if signed {
            args.push("-S");
        }
        let places = [self.scratch.path().to_owned()];
        // Signing needs agents and key files, and reads only the text of the commit.
        let may = (!signed).then_some(GitAccess::Write(&places));
        let done = user_git::git(&args, self.scratch.path(), &env, Some(message.as_bytes()), may).await;
        let printed = done.map_err(DeliverStop::Environment)?;
        let commit = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
        if printed.ok && is_object_id(&commit) {
            return Ok(commit);
        }
        let said = self.said(&printed.stderr);
        Err(DeliverStop::Environment(match said.contains("tell me who you are") || said.contains("empty ident") {
            true => "git has no name and address for the commit: set `git config --global user.name` and `user.email`, or GIT_AUTHOR_NAME, \
                     GIT_AUTHOR_EMAIL, GIT_COMMITTER_NAME and GIT_COMMITTER_EMAIL"
                .to_owned(),
            false => format!("the commit cannot be made: {said}"),
        }))
    }

    /// The state of a branch relative to a base: who made the commits above it.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn state(&self, branch: Option<&str>, base: &str) -> Result<BranchState, DeliverStop> {
        let Some(commit) = branch.map(str::to_owned) else {
            return Ok(BranchState::Absent);
        };
        let count = format!("--max-count={}", COMMITS + 1);
        let not_base = format!("^{base}");
        let listed = self.text(&["rev-list", &count, &commit, &not_base], None).await?;
        let above: Vec<&str> = listed.lines().collect();
        let Some(tip) = above.first() else {
            let raw = RawCommit::parse(&self.text(&["cat-file", "commit", &commit], None).await?);
            return Ok(match raw.foreign() {
                None => BranchState::Behind { commit },
                Some(_) => BranchState::Unmade { commit },
            });
        };
        if above.len() > COMMITS {
            let why = format!("it has more than {COMMITS} commits");
            return Ok(BranchState::Foreign { commit, why });
        }
        let mut patch = HeldPatch::default();
        for id in &above {
            let raw = RawCommit::parse(&self.text(&["cat-file", "commit", id], None).await?);
            if let Some(why) = raw.foreign() {
                let why = format!("commit {}: {why}", id.get(..12).unwrap_or(id));
                return Ok(BranchState::Foreign { commit, why });
            }
            if id == tip {
                patch = HeldPatch::of(&raw.message);
            }
        }
        Ok(BranchState::Ours { commit, patch })
    }

    /// Pushes a commit to a branch with a lease: only if the branch still is at the observed commit (`None`: does not
    /// exist).
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git cannot be run.
    pub async fn push(
        &self,
        remote: &RemoteAddress,
        branch: &str,
        commit: &str,
        seen: Option<&str>,
    ) -> Result<Pushed, DeliverStop> {
        let lease = format!("--force-with-lease=refs/heads/{branch}:{}", seen.unwrap_or_default());
        let spec = format!("{commit}:refs/heads/{branch}");
        let args = [
            "push",
            "--porcelain",
            "--no-verify",
            "--no-signed",
            &lease,
            "--",
            &remote.url,
            &spec,
        ];
        let printed = match self.reach(&args, remote).await {
            Ok(printed) => printed,
            Err(RemoteError::Unreachable(why)) => return Ok(Pushed::Unreachable(why)),
            Err(RemoteError::Environment(why)) => return Err(DeliverStop::Environment(why)),
        };
        if printed.ok {
            return Ok(Pushed::Done);
        }
        let stdout = String::from_utf8_lossy(&printed.stdout);
        let line = stdout.lines().find(|line| line.starts_with('!')).unwrap_or_default();
        let ending = line.rsplit('\t').next().unwrap_or_default();
        if line.is_empty() {
            return Ok(match self.trouble(&printed) {
                RemoteError::Unreachable(why) => Pushed::Unreachable(why),
                RemoteError::Environment(why) => Pushed::Refused(why),
            });
        }
        // Messages for a failed lease, of git itself and of servers.
        let moved = [
            "(stale info)",
            "(fetch first)",
            "(non-fast-forward)",
            "cannot lock ref",
            "failed to update ref",
            "reference already exists",
            "incorrect old value",
        ];
        let remote_says: Vec<&str> = printed
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix("remote:"))
            .collect();
        let said = self.said(&format!("{ending} {}", remote_says.join(" ")));
        let why = format!("the git server refuses the push: {said}");
        Ok(match moved.iter().any(|word| ending.contains(word)) {
            true => Pushed::Moved(why),
            false => Pushed::Refused(why),
        })
    }

    /// The commit as a mail message for `git am`.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn mail(&self, commit: &str) -> Result<Vec<u8>, DeliverStop> {
        let args = [
            "format-patch",
            "--stdout",
            "--binary",
            "--full-index",
            "--no-signature",
            "--no-renames",
            "-1",
            commit,
        ];
        let printed = self.git(&args, None).await?;
        match printed.ok {
            true => Ok(with_line_ends(printed.stdout)),
            false => Err(DeliverStop::Environment(format!(
                "git format-patch: {}",
                self.said(&printed.stderr)
            ))),
        }
    }

    /// A pack of the objects that one commit has and another does not.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] when git fails.
    pub async fn pack(&self, commit: &str, without: &str) -> Result<Vec<u8>, DeliverStop> {
        let wanted = format!("{commit}\n^{without}\n");
        let args = ["pack-objects", "--revs", "--stdout", "--quiet", "--threads=1"];
        let printed = self.git(&args, Some(wanted.as_bytes())).await?;
        match printed.ok {
            true => Ok(printed.stdout),
            false => Err(DeliverStop::Environment(format!(
                "git pack-objects: {}",
                self.said(&printed.stderr)
            ))),
        }
    }
}

/// What is fetched, and its reference in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchedRef {
    Base,
    Branch,
}

impl FetchedRef {
    fn reference(self) -> &'static str {
        match self {
            Self::Base => BASE,
            Self::Branch => BRANCH,
        }
    }
}

/// The ids of the old contents in a patch, by path; zeros where there was no file. Without files whose content the patch
/// does not tell (only moved, or only with another mode), and without names that are not UTF-8.
fn old_files(patch: &[u8]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut path = None;
    for line in patch.split(|byte| *byte == b'\n') {
        // Lines of a content begin with a sign, and those of a binary one have no blanks.
        if let Some(names) = line.strip_prefix(b"diff --git ") {
            path = old_path(names);
        } else if let Some(name) = line.strip_prefix(b"rename from ") {
            path = unquoted(name);
        } else if let Some(ids) = line.strip_prefix(b"index ")
            && let Some(path) = path.take()
        {
            let ids = String::from_utf8_lossy(ids);
            let old = ids.split("..").next().unwrap_or_default();
            // A file that becomes a link is deleted and then added.
            found.entry(path).or_insert_with(|| old.to_owned());
        }
    }
    found
}

/// The path in `a/PATH b/PATH`.
fn old_path(names: &[u8]) -> Option<String> {
    let quoted = memchr::memmem::find(names, b" \"b/").filter(|_| names.starts_with(b"\""));
    let end = quoted.unwrap_or(names.len() / 2);
    let path = unquoted(names.get(..end)?)?;
    path.strip_prefix("a/").map(str::to_owned)
}

/// A name as git prints it: in quotation marks if it has other characters than printable ASCII.
fn unquoted(name: &[u8]) -> Option<String> {
    let Some(quoted) = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")) else {
        return String::from_utf8(name.to_vec()).ok();
    };
    let mut plain = Vec::with_capacity(quoted.len());
    let mut rest = quoted.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let escaped = rest.next()?;
        plain.push(match escaped {
            b'a' => 0x07,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'r' => b'\r',
            b'0'..=b'3' => {
                let digits = [escaped, rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 8).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(plain).ok()
}

/// The mail with its body in base64 if lines of it end in CR LF: `git am` takes the CR for a part of the transport and
/// drops it, unless it is encoded.
fn with_line_ends(mail: Vec<u8>) -> Vec<u8> {
    let Some(end) = memchr::memmem::find(&mail, b"\n\n") else {
        return mail;
    };
    let (head, body) = mail.split_at(end + 1);
    let body = body.strip_prefix(b"\n").unwrap_or(body);
    if memchr::memmem::find(body, b"\r\n").is_none() {
        return mail;
    }
    let lines: Vec<&[u8]> = head.split_inclusive(|byte| *byte == b'\n').collect();
    let has = |name: &[u8]| lines.iter().any(|line| line.starts_with(name));
    let mut encoded: Vec<u8> = lines
        .iter()
        .filter(|line| !line.starts_with(ENCODING))
        .flat_map(|line| line.iter().copied())
        .collect();
    if !has(b"MIME-Version:") {
        encoded.extend_from_slice(b"MIME-Version: 1.0\n");
    }
    if !has(b"Content-Type:") {
        encoded.extend_from_slice(b"Content-Type: text/plain; charset=UTF-8\n");
    }
    encoded.extend_from_slice(ENCODING);
    encoded.extend_from_slice(b" base64\n\n");
    for line in STANDARD.encode(body).as_bytes().chunks(MAIL_LINE) {
        encoded.extend_from_slice(line);
        encoded.push(b'\n');
    }
    encoded
}

/// git's message without the addresses and paths in it, which git writes in quotation marks: a repository may be named
/// like a failure.
fn without_names(said: &str) -> String {
    let mut kept = String::with_capacity(said.len());
    let mut rest = said;
    // A mark within a word is an apostrophe.
    while let Some((before, quoted)) = rest.split_once(" '") {
        kept.push_str(before);
        kept.push(' ');
        rest = quoted.split_once('\'').map_or(quoted, |(_, after)| after);
    }
    kept.push_str(rest);
    let words = kept.split_whitespace().filter(|word| !word.contains("://"));
    words.collect::<Vec<_>>().join(" ")
}

/// Failures that another attempt does not change.
const LASTING: [&str; 11] = [
    // Including the words before the digits: a port in an address may have the same digits.
    "returned error: 401",
    "returned error: 403",
    "returned error: 404",
    "authentication failed",
    "could not read username",
    "could not read password",
    "permission denied",
    "not found",
    "does not appear to be a git repository",
    "certificate",
    "host key verification",
];

/// What a server says that answers: it does not take this push, or does not have what is asked for.
const REFUSALS: [&str; 4] = [
    "failed to push some refs",
    "not our ref",
    "couldn't find remote ref",
    "server does not allow request",
];

/// Whether git's message, of a request that failed, tells of an answer of the server or of this machine. What is not
/// known counts as none.
fn is_answer(said: &str) -> bool {
    let plain = without_names(&said.to_ascii_lowercase());
    LASTING.iter().chain(&REFUSALS).any(|word| plain.contains(word)) && !is_passing(said)
}

/// Whether git's message is a transient failure: the server was not reached, or failed.
fn is_passing(said: &str) -> bool {
    let said = without_names(&said.to_ascii_lowercase());
    let passing = [
        "the requested url returned error: 5",
        "the requested url returned error: 429",
        "could not connect",
        "couldn't connect",
        "failed to connect",
        "unable to connect",
        "connection refused",
        "connection reset",
        "timed out",
        "connection timeout",
        "timeout was reached",
        // What curl says when a server is silent for the time of `http.lowSpeedTime`.
        "operation too slow",
        "could not resolve host",
        "couldn't resolve host",
        "temporary failure in name resolution",
        "the remote end hung up",
        "early eof",
        "unexpected disconnect",
        "empty reply from server",
        "rpc failed",
        "gnutls",
        "took longer than",
    ];
    !LASTING.iter().any(|word| said.contains(word)) && passing.iter().any(|word| said.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_contents_of_a_patch_are_known_by_path() {
        let patch = "diff --git a/x b/y b/x b/y\nindex 11..22 100644\n--- a/x b/y\n+++ b/x b/y\n@@ -1 +1 @@\n-index 9..9\n+rename from q\n\
            diff --git \"a/\\303\\251\\\"\\t b\" \"b/\\303\\251\\\"\\t b\"\nnew file mode 100644\nindex 00..33\n\
            diff --git a/old b/new\nsimilarity index 90%\nrename from old\nrename to new\nindex 44..55 100644\n\
            diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n\
            diff --git a/t b/t\ndeleted file mode 100644\nindex 66..00\n\
            diff --git a/t b/t\nnew file mode 120000\nindex 00..77\n\
            diff --git \"a/\\377\" \"b/\\377\"\nindex 88..99 100644\n";
        let found: Vec<(String, String)> = old_files(patch.as_bytes()).into_iter().collect();
        let expected = [("old", "44"), ("t", "66"), ("x b/y", "11"), ("\u{e9}\"\t b", "00")];
        assert_eq!(found, expected.map(|(path, id)| (path.to_owned(), id.to_owned())));
    }

    #[test]
    fn troubles_that_pass() {
        for (said, passes) in [
            (
                "fatal: unable to access 'http://h:40149/': The requested URL returned error: 503",
                true,
            ),
            (
                "fatal: unable to access 'http://h/': The requested URL returned error: 403",
                false,
            ),
            (
                "fatal: unable to access 'http://h/': Failed to connect to h port 80 after 0 ms: Couldn't connect to server",
                true,
            ),
            (
                "fatal: could not read Username for 'http://h': terminal prompts disabled",
                false,
            ),
            ("fatal: repository 'http://h/x/' not found", false),
            (
                "fatal: unable to access 'https://h/o/certificate-manager.git/': Failed to connect to h port 443",
                true,
            ),
            ("fatal: couldn't resolve host 'not found'", true),
            ("fatal: the remote end hung up unexpectedly", true),
            (
                "fatal: unable to access 'http://h/': Operation too slow. Less than 1 bytes/sec transferred the last 3 seconds",
                true,
            ),
            ("fatal: unable to access 'https://h/': SSL connection timeout", true),
            ("error: something else", false),
        ] {
            assert_eq!(is_passing(said), passes, "{said}");
        }
    }

    #[test]
    fn only_known_answers_count_as_answers() {
        for (said, answers) in [
            ("fatal: repository 'http://h/x/' not found", true),
            ("error: failed to push some refs to 'http://h/'", true),
            (
                "fatal: the remote end hung up unexpectedly error: failed to push some refs to 'http://h/'",
                false,
            ),
            ("fatal: remote error: upload-pack: not our ref 1234", true),
            ("fatal: unable to access 'http://h/': Operation too slow.", false),
            ("error: something else", false),
            ("", false),
        ] {
            assert_eq!(is_answer(said), answers, "{said}");
        }
    }
}
