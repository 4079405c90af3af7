//! Objects under a prefix of S3, Google Cloud Storage or Azure Blob Storage, or files below a directory under the same
//! rules: an object appears whole or not at all, and of several callers that create it at the same time one succeeds.

#[cfg(feature = "cloud")]
mod cloud;
mod directory;

use crate::base::secret::shortened;
use std::path::{Path, PathBuf};

/// Size limit of an object that is sent or received as a file, in bytes.
pub const MAX_OBJECT: u64 = 16 << 30;
/// Limit of objects in one listing.
pub const MAX_LISTED: usize = 2_000_000;
/// The schemes of object stores.
const SCHEMES: [&str; 3] = ["s3", "gs", "az"];
/// Length limit of a name below the prefix, in bytes. S3 and Google Cloud Storage allow 1024 in all.
const MAX_KEY: usize = 800;

/// Why an object could not be stored or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The address cannot be used; says what to write instead.
    #[error("{0}")]
    Address(String),
    /// The store or the disk failed, after retries.
    #[error("{0}")]
    Failed(String),
}

/// The result of fetching an object into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchedObject {
    /// It is in its place, with the expected size and digest.
    Whole,
    Missing,
    /// Its size or digest differs from the expected one; nothing was written. The value is its size, as far as it was
    /// read.
    Other(u64),
}

/// The expected content of a file.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub bytes: u64,
    /// SHA-256 in lower-case hex.
    pub sha256: &'a str,
}

/// A place for objects. Names are relative to it and separated by `/`.
#[derive(Clone, Debug)]
pub struct Objects {
    place: Place,
    /// The address, for messages.
    url: String,
    /// Without slashes at its ends.
    prefix: String,
}

#[derive(Clone, Debug)]
enum Place {
    Directory(PathBuf),
    #[cfg(feature = "cloud")]
    Cloud(cloud::Bucket),
}

/// Whether a command-line argument is an address and not a path.
pub fn is_address(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once("://") else {
        return false;
    };
    !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
}

impl Objects {
    /// Opens `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `file:///DIRECTORY`. Sends nothing.
    /// `environment` holds the variables with credentials and settings.
    ///
    /// # Errors
    /// [`ObjectError::Address`].
    pub fn open(address: &str, environment: &[(String, String)]) -> Result<Self, ObjectError> {
        let wrong = |why: &str| {
            ObjectError::Address(format!(
                "{why}: write a directory, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY"
            ))
        };
        let (scheme, rest) = address
            .split_once("://")
            .ok_or_else(|| wrong("this is not an address"))?;
        // A signature or password in the address would be in every message.
        if rest.contains(['?', '#', '@']) {
            return Err(wrong(
                "the address of an object store has no user, no `?` and no `#`; credentials come from the environment",
            ));
        }
        if rest.chars().any(|c| c.is_control() || c == '\\') || rest.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(wrong("the address has a control character, `\\`, `.` or `..` in it"));
        }
        if scheme == "file" {
            if !rest.starts_with('/') {
                return Err(wrong(
                    "file:// must be followed by an absolute path, with three slashes in all",
                ));
            }
            return Ok(Self {
                place: Place::Directory(PathBuf::from(rest)),
                url: format!("file://{}", rest.trim_end_matches('/')),
                prefix: String::new(),
            });
        }
        if !SCHEMES.contains(&scheme) {
            return Err(wrong(&format!("{scheme}:// is not a known object store")));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if bucket.is_empty() || prefix.split('/').any(str::is_empty) {
            return Err(wrong(&format!(
                "{scheme}:// needs a bucket or container and a prefix in it"
            )));
        }
        let url = format!("{scheme}://{bucket}/{prefix}");
        Self::remote(scheme, bucket, prefix.to_owned(), url, environment)
    }

    #[cfg(feature = "cloud")]
    fn remote(
        scheme: &str,
        bucket: &str,
        prefix: String,
        url: String,
        environment: &[(String, String)],
    ) -> Result<Self, ObjectError> {
        let place = Place::Cloud(cloud::Bucket::open(scheme, bucket, environment)?);
        Ok(Self { place, url, prefix })
    }

    #[cfg(not(feature = "cloud"))]
    fn remote(
        scheme: &str,
        _bucket: &str,
        _prefix: String,
        _url: String,
        _environment: &[(String, String)],
    ) -> Result<Self, ObjectError> {
        Err(ObjectError::Address(format!(
            "{scheme}:// needs a build with the cargo feature `cloud`, and this one lacks it (`overnight --version --verbose` \
             lists the features): build it with `--features cloud`, or name a directory or file:///DIRECTORY"
        )))
    }

    /// The address, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The place below this one.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let prefix = match self.prefix.is_empty() {
            true => name.to_owned(),
            false => format!("{}/{name}", self.prefix),
        };
        Self {
            place: self.place.clone(),
            url: format!("{}/{name}", self.url),
            prefix,
        }
    }

    /// The whole name, for the place's own API; refuses what would lead out of it.
    fn key(&self, name: &str) -> Result<String, ObjectError> {
        let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
        if name.len() > MAX_KEY || !name.split('/').all(is_part) || name.contains(['\\', '\0']) {
            let shown = shortened(name, 200);
            return Err(ObjectError::Failed(format!(
                "`{shown}` cannot be the name of an object"
            )));
        }
        Ok(match self.prefix.is_empty() {
            true => name.to_owned(),
            false => format!("{}/{name}", self.prefix),
        })
    }

    fn failed(&self, what: &str, name: &str, why: &str) -> ObjectError {
        ObjectError::Failed(format!("cannot {what} {}/{name}: {why}", self.url))
    }

    /// Stores an object, in place of an earlier one of this name.
    ///
    /// # Errors
    /// [`ObjectError::Failed`].
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ObjectError> {
        let key = self.key(name)?;
        let done = match &self.place {
            Place::Directory(dir) => directory::put(dir, key, bytes).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.put(&key, bytes).await,
        };
        done.map_err(|why| self.failed("write", name, &why))
    }

    /// Stores an object if there is none of this name; `false` when there is one, which stays as it is.
    ///
    /// # Errors
    /// [`ObjectError::Failed`].
    pub async fn create(&self, name: &str, bytes: Vec<u8>) -> Result<bool, ObjectError> {
        let key = self.key(name)?;
        let done = match &self.place {
            Place::Directory(dir) => directory::create(dir, key, bytes).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.create(&key, bytes).await,
        };
        done.map_err(|why| self.failed("create", name, &why))
    }

    /// Stores a file as an object, in bounded memory.
    ///
    /// # Errors
    /// [`ObjectError::Failed`], also when the file is larger than [`MAX_OBJECT`].
    pub async fn put_file(&self, name: &str, path: &Path) -> Result<(), ObjectError> {
        let key = self.key(name)?;
        let size = tokio::fs::metadata(path)
            .await
            .map_err(|error| self.failed("write", name, &format!("{}: {error}", path.display())))?
            .len();
        if size > MAX_OBJECT {
            let why = format!("{} has {size} bytes, and {MAX_OBJECT} are allowed", path.display());
            return Err(self.failed("write", name, &why));
        }
        let done = match &self.place {
            Place::Directory(dir) => directory::put_file(dir, key, path.to_owned()).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.put_file(&key, path, size).await,
        };
        done.map_err(|why| self.failed("write", name, &why))
    }

    /// The bytes of an object; `None` when there is none.
    ///
    /// # Errors
    /// [`ObjectError::Failed`], also when it has more than `most` bytes.
    pub async fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let key = self.key(name)?;
        let done = match &self.place {
            Place::Directory(dir) => directory::get(dir, key, most).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.get(&key, most).await,
        };
        done.map_err(|why| self.failed("read", name, &why))
    }

    /// Whether there is an object of this name.
    ///
    /// # Errors
    /// [`ObjectError::Failed`].
    pub async fn exists(&self, name: &str) -> Result<bool, ObjectError> {
        let key = self.key(name)?;
        let done = match &self.place {
            Place::Directory(dir) => directory::exists(dir, key).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.exists(&key).await,
        };
        done.map_err(|why| self.failed("read", name, &why))
    }

    /// Stores an object as a file, in bounded memory. The file appears only when size and digest are the expected ones.
    ///
    /// # Errors
    /// [`ObjectError::Failed`].
    pub async fn fetch(&self, name: &str, to: &Path, expected: Expected<'_>) -> Result<FetchedObject, ObjectError> {
        let key = self.key(name)?;
        if expected.bytes > MAX_OBJECT {
            let why = format!("{} bytes, and {MAX_OBJECT} are allowed", expected.bytes);
            return Err(self.failed("read", name, &why));
        }
        let done = match &self.place {
            Place::Directory(dir) => directory::fetch(dir, key, to, expected).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.fetch(&key, to, expected).await,
        };
        done.map_err(|why| self.failed("read", name, &why))
    }

    /// The names of all objects below `name`, relative to this place, in any order.
    ///
    /// # Errors
    /// [`ObjectError::Failed`], also when there are more than [`MAX_LISTED`].
    pub async fn list(&self, name: &str) -> Result<Vec<String>, ObjectError> {
        let key = self.key(name)?;
        let done = match &self.place {
            Place::Directory(dir) => directory::list(dir, key).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.list(&key).await,
        };
        let below = done.map_err(|why| self.failed("list", name, &why))?;
        Ok(below.into_iter().map(|rest| format!("{name}/{rest}")).collect())
    }

    /// The last parts of the names one level below `name` that have further names below them, in order.
    ///
    /// # Errors
    /// [`ObjectError::Failed`].
    pub async fn directories(&self, name: &str) -> Result<Vec<String>, ObjectError> {
        let key = self.key(name)?;
        let done = match &self.place {
            Place::Directory(dir) => directory::directories(dir, key).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.directories(&key).await,
        };
        let mut names = done.map_err(|why| self.failed("list", name, &why))?;
        names.sort();
        Ok(names)
    }

    /// Removes an object; a missing one is no error.
    ///
    /// # Errors
    /// [`ObjectError::Failed`].
    pub async fn delete(&self, name: &str) -> Result<(), ObjectError> {
        let key = self.key(name)?;
        let done = match &self.place {
            Place::Directory(dir) => directory::delete(dir, key).await,
            #[cfg(feature = "cloud")]
            Place::Cloud(bucket) => bucket.delete(&key).await,
        };
        done.map_err(|why| self.failed("remove", name, &why))
    }
}

/// A file that is being received: written under a temporary name, and renamed when it is complete.
struct Draft {
    file: tempfile::NamedTempFile,
    digest: sha2::Sha256,
    bytes: u64,
}

impl Draft {
    fn new(to: &Path) -> Result<Self, String> {
        let parent = to.parent().unwrap_or_else(|| Path::new("."));
        let said = |error: std::io::Error| format!("{}: {error}", parent.display());
        std::fs::create_dir_all(parent).map_err(said)?;
        Ok(Self {
            file: tempfile::NamedTempFile::new_in(parent).map_err(said)?,
            digest: sha2::Digest::new(),
            bytes: 0,
        })
    }

    /// Adds a chunk. `false` if the object exceeds its expected size.
    fn add(&mut self, piece: &[u8], expected: Expected<'_>) -> Result<bool, String> {
        self.bytes += piece.len() as u64;
        if self.bytes > expected.bytes {
            return Ok(false);
        }
        sha2::Digest::update(&mut self.digest, piece);
        std::io::Write::write_all(&mut self.file, piece).map_err(|error| error.to_string())?;
        Ok(true)
    }

    fn end(self, to: &Path, expected: Expected<'_>) -> Result<FetchedObject, String> {
        let digest = sha2::Digest::finalize(self.digest);
        let hex = crate::base::ids::hex(&digest);
        if self.bytes != expected.bytes || hex != expected.sha256 {
            return Ok(FetchedObject::Other(self.bytes));
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        let said = |error: std::io::Error| format!("{}: {error}", to.display());
        self.file.as_file().set_permissions(mode).map_err(said)?;
        self.file.persist(to).map_err(|error| said(error.error))?;
        Ok(FetchedObject::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::sha256_hex;

    fn refused(address: &str) -> String {
        match Objects::open(address, &[]) {
            Err(ObjectError::Address(why)) => why,
            other => panic!("{address}: {other:?}"),
        }
    }

    #[test]
    fn addresses() {
        for text in ["s3://b/p", "file:///x", "ftp://x"] {
            assert!(is_address(text), "{text}");
        }
        for text in ["out", "/a/b", "a b://c", "://"] {
            assert!(!is_address(text), "{text}");
        }
        for wrong in [
            "s3://bucket",
            "s3:///prefix",
            "gs://b//p",
            "az://c/../p",
            "ftp://b/p",
            "file://relative",
        ] {
            assert!(refused(wrong).contains("write a directory"), "{wrong}");
        }
        let secret = refused("az://c/p?sig=SECRETSECRET");
        assert!(secret.contains("credentials come from the environment") && !secret.contains("SECRET"));
        assert!(!refused("s3://user:PASSWORD@b/p").contains("PASSWORD"));
        let store = Objects::open("file:///x/y/", &[]).unwrap();
        assert_eq!(store.below("shards/1-of-2").url(), "file:///x/y/shards/1-of-2");
    }

    #[tokio::test]
    async fn a_directory_keeps_the_rules_of_a_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = Objects::open(&format!("file://{}", dir.path().display()), &[]).unwrap();
        let place = store.below("p");
        assert!(place.create("a/one", b"1".to_vec()).await.unwrap());
        assert!(!place.create("a/one", b"2".to_vec()).await.unwrap());
        assert_eq!(place.get("a/one", 9).await.unwrap().unwrap(), b"1");
        place.put("a/b/two", b"22".to_vec()).await.unwrap();
        let mut names = place.list("a").await.unwrap();
        names.sort();
        assert_eq!(names, ["a/b/two", "a/one"]);
        assert_eq!(store.directories("p").await.unwrap(), ["a"]);
        assert!(
            place
                .get("a/b/two", 1)
                .await
                .unwrap_err()
                .to_string()
                .contains("1 bytes")
        );
        assert_eq!(place.get("nothing", 9).await.unwrap(), None);
        assert!(place.list("nothing").await.unwrap().is_empty());
        for wrong in ["../x", "a//b", "/a", ""] {
            assert!(place.get(wrong, 9).await.is_err(), "{wrong}");
        }
        let digest = sha256_hex(&[b"22"]);
        let to = dir.path().join("got/two");
        let expected = |bytes, sha256| Expected { bytes, sha256 };
        for (bytes, digest, found) in [
            (2, "00", FetchedObject::Other(2)),
            (1, digest.as_str(), FetchedObject::Other(2)),
            (3, digest.as_str(), FetchedObject::Other(2)),
        ] {
            assert_eq!(
                place.fetch("a/b/two", &to, expected(bytes, digest)).await.unwrap(),
                found
            );
            assert!(!to.exists());
        }
        assert_eq!(
            place.fetch("a/b/two", &to, expected(2, &digest)).await.unwrap(),
            FetchedObject::Whole
        );
        assert_eq!(std::fs::read(&to).unwrap(), b"22");
        place.put_file("file", &to).await.unwrap();
        assert_eq!(place.get("file", 9).await.unwrap().unwrap(), b"22");
        place.delete("file").await.unwrap();
        place.delete("file").await.unwrap();
        assert_eq!(
            place.fetch("file", &to, expected(2, &digest)).await.unwrap(),
            FetchedObject::Missing
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_of_many_creators_wins() {
        let dir = tempfile::tempdir().unwrap();
        let store = Objects::open(&format!("file://{}", dir.path().display()), &[]).unwrap();
        for round in 0..20 {
            let name = format!("n{round}");
            let tasks: Vec<_> = (0..8_u8)
                .map(|n| {
                    let (store, name) = (store.clone(), name.clone());
                    tokio::spawn(async move { (n, store.create(&name, vec![n; 100]).await.unwrap()) })
                })
                .collect();
            let mut winners = Vec::new();
            for task in tasks {
                let (n, won) = task.await.unwrap();
                winners.extend(won.then_some(n));
            }
            assert_eq!(winners.len(), 1);
            assert_eq!(store.get(&name, 200).await.unwrap().unwrap(), vec![winners[0]; 100]);
        }
    }
}
