//! The JSON Schemas of the files that people write and of the outputs that scripts read.
//!
//! The texts are in `schemas/`. The tests of this file generate those of outputs from the types (`OVERNIGHT_BLESS=1`
//! rewrites them); those of files are written by hand, and the tests compare every key, word and required key with the
//! parsers.

use clap::ValueEnum;

/// Where editors look up the schemas: SchemaStore, the public store, under their file names.
pub const BASE: &str = "https://json.schemastore.org/";

/// The help of `overnight schema` after the flags.
pub const HELP: &str = "\
In an editor:
  Files that this program writes begin with the line
    # yaml-language-server: $schema=https://json.schemastore.org/overnight-recipe-1.json
  which editors with a YAML language server follow. Without the network, or for
  exactly this version of the program, write the schemas to a directory
    overnight schema --dir .schemas
  and name the file instead: # yaml-language-server: $schema=../.schemas/overnight-recipe-1.json

In a script:
  overnight schema recipe > recipe.json && check-jsonschema --schemafile recipe.json ci/*.yaml";

/// The files and outputs that have a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// A recipe
    Recipe,
    /// A policy
    Policy,
    /// Argument profiles, as a policy holds them under `profiles`
    Profile,
    /// The manifest of a batch
    Batch,
    /// One job as a line of JSON Lines, for `overnight batch`
    Job,
    /// A table of cases, for `overnight policy test`
    Cases,
    /// A script of replies, for `--model script:FILE`
    Script,
    /// `result.json` of a run, which `--format json` also prints
    Result,
    /// `result.json` of a batch
    BatchResult,
    /// One line of a batch's `runs.jsonl`
    Runs,
    /// One line that `overnight deliver --format json` prints
    Deliver,
    /// The findings in an answer or in a step's output
    Findings,
    /// One event, as a line of `journal.jsonl` or of `--format stream-json`
    Event,
    /// What a command that cannot be carried out prints with `--format json`
    Error,
}

impl SchemaKind {
    /// The name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recipe => "recipe",
            Self::Policy => "policy",
            Self::Profile => "profile",
            Self::Batch => "batch",
            Self::Job => "job",
            Self::Cases => "cases",
            Self::Script => "script",
            Self::Result => "result",
            Self::BatchResult => "batch-result",
            Self::Runs => "runs",
            Self::Deliver => "deliver",
            Self::Findings => "findings",
            Self::Event => "event",
            Self::Error => "error",
        }
    }

    /// The schema: indented JSON with a newline at the end.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Recipe => include_str!("schemas/recipe.json"),
            Self::Policy => include_str!("schemas/policy.json"),
            Self::Profile => include_str!("schemas/profile.json"),
            Self::Batch => include_str!("schemas/batch.json"),
            Self::Job => include_str!("schemas/job.json"),
            Self::Cases => include_str!("schemas/cases.json"),
            Self::Script => include_str!("schemas/script.json"),
            Self::Result => include_str!("schemas/result.json"),
            Self::BatchResult => include_str!("schemas/batch-result.json"),
            Self::Runs => include_str!("schemas/runs.json"),
            Self::Deliver => include_str!("schemas/deliver.json"),
            Self::Findings => include_str!("schemas/findings.json"),
            Self::Event => include_str!("schemas/event.json"),
            Self::Error => include_str!("schemas/error.json"),
        }
    }

    /// The file name, also in the schema's `$id`. Its number grows when a document of the former kind would no longer be
    /// accepted.
    pub fn file_name(self) -> String {
        format!("overnight-{}-1.json", self.as_str())
    }

    /// The first line of a YAML file of this kind, with its newline: it names the schema to editors.
    pub fn first_line(self) -> String {
        format!("# yaml-language-server: $schema={BASE}{}\n", self.file_name())
    }

    /// The text with [`Self::first_line`], unless it names a schema already.
    pub fn headed(self, text: &str) -> String {
        match text.lines().any(|line| line.starts_with("# yaml-language-server:")) {
            true => text.to_owned(),
            false => format!("{}{text}", self.first_line()),
        }
    }
}

#[cfg(test)]
mod tests;
