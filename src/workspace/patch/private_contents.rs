//! Contents that the store in the run directory must not hold, because people share run directories: those of files
//! with secrets. The store keeps them in another directory, and in its own only their ids.

use crate::process::temporary::{self, Temporary};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether a content is one of these, by its path in the repository and its bytes.
type IsPrivate = dyn Fn(&str, &[u8]) -> bool + Send + Sync;

/// Where these contents are kept, and which they are.
#[derive(Clone)]
pub struct PrivateContents {
    /// A git directory, made for the first of them.
    dir: PathBuf,
    is_private: Arc<IsPrivate>,
    /// Removed with the last reference to it.
    _temporary: Option<Arc<Temporary>>,
}

impl fmt::Debug for PrivateContents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PrivateContents")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl PrivateContents {
    /// Kept in this directory, for later processes too.
    pub fn at(dir: PathBuf, is_private: impl Fn(&str, &[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self {
            dir,
            is_private: Arc::new(is_private),
            _temporary: None,
        }
    }

    /// Kept until this process ends.
    ///
    /// # Errors
    /// I/O errors.
    pub fn temporary(is_private: impl Fn(&str, &[u8]) -> bool + Send + Sync + 'static) -> std::io::Result<Self> {
        let made = Temporary::make(temporary::GIT)?;
        Ok(Self {
            dir: made.path().join("contents"),
            is_private: Arc::new(is_private),
            _temporary: Some(Arc::new(made)),
        })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether this content of the file at `path` is one of these.
    pub(super) fn holds(&self, path: &[u8], content: &[u8]) -> bool {
        (self.is_private)(&String::from_utf8_lossy(path), content)
    }
}
