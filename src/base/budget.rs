//! Limits of runs and steps, and what was spent against them. Pure arithmetic; the engine enforces the limits.

use super::ids::StepId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Limits of a run or a step. Null: no limit at this level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Budget {
    /// Model replies.
    pub turns: Option<u64>,
    /// Input plus output tokens, as counted by the vendor.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar.
    pub cost_micros: Option<u64>,
    /// Wall-clock time in milliseconds, including waits.
    pub wall_ms: Option<u64>,
    /// Calls per tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
}

/// The lower of two values where both are there, else the one that is.
pub fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Budget {
    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The lower of the two limits, field by field.
    pub fn lowered_by(&self, other: &Budget) -> Budget {
        let mut calls = self.calls.clone();
        for (tool, limit) in &other.calls {
            let entry = calls.entry(tool.clone()).or_insert(*limit);
            *entry = (*entry).min(*limit);
        }
        Budget {
            turns: least(self.turns, other.turns),
            tokens: least(self.tokens, other.tokens),
            cost_micros: least(self.cost_micros, other.cost_micros),
            wall_ms: least(self.wall_ms, other.wall_ms),
            calls,
        }
    }

    /// These limits, each replaced by that of `other` if it has one.
    #[must_use]
    pub fn overridden_by(&self, other: &Budget) -> Budget {
        let mut calls = self.calls.clone();
        calls.extend(other.calls.clone());
        Budget {
            turns: other.turns.or(self.turns),
            tokens: other.tokens.or(self.tokens),
            cost_micros: other.cost_micros.or(self.cost_micros),
            wall_ms: other.wall_ms.or(self.wall_ms),
            calls,
        }
    }

    /// The wall-clock limit.
    pub fn wall(&self) -> Option<Duration> {
        self.wall_ms.map(Duration::from_millis)
    }
}

/// Millionths of a US dollar.
pub fn micros(dollars: f64) -> u64 {
    // A cost below 0 or beyond `u64` saturates in the cast.
    (dollars * 1_000_000.0).round() as u64
}

/// What a run or a step has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spent {
    /// Replies of the model.
    pub turns: u64,
    /// Input and output tokens together.
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub cost_micros: u64,
    /// Whether some reply came from a model without a known price, so that `cost_micros` is too low.
    #[serde(default)]
    pub unpriced: bool,
    /// Calls by tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
}

/// A limit that was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHit {
    /// `turns`, `tokens`, `cost`, `wall` or `calls:TOOL`.
    pub limit: String,
    /// In the unit of the limit: replies (`turns`), tokens, millionths of a US dollar (`cost`), milliseconds (`wall`) or
    /// calls.
    pub spent: u64,
    /// In the same unit.
    pub allowed: u64,
    /// The step whose limit it is; `None` for the limit of the run.
    pub step: Option<StepId>,
}

impl LimitHit {
    /// A wall-clock limit of this many milliseconds.
    pub fn wall(allowed: u64) -> Self {
        Self {
            limit: "wall".to_owned(),
            spent: allowed,
            allowed,
            step: None,
        }
    }

    /// The same, as a limit of this step.
    #[must_use]
    pub fn of_step(self, step: &StepId) -> Self {
        Self {
            step: Some(step.clone()),
            ..self
        }
    }
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit.as_str() {
            "cost" => write!(f, "cost: {} of {} spent", usd(self.spent), usd(self.allowed)),
            "wall" => write!(
                f,
                "wall clock: {} s allowed",
                Duration::from_millis(self.allowed).as_secs_f64()
            ),
            limit => write!(f, "{limit}: {} of {} spent", self.spent, self.allowed),
        }
    }
}

fn usd(micros: u64) -> String {
    format!("{}.{:06} USD", micros / 1_000_000, micros % 1_000_000)
}

impl Spent {
    /// Adds the figures of a reply. `cost_micros`: `None` if the price of its model is not known.
    pub fn charge(&mut self, turns: u64, tokens: u64, cost_micros: Option<u64>) {
        self.turns += turns;
        self.tokens += tokens;
        self.cost_micros += cost_micros.unwrap_or(0);
        self.unpriced |= cost_micros.is_none();
    }

    /// The first limit that leaves no room for another request.
    pub fn exhausted(&self, budget: &Budget) -> Option<LimitHit> {
        let pairs = [
            ("turns", self.turns, budget.turns),
            ("tokens", self.tokens, budget.tokens),
            ("cost", self.cost_micros, budget.cost_micros),
        ];
        pairs.into_iter().find_map(|(limit, spent, allowed)| {
            let allowed = allowed?;
            (spent >= allowed).then(|| LimitHit {
                limit: limit.to_owned(),
                spent,
                allowed,
                step: None,
            })
        })
    }
}
