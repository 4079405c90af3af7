//! Starts a process as the root of a tree that can be found and killed as a whole.

use super::process_tree::new_mark;
use std::io;
use tokio::process::{Child, Command};

/// Starts a process as the root of a new tree, and returns the tree's mark. `handed` are the descriptors that it
/// inherits, besides stdin, stdout and stderr.
pub(super) fn fork(command: &mut Command, handed: Vec<i32>) -> io::Result<(Child, u64)> {
    let mark = new_mark();
    on_start(command, mark, handed);
    Ok((command.spawn()?, mark))
}

/// Runs between fork and exec in the child: new session, mark, no core file, and no open descriptors except 0 to 2 and
/// those that are passed on.
#[expect(
    unsafe_code,
    reason = "only a hook between fork and exec can set these for the child alone"
)]
fn on_start(command: &mut Command, mark: u64, handed: Vec<i32>) {
    let hook = move || {
        // SAFETY: only system calls that are safe after a fork; `limit` is a local that outlives the calls.
        unsafe {
            libc::setsid();
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            if libc::getrlimit(libc::RLIMIT_LOCKS, &raw mut limit) == 0 && mark <= limit.rlim_max {
                limit.rlim_cur = mark;
                libc::setrlimit(libc::RLIMIT_LOCKS, &raw const limit);
            }
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            for fd in &handed {
                libc::fcntl(*fd, libc::F_SETFD, 0);
            }
        }
        Ok(())
    };
    // SAFETY: the hook allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(hook);
    }
}
