//! The models of a batch: each is opened once, before the first job, so that a missing key stops the batch and not every
//! job; and what a run of them can cost.

use crate::base::model_name::REPLAY;
use crate::batch::plan::{JobInputs, PlannedJob};
use crate::cli::refusal::Refusal;
use crate::cli::{bootstrap, environment, limits};
use crate::provider::RequestSettings;
use crate::provider::open::check_name;
use crate::provider::pricing::Pricing;
use std::collections::{BTreeMap, BTreeSet};

/// A model's name, and whether it is the first of its job: `OVERNIGHT_BASE_URL` applies to the first only.
type ModelKey = (String, bool);

/// The models opened so far.
pub struct Models {
    pricing: Pricing,
    /// Whether replies are recorded, or why the model cannot be opened.
    opened: BTreeMap<ModelKey, Result<bool, Refusal>>,
}

/// The models of a job, each with whether it is the first.
fn keys(models: &[String]) -> impl Iterator<Item = ModelKey> {
    models.iter().enumerate().map(|(at, name)| (name.clone(), at == 0))
}

impl Models {
    /// # Errors
    /// The user's price table cannot be read.
    pub async fn new() -> Result<Self, Refusal> {
        Ok(Self {
            pricing: bootstrap::pricing().await?,
            opened: BTreeMap::new(),
        })
    }

    /// Opens the models of a job, and sets the cost limit that applies if none is set: 0 for a run that cannot cost.
    pub fn settle(&mut self, inputs: &mut JobInputs) {
        let Some(models) = &inputs.models else { return };
        let mut are_recorded = true;
        for key in keys(models) {
            let opened = self
                .opened
                .entry(key)
                .or_insert_with_key(|(name, first)| open(name, *first));
            are_recorded &= matches!(opened, Ok(true));
        }
        if are_recorded {
            inputs.budget.cost_micros = Some(0);
            return;
        }
        let first = models.first().map(String::as_str);
        inputs.budget.cost_micros = limits::default_cost(&inputs.budget, first, &self.pricing);
    }

    /// Whether all these jobs can ask their models. `then`: what follows for the batch if not, for people.
    ///
    /// # Errors
    /// All models that cannot be opened. The exit code is that of the gravest, as for `overnight run`.
    pub fn check<'a>(&self, jobs: impl Iterator<Item = &'a PlannedJob>, then: &str) -> Result<(), Refusal> {
        let mut named: BTreeMap<ModelKey, usize> = BTreeMap::new();
        for job in jobs {
            for key in keys(job.inputs.models.as_deref().unwrap_or_default()) {
                *named.entry(key).or_default() += 1;
            }
        }
        let mut found: Vec<&Refusal> = Vec::new();
        let (mut texts, mut jobs) = (BTreeSet::new(), 0);
        for (key, count) in named {
            if let Some(Err(refusal)) = self.opened.get(&key) {
                jobs += count;
                texts.insert(refusal.to_string());
                found.push(refusal);
            }
        }
        let Some(first) = found.into_iter().min_by_key(|refusal| refusal.code()) else {
            return Ok(());
        };
        let mut text: Vec<String> = texts.into_iter().collect();
        text.push(match jobs {
            1 => format!("{then}: 1 job needs it"),
            jobs => format!("{then}: {jobs} jobs need it"),
        });
        let text = text.join("\n");
        Err(match first {
            Refusal::Usage(_) => Refusal::Usage(text),
            Refusal::Invalid(_) => Refusal::Invalid(text),
            Refusal::Environment(_) => Refusal::Environment(text),
            Refusal::Output(_) => Refusal::Output(text),
            Refusal::Interrupted(_) => Refusal::Interrupted(first.outcome(&text)),
        })
    }
}

/// Whether the replies of a model are recorded.
fn open(name: &str, first: bool) -> Result<bool, Refusal> {
    // The journal of a recorded run may be in the job's own tree, so only the job can open it.
    if name.starts_with(REPLAY) {
        return Ok(true);
    }
    check_name(name).map_err(Refusal::Usage)?;
    let base_url = environment::variable("OVERNIGHT_BASE_URL").filter(|url| first && !url.is_empty());
    let provider = bootstrap::opened(name, &[], base_url.as_deref(), RequestSettings::default())?;
    Ok(provider.info().recorded)
}
