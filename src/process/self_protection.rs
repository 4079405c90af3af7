//! Protects this process against other processes of the same user.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::io;

/// Makes this process undumpable (`PR_SET_DUMPABLE`), so that other processes of the same user cannot trace it or read
/// its `/proc/PID/environ` and `/proc/PID/mem`, which contain keys of model services. An exec resets this.
///
/// # Errors
/// The kernel refused the call.
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
