//! Probes which sandbox levels this machine supports, and tests that the chosen one works.

use super::confine::order::Streams;
use super::confine::spec::{ChildMessage, Task, Trial, WorkspaceReach};
use super::confined_command::{self, StartedChild};
use super::spawn;
use super::spawn_error::SpawnError;
use super::temporary;
use super::{Confinement, Network, SandboxLevel, SignalScope};
use std::io;
use std::net::TcpListener;
use std::sync::OnceLock;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The first Landlock ABI that scopes signals.
const SIGNAL_SCOPE: i64 = 6;
/// The longest that building a sandbox may take.
const BUILD_TIME: Duration = Duration::from_secs(10);

/// What this machine supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Why `full` is not available; `Ok` names the mechanisms that it uses.
    pub full: Result<String, String>,
    pub landlock: Result<String, String>,
    /// Why programs cannot be judged at their exec, for each level; found by trying it.
    pub witness_full: Result<(), String>,
    pub witness_landlock: Result<(), String>,
}

impl Probe {
    /// The strongest available level; `None` if there is none.
    pub fn best(&self) -> Option<SandboxLevel> {
        match (&self.full, &self.landlock) {
            (Ok(_), _) => Some(SandboxLevel::Full),
            (_, Ok(_)) => Some(SandboxLevel::Landlock),
            _ => None,
        }
    }

    /// Whether programs can be judged at their exec at this level.
    ///
    /// # Errors
    /// Why they cannot. Without a sandbox they never can, because the processes of a command can change each other's
    /// memory.
    pub fn witness(&self, level: SandboxLevel) -> Result<(), String> {
        match level {
            SandboxLevel::Full => self.witness_full.clone(),
            SandboxLevel::Landlock => self.witness_landlock.clone(),
            SandboxLevel::None => Err("there is no sandbox".to_owned()),
        }
    }
}

/// Tries each level on an empty directory. Done once per process; takes some 10 ms.
pub async fn probe() -> &'static Probe {
    static PROBE: tokio::sync::OnceCell<Probe> = tokio::sync::OnceCell::const_new();
    PROBE
        .get_or_init(|| async {
            let abi = landlock_abi();
            let missing = || "landlock is not in this kernel, or is switched off".to_owned();
            let landlock = match abi {
                0 => Err(missing()),
                old @ 1..=3 => Err(format!(
                    "landlock ABI {old} cannot restrict the network; ABI 4 (Linux 6.7) is needed"
                )),
                _ => try_level(SandboxLevel::Landlock).await,
            };
            let full = match abi {
                0 => Err(missing()),
                _ => try_level(SandboxLevel::Full).await,
            };
            let witness = |tried: &Result<Result<(), String>, String>| tried.clone().and_then(|witness| witness);
            Probe {
                witness_full: witness(&full),
                witness_landlock: witness(&landlock),
                full: full.map(|_| format!("namespaces, landlock ABI {abi}, seccomp")),
                landlock: landlock.map(|witness| {
                    // One seccomp listener is notified of signals and of programs, so it works for both or for neither.
                    let signals = match (SignalScope::of_kernel(), witness) {
                        (SignalScope::Kernel, _) => "signals scoped by Landlock",
                        (SignalScope::Mediated, Ok(())) => "signals scoped by seccomp notification",
                        (SignalScope::Mediated, Err(_)) => "all signals refused",
                    };
                    format!("landlock ABI {abi}, seccomp, {signals}")
                }),
            }
        })
        .await
}

impl SignalScope {
    /// `Kernel` if Landlock scopes signals on this kernel.
    #[must_use]
    pub fn of_kernel() -> Self {
        static SCOPED: OnceLock<bool> = OnceLock::new();
        match SCOPED.get_or_init(|| landlock_abi() >= SIGNAL_SCOPE) {
            true => Self::Kernel,
            false => Self::Mediated,
        }
    }
}

/// Chooses the level for a run: `None` asks for the strongest that is available.
///
/// # Errors
/// A sentence that says what to change; the run ends with exit code 8.
pub fn choose(probe: &Probe, wanted: Option<SandboxLevel>, network: &Network) -> Result<SandboxLevel, String> {
    let hosts = matches!(network, Network::Hosts(_));
    let cannot = |level: &str, why: &str| {
        format!(
            "sandbox level `{level}` is not available here: {why}; change the machine, or name another `sandbox.level` in the policy"
        )
    };
    match (wanted, &probe.full, &probe.landlock) {
        (Some(SandboxLevel::None), ..) => Ok(SandboxLevel::None),
        (Some(SandboxLevel::Landlock), ..) | (None, Err(_), Ok(_)) if hosts => Err(format!(
            "network hosts need sandbox level `full`, because `landlock` can restrict ports but not hosts{}",
            probe
                .full
                .as_ref()
                .err()
                .map(|why| format!(" ({why})"))
                .unwrap_or_default()
        )),
        (Some(SandboxLevel::Full), Err(why), _) => Err(cannot("full", why)),
        (Some(SandboxLevel::Landlock), _, Err(why)) => Err(cannot("landlock", why)),
        (Some(level), ..) => Ok(level),
        (None, Ok(_), _) => Ok(SandboxLevel::Full),
        (None, _, Ok(_)) => Ok(SandboxLevel::Landlock),
        (None, Err(full), Err(landlock)) => Err(cannot("auto", &format!("full: {full}; landlock: {landlock}"))),
    }
}

/// The Landlock ABI version of the kernel; 0 if it has none.
#[expect(
    unsafe_code,
    reason = "the version is asked for by a system call without a safe form"
)]
fn landlock_abi() -> i64 {
    // SAFETY: with a null pointer, size 0 and the version flag the call only returns a number.
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

/// Whether the level is available, and then whether programs can be judged at exec there.
async fn try_level(level: SandboxLevel) -> Result<Result<(), String>, String> {
    let dir = tempfile::tempdir().map_err(|error| temporary::why_not(&error))?;
    let confinement = Confinement {
        level,
        network: Network::None,
        ..Confinement::unconfined(dir.path())
    };
    let said = ask(&confinement, Task::Probe).await?;
    let witness = said.into_iter().find_map(|message| match message {
        ChildMessage::Witnessed(tried) => Some(tried),
        _ => None,
    });
    Ok(witness.unwrap_or_else(|| Err("the trial did not answer".to_owned())))
}

/// Lets a confined child try seven forbidden acts.
///
/// # Errors
/// The acts that succeeded, or why they could not be tried. Nothing may be run then.
pub async fn self_test(confinement: &Confinement) -> Result<(), String> {
    if confinement.level == SandboxLevel::None {
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
            ChildMessage::Tried(worked) => Some(worked),
            _ => None,
        });
    match tried {
        Some(worked) if worked.is_empty() => Ok(()),
        Some(worked) => Err(format!(
            "the sandbox does not confine commands: it was possible to {}",
            worked.join(", to ")
        )),
        None => Err("the self-test did not answer".to_owned()),
    }
}

/// Runs a task that is not a command in a confined child.
async fn ask(confinement: &Confinement, task: Task) -> Result<Vec<ChildMessage>, String> {
    let fail = |error: io::Error| error.to_string();
    let reach = WorkspaceReach {
        tree: true,
        ..WorkspaceReach::default()
    };
    let streams = Streams::null().map_err(fail)?;
    let StartedChild {
        mut child,
        mut tree,
        mut channel,
    } = confined_command::start(confinement, reach, task, None, &streams).map_err(|error| error.to_string())?;
    let cancel = CancellationToken::new();
    let halt = channel.halt();
    let exit = spawn::watch(&mut child, &mut tree, (BUILD_TIME, &cancel, &halt), channel.listen()).await;
    let mut judged = exit.clone();
    channel.judge("", &mut judged).map_err(|error| match error {
        SpawnError::Sandbox(why) => why,
        error => error.to_string(),
    })?;
    Ok(channel.messages)
}

/// Whether the kernel can limit the memory of a command's tree by a control group here; otherwise the memory is polled
/// ten times a second. Creates a group to find out, and removes it.
#[must_use]
pub fn memory_is_bounded_by_kernel() -> bool {
    super::confine::cgroup::memory_can_be_grouped()
}
