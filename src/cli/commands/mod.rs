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

use super::args::{
    Command, LineFormat, ManArgs, PolicyCommand, ProblemFormat, RecipeCommand, RunsCommand, StdoutFormat, TextOrJson,
    ToolsCommand,
};
use super::refusal::Refusal;
use super::{environment, excluded_trees, exit, github, manual, out, outputs, variables};
use crate::batch::result::BatchResult;
use crate::journal::artefacts;
use serde_json::Value;
use std::ffi::OsString;

/// Runs a command. Returns the exit code.
pub async fn carry_out(command: Command, started: std::time::Instant) -> u8 {
    // Before anything is read: a recipe or policy of a commit is read with git.
    excluded_trees::declare(&command);
    let object = object_of(&command);
    let done = match command {
        Command::Run(args) => return run::run(*args, started).await,
        Command::Resume(args) => return resume::resume(*args, started).await,
        Command::Batch(args) => batch::batch(*args).await,
        Command::Merge(args) => batch::merge(&args).await,
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
        Err(refusal) => refused(&refusal, object),
    }
}

/// Reports why a command cannot be carried out: on stderr, and as an object on stdout.
fn refused(refusal: &Refusal, object: Option<RefusalObject>) -> u8 {
    out::refusal(refusal);
    if let Some(object) = object {
        // If stdout fails, the exit code still reports the error.
        let _ = out::line(&object(refusal).to_string());
    }
    refusal.code()
}

/// Reports why a command cannot even begin. Returns the exit code.
pub fn not_begun(command: &Command, refusal: &Refusal) -> u8 {
    let format = match command {
        Command::Run(args) => args.shared.format,
        Command::Resume(args) => args.shared.format,
        other => return refused(refusal, object_of(other)),
    };
    out::refusal(refusal);
    match format.or_else(variables::format).unwrap_or_default() {
        StdoutFormat::Text => refusal.code(),
        format => outputs::print(format, &outputs::unstarted(&refusal.outcome(&refusal.to_string()), "")),
    }
}

/// What a refused command prints on stdout.
type RefusalObject = fn(&Refusal) -> Value;

/// A batch and a merge print their result in every case.
fn unstarted_batch(refusal: &Refusal) -> Value {
    let result = BatchResult::unstarted(refusal.code(), refusal.to_string());
    // Keys are strings and the numbers are finite, so serializing cannot fail.
    serde_json::to_value(result).unwrap_or_default()
}

/// `None` without `--format json`, and for `run` and `resume`, which print a result. A command that gets such a flag has its
/// line here.
fn object_of(command: &Command) -> Option<RefusalObject> {
    let (is_json, object): (bool, RefusalObject) = match command {
        Command::Batch(args) => (args.format == TextOrJson::Json, unstarted_batch),
        Command::Merge(args) => (args.format == TextOrJson::Json, unstarted_batch),
        Command::Compare(args) => (args.format == TextOrJson::Json, Refusal::object),
        Command::Deliver(args) => (args.format == LineFormat::Json, Refusal::object),
        Command::Policy(PolicyCommand::Check { format, .. } | PolicyCommand::Test { format, .. }) => {
            (*format == ProblemFormat::Json, Refusal::object)
        }
        Command::Policy(PolicyCommand::Explain(args)) => {
            (args.format == TextOrJson::Json || args.calls.is_some(), Refusal::object)
        }
        Command::Policy(PolicyCommand::Import { format, .. } | PolicyCommand::Suggest { format, .. }) => {
            (*format == TextOrJson::Json, Refusal::object)
        }
        Command::Recipe(RecipeCommand::Check { format, .. }) => (*format == ProblemFormat::Json, Refusal::object),
        Command::Recipe(RecipeCommand::Show { json, format, .. }) => {
            (*json || *format == TextOrJson::Json, Refusal::object)
        }
        Command::Recipe(
            RecipeCommand::List { format, .. } | RecipeCommand::New { format, .. } | RecipeCommand::Test { format, .. },
        ) => (*format == TextOrJson::Json, Refusal::object),
        Command::Tools(ToolsCommand::List { format, .. }) => (*format != StdoutFormat::Text, Refusal::object),
        Command::Tools(ToolsCommand::Call(args)) => (args.format != StdoutFormat::Text, Refusal::object),
        Command::Runs(args) => {
            let format = match &args.command {
                None => TextOrJson::Text,
                Some(
                    RunsCommand::List { format }
                    | RunsCommand::Verify { format, .. }
                    | RunsCommand::Prune { format, .. },
                ) => *format,
            };
            (format == TextOrJson::Json, Refusal::object)
        }
        Command::Doctor(args) => (args.format == TextOrJson::Json, Refusal::object),
        Command::Init(args) => (args.format == TextOrJson::Json, Refusal::object),
        Command::Run(_)
        | Command::Resume(_)
        | Command::Report(_)
        | Command::Recipe(RecipeCommand::Doc { .. })
        | Command::Completions { .. }
        | Command::Man(_)
        | Command::Schema(_)
        | Command::McpProbe { .. } => (false, Refusal::object),
    };
    is_json.then_some(object)
}

fn printed(text: &str) -> Result<u8, Refusal> {
    out::stdout_of_others(text).map_err(|error| Refusal::Output(format!("stdout: {error}")))?;
    Ok(super::exit::PASSED)
}

/// Prints what this program alone has written and a shell or `man` reads, unchanged.
fn whole(text: &str) -> Result<u8, Refusal> {
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
    let command = command_of(&texts);
    let runs = matches!(command, Some("run" | "resume"));
    if !runs {
        if said("json") {
            let refusal = Refusal::Usage(message_of(why).to_owned());
            let object: RefusalObject = match command {
                Some("batch" | "merge") => unstarted_batch,
                _ => Refusal::object,
            };
            // If stdout fails, the exit code still reports the error.
            let _ = out::line(&object(&refusal).to_string());
        }
        return exit::USAGE;
    }
    let format = match (said("json"), said("stream-json"), said("text")) {
        (true, ..) => StdoutFormat::Json,
        (_, true, _) => StdoutFormat::StreamJson,
        (_, _, true) => StdoutFormat::Text,
        _ => variables::format().unwrap_or_default(),
    };
    let message = environment::redactor().redact(message_of(why)).into_owned();
    let mut written = outputs::unstarted(&Refusal::Usage(message.clone()).outcome(&message), "");
    let is_flag_given = texts.contains(&"--github");
    if variables::github(is_flag_given).unwrap_or(is_flag_given) {
        github::publish_refusal(&mut written);
    }
    if format != StdoutFormat::Text {
        outputs::print(format, &written);
    }
    exit::USAGE
}

fn message_of(why: &str) -> &str {
    why.trim().trim_start_matches("error: ")
}

/// The command in these arguments: the first that is neither a flag nor the value of one that all commands share.
fn command_of<'a>(texts: &[&'a str]) -> Option<&'a str> {
    let mut texts = texts.iter();
    while let Some(text) = texts.next() {
        match *text {
            "-C" | "--color" => drop(texts.next()),
            text if text.starts_with('-') => {}
            text => return Some(text),
        }
    }
    None
}

/// Prints a completion script that asks this program for candidates, or a static one.
fn completions(shell: clap_complete::Shell, fixed: bool) -> Result<u8, Refusal> {
    if shell == clap_complete::Shell::Bash && !fixed {
        return whole(include_str!("completions.bash"));
    }
    let mut script = Vec::new();
    let name = shell.to_string();
    let shells = clap_complete::env::Shells::builtins();
    match shells.completer(&name).filter(|_| !fixed) {
        Some(asking) => asking
            .write_registration("COMPLETE", "overnight", "overnight", "overnight", &mut script)
            .map_err(|error| Refusal::Output(error.to_string()))?,
        None => clap_complete::generate(shell, &mut manual::command(), "overnight", &mut script),
    }
    whole(&String::from_utf8_lossy(&script))
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
    whole(&String::from_utf8_lossy(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Cli;
    use clap::Parser;

    /// The commands with `--format json`.
    fn with_json(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        let format = command.get_arguments().find(|arg| arg.get_id().as_str() == "format");
        let values = format.map(clap::Arg::get_possible_values).unwrap_or_default();
        if values.iter().any(|value| value.get_name() == "json") {
            found.push(path.trim_start().to_owned());
        }
        for one in command.get_subcommands() {
            with_json(one, &format!("{path} {}", one.get_name()), found);
        }
    }

    #[test]
    fn every_command_with_json_prints_an_object_when_it_is_refused() {
        let lines = [
            "run -p x",
            "resume x",
            "batch x",
            "merge x --out y",
            "compare x y",
            "deliver x --to branch",
            "policy check x",
            "policy test x --cases y",
            "policy explain x",
            "policy import x",
            "policy suggest x",
            "recipe check x",
            "recipe show x",
            "recipe list",
            "recipe new x",
            "recipe test",
            "init",
            "tools list",
            "tools call x --args {}",
            "runs list",
            "runs verify",
            "runs prune --keep 1",
            "doctor",
        ];
        let mut found = Vec::new();
        with_json(&<Cli as clap::CommandFactory>::command(), "", &mut found);
        assert_eq!(found.len(), lines.len(), "{found:?}");
        for path in &found {
            let line = lines
                .iter()
                .find(|line| format!("{line} ").starts_with(&format!("{path} ")));
            let line = line.unwrap_or_else(|| panic!("no line for {path}"));
            let object = |more: &[&str]| {
                let words = ["overnight"]
                    .into_iter()
                    .chain(line.split(' '))
                    .chain(more.iter().copied());
                object_of(&Cli::try_parse_from(words).unwrap().command)
            };
            let prints_result = matches!(path.as_str(), "run" | "resume");
            assert_eq!(object(&["--format", "json"]).is_some(), !prints_result, "{line}");
            assert!(object(&[]).is_none(), "{line}");
        }
    }
}
