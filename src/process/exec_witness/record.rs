//! The bounded record of a command's judged execs, for its result and the journal.

use crate::base::grant::{Exec, ExecDenial, JudgedExec, WritePath};
use crate::base::secret::start;
use crate::process::{Finished, SpawnError};
use std::path::Path;

/// The most execs that are kept for the journal.
const MOST_RECORDED: usize = 1_000;
/// The most words of each, and the most bytes of its words together.
const RECORDED_WORDS: usize = 100;
const RECORDED_BYTES: usize = 8 << 10;
/// The most places that execs of one command can be granted in addition.
const MOST_GRANTED: usize = 2_000;

/// The record of one command.
#[derive(Debug, Default)]
pub(in crate::process) struct ExecRecord {
    /// The first 1,000 in order, and the number of further ones.
    pub execs: Vec<JudgedExec>,
    /// Execs beyond the first 1,000.
    pub omitted: u64,
    pub denied: Option<(JudgedExec, ExecDenial)>,
    /// Places that were granted at exec, without duplicates.
    pub granted: Vec<WritePath>,
    /// Why the witness failed.
    pub failed: Option<String>,
}

impl ExecRecord {
    /// Adds an exec, or only counts it once the limit is reached.
    pub fn push(&mut self, exec: JudgedExec) {
        if self.execs.len() < MOST_RECORDED {
            self.execs.push(exec);
        } else {
            self.omitted += 1;
        }
    }

    /// Adds granted places; `false` when the limit is exceeded.
    pub fn grant(&mut self, writes: Vec<WritePath>) -> bool {
        for path in writes {
            if !self.granted.contains(&path) {
                self.granted.push(path);
            }
        }
        self.granted.len() <= MOST_GRANTED
    }

    /// Moves the record into a result.
    ///
    /// # Errors
    /// [`SpawnError::Sandbox`] if the witness failed: then not every exec was judged, and no later one succeeded.
    pub fn into_finished(self, finished: &mut Finished) -> Result<(), SpawnError> {
        if let Some(why) = self.failed {
            let why = format!("programs could no longer be judged at exec ({why}); the command was killed");
            return Err(SpawnError::Sandbox(why));
        }
        finished.execs = self.execs;
        finished.execs_omitted = self.omitted;
        finished.denied = self.denied;
        finished.granted = self.granted;
        Ok(())
    }
}

/// An exec as stored in the journal: bounded, with its directory relative to the workspace.
pub(super) fn judged(exec: &Exec, workspace: &Path, denied: Option<ExecDenial>) -> JudgedExec {
    let mut left = RECORDED_BYTES;
    let mut argv = Vec::new();
    for word in exec.argv.iter().take(RECORDED_WORDS) {
        if word.len() > left {
            let safe = start(word, left);
            argv.push(format!("{}…", &safe[..safe.floor_char_boundary(left)]));
            break;
        }
        left -= word.len();
        argv.push(word.clone());
    }
    if argv.len() < exec.argv.len() {
        argv.push(format!("… ({} more)", exec.argv.len() - argv.len()));
    }
    let cwd = match exec.cwd.strip_prefix(workspace) {
        Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
        Ok(inside) => inside.display().to_string(),
        Err(_) => exec.cwd.display().to_string(),
    };
    JudgedExec {
        path: exec.path.display().to_string(),
        argv,
        cwd,
        denied,
    }
}

/// The denial of a file without a known format: a shell would read it as its own script, without an exec that could be
/// judged.
pub(super) fn without_interpreter(path: &Path) -> ExecDenial {
    let name = path.file_name().unwrap_or_default().display();
    ExecDenial::denied(
        format!(
            "`{name}` is neither a binary nor a script that names its interpreter, so the shell would run it itself"
        ),
        "add a `#!` line, for example `#!/bin/sh`, or run it as `bash FILE`",
    )
}

/// The denial of an exec that cannot be examined, or not within the limits.
pub(super) fn limit(reason: &str) -> ExecDenial {
    ExecDenial::denied(
        format!("the program cannot be judged: {reason}"),
        "run it in a simpler way: as a command of its own, with fewer arguments",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::grant::Starts;

    #[test]
    fn a_record_is_bounded_and_its_directory_relative() {
        let exec = |argv: Vec<String>, cwd: &str| Exec {
            caller: Starts::Judged,
            path: "/bin/x".into(),
            real: "/bin/x".into(),
            argv,
            cwd: cwd.into(),
            interpreters: Vec::new(),
            is_unread: false,
        };
        let of = |argv, cwd| judged(&exec(argv, cwd), Path::new("/ws"), None);
        assert_eq!(of(vec![], "/ws").cwd, ".");
        assert_eq!(of(vec![], "/ws/a/b").cwd, "a/b");
        assert_eq!(of(vec![], "/wsx").cwd, "/wsx");
        let many = of(vec!["w".to_owned(); 250], "/");
        assert_eq!((many.argv.len(), many.argv[100].as_str()), (101, "… (150 more)"));
        let long = of(vec!["é".repeat(RECORDED_BYTES), "b".to_owned()], "/");
        assert_eq!(long.argv.len(), 2);
        assert!(long.argv[0].len() <= RECORDED_BYTES + 3 && long.argv[0].ends_with('…'));
        assert_eq!(long.argv[1], "… (1 more)");
    }

    #[test]
    fn no_cut_of_a_word_leaves_a_part_of_a_secret() {
        crate::base::secret::check_cut(RECORDED_BYTES, |word| {
            let exec = Exec {
                caller: Starts::Judged,
                path: "/bin/x".into(),
                real: "/bin/x".into(),
                argv: vec![word.to_owned()],
                cwd: "/".into(),
                interpreters: Vec::new(),
                is_unread: false,
            };
            judged(&exec, Path::new("/ws"), None).argv.concat()
        });
    }
}
