//! What models cost and how much they hold, from a table that a user can extend. Charges nobody.

use crate::base::message::Usage;
use serde::Deserialize;
use std::sync::LazyLock;

/// One row: a model and its dated variants.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// `PROVIDER/NAME`. Also stands for that name with a date, `-preview…` or `-latest`; the longest name wins.
    pub model: String,
    /// Context window in tokens.
    pub window: Option<u64>,
    /// The longest answer in tokens, for the wires that must name one.
    pub answer: Option<u64>,
    pub price: Option<Price>,
    /// Prices of requests whose input is longer than `above`.
    pub long: Option<Long>,
}

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: f64,
    /// Read from the vendor's cache; `input` when not told.
    pub cached: Option<f64>,
    /// Written to the vendor's cache; `input` when not told.
    pub cache_write: Option<f64>,
    pub output: f64,
}

/// A second price for long requests.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Long {
    pub above: u64,
    pub price: Price,
}

/// Models and their prices.
#[derive(Clone, Debug, Default)]
pub struct Pricing {
    own: Vec<Known>,
}

static TABLE: LazyLock<Vec<Known>> =
    LazyLock::new(|| serde_json::from_str(include_str!("pricing/models.json")).unwrap_or_default());

/// What the built-in table knows of a model.
pub fn known(id: &str) -> Option<&'static Known> {
    find(&TABLE, id)
}

impl Pricing {
    /// The built-in table, with rows that go before it. `json` is a list of rows as in the built-in table.
    ///
    /// # Errors
    /// One sentence with the line and column in `json`.
    pub fn with(json: &str) -> Result<Self, String> {
        serde_json::from_str(json)
            .map(|own| Self { own })
            .map_err(|error| error.to_string())
    }

    /// What is known of `PROVIDER/NAME`.
    pub fn known(&self, id: &str) -> Option<&Known> {
        find(&self.own, id).or_else(|| known(id))
    }

    /// Millionths of a US dollar for one request, rounded up; `None` when no price is known.
    pub fn cost_micros(&self, id: &str, usage: &Usage) -> Option<u64> {
        let known = self.known(id)?;
        let long = known
            .long
            .filter(|long| usage.input > long.above)
            .map(|long| long.price);
        Some(long.or(known.price)?.micros(usage))
    }
}

impl Price {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "token counts are far below 2^53 and the sum is not negative"
    )]
    fn micros(self, usage: &Usage) -> u64 {
        let written = usage.cache_write.min(usage.input.saturating_sub(usage.cached));
        let fresh = usage.input.saturating_sub(usage.cached).saturating_sub(written);
        let sum = fresh as f64 * self.input
            + usage.cached as f64 * self.cached.unwrap_or(self.input)
            + written as f64 * self.cache_write.unwrap_or(self.input)
            + usage.output as f64 * self.output;
        // Sums such as 0.1 + 0.2 must not round up to the next millionth.
        (sum - 1e-6).ceil().max(0.0) as u64
    }
}

/// The row with the longest name that is `id`, but for a date or a word that means the same model.
fn find<'a>(rows: &'a [Known], id: &str) -> Option<&'a Known> {
    // One vendor, two wires.
    let id = match id.strip_prefix("openai-responses/") {
        Some(name) => format!("openai/{name}"),
        None => id.to_owned(),
    };
    rows.iter()
        .filter(|row| id.strip_prefix(row.model.as_str()).is_some_and(is_variant))
        .max_by_key(|row| row.model.len())
}

/// Whether what follows a model's name leaves it the same model: nothing, `-001`, `-20250514`, `-2025-08-07`,
/// `-preview…`, `-latest`. A short number is a version: another model.
fn is_variant(rest: &str) -> bool {
    let Some(word) = rest.strip_prefix(['-', '@']) else {
        return rest.is_empty();
    };
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    digits >= 3 || word.starts_with("preview") || word == "latest"
}

#[cfg(test)]
mod tests;
