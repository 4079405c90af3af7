//! Runs git on data that others may have written, with Landlock and a seccomp filter as far as the kernel supports
//! them, at every sandbox level: git may only read, or also write below named directories.

use super::own_path::{self, own_path};
use super::supervised::follow;
use super::temporary::{self, Temporary};
use super::unsandboxed::{GIT_TIME, Printed, neutral_and, not_started, run_git};
use landlock::{ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr};
use rustix::process::{Signal, getpid};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

/// The newest Landlock ABI that is requested; an older kernel applies what it supports.
const NEWEST: ABI = ABI::V6;
/// Requests in flight: their lines fit into a pipe, so that writing them never blocks.
const AHEAD: usize = 256;

/// What a git process may do besides reading.
#[derive(Clone, Copy, Debug)]
pub enum GitAccess<'a> {
    /// Nothing.
    Read,
    /// Write below these directories.
    Write(&'a [PathBuf]),
    /// Write below these directories and start programs, which are restricted in the same way.
    WriteAndStart(&'a [PathBuf]),
    /// Like [`GitAccess::WriteAndStart`], and also connect to servers: for git's own transports.
    Reach(&'a [PathBuf]),
}

impl GitAccess<'_> {
    /// The signal that the kernel sends to git when the thread that started it ends. A git that writes gets SIGTERM, so
    /// that it removes its locks first.
    fn at_end_of_parent(self) -> Signal {
        match self {
            GitAccess::Read => Signal::KILL,
            GitAccess::Write(_) | GitAccess::WriteAndStart(_) | GitAccess::Reach(_) => Signal::TERM,
        }
    }

    /// Whether its git leads a process group. A transport does not: it may ask on the terminal.
    pub(super) fn leads(self) -> bool {
        !matches!(self, GitAccess::Reach(_))
    }
}

/// The content of `HEAD` in a directory made by [`lay_out`].
pub const HEAD: &str = "ref: refs/heads/none\n";

/// Runs `git` like [`super::unsandboxed::git`], restricted to `may`.
///
/// # Errors
/// One sentence, if it cannot be started or restricted, or takes longer than [`GIT_TIME`].
pub async fn git(
    args: &[&str],
    dir: &Path,
    env: &[(String, String)],
    stdin: Option<&[u8]>,
    may: GitAccess<'_>,
) -> Result<Printed, String> {
    let mut command = own_path::command("git");
    hold(&mut command, may)?;
    run_git(command.into(), args, dir, &neutral_and(env), stdin, may.leads()).await
}

/// Makes the child that `command` starts restrict itself before its exec, and end with the thread that starts it
/// (`PR_SET_PDEATHSIG`). That thread also waits for the child: when it has ended, the result is no longer read.
#[expect(unsafe_code, reason = "only a hook between fork and exec can bound the child alone")]
pub(super) fn hold(command: &mut Command, may: GitAccess<'_>) -> Result<(), String> {
    let rules = rules(may).map_err(|error| format!("git cannot be restricted: {error}"))?;
    let filter = filter(may).map_err(|error| format!("git cannot be restricted: {error}"))?;
    // A signal of a terminal or a CI system to the process group is for this program, which ends its git itself. Only a
    // transport may ask on the terminal, which a group of its own could not read; `user_git` separates it where there is
    // none.
    if may.leads() {
        command.process_group(0);
    }
    // Ruleset and filter must live as long as the command.
    let held = Arc::new((rules, filter));
    let (parent, signal) = (getpid(), may.at_end_of_parent());
    let hook = move || {
        let (rules, filter) = held.as_ref();
        follow(parent, signal)?;
        // SAFETY: only system calls on plain numbers, which are safe after a fork.
        unsafe {
            // Ends a program that blocks forever, for example on a FIFO in its way.
            libc::alarm(GIT_TIME.as_secs() as u32);
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if let Some(rules) = rules
                && libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
        }
        // If the kernel has no seccomp filters, the neutral settings still restrict git.
        let _ = seccompiler::apply_filter(filter);
        Ok(())
    };
    // SAFETY: the hook allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(hook);
    }
    Ok(())
}

fn rules(may: GitAccess<'_>) -> Result<Option<OwnedFd>, landlock::RulesetError> {
    let writes = AccessFs::from_write(NEWEST);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writes)?
        .create()?;
    let places = match may {
        GitAccess::Read => &[],
        GitAccess::Write(places) | GitAccess::WriteAndStart(places) | GitAccess::Reach(places) => places,
    };
    if let Ok(null) = PathFd::new("/dev/null") {
        ruleset = ruleset.add_rule(PathBeneath::new(null, AccessFs::WriteFile | AccessFs::Truncate))?;
    }
    for place in places {
        if let Ok(place) = PathFd::new(place) {
            ruleset = ruleset.add_rule(PathBeneath::new(place, writes))?;
        }
    }
    Ok(ruleset.into())
}

/// Denies sockets unless servers may be reached, and new processes unless programs may be started.
fn filter(may: GitAccess<'_>) -> Result<BpfProgram, String> {
    let mut refused = vec![libc::SYS_ptrace, libc::SYS_mount, libc::SYS_unshare];
    if !matches!(may, GitAccess::Reach(_)) {
        refused.push(libc::SYS_socket);
    }
    if matches!(may, GitAccess::Read | GitAccess::Write(_)) {
        refused.extend([libc::SYS_clone, libc::SYS_clone3]);
        #[cfg(target_arch = "x86_64")]
        refused.extend([libc::SYS_fork, libc::SYS_vfork]);
    }
    let rules: BTreeMap<i64, Vec<_>> = refused.into_iter().map(|call| (call, Vec::new())).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let deny = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, deny, arch).map_err(|error| error.to_string())?;
    BpfProgram::try_from(filter).map_err(|error| error.to_string())
}

/// A private temporary git directory: no index, no hooks, only settings from this program. Removed on drop.
#[derive(Debug)]
pub struct Scratch {
    dir: Temporary,
}

impl Scratch {
    /// An empty directory for objects of this hash format.
    ///
    /// # Errors
    /// One sentence, if the temporary directory cannot be written.
    pub fn make(sha256: bool) -> Result<Self, String> {
        let made = || -> std::io::Result<Self> {
            let dir = Temporary::make(temporary::GIT)?;
            lay_out(dir.path(), sha256)?;
            Ok(Self { dir })
        };
        made().map_err(|error| temporary::why_not(&error))
    }

    /// The git directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Marks the history as shallow at these commits; `commits` is the text of a repository's `shallow` file.
    ///
    /// # Errors
    /// One sentence, if the temporary directory cannot be written.
    pub fn set_shallow(&self, commits: &str) -> Result<(), String> {
        std::fs::write(self.path().join("shallow"), commits).map_err(|error| format!("no temporary directory: {error}"))
    }

    /// The environment that makes git use it.
    pub fn env(&self) -> Vec<(String, String)> {
        vec![("GIT_DIR".to_owned(), self.path().to_string_lossy().into_owned())]
    }
}

/// Writes the files that make `dir` a bare git directory; leaves its objects alone.
///
/// # Errors
/// I/O errors.
pub fn lay_out(dir: &Path, sha256: bool) -> std::io::Result<()> {
    for name in ["info", "objects/info", "objects/pack", "refs"] {
        std::fs::create_dir_all(dir.join(name))?;
    }
    let format = if sha256 { "1" } else { "0" };
    let mut config = format!("[core]\n\trepositoryformatversion = {format}\n\tbare = true\n");
    if sha256 {
        config.push_str("[extensions]\n\tobjectformat = sha256\n");
    }
    std::fs::write(dir.join("config"), config)?;
    // `info/attributes` has the highest precedence: whatever attributes a tree has, bytes are shown unchanged.
    let attributes = "* -text !eol -filter -ident !working-tree-encoding !diff !merge\n";
    std::fs::write(dir.join("info/attributes"), attributes)?;
    // Written last and atomically, because its presence means that all of the above exists. Names a branch without
    // commits.
    std::fs::write(dir.join("HEAD.lock"), HEAD)?;
    std::fs::rename(dir.join("HEAD.lock"), dir.join("HEAD"))
}

/// A `git cat-file --batch` process on an object directory that others write. It can only read; callers must check its
/// output against the object ids.
#[derive(Debug)]
pub struct Batch {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    _scratch: Scratch,
}

/// An object's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHeader {
    /// Its object id in hexadecimal.
    pub id: String,
    /// `blob`, `tree`, `commit` or `tag`.
    pub kind: String,
    /// In bytes.
    pub size: u64,
}

/// Callback of [`Batch::each`]: the index of the name, the header (`None` when the object does not exist), and its
/// content.
pub type ObjectSink<'a> = &'a mut dyn FnMut(usize, Option<&ObjectHeader>, &mut dyn Read) -> Result<(), String>;

impl Batch {
    /// Starts the process on a repository's `objects` directory.
    ///
    /// # Errors
    /// One sentence, if git cannot be started or restricted.
    pub fn open(objects: &Path, sha256: bool) -> Result<Self, String> {
        let scratch = Scratch::make(sha256)?;
        let mut command = own_path::command("git");
        hold(&mut command, GitAccess::Read)?;
        command
            .args(["cat-file", "--batch"])
            .current_dir("/")
            .env_clear()
            .env("PATH", own_path())
            .envs(super::unsandboxed::neutral())
            .env("LC_ALL", "C")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_DIR", scratch.path())
            .env("GIT_OBJECT_DIRECTORY", objects)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| not_started(&error))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("git has no pipes".to_owned());
        };
        Ok(Self {
            child,
            requests,
            answers: BufReader::with_capacity(1 << 16, answers),
            _scratch: scratch,
        })
    }

    /// Reads the objects with these names (ids, or `ID^{tree}`) one after the other.
    ///
    /// # Errors
    /// One sentence, if git ended or `take` failed.
    pub fn each(&mut self, names: &[String], take: ObjectSink<'_>) -> Result<(), String> {
        let mut asked = 0;
        for done in 0..names.len() {
            while asked < names.len() && asked < done + AHEAD {
                let line = names.get(asked).map(|name| format!("{name}\n")).unwrap_or_default();
                self.requests
                    .write_all(line.as_bytes())
                    .map_err(|error| format!("cannot write to git cat-file: {error}"))?;
                asked += 1;
            }
            self.answer(done, take)?;
        }
        Ok(())
    }

    fn answer(&mut self, number: usize, take: ObjectSink<'_>) -> Result<(), String> {
        let ended = |error: std::io::Error| format!("git cat-file ended early: {error}");
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(ended)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let size = words.get(2).and_then(|size| size.parse().ok());
        let (Some(size), &[id, kind, _]) = (size, words.as_slice()) else {
            return match words.last() {
                Some(_) => take(number, None, &mut std::io::empty()),
                None => Err("git cat-file ended early".to_owned()),
            };
        };
        let header = ObjectHeader {
            id: id.to_owned(),
            kind: kind.to_owned(),
            size,
        };
        let mut content = (&mut self.answers).take(size);
        take(number, Some(&header), &mut content)?;
        std::io::copy(&mut content, &mut std::io::sink()).map_err(ended)?;
        let mut end = [0];
        self.answers.read_exact(&mut end).map_err(ended)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // It may have ended already; it is reaped either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
