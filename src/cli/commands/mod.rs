//! One file a command: what it reads, what it prints, what code it ends with.

pub mod deliver;
pub mod doctor;
pub mod policy;
pub mod probe;
pub mod recipe;
pub mod report;
pub mod resume;
pub mod run;
pub mod runs;
pub mod sample;
pub mod session;
pub mod tools;

use super::refusal::Refusal;
use super::{args::Command, out};

/// Carries out a command. The number is the exit code.
pub async fn carry_out(command: Command, started: std::time::Instant) -> u8 {
    let done = match command {
        Command::Run(args) => return run::run(*args, started).await,
        Command::Resume(args) => return resume::resume(*args, started).await,
        Command::Report(args) => report::report(&args),
        Command::Deliver(args) => deliver::deliver(&args).await,
        Command::Policy(command) => policy::policy(command).await,
        Command::Recipe(command) => recipe::recipe(command, started).await,
        Command::Tools(command) => tools::tools(command).await,
        Command::Runs(args) => runs::runs(&args),
        Command::Doctor(args) => doctor::doctor(&args).await,
        Command::Completions { shell } => completions(shell),
        Command::Man => man(),
        Command::McpProbe { url } => probe::probe(url).await,
    };
    match done {
        Ok(code) => code,
        Err(refusal) => {
            out::tell(&format!("error: {refusal}"));
            refusal.code()
        }
    }
}

fn printed(text: &str) -> Result<u8, Refusal> {
    out::stdout(text).map_err(|error| Refusal::Output(format!("stdout: {error}")))?;
    Ok(super::exit::PASSED)
}

fn completions(shell: clap_complete::Shell) -> Result<u8, Refusal> {
    let mut script = Vec::new();
    let mut command = <super::args::Cli as clap::CommandFactory>::command();
    clap_complete::generate(shell, &mut command, "overnight", &mut script);
    printed(&String::from_utf8_lossy(&script))
}

/// The page of the whole program, then one of every subcommand.
fn man() -> Result<u8, Refusal> {
    let command = <super::args::Cli as clap::CommandFactory>::command();
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut page = Vec::new();
    pages(&command, &mut page).map_err(|error| Refusal::Output(error.to_string()))?;
    printed(&String::from_utf8_lossy(&page))
}

fn pages(command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    clap_mangen::Man::new(command.clone()).render(page)?;
    command.get_subcommands().try_for_each(|one| pages(one, page))
}
