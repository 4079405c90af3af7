//! The entry: nothing but the ways into `cli` and, for confined children, into `process::confine`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == overnight::process::confine::ARGUMENT)
    {
        return overnight::process::confine::entry();
    }
    overnight::process::use_helper("/proc/self/exe");
    ExitCode::SUCCESS
}
