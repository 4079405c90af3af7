//! Checks before the first request that the programs of a recipe's commands exist. Runs nothing.
//!
//! Reports only what is certain: programs with bare names that a command runs in any case, looked up in the `PATH` of
//! commands. Anything else (a path, a function, a condition, the right side of `||`) shows when the command runs.

use crate::base::call::{ToolKind, ToolOrigin};
use crate::base::quote::yaml_word;
use crate::base::toolchain;
use crate::policy::PolicySet;
use crate::policy::RequestedLevel;
use crate::policy::model::SHELL;
use crate::process::own_path;
use crate::process::program_search::ProgramSearch;
use crate::process::{toolchains, venv};
use crate::recipe::Plan;
use crate::recipe::plan::{CheckWhat, StepWork};
use crate::recipe::template::{self, StepOutputs};
use std::path::{Path, PathBuf};

/// One line for each missing program, and what to do; `None` if all exist.
pub fn missing(plan: &Plan, policies: &PolicySet, search: &ProgramSearch<'_>) -> Option<String> {
    if policies.sandbox().level == RequestedLevel::None {
        // Without a sandbox, one step may install what the next one runs.
        return None;
    }
    let dirs = search.dirs()?;
    let mut told: Vec<(String, String)> = Vec::new();
    for command in commands(plan) {
        for program in programs(&command.text) {
            let known = told.iter().any(|(name, _)| *name == program);
            if known || is_inside(&dirs, &program) {
                continue;
            }
            let advice = advice(&Cause::of(&program, search), policies);
            let what = command.place.label();
            let line = format!("{what} runs `{program}`, which commands cannot find: {advice}");
            told.push((program, line));
        }
    }
    let mut lines: Vec<String> = told.into_iter().map(|(_, line)| line).collect();
    if !lines.is_empty() {
        lines.extend(search.ignored_environment());
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Why the commands of a run do not use the virtual environment that is active in the user's shell, and what to do. `None`
/// if they use it, none is active, or there are no commands.
pub fn ignored_environment(plan: &Plan, policies: &PolicySet, search: &ProgramSearch<'_>) -> Option<String> {
    let models = || policies.may_allow(SHELL, ToolKind::Execute, &ToolOrigin::Builtin);
    if commands(plan).is_empty() && !models() {
        return None;
    }
    let is_confined = policies.sandbox().level != RequestedLevel::None;
    search
        .ignored_environment()
        .or_else(|| search.unreadable_environment().filter(|_| is_confined))
}

/// Why commands do not find a program.
#[derive(Debug)]
enum Cause {
    /// The user does not find it either.
    Absent,
    /// It is in a virtual environment of the workspace that is not active. Contains what to do.
    Inactive(String),
    /// This toolchain has it, and no policy names it.
    Toolchain(&'static str),
    /// It is in this directory, relative to the original tree, and the worktree lacks it.
    NotKept(PathBuf),
    /// It is in this directory of the user's `PATH`, which commands cannot read.
    Unreadable(PathBuf),
    /// It is in this directory of the user's `PATH`, which commands can read, but in which they do not look for programs.
    NotSearched(PathBuf),
}

impl Cause {
    fn of(program: &str, search: &ProgramSearch<'_>) -> Self {
        let mut own = own_dirs(search.parent).into_iter();
        let Some(dir) = own.find(|dir| is_inside(std::slice::from_ref(dir), program)) else {
            let root = search.origin.unwrap_or(search.workspace);
            return venv::inactive(root, program).map_or(Self::Absent, Self::Inactive);
        };
        let real = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let below = search.origin.and_then(|origin| real.strip_prefix(origin).ok());
        if let Some(below) = below {
            return Self::NotKept(below.to_path_buf());
        }
        let brings = |name: &&str| {
            let mut toolchains = search.toolchains.to_vec();
            toolchains.push((*name).to_owned());
            let with = ProgramSearch {
                toolchains: &toolchains,
                ..*search
            };
            with.dirs().is_some_and(|dirs| is_inside(&dirs, program))
        };
        let mut names = toolchains::bringing(program).into_iter().chain(toolchain::NAMES);
        match names.find(brings) {
            Some(name) => Self::Toolchain(name),
            None if search.may_read(&real) => Self::NotSearched(dir),
            None => Self::Unreadable(dir),
        }
    }
}

/// A program that this machine lacks, and the first command that runs it in any case.
#[derive(Debug)]
pub struct AbsentProgram {
    pub program: String,
    pub place: CommandPlace,
}

/// Where the recipe has a command.
#[derive(Clone, Debug)]
pub enum CommandPlace {
    /// The command of the step with this id.
    Step(String),
    /// The command of a check.
    Check { step: String, name: String },
    /// `call` of the discovery.
    Call,
}

impl CommandPlace {
    fn label(&self) -> String {
        match self {
            Self::Step(step) => format!("step `{step}`"),
            Self::Check { name, .. } => format!("check `{name}`"),
            Self::Call => "`tools.discovery.call`".to_owned(),
        }
    }
}

/// The programs that neither the user's `PATH` nor any toolchain of a policy has: no policy makes a run find them.
pub fn absent(plan: &Plan, workspace: &Path, parent: &[(String, String)]) -> Vec<AbsentProgram> {
    let search = ProgramSearch {
        toolchains: &toolchain::NAMES.map(str::to_owned),
        pass: &[],
        parent,
        workspace,
        origin: None,
        brought: &[],
    };
    let Some(mut dirs) = search.dirs() else {
        return Vec::new();
    };
    dirs.extend(own_dirs(parent));
    let mut found: Vec<AbsentProgram> = Vec::new();
    for command in commands(plan) {
        for program in programs(&command.text) {
            let known = found.iter().any(|absent| absent.program == program);
            if known || is_inside(&dirs, &program) {
                continue;
            }
            found.push(AbsentProgram {
                program,
                place: command.place.clone(),
            });
        }
    }
    found
}

/// The directories of the user's `PATH`.
fn own_dirs(parent: &[(String, String)]) -> Vec<PathBuf> {
    let path = parent.iter().filter(|(name, _)| name == "PATH");
    path.flat_map(|(_, path)| path.split(':').map(PathBuf::from)).collect()
}

/// What to do about a program that commands cannot find.
fn advice(cause: &Cause, policies: &PolicySet) -> String {
    match cause {
        Cause::Absent => "install it on this machine".to_owned(),
        Cause::Inactive(help) => help.clone(),
        Cause::Toolchain(name) => match policies.without_toolchain(name) {
            Some((file, true)) => format!(
                "the recipe's own policy `{file}` narrows `--policy` and does not have `{name}` under `toolchains`; change \
                 the recipe's `policy`, or copy a built-in recipe with `overnight recipe new`"
            ),
            Some((file, false)) => format!("name `toolchains: [{name}]` under `sandbox` in the policy `{file}`"),
            None => format!("name `toolchains: [{name}]` under `sandbox` in the policy"),
        },
        Cause::NotKept(below) => {
            let kept = below.parent().filter(|dir| *dir != Path::new("")).unwrap_or(below);
            format!(
                "it is in your {}, which the worktree of --isolate does not have: name it in the recipe, as \
                 `isolate: {{ keep: [{}] }}`",
                below.display(),
                yaml_word(&kept.to_string_lossy())
            )
        }
        Cause::Unreadable(dir) => format!(
            "it is in {}, which is outside what commands can read: install it under /usr/local/bin",
            dir.display()
        ),
        Cause::NotSearched(dir) => format!(
            "it is in {}, which commands can read but which is not on their PATH: write its path, or install it under \
             /usr/local/bin",
            dir.display()
        ),
    }
}

/// A command of the recipe, with known values filled in.
struct NamedCommand {
    place: CommandPlace,
    text: String,
}

/// The commands of steps and checks, and the one that calls discovered tools.
fn commands(plan: &Plan) -> Vec<NamedCommand> {
    let none = StepOutputs::new();
    let text =
        |command: &str| template::render_command(command, &plan.scope(&none)).unwrap_or_else(|_| command.to_owned());
    let mut all = Vec::new();
    // A step with a condition may never run, so a missing program is reported only when it does.
    for step in plan.steps.iter().filter(|step| step.when.is_none()) {
        if let StepWork::Run { command, .. } = &step.work {
            all.push(NamedCommand {
                place: CommandPlace::Step(step.id.to_string()),
                text: text(command),
            });
        }
        for check in &step.checks {
            if let CheckWhat::Run { command, .. } | CheckWhat::AnswerRun { command, .. } = &check.what {
                all.push(NamedCommand {
                    place: CommandPlace::Check {
                        step: step.id.to_string(),
                        name: check.name.clone(),
                    },
                    text: text(command),
                });
            }
        }
    }
    all.extend(plan.tools.discovery.iter().map(|discovery| NamedCommand {
        place: CommandPlace::Call,
        text: discovery.call.clone(),
    }));
    all
}

fn is_inside(dirs: &[PathBuf], program: &str) -> bool {
    dirs.iter().any(|dir| own_path::is_program(&dir.join(program)))
}

/// Shell builtins that do not affect how the following words are parsed.
const BUILTINS: &str = "cd echo printf test [ [[ true false : exit set unset shopt ulimit umask wait read pwd export declare \
                        readonly type hash kill";

enum Token {
    Word(String),
    /// The commands of a `$(…)` in the word after it.
    Substitution(String),
    /// `&&`, `;`, a line end.
    Next,
    /// `|`.
    Pipe,
    /// The commands before it need not succeed.
    Or,
    /// What follows cannot be parsed.
    Stop,
}

/// Commands that are nested deeper, in `$(…)` or `bash -c`, are not read: nobody writes them, and each level reads the rest
/// of the text again.
const MOST_NESTED: u8 = 16;

/// The bare names of the programs that a command runs in any case, in order.
pub(crate) fn programs(text: &str) -> Vec<String> {
    programs_within(text, MOST_NESTED)
}

/// As [`programs`], with commands inside it up to this depth.
fn programs_within(text: &str, depth: u8) -> Vec<String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Vec::new();
    };
    let (mut found, mut substituted) = (Vec::new(), Vec::new());
    let mut words: Vec<String> = Vec::new();
    for token in tokens(text) {
        match token {
            Token::Word(word) => words.push(word),
            // Whoever discards its errors may do without it.
            Token::Substitution(inner) if inner.contains("2>") || inner.contains("&>") => {}
            Token::Substitution(inner) => substituted.extend(programs_within(&inner, depth)),
            Token::Or => break,
            Token::Next | Token::Pipe | Token::Stop => {
                let (run, goes_on) = run_by(&words, depth);
                found.append(&mut substituted);
                found.extend(run);
                words.clear();
                if !goes_on || matches!(token, Token::Stop) {
                    break;
                }
            }
        }
    }
    found
}

/// Programs that end with code 0 whatever the commands before them in a pipe do.
const PASSING_ON: [&str; 5] = ["cat", "head", "sort", "tail", "tee"];

/// The program at the end of a pipe that hides whether the command before it failed. Commands of several lines run with
/// `pipefail`.
pub(crate) fn hiding_failure(text: &str) -> Option<&'static str> {
    if text.trim().contains('\n') || text.contains("pipefail") {
        return None;
    }
    let (mut words, mut is_piped, mut before): (Vec<String>, _, bool) = (Vec::new(), false, false);
    for token in tokens(text) {
        match token {
            Token::Word(word) => words.push(word),
            Token::Substitution(_) => {}
            Token::Pipe => {
                // Builtins such as `echo` do not fail.
                let first = words.iter().find(|word| !is_assignment(word));
                before |= program(&words).0.is_some() || first.is_some_and(|word| word.contains('/'));
                is_piped = true;
                words.clear();
            }
            Token::Next | Token::Or | Token::Stop => {
                let last = program(&words).0;
                let hides = PASSING_ON.into_iter().find(|name| last.as_deref() == Some(name));
                if is_piped && before && hides.is_some() {
                    return hides;
                }
                (is_piped, before) = (false, false);
                words.clear();
            }
        }
    }
    None
}

/// Whether a command runs nothing: it is empty, or a comment.
pub(crate) fn runs_nothing(text: &str) -> bool {
    tokens(text).iter().all(|token| matches!(token, Token::Next))
}

fn is_assignment(word: &&String) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

/// The programs of one simple command, with those that its program starts, and whether to continue with the next command.
fn run_by(words: &[String], depth: u8) -> (Vec<String>, bool) {
    let (first, goes_on) = program(words);
    let (mut next, mut rest, mut found) = (first, words, Vec::new());
    while let Some(name) = next {
        let at = rest.iter().position(|word| *word == name);
        rest = at.and_then(|at| rest.get(at + 1..)).unwrap_or_default();
        next = match name.as_str() {
            "nohup" | "setsid" | "nice" | "timeout" | "env" => {
                if name == "timeout" {
                    rest = rest.get(1..).unwrap_or_default();
                }
                // An option changes what the words after it mean.
                let has_option = rest.first().is_some_and(|word| word.starts_with('-'));
                if has_option { None } else { program(rest).0 }
            }
            _ => None,
        };
        let text = match rest {
            [option, text, ..] if matches!(name.as_str(), "bash" | "sh") && option == "-c" => text,
            _ => "",
        };
        found.push(name);
        found.extend(programs_within(text, depth));
    }
    (found, goes_on)
}

/// The program of one simple command, and whether to continue with the next command.
fn program(words: &[String]) -> (Option<String>, bool) {
    if words
        .iter()
        .take_while(is_assignment)
        .any(|word| word.starts_with("PATH="))
    {
        return (None, false);
    }
    let mut rest = words
        .iter()
        .skip_while(is_assignment)
        .skip_while(|word| matches!(word.as_str(), "!" | "time" | "command"));
    let Some(word) = rest.next() else {
        return (None, true);
    };
    if BUILTINS.split_ascii_whitespace().any(|name| name == word) {
        let path = rest.any(|word| word.starts_with("PATH="));
        return (None, !path && word != "exit");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let keyword = [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "coproc",
        "source",
        ".",
        "eval",
        "alias",
        "trap",
        "exec",
        "local",
        "return",
        "let",
        "mapfile",
        "readarray",
        "getopts",
        "builtin",
        "enable",
        "bind",
        "pushd",
        "popd",
        "dirs",
        "jobs",
        "fg",
        "bg",
        "disown",
        "times",
        "shift",
        "break",
        "continue",
    ];
    if keyword.contains(&word.as_str()) {
        return (None, false);
    }
    // The run may create a path; other words depend on the shell.
    let known = word.chars().all(plain) && word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    (known.then(|| word.clone()), known || word.contains('/'))
}

/// The text of a substitution up to its closing parenthesis, which is consumed too. `chars` is behind its `$(`.
fn substitution(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let (mut text, mut depth, mut quote) = (String::new(), 1, None);
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => {
                text.push(c);
                text.extend(chars.next());
                continue;
            }
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(c),
            ('(', None) => depth += 1,
            (')', None) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        text.push(c);
    }
    text
}

/// Splits into words and operators. Quotes are removed; a `$(…)` stays part of its word, and its commands are a
/// token of their own before it.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    let mut begun = false;
    let mut chars = text.chars().peekable();
    let end = |tokens: &mut Vec<Token>, word: &mut String, begun: &mut bool| {
        if std::mem::take(begun) {
            tokens.push(Token::Word(std::mem::take(word)));
        }
    };
    // A second parenthesis begins arithmetic.
    let substitute = |chars: &mut _, tokens: &mut Vec<Token>, word: &mut String| {
        let inner = substitution(chars);
        word.push_str(&format!("$({inner})"));
        if !inner.starts_with('(') {
            tokens.push(Token::Substitution(inner));
        }
    };
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let next = chars.next();
                if next != Some('\n') {
                    word.extend(next);
                    begun = true;
                }
            }
            '\'' | '"' => {
                begun = true;
                let mut escaped = false;
                while let Some(inner) = chars.next() {
                    match inner {
                        _ if escaped => escaped = false,
                        '\\' if c == '"' => escaped = true,
                        inner if inner == c => break,
                        '$' if c == '"' && chars.next_if_eq(&'(').is_some() => {
                            substitute(&mut chars, &mut tokens, &mut word);
                            continue;
                        }
                        _ => {}
                    }
                    word.push(inner);
                }
            }
            '$' if chars.next_if_eq(&'(').is_some() => {
                begun = true;
                substitute(&mut chars, &mut tokens, &mut word);
            }
            '#' if !begun => {
                for inner in chars.by_ref() {
                    if inner == '\n' {
                        break;
                    }
                }
                tokens.push(Token::Next);
            }
            ' ' | '\t' | '\r' => end(&mut tokens, &mut word, &mut begun),
            '>' if chars.peek() == Some(&'&') => {
                begun = true;
                word.push(c);
                word.extend(chars.next());
            }
            '&' if word.ends_with('>') => word.push(c),
            '\n' | ';' => {
                end(&mut tokens, &mut word, &mut begun);
                tokens.push(Token::Next);
            }
            '&' | '|' => {
                end(&mut tokens, &mut word, &mut begun);
                let double = chars.next_if_eq(&c).is_some();
                tokens.push(match (c, double) {
                    ('|', true) => Token::Or,
                    ('|', false) => {
                        chars.next_if_eq(&'&');
                        Token::Pipe
                    }
                    (_, true) => Token::Next,
                    (_, false) => Token::Stop,
                });
            }
            '<' if chars.peek() == Some(&'<') => {
                end(&mut tokens, &mut word, &mut begun);
                tokens.push(Token::Stop);
            }
            '(' | ')' | '`' | '{' | '}' if !begun || c == '(' || c == '`' => {
                // Parentheses after a name define a function.
                word.clear();
                begun = false;
                tokens.push(Token::Or);
            }
            c => {
                begun = true;
                word.push(c);
            }
        }
    }
    end(&mut tokens, &mut word, &mut begun);
    tokens.push(Token::Next);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::SourceFiles;
    use crate::policy::{KnownTools, PolicySource, load};

    #[test]
    fn only_programs_that_run_in_any_case_are_seen() {
        for (text, expected) in [
            ("cargo test --lib", vec!["cargo"]),
            ("RUSTFLAGS=-Dwarnings cargo test 2>&1 | tail -5", vec!["cargo", "tail"]),
            ("cd web && npm test", vec!["npm"]),
            ("npm ci\nnpm test\n", vec!["npm", "npm"]),
            ("# lint\nruff check . ; pytest -q", vec!["ruff", "pytest"]),
            ("grep -q 'a && b' x && jest", vec!["grep", "jest"]),
            (
                "test -n \"$(git status | head -1)\" && make",
                vec!["git", "head", "make"],
            ),
            ("test -z \"$(gofmt -l \"$DIR\" ')')\"", vec!["gofmt"]),
            ("make -j$(nproc) && ctest", vec!["nproc", "make", "ctest"]),
            ("make -j$(nproc 2>/dev/null) X=$((1 + 2))", vec!["make"]),
            ("echo $(which foo || true) '$(bar)'", vec![]),
            ("env A=1 foo | cat", vec!["env", "foo", "cat"]),
            ("env -u A foo", vec!["env"]),
            ("timeout 5 nice foo", vec!["timeout", "nice", "foo"]),
            ("timeout 5 ./foo", vec!["timeout"]),
            ("bash -c \"foo | cat\" && bar", vec!["bash", "foo", "cat", "bar"]),
            ("which foo || true", vec![]),
            ("a && b || c", vec!["a"]),
            ("./run.sh && cargo test", vec!["cargo"]),
            (".venv/bin/pytest", vec![]),
            ("source .venv/bin/activate && pytest", vec![]),
            ("PATH=bin:$PATH foo", vec![]),
            ("export PATH=bin:$PATH\nfoo", vec![]),
            ("export CI=1\nfoo", vec!["foo"]),
            ("foo() { bar; }\nfoo", vec![]),
            ("if foo; then bar; fi", vec![]),
            ("for f in *; do foo; done", vec![]),
            ("(foo)", vec![]),
            ("{ foo; }", vec![]),
            ("{{ command }}", vec![]),
            ("$RUN test", vec![]),
            ("foo <<E\nbar\nE\nbaz", vec!["foo"]),
            ("server & sleep 1", vec!["server"]),
            ("! grep -r TODO src", vec!["grep"]),
            ("echo hi > out.txt", vec![]),
            ("cmp a b >&2", vec!["cmp"]),
            ("", vec![]),
        ] {
            assert_eq!(programs(text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_of_any_size_and_depth_is_read() {
        let (depth, long) = (100_000, 200_000);
        let nested = format!("make {}true{}", "$(".repeat(depth), ")".repeat(depth));
        assert_eq!(programs(&nested), ["make"]);
        let open = format!("make {}", "\"$(a ".repeat(depth));
        assert_eq!(programs(&open).last().unwrap(), "make");
        assert_eq!(programs(&"env ".repeat(long)).len(), long);
        assert_eq!(programs(&"bash -c 'x' && ".repeat(long)).len(), 2 * long);
        assert!(runs_nothing(&"#\n".repeat(long)));
        assert_eq!(hiding_failure(&format!("{nested} | cat")), Some("cat"));
    }

    #[test]
    fn only_pipes_that_may_hide_a_failure_are_told() {
        for (text, expected) in [
            ("cargo test 2>&1 | tail -5", Some("tail")),
            ("cd web && npm test | tee out.txt", Some("tee")),
            ("./run-tests | cat", Some("cat")),
            ("ruff check . | sort | head -3 && pytest", Some("head")),
            ("cargo test | grep -q ok", None),
            ("echo a/b | tee out.txt", None),
            ("set -o pipefail; cargo test | tee out.txt", None),
            ("cargo test | tee out.txt\ntrue", None),
            ("test -z \"$(git status | head -1)\"", None),
            ("cargo test", None),
            ("cargo test |& tee out.txt", Some("tee")),
            ("cargo test 2>&1 | tee out.txt;", Some("tee")),
            ("cargo test || npm test | tee out.txt", Some("tee")),
            ("cargo test || echo failed | tee out.txt", None),
        ] {
            assert_eq!(hiding_failure(text), expected, "{text}");
        }
        for (text, expected) in [
            ("# cargo test", true),
            ("  \n # a\n", true),
            (": # ok", false),
            ("(a)", false),
        ] {
            assert_eq!(runs_nothing(text), expected, "{text}");
        }
    }

    fn policies(texts: &[&str]) -> PolicySet {
        let sources: Vec<PolicySource> = texts
            .iter()
            .enumerate()
            .map(|(n, text)| PolicySource {
                name: format!("{n}.yaml"),
                text: format!("version: 1\n{text}"),
            })
            .collect();
        load(&mut SourceFiles::new(), &sources, &KnownTools::builtin())
            .unwrap()
            .0
    }

    #[test]
    fn advice_names_the_policy_or_the_machine() {
        let says = |cause: Cause, texts: &[&str]| advice(&cause, &policies(texts));
        let (rust, node) = ("sandbox: { toolchains: [rust] }\n", "sandbox: { toolchains: [node] }\n");
        let cargo = || Cause::Toolchain("rust");
        assert!(says(cargo(), &[""]).ends_with("toolchains: [rust]` under `sandbox` in the policy"));
        assert!(says(cargo(), &[rust, node]).ends_with("toolchains: [rust]` under `sandbox` in the policy `1.yaml`"));
        assert!(says(Cause::Absent, &[""]).contains("install it"));
        for (cause, told) in [
            (Cause::NotKept(".venv/bin".into()), "keep: [.venv] }`"),
            (Cause::NotKept("tools".into()), "keep: [tools] }`"),
            (
                Cause::Unreadable("/home/u/v/bin".into()),
                "outside what commands can read",
            ),
            (Cause::NotSearched("/opt/x".into()), "not on their PATH"),
        ] {
            let advice = says(cause, &[rust]);
            assert!(advice.contains(told), "{advice}");
        }
    }
}
