//! This process itself: closed to others that run as the same user. Starts nothing.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::io;

/// Closes `/proc/PID/environ` and `/proc/PID/mem` of this process, and tracing, to other processes of the same user: keys of model
/// services lie there. A program that is executed later begins open again.
///
/// # Errors
/// The kernel refused it.
pub fn close_to_others() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_closed() {
        close_to_others().unwrap();
        let now = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(now, DumpableBehavior::NotDumpable);
    }
}
