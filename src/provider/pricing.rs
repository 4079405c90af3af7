//! Prices and context windows of models, from a built-in table that users can extend. Pure.

use crate::base::message::Usage;
use serde::Deserialize;
use std::sync::LazyLock;

/// One row: a model and its dated variants.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRow {
    /// `PROVIDER/NAME`. Also matches that name with a date, `-preview…` or `-latest`; the longest matching name wins.
    pub model: String,
    /// Context window in tokens.
    pub window: Option<u64>,
    /// Limit of a reply in tokens, for wires that must send one.
    pub answer: Option<u64>,
    pub price: Option<TokenPrice>,
    /// Prices of requests whose input is longer than `above`.
    pub long: Option<Long>,
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrice {
    /// Input that was not read from or written to a cache.
    pub input: f64,
    /// Input read from the vendor's cache; the price of `input` when not set.
    pub cached: Option<f64>,
    /// Input written to the vendor's cache; the price of `input` when not set.
    pub cache_write: Option<f64>,
    /// Output, including reasoning.
    pub output: f64,
}

/// Other prices for long requests.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Long {
    /// Tokens of input above which these prices hold for the whole request.
    pub above: u64,
    pub price: TokenPrice,
}

/// Models and their prices.
#[derive(Clone, Debug, Default)]
pub struct Pricing {
    own: Vec<ModelRow>,
}

static TABLE: LazyLock<Vec<ModelRow>> =
    LazyLock::new(|| serde_json::from_str(include_str!("pricing/models.json")).unwrap_or_default());

/// The built-in table's row of a model.
pub fn known(id: &str) -> Option<&'static ModelRow> {
    find(&TABLE, id)
}

/// The ids of the models in the built-in table, as `PROVIDER/NAME`.
pub fn ids() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.model.as_str())
}

impl Pricing {
    /// The built-in table, preceded by the rows in `json`, a list in the same format.
    ///
    /// # Errors
    /// A sentence with the line and column in `json`.
    pub fn with(json: &str) -> Result<Self, String> {
        serde_json::from_str(json)
            .map(|own| Self { own })
            .map_err(|error| error.to_string())
    }

    /// The row of `PROVIDER/NAME`.
    pub fn known(&self, id: &str) -> Option<&ModelRow> {
        find(&self.own, id).or_else(|| known(id))
    }

    /// The cost of one request in millionths of a US dollar, rounded up; `None` when the price is unknown.
    pub fn cost_micros(&self, id: &str, usage: &Usage) -> Option<u64> {
        let known = self.known(id)?;
        let long = known
            .long
            .filter(|long| usage.input > long.above)
            .map(|long| long.price);
        Some(long.or(known.price)?.micros(usage))
    }
}

impl TokenPrice {
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
        // Floating-point errors in sums such as 0.1 + 0.2 must not round up to the next millionth.
        (sum - 1e-6).ceil().max(0.0) as u64
    }
}

/// The row with the longest name that equals `id`, apart from a suffix that means the same model.
fn find<'a>(rows: &'a [ModelRow], id: &str) -> Option<&'a ModelRow> {
    // The OpenAI vendor has two wires.
    let id = match id.strip_prefix("openai-responses/") {
        Some(name) => format!("openai/{name}"),
        None => id.to_owned(),
    };
    rows.iter()
        .filter(|row| id.strip_prefix(row.model.as_str()).is_some_and(is_variant))
        .max_by_key(|row| row.model.len())
}

/// Whether the suffix after a model's name means the same model: nothing, `-001`, `-20250514`, `-2025-08-07`,
/// `-preview…`, `-latest`. A short number is a version, which is another model.
fn is_variant(rest: &str) -> bool {
    let Some(word) = rest.strip_prefix(['-', '@']) else {
        return rest.is_empty();
    };
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    digits >= 3 || word.starts_with("preview") || word == "latest"
}

#[cfg(test)]
mod tests;
