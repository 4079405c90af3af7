//! Who asks: which program a waiting process runs, and what that program may start.
//!
//! A program is known by its memory image: where the kernel laid code, stack, heap, arguments and environment at its exec, and the
//! file. A fork copies all of it, an exec draws it anew, and nothing else changes it (the filter refuses `PR_SET_MM`). So a subshell
//! is still the shell, whoever its parent is now, and a number that is used again means nothing. Where addresses are not drawn at
//! random, two programs can look alike: then the stricter answer holds for both.

use super::file::{FileId, image_of};
use crate::base::grant::Starts;
use std::collections::{HashMap, HashSet, VecDeque};

/// Images and processes that are remembered together, and files. Beyond that, those of dead processes are forgotten.
const MOST: usize = 8_192;
/// Forks of forks that are followed upwards.
const MOST_FORKS: usize = 64;
/// Programs that were let go and whose image is looked for while nothing else is to do.
const MOST_FRESH: usize = 64;

/// What an exec lays down and a fork copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Image {
    code: u64,
    stack: u64,
    heap: u64,
    arguments: u64,
    environment: u64,
    file: FileId,
}

impl Image {
    /// Whether it lies where every program lies when addresses are not drawn at random: its stack in the last 16 MiB of what an
    /// address can be (47, 48 or 39 bits). By chance that happens to one of a thousand.
    fn is_fixed(&self) -> bool {
        matches!(self.stack >> 24, 0x7f_ffff | 0xff_ffff | 0x7fff)
    }
}

/// A process, also when its number is used again later (the time of its start in clock ticks).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Process {
    pub number: i32,
    started: u64,
}

/// A process as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub process: Process,
    parent: i32,
    /// `None` when it must not be read, or has none any more.
    image: Option<Image>,
}

/// What is known of the asker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Our own child, before it has become the command.
    Initial,
    /// A program that may start this much.
    Known(Starts),
    /// It cannot be read; what it was let go with, where that is known.
    Unreadable(Option<Starts>),
}

/// A process that was let go into another program.
#[derive(Clone, Debug)]
struct LetGo {
    /// What it was then. While it still is, the exec has not happened or has failed.
    before: Option<Image>,
    /// The file that it must run now; `None` when nobody looked.
    file: Option<FileId>,
    starts: Starts,
}

/// What is remembered of one command's tree.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// Our own child, until the command has executed something.
    helper: Option<(Process, Image)>,
    rooted: bool,
    known: HashMap<Image, Starts>,
    let_go: HashMap<Process, LetGo>,
    /// The strictest that programs of one file were ever let go with: for orphans, and for images at fixed addresses.
    files: HashMap<FileId, Starts>,
    fresh: VecDeque<Process>,
}

impl Images {
    /// What the asker may start.
    pub fn class(&mut self, caller: &Caller) -> Class {
        let Some(image) = caller.image else {
            return Class::Unreadable(self.unreadable(caller));
        };
        if !self.rooted {
            match &self.helper {
                None => {
                    // Only the process that has just handed over the listener can ask first.
                    self.helper = Some((caller.process, image));
                    return Class::Initial;
                }
                // A name is tried in each directory of PATH.
                Some(helper) if *helper == (caller.process, image) => return Class::Initial,
                Some(_) => {
                    // Every exec asks, so nothing but the command's own program can ask next.
                    self.rooted = true;
                    self.learn(image, &Starts::Judged);
                }
            }
        }
        self.settle(caller.process, image);
        let known = self.known.get(&image).cloned();
        let starts = known.unwrap_or_else(|| self.inherited(caller, image));
        Class::Known(match self.files.get(&image.file) {
            // Another program of this file may lie at the very same addresses.
            Some(strictest) if image.is_fixed() => stricter(&starts, strictest),
            _ => starts,
        })
    }

    /// Notes that a process goes on into the program of this file.
    pub fn let_go(&mut self, caller: &Caller, file: Option<FileId>, starts: Starts) {
        let before = caller.image;
        if let Some(file) = file {
            self.gave(file, &starts);
        }
        self.let_go.insert(caller.process, LetGo { before, file, starts });
        if self.fresh.len() == MOST_FRESH {
            self.fresh.pop_front();
        }
        self.fresh.push_back(caller.process);
    }

    /// Whether programs were let go since their images were last looked for.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Learns the images of programs that were let go, so that their forks are known when they themselves have ended.
    /// `done`: the last look, what is not known by now is asked for when it matters.
    pub fn look(&mut self, done: bool) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.retain(|process| {
            let now = Caller::read(process.number).filter(|now| now.process == *process);
            if let Some(image) = now.and_then(|now| now.image) {
                // An image in the making may be seen; it is nobody's and does no harm. So the note stays.
                self.note(*process, image, false);
            }
            now.is_some() && !done
        });
        self.fresh = fresh;
    }

    /// Forgets what no living process can ask about. An error when that does not help.
    pub fn bound(&mut self) -> Result<(), String> {
        if self.known.len() + self.let_go.len() <= MOST {
            return Ok(());
        }
        let (mut images, mut processes) = (HashSet::new(), HashSet::new());
        for entry in crate::process::tree::table() {
            if let Some(living) = Caller::read(entry.pid) {
                processes.insert(living.process);
                images.extend(living.image);
                // Its image may be that of forks, which are not learned yet.
                if let Some(image) = living.image {
                    self.note(living.process, image, false);
                }
            }
        }
        self.known.retain(|image, _| images.contains(image));
        self.let_go.retain(|process, _| processes.contains(process));
        if self.known.len() + self.let_go.len() > MOST {
            return Err("more programs run at once than can be told apart".to_owned());
        }
        Ok(())
    }

    /// The asker runs `image`: what it was let go with, if anything, has happened or failed.
    fn settle(&mut self, process: Process, image: Image) {
        self.note(process, image, true);
        self.let_go.remove(&process);
        self.fresh.retain(|fresh| *fresh != process);
    }

    /// `asks`: the process is asking right now, so its exec is over, one way or the other.
    fn note(&mut self, process: Process, image: Image, asks: bool) {
        let Some(gone) = self.let_go.get(&process) else { return };
        let starts = match gone.file {
            // Another file than the one that was judged, or a later process with the same number and time.
            Some(file) if file != image.file => stricter(&gone.starts, &Starts::Judged),
            _ => gone.starts.clone(),
        };
        // An exec that failed leaves the image; so does one into the same file at the same addresses.
        if gone.before != Some(image) || (asks && gone.file == Some(image.file)) {
            self.learn(image, &starts);
        }
    }

    fn learn(&mut self, image: Image, starts: &Starts) {
        self.gave(image.file, starts);
        let both = self.known.get(&image).map(|known| stricter(known, starts));
        self.known.insert(image, both.unwrap_or_else(|| starts.clone()));
    }

    fn gave(&mut self, file: FileId, starts: &Starts) {
        let both = self.files.get(&file).map(|known| stricter(known, starts));
        if both.is_some() || self.files.len() < MOST {
            self.files.insert(file, both.unwrap_or_else(|| starts.clone()));
        }
    }

    /// For a fork of a program whose image is not known yet: its parent, and theirs, as long as they run the same.
    fn inherited(&mut self, caller: &Caller, image: Image) -> Starts {
        for parent in ancestors(caller).take(MOST_FORKS) {
            if parent.image != Some(image) {
                break;
            }
            self.note(parent.process, image, false);
            if let Some(starts) = self.known.get(&image) {
                return starts.clone();
            }
        }
        // An orphan, or its parent is another program by now.
        self.look(false);
        if let Some(starts) = self.known.get(&image) {
            return starts.clone();
        }
        let starts = match self.files.get(&image.file) {
            Some(starts) => stricter(starts, &Starts::Judged),
            None if self.files.len() >= MOST => Starts::Nothing,
            None => Starts::Judged,
        };
        self.known.insert(image, starts.clone());
        starts
    }

    fn unreadable(&self, caller: &Caller) -> Option<Starts> {
        let own = std::iter::once(*caller);
        own.chain(ancestors(caller).take(MOST_FORKS))
            .take_while(|process| process.image.is_none())
            .find_map(|process| Some(self.let_go.get(&process.process)?.starts.clone()))
    }
}

fn ancestors(caller: &Caller) -> impl Iterator<Item = Caller> {
    let mut at = caller.parent;
    std::iter::from_fn(move || {
        let parent = Caller::read(at)?;
        at = parent.parent;
        Some(parent)
    })
}

impl Caller {
    /// Whether its image could be seen.
    pub fn is_readable(&self) -> bool {
        self.image.is_some()
    }

    /// Looks at a thread. `None` when it is gone.
    pub fn read(thread: i32) -> Option<Self> {
        let text = std::fs::read(format!("/proc/{thread}/stat")).ok()?;
        let stat = Stat::parse(&text)?;
        let (number, started) = match leader(thread)? {
            number if number == thread => (thread, stat.started),
            number => (
                number,
                Stat::parse(&std::fs::read(format!("/proc/{number}/stat")).ok()?)?.started,
            ),
        };
        // Where it may not be looked at, the kernel shows zeros and ones.
        let shown = stat.stack != 0 && stat.code > 1;
        let image = image_of(thread).filter(|_| shown).map(|file| Image {
            code: stat.code,
            stack: stat.stack,
            heap: stat.heap,
            arguments: stat.arguments,
            environment: stat.environment,
            file,
        });
        Some(Self {
            process: Process { number, started },
            parent: stat.parent,
            image,
        })
    }
}

/// The process that a thread belongs to.
#[expect(unsafe_code, reason = "no safe call asks whether a thread leads its process")]
fn leader(thread: i32) -> Option<i32> {
    // SAFETY: signal 0 is sent to nobody; the call only looks the numbers up.
    let is_leader = unsafe { libc::syscall(libc::SYS_tgkill, thread, thread, 0) } == 0
        || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
    if is_leader {
        return Some(thread);
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    parent: i32,
    started: u64,
    code: u64,
    stack: u64,
    heap: u64,
    arguments: u64,
    environment: u64,
}

impl Stat {
    /// The fields after the name, which is in brackets and may hold anything.
    fn parse(text: &[u8]) -> Option<Self> {
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Counted from 1 as in proc_pid_stat(5); the state is the third.
        let number = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            started: number(22)?,
            code: number(26)?,
            stack: number(28)?,
            heap: number(47)?,
            arguments: number(48)?,
            environment: number(50)?,
        })
    }
}

/// The one that allows less.
pub(super) fn stricter(one: &Starts, other: &Starts) -> Starts {
    let rank = |starts: &Starts| match starts {
        Starts::Nothing => 0,
        Starts::Helpers(_) => 1,
        Starts::Judged => 2,
        Starts::Anything => 3,
    };
    match (one, other) {
        (Starts::Helpers(name), Starts::Helpers(else_)) if name != else_ => Starts::Nothing,
        _ if rank(one) <= rank(other) => one.clone(),
        _ => other.clone(),
    }
}

#[cfg(test)]
mod tests;
