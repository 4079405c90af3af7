//! Passes descriptors over a Unix socket.

use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sends bytes together with at most four descriptors.
///
/// # Errors
/// The other end is closed, or the kernel or the user has too many descriptors in flight (`TOOMANYREFS`).
pub(super) fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives bytes, and the descriptors that came with them, at most four. No byte means that the other end is closed.
///
/// # Errors
/// Those of the system; `AGAIN` if the socket does not block and nothing has arrived.
pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            got => break got?,
        }
    };
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((got.bytes, fds.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_come_with_their_bytes_and_in_their_order() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let files = ["one", "two"].map(|name| rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        send(&ours, b"ab", &[files[0].as_fd(), files[1].as_fd()]).unwrap();
        (&ours).write_all(b"c").unwrap();
        drop(ours);
        let mut buffer = [0; 8];
        let (count, fds) = receive(&theirs, &mut buffer).unwrap();
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(&buffer[..count], b"ab");
        assert_eq!(
            fds.iter().map(inode).collect::<Vec<_>>(),
            files.iter().map(inode).collect::<Vec<_>>()
        );
        let (count, fds) = receive(&theirs, &mut buffer).unwrap();
        assert_eq!((&buffer[..count], fds.len()), (b"c".as_slice(), 0));
        assert_eq!(receive(&theirs, &mut buffer).unwrap().0, 0);
    }
}
