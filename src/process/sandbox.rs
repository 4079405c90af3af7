//! The parent's side of the sandbox: what can be had here, whether it holds, and the order for one confined child.

use super::confine::ARGUMENT;
use super::confine::spec::{Message, Spec, Task, Trial};
use super::proxy::{self, Rules};
use super::spawn::{self, SpawnError, set_status};
use super::{Confinement, Level, Network};
use crate::base::call::ExitInfo;
use rustix::fs::MemfdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::fs::File;
use std::io::{self, IoSliceMut, Seek, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Processes and threads of one command, and how many more for each processor of a large machine.
const PROCESSES: u64 = 512;
const PROCESSES_EACH: u64 = 64;

/// The longest that building a sandbox may take.
const BUILD_TIME: Duration = Duration::from_secs(10);

/// This program, as `exec` finds it.
static HELPER: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that becomes a confined child: this one, which answers `confine::ARGUMENT` with `confine::entry`. To be
/// called once, early. Without it only level `none` can be had, and a killed parent leaves its commands running.
pub fn use_helper(program: impl Into<PathBuf>) {
    // A second caller means the same program.
    let _ = HELPER.set(program.into());
}

pub(super) fn has_helper() -> bool {
    HELPER.get().is_some()
}

/// What can be had on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Why `full` cannot be had; `Ok` says what it rests on.
    pub full: Result<String, String>,
    pub landlock: Result<String, String>,
}

impl Probe {
    /// The strongest level, `None` when there is none.
    pub fn best(&self) -> Option<Level> {
        match (&self.full, &self.landlock) {
            (Ok(_), _) => Some(Level::Full),
            (_, Ok(_)) => Some(Level::Landlock),
            _ => None,
        }
    }
}

/// Tries each level on an empty directory. Looked at once a process; some 10 ms.
pub async fn probe() -> &'static Probe {
    static PROBE: tokio::sync::OnceCell<Probe> = tokio::sync::OnceCell::const_new();
    PROBE
        .get_or_init(|| async {
            let abi = landlock_abi();
            let landlock = match abi {
                0 => Err("landlock is not in this kernel, or is switched off".to_owned()),
                old @ 1..=3 => Err(format!(
                    "landlock ABI {old} cannot hold back the network; 4 (Linux 6.7) is needed"
                )),
                abi => try_level(Level::Landlock)
                    .await
                    .map(|()| format!("landlock ABI {abi}, seccomp")),
            };
            let full = match abi {
                0 => Err("landlock is not in this kernel, or is switched off".to_owned()),
                abi => try_level(Level::Full)
                    .await
                    .map(|()| format!("namespaces, landlock ABI {abi}, seccomp")),
            };
            Probe { full, landlock }
        })
        .await
}

/// The level for a run: `None` asks for the best. An error says what to change; the run ends with code 8.
pub fn choose(probe: &Probe, wanted: Option<Level>, network: &Network) -> Result<Level, String> {
    let hosts = matches!(network, Network::Hosts(_));
    let cannot = |level: &str, why: &str| {
        format!(
            "sandbox level `{level}` cannot be had here: {why}; change the machine, or name another `sandbox.level` in the policy"
        )
    };
    match (wanted, &probe.full, &probe.landlock) {
        (Some(Level::None), ..) => Ok(Level::None),
        (Some(Level::Landlock), ..) | (None, Err(_), Ok(_)) if hosts => Err(format!(
            "network hosts need sandbox level `full`, since `landlock` knows ports and no hosts{}",
            probe
                .full
                .as_ref()
                .err()
                .map(|why| format!(" ({why})"))
                .unwrap_or_default()
        )),
        (Some(Level::Full), Err(why), _) => Err(cannot("full", why)),
        (Some(Level::Landlock), _, Err(why)) => Err(cannot("landlock", why)),
        (Some(level), ..) => Ok(level),
        (None, Ok(_), _) => Ok(Level::Full),
        (None, _, Ok(_)) => Ok(Level::Landlock),
        (None, Err(full), Err(landlock)) => Err(cannot("auto", &format!("full: {full}; landlock: {landlock}"))),
    }
}

/// The version of Landlock that the kernel offers; 0 for none.
#[expect(
    unsafe_code,
    reason = "the version is asked for by a system call without a safe form"
)]
fn landlock_abi() -> i64 {
    // SAFETY: with a null pointer, size 0 and the version flag the call only answers with a number.
    unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            1_u32,
        )
    }
    .max(0)
}

async fn try_level(level: Level) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let confinement = bare(level, dir.path());
    ask(&confinement, Task::Probe).await.map(|_| ())
}

fn bare(level: Level, workspace: &Path) -> Confinement {
    Confinement {
        level,
        workspace: workspace.to_path_buf(),
        readable: Vec::new(),
        writable: Vec::new(),
        hidden: Vec::new(),
        protected: Vec::new(),
        network: Network::None,
        env: Vec::new(),
    }
}

/// Lets a confined child try six forbidden acts. An error names those that worked, or why it could not be tried: nothing may
/// be run then.
pub async fn self_test(confinement: &Confinement) -> Result<(), String> {
    if confinement.level == Level::None {
        return Ok(());
    }
    let fail = |error: io::Error| format!("the self-test cannot be prepared: {error}");
    let dir = tempfile::tempdir().map_err(fail)?;
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "not for you").map_err(fail)?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    let acts = Trial {
        write: dir.path().join("written"),
        read: secret,
        tcp: listener.local_addr().map_err(fail)?.port(),
        process: rustix::process::getpid().as_raw_nonzero().get(),
    };
    let tried = ask(confinement, Task::Trial(acts))
        .await?
        .into_iter()
        .find_map(|message| match message {
            Message::Tried(worked) => Some(worked),
            _ => None,
        });
    match tried {
        Some(worked) if worked.is_empty() => Ok(()),
        Some(worked) => Err(format!(
            "the sandbox does not hold: it was possible to {}",
            worked.join(", to ")
        )),
        None => Err("the self-test gave no answer".to_owned()),
    }
}

/// Runs a task that is not a command.
async fn ask(confinement: &Confinement, task: Task) -> Result<Vec<Message>, String> {
    let fail = |error: io::Error| error.to_string();
    let (mut command, mut channel) = self::command(confinement, Vec::new(), task).map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, mut tree) = spawn::launch(&mut command, Some(&channel)).map_err(fail)?;
    channel.close_theirs();
    let cancel = CancellationToken::new();
    let exit = spawn::watch(&mut child, &mut tree, (BUILD_TIME, &cancel), channel.listen()).await;
    let mut judged = exit.clone();
    channel.judged(&mut judged).map_err(|error| match error {
        SpawnError::Sandbox(why) => why,
        error => error.to_string(),
    })?;
    Ok(channel.messages)
}

/// The helper with an order, and our end of the channel to it. The caller sets its outputs.
pub(super) fn command(
    confinement: &Confinement,
    frozen: Vec<PathBuf>,
    task: Task,
) -> Result<(Command, Channel), SpawnError> {
    let sandbox = |error: io::Error| SpawnError::Sandbox(format!("cannot be prepared: {error}"));
    let Some(helper) = HELPER.get() else {
        return Err(SpawnError::Sandbox("this program cannot start itself again".to_owned()));
    };
    let proxy = match (&confinement.network, confinement.level) {
        (Network::None, _) | (_, Level::None) => None,
        (Network::Hosts(hosts), Level::Full) => {
            let rules = proxy::rules();
            let rules = rules.ok_or_else(|| SpawnError::Sandbox("there are no rules for network hosts".to_owned()))?;
            Some((hosts.clone(), rules))
        }
        (Network::Hosts(_), Level::Landlock) => {
            return Err(SpawnError::Sandbox("network hosts need level `full`".to_owned()));
        }
        (Network::Open, _) => {
            return Err(SpawnError::Sandbox("an open network needs level `none`".to_owned()));
        }
    };
    let spec = Spec {
        level: confinement.level,
        workspace: confinement.workspace.clone(),
        readable: confinement.readable.clone(),
        writable: confinement.writable.clone(),
        hidden: confinement.hidden.clone(),
        frozen,
        tmp: private_tmp(confinement),
        proxy: proxy.is_some(),
        processes: processes(),
        task,
    };
    let order = order(&spec).map_err(sandbox)?;
    let channel = Channel::new(order, proxy).map_err(sandbox)?;
    let mut command = Command::new(helper);
    command.arg(ARGUMENT).env_clear().current_dir("/");
    command.args(channel.handed().iter().map(i32::to_string));
    Ok((command, channel))
}

/// `TMPDIR` of the children, where it is one of the directories that they may write.
fn private_tmp(confinement: &Confinement) -> Option<PathBuf> {
    let (_, tmp) = confinement.env.iter().find(|(name, _)| name == "TMPDIR")?;
    let tmp = PathBuf::from(tmp);
    confinement
        .writable
        .iter()
        .any(|dir| tmp.starts_with(dir))
        .then_some(tmp)
}

fn processes() -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    PROCESSES.max(PROCESSES_EACH * processors)
}

/// The order in a file that has no name.
fn order(spec: &Spec) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("order", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(spec)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// Both ends of the talk with a confined child, until theirs is closed.
pub(super) struct Channel {
    ours: UnixStream,
    theirs: Option<(OwnedFd, OwnedFd)>,
    text: Vec<u8>,
    pub messages: Vec<Message>,
    /// What the proxy may let through, until its socket comes.
    hosts: Option<(Vec<String>, Rules)>,
    /// The proxy; ends with the channel.
    serving: JoinSet<io::Result<()>>,
}

impl Channel {
    fn new(order: OwnedFd, hosts: Option<(Vec<String>, Rules)>) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok(Self {
            ours: UnixStream::from_std(ours)?,
            theirs: Some((order, theirs.into())),
            text: Vec::new(),
            messages: Vec::new(),
            hosts,
            serving: JoinSet::new(),
        })
    }

    /// The numbers of the descriptors that go to the child: order, channel.
    pub fn handed(&self) -> Vec<i32> {
        self.theirs
            .as_ref()
            .map(|(order, theirs)| vec![order.as_raw_fd(), theirs.as_raw_fd()])
            .unwrap_or_default()
    }

    /// The child has its own copies; while we hold ours the channel never ends.
    pub fn close_theirs(&mut self) {
        self.theirs = None;
    }

    /// Takes what the child says until it has nothing more to say.
    pub async fn listen(&mut self) {
        let mut buffer = vec![0; 4096];
        loop {
            if self.ours.readable().await.is_err() {
                return;
            }
            let taken = self
                .ours
                .try_io(Interest::READABLE, || receive(&self.ours, &mut buffer));
            match taken {
                Ok((0, _)) => return,
                Ok((count, listener)) => {
                    self.text.extend_from_slice(&buffer[..count]);
                    if let Some(listener) = listener
                        && let Some((hosts, rules)) = self.hosts.take()
                    {
                        self.serving.spawn(proxy::serve(listener, hosts, rules));
                    }
                    self.split();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    fn split(&mut self) {
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            self.messages.extend(serde_json::from_slice(&line));
        }
    }

    /// How the command ended, in the child's words; the helper's own end means nothing unless it was killed.
    pub fn judge(mut self, program: &str, exit: &mut ExitInfo) -> Result<(), SpawnError> {
        self.judged(exit).map_err(|error| match error {
            SpawnError::NotFound { .. } => SpawnError::NotFound {
                program: program.to_owned(),
            },
            SpawnError::Start { source, .. } => SpawnError::Start {
                program: program.to_owned(),
                source,
            },
            error => error,
        })
    }

    fn judged(&mut self, exit: &mut ExitInfo) -> Result<(), SpawnError> {
        let mut ended = false;
        for message in &self.messages {
            match message {
                Message::Failed(why) => return Err(SpawnError::Sandbox(why.clone())),
                Message::NotExecuted(number) => {
                    return Err(spawn::start_error("", io::Error::from_raw_os_error(*number)));
                }
                Message::Ended { status, leftovers } => {
                    set_status(exit, Some(ExitStatus::from_raw(*status)));
                    exit.leftovers = *leftovers;
                    ended = true;
                }
                Message::Tried(_) | Message::Listener => {}
            }
        }
        if ended || exit.signal.is_some() {
            Ok(())
        } else {
            Err(SpawnError::Sandbox(
                "the confined child ended without a word".to_owned(),
            ))
        }
    }
}

/// One piece of text, and a descriptor that came with it.
fn receive(from: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(
        from,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let listener = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((got.bytes, listener))
}
