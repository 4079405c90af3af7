//! Contents of the tree that are kept out of the run directory, because people share it: those of files with
//! secret-like names, and those with a known secret value. They are kept in the user's state directory while the run
//! can be resumed.

use super::environment;
use crate::base::ids::RunId;
use crate::journal::state_dir;
use crate::policy::secrets_like::secret_like;
use crate::workspace::patch::{PrivateContents, Shadow};
use std::io;
use std::path::{Path, PathBuf};

/// Opens the store of a run, as [`Shadow::open`] does. Where this machine has no state directory, the private contents
/// last as long as this process.
///
/// # Errors
/// I/O errors.
pub fn open_store(run: &RunId, dir: &Path, workspace: &Path, hidden: &[PathBuf]) -> io::Result<Shadow> {
    // Asked for each time: secrets are added until the run begins.
    let is_private =
        |path: &str, content: &[u8]| secret_like(path).is_some() || environment::redactor().find(content).is_some();
    let contents = match state_dir::contents_of(run) {
        Ok(dir) => PrivateContents::at(dir, is_private),
        Err(_) => PrivateContents::temporary(is_private)?,
    };
    Shadow::open(dir, workspace, hidden)?.keeping(contents)
}
