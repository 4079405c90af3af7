//! Why a command did not start.

use std::io;
use std::path::Path;

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program does not exist.
    #[error("cannot start `{program}`: no such program")]
    NotFound { program: String },
    /// The working directory does not exist or cannot be entered.
    #[error("cannot start in `{dir}`: {}", why_not_entered(.source))]
    NoDirectory { dir: String, source: io::Error },
    /// The system could not start the program for another reason.
    #[error("cannot start `{program}`: {source}")]
    Start { program: String, source: io::Error },
    /// The requested sandbox is not available; nothing was run. The run ends with exit code 8.
    #[error("sandbox: {0}")]
    Sandbox(String),
    /// The limits for comparing were reached while recording what the command may write; nothing was run. Begins with
    /// the limit's name.
    #[error("{0}")]
    Limit(String),
    /// The limit on background commands of a run was reached.
    #[error("{0} background commands were started already")]
    TooMany(usize),
    /// A background command did not start, and why.
    #[error("{0}")]
    Background(String),
}

fn why_not_entered(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "no such directory".to_owned(),
        _ => error.to_string(),
    }
}

impl SpawnError {
    /// Refuses a working directory that does not exist or cannot be looked at.
    ///
    /// # Errors
    /// [`SpawnError::NoDirectory`].
    pub(super) fn check_directory(dir: &Path) -> Result<(), Self> {
        let checked = match std::fs::metadata(dir) {
            Ok(data) if data.is_dir() => Ok(()),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(error) => Err(error),
        };
        checked.map_err(|source| Self::NoDirectory {
            dir: dir.display().to_string(),
            source,
        })
    }

    /// The error of the system when `program` was to be started.
    pub(super) fn of_start(program: &str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound {
                program: program.to_owned(),
            },
            _ => Self::Start {
                program: program.to_owned(),
                source,
            },
        }
    }
}
