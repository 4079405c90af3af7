//! The lines of `runs.jsonl`: one for each finished attempt at a job, and once more that of an up-to-date job whose
//! target could not be read in between. Scripts and databases read them, so fields are only ever added.

use super::BatchError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader};
use std::path::{Component, Path};

/// The file name.
pub const FILE: &str = "runs.jsonl";
/// Length limit of a line, in bytes.
const MAX_LINE: usize = 4 << 20;

/// One finished attempt. Paths except `source` are relative to the batch directory, money is in US dollars, times are RFC
/// 3339.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunRow {
    /// The job's name.
    pub job: String,
    /// SHA-256 of all inputs; empty when the target could not be read.
    pub digest: String,
    /// The `id` that the manifest gives; null when it gives none.
    pub id: Option<String>,
    /// Pairs the job with jobs of other models and recipe versions.
    pub name: String,
    /// The recipe as the manifest names it.
    pub recipe: String,
    /// Where the job worked, as the manifest names it.
    pub target: String,
    /// The key with which the manifest names the target: `path` or `repo`; absent in rows of early versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_kind: Option<String>,
    /// Where the target was: an absolute path on the machine of the job, or the URL of a repository; absent when the target
    /// could not be read, and in rows of early versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The branch, tag or commit that the manifest names; null when it names none.
    #[serde(default, rename = "ref")]
    pub git_ref: Option<String>,
    /// The parameters that the manifest gives.
    pub params: Map<String, Value>,
    /// SHA-256 of the input that the manifest gives; null when it gives none.
    #[serde(default)]
    pub input: Option<String>,
    /// The model as `PROVIDER/NAME`.
    pub model: String,
    /// Number of the trial, from 1.
    pub trial: u64,
    /// Number of the attempt, from 1.
    pub attempt: u64,
    /// The verdict, as in the run's own `result.json`.
    pub verdict: String,
    /// The exit code of the run.
    pub exit_code: u8,
    /// A code narrower than the verdict; empty when the run passed.
    pub reason: String,
    /// One sentence for people.
    #[serde(default)]
    pub message: String,
    /// US dollars.
    pub cost: f64,
    /// Whether `cost` is too low because no price is known for the model.
    #[serde(default)]
    pub unpriced: bool,
    /// Input and output tokens together.
    pub tokens: u64,
    /// Replies of the model.
    pub turns: u64,
    /// Wall-clock time of all processes of this attempt, but for one that was killed with its batch.
    pub seconds: f64,
    /// The commit that the patch applies to; null when none was determined.
    pub base: Option<String>,
    /// Path of the patch; null when nothing changed.
    pub patch: Option<String>,
    /// SHA-256 of the patch.
    pub patch_digest: Option<String>,
    /// The run directory; null when none was created.
    pub run: Option<String>,
    /// When the attempt began.
    pub started: Option<jiff::Timestamp>,
    /// When the attempt ended.
    pub ended: Option<jiff::Timestamp>,
    /// The shard as `I/N`; null when the batch has no shards.
    pub shard: Option<String>,
}

impl RunRow {
    /// Whether the job succeeded.
    pub fn is_success(&self) -> bool {
        matches!(self.verdict.as_str(), "passed" | "no_change")
    }

    /// The row as a line of JSON with its newline.
    pub fn to_line(&self) -> String {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Whether a path of a row stays inside its bundle.
pub fn is_inside(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Passes each row of a `runs.jsonl` in order to `take`, one at a time. A torn last line is skipped; returns whether there
/// is one.
///
/// # Errors
/// The file cannot be read, or a line is not a row; the message names its number.
pub fn each(path: &Path, mut take: impl FnMut(RunRow)) -> Result<bool, BatchError> {
    let file = std::fs::File::open(path).map_err(|error| BatchError::read(path, &error))?;
    let mut reader = BufReader::new(file);
    let (mut number, mut line) = (0_u64, Vec::new());
    loop {
        line.clear();
        let mut part = std::io::Read::take(&mut reader, MAX_LINE as u64 + 1);
        let read = part.read_until(b'\n', &mut line);
        if read.map_err(|error| BatchError::read(path, &error))? == 0
            || !line.ends_with(b"\n") && line.len() <= MAX_LINE
        {
            return Ok(!line.is_empty());
        }
        number += 1;
        let row = serde_json::from_slice(&line).map_err(|error| {
            BatchError::Invalid(format!("{}:{number}:1: error[not-a-row]: {error}", path.display()))
        })?;
        take(row);
    }
}
