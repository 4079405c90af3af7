//! One delivery: observes branch and request, decides, pushes, opens or updates, and observes again after a concurrent
//! change or a lost response. The decision is a pure function of the observation.

use super::address::RemoteAddress;
use super::branch_claims::{self, BranchClaims};
use super::deliverable::Deliverable;
use super::forge::{ChangeRequest, Dialect, Draft, Forge, Opening, RequestState, Route, forgejo, github, gitlab};
use super::message::{self, Texts, Wording};
use super::own_commits::{self, BranchState, HeldPatch};
use super::patch_policies::{self, PatchPolicies};
use super::store::{DeliveryStore, FetchedRef, Listed, MergeResult, Pushed, RemoteError};
use super::wait_budget::WaitBudget;
use super::{DeliverOutcome, DeliverStop, DeliverTarget, Delivered, Preview, local};
use crate::base::outcome::Verdict;
use crate::base::secret::Redactor;
use crate::journal::artefacts;
use crate::journal::deliveries::DeliveryLog;
use crate::process::user_git;
use crate::workspace::patch::Repository;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Limit of observations in one delivery; each repetition follows a concurrent change or a lost response.
const ROUNDS: u32 = 5;
/// Limit of closed requests whose commits are looked up.
const CLOSED: usize = 30;

/// Settings of a delivery from the command line and the environment.
pub struct DeliverSettings<'a> {
    pub target: DeliverTarget,
    pub repository: Option<Repository>,
    pub remote: Option<RemoteAddress>,
    /// The project in which the request is opened, when the remote is a fork of it.
    pub into: Option<String>,
    pub base: Option<String>,
    pub wording: Wording,
    pub rulers: PatchPolicies,
    /// Limit of open requests of the recipe in the project; `None`: no limit.
    pub max_open: Option<usize>,
    pub even_if: Vec<Verdict>,
    pub dry_run: bool,
    /// The user's environment.
    pub vars: &'a [(String, String)],
    /// The forge's base URL and token.
    pub access: Option<(String, SecretString)>,
    pub wait_budget: &'a WaitBudget,
    /// The branches of the runs that this call has delivered already.
    pub claims: &'a BranchClaims,
    /// Masks secrets in everything that is printed or sent.
    pub quiet: &'a Redactor,
    /// Where a message for `git am` is written.
    pub mbox: PathBuf,
    /// Whether the user named that file; another one is in the run directory, where no link is followed.
    pub mbox_is_named: bool,
}

/// Delivers a run. `log`: its delivery record, with the lines of earlier deliveries; `None` on a dry run, which writes
/// nothing.
pub async fn deliver(
    of: &Deliverable,
    settings: &DeliverSettings<'_>,
    log: Option<(&mut DeliveryLog, &[Value])>,
) -> Delivered {
    let (log, earlier) = match log {
        Some((log, earlier)) => (Some(log), earlier),
        None => (None, &[][..]),
    };
    let mut work = Work {
        of,
        settings,
        log,
        interrupted: false,
        lacks_labels: false,
        lists_all_requests: true,
        done: Delivered {
            run: of.run.clone(),
            job: of.job.as_ref().map(|job| job.name.clone()),
            ..Delivered::default()
        },
    };
    let ended = match work.begin(earlier) {
        Ok(Some(texts)) => work.carry_out(&texts).await,
        Ok(None) => Ok(()),
        Err(stop) => Err(stop),
    };
    if ended.is_ok() && work.is_unasked() && work.done.preview.is_some() {
        let names = settings.target.token_variables().join(" or ");
        let unasked = format!(
            "{} was not asked whether a request is open, because {names} is not set",
            settings.target.as_str()
        );
        work.done.reason = joined(&work.done.reason, &unasked);
    }
    if ended.is_ok() && !work.lists_all_requests {
        let unread =
            "the project has more requests than are listed; closed requests without recent changes were not checked";
        work.done.reason = joined(&work.done.reason, unread);
    }
    if let Err(stop) = ended {
        let (outcome, fault) = stop.ends();
        work.done.outcome = Some(outcome);
        work.done.fault = fault;
        work.done.reason = settings.quiet.redact(&stop.to_string()).into_owned();
    }
    let mut last = json!({ "result": work.done.to_value() });
    if let (true, Some(fields)) = (work.lacks_labels, last.as_object_mut()) {
        // The key has this name in the records of earlier deliveries.
        fields.insert("dressed".to_owned(), false.into());
    }
    if let Err(stop) = work.note("ended", last)
        && work.done.fault == super::DeliverFault::None
    {
        work.done.fault = super::DeliverFault::Output;
        work.done.reason = joined(&work.done.reason, &stop.to_string());
    }
    work.done
}

/// Two sentences as one text; either may be empty.
fn joined(first: &str, second: &str) -> String {
    let parts = [first, second].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("; ")
}

/// The observed state of the branch, its base and its requests.
struct RemoteState<'s> {
    state: &'s BranchState,
    merged: &'s MergeResult,
    /// The name of the base.
    base: &'s str,
    /// Whether the merged tree equals the base's tree. Read only where there is a merged tree.
    empty: bool,
    /// Newest first, each with the patch that it holds.
    requests: &'s [(ChangeRequest, HeldPatch)],
    digest: &'s str,
    patch_id: &'s str,
    forge: bool,
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
enum DeliveryDecision {
    End {
        outcome: DeliverOutcome,
        url: Option<String>,
        commit: Option<String>,
        reason: String,
    },
    /// Push if `push` is set, and open or update a request if there is a forge.
    Publish {
        push: bool,
        update: Option<Box<ChangeRequest>>,
    },
}

/// Decides the next action. All rules of idempotence are here.
fn decide(seen: &RemoteState<'_>) -> DeliveryDecision {
    let end = |outcome, request: Option<&ChangeRequest>, reason: String| DeliveryDecision::End {
        outcome,
        url: request.map(|request| request.url.clone()),
        commit: seen.state.commit().map(str::to_owned),
        reason,
    };
    let foreign = |request| match seen.state {
        BranchState::Foreign { why, .. } => {
            let reason = format!("the branch has commits that no delivery made, and is left unchanged: {why}");
            Some(end(DeliverOutcome::Conflict, request, reason))
        }
        BranchState::Unmade { .. } => {
            let reason = "the branch exists and no delivery made it, so it is left unchanged: choose another --branch, or remove it";
            Some(end(DeliverOutcome::Conflict, request, reason.to_owned()))
        }
        _ => None,
    };
    let same = matches!(seen.state, BranchState::Ours { patch, .. } if patch.is(seen.digest));
    let mergeable = |request| match seen.merged {
        MergeResult::Conflict(paths) => {
            let reason = format!("the patch conflicts with the newer base in {}", paths.join(", "));
            Some(end(DeliverOutcome::Conflict, request, reason))
        }
        MergeResult::Tree(_) if seen.empty => {
            let reason = "the base has these changes already".to_owned();
            Some(end(DeliverOutcome::Nothing, request, reason))
        }
        MergeResult::Tree(_) => None,
    };
    // The decision of a person on this patch is kept, even when a request with another patch is open.
    let like = |(request, held): &&(ChangeRequest, HeldPatch)| {
        request.state != RequestState::Open && held.is_like(seen.digest, seen.patch_id)
    };
    let settled = seen.requests.iter().find(like).map(|(request, _)| match request.state {
        RequestState::Merged => end(
            DeliverOutcome::Nothing,
            Some(request),
            "this patch was merged".to_owned(),
        ),
        _ => end(
            DeliverOutcome::ClosedByPerson,
            Some(request),
            "a person closed the request for this patch".to_owned(),
        ),
    });
    if let Some((request, held)) = open_request(seen.requests, seen.base) {
        if let (false, Some(end)) = (same, &settled) {
            return end.clone();
        }
        if let Some(end) = foreign(Some(request)) {
            return end;
        }
        // A push would change what that request offers, and nothing would reach the wanted base.
        if request.base != seen.base {
            let reason = format!(
                "the branch has an open request into `{}`: choose another --branch",
                request.base
            );
            return end(DeliverOutcome::Conflict, Some(request), reason);
        }
        // A delivery that was interrupted after its push left the text of the previous patch.
        if same && held.is_known() && !held.is(seen.digest) {
            return DeliveryDecision::Publish {
                push: false,
                update: Some(Box::new(request.clone())),
            };
        }
        if same {
            return end(DeliverOutcome::Unchanged, Some(request), String::new());
        }
        return mergeable(Some(request)).unwrap_or_else(|| DeliveryDecision::Publish {
            push: true,
            update: Some(Box::new(request.clone())),
        });
    }
    if let Some(end) = settled {
        return end;
    }
    if !seen.forge && same {
        return end(DeliverOutcome::Unchanged, None, String::new());
    }
    if let Some(end) = mergeable(None).or_else(|| foreign(None)) {
        return end;
    }
    DeliveryDecision::Publish {
        push: !same,
        update: None,
    }
}

/// The name of the branch that the delivery is to change, where one is given.
fn wanted_base(settings: &DeliverSettings<'_>, texts: &Texts) -> Result<Option<String>, DeliverStop> {
    let Some(given) = settings.base.as_ref().or(texts.base.as_ref()) else {
        return Ok(None);
    };
    if !message::is_branch_name(given) {
        return Err(DeliverStop::Refused(format!(
            "`{given}` is not the name of a branch: correct `base` in the recipe's `deliver`, or give --base"
        )));
    }
    Ok(Some(given.strip_prefix("refs/heads/").unwrap_or(given).to_owned()))
}

/// The open request of the branch: the one into `base` if there is one, else the newest.
fn open_request<'s>(requests: &'s [(ChangeRequest, HeldPatch)], base: &str) -> Option<&'s (ChangeRequest, HeldPatch)> {
    let open = || {
        requests
            .iter()
            .filter(|(request, _)| request.state == RequestState::Open)
    };
    open()
        .find(|(request, _)| request.base == base)
        .or_else(|| open().next())
}

struct Work<'a, 'b> {
    of: &'a Deliverable,
    settings: &'a DeliverSettings<'a>,
    log: Option<&'b mut DeliveryLog>,
    /// Whether an earlier delivery of this patch to this target was interrupted while it opened a request, or before it
    /// set the labels and reviewers.
    interrupted: bool,
    /// Whether the request of the branch may lack labels and reviewers, because a delivery was interrupted or the
    /// service failed. It is recorded until they are set.
    lacks_labels: bool,
    /// Whether all requests of the project were listed; if not, an old closed one of the branch may be unknown.
    lists_all_requests: bool,
    done: Delivered,
}

/// The patch applied to its own base and to the newer one.
struct Rebased {
    onto: String,
    merged: MergeResult,
    /// The paths that differ between the newer base and the merged tree; empty after a conflict.
    files: Vec<String>,
    /// Lines that the merged tree adds to the newer base.
    added: u64,
    /// Lines that the merged tree removes from the newer base.
    removed: u64,
    patch_id: String,
}

/// What a delivery to a remote works with in each round.
struct RemoteDelivery<'a> {
    remote: RemoteAddress,
    /// The project of the request: the remote, or the project of which it is a fork.
    upstream: RemoteAddress,
    store: DeliveryStore<'a>,
    route: Route,
    /// `None` without requests: the target has none, or it is not asked.
    forge: Option<Forge<'a>>,
    facts: Vec<Value>,
}

/// What one round observed.
struct Observed {
    rebased: Rebased,
    state: BranchState,
    held: HeldRequests,
}

/// The requests from a branch.
struct HeldRequests {
    /// Newest first, each with the patch that it holds.
    requests: Vec<(ChangeRequest, HeldPatch)>,
    /// Whether no closed one can be missing.
    is_complete: bool,
}

impl<'a> Work<'a, '_> {
    fn note(&mut self, step: &str, more: Value) -> Result<(), DeliverStop> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let mut line = json!({
            "at": jiff::Timestamp::now().to_string(),
            "step": step,
            "target": self.settings.target.as_str(),
            "branch": self.done.branch,
            "patch": self.of.patch_digest,
        });
        if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
            if let Some(remote) = &self.settings.remote {
                line.insert("remote".to_owned(), remote.url.as_str().into());
            }
            line.extend(more.clone());
        }
        log.record(&line)
            .map_err(|error| DeliverStop::Output(error.to_string()))
    }

    /// Whether the forge is not asked: on a dry run without a token.
    fn is_unasked(&self) -> bool {
        self.settings.dry_run && self.settings.target.is_forge() && self.settings.access.is_none()
    }

    fn end(&mut self, outcome: DeliverOutcome, reason: impl Into<String>) {
        self.done.outcome = Some(outcome);
        self.done.reason = reason.into();
    }

    /// Makes the checks that need only the run, and renders the texts. `None`: the delivery has ended.
    fn begin(&mut self, earlier: &[Value]) -> Result<Option<Texts>, DeliverStop> {
        let (of, settings) = (self.of, self.settings);
        let texts = message::texts(of, &settings.wording).map_err(DeliverStop::Refused)?;
        self.done.branch.clone_from(&texts.branch);
        self.recall(earlier);
        let excepted = settings.even_if.contains(&of.verdict);
        if !of.verdict.is_success() && !excepted {
            let verdict = of.verdict.as_str();
            return Err(DeliverStop::Refused(format!(
                "the run ended as `{verdict}`, and only runs that passed are delivered; `--even-if {verdict}` makes an exception"
            )));
        }
        if of.partial && !excepted {
            return Err(DeliverStop::Refused(
                "the run was cut off, so its patch may be incomplete".to_owned(),
            ));
        }
        if of.patch.is_empty() {
            self.end(DeliverOutcome::Nothing, "the run changed nothing");
            return Ok(None);
        }
        let sent = [
            texts.title.as_bytes(),
            texts.body.as_bytes(),
            texts.message.as_bytes(),
            texts.branch.as_bytes(),
        ];
        let names = texts.labels.iter().chain(&texts.reviewers).map(|text| text.as_bytes());
        for bytes in std::iter::once(of.patch.as_slice()).chain(sent).chain(names) {
            if let Some(name) = settings.quiet.find(bytes) {
                return Err(DeliverStop::Policy(format!(
                    "the text to be sent contains the value of {name}"
                )));
            }
        }
        if settings.target != DeliverTarget::Mbox
            && let Some(destination) =
                branch_claims::destination(settings.repository.as_ref(), settings.remote.as_ref())
        {
            settings.claims.claim(&destination, &texts.branch, of)?;
        }
        self.note("begun", json!({ "run": of.run }))?;
        Ok(Some(texts))
    }

    /// Reads from the lines of earlier deliveries to this branch what one of them left undone.
    fn recall(&mut self, earlier: &[Value]) {
        let settings = self.settings;
        let text = |line: &Value, key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
        let is = |line: &Value, key: &str, value: &str| text(line, key).as_deref() == Some(value);
        let branch = self.done.branch.clone();
        let mine = |line: &&Value| {
            // The log of a batch has deliveries to several repositories. Lines of early versions name none.
            let remote = text(line, "remote");
            let same_remote = remote.is_none_or(|named| settings.remote.as_ref().is_some_and(|own| own.url == named));
            is(line, "target", settings.target.as_str()) && is(line, "branch", &branch) && same_remote
        };
        let lines: Vec<&Value> = earlier.iter().rev().filter(mine).collect();
        // One that was killed right after it began changed nothing.
        let mut of_patch = lines.iter().filter(|line| is(line, "patch", &self.of.patch_digest));
        let last = of_patch.find(|line| !is(line, "step", "begun"));
        self.interrupted = last.is_some_and(|line| is(line, "step", "opening") || is(line, "step", "opened"));
        // Of another patch, too: the request stays the same one.
        let told = lines.iter().find_map(|line| match text(line, "step")?.as_str() {
            "opening" | "opened" => Some(true),
            "ended" => Some(line.get("dressed") == Some(&Value::Bool(false))),
            _ => None,
        });
        self.lacks_labels = told.unwrap_or(false);
    }

    /// Sets labels and reviewers of the request. Returns what could not be set, as one sentence or an empty text.
    async fn set_labels(&mut self, forge: &Forge<'_>, route: &Route, number: u64, draft: &Draft) -> String {
        let set = forge.set_labels(route, number, draft).await;
        self.lacks_labels = set.unfinished;
        set.problems.join("; ")
    }

    async fn carry_out(&mut self, texts: &Texts) -> Result<(), DeliverStop> {
        let base = self.of.base.clone();
        let base = base.ok_or_else(|| DeliverStop::Refused("the run was not made in a git repository".to_owned()))?;
        match self.settings.target.is_local() {
            true => self.locally(texts, &base).await,
            false => self.remotely(texts, &base).await,
        }
    }

    fn user_env(&self) -> Vec<(String, String)> {
        let settings = self.git_settings();
        let forge = self.settings.target.is_forge();
        let secret = |name: &str| forge && crate::base::secret::is_secret_name(name);
        user_git::environment(self.settings.vars, &settings, &secret)
    }

    /// Passes the token to git: as a header for this server only, in the environment of its process.
    fn git_settings(&self) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        let Some(remote) = &self.settings.remote else {
            return settings;
        };
        let Some(origin) = &remote.origin else {
            return settings;
        };
        let of_forge = self.settings.access.as_ref().filter(|(api, _)| remote.belongs_to(api));
        let user = dialect(self.settings.target).map_or("", Dialect::git_user);
        let pair = match (of_forge, &remote.credentials) {
            (Some((_, token)), _) => format!("{user}:{}", token.expose_secret()),
            (None, Some(pair)) => pair.expose_secret().to_owned(),
            (None, None) => return settings,
        };
        let header = format!("Authorization: Basic {}", STANDARD.encode(pair));
        let key = format!("http.{origin}.extraHeader");
        // An empty value clears the list: servers refuse a request with a second such header, from the user's settings.
        settings.push((key.clone(), String::new()));
        settings.push((key, header));
        // Without this, git would try other credentials when the token is refused.
        settings.push(("credential.helper".to_owned(), String::new()));
        settings
    }

    fn store(&self, base: &str) -> Result<DeliveryStore<'a>, DeliverStop> {
        DeliveryStore::open(
            base.len() == 64,
            self.settings.repository.as_ref(),
            self.user_env(),
            self.settings.quiet.clone(),
            self.settings.wait_budget,
        )
    }

    /// Applies the patch to its base, checks it against the policies, and merges it with the target commit.
    async fn rebased(&self, store: &DeliveryStore<'_>, base: &str, onto: String) -> Result<Rebased, DeliverStop> {
        let of = self.of;
        let patched = store.apply(base, &of.patch, of.dirty).await?;
        let base_tree = store.tree_of(base).await?;
        let paths = store.changed(&base_tree, &patched).await?;
        let prefix = patch_policies::prefix(&paths, &of.files)?;
        patch_policies::rule(&self.settings.rulers, &paths, &prefix)?;
        let merged = store.merge(base, &patched, &onto).await?;
        let (files, added, removed) = match &merged {
            MergeResult::Conflict(_) => (Vec::new(), 0, 0),
            MergeResult::Tree(tree) => {
                // A file that was renamed on the base has another path there.
                let onto_tree = store.tree_of(&onto).await?;
                let files = store.changed(&onto_tree, tree).await?;
                patch_policies::rule(&self.settings.rulers, &files, &prefix)?;
                let (added, removed, uncounted) = store.lines(&onto_tree, tree).await?;
                patch_policies::countable(&self.settings.rulers, uncounted.as_deref())?;
                let more = match patch_policies::limits_lines(&self.settings.rulers) {
                    true => store.cr_lines(&onto_tree, tree).await?,
                    false => 0,
                };
                let lines = added.saturating_add(removed).saturating_add(more);
                let count = u64::try_from(files.len()).unwrap_or(u64::MAX);
                patch_policies::measure(&self.settings.rulers, count, lines)?;
                (files, added, removed)
            }
        };
        Ok(Rebased {
            onto,
            merged,
            files,
            added,
            removed,
            patch_id: store.patch_id(&of.patch).await?,
        })
    }

    /// Makes the commit, with a message that names run, recipe, policies and patch.
    async fn commit(
        &self,
        store: &DeliveryStore<'_>,
        texts: &Texts,
        rebased: &Rebased,
        signed: bool,
    ) -> Result<String, DeliverStop> {
        let MergeResult::Tree(tree) = &rebased.merged else {
            return Err(DeliverStop::Conflict("there is nothing to commit".to_owned()));
        };
        let message = format!("{}\n\n{}\n", texts.message, self.trailers_of(texts, rebased));
        store.commit(tree, &rebased.onto, &message, self.of.date, signed).await
    }

    async fn locally(&mut self, texts: &Texts, base: &str) -> Result<(), DeliverStop> {
        let missing = || DeliverStop::Environment("there is no git repository here: name one with --repo".to_owned());
        let Some(repository) = self.settings.repository.clone() else {
            return match &self.settings.remote {
                Some(remote) => self.mbox_of_remote(texts, base, remote).await,
                None => Err(missing()),
            };
        };
        let store = self.store(base)?;
        store.need_base(base, None).await?;
        let wanted = wanted_base(self.settings, texts)?;
        let (onto, name) = match wanted {
            Some(name) => {
                let found = local::branch(&repository, &name).await?;
                let missing = || DeliverStop::Environment(format!("the repository has no branch {name}"));
                (found.ok_or_else(missing)?, name)
            }
            // The checked-out commit, if it descends from the base.
            None => match local::head(&repository).await? {
                (name, Some(commit))
                    if name.as_deref() != Some(texts.branch.as_str())
                        && local::is_ancestor(&repository, base, &commit).await? =>
                {
                    (commit, name.unwrap_or_else(|| "HEAD".to_owned()))
                }
                _ => (base.to_owned(), base.to_owned()),
            },
        };
        if name == texts.branch {
            return Err(DeliverStop::Environment(format!(
                "`{name}` is the base, so it cannot also be the branch"
            )));
        }
        let rebased = self.rebased(&store, base, onto).await?;
        if self.settings.target == DeliverTarget::Mbox {
            return self.write_mbox(&store, texts, &name, &rebased).await;
        }
        for _ in 0..ROUNDS {
            let seen = local::branch(&repository, &texts.branch).await?;
            let state = store.state(seen.as_deref(), &rebased.onto).await?;
            let decision = decide(&self.seen(&state, &rebased, &name, &[]));
            if self.ended(texts, &name, &rebased, &decision) {
                return Ok(());
            }
            let signed = store.signs().await;
            let commit = self
                .commit(&store, texts, &rebased, signed && !self.settings.dry_run)
                .await?;
            // A commit that would be signed has no id before signing.
            self.done.commit = (!signed || !self.settings.dry_run).then(|| commit.clone());
            let outcome = if seen.is_none() {
                DeliverOutcome::Opened
            } else {
                DeliverOutcome::Updated
            };
            if self.settings.dry_run {
                self.done.preview = Some(preview(texts, &name, &rebased));
                self.end(outcome, "");
                return Ok(());
            }
            self.note("pushing", json!({ "commit": commit, "was": seen }))?;
            if local::set_branch(
                &repository,
                &store,
                &texts.branch,
                &commit,
                &rebased.onto,
                seen.as_deref(),
            )
            .await?
            {
                self.end(outcome, "");
                return Ok(());
            }
        }
        Err(DeliverStop::Conflict(format!(
            "the branch {} was moved by others {ROUNDS} times",
            texts.branch
        )))
    }

    /// Writes the message for a repository that is not on this machine.
    async fn mbox_of_remote(&mut self, texts: &Texts, base: &str, remote: &RemoteAddress) -> Result<(), DeliverStop> {
        let store = self.store(base)?;
        let (onto, name) = match wanted_base(self.settings, texts)? {
            Some(name) => {
                self.retrying(async || store.fetch(remote, &[(&name, FetchedRef::Base)]).await)
                    .await?;
                (store.fetched(FetchedRef::Base).await?, name)
            }
            None => (base.to_owned(), base.to_owned()),
        };
        store.need_base(base, Some(remote)).await?;
        let rebased = self.rebased(&store, base, onto).await?;
        self.write_mbox(&store, texts, &name, &rebased).await
    }

    async fn write_mbox(
        &mut self,
        store: &DeliveryStore<'_>,
        texts: &Texts,
        base: &str,
        rebased: &Rebased,
    ) -> Result<(), DeliverStop> {
        let state = BranchState::Absent;
        let decision = decide(&self.seen(&state, rebased, base, &[]));
        if self.ended(texts, base, rebased, &decision) {
            return Ok(());
        }
        // A mail message for `git am` carries no signature.
        let commit = self.commit(store, texts, rebased, false).await?;
        let mail = store.mail(&commit).await?;
        self.done.commit = Some(commit);
        self.done.branch = String::new();
        let path = &self.settings.mbox;
        self.done.url = Some(path.display().to_string());
        // Reading a pipe or a terminal would wait for a writer, which may be this process.
        let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
        let there = is_file.then(|| std::fs::read(path).ok()).flatten();
        let outcome = match there {
            Some(there) if there == mail => DeliverOutcome::Unchanged,
            Some(_) => DeliverOutcome::Updated,
            None => DeliverOutcome::Opened,
        };
        if self.settings.dry_run {
            self.done.preview = Some(preview(texts, base, rebased));
        } else if outcome != DeliverOutcome::Unchanged {
            let written = match self.settings.mbox_is_named {
                true => artefacts::write(path, &mail),
                false => artefacts::replace(path, &mail),
            };
            written.map_err(|error| DeliverStop::Output(error.to_string()))?;
        }
        self.end(outcome, "");
        Ok(())
    }

    fn seen<'s>(
        &'s self,
        state: &'s BranchState,
        rebased: &'s Rebased,
        base: &'s str,
        requests: &'s [(ChangeRequest, HeldPatch)],
    ) -> RemoteState<'s> {
        RemoteState {
            state,
            merged: &rebased.merged,
            base,
            empty: rebased.files.is_empty(),
            requests,
            digest: &self.of.patch_digest,
            patch_id: &rebased.patch_id,
            forge: self.settings.target.is_forge(),
        }
    }

    /// Applies a decision that ends the delivery. Returns `false` when the delivery continues.
    fn ended(&mut self, texts: &Texts, base: &str, rebased: &Rebased, decision: &DeliveryDecision) -> bool {
        let DeliveryDecision::End {
            outcome,
            url,
            commit,
            reason,
        } = decision
        else {
            return false;
        };
        self.done.url.clone_from(url);
        self.done.commit.clone_from(commit);
        if *outcome == DeliverOutcome::Conflict {
            self.done.fault = super::DeliverFault::Run;
        }
        self.end(*outcome, reason.clone());
        if self.settings.dry_run {
            self.done.preview = Some(preview(texts, base, rebased));
        }
        true
    }

    /// Runs a request to a remote, with retries when waiting may help.
    async fn retrying<T>(&self, mut ask: impl AsyncFnMut() -> Result<T, RemoteError>) -> Result<T, DeliverStop> {
        let mut failed = 0;
        loop {
            match ask().await {
                Ok(found) => return Ok(found),
                Err(RemoteError::Environment(why)) => return Err(DeliverStop::Environment(why)),
                Err(RemoteError::Unreachable(why)) => {
                    failed += 1;
                    self.settings.wait_budget.before_retry(failed, None, &why).await?;
                }
            }
        }
    }

    async fn remotely(&mut self, texts: &Texts, base: &str) -> Result<(), DeliverStop> {
        let settings = self.settings;
        let on = self.reach(texts, base).await?;
        // Branch or request may change concurrently at any step; then everything is observed again.
        let mut tried_to_open = self.interrupted;
        // Where the branch was when a push was refused as if it had moved.
        let mut lost_at: Option<Option<String>> = None;
        for round in 1..=ROUNDS {
            let now = self.observe(&on, texts, base).await?;
            self.lists_all_requests = now.held.is_complete;
            let mut decision = decide(&self.seen(&now.state, &now.rebased, &on.route.base, &now.held.requests));
            if let DeliveryDecision::End { outcome, .. } = &mut decision
                && *outcome == DeliverOutcome::Unchanged
                && tried_to_open
            {
                // This is the request whose opening got no response.
                *outcome = DeliverOutcome::Opened;
            }
            if self.ended(texts, &on.route.base, &now.rebased, &decision) {
                self.repair(&on, texts, &now.held.requests).await;
                return Ok(());
            }
            let DeliveryDecision::Publish { push, update } = decision else {
                return Ok(());
            };
            if round == 1 && update.is_some() && now.state == BranchState::Absent {
                // An open request without its branch: both were created after the branch was looked up.
                continue;
            }
            if update.is_none() && self.is_held_back(&on, texts).await? {
                return Ok(());
            }
            let signed = push && on.store.signs().await;
            let commit = match (push, now.state.commit()) {
                (false, Some(commit)) => commit.to_owned(),
                _ => {
                    self.commit(&on.store, texts, &now.rebased, signed && !settings.dry_run)
                        .await?
                }
            };
            self.done.commit = (!signed || !settings.dry_run).then(|| commit.clone());
            let opened = match (&update, settings.target.is_forge(), now.state.commit().is_some()) {
                (Some(_), ..) | (None, false, true) => DeliverOutcome::Updated,
                _ => DeliverOutcome::Opened,
            };
            if settings.dry_run {
                self.done.url = update.as_ref().map(|request| request.url.clone());
                self.done.preview = Some(preview(texts, &on.route.base, &now.rebased));
                self.end(opened, "");
                return Ok(());
            }
            if push {
                let was = now.state.commit();
                self.note("pushing", json!({ "commit": commit, "was": was }))?;
                match on.store.push(&on.remote, &texts.branch, &commit, was).await? {
                    Pushed::Done => self.note("pushed", json!({ "commit": commit }))?,
                    // The first time, another push may have held the branch for a moment without moving it.
                    Pushed::Moved(why) if lost_at.as_ref().is_some_and(|lost| lost.as_deref() == was) => {
                        return Err(DeliverStop::Environment(why));
                    }
                    Pushed::Moved(_) => {
                        lost_at = Some(was.map(str::to_owned));
                        continue;
                    }
                    Pushed::Refused(why) => return Err(DeliverStop::Environment(why)),
                    Pushed::Unreachable(why) => {
                        settings.wait_budget.before_retry(round, None, &why).await?;
                        continue;
                    }
                }
            }
            let Some(forge) = &on.forge else {
                self.end(opened, "");
                return Ok(());
            };
            let draft = draft(texts, &self.trailers_of(texts, &now.rebased));
            if let Some(request) = update {
                return self.update(forge, &on.route, &request, &draft).await;
            }
            self.note("opening", json!({ "commit": commit }))?;
            let Some(why) = self.open(forge, &on, &draft).await? else {
                return Ok(());
            };
            tried_to_open = true;
            settings.wait_budget.before_retry(round, None, &why).await?;
        }
        Err(DeliverStop::Service(format!(
            "branch and requests were changed by others {ROUNDS} times during the delivery"
        )))
    }

    /// Reaches remote and forge for the first time, and determines the base.
    async fn reach(&self, texts: &Texts, base: &str) -> Result<RemoteDelivery<'a>, DeliverStop> {
        let settings = self.settings;
        let missing = || DeliverStop::Environment("there is no remote: name one with --remote".to_owned());
        let remote = settings.remote.clone().ok_or_else(missing)?;
        let upstream = match &settings.into {
            Some(into) => remote.sibling(into).map_err(DeliverStop::Environment)?,
            None => remote.clone(),
        };
        let store = self.store(base)?;
        store.know(base).await?;
        let head = self.retrying(async || store.list(&upstream, &[]).await).await;
        let head: Listed = head.map_err(|stop| match stop {
            DeliverStop::Environment(why) if self.is_unasked() => {
                let names = settings.target.token_variables().join(" or ");
                DeliverStop::Environment(format!(
                    "{why} (asked without a token: set {names} if the repository needs one)"
                ))
            }
            stop => stop,
        })?;
        let wanted = wanted_base(settings, texts)?;
        let no_base =
            || DeliverStop::Environment("the remote does not name its default branch: give --base".to_owned());
        let name = wanted.or_else(|| head.default.clone()).ok_or_else(no_base)?;
        if settings.into.is_none() && (texts.branch == name || Some(&texts.branch) == head.default.as_ref()) {
            return Err(DeliverStop::Environment(format!(
                "`{}` is the base or the default branch, which a delivery never moves: choose another --branch",
                texts.branch
            )));
        }
        let route = Route {
            project: remote.project.clone().unwrap_or_default(),
            into: upstream.project.clone().unwrap_or_default(),
            branch: texts.branch.clone(),
            base: name,
        };
        let forge = match self.is_unasked() {
            true => None,
            false => forge(settings, &route)?,
        };
        let facts = match &forge {
            Some(forge) => forge.facts(&route).await?,
            None => Vec::new(),
        };
        Ok(RemoteDelivery {
            remote,
            upstream,
            store,
            route,
            forge,
            facts,
        })
    }

    /// Fetches base and branch, applies the patch, and lists the requests.
    async fn observe(&self, on: &RemoteDelivery<'_>, texts: &Texts, base: &str) -> Result<Observed, DeliverStop> {
        let store = &on.store;
        let listed = self
            .retrying(async || store.list(&on.remote, &[&texts.branch]).await)
            .await?;
        let there = listed.commit(&texts.branch).is_some();
        let mut own = Vec::new();
        match self.settings.into.is_none() {
            true => own.push((on.route.base.as_str(), FetchedRef::Base)),
            false => {
                self.retrying(async || store.fetch(&on.upstream, &[(&on.route.base, FetchedRef::Base)]).await)
                    .await?
            }
        }
        if there {
            own.push((texts.branch.as_str(), FetchedRef::Branch));
        }
        if !own.is_empty() {
            self.retrying(async || store.fetch(&on.remote, &own).await).await?;
        }
        let onto = store.fetched(FetchedRef::Base).await?;
        let branch = match there {
            true => Some(store.fetched(FetchedRef::Branch).await?),
            false => None,
        };
        store.need_base(base, Some(&on.upstream)).await?;
        let rebased = self.rebased(store, base, onto).await?;
        let state = store.state(branch.as_deref(), &rebased.onto).await?;
        let held = match &on.forge {
            Some(forge) => self.requests(forge, &on.route, &on.facts).await?,
            None => HeldRequests {
                requests: Vec::new(),
                is_complete: true,
            },
        };
        Ok(Observed { rebased, state, held })
    }

    /// Sets labels and reviewers of a request that has the patch already, if an earlier delivery could not.
    async fn repair(&mut self, on: &RemoteDelivery<'_>, texts: &Texts, requests: &[(ChangeRequest, HeldPatch)]) {
        let names = !texts.labels.is_empty() || !texts.reviewers.is_empty();
        let repairs = self.done.outcome == Some(DeliverOutcome::Unchanged) && self.lacks_labels && names;
        if let Some(forge) = &on.forge
            && (repairs || self.done.outcome == Some(DeliverOutcome::Opened))
            && let Some((request, _)) = open_request(requests, &on.route.base)
            && !self.settings.dry_run
        {
            let draft = draft(texts, "");
            self.done.reason = self.set_labels(forge, &on.route, request.number, &draft).await;
            if repairs && self.done.reason.is_empty() {
                self.done.reason = "labels and reviewers were set, which an earlier delivery could not set".to_owned();
            }
        }
    }

    /// Ends the delivery if the recipe has as many open requests as `--max-open` allows. Returns whether it has.
    async fn is_held_back(&mut self, on: &RemoteDelivery<'_>, texts: &Texts) -> Result<bool, DeliverStop> {
        let (Some(forge), Some(most)) = (&on.forge, self.settings.max_open) else {
            return Ok(false);
        };
        let recipe = message::in_comment(&format!("{}: {} ", own_commits::RECIPE, texts.recipe));
        let counts = |request: &ChangeRequest| {
            message::unmarked(&request.body)
                .1
                .is_some_and(|lines| lines.contains(&recipe))
        };
        let open = forge.open_requests(&on.route, &on.facts, counts).await?;
        if open < most {
            return Ok(false);
        }
        let reason = format!("open requests of {}: {open}; --max-open is {most}", texts.recipe);
        self.end(DeliverOutcome::HeldBack, reason);
        Ok(true)
    }

    /// Gives an open request the texts of this patch, unless a person edited them.
    async fn update(
        &mut self,
        forge: &Forge<'_>,
        route: &Route,
        request: &ChangeRequest,
        draft: &Draft,
    ) -> Result<(), DeliverStop> {
        self.done.url = Some(request.url.clone());
        let bare = forge.dialect.bare_title(&request.title);
        let mut reason = match message::is_untouched(bare, &request.body) {
            true => {
                forge.update(route, request, draft).await?;
                String::new()
            }
            false => "a person edited the title or description, so they are left unchanged".to_owned(),
        };
        if self.lacks_labels {
            let problems = self.set_labels(forge, route, request.number, draft).await;
            reason = joined(&reason, &problems);
        }
        self.end(DeliverOutcome::Updated, reason);
        Ok(())
    }

    /// Opens a request. Returns why everything must be observed again; `None`: the delivery has ended.
    async fn open(
        &mut self,
        forge: &Forge<'_>,
        on: &RemoteDelivery<'_>,
        draft: &Draft,
    ) -> Result<Option<String>, DeliverStop> {
        let opening = forge.open(&on.route, &on.facts, draft).await;
        // Where it is unknown whether there is a request now, the next delivery sets the labels of the one it finds.
        self.lacks_labels = !matches!(opening, Ok(Opening::Nothing) | Err(DeliverStop::Environment(_)));
        match opening? {
            Opening::Opened(request) => {
                self.done.url = Some(request.url.clone());
                self.note("opened", json!({ "url": request.url }))?;
                let problems = self.set_labels(forge, &on.route, request.number, draft).await;
                self.end(DeliverOutcome::Opened, problems);
                Ok(None)
            }
            Opening::Nothing => {
                self.end(DeliverOutcome::Nothing, "the base has these changes already");
                Ok(None)
            }
            Opening::LookAgain(why) => Ok(Some(why)),
        }
    }

    /// The trailers that say which run and patch a commit or request holds.
    fn trailers_of(&self, texts: &Texts, rebased: &Rebased) -> String {
        let tree = match &rebased.merged {
            MergeResult::Tree(tree) => tree.as_str(),
            MergeResult::Conflict(_) => "",
        };
        own_commits::trailers(self.of, &texts.recipe, &rebased.patch_id, tree)
    }

    /// The requests from the branch, each with the patch that it holds, as far as its texts say.
    async fn requests(&self, forge: &Forge<'_>, route: &Route, facts: &[Value]) -> Result<HeldRequests, DeliverStop> {
        let mut found = Vec::new();
        let listed = forge.requests(route, facts).await?;
        for request in listed.requests {
            let marker = message::unmarked(&request.body).1.unwrap_or_default();
            let mut held = HeldPatch::of(&marker);
            let sure =
                held.is_known() && message::is_untouched(forge.dialect.bare_title(&request.title), &request.body);
            // An edited description may name an older patch; the commit names the latest.
            let open = request.state == RequestState::Open;
            if !sure && open {
                held = HeldPatch::default();
            }
            if !sure
                && !open
                && found.len() < CLOSED
                && crate::base::ids::is_object_id(&request.head)
                && let Some(message) = forge.commit_message(route, &request.head).await?
            {
                let of_commit = HeldPatch::of(&message);
                if of_commit.is_known() {
                    held = of_commit;
                }
            }
            found.push((request, held));
        }
        Ok(HeldRequests {
            requests: found,
            is_complete: listed.is_complete,
        })
    }
}

fn dialect(target: DeliverTarget) -> Option<&'static dyn Dialect> {
    match target {
        DeliverTarget::Github => Some(&github::GithubDialect),
        DeliverTarget::Gitlab => Some(&gitlab::GitlabDialect),
        DeliverTarget::Forgejo => Some(&forgejo::ForgejoDialect),
        DeliverTarget::Branch | DeliverTarget::Push | DeliverTarget::Mbox => None,
    }
}

fn forge<'s>(settings: &'s DeliverSettings<'_>, route: &Route) -> Result<Option<Forge<'s>>, DeliverStop> {
    let Some(dialect) = dialect(settings.target) else {
        return Ok(None);
    };
    let Some((api, token)) = &settings.access else {
        let names = settings.target.token_variables().join(" or ");
        return Err(DeliverStop::Environment(format!("no token: set {names}")));
    };
    if route.project.is_empty() {
        return Err(DeliverStop::Environment(
            "the remote's address does not contain OWNER/NAME".to_owned(),
        ));
    }
    Ok(Some(Forge::new(
        dialect,
        api.clone(),
        token.clone(),
        settings.wait_budget,
        settings.quiet,
    )))
}

fn draft(texts: &Texts, trailers: &str) -> Draft {
    Draft {
        title: texts.title.clone(),
        body: message::marked(&texts.title, &texts.body, trailers),
        draft: texts.draft,
        labels: texts.labels.clone(),
        reviewers: texts.reviewers.clone(),
    }
}

/// The texts and changes that a dry run shows.
fn preview(texts: &Texts, base: &str, rebased: &Rebased) -> Preview {
    Preview {
        base: base.to_owned(),
        title: texts.title.clone(),
        body: texts.body.clone(),
        message: texts.message.clone(),
        files: rebased.files.clone(),
        added: rebased.added,
        removed: rebased.removed,
        labels: texts.labels.clone(),
        reviewers: texts.reviewers.clone(),
        draft: texts.draft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(state: RequestState) -> ChangeRequest {
        ChangeRequest {
            number: 1,
            url: "u".to_owned(),
            state,
            head: String::new(),
            branch: "b".to_owned(),
            base: "main".to_owned(),
            title: String::new(),
            body: String::new(),
        }
    }

    fn held(digest: &str, id: &str) -> HeldPatch {
        HeldPatch {
            digest: Some(digest.to_owned()),
            id: Some(id.to_owned()),
        }
    }

    /// Table values: the patch is `new`, with patch id `n`.
    fn outcome(
        state: &BranchState,
        merged: &MergeResult,
        empty: bool,
        requests: &[(ChangeRequest, HeldPatch)],
        forge: bool,
    ) -> String {
        let seen = RemoteState {
            state,
            merged,
            base: "main",
            empty,
            requests,
            digest: "new",
            patch_id: "n",
            forge,
        };
        match decide(&seen) {
            DeliveryDecision::End { outcome, .. } => outcome.as_str().to_owned(),
            DeliveryDecision::Publish { push, update } => match (push, update.is_some()) {
                (true, true) => "push and update",
                (true, false) => "push and open",
                (false, false) => "open",
                (false, true) => "update",
            }
            .to_owned(),
        }
    }

    /// Columns: name, branch, merge result, whether nothing is left, requests, whether there is a forge, expected
    /// decision.
    type Row<'a> = (
        &'a str,
        BranchState,
        &'a MergeResult,
        bool,
        Vec<(ChangeRequest, HeldPatch)>,
        bool,
        &'a str,
    );

    #[test]
    fn what_is_seen_decides() {
        use RequestState::{Closed, Merged as WasMerged, Open};
        let ours = |digest: &str| BranchState::Ours {
            commit: "c".to_owned(),
            patch: held(digest, "o"),
        };
        let foreign = || BranchState::Foreign {
            commit: "c".to_owned(),
            why: "w".to_owned(),
        };
        let behind = || BranchState::Behind { commit: "c".to_owned() };
        let good = MergeResult::Tree("t".to_owned());
        let bad = MergeResult::Conflict(vec!["a".to_owned()]);
        let none: &[(ChangeRequest, HeldPatch)] = &[];
        let one = |state, digest: &str, id: &str| vec![(request(state), held(digest, id))];
        let elsewhere = |digest: &str, id: &str| {
            let into = ChangeRequest {
                base: "release".to_owned(),
                ..request(Open)
            };
            vec![(into, held(digest, id))]
        };
        let both = [elsewhere("new", "n"), one(Open, "new", "n")].concat();
        let two = [
            (request(Closed), held("other", "x")),
            (request(WasMerged), held("new", "n")),
        ];
        let table: Vec<Row<'_>> = vec![
            (
                "first time",
                BranchState::Absent,
                &good,
                false,
                none.to_vec(),
                true,
                "push and open",
            ),
            (
                "killed after the push",
                ours("new"),
                &good,
                false,
                none.to_vec(),
                true,
                "open",
            ),
            (
                "the same again",
                ours("new"),
                &good,
                false,
                one(Open, "new", "n"),
                true,
                "unchanged",
            ),
            (
                "the same again, the base is newer and in conflict",
                ours("new"),
                &bad,
                false,
                one(Open, "new", "n"),
                true,
                "unchanged",
            ),
            (
                "killed between push and text",
                ours("new"),
                &good,
                false,
                one(Open, "old", "o"),
                true,
                "update",
            ),
            (
                "another patch",
                ours("old"),
                &good,
                false,
                one(Open, "old", "o"),
                true,
                "push and update",
            ),
            (
                "another patch that conflicts",
                ours("old"),
                &bad,
                false,
                one(Open, "old", "o"),
                true,
                "conflict",
            ),
            (
                "the same, open into another base",
                ours("new"),
                &good,
                false,
                elsewhere("new", "n"),
                true,
                "conflict",
            ),
            (
                "another patch, open into another base",
                ours("old"),
                &good,
                false,
                elsewhere("old", "o"),
                true,
                "conflict",
            ),
            (
                "the same, open into this base and another",
                ours("new"),
                &good,
                false,
                both,
                true,
                "unchanged",
            ),
            (
                "a person's commit, open",
                foreign(),
                &good,
                false,
                one(Open, "old", "o"),
                true,
                "conflict",
            ),
            (
                "a person's branch",
                foreign(),
                &good,
                false,
                none.to_vec(),
                true,
                "conflict",
            ),
            (
                "closed, the same",
                ours("new"),
                &good,
                false,
                one(Closed, "new", "n"),
                true,
                "closed_by_person",
            ),
            (
                "closed, the same elsewhere in the file",
                ours("old"),
                &good,
                false,
                one(Closed, "old", "n"),
                true,
                "closed_by_person",
            ),
            (
                "closed, the same, now in conflict",
                ours("new"),
                &bad,
                false,
                one(Closed, "new", "n"),
                true,
                "closed_by_person",
            ),
            (
                "closed, another",
                ours("old"),
                &good,
                false,
                one(Closed, "old", "o"),
                true,
                "push and open",
            ),
            (
                "closed, the same, another is open",
                ours("old"),
                &good,
                false,
                [one(Open, "old", "o"), one(Closed, "new", "n")].concat(),
                true,
                "closed_by_person",
            ),
            (
                "merged and taken back, the same, another is open",
                ours("old"),
                &good,
                false,
                [one(Open, "old", "o"), one(WasMerged, "new", "n")].concat(),
                true,
                "nothing",
            ),
            (
                "closed, the same, and a person opened it anew",
                ours("new"),
                &good,
                false,
                [one(Open, "new", "n"), one(Closed, "new", "n")].concat(),
                true,
                "unchanged",
            ),
            (
                "merged, the same",
                behind(),
                &good,
                false,
                one(WasMerged, "new", "n"),
                true,
                "nothing",
            ),
            (
                "merged, another, branch kept",
                ours("old"),
                &good,
                false,
                one(WasMerged, "old", "o"),
                true,
                "push and open",
            ),
            (
                "merged before a later one was closed",
                BranchState::Absent,
                &good,
                false,
                two.to_vec(),
                true,
                "nothing",
            ),
            (
                "the base has it",
                BranchState::Absent,
                &good,
                true,
                none.to_vec(),
                true,
                "nothing",
            ),
            (
                "conflict",
                BranchState::Absent,
                &bad,
                false,
                none.to_vec(),
                true,
                "conflict",
            ),
            (
                "push, first",
                BranchState::Absent,
                &good,
                false,
                none.to_vec(),
                false,
                "push and open",
            ),
            (
                "push, again",
                ours("new"),
                &good,
                false,
                none.to_vec(),
                false,
                "unchanged",
            ),
            (
                "push, another",
                ours("old"),
                &good,
                false,
                none.to_vec(),
                false,
                "push and open",
            ),
            (
                "push, behind",
                behind(),
                &good,
                false,
                none.to_vec(),
                false,
                "push and open",
            ),
            (
                "push, a person's",
                foreign(),
                &good,
                false,
                none.to_vec(),
                false,
                "conflict",
            ),
        ];
        for (what, state, merged, empty, requests, forge, expected) in table {
            assert_eq!(outcome(&state, merged, empty, &requests, forge), expected, "{what}");
        }
    }
}
