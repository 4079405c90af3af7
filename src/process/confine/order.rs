//! How a confined child gets its order: one byte on the channel, and with it the order in an anonymous file and the
//! command's stdin, stdout and stderr.

use super::spec::Spec;
use crate::process::descriptor_socket;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

/// The byte that comes with the descriptors.
const MARK: u8 = b'o';

/// stdin, stdout and stderr of a command.
#[derive(Debug)]
pub(crate) struct Streams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Streams {
    /// All three connected to `/dev/null`.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub fn null() -> io::Result<Self> {
        let null = || {
            File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .map(OwnedFd::from)
        };
        Ok(Self {
            stdin: null()?,
            stdout: null()?,
            stderr: null()?,
        })
    }

    /// Makes them this process's own.
    pub(super) fn take_over(self) -> io::Result<()> {
        rustix::stdio::dup2_stdin(&self.stdin)?;
        rustix::stdio::dup2_stdout(&self.stdout)?;
        Ok(rustix::stdio::dup2_stderr(&self.stderr)?)
    }
}

/// Sends the order to a child. An error means that it has ended.
pub(crate) fn send(channel: impl AsFd, spec: &Spec, streams: &Streams) -> io::Result<()> {
    let mut file = File::from(rustix::fs::memfd_create("order", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(spec)?)?;
    file.rewind()?;
    let fds = [
        file.as_fd(),
        streams.stdin.as_fd(),
        streams.stdout.as_fd(),
        streams.stderr.as_fd(),
    ];
    let once = || descriptor_socket::send(&channel, &[MARK], &fds);
    match once() {
        // The kernel counts descriptors in flight for all processes of a user together, and compares the sum with the
        // limit of the sender. Commands of an ordinary user have at most half of the hard limit.
        Err(Errno::TOOMANYREFS) => {
            let limit = getrlimit(Resource::Nofile);
            let all = Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            };
            setrlimit(Resource::Nofile, all)?;
            once()?
        }
        sent => sent?,
    };
    Ok(())
}

/// Waits for the order; `None` when the parent has closed the channel without one.
pub(super) fn receive(channel: &OwnedFd) -> io::Result<Option<(Spec, Streams)>> {
    let (count, fds) = descriptor_socket::receive(channel, &mut [0])?;
    if count == 0 {
        return Ok(None);
    }
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or(io::Error::from(io::ErrorKind::UnexpectedEof));
    let mut file = File::from(next()?);
    let streams = Streams {
        stdin: next()?,
        stdout: next()?,
        stderr: next()?,
    };
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(Some((serde_json::from_str(&text)?, streams)))
}
