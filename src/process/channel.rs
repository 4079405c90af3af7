//! The parent's end of the connection to a confined child: sandbox status, descriptors that the child passes, and how
//! the command ended.

use super::confine::order::{self, Streams};
use super::confine::spec::{ChildMessage, Spec};
use super::descriptor_socket;
use super::exec_witness::{ExecRecord, Order, Witness};
use super::process_tree::TreeReport;
use super::proxy::{self, ProxyRules};
use super::spawn_error::SpawnError;
use crate::base::call::ExitInfo;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The parent's end of the connection to a confined child.
pub(super) struct Channel {
    ours: UnixStream,
    text: Vec<u8>,
    pub messages: Vec<ChildMessage>,
    /// What the proxy may connect to, until its listening socket arrives.
    hosts: Option<(Vec<String>, ProxyRules)>,
    /// What the child reports about the end of its process tree.
    report: Arc<TreeReport>,
    /// The proxy; ends with the channel.
    serving: JoinSet<io::Result<()>>,
    /// Received descriptors, in the order of the messages that they belong to.
    came: VecDeque<OwnedFd>,
    witness: Watching,
    /// Cancelled when the process tree must be killed at once.
    halt: CancellationToken,
}

/// Stores how the child ended.
pub(super) fn set_status(exit: &mut ExitInfo, status: Option<ExitStatus>) {
    exit.code = status.and_then(|status| status.code());
    exit.signal = status.and_then(|status| status.signal());
}

/// The state of judging the tree's execs.
enum Watching {
    /// Execs are not judged.
    No,
    /// The listener has not arrived yet.
    Wanted(Order),
    Runs(Witness),
    /// It could not be started, and why.
    Failed(String),
}

impl Channel {
    /// A channel to a child that is about to be started, and the end that the child inherits. While this process holds
    /// that end too, the channel never reaches end of file.
    ///
    /// # Errors
    /// No socket pair can be created, or the runtime cannot watch it.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let channel = Self {
            ours: UnixStream::from_std(ours)?,
            text: Vec::new(),
            messages: Vec::new(),
            hosts: None,
            report: Arc::default(),
            serving: JoinSet::new(),
            came: VecDeque::new(),
            witness: Watching::No,
            halt: CancellationToken::new(),
        };
        Ok((channel, theirs.into()))
    }

    /// Sends the child its order.
    ///
    /// # Errors
    /// The child has ended.
    pub fn send_order(&self, spec: &Spec, streams: &Streams) -> io::Result<()> {
        order::send(&self.ours, spec, streams)
    }

    /// Call it before [`Channel::listen`]. With `hosts` the channel serves the proxy; with `witness` it judges execs.
    pub fn expect(&mut self, hosts: Option<(Vec<String>, ProxyRules)>, witness: Option<Order>) {
        self.hosts = hosts;
        self.witness = witness.map_or(Watching::No, Watching::Wanted);
    }

    /// What the child reports about the end of its process tree.
    pub fn report(&self) -> Arc<TreeReport> {
        Arc::clone(&self.report)
    }

    /// Cancelled when the process tree must be killed at once.
    pub fn halt(&self) -> CancellationToken {
        self.halt.clone()
    }

    /// The record of the tree's execs. Complete once the tree has ended.
    pub fn witnessed(&self) -> Option<ExecRecord> {
        match &self.witness {
            Watching::Runs(witness) => Some(witness.take()),
            Watching::No | Watching::Wanted(_) | Watching::Failed(_) => None,
        }
    }

    /// Handles the child's messages until it reports that its whole tree has ended, or closes the channel.
    pub async fn listen(&mut self) {
        let mut buffer = vec![0; 4096];
        loop {
            if self.ours.readable().await.is_err() {
                return;
            }
            let taken = self.ours.try_io(Interest::READABLE, || {
                Ok(descriptor_socket::receive(&self.ours, &mut buffer)?)
            });
            match taken {
                Ok((0, _)) => return,
                Ok((count, came)) => {
                    self.text.extend_from_slice(&buffer[..count]);
                    self.came.extend(came);
                    self.split();
                    if self.report.all_gone.load(Ordering::Acquire) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    fn split(&mut self) {
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let message = serde_json::from_slice(&line).ok();
            match message {
                Some(ChildMessage::Ended { left: 0, .. }) => self.report.all_gone.store(true, Ordering::Release),
                Some(ChildMessage::Ended { .. }) => self.report.some_left.cancel(),
                Some(ChildMessage::Listener) => self.serve_proxy(),
                Some(ChildMessage::Witness) => self.watch_execs(),
                _ => {}
            }
            self.messages.extend(message);
        }
    }

    fn serve_proxy(&mut self) {
        if let Some(listener) = self.came.pop_front()
            && let Some((hosts, rules)) = self.hosts.take()
        {
            self.serving.spawn(proxy::serve(listener, hosts, rules));
        }
    }

    /// If no witness can be started, the listener is closed, and every exec of the tree fails.
    fn watch_execs(&mut self) {
        let Some(listener) = self.came.pop_front() else { return };
        if let Watching::Wanted(order) = std::mem::replace(&mut self.witness, Watching::No) {
            self.witness = match Witness::start(listener, order, self.halt.clone()) {
                Ok(witness) => Watching::Runs(witness),
                Err(error) => Watching::Failed(error.to_string()),
            };
        }
    }

    /// Whether execs should be judged but no witness is running: then nothing was run.
    fn waits_for_listener(&self) -> bool {
        matches!(
            self.witness,
            Watching::Wanted(Order::Judge { .. }) | Watching::Failed(_)
        )
    }

    /// Sets how the command ended in `exit`, as the child reported it; the helper's own exit status matters only if it
    /// was killed. `program`: its name in errors.
    ///
    /// # Errors
    /// [`SpawnError`], if the sandbox could not be built, the program could not be executed, or no witness could judge
    /// it.
    pub fn judge(&self, program: &str, exit: &mut ExitInfo) -> Result<(), SpawnError> {
        let mut ended = false;
        if let Watching::Failed(why) = &self.witness {
            return Err(SpawnError::Sandbox(format!("programs cannot be judged at exec: {why}")));
        }
        for message in &self.messages {
            match message {
                ChildMessage::Failed(why) => return Err(SpawnError::Sandbox(why.clone())),
                ChildMessage::NoDirectory(dir, number) => {
                    let source = io::Error::from_raw_os_error(*number);
                    return Err(SpawnError::NoDirectory {
                        dir: dir.clone(),
                        source,
                    });
                }
                ChildMessage::NotExecuted(number) if !self.waits_for_listener() => {
                    return Err(SpawnError::of_start(program, io::Error::from_raw_os_error(*number)));
                }
                ChildMessage::Ended {
                    status,
                    leftovers,
                    memory,
                    left: _,
                } => {
                    set_status(exit, Some(ExitStatus::from_raw(*status)));
                    exit.leftovers = *leftovers;
                    exit.memory_limit = *memory;
                    ended = true;
                }
                ChildMessage::NotExecuted(_)
                | ChildMessage::Tried(_)
                | ChildMessage::Listener
                | ChildMessage::Witness
                | ChildMessage::Witnessed(_) => {}
            }
        }
        if self.waits_for_listener() {
            let why = "programs cannot be judged at exec: the listener did not arrive";
            return Err(SpawnError::Sandbox(why.to_owned()));
        }
        if self.halt.is_cancelled() {
            // The command's own end may have been reported before a process that it left behind was denied.
            (exit.code, exit.signal) = (None, Some(libc::SIGKILL));
        }
        if ended || exit.signal.is_some() {
            Ok(())
        } else {
            Err(SpawnError::Sandbox(
                "the confined child ended without a report".to_owned(),
            ))
        }
    }
}
