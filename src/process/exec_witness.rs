//! Judges each program of one command at its exec: a thread receives seccomp notifications, reads what would be
//! executed, calls the judge and answers. One thread per command, because the caller's identity is derived from the
//! order of the notifications.
//!
//! If the thread ends early for any reason (an error, a panic), the listener closes, every later exec of the tree
//! fails, and the command is reported as one whose sandbox failed.

mod file;
mod image;
mod listener;
mod memory;
mod record;
mod wanted;

use super::confine::mediate::Mediator;
use super::confine::notify;
use crate::base::grant::{Exec, ExecAnswer, ExecDenial, ExecJudge, Starts};
use crate::base::sync::lock;
use crate::process::seccomp_listener::{SeccompNotification, SeccompReply};
use image::{AskerClass, Caller, Images};
use listener::{ExecListener, ListenerEvent};
use memory::{ProcessMemory, Unread};
pub(super) use record::ExecRecord;
use record::{judged, limit, without_interpreter};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use wanted::{ExecRequest, Nothing, wanted};

/// Delays in milliseconds after the last exec at which the memory images of programs are read.
const LOOKS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What to do with a listener when it arrives.
pub(super) enum Order {
    /// Test whether judging works at all: one notification and two answers.
    Trial,
    Judge {
        judge: Arc<dyn ExecJudge>,
        workspace: PathBuf,
        /// At level `landlock`: answers the other suspended calls, for which this listener is notified too.
        mediator: Option<Mediator>,
    },
}

/// A running witness; dropping it ends its thread.
pub(super) struct Witness {
    record: Arc<Mutex<ExecRecord>>,
    _stop: OwnedFd,
}

impl Witness {
    /// Answers the notifications of `listener`. Cancels `halt` when the whole tree must be killed at once: after a
    /// denial, and when the witness fails.
    ///
    /// # Errors
    /// The kernel's notifications are longer than supported, or the pipe that stops the listener or the thread cannot
    /// be created.
    pub fn start(listener: OwnedFd, order: Order, halt: CancellationToken) -> io::Result<Self> {
        let (listener, stop) = ExecListener::new(listener)?;
        let record = Arc::new(Mutex::new(ExecRecord::default()));
        let guard = Guard {
            record: Arc::clone(&record),
            halt,
        };
        std::thread::Builder::new()
            .name("exec-witness".to_owned())
            .spawn(move || match order {
                Order::Trial => guard.end(trial(&listener)),
                Order::Judge {
                    judge,
                    workspace,
                    mediator,
                } => {
                    let mut work = Work {
                        mediator: mediator.as_ref(),
                        listener: &listener,
                        judge: &*judge,
                        workspace: &workspace,
                        images: Images::default(),
                        guard: &guard,
                    };
                    let ended = work.serve();
                    guard.end(ended);
                }
            })?;
        Ok(Self { record, _stop: stop })
    }

    /// The record so far. Complete when the tree has ended: everything is recorded before it is answered.
    pub fn take(&self) -> ExecRecord {
        std::mem::take(&mut lock(&self.record))
    }
}

/// Reports if the thread ends in an unexpected way.
struct Guard {
    record: Arc<Mutex<ExecRecord>>,
    halt: CancellationToken,
}

impl Guard {
    fn end(self, ended: Result<(), String>) {
        if let Err(why) = ended {
            self.fail(why);
        }
    }

    fn fail(&self, why: String) {
        lock(&self.record).failed.get_or_insert(why);
        self.halt.cancel();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("its thread ended by a panic".to_owned());
        }
    }
}

/// The parent's half of `notify::trial`.
fn trial(listener: &ExecListener) -> Result<(), String> {
    let mut first = true;
    loop {
        let asked = match listener.next(None).map_err(|error| error.to_string())? {
            ListenerEvent::Asked(asked) => asked,
            ListenerEvent::Quiet => continue,
            ListenerEvent::Over => return Ok(()),
        };
        let answered = if first {
            let words = ProcessMemory::of(asked.thread).and_then(|mut memory| memory.words(asked.arguments[1]));
            let expected = [notify::TRIAL_PROGRAM, notify::TRIAL_WORD].map(|word| word.to_string_lossy());
            let read = words.is_ok_and(|words| words == expected) && file::working_directory(asked.thread).is_some();
            let readable = read && Caller::read(asked.thread).is_some_and(|caller| caller.is_readable());
            let answer = match readable && listener.calls.waits(&asked) {
                true => notify::TRIAL_READ,
                false => notify::TRIAL_NOT_READ,
            };
            listener.calls.fail(&asked, answer)
        } else {
            listener.calls.go_on(&asked)
        };
        answered.map_err(|error| error.to_string())?;
        first = false;
    }
}

/// Whether to take further notifications.
enum Next {
    More,
    /// The command was denied: nothing is answered any more, and the tree is killed.
    Denied,
}

/// The state of the thread of one command.
struct Work<'a> {
    listener: &'a ExecListener,
    judge: &'a dyn ExecJudge,
    workspace: &'a Path,
    mediator: Option<&'a Mediator>,
    images: Images,
    guard: &'a Guard,
}

impl Work<'_> {
    fn serve(&mut self) -> Result<(), String> {
        let mut looks = LOOKS.iter();
        loop {
            let patience = if self.images.has_fresh() { looks.next() } else { None };
            let patience = patience.map(|millis| Duration::from_millis(*millis));
            match self.listener.next(patience).map_err(|error| error.to_string())? {
                ListenerEvent::Asked(asked) => {
                    looks = LOOKS.iter();
                    if let Next::Denied = self.answer(&asked)? {
                        // The caller stays in its call until it is killed, so that no fallback of a shell runs.
                        self.guard.halt.cancel();
                        self.listener.hold();
                        return Ok(());
                    }
                }
                ListenerEvent::Quiet => self.images.look(looks.len() == 0),
                ListenerEvent::Over => return Ok(()),
            }
        }
    }

    fn answer(&mut self, asked: &SeccompNotification) -> Result<Next, String> {
        if !matches!(asked.call, libc::SYS_execve | libc::SYS_execveat) {
            return self.mediate(asked);
        }
        let Some(caller) = Caller::read(asked.thread) else {
            return self.unreadable(asked, Starts::Judged, Unread::Memory);
        };
        let starts = match self.images.class(&caller) {
            AskerClass::Initial => return self.go_on(asked),
            AskerClass::Known(starts) | AskerClass::Unreadable(Some(starts)) => starts,
            AskerClass::Unreadable(None) => return self.unreadable(asked, Starts::Judged, Unread::Memory),
        };
        if starts == Starts::Anything && !self.judge.asks_below_anything() {
            self.images.record_allowed(&caller, None, starts);
            self.images.bound()?;
            return self.go_on(asked);
        }
        match wanted(asked, starts.clone()) {
            Ok(_) if !self.listener.calls.waits(asked) => Ok(Next::More),
            Ok(wanted) => self.judged(asked, &caller, starts, wanted),
            Err(Nothing::Fails(errno)) => self.fail(asked, errno),
            Err(Nothing::Unread(unread)) => self.unreadable(asked, starts, unread),
        }
    }

    fn judged(
        &mut self,
        asked: &SeccompNotification,
        caller: &Caller,
        starts: Starts,
        wanted: ExecRequest,
    ) -> Result<Next, String> {
        let ExecRequest {
            exec,
            is_program,
            image,
        } = wanted;
        let (given, writes) = match self.judge.judge(&exec) {
            ExecAnswer::Deny(denial) => return Ok(self.deny(&exec, denial)),
            ExecAnswer::Allow { starts: given, writes } => (given, writes),
        };
        if starts == Starts::Anything {
            self.images.record_allowed(caller, Some(image), Starts::Anything);
        } else {
            if !is_program {
                return Ok(self.deny(&exec, without_interpreter(&exec.path)));
            }
            if !lock(&self.guard.record).grant(writes) {
                return Ok(self.deny(&exec, limit("its programs write more places than can be recorded")));
            }
            lock(&self.guard.record).push(judged(&exec, self.workspace, None));
            self.images.record_allowed(caller, Some(image), given);
        }
        self.images.bound()?;
        self.go_on(asked)
    }

    /// Carries out or refuses a mediated call.
    fn mediate(&self, asked: &SeccompNotification) -> Result<Next, String> {
        let calls = &self.listener.calls;
        let refused = SeccompReply::Fail(Errno::PERM);
        let reply = self.mediator.map_or(refused, |mediator| mediator.answer(calls, asked));
        let answered = calls.reply(asked, reply);
        answered.map_err(|error| error.to_string())?;
        Ok(Next::More)
    }

    /// Denies an exec that cannot be read, unless its process has ended.
    fn unreadable(&mut self, asked: &SeccompNotification, caller: Starts, why: Unread) -> Result<Next, String> {
        if !self.listener.calls.waits(asked) {
            return Ok(Next::More);
        }
        let reason = match why {
            Unread::Memory => "its arguments cannot be read",
            Unread::TooLong => "its arguments are longer than can be judged",
            Unread::Shared => "its arguments are in memory that other processes can change",
        };
        let exec = Exec {
            caller,
            path: PathBuf::from("?"),
            real: PathBuf::from("?"),
            argv: Vec::new(),
            cwd: file::working_directory(asked.thread).unwrap_or_else(|| PathBuf::from("?")),
            interpreters: Vec::new(),
            is_unread: false,
        };
        Ok(self.deny(&exec, limit(reason)))
    }

    fn deny(&self, exec: &Exec, denial: ExecDenial) -> Next {
        let exec = judged(exec, self.workspace, Some(denial.clone()));
        let mut record = lock(&self.guard.record);
        record.denied = Some((exec.clone(), denial));
        record.push(exec);
        Next::Denied
    }

    fn go_on(&self, asked: &SeccompNotification) -> Result<Next, String> {
        self.listener.calls.go_on(asked).map_err(|error| error.to_string())?;
        Ok(Next::More)
    }

    fn fail(&self, asked: &SeccompNotification, errno: Errno) -> Result<Next, String> {
        let answered = self.listener.calls.fail(asked, errno.raw_os_error());
        answered.map_err(|error| error.to_string())?;
        Ok(Next::More)
    }
}
