//! The entry point: starts either a sandboxed child process or the command line on a single-threaded runtime.

use clap::FromArgMatches;
use clap_complete::CompleteEnv;
use overnight::base::secret;
use overnight::cli::{self, args::Cli, commands, exit, manual, out, refusal::Refusal, version};
use overnight::journal::chain_key;
use overnight::process::{close_to_others, confine, proxy, use_helper};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

/// Stack size in bytes of the threads that do blocking work: that of the main thread, because calls are prepared and
/// ruled on there.
const THREAD_STACK: usize = 8 << 20;

static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == confine::ARGUMENT)
    {
        return confine::entry();
    }
    let started = Instant::now();
    CompleteEnv::with_factory(manual::command).complete();
    if let Err(error) = close_to_others() {
        out::stderr(&format!(
            "warning: this process stays open to others of this user: {error}"
        ));
    }
    let typed: Vec<_> = std::env::args_os().skip(1).collect();
    if version::asked(&typed) {
        let printed = out::stdout(&version::long());
        return ExitCode::from(if printed.is_ok() { exit::PASSED } else { exit::OUTPUT });
    }
    let parsed = Cli::of_probe(&typed).map_or_else(
        || {
            manual::command()
                .color(manual::color(&typed))
                .try_get_matches()
                .and_then(|matches| Cli::from_arg_matches(&matches))
        },
        Ok,
    );
    let cli = match parsed {
        Ok(cli) => cli,
        Err(mut error) => {
            cli::flag_hints::improve(&mut error);
            // Help and version go to stdout with exit code 0; a mistake goes to stderr.
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return ExitCode::from(match (error.use_stderr(), printed) {
                (true, _) => commands::usage(&typed, &error.to_string()),
                (false, Err(why)) if why.kind() != ErrorKind::BrokenPipe => {
                    out::stderr(&format!("error: stdout: {why}"));
                    exit::OUTPUT
                }
                (false, _) => exit::PASSED,
            });
        }
    };
    out::choose_color(cli.color);
    if let Some(directory) = &cli.directory
        && let Err(error) = std::env::set_current_dir(directory)
    {
        let refusal = Refusal::Environment(format!("-C {}: {error}", directory.display()));
        return ExitCode::from(commands::not_begun(&cli.command, &refusal));
    }
    let command = cli.command;
    // Not its path, at which a command may put another program while this one runs.
    use_helper("/proc/self/exe");
    chain_key::use_settings(chain_key::JournalSettings::from_env(&cli::environment::set_variable));
    secret::use_redactor(cli::environment::redactor);
    proxy::use_rules(cli::bootstrap::proxy_rules());
    // Parsers that may panic on hostile text are caught where they are called; only other panics are reported here.
    std::panic::set_hook(Box::new(|panic| {
        let _ = LAST_PANIC.lock().map(|mut last| *last = Some(panic.to_string()));
    }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_stack_size(THREAD_STACK)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            out::stderr(&format!("error: no runtime: {error}"));
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
        out::stderr(&format!("error: this is a bug in overnight: {told}\n{place}"));
        exit::BUG
    });
    runtime.shutdown_background();
    out::release(code != exit::PASSED);
    ExitCode::from(code)
}
