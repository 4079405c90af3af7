//! Delivers a verified run: puts its patch on a branch and keeps one merge request for it. Asks no model.
//!
//! Deliveries keep no state of their own: the trailers of a branch's commits say who made them and which patch they
//! hold, and the forge says what became of its requests. Git works in a private bare store; no configuration, hook or
//! attribute of the target repository is used.

pub mod address;
pub mod batch;
pub mod branch_claims;
pub mod deliverable;
pub mod flow;
pub mod forge;
pub mod inert;
pub mod local;
pub mod message;
pub mod own_commits;
pub mod patch_policies;
pub mod store;
pub mod wait_budget;

use serde::Serialize;
use serde_json::Value;

/// The target of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverTarget {
    /// A branch of the local repository.
    Branch,
    /// A branch of a remote repository.
    Push,
    /// A branch of a remote repository, and a pull request on GitHub.
    Github,
    /// A branch of a remote repository, and a merge request on GitLab.
    Gitlab,
    /// A branch of a remote repository, and a pull request on Forgejo or Gitea.
    Forgejo,
    /// A file for `git am`.
    Mbox,
}

impl DeliverTarget {
    /// The value of the command-line option.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Push => "push",
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Forgejo => "forgejo",
            Self::Mbox => "mbox",
        }
    }

    /// Whether the target has merge or pull requests.
    pub const fn is_forge(self) -> bool {
        matches!(self, Self::Github | Self::Gitlab | Self::Forgejo)
    }

    /// Whether the target is on this machine, so that a delivery waits for no service.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::Branch | Self::Mbox)
    }

    /// The variables that may hold its token; the first that is set is used.
    pub const fn token_variables(self) -> &'static [&'static str] {
        match self {
            Self::Github => &["GITHUB_TOKEN", "GH_TOKEN"],
            Self::Gitlab => &["GITLAB_TOKEN"],
            Self::Forgejo => &["FORGEJO_TOKEN"],
            Self::Branch | Self::Push | Self::Mbox => &[],
        }
    }

    /// The variable in which the CI system of the forge gives the base URL of the API.
    pub const fn api_variable(self) -> Option<&'static str> {
        match self {
            Self::Github => Some("GITHUB_API_URL"),
            Self::Gitlab => Some("CI_API_V4_URL"),
            Self::Forgejo | Self::Branch | Self::Push | Self::Mbox => None,
        }
    }

    /// The hosts of the forge's public service.
    pub const fn public_hosts(self) -> &'static [&'static str] {
        match self {
            Self::Github => &["github.com", "ssh.github.com"],
            Self::Gitlab => &["gitlab.com"],
            Self::Forgejo => &["codeberg.org"],
            Self::Branch | Self::Push | Self::Mbox => &[],
        }
    }

    /// Whether the forge has nested groups, so that the name of a project may have more than two parts.
    pub const fn has_groups(self) -> bool {
        matches!(self, Self::Gitlab)
    }
}

/// The outcome of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeliverOutcome {
    /// A branch, request or file was created.
    Opened,
    /// The branch was updated with the new patch.
    Updated,
    /// Everything was up to date.
    Unchanged,
    /// A person closed the request for this patch.
    ClosedByPerson,
    /// There is nothing to deliver: the patch is empty, or the base has it.
    Nothing,
    /// The limit of open requests of the recipe is reached.
    HeldBack,
    /// The patch does not apply to the newer base, or a person's commits are on the branch.
    Conflict,
    /// The run may not be delivered, or a policy denies it.
    Refused,
    /// Git, the forge or the network failed.
    Failed,
}

impl DeliverOutcome {
    /// The word in outputs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::ClosedByPerson => "closed_by_person",
            Self::Nothing => "nothing",
            Self::HeldBack => "held_back",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Who must act on a delivery that did not succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliverFault {
    /// Nobody: exit code 0.
    #[default]
    None,
    /// A person, on the run or the branch: exit code 1.
    Run,
    /// The policy's author: exit code 4.
    Policy,
    /// The service failed after retries: exit code 7.
    Service,
    /// Token, repository or git is missing or unusable: exit code 8.
    Environment,
    /// A file cannot be written: exit code 9.
    Output,
    /// The last call of the batch has no result of the job: exit code 10.
    Incomplete,
}

/// The outcome for one run: a line of the output.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    pub run: String,
    /// The job of a batch.
    pub job: Option<String>,
    pub outcome: Option<DeliverOutcome>,
    pub fault: DeliverFault,
    pub branch: String,
    /// Full id of the commit on the branch. On a dry run the id of the commit that would be made, unless it would be
    /// signed.
    pub commit: Option<String>,
    pub url: Option<String>,
    /// One sentence for people; may be empty.
    pub reason: String,
    /// Whether this is a dry run, which changes nothing.
    pub dry_run: bool,
    /// On a dry run: the texts that would be sent.
    pub preview: Option<Preview>,
}

/// The texts that a dry run shows.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Preview {
    /// The branch that the request goes into.
    pub base: String,
    /// The title of the request.
    pub title: String,
    /// The description of the request.
    pub body: String,
    /// The message of the commit.
    pub message: String,
    /// The changed paths.
    pub files: Vec<String>,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// The labels of the request.
    pub labels: Vec<String>,
    /// Who would be asked for a review.
    pub reviewers: Vec<String>,
    /// Whether the request would be a draft.
    pub draft: bool,
}

impl Delivered {
    /// The object of `--format json`.
    pub fn to_value(&self) -> Value {
        let line = DeliveredLine {
            run: self.run.clone(),
            job: self.job.clone(),
            outcome: self.outcome.unwrap_or(DeliverOutcome::Failed),
            branch: self.branch.clone(),
            commit: self.commit.clone(),
            url: self.url.clone(),
            reason: self.reason.clone(),
            dry_run: self.dry_run,
            preview: self.preview.clone(),
        };
        // Keys are strings and numbers are whole, so serializing cannot fail.
        serde_json::to_value(line).unwrap_or_default()
    }
}

/// One line of `--format json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeliveredLine {
    /// The run's id; empty when the job of a batch made no run.
    run: String,
    /// The name of the job, for a run of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    outcome: DeliverOutcome,
    /// The branch; empty when it was not determined.
    branch: String,
    /// Full id of the commit on the branch, or null. On a dry run the id of the commit that would be made.
    commit: Option<String>,
    /// Address of the request, or path of the file; null when there is none.
    url: Option<String>,
    /// One sentence for people; may be empty.
    reason: String,
    /// Whether nothing was changed anywhere because of `--dry-run`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    /// The texts that would be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<Preview>,
}

/// Why a delivery stops, and who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliverStop {
    #[error("{0}")]
    Conflict(String),
    /// The run's own state forbids it.
    #[error("{0}")]
    Refused(String),
    /// A policy or a protected path denies it.
    #[error("{0}")]
    Policy(String),
    /// The service or the network failed after retries.
    #[error("{0}")]
    Service(String),
    /// Token, repository or git is missing or unusable.
    #[error("{0}")]
    Environment(String),
    /// An output file cannot be written.
    #[error("{0}")]
    Output(String),
}

impl DeliverStop {
    /// The outcome and who must act.
    pub fn ends(&self) -> (DeliverOutcome, DeliverFault) {
        match self {
            Self::Conflict(_) => (DeliverOutcome::Conflict, DeliverFault::Run),
            Self::Refused(_) => (DeliverOutcome::Refused, DeliverFault::Run),
            Self::Policy(_) => (DeliverOutcome::Refused, DeliverFault::Policy),
            Self::Service(_) => (DeliverOutcome::Failed, DeliverFault::Service),
            Self::Environment(_) => (DeliverOutcome::Failed, DeliverFault::Environment),
            Self::Output(_) => (DeliverOutcome::Failed, DeliverFault::Output),
        }
    }
}
