//! Objects as files below a directory, on this machine or a network file system. A file is written under a temporary
//! name and then renamed or linked, so that no reader sees a partial file.

use super::{Draft, Expected, FetchedObject, MAX_LISTED};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Prefix of the names of files that are being written.
const DRAFT: &str = ".draft-";
/// Depth limit of a listing.
const MAX_DEPTH: usize = 64;
/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| error.to_string())?
}

fn error_message(error: &std::io::Error) -> String {
    error.to_string()
}

/// A temporary file in the directory of an object, filled by `fill` and synced to disk.
fn draft(path: &Path, fill: impl FnOnce(&mut File) -> std::io::Result<()>) -> std::io::Result<tempfile::NamedTempFile> {
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(parent)?;
    let mut draft = tempfile::Builder::new()
        .prefix(DRAFT)
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(parent)?;
    fill(draft.as_file_mut())?;
    draft.as_file().sync_all()?;
    Ok(draft)
}

fn replace(path: &Path, fill: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<(), String> {
    let draft = draft(path, fill).map_err(|error| error_message(&error))?;
    draft.persist(path).map_err(|error| error_message(&error.error))?;
    Ok(())
}

pub(super) async fn put(dir: &Path, key: String, bytes: Vec<u8>) -> Result<(), String> {
    let path = dir.join(key);
    blocking(move || replace(&path, |file| file.write_all(&bytes))).await
}

pub(super) async fn put_file(dir: &Path, key: String, from: PathBuf) -> Result<(), String> {
    let path = dir.join(key);
    blocking(move || {
        let mut source = File::open(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        replace(&path, |file| std::io::copy(&mut source, file).map(|_| ()))
    })
    .await
}

/// Uses a hard link, which fails if the name exists, also on network file systems.
pub(super) async fn create(dir: &Path, key: String, bytes: Vec<u8>) -> Result<bool, String> {
    let path = dir.join(key);
    blocking(move || {
        let draft = draft(&path, |file| file.write_all(&bytes)).map_err(|error| error_message(&error))?;
        match std::fs::hard_link(draft.path(), &path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error_message(&error)),
        }
    })
    .await
}

fn opened(path: &Path) -> Result<Option<File>, String> {
    match File::open(path) {
        Ok(file) if file.metadata().is_ok_and(|data| data.is_file()) => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error_message(&error)),
    }
}

pub(super) async fn get(dir: &Path, key: String, most: u64) -> Result<Option<Vec<u8>>, String> {
    let path = dir.join(key);
    blocking(move || {
        let Some(file) = opened(&path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| error_message(&error))?;
        match bytes.len() as u64 > most {
            true => Err(format!("it has more than {most} bytes")),
            false => Ok(Some(bytes)),
        }
    })
    .await
}

pub(super) async fn exists(dir: &Path, key: String) -> Result<bool, String> {
    let path = dir.join(key);
    blocking(move || opened(&path).map(|file| file.is_some())).await
}

pub(super) async fn fetch(dir: &Path, key: String, to: &Path, expected: Expected<'_>) -> Result<FetchedObject, String> {
    let (path, to) = (dir.join(key), to.to_owned());
    let (bytes, sha256) = (expected.bytes, expected.sha256.to_owned());
    blocking(move || {
        let expected = Expected { bytes, sha256: &sha256 };
        let Some(mut file) = opened(&path)? else {
            return Ok(FetchedObject::Missing);
        };
        let (mut draft, mut piece) = (Draft::new(&to)?, vec![0; PIECE]);
        loop {
            let read = file.read(&mut piece).map_err(|error| error_message(&error))?;
            if read == 0 {
                return draft.end(&to, expected);
            }
            if !draft.add(piece.get(..read).unwrap_or_default(), expected)? {
                return Ok(FetchedObject::Other(draft.bytes));
            }
        }
    })
    .await
}

pub(super) async fn list(dir: &Path, key: String) -> Result<Vec<String>, String> {
    let dir = dir.to_owned();
    blocking(move || {
        let (mut found, mut open) = (Vec::new(), vec![(String::new(), 0)]);
        let dir = dir.join(key);
        while let Some((key, depth)) = open.pop() {
            let entries = match std::fs::read_dir(dir.join(&key)) {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                entries => entries.map_err(|error| error_message(&error))?,
            };
            for entry in entries {
                let entry = entry.map_err(|error| error_message(&error))?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let key = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}/{name}")
                };
                let kind = entry.file_type().map_err(|error| error_message(&error))?;
                if kind.is_dir() && depth < MAX_DEPTH {
                    open.push((key, depth + 1));
                } else if kind.is_file() && !name.starts_with(DRAFT) {
                    found.push(key);
                }
                if found.len() > MAX_LISTED {
                    return Err(format!("there are more than {MAX_LISTED} objects"));
                }
            }
        }
        Ok(found)
    })
    .await
}

pub(super) async fn directories(dir: &Path, key: String) -> Result<Vec<String>, String> {
    let path = dir.join(key);
    blocking(move || {
        let entries = match std::fs::read_dir(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            entries => entries.map_err(|error| error_message(&error))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| error_message(&error))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        Ok(names)
    })
    .await
}

pub(super) async fn delete(dir: &Path, key: String) -> Result<(), String> {
    let path = dir.join(key);
    blocking(move || match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error_message(&error)),
        _ => Ok(()),
    })
    .await
}
