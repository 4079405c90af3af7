//! The messages between the parent and a confined child. Pure data.

use crate::process::placed::Placed;
use crate::process::{SandboxLevel, SignalScope};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The port on the confined loopback on which the proxy to granted hosts listens.
pub(crate) const PROXY_PORT: u16 = 3128;

/// What a confined child needs to know at its start, when it has no order yet. It is the same for all commands of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preparation {
    pub level: SandboxLevel,
    /// Whether control groups are to be made: for commands, not for trials.
    pub grouped: bool,
    /// The most processes and threads at the same time.
    pub processes: u64,
    /// Bytes of memory that they may use together.
    pub memory: u64,
}

/// The order for a confined child: how to confine itself, and what to do then. Its level and limits are those of the
/// [`Preparation`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub level: SandboxLevel,
    /// What keeps signals in the command's process tree at level `landlock`.
    pub signals: SignalScope,
    pub workspace: PathBuf,
    pub readable: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
    #[serde(with = "tree_paths")]
    pub hidden: Vec<PathBuf>,
    /// What the command sees at another path than the real one; only at `full`.
    pub placed: Placed,
    /// What the command may write in the workspace.
    pub reach: WorkspaceReach,
    /// The private directory for temporary files.
    pub tmp: Option<PathBuf>,
    /// Whether commands may connect to the proxy; only at `full`.
    pub proxy: bool,
    /// The most processes and threads at the same time.
    pub processes: u64,
    /// Bytes of memory that they may use together.
    pub memory: u64,
    /// Whether the parent judges each program at its exec; never at level `none`.
    pub witness: bool,
    pub task: Task,
}

/// What a command may write and reach in the workspace. Paths are relative to it, unless it says otherwise, and contain
/// no links.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorkspaceReach {
    /// Whether it may write everything except `read_only`.
    pub tree: bool,
    /// Directories and files that it may write while the rest is read-only.
    #[serde(with = "tree_paths")]
    pub writable: Vec<PathBuf>,
    /// Existing files and directories that are read-only within writable ones; only at `full`.
    #[serde(with = "tree_paths")]
    pub read_only: Vec<PathBuf>,
    /// Sockets that are covered so that they cannot be reached; only at `full`.
    #[serde(with = "tree_paths")]
    pub covered: Vec<PathBuf>,
    /// Writable directories that cannot be renamed or removed; only at `full`.
    #[serde(with = "tree_paths")]
    pub fixed: Vec<PathBuf>,
    /// Files that it cannot read, as absolute paths; only at `full`.
    #[serde(with = "tree_paths")]
    pub hidden: Vec<PathBuf>,
    /// Files in whose place it sees other contents, as absolute paths; only at `full`.
    #[serde(with = "contents")]
    pub copies: Vec<(PathBuf, Vec<u8>)>,
    /// Files in whose place it sees another file, each with that file; absolute; only at `full`.
    #[serde(with = "path_pairs")]
    pub shown: Vec<(PathBuf, PathBuf)>,
    /// Whether it may create Unix sockets other than a connected pair; only at `full`.
    pub sockets: bool,
}

/// What to do when the sandbox is in place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Nothing: reports whether the sandbox works, and whether programs can be judged at exec.
    Probe,
    Run {
        argv: Vec<String>,
        dir: PathBuf,
        env: Vec<(String, String)>,
    },
    /// Tries forbidden acts.
    Trial(Trial),
}

/// Targets outside the sandbox that a confined process must not reach. The parent creates all of them for this test.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// A path in a directory outside the workspace; the file does not exist.
    pub write: PathBuf,
    /// A file outside the workspace.
    pub read: PathBuf,
    /// A port on which the parent listens.
    pub tcp: u16,
    /// The PID of the parent.
    pub process: i32,
}

/// The child's messages, one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ChildMessage {
    /// The sandbox could not be built; nothing was run.
    Failed(String),
    /// The sandbox was built, but the program could not be executed (errno).
    NotExecuted(i32),
    /// The sandbox was built, but this directory, in which the program should start, could not be entered (errno).
    NoDirectory(String, i32),
    /// The forbidden acts that succeeded.
    Tried(Vec<String>),
    /// Sent with the proxy's listening socket.
    Listener,
    /// Sent with the listener for execs: from now on no exec succeeds without an answer.
    Witness,
    /// The sandbox was built; whether programs can be judged at exec, and if not, why.
    Witnessed(Result<(), String>),
    /// The command has ended: its wait status, and how many processes were still alive.
    Ended {
        status: i32,
        leftovers: u32,
        /// The memory limit in bytes for which it was killed.
        #[serde(default)]
        memory: Option<u64>,
        /// How many processes could not be killed; the parent continues to kill them.
        left: u32,
    },
}

/// Paths of the tree, whose names need not be UTF-8: as a text if they are, as bytes if not.
mod tree_paths {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    pub(super) enum Name {
        Text(String),
        Bytes(Vec<u8>),
    }

    impl Name {
        /// The form in which a path is written.
        pub fn of(path: &Path) -> Self {
            match path.to_str() {
                Some(text) => Self::Text(text.to_owned()),
                None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
            }
        }

        /// The path that was written.
        pub fn path(self) -> PathBuf {
            match self {
                Self::Text(text) => PathBuf::from(text),
                Self::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
            }
        }
    }

    /// Writes a list of paths.
    ///
    /// # Errors
    /// Only those of the serializer.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(paths.iter().map(|path| Name::of(path)))
    }

    /// Reads a list of paths.
    ///
    /// # Errors
    /// The input is not a list of texts or of lists of bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        let names: Vec<Name> = Vec::deserialize(from)?;
        Ok(names.into_iter().map(Name::path).collect())
    }
}

/// The same for pairs of paths.
mod path_pairs {
    use super::tree_paths::Name;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::path::PathBuf;

    /// Writes a list of pairs of paths.
    ///
    /// # Errors
    /// Only those of the serializer.
    pub fn serialize<S: Serializer>(pairs: &[(PathBuf, PathBuf)], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(pairs.iter().map(|(path, other)| (Name::of(path), Name::of(other))))
    }

    /// Reads a list of pairs of paths.
    ///
    /// # Errors
    /// The input is not a list of pairs of paths.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(PathBuf, PathBuf)>, D::Error> {
        let pairs: Vec<(Name, Name)> = Vec::deserialize(from)?;
        Ok(pairs
            .into_iter()
            .map(|(path, other)| (path.path(), other.path()))
            .collect())
    }
}

/// The same for files with their contents.
mod contents {
    use super::tree_paths::Name;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::path::PathBuf;

    /// Writes a list of files: path and content.
    ///
    /// # Errors
    /// Only those of the serializer.
    pub fn serialize<S: Serializer>(files: &[(PathBuf, Vec<u8>)], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(files.iter().map(|(path, bytes)| (Name::of(path), bytes)))
    }

    /// Reads a list of files: path and content.
    ///
    /// # Errors
    /// The input is not a list of pairs of a path and bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(PathBuf, Vec<u8>)>, D::Error> {
        let files: Vec<(Name, Vec<u8>)> = Vec::deserialize(from)?;
        Ok(files.into_iter().map(|(name, bytes)| (name.path(), bytes)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn names_that_are_not_utf_8_arrive_as_they_are() {
        let odd = PathBuf::from(OsStr::from_bytes(b"a/\xff.pem"));
        let reach = WorkspaceReach {
            hidden: vec![odd.clone(), PathBuf::from("b")],
            read_only: vec![odd.clone()],
            copies: vec![(odd.clone(), vec![0, 255])],
            shown: vec![(odd, PathBuf::from("c"))],
            ..WorkspaceReach::default()
        };
        let text = serde_json::to_string(&reach).unwrap();
        let arrived: WorkspaceReach = serde_json::from_str(&text).unwrap();
        assert_eq!(arrived.hidden, reach.hidden);
        assert_eq!(arrived.read_only, reach.read_only);
        assert_eq!(arrived.copies, reach.copies);
        assert_eq!(arrived.shown, reach.shown);
    }
}
