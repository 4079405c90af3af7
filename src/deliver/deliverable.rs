//! The parts of a verified run that a delivery needs: its patch, its identity and its texts.

use crate::base::event::{EventKind, FileChange, PolicyText};
use crate::base::ids::sha256_hex;
use crate::base::outcome::Verdict;
use crate::journal::Journal;
use crate::recipe::Plan;
use crate::recipe::plan::StepWork;
use crate::report::markdown;
use crate::report::result::{self, OutputFacts};
use crate::report::summary::RunSummary;
use jiff::Timestamp;
use serde_json::Value;

/// A verified run, reduced to what its delivery needs.
#[derive(Clone, Debug)]
pub struct Deliverable {
    pub run: String,
    pub recipe: String,
    /// The job of a batch, and whether the batch has several jobs of the recipe for one repository.
    pub job: Option<BatchJob>,
    pub plan: Plan,
    /// Whether the recipe was trusted. An untrusted one may be part of the change under review, so it sets no branch,
    /// base, labels or reviewers, and its texts are escaped.
    pub recipe_trusted: bool,
    /// SHA-256 of the plan without its model.
    pub recipe_digest: String,
    pub policies: Vec<PolicyText>,
    pub verdict: Verdict,
    pub partial: bool,
    /// Whether the replies came from a recording.
    pub recorded: bool,
    pub message: String,
    /// The patch, which `git apply` applies to the base; empty when nothing changed.
    pub patch: Vec<u8>,
    pub patch_digest: String,
    pub files: Vec<FileChange>,
    /// The commit that the patch applies to.
    pub base: Option<String>,
    /// Whether the tree differed from the base commit when the run began.
    pub dirty: bool,
    /// `result.json`, for templates.
    pub result: Value,
    /// `summary.md`.
    pub summary: String,
    /// When the run ended. It becomes the commit's date, so that the same delivery makes the same commit.
    pub date: Timestamp,
    /// Absolute path of the tree that the run worked on.
    pub workspace: String,
    /// Whether every change was made by a call of the model, so that allow rules apply to all paths.
    pub by_calls_only: bool,
}

/// A job of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchJob {
    pub name: String,
    /// Whether the job's name is part of the branch name.
    pub in_branch: bool,
}

impl Deliverable {
    /// Builds it from a verified journal. `patch` is the recorded one; `ending` is the run's ending, for the reports.
    ///
    /// # Errors
    /// A sentence that says what is wrong: the journal has no `run_started` event, or its plan cannot be read.
    pub fn of(journal: &Journal, patch: Vec<u8>, ending: &OutputFacts) -> Result<Self, String> {
        let sum = RunSummary::fold(&journal.events);
        let head = sum.head.ok_or("the journal has no `run_started` event")?;
        let plan: Plan = serde_json::from_value(head.plan.clone())
            .map_err(|error| format!("the recorded plan cannot be read: {error}"))?;
        let approved = |kind: &EventKind| matches!(kind, EventKind::Approved { allow: true, .. });
        let approvals = journal.events.iter().any(|event| approved(&event.kind));
        let steps = plan.steps.iter().any(|step| matches!(step.work, StepWork::Run { .. }));
        Ok(Self {
            run: sum.run().to_owned(),
            recipe: sum.recipe().to_owned(),
            job: None,
            recipe_trusted: head.source.as_ref().is_some_and(|source| source.trusted),
            recipe_digest: head.plan_digest.clone(),
            policies: head.policies.clone(),
            verdict: sum.outcome.verdict,
            partial: sum.outcome.partial || !sum.finished,
            recorded: sum.recorded,
            message: sum.outcome.message.clone(),
            patch_digest: sha256_hex(&[&patch]),
            files: sum.patch.map(|patch| patch.files.clone()).unwrap_or_default(),
            base: head.base.commit.clone(),
            dirty: sum.dirty,
            result: result::result(&sum, ending).to_value(),
            summary: markdown::summary(&sum, ending),
            date: sum.ended.unwrap_or(Timestamp::UNIX_EPOCH),
            workspace: head.isolated_from.as_ref().unwrap_or(&head.workspace).clone(),
            by_calls_only: !approvals && !steps,
            patch,
            plan,
        })
    }
}
