//! `bundle.json`: the sizes and digests of a batch directory's files when a call has ended, so that a truncated or
//! altered copy is noticed. A directory without it belongs to a call that has not ended.

use super::BatchError;
use super::plan;
use super::result::JobReport;
use super::rows;
use crate::base::ids::{hex, sha256_hex};
use crate::journal::{artefacts, chain_key};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
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

/// A file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedFile {
    pub bytes: u64,
    pub sha256: String,
}

/// Length and chain head of `batch.jsonl`; the default is that of a directory without it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordHead {
    pub head: String,
    pub events: u64,
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
    pub record: RecordHead,
    pub files: BTreeMap<String, SealedFile>,
    /// With a key set: HMAC-SHA256 over this object without this field, serialized as one line of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

impl BundleSeal {
    /// The bundle of these jobs, for [`close`], which adds the files.
    pub fn of(manifest: &str, shard: Option<String>, jobs: &[JobReport], record: RecordHead) -> Self {
        let not_run = jobs.iter().filter(|job| job.state == "not_run");
        Self {
            schema: SCHEMA.to_owned(),
            manifest: manifest.to_owned(),
            shard,
            jobs: jobs.iter().map(|job| job.job.clone()).collect(),
            not_run: not_run.map(|job| (job.job.clone(), job.message.clone())).collect(),
            record,
            files: BTreeMap::new(),
            seal: None,
        }
    }
}

/// The size and SHA-256 digest of a file, read in chunks.
///
/// # Errors
/// The file cannot be read.
pub fn sealed_file(path: &Path) -> std::io::Result<SealedFile> {
    let mut file = File::open(path)?;
    let (mut digest, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            let sha256 = hex(&digest.finalize());
            return Ok(SealedFile { bytes, sha256 });
        }
        digest.update(piece.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
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
