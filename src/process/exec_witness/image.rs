//! Identifies the calling program of an exec, and what it may start.
//!
//! A program is identified by its memory image: the addresses of code, stack, heap, arguments and environment that the
//! kernel chose at its exec, and its file. A fork copies all of them, an exec chooses new ones, and nothing else
//! changes them (the filter denies `PR_SET_MM`). So a subshell still counts as the shell, whatever its parent is now,
//! and a reused PID does no harm. Without address space randomisation two programs can have equal images; the stricter
//! class then applies to both.

use super::file::{FileId, image_of};
use crate::base::grant::Starts;
use crate::process::stat::{StatFields, read_stat};
use std::collections::{HashMap, HashSet, VecDeque};

/// The most images and processes remembered together, and the most files. Beyond that, those of dead processes are
/// forgotten.
const MOST: usize = 8_192;
/// The most generations of forks that are followed upwards.
const MOST_FORKS: usize = 64;
/// The most allowed programs whose image is looked up while no notification is pending.
const MOST_FRESH: usize = 64;

/// The properties that an exec sets and a fork copies.
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
    /// Whether the addresses may be those of a program without address space randomisation: the stack is in the last 16
    /// MiB of the address space (47, 48 or 39 bits), and the code where nothing was added to its base. The stack alone
    /// would be there in one of a thousand randomised programs, which would then be denied what they may execute.
    fn is_fixed(&self) -> bool {
        matches!(self.stack >> 24, 0x7f_ffff | 0xff_ffff | 0x7fff) && !self.has_random_code()
    }

    /// Whether the code is in a range of addresses that the kernel randomises (x86-64 with 47 bits, aarch64 with 48),
    /// and not in the first or last 256 MiB of such a range.
    fn has_random_code(&self) -> bool {
        let drawn = matches!(self.code >> 40, 0x55 | 0x56 | 0x7e | 0x7f | 0xaa | 0xab | 0xfe | 0xff);
        drawn && !matches!(self.code >> 28, 0x5_5555 | 0x7_ffff | 0xa_aaaa | 0xf_ffff)
    }
}

/// A process, distinguished from later ones with the same PID by its start time in clock ticks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Process {
    pub number: i32,
    started: u64,
}

/// The current state of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub process: Process,
    parent: i32,
    /// `None` if it may not be read, or the process has none any more.
    image: Option<Image>,
}

/// What is known of the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum AskerClass {
    /// The helper process of this program, before it has become the command.
    Initial,
    /// A program with a known class.
    Known(Starts),
    /// Its image cannot be read; the class with which it was allowed, if known.
    Unreadable(Option<Starts>),
}

/// A process whose exec was allowed.
#[derive(Clone, Debug)]
struct AllowedExec {
    /// Its image at that time. While it still has it, the exec has not happened or has failed.
    before: Option<Image>,
    /// The file that it must be running now; `None` if it was not determined.
    file: Option<FileId>,
    starts: Starts,
}

/// The known programs and processes of one command's tree.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// The helper process, until the command has executed something.
    helper: Option<(Process, Image)>,
    rooted: bool,
    known: HashMap<Image, Starts>,
    allowed: HashMap<Process, AllowedExec>,
    /// The strictest class with which programs of each file were ever allowed: used for orphans, and for images at
    /// fixed addresses.
    files: HashMap<FileId, Starts>,
    fresh: VecDeque<Process>,
    /// Whether a record that gives less than `Starts::Anything` was forgotten.
    forgot_bounded: bool,
}

impl Images {
    /// The class of the caller.
    pub fn class(&mut self, caller: &Caller) -> AskerClass {
        let Some(image) = caller.image else {
            return AskerClass::Unreadable(self.unreadable(caller));
        };
        if !self.rooted {
            match &self.helper {
                None => {
                    // Only the process that has just passed the listener can make the first exec.
                    self.helper = Some((caller.process, image));
                    return AskerClass::Initial;
                }
                // A name without a slash is tried in each directory of `PATH`.
                Some(helper) if *helper == (caller.process, image) => return AskerClass::Initial,
                Some(_) => {
                    // Every exec is notified, so the next one can only come from the command's own program.
                    self.rooted = true;
                    self.learn(image, &Starts::Judged);
                }
            }
        }
        self.settle(caller.process, image);
        let known = self.known.get(&image).cloned();
        let starts = known.unwrap_or_else(|| self.inherited(caller, image));
        AskerClass::Known(match self.files.get(&image.file) {
            // Another program of this file may have exactly the same addresses.
            Some(strictest) if image.is_fixed() => starts.stricter(strictest),
            _ => starts,
        })
    }

    /// Records that a process was allowed to execute this file.
    pub fn record_allowed(&mut self, caller: &Caller, file: Option<FileId>, starts: Starts) {
        let before = caller.image;
        if let Some(file) = file {
            self.gave(file, &starts);
        }
        // A caller that could not be read may have executed what an earlier record says.
        let starts = match self.allowed.get(&caller.process) {
            Some(earlier) => earlier.starts.stricter(&starts),
            None => starts,
        };
        self.allowed
            .insert(caller.process, AllowedExec { before, file, starts });
        if self.fresh.len() == MOST_FRESH {
            self.fresh.pop_front();
        }
        self.fresh.push_back(caller.process);
    }

    /// Whether programs were allowed since their images were last looked up.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Looks up the images of allowed programs, so that their forks are known after they themselves have ended. `done`
    /// marks the last time; images still unknown then are looked up on demand.
    pub fn look(&mut self, done: bool) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.retain(|process| {
            let now = Caller::read(process.number).filter(|now| now.process == *process);
            if let Some(image) = now.and_then(|now| now.image) {
                // The image may be read in the middle of an exec; such an image belongs to no process and does no harm.
                // So the record is kept.
                self.note(*process, image, false);
            }
            now.is_some() && !done
        });
        self.fresh = fresh;
    }

    /// Forgets entries that no live process can refer to.
    ///
    /// # Errors
    /// More entries remain than the limit.
    pub fn bound(&mut self) -> Result<(), String> {
        if self.known.len() + self.allowed.len() <= MOST {
            return Ok(());
        }
        let (mut images, mut processes) = (HashSet::new(), HashSet::new());
        for entry in crate::process::process_tree::table() {
            if let Some(living) = Caller::read(entry.pid) {
                processes.insert(living.process);
                images.extend(living.image);
                // Its image may be shared with forks that are not recorded yet.
                if let Some(image) = living.image {
                    self.note(living.process, image, false);
                }
            }
        }
        self.known.retain(|image, _| images.contains(image));
        let forgot_bounded = &mut self.forgot_bounded;
        self.allowed.retain(|process, allowed| {
            let lives = processes.contains(process);
            *forgot_bounded |= !lives && allowed.starts != Starts::Anything;
            lives
        });
        if self.known.len() + self.allowed.len() > MOST {
            return Err("more programs run at once than can be distinguished".to_owned());
        }
        Ok(())
    }

    /// The caller runs `image`: if an exec was allowed for it, that has happened or failed.
    fn settle(&mut self, process: Process, image: Image) {
        self.note(process, image, true);
        self.allowed.remove(&process);
        self.fresh.retain(|fresh| *fresh != process);
    }

    /// `asks`: the process is making an exec right now, so its previous exec has happened or failed.
    fn note(&mut self, process: Process, image: Image, asks: bool) {
        let Some(gone) = self.allowed.get(&process) else { return };
        let starts = match gone.file {
            // It is not the file that was judged, or it is a later process with the same PID and start time.
            Some(file) if file != image.file => gone.starts.stricter(&Starts::Judged),
            _ => gone.starts.clone(),
        };
        // A failed exec leaves the image unchanged; so does one of the same file at the same addresses.
        if gone.before != Some(image) || (asks && gone.file == Some(image.file)) {
            self.learn(image, &starts);
        }
    }

    fn learn(&mut self, image: Image, starts: &Starts) {
        self.gave(image.file, starts);
        let both = self.known.get(&image).map(|known| known.stricter(starts));
        self.known.insert(image, both.unwrap_or_else(|| starts.clone()));
    }

    fn gave(&mut self, file: FileId, starts: &Starts) {
        let both = self.files.get(&file).map(|known| known.stricter(starts));
        if both.is_some() || self.files.len() < MOST {
            self.files.insert(file, both.unwrap_or_else(|| starts.clone()));
        }
    }

    /// The class of a fork whose program's image is still unknown: that of its nearest ancestor, as long as they run
    /// the same program.
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
        // It is an orphan, or its parent now runs another program.
        self.look(false);
        if let Some(starts) = self.known.get(&image) {
            return starts.clone();
        }
        let starts = match self.files.get(&image.file) {
            // A shell that starts something in the background and ends may be gone before its image was looked up.
            _ if self.is_surely_free(image.file) => Starts::Anything,
            Some(starts) => starts.stricter(&Starts::Judged),
            None if self.files.len() >= MOST => Starts::Nothing,
            None => Starts::Judged,
        };
        self.known.insert(image, starts.clone());
        starts
    }

    /// Whether a program with an unknown image may start anything, whichever of the recorded execs it comes from: every
    /// exec is recorded until its image is known, and all these records say so. At least one must be of its file or of
    /// an undetermined one, because a file that was swapped gives less than its record.
    fn is_surely_free(&self, file: FileId) -> bool {
        let mut records = self.allowed.values();
        let is_possible = |allowed: &AllowedExec| allowed.file.is_none_or(|recorded| recorded == file);
        !self.forgot_bounded
            && records.clone().any(is_possible)
            && records.all(|allowed| allowed.starts == Starts::Anything)
    }

    fn unreadable(&self, caller: &Caller) -> Option<Starts> {
        let own = std::iter::once(*caller);
        own.chain(ancestors(caller).take(MOST_FORKS))
            .take_while(|process| process.image.is_none())
            .find_map(|process| Some(self.allowed.get(&process.process)?.starts.clone()))
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
    /// Whether its image could be read.
    pub fn is_readable(&self) -> bool {
        self.image.is_some()
    }

    /// Reads a thread's process. `None` when it has ended.
    pub fn read(thread: i32) -> Option<Self> {
        let text = read_stat(format!("/proc/{thread}/stat"))?;
        let stat = Stat::parse(&text)?;
        let (number, started) = match leader(thread)? {
            number if number == thread => (thread, stat.started),
            number => (
                number,
                Stat::parse(&read_stat(format!("/proc/{number}/stat"))?)?.started,
            ),
        };
        // Without permission the kernel shows zeros and ones.
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
    // SAFETY: signal 0 is not delivered; the call only looks the numbers up.
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

/// The fields of `/proc/PID/stat` that identify a process and its image.
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
    fn parse(text: &[u8]) -> Option<Self> {
        let stat = StatFields::of(text)?;
        Some(Self {
            parent: stat.number(4)?,
            started: stat.number(22)?,
            code: stat.number(26)?,
            stack: stat.number(28)?,
            heap: stat.number(47)?,
            arguments: stat.number(48)?,
            environment: stat.number(50)?,
        })
    }
}

#[cfg(test)]
mod tests;
