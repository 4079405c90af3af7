//! The one integration binary: everything here goes through the real program.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed, and a test starts what it likes"
)]

mod accepted;
mod all_problems_at_once;
mod approvals;
mod attacks;
mod batch;
mod batch_crash;
mod cases;
mod ci_templates;
mod cli;
mod corpus_effects;
mod daily_denials;
mod deliver;
mod differential;
mod engines;
mod exec_witness;
mod exit_codes;
mod extends;
mod feedback;
mod findings;
mod foreign_repositories;
mod forged;
mod formats;
mod fuzz_checks;
mod gemini;
mod github_step;
mod guide;
mod guide_reference;
mod habits;
mod harness;
mod hidden_files;
mod hostile;
mod injection;
mod inputs;
mod isolation;
mod journal;
mod layering;
mod leftovers;
mod limits;
mod locales;
mod long;
mod maintenance;
mod mcp;
mod mistakes;
mod object_stores;
mod own_homes;
mod own_programs;
mod packaging;
mod parallel;
mod patch;
mod policy_import;
mod process;
mod published;
mod readme;
mod real_packages;
mod recipe_language;
mod recipe_trust;
mod references;
mod replay;
mod resume;
mod ruled_patch;
mod rulings;
mod scheduler;
mod secret_files_of_recipes;
mod secrets;
mod server_prompts;
mod service;
mod shipped;
mod shipped_recipes;
mod shown;
mod small_models;
mod state;
mod store;
mod symbolic_links;
mod tools;
mod traces;
mod trust;
mod unbounded;
mod upgrade;
mod validators;
mod waits;
mod wires;
mod workplace;
mod write_guard;
