//! Where a recipe came from, as the journal records it.

use super::ids::BlobId;
use serde::{Deserialize, Serialize};

/// A file beside the recipe that its commands get, as the journal records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeptFile {
    /// Relative to the recipe's directory, with `/`.
    pub path: String,
    /// Its content.
    pub blob: BlobId,
    /// Whether it may be executed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

/// Where a recipe came from, and whether its requests for itself are trusted. Recorded only for information: a resume
/// determines trust again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecipeSource {
    /// As on the command line: a path, `git:REV:PATH` or `-`; empty for a prompt.
    pub name: String,
    /// The commit that `REV` named when the run began, as a full id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Whether it was trusted.
    pub trusted: bool,
    /// Why it is trusted or not: a phrase for people.
    pub why: String,
    /// Absolute paths of the files that the run must not write: recipe, policies, and what the recipe names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}
