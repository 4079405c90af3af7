//! Programs that start an installed program by its name (`npx eslint`, `python -m pytest`, `.venv/bin/ruff`):
//! determines which program that is, and whether a rule for it may cover the command.

use super::scope::{CommandWalk, ShellState};
use super::{CommandRefusal, ShellWord, option_name, place, wrappers};
use crate::base::access::PathStatus;
use crate::base::grant::Starts;
use crate::policy::profiles::{self, Arity, Ecosystem, SideEffects, ValueClass, WriteExtent};

/// How an installed program is started: by another program, or by its path in the tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Launch {
    /// Identity of the executed program: `npx`, or `./node_modules/.bin/eslint`.
    pub program: String,
    /// The words that are executed.
    pub words: Vec<ShellWord>,
    /// Index in `words` of the started program's name.
    pub name_at: usize,
    /// By how many words an argument's index is larger here than in the started program's own words.
    pub skipped: usize,
    /// Whether another program starts it, which must then be allowed to start programs.
    pub runner: bool,
    /// Whether a rule that names only the runner covers it.
    pub covered: bool,
    /// Whether an option before the name must be spelled out in any rule, also in one that names only the runner.
    pub is_odd: bool,
    /// Why a rule for the started program does not cover it.
    pub unvouched: Option<CommandRefusal>,
    /// Workspace files that determine what is started; whoever can write them can replace the program.
    pub relies_on: Vec<String>,
    /// Indices in `words` of the runner's own words that a rule need not spell out (`npm --silent exec`).
    pub passed_over: Vec<usize>,
}

/// Where a runner looks for the requested program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lookup {
    /// `node_modules/.bin` in the directory or one above it; otherwise it fetches a package of that name.
    NodeBin,
    /// A script of `package.json`, or else `node_modules/.bin`.
    NodeScript,
    /// The project's virtual environment; the named file may define programs of its own.
    Environment(&'static str),
    /// Always fetches a package of that name from a registry.
    Fetched,
    /// Gems of the `Gemfile`, tools of `go.mod`.
    Listed(&'static str),
}

/// The options of a runner before the program's name. Only those that each of the programs takes in this way: yarn takes
/// the word after an unknown option for its value, and then starts the word after it.
struct Runner {
    programs: &'static [&'static str],
    /// Its subcommand, in each spelling.
    subs: &'static [&'static str],
    flags: &'static [&'static str],
    valued: &'static [&'static str],
    ecosystem: Ecosystem,
    lookup: Lookup,
    /// Whether it passes on `--` and what follows unchanged. Other runners remove it, so that operands become options.
    verbatim: bool,
}

/// Options of a runner that change only what it prints, or whether it may use the network: rules need not name them. A
/// program for which one of them means something else has its own lists without it.
const QUIET: &[&str] = &[
    "--silent",
    "-s",
    "--quiet",
    "-q",
    "--verbose",
    "-v",
    "--color",
    "--no-color",
    "--no-progress",
    "--loglevel",
    "--reporter",
    "--offline",
    "--prefer-offline",
    "--no-audit",
    "--no-fund",
    "--if-present",
    "--non-interactive",
    "--no",
    "--no-install",
    "--frozen",
    "--locked",
    "--no-sync",
];

/// Upper limit for the words before the subcommand of a runner. If a command has more, a rule for the started program
/// does not cover it.
const MAX_LEADING: usize = 64;

const NPX_FLAGS: &[&str] = &[
    "-y",
    "--yes",
    "--no",
    "--no-install",
    "--offline",
    "--prefer-offline",
    "-q",
    "--quiet",
    "-s",
    "--silent",
];
const UV_FLAGS: &[&str] = &[
    "--frozen",
    "--locked",
    "--offline",
    "--no-sync",
    "--all-extras",
    "--all-groups",
    "--dev",
    "--no-dev",
    "-q",
    "--quiet",
    "-v",
    "--verbose",
    "--no-progress",
    "--exact",
    "--all-packages",
];

const RUNNERS: &[Runner] = &[
    Runner {
        programs: &["npx"],
        subs: &[""],
        flags: NPX_FLAGS,
        valued: &[],
        ecosystem: Ecosystem::Node,
        lookup: Lookup::NodeBin,
        verbatim: true,
    },
    Runner {
        programs: &["bunx"],
        subs: &[""],
        flags: &["--bun", "--no-install", "--silent"],
        valued: &[],
        ecosystem: Ecosystem::Node,
        lookup: Lookup::NodeBin,
        verbatim: true,
    },
    Runner {
        programs: &["npm"],
        subs: &["exec", "x"],
        flags: NPX_FLAGS,
        valued: &[],
        ecosystem: Ecosystem::Node,
        lookup: Lookup::NodeBin,
        verbatim: false,
    },
    Runner {
        programs: &["pnpm", "yarn"],
        subs: &["exec"],
        flags: &["-s", "--silent"],
        valued: &[],
        ecosystem: Ecosystem::Node,
        lookup: Lookup::NodeBin,
        verbatim: false,
    },
    Runner {
        programs: &["pnpm", "yarn", "bun"],
        subs: &["run", ""],
        flags: &["-s", "--silent", "--offline"],
        valued: &[],
        ecosystem: Ecosystem::Node,
        lookup: Lookup::NodeScript,
        verbatim: false,
    },
    Runner {
        programs: &["pnpm", "yarn", "bun", "pnpx"],
        subs: &["dlx", "x"],
        flags: NPX_FLAGS,
        valued: &[],
        ecosystem: Ecosystem::Node,
        lookup: Lookup::Fetched,
        verbatim: true,
    },
    Runner {
        programs: &["pnpx"],
        subs: &[""],
        flags: NPX_FLAGS,
        valued: &[],
        ecosystem: Ecosystem::Node,
        lookup: Lookup::Fetched,
        verbatim: true,
    },
    Runner {
        programs: &["uv"],
        subs: &["run"],
        flags: UV_FLAGS,
        valued: &["--extra", "--group", "--package"],
        ecosystem: Ecosystem::Python,
        lookup: Lookup::Environment("pyproject.toml"),
        verbatim: true,
    },
    Runner {
        programs: &["poetry", "pdm", "hatch", "rye"],
        subs: &["run"],
        flags: &["-q", "--quiet", "--no-ansi", "-n", "--no-interaction"],
        valued: &[],
        ecosystem: Ecosystem::Python,
        lookup: Lookup::Environment("pyproject.toml"),
        verbatim: false,
    },
    Runner {
        programs: &["pipenv"],
        subs: &["run"],
        flags: &["-q", "--quiet"],
        valued: &[],
        ecosystem: Ecosystem::Python,
        lookup: Lookup::Environment("Pipfile"),
        verbatim: false,
    },
    Runner {
        programs: &["uvx"],
        subs: &[""],
        flags: UV_FLAGS,
        valued: &[],
        ecosystem: Ecosystem::Python,
        lookup: Lookup::Fetched,
        verbatim: true,
    },
    Runner {
        programs: &["uv"],
        subs: &["tool run"],
        flags: UV_FLAGS,
        valued: &[],
        ecosystem: Ecosystem::Python,
        lookup: Lookup::Fetched,
        verbatim: true,
    },
    Runner {
        programs: &["pipx"],
        subs: &["run"],
        flags: &["-q", "--quiet"],
        valued: &[],
        ecosystem: Ecosystem::Python,
        lookup: Lookup::Fetched,
        verbatim: true,
    },
    Runner {
        programs: &["bundle"],
        subs: &["exec"],
        flags: &[],
        valued: &[],
        ecosystem: Ecosystem::Ruby,
        lookup: Lookup::Listed("Gemfile"),
        verbatim: true,
    },
    Runner {
        programs: &["go"],
        subs: &["tool"],
        flags: &[],
        valued: &[],
        ecosystem: Ecosystem::Go,
        lookup: Lookup::Listed("go.mod"),
        verbatim: true,
    },
];

/// Directories in which package managers put programs, by the end of the path.
const PROGRAM_DIRS: [(&str, Ecosystem); 3] = [
    ("node_modules/.bin", Ecosystem::Node),
    (".venv/bin", Ecosystem::Python),
    ("venv/bin", Ecosystem::Python),
];

/// Directories that package managers fill; nothing else has a reason to write there.
pub(crate) const INSTALLED_DIRS: [&str; 3] = ["node_modules", ".venv", "venv"];

/// What a runner starts.
pub(super) enum Seen {
    /// It is not a runner.
    Nothing,
    /// It starts a program of the machine: deny rules apply to it, but a rule for it does not cover the runner.
    Hidden(Vec<ShellWord>),
    /// It starts an installed program, with these words.
    Starts(Vec<ShellWord>, Launch),
}

/// Finds the program that a runner, or the path of an installed program, starts.
pub(super) fn look(walk: &CommandWalk<'_>, state: &ShellState, words: &[ShellWord], program: &str) -> Seen {
    if program.starts_with("./") {
        return installed(walk, words, program);
    }
    if let Some(seen) = module(walk, state, words, program).or_else(|| cargo_alias(words, program)) {
        return seen;
    }
    if let Some(inner) = of_machine(words, program) {
        return Seen::Hidden(inner);
    }
    let runners = || RUNNERS.iter().filter(|runner| runner.programs.contains(&program));
    if runners().next().is_none() {
        return Seen::Nothing;
    }
    if hands_to_shell(program, words) {
        return Seen::Nothing;
    }
    // After an option that the profile does not know, the next word may or may not be its value, so both are tried.
    let readings = [None, Some(false), Some(true)];
    for reading in readings {
        let leading = match reading {
            None => Leading::none(),
            Some(takes_value) => leading(walk, words, program, takes_value),
        };
        for runner in runners() {
            for sub in runner.subs {
                let seen = behind(walk, state, words, program, runner, sub, &leading);
                if !matches!(seen, Seen::Nothing) {
                    return seen;
                }
            }
        }
        if reading.is_some() && !leading.is_guessed {
            break;
        }
    }
    Seen::Nothing
}

/// Whether pnpm passes the words after `exec` or `dlx` to a shell, because of an option before the command.
pub(super) fn hands_to_shell(program: &str, words: &[ShellWord]) -> bool {
    let texts = words.iter().skip(1).map(|word| word.text.as_str());
    let command = texts.clone().position(|text| ["exec", "dlx"].contains(&text));
    let Some(command) = command.filter(|_| program == "pnpm") else {
        return false;
    };
    texts.take(command).any(|text| match text.strip_prefix("--") {
        // Options may be abbreviated.
        Some(name) => name.len() > 4 && "shell-mode".starts_with(name.split('=').next().unwrap_or_default()),
        None => text.starts_with('-') && text.contains('c'),
    })
}

/// The words between a runner and its subcommand.
struct Leading {
    /// The index of the first word after them.
    end: usize,
    /// The indices of the words that a rule need not name.
    passed_over: Vec<usize>,
    /// The index of the first word that a rule for the started program does not cover: it chooses another directory,
    /// package or configuration, or its effect is unknown.
    unnamed: Option<usize>,
    /// Whether an option is unknown, so that the word after it may be its value.
    is_guessed: bool,
    /// Whether one of them must be spelled out in any rule, also in one that names only the runner.
    is_odd: bool,
}

impl Leading {
    /// No words.
    fn none() -> Self {
        Self {
            end: 1,
            passed_over: Vec::new(),
            unnamed: None,
            is_guessed: false,
            is_odd: false,
        }
    }
}

/// Reads the options of a runner before its subcommand, and the words with the trait `passed-over` in its profile
/// (`yarn workspace NAME`). `takes_value`: whether the word after an unknown option is its value.
fn leading(walk: &CommandWalk<'_>, words: &[ShellWord], program: &str, takes_value: bool) -> Leading {
    let mut found = Leading::none();
    let Some(profile) = profiles::of(walk.grants.profiles, program) else {
        return found;
    };
    while let Some(text) = words
        .get(found.end)
        .and_then(ShellWord::exact)
        .filter(|_| found.end < MAX_LEADING)
    {
        let start = found.end;
        if let Some(length) = profiles::passed_subcommand(profile, &exact_words(words, start)) {
            // The command runs in another directory, so the files here do not determine what is started.
            found.unnamed = found.unnamed.or(Some(start));
            found.end += length;
            found.passed_over.extend(start..found.end);
            continue;
        }
        if !text.starts_with('-') || text == "--" || text == "-" {
            break;
        }
        let name = option_name(text);
        let has_value = name.len() < text.len();
        let arity = profile.top.options.get(name);
        found.is_guessed |= arity.is_none() && !has_value;
        found.is_odd |= matches!(
            arity,
            None | Some(Arity::Value(
                ValueClass::Program | ValueClass::ShellText | ValueClass::Host
            ))
        );
        let takes_next = match arity {
            Some(Arity::Value(_)) => !has_value,
            Some(_) => false,
            None => takes_value && !has_value,
        };
        found.end += 1 + usize::from(takes_next);
        let value = match takes_next {
            true => words.get(start + 1).and_then(ShellWord::exact),
            false => text.split_once('=').map(|(_, value)| value),
        };
        let stays = value.is_none_or(|value| !value.starts_with(['-', '/', '~']) && !value.contains(".."));
        let is_passed = profile.top.passed.iter().any(|passed| passed == name) && stays;
        if is_passed {
            found.passed_over.extend(start..found.end);
        }
        if !is_passed || !QUIET.contains(&name) {
            found.unnamed = found.unnamed.or(Some(start));
        }
    }
    found
}

/// The texts of the words from `start` on, up to the first one that is not known.
fn exact_words(words: &[ShellWord], start: usize) -> Vec<&str> {
    let rest = words.get(start..).unwrap_or_default();
    rest.iter().map_while(ShellWord::exact).collect()
}

/// The name of an installed program, if a workspace path (`./` and the path from its root) is where package managers
/// put programs.
pub(crate) fn installed_name<'a>(own: Option<&profiles::OwnProfiles>, program: &'a str) -> Option<&'a str> {
    let ecosystem = ecosystem_of(program)?;
    let (_, name) = program.rsplit_once('/')?;
    is_of(own, name, ecosystem).then_some(name)
}

/// The ecosystem whose package managers put programs at a workspace path (`./` and the path from its root).
pub(crate) fn ecosystem_of(program: &str) -> Option<Ecosystem> {
    let (dir, _) = program.strip_prefix("./")?.rsplit_once('/')?;
    let at_end = |end: &str| dir == end || dir.strip_suffix(end).is_some_and(|rest| rest.ends_with('/'));
    let (_, ecosystem) = PROGRAM_DIRS.iter().find(|(end, _)| at_end(end))?;
    Some(*ecosystem)
}

/// Whether packages of this ecosystem provide a program of that name: according to its profile, or because it has none.
fn is_of(own: Option<&profiles::OwnProfiles>, name: &str, ecosystem: Ecosystem) -> bool {
    match profiles::of(own, name) {
        Some(profile) => profile.installed_by.contains(&ecosystem),
        None => !wrappers::is_wrapper(name),
    }
}

/// The target of a workspace path that is a link to another place in the workspace.
fn behind_links(walk: &CommandWalk<'_>, path: &str) -> Option<String> {
    let place = (walk.fs_view.locate)(path);
    (place.inside && place.path != path).then_some(place.path)
}

/// Build tools that a repository includes as a script.
fn wrapper_script(program: &str) -> Option<(&'static str, &'static [&'static str])> {
    match program.rsplit('/').next() {
        Some("gradlew") => Some((
            "gradle",
            &[
                "gradle/wrapper/gradle-wrapper.jar",
                "gradle/wrapper/gradle-wrapper.properties",
            ],
        )),
        Some("mvnw") => Some((
            "mvn",
            &[
                ".mvn/wrapper/maven-wrapper.jar",
                ".mvn/wrapper/maven-wrapper.properties",
            ],
        )),
        _ => None,
    }
}

/// `.venv/bin/NAME`, `node_modules/.bin/NAME`, `./gradlew`: the words of `NAME`.
fn installed(walk: &CommandWalk<'_>, words: &[ShellWord], program: &str) -> Seen {
    let path = program.trim_start_matches("./");
    let mut relies_on = vec![path.to_owned()];
    let name = match (installed_name(walk.grants.profiles, program), wrapper_script(program)) {
        (Some(name), _) => name,
        (None, Some((name, files))) => {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            relies_on.extend(files.iter().map(|file| place::join(dir, file)));
            name
        }
        (None, None) => return Seen::Nothing,
    };
    relies_on.extend(behind_links(walk, path));
    let inner = std::iter::once(ShellWord::known(name)).chain(words.iter().skip(1).cloned());
    Seen::Starts(
        inner.collect(),
        Launch {
            program: program.to_owned(),
            words: words.to_vec(),
            relies_on,
            ..Launch::default()
        },
    )
}

/// `python -m MODULE`.
fn module(walk: &CommandWalk<'_>, state: &ShellState, words: &[ShellWord], program: &str) -> Option<Seen> {
    const FLAGS: [&str; 10] = ["-B", "-u", "-s", "-S", "-E", "-I", "-O", "-OO", "-P", "-q"];
    if !is_python(program) {
        return None;
    }
    let mut at = 1;
    while words
        .get(at)
        .and_then(ShellWord::exact)
        .is_some_and(|text| FLAGS.contains(&text))
    {
        at += 1;
    }
    let (name, name_at) = match words.get(at).and_then(ShellWord::exact)? {
        "-m" => (words.get(at + 1).and_then(ShellWord::exact)?, at + 1),
        text if !text.starts_with("--") => (text.strip_prefix("-m").filter(|name| !name.is_empty())?, at),
        _ => return None,
    };
    let profile = profiles::of(walk.grants.profiles, name)?;
    if !profile.installed_by.contains(&Ecosystem::Python) || is_python(name) {
        return None;
    }
    // With `-I` and `-P` Python does not search the working directory.
    let isolated = words
        .iter()
        .take(at)
        .any(|word| matches!(word.exact(), Some("-I" | "-P")));
    let searched: &[String] = match isolated {
        true => &[],
        false => state.dirs.known().unwrap_or_default(),
    };
    let mut shadow = searched.iter().find_map(|dir| shadowing(walk, dir, name));
    let mut relies_on = Vec::new();
    if profile.only_itself {
        // Any module that it imports may be loaded from there.
        shadow = shadow.or_else(|| searched.iter().find_map(|dir| module_in(walk, dir)));
        relies_on.extend(searched.iter().map(|dir| place::join(dir, &format!("{name}.py"))));
    }
    let unvouched = shadow.map(|path| {
        CommandRefusal::new(
            "program_argument",
            format!("`{path}` is in the working directory, where Python looks for the modules of `{name}` first"),
            format!("run `{name}` itself, or `{program} -P -m {name}`"),
        )
    });
    let inner = std::iter::once(ShellWord::known(name)).chain(words.iter().skip(name_at + 1).cloned());
    Some(Seen::Starts(
        inner.collect(),
        Launch {
            program: program.to_owned(),
            words: words.to_vec(),
            name_at,
            skipped: name_at,
            runner: true,
            covered: covers(walk, program, name),
            is_odd: false,
            unvouched,
            relies_on,
            passed_over: Vec::new(),
        },
    ))
}

/// `cargo t`: cargo's built-in aliases. They could be redefined only in `.cargo/config.toml`, which is protected.
fn cargo_alias(words: &[ShellWord], program: &str) -> Option<Seen> {
    let full = match (program, words.get(1).and_then(ShellWord::exact)?) {
        ("cargo", "b") => "build",
        ("cargo", "c") => "check",
        ("cargo", "d") => "doc",
        ("cargo", "r") => "run",
        ("cargo", "t") => "test",
        ("cargo", "rm") => "remove",
        _ => return None,
    };
    let inner = [ShellWord::known("cargo"), ShellWord::known(full)]
        .into_iter()
        .chain(words.iter().skip(2).cloned());
    Some(Seen::Starts(
        inner.collect(),
        Launch {
            program: program.to_owned(),
            words: words.to_vec(),
            name_at: 1,
            ..Launch::default()
        },
    ))
}

/// What a program starts, or does itself, under the name of a program of the machine: a rule must spell it out behind the first
/// one, and deny rules for it hold.
fn of_machine(words: &[ShellWord], program: &str) -> Option<Vec<ShellWord>> {
    let text = |at: usize| words.get(at).and_then(ShellWord::exact).unwrap_or_default();
    let from = |start: usize| {
        words
            .get(start..)
            .filter(|inner| !inner.is_empty())
            .map(<[ShellWord]>::to_vec)
    };
    match program {
        "rustup" if text(1) == "run" => from(if text(2) == "--install" { 4 } else { 3 }),
        "busybox" | "toybox" if !text(1).starts_with('-') => from(1),
        "coreutils" => {
            let name = text(1).strip_prefix("--coreutils-prog=")?;
            let rest = words.iter().skip(2).cloned();
            Some(std::iter::once(ShellWord::known(name)).chain(rest).collect())
        }
        _ => None,
    }
}

fn is_python(program: &str) -> bool {
    let version = program.strip_prefix("python");
    version.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// A file of the working directory that Python would load as the module, since it searches that directory first.
fn shadowing(walk: &CommandWalk<'_>, dir: &str, name: &str) -> Option<String> {
    let path = place::join(dir, name);
    let package = (walk.fs_view.locate)(&path);
    match package.found {
        PathStatus::Nothing => (walk.fs_view.expand)(&format!("{path}.*")).into_iter().next(),
        _ => Some(path),
    }
}

/// A module of the working directory other than the usual scripts of a project.
fn module_in(walk: &CommandWalk<'_>, dir: &str) -> Option<String> {
    const USUAL: [&str; 6] = [
        "setup.py",
        "conftest.py",
        "manage.py",
        "noxfile.py",
        "tasks.py",
        "__init__.py",
    ];
    let modules = (walk.fs_view.expand)(&place::join(dir, "*.py"));
    modules
        .into_iter()
        .find(|path| !USUAL.contains(&path.rsplit('/').next().unwrap_or_default()))
}

/// Whether the runner's own profile says that a rule naming only the runner covers this program.
pub(super) fn covers(walk: &CommandWalk<'_>, runner: &str, name: &str) -> bool {
    profiles::of(walk.grants.profiles, runner).is_some_and(|profile| profile.covers.iter().any(|known| known == name))
}

/// Whether the runner runs scripts of `package.json` by this name (`yarn run lint`).
pub(super) fn is_script(launch: &Launch) -> bool {
    let is = |at: usize, text: &str| launch.words.get(at).and_then(ShellWord::exact) == Some(text);
    let first = (1..launch.words.len()).find(|at| !launch.passed_over.contains(at));
    matches!(launch.program.as_str(), "yarn" | "pnpm" | "bun") && first.is_some_and(|at| is(at, "run"))
}

fn behind(
    walk: &CommandWalk<'_>,
    state: &ShellState,
    words: &[ShellWord],
    program: &str,
    runner: &Runner,
    sub: &'static str,
    leading: &Leading,
) -> Seen {
    let mut at = leading.end;
    let mut passed_over = leading.passed_over.clone();
    for wanted in sub.split_whitespace() {
        if words.get(at).and_then(ShellWord::exact) != Some(wanted) {
            return Seen::Nothing;
        }
        at += 1;
    }
    while let Some(text) = words.get(at).and_then(ShellWord::exact) {
        if text == "--" {
            at += 1;
            break;
        }
        if runner.flags.contains(&text) {
            if QUIET.contains(&text) {
                passed_over.push(at);
            }
            at += 1;
        } else if runner.valued.contains(&text) && words.get(at + 1).is_some_and(|value| value.exact().is_some()) {
            at += 2;
        } else {
            break;
        }
    }
    let Some(name) = words.get(at).and_then(ShellWord::exact) else {
        return Seen::Nothing;
    };
    let found = |name, skipped| Found {
        walk,
        state,
        words,
        program,
        runner,
        name_at: at,
        skipped,
        name,
        sub,
        unnamed: leading.unnamed,
        is_odd: leading.is_odd,
        passed_over: passed_over.clone(),
    };
    // The words from here on, as `python` gets them.
    let as_python = || {
        let inner = std::iter::once(ShellWord::known("python")).chain(words[at..].iter().cloned());
        found("python", at.saturating_sub(1)).launch(inner.collect())
    };
    if name.starts_with('-') {
        // `uv run -m MODULE` is `python -m MODULE`.
        return match (name, program) {
            ("-m", "uv") if words.len() > at + 1 => as_python(),
            _ => Seen::Nothing,
        };
    }
    let scripted = runner.lookup == Lookup::NodeScript;
    let own_command = |name: &str| {
        let profile = profiles::of(None, program);
        profile.is_some_and(|profile| {
            profile
                .subs
                .iter()
                .any(|(words, _)| words.first().is_some_and(|word| word == name))
        })
    };
    let known = profiles::of(walk.grants.profiles, name).is_some();
    if (scripted || runner.ecosystem == Ecosystem::Go) && !known || scripted && sub.is_empty() && own_command(name) {
        return Seen::Nothing;
    }
    if program == "uv" && name.ends_with(".py") {
        return as_python();
    }
    // `eslint@9` is eslint in a version that is fetched; a scope (`@scope/name`) is part of the name.
    let bare = match name.rfind('@') {
        Some(at) if at > 0 => name.get(..at).unwrap_or(name),
        _ => name,
    };
    let inner: Vec<ShellWord> = std::iter::once(ShellWord::known(bare))
        .chain(words[at + 1..].iter().cloned())
        .collect();
    if !is_of(walk.grants.profiles, bare, runner.ecosystem) {
        return Seen::Hidden(inner);
    }
    // A path or a URL instead of a name.
    if bare.contains(':') || bare.contains('/') && !bare.starts_with('@') {
        return Seen::Nothing;
    }
    found(name, at).launch(inner)
}

/// A runner's command in which the name of an installed program was found.
struct Found<'a, 'w> {
    walk: &'a CommandWalk<'w>,
    state: &'a ShellState,
    words: &'a [ShellWord],
    program: &'a str,
    runner: &'a Runner,
    /// The index of the name in `words`.
    name_at: usize,
    /// See [`Launch::skipped`].
    skipped: usize,
    name: &'a str,
    /// The runner's subcommand.
    sub: &'a str,
    /// See [`Leading::unnamed`].
    unnamed: Option<usize>,
    /// See [`Leading::is_odd`].
    is_odd: bool,
    passed_over: Vec<usize>,
}

impl Found<'_, '_> {
    /// What starts the installed program, whose own words are `inner`.
    fn launch(mut self, mut inner: Vec<ShellWord>) -> Seen {
        let (relies_on, unvouched) = self.relies_on();
        let by_dashes = self.dashes(&mut inner);
        let spelled_script = self.runner.lookup == Lookup::NodeScript && self.sub == "run";
        let by_option = self.unnamed.and_then(|at| self.words.get(at)).map(|word| {
            CommandRefusal::new(
                "program_argument",
                format!(
                    "`{}` before the name of a program may choose another directory, package or configuration",
                    word.text
                ),
                format!("leave `{}` out, or name `{}` in the rule", word.text, self.written()),
            )
        });
        Seen::Starts(
            inner,
            Launch {
                program: self.program.to_owned(),
                words: self.words.to_vec(),
                name_at: self.name_at,
                skipped: self.skipped,
                runner: true,
                covered: !self.is_odd && (spelled_script || covers(self.walk, self.program, self.name)),
                is_odd: self.is_odd,
                unvouched: unvouched.or(by_dashes).or(by_option),
                relies_on,
                passed_over: self.passed_over,
            },
        )
    }

    /// The words of the runner before the name.
    fn start(&self) -> &[ShellWord] {
        self.words.get(..self.name_at).unwrap_or_default()
    }

    /// The runner's words up to the name, as written.
    fn written(&self) -> String {
        let start = self.start().iter().map(|word| word.text.as_str());
        start.chain([self.name]).collect::<Vec<_>>().join(" ")
    }

    /// The files that decide what is started, and why a rule for the program does not cover it.
    fn relies_on(&self) -> (Vec<String>, Option<CommandRefusal>) {
        let dirs = self.state.dirs.known().unwrap_or_default();
        let in_dirs = |file: &str| -> Vec<String> { dirs.iter().map(|dir| place::join(dir, file)).collect() };
        match self.runner.lookup {
            Lookup::Fetched => {
                let why = format!("`{}` fetches a package by its name and runs it", self.written());
                (Vec::new(), Some(self.fetched(why)))
            }
            Lookup::NodeBin => self.in_node_bin(dirs),
            Lookup::NodeScript => (in_dirs("package.json"), None),
            Lookup::Listed(file) => (in_dirs(file), None),
            Lookup::Environment(file) => {
                let program = format!(".venv/bin/{}", self.name);
                let of = |dir: &String| [place::join(dir, file), place::join(dir, &program)];
                (dirs.iter().flat_map(of).collect(), None)
            }
        }
    }

    /// As [`Found::relies_on`], for a runner that fetches a package that is not installed.
    fn in_node_bin(&self, dirs: &[String]) -> (Vec<String>, Option<CommandRefusal>) {
        let (name, program) = (self.name, self.program);
        let mut relies_on = Vec::new();
        let mut is_missing = false;
        for dir in dirs {
            match node_bin(self.walk, dir, name) {
                Some(path) => {
                    relies_on.extend(behind_links(self.walk, &path));
                    relies_on.push(path);
                }
                None => is_missing = true,
            }
        }
        let refusal = is_missing.then(|| {
            self.fetched(format!(
                "`{name}` is not in node_modules/.bin, so `{program}` would fetch a package of that name"
            ))
        });
        (relies_on, refusal)
    }

    fn fetched(&self, why: String) -> CommandRefusal {
        let fix = format!(
            "run `{}` where it is installed, or name `{}` in the rule",
            self.name,
            self.written()
        );
        CommandRefusal::new("program_argument", why, fix)
    }

    /// Removes the `--` that npm does not pass on. Returns why the words after the name may not arrive as they are.
    fn dashes(&mut self, inner: &mut Vec<ShellWord>) -> Option<CommandRefusal> {
        let program = self.program;
        let is_dashes = |word: &ShellWord| word.exact() == Some("--");
        let arguments = inner.get(1..).unwrap_or_default();
        if !self.runner.verbatim && arguments.iter().any(|word| is_dashes(word) || word.exact().is_none()) {
            if program == "npm" && arguments.first().is_some_and(is_dashes) {
                inner.remove(1);
                self.skipped += 1;
            } else if arguments.iter().any(is_dashes) {
                return Some(CommandRefusal::new(
                    "program_argument",
                    format!("`{program}` may remove the `--`, and the words after it become options"),
                    "leave the `--` out",
                ));
            }
            return None;
        }
        let is_npm = program == "npm" && !self.start().last().is_some_and(is_dashes);
        (is_npm && arguments.iter().any(ShellWord::may_be_option)).then(|| {
            CommandRefusal::new(
                "program_argument",
                "npm treats options before a `--` as its own",
                format!("write `npm exec -- {name} …`, or `npx {name} …`", name = self.name),
            )
        })
    }
}

/// `node_modules/.bin/NAME` in a directory or one above it.
fn node_bin(walk: &CommandWalk<'_>, dir: &str, name: &str) -> Option<String> {
    let mut dir = Some(dir);
    while let Some(here) = dir {
        let path = place::join(here, &format!("node_modules/.bin/{name}"));
        if (walk.fs_view.locate)(&path).found != PathStatus::Nothing {
            return Some(path);
        }
        dir = match here.rsplit_once('/') {
            Some((above, _)) => Some(above),
            None if here.is_empty() => None,
            None => Some(""),
        };
    }
    None
}

/// The effects of an installed program without a profile, if a rule spells out the runner or the path.
pub(crate) fn unprofiled() -> SideEffects {
    SideEffects {
        writes: WriteExtent::Tree,
        starts: Starts::Anything,
    }
}
