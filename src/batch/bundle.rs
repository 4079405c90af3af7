//! `bundle.json`: the sizes and digests of a batch directory's files when a call has ended, so that a truncated or
//! altered copy is noticed, and how the call left its jobs, so that the rows of an earlier call do not pass as its own. A
//! directory without it belongs to a call that has not ended.

use super::BatchError;
use super::job_result::{JobDisposition, NOT_RUN, SupervisedCall, UP_TO_DATE};
use super::plan;
use super::result::JobReport;
use super::rows;
use super::sealed_file::{SealedFile, sealed_file};
use crate::base::exit;
use crate::base::ids::sha256_hex;
use crate::journal::{artefacts, chain_key};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The value of `schema`.
pub const SCHEMA: &str = "overnight/bundle/v1";
/// The file name.
pub const FILE: &str = "bundle.json";
/// Prefix of the data that the HMAC of a bundle covers.
const SEAL: &[u8] = b"overnight/bundle\n";
/// Size limit of a `bundle.json` that is read, in bytes.
pub const MAX_BYTES: u64 = 256 << 20;

/// Length and chain head of `batch.jsonl`; the default is that of a directory without it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordHead {
    /// The hash of the record's last event.
    pub head: String,
    /// How many events it has.
    pub events: u64,
}

/// How a call left a job that it did not end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLeft {
    /// [`UP_TO_DATE`], or a state of a [`JobReport`] that has not ended.
    pub state: String,
    pub exit_code: u8,
    /// One sentence for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What a call used, and how it left the jobs that it did not end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedCall {
    pub turns: u64,
    pub tokens: u64,
    /// In millionths of a US dollar.
    pub cost_micros: u64,
    /// Whether the cost is too low because a price is not known.
    pub unpriced: bool,
    pub started: Option<jiff::Timestamp>,
    pub ended: Option<jiff::Timestamp>,
    /// The jobs that it did not end, except those in [`BundleSeal::not_run`].
    pub left: BTreeMap<String, JobLeft>,
}

/// `bundle.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleSeal {
    pub schema: String,
    pub manifest: String,
    /// The shard as `I/N`; null for a whole batch.
    pub shard: Option<String>,
    /// Names of the jobs that this shard had to run.
    pub jobs: Vec<String>,
    /// Why some of its jobs did not run.
    #[serde(default)]
    pub not_run: BTreeMap<String, String>,
    /// Absent in bundles of early versions, whose authentication must not change when it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<SealedCall>,
    pub record: RecordHead,
    pub files: BTreeMap<String, SealedFile>,
    /// With a key set: HMAC-SHA256 over this object without this field, serialized as one line of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

impl BundleSeal {
    /// The bundle of a call with these reports of its jobs, for [`close`], which adds the files.
    pub fn of(
        manifest: &str,
        shard: Option<String>,
        jobs: &[JobReport],
        call: &SupervisedCall,
        record: RecordHead,
    ) -> Self {
        let not_run = jobs.iter().filter(|job| job.state == NOT_RUN);
        let left = jobs.iter().filter_map(|job| Some((job.job.clone(), left_of(job)?)));
        Self {
            schema: SCHEMA.to_owned(),
            manifest: manifest.to_owned(),
            shard,
            jobs: jobs.iter().map(|job| job.job.clone()).collect(),
            not_run: not_run.map(|job| (job.job.clone(), job.message.clone())).collect(),
            call: Some(SealedCall {
                turns: call.spent.turns,
                tokens: call.spent.tokens,
                cost_micros: call.spent.cost_micros,
                unpriced: call.unpriced,
                started: call.started,
                ended: call.ended,
                left: left.collect(),
            }),
            record,
            files: BTreeMap::new(),
            seal: None,
        }
    }

    /// The jobs that the call did not end, and how it left them. Of a bundle of an early version only those that were not
    /// run are known.
    pub fn left(&self) -> BTreeMap<&str, JobLeft> {
        let of_call = self.call.iter().flat_map(|call| &call.left);
        let of_call = of_call.map(|(job, left)| (job.as_str(), left.clone()));
        let not_run = self.not_run.iter().map(|(job, reason)| {
            let left = JobLeft {
                state: NOT_RUN.to_owned(),
                exit_code: exit::INCOMPLETE,
                message: reason.clone(),
            };
            (job.as_str(), left)
        });
        of_call.chain(not_run).collect()
    }

    /// The jobs of [`Self::left`] of which the call has no result: their last rows, if any, are those of an earlier call
    /// and may be of other inputs.
    pub fn without_result(&self) -> BTreeMap<&str, JobLeft> {
        let mut left = self.left();
        left.retain(|_, left| left.state != UP_TO_DATE);
        left
    }

    /// Whether a merge made it, which has no record.
    pub fn is_of_merge(&self) -> bool {
        self.record == RecordHead::default()
    }
}

/// How a job was left; `None` for one that ended, and for one that was not run, which [`BundleSeal::not_run`] has.
fn left_of(job: &JobReport) -> Option<JobLeft> {
    let (state, message) = match (job.has_ended(), job.disposition) {
        (true, JobDisposition::UpToDate) => (UP_TO_DATE, ""),
        (false, _) if job.state != NOT_RUN => (job.state.as_str(), job.message.as_str()),
        _ => return None,
    };
    Some(JobLeft {
        state: state.to_owned(),
        exit_code: job.exit_code,
        message: message.to_owned(),
    })
}

/// Removes `bundle.json` when a call begins.
///
/// # Errors
/// An I/O error.
pub fn open(dir: &Path) -> Result<(), BatchError> {
    let path = dir.join(FILE);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BatchError::write(&path, &error)),
        _ => Ok(()),
    }
}

/// Writes `bundle.json` at the end of a call.
///
/// # Errors
/// An I/O error.
pub fn close(dir: &Path, mut seal: BundleSeal) -> Result<(), BatchError> {
    for name in [plan::FILE, rows::FILE] {
        let path = dir.join(name);
        let file = sealed_file(&path).map_err(|error| BatchError::read(&path, &error))?;
        seal.files.insert(name.to_owned(), file);
    }
    seal.seal = None;
    if let Some(key) = chain_key::key()? {
        let text = serde_json::to_string(&seal).unwrap_or_default();
        seal.seal = Some(key.mac(&[SEAL, text.as_bytes()]));
    }
    let mut text = serde_json::to_string(&seal).unwrap_or_default();
    text.push('\n');
    artefacts::replace(&dir.join(FILE), text.as_bytes())?;
    Ok(())
}

/// Reads `bundle.json` of a directory; `None` when there is none.
///
/// # Errors
/// A sentence that says what is wrong: not a bundle file, or not authenticated by the key that is set.
pub fn read(dir: &Path) -> Result<Option<BundleSeal>, String> {
    let path = dir.join(FILE);
    let file = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|error| format!("{}: {error}", path.display()))?,
    };
    let mut text = Vec::new();
    file.take(MAX_BYTES)
        .read_to_end(&mut text)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text, &path.display().to_string()).map(Some)
}

/// Parses a bundle file; `shown` is its name in messages.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &[u8], shown: &str) -> Result<BundleSeal, String> {
    let seal: BundleSeal =
        serde_json::from_slice(text).map_err(|error| format!("{shown} is cut or altered: {error}"))?;
    if let Some(key) = chain_key::key().map_err(|error| error.to_string())? {
        let bare = BundleSeal {
            seal: None,
            ..seal.clone()
        };
        let bare = serde_json::to_string(&bare).unwrap_or_default();
        let holds = seal
            .seal
            .as_ref()
            .is_some_and(|mac| key.verifies(&[SEAL, bare.as_bytes()], mac));
        if !holds {
            return Err(format!(
                "{shown} is not authenticated by the key in OVERNIGHT_JOURNAL_KEY"
            ));
        }
    }
    Ok(seal)
}

/// Whether a patch has the digest that its row names.
pub fn is_patch(bytes: &[u8], digest: &str) -> bool {
    sha256_hex(&[bytes]) == digest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key authenticates the text of a bundle, so one of an early version must be written as it was read.
    #[test]
    fn a_bundle_of_an_early_version_stays_as_it_is() {
        let old = r#"{"schema":"overnight/bundle/v1","manifest":"m","shard":null,"jobs":["a","b"],"not_run":{"b":"no budget"},"record":{"head":"h","events":3},"files":{}}"#;
        let seal = parse(old.as_bytes(), "bundle.json").unwrap();
        assert_eq!(serde_json::to_string(&seal).unwrap(), old);
        let left = seal.without_result();
        assert_eq!(left.keys().collect::<Vec<_>>(), [&"b"]);
        assert_eq!((left["b"].state.as_str(), left["b"].exit_code), (NOT_RUN, 10));
    }

    #[test]
    fn a_call_says_how_it_left_its_jobs() {
        let report = |job: &str, disposition: JobDisposition, state: &str| JobReport {
            job: job.to_owned(),
            disposition,
            state: state.to_owned(),
            message: "why".to_owned(),
            exit_code: 0,
            row: None,
        };
        let jobs = [
            report("ended", JobDisposition::Run, "failed"),
            report("fresh", JobDisposition::UpToDate, "passed"),
            report("gone", JobDisposition::Run, "cancelled"),
            report("left", JobDisposition::Skipped, "skipped"),
            report("never", JobDisposition::Run, "not_run"),
        ];
        let seal = BundleSeal::of("m", None, &jobs, &SupervisedCall::default(), RecordHead::default());
        let text = serde_json::to_string(&seal).unwrap();
        let read: BundleSeal = serde_json::from_str(&text).unwrap();
        assert_eq!(read, seal);
        let states: Vec<_> = read.left().into_iter().map(|(job, left)| (job, left.state)).collect();
        assert_eq!(
            states
                .iter()
                .map(|(job, state)| (*job, state.as_str()))
                .collect::<Vec<_>>(),
            [
                ("fresh", UP_TO_DATE),
                ("gone", "cancelled"),
                ("left", "skipped"),
                ("never", NOT_RUN)
            ]
        );
        assert!(!read.without_result().contains_key("fresh") && read.is_of_merge());
    }
}
