//! The recipe file, from text to a resolved plan. Pure: no I/O, no clock.
//!
//! `parse` → [`Recipe`] → `lower` (with values) → [`Plan`]. Templates are rendered after parsing, so that a value can
//! never change the document: prompts with [`template::render`], commands with [`template::render_command`], which
//! quotes every `{{ value }}` for the shell unless it is written `{{ value | raw }}`.

mod agentic_workflow;
mod comparisons;
mod documents;
mod gemini_command;
mod goose;
pub mod import;
pub mod input;
pub mod lower;
pub mod model;
mod names;
pub mod params;
pub mod parse;
pub mod plan;
mod schema_keywords;
mod shell;
pub mod show;
pub mod template;
mod template_error;

pub use documents::{DocumentUse, ReadDocument, check_schema, named, policy_needed};
pub use lower::{Overrides, RecipeArguments, check, lower};
pub use model::Recipe;
pub use names::DELIVERY_NAMES;
pub use parse::{parse, read};
pub use plan::{DeliverPlan, Plan};
pub use template::{StepOutputs, StepValues};
