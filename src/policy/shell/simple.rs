//! Reads one simple command: its words, wrappers and redirections, and the directory in which it leaves the shell.

use super::operands;
use super::redirect::{self, Redirects};
use super::runners::{self, Launch, Seen};
use super::scope::{CommandWalk, Dirs, ExitDirectories, MAX_NESTED, MAX_TEXTS, ShellState};
use super::values::{NEVER_SPELLED, WordUse};
use super::wrappers::{self, WrapperStep};
use super::{
    CommandReach, CommandReading, CommandRefusal, FileUse, ShellWord, Simple, WordKind, assign, builtins, chdir,
    extended, place, words,
};
use crate::base::access::PathStatus;
use crate::base::grant::Starts;
use crate::policy::name_folding::tidy;
use crate::policy::profiles::{self, SideEffects, WriteExtent};
use brush_parser::ast::{Assignment, CommandPrefixOrSuffixItem as Item, IoRedirect, SimpleCommand};

/// A command while its wrappers are being removed.
struct Job {
    words: Vec<ShellWord>,
    via: Vec<String>,
    wrapped: Vec<Vec<ShellWord>>,
    launches: Vec<Launch>,
    /// The words of programs of the machine that runners start, which rules must spell out with the runner.
    hidden: Vec<Vec<ShellWord>>,
    /// Whether a variable makes its program load code of the tree.
    leads_code: bool,
    depth: usize,
}

/// Reads a simple command of the syntax tree.
///
/// # Errors
/// A [`CommandRefusal`].
pub fn command(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    command: &SimpleCommand,
) -> Result<ExitDirectories, CommandRefusal> {
    let mut redirects: Vec<&IoRedirect> = Vec::new();
    let mut assignments: Vec<&Assignment> = Vec::new();
    let mut sources: Vec<&str> = Vec::new();
    for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
        match item {
            Item::IoRedirect(redirect) => redirects.push(redirect),
            Item::AssignmentWord(assignment, _) => assignments.push(assignment),
            Item::Word(word) => sources.push(&word.value),
            Item::ProcessSubstitution(..) => return Err(redirect::process_substitution()),
        }
    }
    if let Some(name) = &command.word_or_name {
        walk.names.push(name.value.clone());
        sources.push(&name.value);
    }
    for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
        match item {
            Item::IoRedirect(redirect) => redirects.push(redirect),
            Item::AssignmentWord(_, word) | Item::Word(word) => sources.push(&word.value),
            Item::ProcessSubstitution(..) => return Err(redirect::process_substitution()),
        }
    }
    let mut found = Vec::new();
    for source in sources {
        found.extend(words::evaluate(walk, state, source)?);
    }
    let redirects = redirect::all(walk, state, &redirects)?;
    if found.is_empty() {
        return without_program(walk, state, &assignments, redirects);
    }
    let leads_code = before(walk, state, &assignments, &found)?;
    let job = Job {
        leads_code: state.leads_code || leads_code,
        ..Job::new(found, walk.via.clone())
    };
    judge(walk, state, job, redirects)
}

/// Reads a command that is given by its words.
///
/// # Errors
/// A [`CommandRefusal`].
pub fn of_words(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    words: Vec<ShellWord>,
) -> Result<ExitDirectories, CommandRefusal> {
    judge(walk, state, Job::new(words, Vec::new()), Redirects::default())
}

impl Job {
    /// Continues with the words of the installed program that `launch` starts.
    fn launch(&mut self, words: Vec<ShellWord>, launch: Launch) {
        for outer in &mut self.launches {
            outer.name_at = launch.name_at + outer.skipped;
            outer.skipped += launch.skipped;
        }
        self.via.push(launch.program.clone());
        self.launches.push(launch);
        self.words = words;
        self.depth += 1;
    }

    fn new(words: Vec<ShellWord>, via: Vec<String>) -> Self {
        Self {
            words,
            via,
            wrapped: Vec::new(),
            launches: Vec::new(),
            hidden: Vec::new(),
            leads_code: false,
            depth: 0,
        }
    }
}

fn without_program(
    walk: &mut CommandWalk<'_>,
    state: &ShellState,
    assignments: &[&Assignment],
    redirects: Redirects,
) -> Result<ExitDirectories, CommandRefusal> {
    for assignment in assignments {
        assign::alone(walk, state, assignment)?;
    }
    if redirects.reads.is_empty() && redirects.writes.is_empty() {
        note(walk, vec![ShellWord::known(":")]);
    }
    walk.reading.reads.extend(redirects.reads);
    walk.reading.writes.extend(redirects.writes);
    Ok(ExitDirectories::stay(state))
}

/// Checks the assignments before a command. Returns whether one of them makes the program load code of the tree.
fn before(
    walk: &mut CommandWalk<'_>,
    state: &ShellState,
    assignments: &[&Assignment],
    found: &[ShellWord],
) -> Result<bool, CommandRefusal> {
    let mut leads_code = false;
    let reads = found.first().and_then(ShellWord::exact) == Some("read");
    for assignment in assignments {
        let (name, value) = assign::parts(walk, state, assignment)?;
        if !(reads && name == "IFS" && value.kind == WordKind::Known) {
            leads_code |= assign::before(walk, &name, &value)?;
        }
    }
    Ok(leads_code)
}

/// Adds a command that needs no rule.
pub fn note(walk: &mut CommandWalk<'_>, words: Vec<ShellWord>) {
    let program = words.first().map(|word| word.text.clone()).unwrap_or_default();
    walk.reading.commands.push(Simple {
        words,
        via: walk.via.clone(),
        program,
        state_only: true,
        judged_at_exec: walk.grants.witness,
        profiled: true,
        ..Simple::default()
    });
}

fn judge(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    mut job: Job,
    mut redirects: Redirects,
) -> Result<ExitDirectories, CommandRefusal> {
    let mut concerns: Vec<(usize, CommandRefusal)> = Vec::new();
    let program = loop {
        let program = match walk.executed.take() {
            // An external program of that name, not the shell builtin.
            Some(program) => program,
            None => {
                builtins::check(&job.words, state.reads_lines)?;
                if builtins::activates(&job.words) {
                    activated(walk, state, &job.words)?;
                }
                identity(state, job.words.first())?
            }
        };
        if job.depth > MAX_NESTED {
            return Err(CommandRefusal::new(
                "limit:nesting",
                "wrappers are nested more than 8 deep",
                "run the command directly",
            ));
        }
        match runners::look(walk, state, &job.words, &program) {
            Seen::Starts(words, launch) => {
                job.launch(words, launch);
                let name = job.words.first().map_or("", |word| word.text.as_str());
                for outer in job.launches.iter_mut().filter(|launch| launch.runner) {
                    outer.covered = !outer.is_odd
                        && (outer.covered && runners::is_script(outer) || runners::covers(walk, &outer.program, name));
                }
                // A wrapper starts an external program of that name, never the shell builtin.
                walk.executed = job.words.first().map(|word| word.text.clone());
                continue;
            }
            Seen::Hidden(words) => {
                job.hidden.push(words.clone());
                job.wrapped.push(words);
            }
            Seen::Nothing => {}
        }
        match wrappers::step(walk, &job.words, &program, &mut job.leads_code)? {
            WrapperStep::Plain => break program,
            WrapperStep::Odd(at, refusal) => {
                concerns.push((at, refusal));
                break program;
            }
            WrapperStep::Text(text) => return inner_text(walk, state, job, redirects, &program, &text),
            WrapperStep::Inner(words) => {
                if program == "nohup" && !redirects.output {
                    redirects
                        .writes
                        .extend(place::of_text(walk, state, "nohup.out").unwrap_or_default());
                }
                job.wrapped.push(std::mem::replace(&mut job.words, words));
                job.via.push(program);
                job.depth += 1;
            }
        }
    };
    finish(walk, state, job, redirects, program, concerns)
}

fn finish(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    job: Job,
    redirects: Redirects,
    program: String,
    concerns: Vec<(usize, CommandRefusal)>,
) -> Result<ExitDirectories, CommandRefusal> {
    let mut used = word_use(walk, state, &job.words, &program, redirects.input, concerns);
    for hidden in &job.hidden {
        add_hidden(walk, state, &job.words, hidden.clone(), &mut used);
    }
    let new_dirs = used.writes.iter().filter_map(|used| used.place.as_ref());
    let new_dirs = new_dirs.filter(|place| place.inside && place.found == PathStatus::NewDir);
    walk.made.extend(new_dirs.map(|place| place.path.clone()));
    let look_up = program == "command"
        && job
            .words
            .get(1)
            .is_some_and(|word| matches!(word.exact(), Some("-v" | "-V")));
    let activates = builtins::activates(&job.words);
    let is_cd = program == "cd";
    let state_only = is_cd || look_up || activates || builtins::is_state_only(&job.words) && job.launches.is_empty();
    let profile = profiles::of(walk.grants.profiles, &program);
    // What a script of the tree does on `--version` is unknown.
    let runs_tree_code = profile.is_none_or(|profile| !profile.only_itself);
    let led = job.leads_code && !(runs_tree_code && used.effect.starts == Starts::Anything);
    let asks_version = !led && !program.contains('/') && asks_version(profile, &job.words);
    if asks_version {
        used.effect.writes = WriteExtent::NamedPaths;
    }
    if state_only || asks_version {
        used.concerns.clear();
        used.deferred = None;
    } else if led {
        used.concerns.push((NEVER_SPELLED, assign::leads_code(&program)));
    }
    if is_cd && state.dirs.known().is_some() {
        // `chdir` refuses an operand that leaves the workspace, unless it does so only after an earlier `cd` failed.
        used.reads
            .retain(|read| read.place.as_ref().is_none_or(|place| place.inside));
    }
    let started_by = program.clone();
    // `xargs` gives its command no input, and neither does `< /dev/null`, which is no read of a file.
    let piped = redirects.given.unwrap_or(state.piped) && !job.via.iter().any(|name| name == "xargs");
    walk.reading.commands.push(Simple {
        state_only,
        via: job.via.clone(),
        judged_at_exec: walk.grants.witness,
        profiled: profile.is_some(),
        asks_version,
        targets: used.targets,
        opens_more: used.opens_more,
        names_place: used.names_place,
        piped,
        runs_tree_code,
        launches: job.launches,
        effect: effect(&program, used.effect),
        program,
        reads: [used.reads, redirects.reads].concat(),
        writes: [used.writes, redirects.writes].concat(),
        hosts: used.hosts,
        wrapped: job.wrapped,
        within: Vec::new(),
        passed_over: used.passed_over,
        reach: match (walk.grants.witness || state_only, used.reach) {
            (true, _) => CommandReach::Nothing,
            (false, CommandReach::Nothing) if !used.concerns.is_empty() => CommandReach::Operands,
            (false, reach) => reach,
        },
        concerns: used.concerns,
        dirs: state.dirs.known().map(<[String]>::to_vec),
        entered: used.entered,
        revisions: used.revisions,
        shown: used.shown,
        deferred: used.deferred,
        options: used.options,
        below: Vec::new(),
        words: job.words.clone(),
    });
    for words in used.inner {
        let mut inner = state.clone();
        let next = Job {
            depth: job.depth + 1,
            leads_code: job.leads_code,
            ..Job::new(words, [job.via.clone(), vec![started_by.clone()]].concat())
        };
        judge(walk, &mut inner, next, Redirects::default())?;
    }
    exit_directories(walk, state, &job.words)
}

/// What the words of a program mean; nothing, if there are concerns about its wrapper.
fn word_use(
    walk: &CommandWalk<'_>,
    state: &ShellState,
    words: &[ShellWord],
    program: &str,
    input: bool,
    concerns: Vec<(usize, CommandRefusal)>,
) -> WordUse {
    let mut used = match concerns.is_empty() {
        true => operands::apply(walk, state, words, program, input),
        false => WordUse::default(),
    };
    used.concerns.extend(concerns);
    if matches!(program, "test" | "[") {
        place::add(&mut used.reads, extended::asked_by(walk, state, words));
    }
    used
}

/// Adds what the words mean to the program of the machine that a runner starts with them (`uv run git log --output=x`). A rule
/// spells that program out with the runner; its further words are judged like those of the program itself.
fn add_hidden(
    walk: &CommandWalk<'_>,
    state: &ShellState,
    outer: &[ShellWord],
    mut words: Vec<ShellWord>,
    used: &mut WordUse,
) {
    let mut leads_code = false;
    for _ in 0..=MAX_NESTED {
        // The words are the last ones of the runner's.
        let skipped = outer.len().saturating_sub(words.len());
        let program = match identity(state, words.first()) {
            Ok(program) => program,
            Err(refusal) => return used.concerns.push((skipped, refusal)),
        };
        match runners::look(walk, state, &words, &program) {
            Seen::Starts(inner, _) | Seen::Hidden(inner) => {
                words = inner;
                continue;
            }
            Seen::Nothing => {}
        }
        match wrappers::step(walk, &words, &program, &mut leads_code) {
            Ok(WrapperStep::Inner(inner)) => words = inner,
            Ok(WrapperStep::Plain) => {
                let inner = word_use(walk, state, &words, &program, false, Vec::new());
                let profile = profiles::of(walk.grants.profiles, &program);
                let runs_tree_code = profile.is_none_or(|profile| !profile.only_itself);
                if leads_code && !(runs_tree_code && inner.effect.starts == Starts::Anything) {
                    used.concerns.push((NEVER_SPELLED, assign::leads_code(&program)));
                }
                let in_outer = |(at, refusal): (usize, CommandRefusal)| match at {
                    NEVER_SPELLED => (at, refusal),
                    at => (at + skipped, refusal),
                };
                used.concerns.extend(inner.concerns.into_iter().map(in_outer));
                place::add(&mut used.reads, inner.reads);
                place::add(&mut used.writes, inner.writes);
                used.hosts.extend(inner.hosts);
                used.inner.extend(inner.inner);
                used.revisions.extend(inner.revisions);
                used.shown = inner.shown;
                used.deferred = used.deferred.take().or(inner.deferred);
                used.opens_more = used.opens_more.take().or(inner.opens_more);
                return;
            }
            Ok(WrapperStep::Odd(at, refusal)) => return used.concerns.push((at + skipped, refusal)),
            // A text for a shell is judged on its own.
            Ok(WrapperStep::Text(_)) => return used.inner.push(words),
            Err(refusal) => return used.concerns.push((NEVER_SPELLED, refusal)),
        }
    }
    let refusal = CommandRefusal::new(
        "limit:nesting",
        "wrappers are nested more than 8 deep",
        "run the command directly",
    );
    used.concerns.push((NEVER_SPELLED, refusal));
}

/// Where the shell is after the command; the variables that `read` sets are noted.
fn exit_directories(
    walk: &mut CommandWalk<'_>,
    state: &ShellState,
    words: &[ShellWord],
) -> Result<ExitDirectories, CommandRefusal> {
    match words.first().and_then(ShellWord::exact) {
        Some("cd") => chdir::change(walk, state, words),
        Some("read") => {
            let names = words
                .iter()
                .skip(1)
                .filter_map(ShellWord::exact)
                .filter(|name| *name != "-r");
            walk.variables.extend(names.map(str::to_owned));
            Ok(ExitDirectories::stay(state))
        }
        // Nothing after it runs in this shell. With two operands bash reports an error and continues.
        Some("exit") if words.len() < 3 && words.iter().skip(1).all(ShellWord::is_number) => Ok(ExitDirectories {
            ok: Dirs::Of(Vec::new()),
            failed: Dirs::Of(Vec::new()),
        }),
        _ => Ok(ExitDirectories::stay(state)),
    }
}

/// The program's effects besides its operands: according to its profile; the command of a wrapper is judged; a program
/// in the workspace may do anything.
fn effect(program: &str, by_profile: SideEffects) -> SideEffects {
    if wrappers::is_wrapper(program) {
        return SideEffects {
            writes: WriteExtent::NamedPaths,
            starts: Starts::Judged,
        };
    }
    match program.starts_with("./") {
        true => SideEffects {
            writes: WriteExtent::Tree,
            starts: Starts::Anything,
        },
        false => by_profile,
    }
}

/// `source .venv/bin/activate` must refer to a file that only package managers write: no link may lead elsewhere in the
/// workspace.
fn activated(walk: &CommandWalk<'_>, state: &ShellState, words: &[ShellWord]) -> Result<(), CommandRefusal> {
    let script = words.get(1).map_or("", |word| word.text.as_str());
    let uses = place::of_text(walk, state, script).unwrap_or_default();
    let own = |used: &FileUse| {
        let place = used.place.as_ref();
        place.is_some_and(|place| place.inside && builtins::is_activate(&place.path))
    };
    match !uses.is_empty() && uses.iter().all(own) {
        true => Ok(()),
        false => Err(CommandRefusal::construct(
            "source",
            "name the environment's script by its path in the workspace: `source .venv/bin/activate`",
        )),
    }
}

/// Whether the words are only the program and an option that asks for its version.
fn asks_version(profile: Option<&profiles::Profile>, words: &[ShellWord]) -> bool {
    match words {
        [_, asked] => asked.exact().is_some_and(|text| {
            text == "--version" || profile.is_some_and(|profile| profile.version.iter().any(|form| form == text))
        }),
        _ => false,
    }
}

/// Reads a text for a shell like any other, in a separate shell state.
fn inner_text(
    walk: &mut CommandWalk<'_>,
    state: &ShellState,
    job: Job,
    redirects: Redirects,
    program: &str,
    text: &str,
) -> Result<ExitDirectories, CommandRefusal> {
    if walk.texts >= MAX_TEXTS {
        return Err(CommandRefusal::new(
            "limit:nesting",
            "shells are nested more than 2 deep",
            "run the commands directly",
        ));
    }
    let mut via = job.via;
    let is_without_input = via.iter().any(|name| name == "xargs");
    via.push(program.to_owned());
    let mut inner = CommandWalk {
        texts: walk.texts + 1,
        via,
        reading: std::mem::take(&mut walk.reading),
        made: std::mem::take(&mut walk.made),
        ..CommandWalk::new(text, walk.fs_view, walk.grants, walk.inner)
    };
    let start = ShellState {
        nested: state.nested,
        fed: state.fed || redirects.input,
        piped: state.piped && redirects.given.is_none() && !is_without_input,
        leads_code: job.leads_code,
        ..ShellState::new(state.dirs.clone())
    };
    let read = walk.inner.whole;
    let redirected = |reading: &CommandReading| reading.reads.len() + reading.writes.len();
    let (before, redirects_before) = (inner.reading.commands.len(), redirected(&inner.reading));
    let done = read(&mut inner, &start);
    if inner.reading.commands.len() == before && redirected(&inner.reading) > redirects_before {
        // Only redirects: add a command that does nothing, so that rules that name the shell are matched.
        note(&mut inner, vec![ShellWord::known(":")]);
    }
    walk.reading = inner.reading;
    walk.made = inner.made;
    let dirs = state.dirs.known().map(<[String]>::to_vec);
    let shells: Vec<Vec<ShellWord>> = job.wrapped.into_iter().chain([job.words]).collect();
    for simple in walk.reading.commands.iter_mut().skip(before) {
        simple.within.extend(shells.iter().cloned());
    }
    let started = shells.into_iter().map(|words| (words, dirs.clone()));
    walk.reading.shells.extend(started);
    walk.reading.reads.extend(redirects.reads);
    walk.reading.writes.extend(redirects.writes);
    done?;
    Ok(ExitDirectories::stay(state))
}

/// The name by which rules refer to the program: bare, or `./` and the path from the workspace's root.
fn identity(state: &ShellState, word: Option<&ShellWord>) -> Result<String, CommandRefusal> {
    let Some(text) = word.and_then(ShellWord::exact).filter(|text| !text.is_empty()) else {
        return Err(CommandRefusal::construct(
            "opaque_program",
            "write the program's name itself, without expansions",
        ));
    };
    if let Some(name) = place::system_name(text) {
        return Ok(name.to_owned());
    }
    if !text.contains('/') || text.starts_with('/') {
        return Ok(text.to_owned());
    }
    match state.dirs.known() {
        Some([dir]) => Ok(format!("./{}", tidy(&place::join(dir, text)))),
        _ => Err(CommandRefusal::construct(
            "opaque_program",
            "join `cd` to the command with `&&`",
        )),
    }
}
