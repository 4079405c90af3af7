//! Splits a call into its single accesses, each of which must be covered.

use super::shell::{CommandReading, FileUse, ShellWord, Simple, WordKind};
use crate::base::access::{Access, PathStatus, ResolvedPath};
use crate::base::ruling::PolicyInput;
use crate::base::secret::shortened;

/// The most accesses in one call; a call with more is denied without examining them.
pub const MAX_NEEDS: usize = 5_000;

/// Who reads a file in a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellReader {
    /// A command, whose own rule must leave it the file, or a test that shows nothing of the file.
    Command,
    /// The shell: `$(< file)`, a redirection of a group, `read < file`.
    Shell,
}

/// One access of a call.
#[derive(Clone, Copy, Debug)]
pub enum Need<'a> {
    /// The call touches nothing: only the tool itself must be allowed.
    Tool,
    Read(&'a ResolvedPath),
    Write(&'a ResolvedPath),
    Url(&'a str),
    /// A simple command that needs a rule.
    Command(&'a Simple),
    /// A command that needs no rule (`cd`, `true`); deny rules still apply to it.
    State(&'a Simple),
    ShellRead(&'a FileUse, ShellReader),
    /// With the command that writes; `None` for a redirect of a group.
    ShellWrite(&'a FileUse, Option<&'a Simple>),
    ShellHost(&'a str, &'a Simple),
}

impl<'a> Need<'a> {
    /// The place of the access, and whether it is written.
    pub fn place(&self) -> Option<(&'a ResolvedPath, bool)> {
        match self {
            Need::Read(place) => Some((place, false)),
            Need::Write(place) => Some((place, true)),
            Need::ShellRead(used, _) => used.place.as_ref().map(|place| (place, false)),
            Need::ShellWrite(used, _) => used.place.as_ref().map(|place| (place, true)),
            _ => None,
        }
    }

    /// For a directory that a command removes or moves: the paths below it that rules restrict, if they are known.
    pub fn below(&self) -> Option<&'a [String]> {
        match self {
            Need::ShellWrite(used, _) => used.below.as_deref(),
            _ => None,
        }
    }

    /// Whether it comes from shell text.
    pub fn is_shell(&self) -> bool {
        !matches!(self, Need::Tool | Need::Read(_) | Need::Write(_) | Need::Url(_))
    }

    /// Whether git itself writes the git directory of the workspace's own repository.
    pub fn is_git_repository(&self) -> bool {
        match self {
            Need::ShellWrite(used, Some(simple)) => {
                simple.program == "git"
                    && used
                        .place
                        .as_ref()
                        .is_some_and(|place| place.inside && place.path == ".git")
            }
            _ => false,
        }
    }

    /// A short description for people: `write src/a.rs`.
    pub fn describe(&self, asked: &PolicyInput<'_>) -> String {
        match self {
            Need::Tool => format!("use {}", asked.tool),
            Need::Read(place) => format!("read {}", place.shown()),
            Need::Write(place) => format!("write {}", place.shown()),
            Need::Url(url) | Need::ShellHost(url, _) => format!("fetch {url}"),
            Need::Command(simple) | Need::State(simple) => format!("run `{}`", line(simple)),
            Need::ShellRead(used, _) => format!("read {}", used_path(used)),
            Need::ShellWrite(used, _) => format!("write {}", used_path(used)),
        }
    }
}

fn used_path(used: &FileUse) -> &str {
    used.place.as_ref().map_or(&used.asked, ResolvedPath::shown)
}

/// The words of a command as they were typed, at most 200 characters.
pub fn line(simple: &Simple) -> String {
    let typed = simple.launches.first().map_or(&simple.words, |launch| &launch.words);
    typed_line(typed)
}

/// Words as they were typed, at most 200 characters.
pub(super) fn typed_line(words: &[ShellWord]) -> String {
    let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    shortened(&words.join(" "), 200)
}

/// All accesses of a call, including those of its commands. Reads of `overnight:result/ID` need no rule and are left
/// out.
pub fn gather<'a>(access: &'a Access, readings: &'a [CommandReading]) -> Vec<Need<'a>> {
    let mut needs = Vec::new();
    for reading in readings {
        for simple in &reading.commands {
            needs.push(if simple.state_only {
                Need::State(simple)
            } else {
                Need::Command(simple)
            });
            let reader = match simple.program.as_str() {
                "read" => ShellReader::Shell,
                _ => ShellReader::Command,
            };
            needs.extend(simple.reads.iter().map(|used| Need::ShellRead(used, reader)));
            needs.extend(simple.writes.iter().map(|used| Need::ShellWrite(used, Some(simple))));
            needs.extend(simple.hosts.iter().map(|url| Need::ShellHost(url, simple)));
        }
        needs.extend(
            reading
                .reads
                .iter()
                .map(|used| Need::ShellRead(used, ShellReader::Shell)),
        );
        needs.extend(
            reading
                .tested
                .iter()
                .map(|used| Need::ShellRead(used, ShellReader::Command)),
        );
        needs.extend(reading.writes.iter().map(|used| Need::ShellWrite(used, None)));
    }
    needs.extend(access.reads.iter().filter(|place| !is_result(place)).map(Need::Read));
    needs.extend(access.writes.iter().map(Need::Write));
    needs.extend(access.urls.iter().map(|url| Need::Url(url)));
    let touches_nothing =
        access.commands.is_empty() && access.reads.is_empty() && access.writes.is_empty() && access.urls.is_empty();
    if touches_nothing {
        needs.push(Need::Tool);
    }
    needs
}

/// Whether a place is a stored result of this run.
fn is_result(place: &ResolvedPath) -> bool {
    place.path == place.asked && is_result_name(&place.asked)
}

/// Whether a name is that of a stored result: `overnight:result/ID`.
pub fn is_result_name(name: &str) -> bool {
    let id = name.strip_prefix("overnight:result/");
    id.is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)))
}

/// Programs whose first operand selects what they do.
const WITH_SUBCOMMANDS: &[&str] = &[
    "bun",
    "bundle",
    "cargo",
    "deno",
    "docker",
    "dotnet",
    "gh",
    "git",
    "go",
    "gradle",
    "just",
    "kubectl",
    "make",
    "mvn",
    "npm",
    "pip",
    "pip3",
    "pnpm",
    "poetry",
    "ruff",
    "rustup",
    "terraform",
    "uv",
    "yarn",
    "./gradlew",
    "./mvnw",
];

/// How `paths` lists a written place under this name: a directory with all below it, as a rule must cover it.
pub fn written(place: &ResolvedPath, name: &str) -> String {
    match place.found {
        PathStatus::Dir | PathStatus::NewDir if !place.path.is_empty() => format!("{name}/"),
        _ => name.to_owned(),
    }
}

/// The shortest prefix that identifies what a command does: the program, its subcommand, the script of `npm run`, the
/// module of `python -m`.
pub fn prefix_of(simple: &Simple) -> String {
    // If a rule for the started program would not cover it, the prefix must include its runner.
    let unvouched = simple.launches.iter().any(|launch| launch.unvouched.is_some());
    if let Some(launch) = simple.launches.first().filter(|_| unvouched) {
        let words = launch.words.iter().take(launch.name_at + 1);
        return words.map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    }
    let words: Vec<&str> = simple
        .words
        .iter()
        .take(3)
        .take_while(|word| is_plain(word))
        .map(|word| word.text.as_str())
        .collect();
    match words.as_slice() {
        ["npm" | "pnpm" | "yarn" | "bun", "run", script] => format!("{} run {script}", words[0]),
        ["python" | "python3", "-m", module] => format!("{} -m {module}", words[0]),
        [program, sub, ..] if WITH_SUBCOMMANDS.contains(program) && !sub.starts_with('-') => format!("{program} {sub}"),
        [program, ..] if simple.words.first().is_some_and(|word| word.text == *program) => (*program).to_owned(),
        _ => line(simple),
    }
}

/// Whether the word that selects what the program does is not known before the command runs.
pub fn hides_subcommand(simple: &Simple) -> bool {
    let word = simple.words.get(1);
    WITH_SUBCOMMANDS.contains(&simple.program.as_str()) && word.is_some_and(|word| word.kind != WordKind::Known)
}

fn is_plain(word: &ShellWord) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:./+".contains(&byte);
    word.kind == WordKind::Known && !word.text.is_empty() && word.text.bytes().all(plain)
}
