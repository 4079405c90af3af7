//! The entry: a confined child, or the command line on a runtime of one thread.

use clap::Parser;
use overnight::cli::{self, args::Cli, exit, out};
use overnight::process::{confine, proxy, use_helper};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == confine::ARGUMENT) {
        return confine::entry();
    }
    let started = Instant::now();
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Help and version go to stdout and pass; a mistake goes to stderr.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::PASSED });
        }
    };
    if let Ok(own) = std::env::current_exe() {
        use_helper(own);
    }
    proxy::use_rules(cli::wire::proxy_rules());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out::tell(&format!("error: no runtime: {error}"));
            return ExitCode::from(exit::ENVIRONMENT);
        }
    };
    let work = std::panic::AssertUnwindSafe(|| runtime.block_on(cli::commands::carry_out(command, started)));
    let code = std::panic::catch_unwind(work).unwrap_or_else(|_| {
        out::tell("error: this is a bug in overnight; the journal of the run is whole up to here (see the run directory)");
        exit::BUG
    });
    runtime.shutdown_background();
    ExitCode::from(code)
}
