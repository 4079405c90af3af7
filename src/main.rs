//! The entry: a confined child, or the command line on a runtime of one thread.

use clap::Parser;
use overnight::cli::{self, args::Cli, exit, out};
use overnight::journal::own;
use overnight::process::{close_to_others, confine, proxy, use_helper};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == confine::ARGUMENT)
    {
        return confine::entry();
    }
    let started = Instant::now();
    if let Err(error) = close_to_others() {
        out::tell(&format!(
            "warning: this process stays open to others of this user: {error}"
        ));
    }
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
    own::use_own(own::Own::from_env(&cli::wire::set_variable));
    proxy::use_rules(cli::wire::proxy_rules());
    // A parser of ours may panic on hostile text and is caught where it is called; only what comes up to here is told.
    std::panic::set_hook(Box::new(|panic| {
        let _ = LAST_PANIC.lock().map(|mut last| *last = Some(panic.to_string()));
    }));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out::tell(&format!("error: no runtime: {error}"));
            return ExitCode::from(exit::ENVIRONMENT);
        }
    };
    let work = std::panic::AssertUnwindSafe(|| runtime.block_on(cli::commands::carry_out(command, started)));
    let code = std::panic::catch_unwind(work).unwrap_or_else(|_| {
        let told = LAST_PANIC
            .lock()
            .ok()
            .and_then(|mut last| last.take())
            .unwrap_or_default();
        let place = cli::commands::session::current().unwrap_or_else(|| "no run had begun".to_owned());
        out::tell(&format!("error: this is a bug in overnight: {told}\n{place}"));
        exit::BUG
    });
    runtime.shutdown_background();
    ExitCode::from(code)
}
