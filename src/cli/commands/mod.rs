//! The commands, one file each: what a command reads and prints, and its exit code.

pub mod batch;
pub mod deliver;
pub mod doctor;
pub mod init;
pub mod policy;
pub mod probe;
pub mod recipe;
pub mod report;
pub mod resume;
pub mod run;
pub mod runs;
pub mod sample;
pub mod schema;
pub mod session;
pub mod tools;

use super::args::{Command, ManArgs, StdoutFormat};
use super::refusal::Refusal;
use super::{exit, manual, out, outputs, variables};
use crate::base::outcome::Verdict;
use crate::journal::artefacts;
use std::ffi::OsString;

/// Runs a command. Returns the exit code.
pub async fn carry_out(command: Command, started: std::time::Instant) -> u8 {
    let done = match command {
        Command::Run(args) => return run::run(*args, started).await,
        Command::Resume(args) => return resume::resume(*args, started).await,
        Command::Batch(args) => return batch::batch(*args).await,
        Command::Merge(args) => return batch::merge(&args).await,
        Command::Compare(args) => batch::compare(&args),
        Command::Report(args) => report::report(&args),
        Command::Deliver(args) => deliver::deliver(&args).await,
        Command::Policy(command) => policy::policy(command).await,
        Command::Recipe(command) => recipe::recipe(command, started).await,
        Command::Tools(command) => tools::tools(command).await,
        Command::Init(args) => init::init(&args),
        Command::Runs(args) => runs::runs(&args),
        Command::Doctor(args) => doctor::doctor(&args).await,
        Command::Completions { shell, fixed } => completions(shell, fixed),
        Command::Man(args) => man(&args),
        Command::Schema(args) => schema::schema(&args),
        Command::McpProbe { url } => probe::probe(url).await,
    };
    match done {
        Ok(code) => code,
        Err(refusal) => {
            out::stderr(&format!("error: {refusal}"));
            refusal.code()
        }
    }
}

fn printed(text: &str) -> Result<u8, Refusal> {
    out::stdout(text).map_err(|error| Refusal::Output(format!("stdout: {error}")))?;
    Ok(super::exit::PASSED)
}

/// Ends a command line that cannot be parsed. With `--format json` it prints the JSON object too, so that a script gets
/// one for every exit code.
pub fn usage(typed: &[OsString], why: &str) -> u8 {
    let texts: Vec<&str> = typed.iter().filter_map(|arg| arg.to_str()).collect();
    let said = |name: &str| {
        let joined = format!("--format={name}");
        texts.iter().any(|text| *text == joined) || texts.windows(2).any(|two| two == ["--format", name])
    };
    let runs = matches!(texts.first(), Some(&"run" | &"resume"));
    let format = match (said("json"), said("stream-json"), said("text")) {
        (true, ..) => StdoutFormat::Json,
        (_, true, _) => StdoutFormat::StreamJson,
        (_, _, true) => return exit::USAGE,
        _ => variables::format().unwrap_or_default(),
    };
    if runs && format != StdoutFormat::Text {
        let message = why.trim().trim_start_matches("error: ");
        outputs::print(format, &outputs::unstarted(Verdict::Usage, "", message));
    }
    exit::USAGE
}

/// Prints a completion script that asks this program for candidates, or a static one.
fn completions(shell: clap_complete::Shell, fixed: bool) -> Result<u8, Refusal> {
    let mut script = Vec::new();
    let name = shell.to_string();
    let shells = clap_complete::env::Shells::builtins();
    match shells.completer(&name).filter(|_| !fixed) {
        Some(asking) => asking
            .write_registration("COMPLETE", "overnight", "overnight", "overnight", &mut script)
            .map_err(|error| Refusal::Output(error.to_string()))?,
        None => clap_complete::generate(shell, &mut manual::command(), "overnight", &mut script),
    }
    printed(&String::from_utf8_lossy(&script))
}

/// Prints the manual page of one command or of all, or writes each to its own file.
fn man(args: &ManArgs) -> Result<u8, Refusal> {
    let pages = manual::pages().map_err(|error| Refusal::Output(error.to_string()))?;
    if let Some(dir) = &args.dir {
        for (path, page) in &pages {
            let name = match path.is_empty() {
                true => "overnight.1".to_owned(),
                false => format!("overnight-{}.1", path.replace(' ', "-")),
            };
            artefacts::replace(&dir.join(name), page)?;
        }
        return Ok(exit::PASSED);
    }
    let asked = args.command.join(" ");
    let wanted: Vec<u8> = match args.command.is_empty() {
        true => pages.into_iter().flat_map(|(_, page)| page).collect(),
        false => pages
            .into_iter()
            .find(|(path, _)| *path == asked)
            .map(|(_, page)| page)
            .ok_or_else(|| Refusal::Usage(format!("there is no command `{asked}`; `overnight --help` lists them")))?,
    };
    printed(&String::from_utf8_lossy(&wanted))
}
