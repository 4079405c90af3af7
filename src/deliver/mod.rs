//! From a patch to a merge request: takes a verified run, brings its patch onto a branch, and keeps one request for it. Asks no model.
//!
//! Nothing is remembered between two deliveries: a branch says by the trailers of its commits whose it is and which patch it holds,
//! and the forge says what became of its requests. Git works in a bare store of our own; no configuration, hook or attribute of the
//! target repository takes part.

pub mod address;
pub mod batch;
pub mod deliverable;
pub mod flow;
pub mod forge;
pub mod inert;
pub mod local;
pub mod message;
pub mod ours;
pub mod patience;
pub mod reruled;
pub mod store;

use serde::Serialize;
use serde_json::{Map, Value};

/// Where a change goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverTarget {
    /// A branch of the local repository.
    Branch,
    /// A branch of a remote repository.
    Push,
    /// The same, and a pull request of GitHub.
    Github,
    /// The same, and a merge request of GitLab.
    Gitlab,
    /// The same, and a pull request of Forgejo or Gitea.
    Forgejo,
    /// A file that `git am` takes.
    Mbox,
}

impl DeliverTarget {
    /// The word of the command line.
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

    /// Whether it has requests.
    pub const fn is_forge(self) -> bool {
        matches!(self, Self::Github | Self::Gitlab | Self::Forgejo)
    }

    /// The variables that may hold its token, the first that is set counts.
    pub const fn token_variables(self) -> &'static [&'static str] {
        match self {
            Self::Github => &["GITHUB_TOKEN", "GH_TOKEN"],
            Self::Gitlab => &["GITLAB_TOKEN"],
            Self::Forgejo => &["FORGEJO_TOKEN"],
            Self::Branch | Self::Push | Self::Mbox => &[],
        }
    }
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliverOutcome {
    /// A branch, request or file was made.
    Opened,
    /// The branch holds the new patch.
    Updated,
    /// All was there already.
    Unchanged,
    /// A person closed the request for this patch.
    ClosedByPerson,
    /// There is nothing to deliver: no patch, or the base has it.
    Nothing,
    /// As many requests of the recipe are open as may be.
    HeldBack,
    /// The patch does not apply to the newer base, or a person's commits are on the branch.
    Conflict,
    /// The run may not be delivered, or a policy says no.
    Refused,
    /// Git, the forge or the network.
    Failed,
}

impl DeliverOutcome {
    /// The word of outputs.
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

/// Who must act on a delivery that came to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliverFault {
    /// Nobody.
    #[default]
    None,
    /// A person, on the run or the branch: code 1.
    Run,
    /// The policy: code 4.
    Policy,
    /// The service, after retries: code 7.
    Service,
    /// Token, repository, git: code 8.
    Environment,
    /// A file that cannot be written: code 9.
    Output,
}

/// One run and what became of it: a line of the output.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    pub run: String,
    /// The job of a batch.
    pub job: Option<String>,
    pub outcome: Option<DeliverOutcome>,
    pub fault: DeliverFault,
    pub branch: String,
    /// Full id of the commit on the branch; of the commit that would be made, on a dry run, unless it would be signed.
    pub commit: Option<String>,
    pub url: Option<String>,
    /// One sentence for people; empty when there is nothing to say.
    pub reason: String,
    /// On a dry run: what would be sent.
    pub preview: Option<Preview>,
}

/// What a dry run shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Preview {
    pub base: String,
    pub title: String,
    pub body: String,
    pub message: String,
    pub files: Vec<String>,
    pub added: u64,
    pub removed: u64,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub draft: bool,
}

impl Delivered {
    /// The object of `--format json`.
    pub fn to_value(&self) -> Value {
        let mut line = Map::new();
        line.insert("run".to_owned(), self.run.clone().into());
        if let Some(job) = &self.job {
            line.insert("job".to_owned(), job.clone().into());
        }
        let outcome = self.outcome.unwrap_or(DeliverOutcome::Failed);
        line.insert("outcome".to_owned(), outcome.as_str().into());
        line.insert("branch".to_owned(), self.branch.clone().into());
        line.insert("commit".to_owned(), self.commit.clone().into());
        line.insert("url".to_owned(), self.url.clone().into());
        line.insert("reason".to_owned(), self.reason.clone().into());
        if let Some(preview) = &self.preview {
            line.insert("dry_run".to_owned(), true.into());
            line.insert("preview".to_owned(), serde_json::to_value(preview).unwrap_or_default());
        }
        Value::Object(line)
    }
}

/// Why a delivery stops, and whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliverStop {
    #[error("{0}")]
    Conflict(String),
    /// The run's own state.
    #[error("{0}")]
    Refused(String),
    /// A policy or a protected path.
    #[error("{0}")]
    Policy(String),
    /// The service or the network, after retries.
    #[error("{0}")]
    Service(String),
    /// Token, repository, git.
    #[error("{0}")]
    Environment(String),
    /// A file of ours cannot be written.
    #[error("{0}")]
    Output(String),
}

impl DeliverStop {
    /// The outcome and whose turn it is.
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
