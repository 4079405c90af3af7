//! Runs the checks of a step: commands, bounds on the changes, files, and the answer's schema. Sends no request to a
//! model.

use super::deps::Deps;
use super::exec::GIT_LOCKS;
use super::ledger::Ledger;
use super::preconditions::confinement;
use super::response::{self, InSentence};
use super::run_error::RunError;
use crate::base::event::PatchTaken;
use crate::base::grant::described;
use crate::base::outcome::CheckResult;
use crate::base::quote::counted;
use crate::process::sides::Side;
use crate::process::{self, Finished, Invocation, Spawn, venv};
use crate::recipe::plan::ChangeLimits;
use crate::workspace::Workspace;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Upper limit in bytes for the recorded output of a check (head and tail).
const CHECK_BYTES: usize = 16 * 1024;
/// Upper limit in bytes for the recorded output of a step's command (head and tail), which later steps, conditions and
/// checks read.
const STEP_BYTES: usize = 1 << 20;
/// Upper limit in bytes for a file in which a `file` check looks for a text.
const FILE_BYTES: u64 = 8 << 20;

/// Prefix of a command of several lines, so that the first line that fails ends it, as in the scripts of CI systems.
const STRICT: &str = "set -euo pipefail; ";

/// A command that the recipe's author wrote.
pub struct AuthorCommand<'a> {
    pub text: &'a str,
    /// Its time limit, cut to what is left of the run and of the step.
    pub time: Duration,
    /// What it gets on stdin; `None` for nothing.
    pub stdin: Option<String>,
    /// Whether stdout is read by a program, so that it is captured separately from stderr.
    pub is_answer: bool,
    /// Whether it is a check: what it leaves in its home and temporary directory is removed when it ends.
    pub is_check: bool,
}

/// Runs a command of the author. No policy rule applies; the sandbox confines it. All `run` steps share one home; each
/// check gets a copy of it. A command of several lines stops at the first line that fails.
///
/// # Errors
/// [`RunError::Environment`] if the sandbox is not ready, its private copy cannot be made or removed, or the command
/// cannot be started, or one of its processes cannot be killed; [`RunError::Ended`] if the run was interrupted while
/// the copy was made. It is not an error if the command fails.
pub async fn command(deps: &Deps, ledger: &mut Ledger, what: AuthorCommand<'_>) -> Result<Finished, RunError> {
    let text = what.text;
    let program = match text.trim().contains('\n') {
        // The prefix goes on the first line, so that line numbers in the shell's messages stay correct.
        true => format!("{STRICT}{text}"),
        false => text.to_owned(),
    };
    let left = deps.deadline().saturating_duration_since(Instant::now());
    let spawn = Spawn {
        program: match what.is_answer {
            true => Invocation::ShellApart(program),
            false => Invocation::Shell(program),
        },
        dir: deps.workspace.root().to_owned(),
        env: Vec::new(),
        stdin: what.stdin.map(String::into_bytes),
        timeout: what.time.min(left),
        cancel: deps.interrupt.token.child_token(),
        on_output: None,
        keep: None,
        shown: match what.is_check {
            true => CHECK_BYTES,
            false => STEP_BYTES,
        },
        redactor: Arc::clone(&deps.redactor),
        writes: crate::base::grant::Writes::Tree,
        judge: None,
    };
    let not_run = |why: String| RunError::Environment(format!("the command `{text}` could not be run: {why}"));
    let (confinement, check) = match what.is_check {
        true => {
            let made = confinement(deps)?.of_check(&deps.interrupt.token).await;
            // Copying is given up when the run ends.
            made.map_err(|why| deps.interrupted().map_or_else(|| not_run(why), RunError::Ended))?
        }
        false => (confinement(deps)?.of_side(Side::Author), None),
    };
    let done = ledger.watch(process::run(spawn, &confinement)).await;
    if let Some(check) = check {
        check.end().await.map_err(RunError::Environment)?;
    }
    let finished = done.map_err(|error| not_run(error.to_string()))?;
    if let Some(told) = finished.locks.message() {
        ledger.warn(GIT_LOCKS, told)?;
    }
    // An error even if the command passed: a process that is still alive could change the tree during later checks.
    match process::survivors::message(deps.workspace.root()) {
        Some(told) => Err(RunError::Environment(told)),
        None => Ok(finished),
    }
}

/// Checks that the run's changes keep within their bounds.
pub fn of_changes(name: &str, bounds: &ChangeLimits, patch: Option<&PatchTaken>) -> CheckResult {
    without_program(name, bounds.described(), changed(bounds, patch), false)
}

/// Checks that a file exists, and that it contains a text if there must be one.
pub fn of_file(name: &str, path: &str, contains: Option<&str>, workspace: &Workspace) -> CheckResult {
    without_program(name, format!("file {path}"), file(path, contains, workspace), false)
}

/// Checks that the answer of a step fits its schema.
pub fn of_answer(name: &str, answer: &str, schema: &serde_json::Value) -> CheckResult {
    without_program(
        name,
        "the answer fits its schema".to_owned(),
        fits(answer, schema),
        true,
    )
}

/// The result of a check that starts no program.
fn without_program(name: &str, what: String, verdict: Result<String, String>, of_answer: bool) -> CheckResult {
    CheckResult {
        name: name.to_owned(),
        passed: verdict.is_ok(),
        what,
        message: verdict.unwrap_or_else(|why| why),
        output: String::new(),
        exit: None,
        took_ms: 0,
        of_answer,
    }
}

fn fits(answer: &str, schema: &serde_json::Value) -> Result<String, String> {
    match response::judge(answer, schema, InSentence::Accepted) {
        Ok(_) => Ok("the answer matches its schema".to_owned()),
        Err(errors) => Err(errors.join("; ")),
    }
}

/// The result of a check by a command that has finished.
pub fn of_command(name: &str, text: &str, finished: &Finished) -> CheckResult {
    let exit = &finished.exit;
    let mut message = match exit.timed_out {
        true => "ran out of time".to_owned(),
        false => exit.ending(),
    };
    if !finished.undone.is_empty() {
        message.push_str(&format!("; changed {}", described(&finished.undone)));
    }
    let mut output = finished.stdout.text.clone();
    if !finished.stderr.text.is_empty() {
        output.push_str(&finished.stderr.text);
    }
    CheckResult {
        name: name.to_owned(),
        passed: exit.code == Some(0) && !exit.timed_out && finished.undone.is_empty(),
        what: text.to_owned(),
        message,
        output,
        exit: Some(exit.clone()),
        took_ms: finished.took.as_millis() as u64,
        of_answer: false,
    }
}

/// The result of a check. If it failed and names a file that is missing because an earlier check had made it, its message
/// says so. `put_back`: paths that checks had changed, each with the name of the check.
pub fn with_missing_file(made: CheckResult, put_back: &BTreeMap<String, String>, workspace: &Workspace) -> CheckResult {
    if made.passed || put_back.is_empty() {
        return made;
    }
    let ends = |c: char| c.is_whitespace() || "'\"`,;:()[]{}<>=|&".contains(c);
    let words = [&made.what, &made.message, &made.output]
        .into_iter()
        .flat_map(|text| text.split(ends))
        .map(|word| word.trim_start_matches("./"));
    let is_end_of = |word: &str, path: &str| word.strip_suffix(path).is_some_and(|above| above.ends_with('/'));
    let named = |word: &str| match word.starts_with('/') {
        true => put_back.iter().find(|(path, _)| is_end_of(word, path)),
        false => put_back.get_key_value(word),
    };
    let is_missing = |path: &str| std::fs::symlink_metadata(workspace.root().join(path)).is_err();
    let told = words
        .filter_map(named)
        .find(|(path, by)| **by != made.name && is_missing(path))
        .map(|(path, by)| {
            format!(
                "{}; {path}, which check {by} had made, was removed when that check ended: let git ignore it, or make it in a `run` step",
                made.message
            )
        });
    match told {
        Some(message) => CheckResult { message, ..made },
        None => made,
    }
}

/// A program that a command of the author did not find or could not execute.
#[derive(Debug, PartialEq, Eq)]
pub struct MissingProgram<'a> {
    pub name: &'a str,
    /// Whether the author may have foreseen it: `||` follows it in the text.
    pub is_foreseen: bool,
}

/// The program that a command of the author with this text did not find or could not execute. Then the command tested
/// nothing, so that its end says nothing about the task. A path inside the workspace does not count: the model is
/// responsible for programs there. `finds`: whether commands find a program of this name. Anything that the command runs
/// can print what a shell says, so a program that they find is not missing.
///
/// A pipe, a condition or a substitution hides the exit code of a missing program. What a shell says of it counts then if
/// the text names the program: the same line may come from the tests that the command runs.
pub fn program_missing<'a>(
    text: &str,
    finished: &'a Finished,
    workspace: &Workspace,
    finds: &dyn Fn(&str) -> bool,
) -> Option<MissingProgram<'a>> {
    let lines = finished.stdout.text.lines().chain(finished.stderr.text.lines()).rev();
    let told = lines.filter_map(not_started);
    if matches!(finished.exit.code, Some(126 | 127)) {
        let is_missing = |name: &&str| match name.contains('/') {
            true => name.starts_with('/') && !Path::new(name).starts_with(workspace.root()),
            false => !finds(name),
        };
        let missing = told.map(|program| program.name).find(is_missing);
        return missing.map(|name| MissingProgram {
            name,
            is_foreseen: false,
        });
    }
    let elements = list_elements(text);
    let mut known: BTreeMap<&str, Option<bool>> = BTreeMap::new();
    let found = told
        .filter(|program| program.is_not_found)
        .filter_map(|NotStarted { name, .. }| {
            let is_foreseen = (*known.entry(name).or_insert_with(|| {
                let uses = elements.iter().filter_map(|element| after_word(element, name));
                let uses: Vec<bool> = uses.map(|after| before_comment(after).contains("||")).collect();
                (!uses.is_empty() && !finds(name)).then(|| uses.into_iter().all(|is_foreseen| is_foreseen))
            }))?;
            Some(MissingProgram { name, is_foreseen })
        });
    // A program without an alternative takes precedence.
    found.min_by_key(|program| program.is_foreseen)
}

/// Programs that are installed with Node and not in `node_modules`.
const OF_NODE: [&str; 6] = ["node", "npm", "npx", "pnpm", "yarn", "corepack"];

/// How to make a missing program available, if it is in a Python virtual environment of the workspace that is not
/// active, or could be in `node_modules`, which is missing.
pub fn local_program(name: &str, root: &Path) -> Option<String> {
    if let Some(help) = venv::inactive(root, name) {
        return Some(help);
    }
    let wants_modules = root.join("package.json").is_file() && !root.join("node_modules").is_dir();
    (wants_modules && !OF_NODE.contains(&name)).then(|| {
        "`node_modules` is missing here: run `npm ci` in your tree first; `isolate.keep` takes it along if git ignores it".to_owned()
    })
}

/// The parts of a text that `;`, `&` and line ends separate, also inside quotes, which may hold commands of their own.
fn list_elements(text: &str) -> Vec<&str> {
    let is_end = |at: usize, sign: &str| {
        let (before, after) = (
            text.get(..at).unwrap_or_default(),
            text.get(at + 1..).unwrap_or_default(),
        );
        match sign {
            "&" => !before.ends_with(['&', '|', '<', '>']) && !after.starts_with(['&', '>']),
            _ => !before.ends_with('\\'),
        }
    };
    let ends = text
        .match_indices([';', '&', '\n'])
        .filter(|(at, sign)| is_end(*at, sign));
    let mut start = 0;
    let mut elements = Vec::new();
    for end in ends.map(|(at, _)| at).chain([text.len()]) {
        elements.extend(text.get(start..end));
        start = end + 1;
    }
    elements
}

/// What precedes a comment.
fn before_comment(text: &str) -> &str {
    text.split(" #").next().unwrap_or_default()
}

/// What follows the first occurrence of a word in a text.
fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let is_part = |c: char| c.is_alphanumeric() || "_.+-/".contains(c);
    text.match_indices(word).find_map(|(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + word.len()..)?);
        (!before.ends_with(is_part) && !after.starts_with(is_part)).then_some(after)
    })
}

/// How shells call themselves in their messages.
const SHELLS: [&str; 5] = ["bash", "sh", "dash", "/bin/sh", "/bin/bash"];
/// How the message begins of a program that starts another one and cannot.
const STARTERS: [&str; 7] = [
    "env: ",
    "/usr/bin/env: ",
    "xargs: ",
    "nice: ",
    "timeout: failed to run command ",
    "nohup: failed to run command ",
    "stdbuf: failed to run command ",
];
/// How the line of a shell ends that did not find a program in its `PATH`.
const NOT_FOUND: [&str; 2] = [": command not found", ": not found"];
/// How the line ends of a shell, or of a program that starts another one, for a file that does not exist.
const NO_FILE: &str = ": No such file or directory";
const DENIED: &str = ": Permission denied";

/// A program that was not started, as a line of output reports.
struct NotStarted<'a> {
    name: &'a str,
    /// Whether it was looked up in `PATH` and not found.
    is_not_found: bool,
}

/// The program in a line in which a shell, or a program that starts another one, reports that it could not start it.
fn not_started(line: &str) -> Option<NotStarted<'_>> {
    let by_end = || {
        NOT_FOUND
            .iter()
            .chain([&NO_FILE, &DENIED])
            .find_map(|end| Some((line.strip_suffix(end)?, *end)))
    };
    let (before, end) = by_end().or_else(|| Some((line.split_once(": cannot execute")?.0, "")))?;
    let by_starter = STARTERS.iter().find_map(|starter| before.strip_prefix(starter));
    let parts: Vec<&str> = before.split(": ").collect();
    let (name, is_not_found) = match (by_starter, &parts[..]) {
        (Some(name), _) => (name, end == NO_FILE),
        // With another part, it is a builtin that looked for the program, as `type` does.
        (None, [shell, place, name]) if SHELLS.contains(shell) && NOT_FOUND.contains(&end) => (*name, is_place(place)),
        // A shell that is given a script which does not exist says the same as `env` of a program.
        (None, [shell, .., name]) if SHELLS.contains(shell) && (end != NO_FILE || name.contains('/')) => (*name, false),
        _ => return None,
    };
    let name = name.trim_matches(|c: char| matches!(c, '\'' | '‘' | '’' | '"'));
    let is_not_found = is_not_found && !name.contains('/');
    (!name.is_empty() && !name.contains(char::is_whitespace)).then_some(NotStarted { name, is_not_found })
}

/// Whether this is the place of a shell's message: `line 1`, or `1`.
fn is_place(text: &str) -> bool {
    let number = text.strip_prefix("line ").unwrap_or(text);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn globs(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        // `{.,}name` means the name with and without a dot, as in a policy and in a shell.
        let meant = crate::base::glob::of_changed(pattern).map_err(|why| format!("`{pattern}`: {why}"))?;
        let glob = GlobBuilder::new(&meant).empty_alternates(true).build();
        set.add(glob.map_err(|error| error.to_string())?);
    }
    set.build().map_err(|error| error.to_string())
}

/// The pattern that forbids a changed path: one that matches it or a directory that it is in, as in a policy.
fn forbidding<'a>(never: &GlobSet, patterns: &'a [String], path: &str) -> Option<&'a str> {
    let above = path
        .match_indices('/')
        .flat_map(|(at, _)| [path.get(..at), path.get(..=at)])
        .flatten();
    let found = std::iter::once(path)
        .chain(above)
        .find_map(|place| never.matches(place).first().copied());
    found.and_then(|at| patterns.get(at)).map(String::as_str)
}

/// What `only` says of a path that it does not list.
fn not_listed(path: &str, patterns: &[String]) -> String {
    let is_dir = |pattern: &&String| {
        let rest = path.strip_prefix(pattern.trim_start_matches("./"));
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let hint = match patterns.iter().find(is_dir) {
        Some(dir) => format!(" (`{dir}` is one path: write `{dir}/**`)"),
        None => String::new(),
    };
    format!("{path} was changed, and `only` does not list it{hint}")
}

fn changed(bounds: &ChangeLimits, patch: Option<&PatchTaken>) -> Result<String, String> {
    let files = patch.map(|patch| patch.files.as_slice()).unwrap_or_default();
    let paths = || {
        files
            .iter()
            .flat_map(|file| std::iter::once(file.path.as_str()).chain(file.from.as_deref()))
    };
    let mut problems = Vec::new();
    if !bounds.only.is_empty() {
        let only = globs(&bounds.only)?;
        problems.extend(
            paths()
                .filter(|path| !only.is_match(path))
                .map(|path| not_listed(path, &bounds.only)),
        );
    }
    let never = globs(&bounds.never)?;
    problems.extend(paths().filter_map(|path| {
        let pattern = forbidding(&never, &bounds.never, path)?;
        Some(format!("{path} was changed, which `never` ({pattern}) forbids"))
    }));
    let count = files.len() as u64;
    if let Some(most) = bounds.max_files.filter(|most| count > *most) {
        problems.push(format!("{} changed, allowed: {most}", counted(count, "file")));
    }
    let cr_lines = patch.map_or(0, |patch| patch.cr_lines);
    let lines: u64 = files
        .iter()
        .map(|file| file.added.unwrap_or(0) + file.removed.unwrap_or(0))
        .sum::<u64>()
        .saturating_add(cr_lines);
    if let Some(most) = bounds.max_lines.filter(|most| lines > *most) {
        // Git and the report show fewer lines.
        let of_them = match cr_lines {
            0 => String::new(),
            some => format!(" ({some} of them end in CR alone)"),
        };
        problems.push(format!("{} changed{of_them}, allowed: {most}", counted(lines, "line")));
    }
    if bounds.max_lines.is_some() {
        let uncounted = files
            .iter()
            .filter(|file| file.added.is_none() || file.removed.is_none());
        problems.extend(uncounted.map(|file| format!("{} is not text, so its lines cannot be counted", file.path)));
    }
    if problems.is_empty() {
        Ok(format!("{}, {}", counted(count, "file"), counted(lines, "line")))
    } else {
        Err(problems.join("; "))
    }
}

fn file(path: &str, contains: Option<&str>, workspace: &Workspace) -> Result<String, String> {
    let place = workspace.locate(path);
    let Some(text) = contains else {
        let file = workspace.open_file(&place).map_err(|error| error.to_string())?;
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        return Ok(counted(size, "byte"));
    };
    let bytes = workspace.read(&place, FILE_BYTES).map_err(|error| error.to_string())?;
    match String::from_utf8_lossy(&bytes).contains(text) {
        true => Ok(counted(bytes.len(), "byte")),
        false => Err(format!("{path} does not contain {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::call::ExitInfo;
    use crate::base::event::FileChange;

    fn patch(files: &[(&str, Option<&str>, u64)]) -> PatchTaken {
        PatchTaken {
            files: files
                .iter()
                .map(|(path, from, lines)| FileChange {
                    path: (*path).to_owned(),
                    kind: "modified".to_owned(),
                    from: from.map(str::to_owned),
                    added: Some(*lines),
                    removed: Some(0),
                })
                .collect(),
            ..PatchTaken::default()
        }
    }

    #[test]
    fn a_failed_command_says_how_it_ended() {
        let told = |code, signal, timed_out| {
            let exit = ExitInfo {
                code,
                signal,
                timed_out,
                ..ExitInfo::default()
            };
            let finished = Finished {
                exit,
                ..Finished::default()
            };
            of_command("tests", "make test", &finished).message
        };
        assert_eq!(told(Some(2), None, false), "exit code 2");
        assert_eq!(told(None, Some(9), false), "signal 9");
        assert_eq!(told(None, None, false), "no exit code");
        assert_eq!(told(None, Some(15), true), "ran out of time");
    }

    #[test]
    fn bounds_hold_for_both_names_of_a_rename() {
        let bounds = ChangeLimits {
            only: vec!["src/**".to_owned()],
            ..ChangeLimits::default()
        };
        assert!(changed(&bounds, Some(&patch(&[("src/a.rs", None, 1)]))).is_ok());
        let moved = changed(&bounds, Some(&patch(&[("src/a.rs", Some("lib/a.rs"), 1)])));
        assert_eq!(
            moved,
            Err("lib/a.rs was changed, and `only` does not list it".to_owned())
        );
    }

    #[test]
    fn a_directory_is_closed_however_it_is_written() {
        let told = |bounds: &ChangeLimits| changed(bounds, Some(&patch(&[("secret/x/a", None, 1)])));
        for pattern in ["secret", "secret/", "./secret/**", "secret/**", "*/x", "{secret/,b}"] {
            let bounds = ChangeLimits {
                never: vec!["b".to_owned(), pattern.to_owned()],
                ..ChangeLimits::default()
            };
            let why = format!("secret/x/a was changed, which `never` ({pattern}) forbids");
            assert_eq!(told(&bounds), Err(why));
        }
        for pattern in ["/secret/**", "secret\\**", "../secret", "~/a"] {
            let never = ChangeLimits {
                never: vec![pattern.to_owned()],
                ..ChangeLimits::default()
            };
            assert!(told(&never).is_err(), "{pattern}");
        }
        for (pattern, hint) in [
            ("secret/", None),
            ("./secret/**", None),
            ("secret", Some(" (`secret` is one path: write `secret/**`)")),
            ("src/**", Some("")),
        ] {
            let only = ChangeLimits {
                only: vec![pattern.to_owned()],
                ..ChangeLimits::default()
            };
            let why = hint.map(|hint| format!("secret/x/a was changed, and `only` does not list it{hint}"));
            assert_eq!(told(&only).err(), why, "{pattern}");
        }
    }

    #[test]
    fn lines_that_end_in_cr_alone_count() {
        let mut taken = patch(&[("a.py", None, 2)]);
        taken.cr_lines = 4;
        let told = |most| {
            let bounds = ChangeLimits {
                max_lines: Some(most),
                ..ChangeLimits::default()
            };
            changed(&bounds, Some(&taken))
        };
        assert_eq!(told(6), Ok("1 file, 6 lines".to_owned()));
        let why = "6 lines changed (4 of them end in CR alone), allowed: 5";
        assert_eq!(told(5), Err(why.to_owned()));
    }

    #[test]
    fn a_file_without_counts_is_within_no_bound_on_lines() {
        let mut binary = patch(&[("a.py", None, 1), ("b.py", None, 0)]);
        binary.files[1].added = None;
        binary.files[1].removed = None;
        let told = |max_lines| {
            let bounds = ChangeLimits {
                max_files: Some(2),
                max_lines,
                ..ChangeLimits::default()
            };
            changed(&bounds, Some(&binary))
        };
        let why = "b.py is not text, so its lines cannot be counted".to_owned();
        assert_eq!(told(Some(5)), Err(why));
        assert!(told(None).is_ok());
    }

    #[test]
    fn an_empty_alternative_of_a_pattern_matches() {
        let bounds = ChangeLimits {
            never: vec!["**/{.,}rc.*".to_owned(), "**/{*.,}test.js".to_owned()],
            ..ChangeLimits::default()
        };
        for path in ["rc.json", "a/.rc.json", "test.js", "a/b.test.js"] {
            let told = changed(&bounds, Some(&patch(&[(path, None, 1)])));
            assert!(told.is_err_and(|why| why.starts_with(&format!("{path} was changed"))));
        }
        assert!(changed(&bounds, Some(&patch(&[("a/latest.js", None, 1)]))).is_ok());
    }

    #[test]
    fn a_failed_check_tells_which_file_of_an_earlier_check_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), "as before").unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let put_back = [("a.txt", "tests"), ("out/app.js", "build"), ("report.xml", "tests")];
        let put_back: BTreeMap<String, String> = put_back.map(|(path, by)| (path.to_owned(), by.to_owned())).into();
        let told = |name: &str, passed: bool, what: &str, output: &str| {
            let made = CheckResult {
                passed,
                output: output.to_owned(),
                ..without_program(name, what.to_owned(), Err("exit code 1".to_owned()), false)
            };
            with_missing_file(made, &put_back, &workspace).message
        };
        let report = "exit code 1; report.xml, which check tests had made, was removed";
        let app = "exit code 1; out/app.js, which check build had made, was removed";
        for (what, output, begins) in [
            ("file report.xml", "", report),
            ("test -s ./report.xml", "", report),
            ("run", "open '/ws/out/app.js': no such file", app),
        ] {
            let message = told("last", false, what, output);
            assert!(message.starts_with(begins), "{message}");
        }
        for (name, passed, output) in [
            (
                "last",
                false,
                "no old-report.xml, no /ws/myreport.xml, no report.xml.bak",
            ),
            ("last", false, "a.txt, which is there"),
            ("tests", false, "its own report.xml"),
            ("last", true, "report.xml"),
        ] {
            assert_eq!(told(name, passed, "run", output), "exit code 1", "{output}");
        }
    }

    #[test]
    fn what_was_not_there_is_told_from_what_the_run_makes_itself() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let missing = |code: i32, line: &str| {
            let mut finished = Finished::default();
            finished.exit.code = Some(code);
            finished.stdout.text = format!("before\n{line}\n");
            let finds = |name: &str| name == "there";
            program_missing("run it", &finished, &workspace, &finds).map(|program| program.name.to_owned())
        };
        let own = workspace.root().join("tool").display().to_string();
        for (code, line, expected) in [
            (127, "bash: line 1: cargo: command not found", Some("cargo")),
            (127, "sh: 1: jest: not found", Some("jest")),
            (127, "env: ‘python3’: No such file or directory", Some("python3")),
            (
                127,
                "timeout: failed to run command ‘jest’: No such file or directory",
                Some("jest"),
            ),
            (
                126,
                "bash: line 3: /root/bin/tool: Permission denied",
                Some("/root/bin/tool"),
            ),
            (127, "anything else", None),
            (127, "bash: test.sh: No such file or directory", None),
            (127, "./check.sh: line 1: foo: command not found", None),
            (127, "bash: line 1: ./run.sh: No such file or directory", None),
            (126, "bash: line 1: target/debug/app: Permission denied", None),
            (
                126,
                &format!("bash: line 1: {own}: cannot execute: required file not found"),
                None,
            ),
            (1, "bash: line 1: cargo: command not found", None),
            (127, "bash: line 1: there: command not found", None),
            (126, "sh: 1: there: Permission denied", None),
        ] {
            assert_eq!(missing(code, line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_program_that_the_text_names_is_missing_whatever_hides_its_exit_code() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let missing = |text: &str, line: &str| {
            let mut finished = Finished::default();
            finished.exit.code = Some(0);
            finished.stdout.text = format!("before\n{line}\nafter\n");
            let found = program_missing(text, &finished, &workspace, &|name| name == "there");
            found.map(|program| (program.name.to_owned(), program.is_foreseen))
        };
        let by_bash = "bash: line 1: lint: command not found";
        for (text, line, is_foreseen) in [
            ("lint src | tee out.txt", by_bash, false),
            ("test -z \"$(lint -l .)\"", by_bash, false),
            ("if lint; then exit 1; fi", by_bash, false),
            ("P=lint; $P | cat", by_bash, false),
            ("bash -c 'lint | cat'", by_bash, false),
            ("sh -c 'lint | cat'", "sh: 1: lint: not found", false),
            ("env lint | cat", "env: ‘lint’: No such file or directory", false),
            (
                "ls | xargs -n1 lint | cat",
                "xargs: lint: No such file or directory",
                false,
            ),
            (
                "timeout 5 lint | cat",
                "timeout: failed to run command ‘lint’: No such file or directory",
                false,
            ),
            ("lint || true", by_bash, true),
            ("lint . || echo 'lint is not there'", by_bash, true),
            ("lint \\\n|| true", by_bash, true),
            ("lint 2>&1 && make || true", by_bash, true),
            ("make || lint | cat", by_bash, false),
            ("lint .; make || exit 1", by_bash, false),
            ("lint . & make || exit 1", by_bash, false),
            ("lint . | cat # || true", by_bash, false),
            ("lint . || true\nlint src | cat", by_bash, false),
            ("command -v lint || true; lint . | cat", by_bash, false),
        ] {
            let expected = Some(("lint".to_owned(), is_foreseen));
            assert_eq!(missing(text, line), expected, "{text}");
        }
        for (text, line) in [
            ("make test", by_bash),
            ("make lint-all && ./lint", by_bash),
            ("type lint | cat", "bash: line 1: type: lint: not found"),
            ("./lint.sh; lint", "./lint.sh: line 1: lint: command not found"),
            ("cat < lint | wc", "bash: line 1: lint: No such file or directory"),
            ("there test.py", "bash: line 1: there: command not found"),
        ] {
            assert_eq!(missing(text, line), None, "{text}");
        }
    }

    #[test]
    fn all_problems_are_told() {
        let bounds = ChangeLimits {
            never: vec!["*.lock".to_owned()],
            max_files: Some(1),
            max_lines: Some(5),
            ..ChangeLimits::default()
        };
        let told = changed(&bounds, Some(&patch(&[("a.lock", None, 4), ("b", None, 4)])));
        assert_eq!(
            told,
            Err("a.lock was changed, which `never` (*.lock) forbids; 2 files changed, allowed: 1; 8 lines changed, allowed: 5".to_owned())
        );
        assert!(changed(&bounds, None).is_ok(), "nothing changed");
    }
}
