//! The default limits of a run, and the line that prints all limits before the run starts.

use crate::base::budget::Budget;
use crate::base::model_name::is_played;
use crate::provider::pricing::Pricing;
use crate::recipe::Plan;
use crate::recipe::lower::{COMMAND_MS, WALL_MS};
use crate::report::text;

/// Default cost limit, in millionths of a US dollar, for a run whose model has a known price.
const COST_MICROS: u64 = 5_000_000;

/// Whether the price of this model is known. `None`: the plan names no model.
fn is_priced(model: Option<&str>, pricing: &Pricing) -> bool {
    model.is_some_and(|model| {
        pricing
            .cost_micros(model, &crate::base::message::Usage::default())
            .is_some()
    })
}

/// The cost limit that applies if none is set; none for recorded replies and models without a known price.
pub fn default_cost(budget: &Budget, model: Option<&str>, pricing: &Pricing) -> Option<u64> {
    match budget.cost_micros {
        Some(set) => Some(set),
        None => is_priced(model, pricing).then_some(COST_MICROS),
    }
}

/// The first line on stderr, with every limit of the run.
pub fn line(plan: &Plan, pricing: &Pricing) -> String {
    let budget = &plan.budget;
    let recorded = plan.model.as_deref().is_some_and(is_played);
    let cost = match default_cost(budget, plan.model.as_deref(), pricing) {
        // Nothing costs anything where no model is asked.
        _ if !plan.asks() => String::new(),
        Some(micros) => format!(", ${:.2}", micros as f64 / 1e6),
        None if recorded => ", no cost (recorded replies)".to_owned(),
        None => ", no cost limit (no price is known; a server on this machine or in its private network costs nothing)"
            .to_owned(),
    };
    let number = |limit: Option<u64>, what: &str| match limit {
        Some(1) => format!("1 {what}"),
        Some(limit) => format!("{} {what}s", text::grouped(limit)),
        None => format!("any number of {what}s"),
    };
    format!(
        "overnight: limits: {}, {}{cost}, {} in total, {} per command",
        number(budget.turns, "turn"),
        number(budget.tokens, "token"),
        text::duration(budget.wall_ms.unwrap_or(WALL_MS)),
        text::duration(COMMAND_MS),
    )
}
