//! Generates help and manual pages: the command line with examples, and one page per command with environment, files
//! and exit codes.

use super::args::Cli;
use super::schemas::SchemaKind;
use super::{exit, variables};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io;

/// Examples, by command.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "overnight init",
            "overnight run ci/fix-tests.yaml --policy ci/overnight-policy.yaml -m gemini/gemini-2.5-pro --isolate --patch fix.patch",
            "overnight deliver --last --to branch",
        ],
    ),
    (
        "run",
        &[
            "overnight run recipes/fix-clippy.yaml --sample",
            "overnight run recipes/fix-clippy.yaml --policy builtin:build -m gemini/gemini-2.5-pro --isolate --patch fix.patch",
            "git log -20 --format=%s | overnight run -p \"Write release notes from these subjects\" --stdin -m openai/gpt-4.1",
            "overnight run -p \"Which licences do we use?\" --output-schema schema.json --format json",
            "overnight run git:origin/main:ci/fix.yaml --policy git:origin/main:ci/policy.yaml --dry-run",
        ],
    ),
    (
        "resume",
        &[
            "overnight resume --last",
            "overnight resume 20260101-031500-a1b2c3 --approve c7@0123456789ab",
            "overnight resume ./run --workspace ~/src/clone --policy ci/policy.yaml",
        ],
    ),
    (
        "batch",
        &[
            "overnight batch fleet.yaml --dry-run",
            "overnight batch fleet.yaml --out night --jobs 8",
            "overnight batch fleet.yaml --out shard --shard 1/4",
        ],
    ),
    (
        "batch script",
        &["overnight batch script --engine slurm --shards 100 fleet.yaml --out night > job.sh"],
    ),
    ("merge", &["overnight merge night/shards/* --out night"]),
    (
        "compare",
        &[
            "overnight compare night-1 night-2",
            "overnight compare night-1 night-2 --fail-on broken",
        ],
    ),
    (
        "deliver",
        &[
            "overnight deliver --last --to branch",
            "overnight deliver 20260101-031500-a1b2c3 --to github --base main",
            "overnight deliver night --to gitlab --dry-run",
        ],
    ),
    (
        "report",
        &[
            "overnight report 20260101-031500-a1b2c3 --format html > report.html",
            "overnight report ./run --format review",
        ],
    ),
    (
        "policy",
        &[
            "overnight policy check ci/policy.yaml",
            "overnight policy explain builtin:edit --command \"git push\"",
        ],
    ),
    (
        "policy check",
        &[
            "overnight policy check ci/policy.yaml",
            "overnight policy check ci/*policy*.yaml --format sarif > policies.sarif",
        ],
    ),
    (
        "policy test",
        &["overnight policy test ci/policy.yaml --cases ci/cases.yaml"],
    ),
    (
        "policy explain",
        &[
            "overnight policy explain ci/policy.yaml --command \"cargo test --workspace\"",
            "overnight policy explain ci/policy.yaml --run 20260101-031500-a1b2c3",
        ],
    ),
    (
        "policy import",
        &["overnight policy import ~/.gemini/policies/auto.toml > policy.yaml"],
    ),
    (
        "policy suggest",
        &["overnight policy suggest 20260101-031500-a1b2c3 > more.yaml"],
    ),
    (
        "recipe",
        &[
            "overnight recipe check recipes/*.yaml",
            "overnight recipe show recipes/fix-clippy.yaml",
        ],
    ),
    (
        "recipe check",
        &[
            "overnight recipe check recipes/*.yaml --workspace .",
            "overnight recipe check ci/fix.yaml --format github",
        ],
    ),
    (
        "recipe show",
        &["overnight recipe show recipes/triage-issue.yaml --format json"],
    ),
    ("recipe list", &["overnight recipe list --format json"]),
    (
        "recipe new",
        &["overnight recipe new ci/fix-lint.yaml --from builtin:fix-ruff"],
    ),
    ("recipe doc", &["overnight recipe doc ci/fix.yaml > fix.md"]),
    ("init", &["overnight init", "overnight init ./service"]),
    ("recipe test", &["overnight recipe test recipes/fix-clippy.yaml"]),
    (
        "tools",
        &[
            "overnight tools list",
            "overnight tools call glob --args '{\"pattern\": \"**/*.rs\"}'",
        ],
    ),
    (
        "tools list",
        &["overnight tools list --recipe ci/fix.yaml --format json"],
    ),
    (
        "tools call",
        &["overnight tools call run_shell_command --args '{\"command\": \"ls\"}' --policy builtin:look"],
    ),
    (
        "runs",
        &[
            "overnight runs list",
            "overnight runs verify",
            "overnight runs prune --keep 30",
        ],
    ),
    ("runs list", &["overnight runs list --format json"]),
    ("runs verify", &["overnight runs verify 20260101-031500-a1b2c3"]),
    ("runs prune", &["overnight runs prune --keep 30"]),
    ("doctor", &["overnight doctor --format json"]),
    ("schema", &["overnight schema recipe > recipe.schema.json"]),
    (
        "completions",
        &[
            "overnight completions bash > ~/.local/share/bash-completion/completions/overnight",
            "overnight completions fish --fixed > overnight.fish",
        ],
    ),
    (
        "man",
        &["overnight man run | man -l -", "overnight man --dir share/man/man1"],
    ),
];

/// Files that the manual pages list.
const FILES: &[(&str, &str)] = &[
    (
        ".overnight/runs/RUN/",
        "A run directory: journal.jsonl and blobs/ (the record), result.json, changes.patch, transcript.json, junit.xml, report.html, \
         summary.md; suspension.md where a call waits for approval.",
    ),
    (
        "recipes/",
        "Recipes of a project; a sample of NAME.yaml is in recipes/samples/NAME/.",
    ),
    (
        "~/.local/state/overnight/",
        "Heads of the journals that this user's runs wrote, and locks of output files.",
    ),
    (
        "~/.local/share/overnight/",
        "Notes that save_memory keeps, by repository.",
    ),
    (
        "~/.cache/overnight/",
        "What toolchains download and build for commands of a run, by repository, where the policy says `caches: keep`.",
    ),
];

/// Colour setting for help and command line errors, which are printed before the command line is parsed.
pub fn color(typed: &[std::ffi::OsString]) -> clap::ColorChoice {
    let texts: Vec<&str> = typed.iter().filter_map(|arg| arg.to_str()).collect();
    let said = |value: &str| {
        let joined = format!("--color={value}");
        texts.iter().any(|text| *text == joined) || texts.windows(2).any(|two| two == ["--color", value])
    };
    match (said("always"), said("never")) {
        (true, _) => clap::ColorChoice::Always,
        (_, true) => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}

/// The complete command line definition, including examples.
pub fn command() -> Command {
    with_examples(Cli::command(), "")
}

fn with_examples(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let mut command = match path.is_empty() {
        true => {
            let codes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let text = indented(examples(path).unwrap_or_default());
            command.after_help(format!(
                "Examples:\n{text}\n{}\n\nSee also: overnight man; the README and the guide",
                codes.trim_end()
            ))
        }
        false => {
            let text = examples(path).map_or_else(String::new, |lines| format!("Examples:\n{}\n", indented(lines)));
            let more = format!("{text}See also: overnight man {path}{}", schemas(path));
            match command.get_after_long_help().map(ToString::to_string) {
                Some(own) => command
                    .after_help(more.clone())
                    .after_long_help(format!("{own}\n\n{more}")),
                None => command.after_help(more),
            }
        }
    };
    for name in names {
        let longer = match path.is_empty() {
            true => name.clone(),
            false => format!("{path} {name}"),
        };
        command = command.mut_subcommand(name, |one| with_examples(one, &longer));
    }
    command
}

/// What leads from the help of a command to the keys of the files that it reads or writes.
fn schemas(path: &str) -> String {
    let kinds: &[SchemaKind] = match path {
        "policy test" => &[SchemaKind::Policy, SchemaKind::Cases],
        _ => match path.split(' ').next().unwrap_or_default() {
            "run" | "resume" | "recipe" | "init" | "tools" => &[SchemaKind::Recipe, SchemaKind::Policy],
            "policy" => &[SchemaKind::Policy],
            "batch" => &[SchemaKind::Batch],
            "merge" => &[SchemaKind::BatchResult],
            "compare" => &[SchemaKind::Runs],
            "report" | "runs" => &[SchemaKind::Result],
            "deliver" => &[SchemaKind::Deliver],
            _ => &[],
        },
    };
    let commands: Vec<String> = kinds
        .iter()
        .map(|kind| format!("overnight schema {}", kind.as_str()))
        .collect();
    match commands.is_empty() {
        true => String::new(),
        false => format!("; {} for the keys", commands.join(" and ")),
    }
}

fn examples(path: &str) -> Option<&'static [&'static str]> {
    EXAMPLES.iter().find(|(name, _)| *name == path).map(|(_, lines)| *lines)
}

fn indented(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("    {line}\n")).collect()
}

/// The manual page of every command, with the command's path, for example `run` or `policy check`.
///
/// # Errors
/// A page cannot be written; this does not happen, because pages are written to memory.
pub fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut all = Vec::new();
    collect(&root, "", &mut all)?;
    Ok(all)
}

fn collect(command: &Command, path: &str, all: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    if command.is_hide_set() {
        return Ok(());
    }
    all.push((path.to_owned(), page(command, path)?));
    for one in command.get_subcommands() {
        let longer = match path.is_empty() {
            true => one.get_name().to_owned(),
            false => format!("{path} {}", one.get_name()),
        };
        collect(one, &longer, all)?;
    }
    Ok(())
}

fn page(command: &Command, path: &str) -> io::Result<Vec<u8>> {
    let name = match path.is_empty() {
        true => "overnight".to_owned(),
        false => format!("overnight-{}", path.replace(' ', "-")),
    };
    // Exit codes have their own section.
    let man = Man::new(command.clone().name(name.clone()).after_help(""))
        .title(name.to_uppercase())
        .source(concat!("overnight ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    section("ENVIRONMENT", &variables::ALL).to_writer(&mut page)?;
    section("FILES", FILES).to_writer(&mut page)?;
    let codes = exit::TABLE.lines().skip(1).map(|line| {
        let (code, what) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
        (code, what.trim())
    });
    section("EXIT STATUS", &codes.collect::<Vec<_>>()).to_writer(&mut page)?;
    if let Some(lines) = examples(path) {
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]);
        for line in lines {
            roff.control("PP", []);
            roff.text([roman(*line)]);
        }
        roff.to_writer(&mut page)?;
    }
    section("SEE ALSO", &see_also(path)).to_writer(&mut page)?;
    Ok(page)
}

/// What the page of a command leads to.
fn see_also(path: &str) -> Vec<(&'static str, &'static str)> {
    let above = (!path.is_empty()).then_some(("overnight(1)", "The program and its commands."));
    let schemas = (
        "overnight-schema(1)",
        "Prints the keys of recipes, policies, manifests and other files, each with its meaning.",
    );
    above.into_iter().chain((path != "schema").then_some(schemas)).collect()
}

fn section(title: &str, entries: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (name, what) in entries {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*what)]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples() {
        let pages = pages().unwrap();
        assert!(pages.len() > 20, "{}", pages.len());
        for (path, page) in pages {
            let page = String::from_utf8(page).unwrap();
            assert!(page.contains(".SH EXAMPLES"), "`{path}` has no example");
            assert!(page.contains("SEE ALSO"), "`{path}` leads nowhere");
            let version = concat!("\"overnight ", env!("CARGO_PKG_VERSION"), "\"");
            let title = page.lines().find(|line| line.starts_with(".TH"));
            assert!(title.is_some_and(|title| title.contains(version)), "{title:?}");
        }
    }

    #[test]
    fn every_example_is_of_a_command() {
        let paths: Vec<String> = pages().unwrap().into_iter().map(|(path, _)| path).collect();
        for (path, _) in EXAMPLES {
            assert!(paths.iter().any(|known| known == path), "{path}");
        }
    }
}
