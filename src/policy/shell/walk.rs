//! Walks a syntax tree (lists, pipelines, groups, loops, branches, substitutions) and tracks the directory; `simple`
//! reads the simple commands.

use super::redirect::{self, Redirects};
use super::scope::{CommandWalk, Dirs, ExitDirectories, InnerReaders, MAX_NESTED, ShellState};
use super::variables::may_be_set;
use super::{CommandReading, CommandRefusal, Grants, ShellWord, agree, extended, parse, scan, simple, words};
use crate::base::access::{FsView, ResolvedPath};
use brush_parser::ast::{
    AndOr, CaseClauseCommand, Command, CompoundCommand, CompoundList, ForClauseCommand, IfClauseCommand, IoRedirect,
    Pipeline, RedirectList, SeparatorOperator, WhileOrUntilClauseCommand,
};

/// The most simple commands in one text, including those of its substitutions.
const MAX_COMMANDS: usize = 200;

/// The functions that read the texts inside words and commands.
const INNER: InnerReaders = InnerReaders { substitution, whole };

/// Reads `text`, which bash would run in `dir` (relative to the workspace's root, `""` for the root).
///
/// Total and bounded: returns an answer for any text.
///
/// # Errors
/// A [`CommandRefusal`] for what is denied whatever the rules say: limits, what cannot be parsed, refused constructs, a
/// directory outside the workspace.
pub fn read(
    text: &str,
    dir: &str,
    fs_view: &FsView<'_>,
    grants: &Grants<'_>,
) -> Result<CommandReading, CommandRefusal> {
    let mut walk = CommandWalk::new(text, *fs_view, *grants, INNER);
    whole(&mut walk, &start(dir, fs_view)?)?;
    if walk.reading == CommandReading::default() {
        return Err(CommandRefusal::new(
            "parse_error",
            "there is no command in the text",
            "write a command",
        ));
    }
    super::searched::forget_pipes(&mut walk.reading);
    Ok(walk.reading)
}

/// Reads the arguments of a program at its exec, in `dir` (relative to the workspace's root). `program` is its
/// identity: a bare name, `./` and a path from the workspace's root, or an absolute path.
///
/// # Errors
/// As [`read`].
pub fn read_argv(
    argv: &[String],
    program: &str,
    dir: &str,
    fs_view: &FsView<'_>,
    grants: &Grants<'_>,
) -> Result<CommandReading, CommandRefusal> {
    let mut state = start(dir, fs_view)?;
    // What it receives on standard input is unknown here.
    state.fed = true;
    let mut walk = CommandWalk {
        executed: Some(program.to_owned()),
        ..CommandWalk::new("", *fs_view, *grants, INNER)
    };
    let words = std::iter::once(program).chain(argv.iter().skip(1).map(String::as_str));
    simple::of_words(&mut walk, &mut state, words.map(ShellWord::known).collect())?;
    Ok(walk.reading)
}

fn start(dir: &str, fs_view: &FsView<'_>) -> Result<ShellState, CommandRefusal> {
    let start: ResolvedPath = (fs_view.locate)(if dir.is_empty() { "." } else { dir });
    if !start.inside {
        return Err(CommandRefusal::new(
            "outside_path",
            format!("`{dir}` is outside the workspace"),
            "start in a directory inside",
        ));
    }
    Ok(ShellState::new(Dirs::Of(vec![start.path])))
}

/// Scans, parses and walks `walk.text`, and compares with the second parser.
///
/// # Errors
/// A [`CommandRefusal`].
fn whole(walk: &mut CommandWalk<'_>, state: &ShellState) -> Result<(), CommandRefusal> {
    let openers = scan::scan(walk.text)?;
    let seen = agree::look(walk.text)?;
    let program = parse::parse(walk.text, openers)?;
    let mut state = state.clone();
    for complete in &program.complete_commands {
        state.dirs = list(walk, &mut state, complete)?.all()?;
    }
    if walk.heredocs > 0 {
        heredoc_lines(walk.text)?;
    }
    agree::check(&seen, &walk.names, &walk.targets)
}

/// A line that opens a here-document may contain no expansion: the parsers miss it there.
fn heredoc_lines(text: &str) -> Result<(), CommandRefusal> {
    let opens = |line: &&str| line.replace("<<<", "").contains("<<");
    for line in text.lines().filter(opens) {
        if line.contains(['$', '`']) || line.ends_with('\\') {
            return Err(CommandRefusal::construct(
                "heredoc_line",
                "keep expansions off the line that opens a here-document",
            ));
        }
    }
    Ok(())
}

/// Walks the commands of `$(text)`.
///
/// # Errors
/// A [`CommandRefusal`] of the commands in it.
fn substitution(walk: &mut CommandWalk<'_>, state: &ShellState, text: &str) -> Result<(), CommandRefusal> {
    if state.nested >= MAX_NESTED {
        return Err(CommandRefusal::new(
            "limit:nesting",
            "substitutions are nested more than 8 deep",
            "nest it less deeply",
        ));
    }
    let openers = scan::scan(text)?;
    let program = parse::parse(text, openers)?;
    let mut inner = ShellState {
        nested: state.nested + 1,
        reads_lines: false,
        ..state.clone()
    };
    for complete in &program.complete_commands {
        inner.dirs = list(walk, &mut inner, complete)?.all()?;
    }
    Ok(())
}

/// Walks a list; `state.dirs` is the start.
///
/// # Errors
/// A [`CommandRefusal`].
pub fn list(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    list: &CompoundList,
) -> Result<ExitDirectories, CommandRefusal> {
    if state.dirs.is_nowhere() {
        // After an `exit`: judged as if it ran in the root.
        state.dirs = Dirs::Of(vec![String::new()]);
    }
    let mut ends = ExitDirectories::stay(state);
    let start = state.dirs.clone();
    for item in &list.0 {
        if matches!(item.1, SeparatorOperator::Async) {
            return Err(CommandRefusal::construct(
                "&",
                "use `is_background` of the tool, or leave the command in the foreground",
            ));
        }
        state.dirs = reached(ends.all()?, &start);
        ends = pipeline(walk, state, &item.0.first)?;
        for next in &item.0.additional {
            match next {
                AndOr::And(then) => {
                    state.dirs = reached(ends.ok, &start);
                    let after = pipeline(walk, state, then)?;
                    ends = ExitDirectories {
                        ok: after.ok,
                        failed: ends.failed.union(&after.failed)?,
                    };
                }
                AndOr::Or(otherwise) => {
                    state.dirs = reached(ends.failed, &start);
                    let after = pipeline(walk, state, otherwise)?;
                    ends = ExitDirectories {
                        ok: ends.ok.union(&after.ok)?,
                        failed: after.failed,
                    };
                }
            }
        }
    }
    state.dirs = start;
    Ok(ends)
}

/// Nothing runs after an `exit`; it is judged nevertheless, from the start of the list.
fn reached(dirs: Dirs, start: &Dirs) -> Dirs {
    if dirs.is_nowhere() { start.clone() } else { dirs }
}

fn pipeline(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    pipeline: &Pipeline,
) -> Result<ExitDirectories, CommandRefusal> {
    if let [only] = pipeline.seq.as_slice() {
        let mut ends = command(walk, state, only)?;
        if pipeline.bang {
            std::mem::swap(&mut ends.ok, &mut ends.failed);
        }
        return Ok(ends);
    }
    for (index, stage) in pipeline.seq.iter().enumerate() {
        // Each stage is a subshell: its changes end with it.
        let mut inner = ShellState {
            fed: state.fed || index > 0,
            piped: state.piped || index > 0,
            ..state.clone()
        };
        command(walk, &mut inner, stage)?;
    }
    Ok(ExitDirectories::stay(state))
}

fn command(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    command: &Command,
) -> Result<ExitDirectories, CommandRefusal> {
    if walk.reading.commands.len() > MAX_COMMANDS || walk.names.len() > MAX_COMMANDS {
        return Err(CommandRefusal::new(
            "limit:commands",
            "the text contains more than 200 commands",
            "split it into several calls",
        ));
    }
    match command {
        Command::Simple(command) => simple::command(walk, state, command),
        Command::Compound(compound, redirects) => {
            let given = outer(walk, state, redirects.as_ref())?;
            let mut inner = state.clone();
            inner.fed |= reads_file(redirects.as_ref());
            inner.piped = given.unwrap_or(state.piped);
            compound_command(walk, &mut inner, compound)
        }
        Command::Function(_) => Err(CommandRefusal::construct("function", "write the commands out")),
        Command::ExtendedTest(test, redirects) => {
            outer(walk, state, redirects.as_ref())?;
            walk.names.push("[[".to_owned());
            extended::check(walk, state, &test.expr)?;
            simple::note(walk, vec![ShellWord::known("[[")]);
            Ok(ExitDirectories::stay(state))
        }
    }
}

fn reads_file(redirects: Option<&RedirectList>) -> bool {
    redirects.is_some_and(|list| !list.0.is_empty())
}

fn outer(
    walk: &mut CommandWalk<'_>,
    state: &ShellState,
    redirects: Option<&RedirectList>,
) -> Result<Option<bool>, CommandRefusal> {
    let list: Vec<&IoRedirect> = redirects.iter().flat_map(|list| list.0.iter()).collect();
    let Redirects {
        reads, writes, given, ..
    } = redirect::all(walk, state, &list)?;
    walk.reading.reads.extend(reads);
    walk.reading.writes.extend(writes);
    Ok(given)
}

fn compound_command(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    compound: &CompoundCommand,
) -> Result<ExitDirectories, CommandRefusal> {
    match compound {
        CompoundCommand::Arithmetic(_) => Err(CommandRefusal::construct(
            "((",
            "compute the number yourself and write it",
        )),
        CompoundCommand::ArithmeticForClause(_) => Err(CommandRefusal::construct("for ((", "use `for n in 1 2 3`")),
        CompoundCommand::Coprocess(_) => Err(CommandRefusal::construct("coproc", "use a pipe")),
        CompoundCommand::BraceGroup(group) => list(walk, state, &group.list),
        CompoundCommand::Subshell(group) => {
            list(walk, &mut state.clone(), &group.list)?;
            Ok(ExitDirectories::stay(state))
        }
        CompoundCommand::ForClause(clause) => over_words(walk, state, clause),
        CompoundCommand::CaseClause(clause) => case(walk, state, clause),
        CompoundCommand::IfClause(clause) => branch(walk, state, clause),
        CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
            on_condition(walk, state, clause)
        }
    }
}

/// Ends in any of these directories, whatever its status.
fn anyhow(dirs: Dirs) -> ExitDirectories {
    ExitDirectories {
        ok: dirs.clone(),
        failed: dirs,
    }
}

fn branch(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    clause: &IfClauseCommand,
) -> Result<ExitDirectories, CommandRefusal> {
    let tested = list(walk, state, &clause.condition)?;
    state.dirs = tested.ok;
    let mut dirs = list(walk, state, &clause.then)?.all()?;
    let mut open = tested.failed;
    for next in clause.elses.iter().flatten() {
        state.dirs = open.clone();
        if let Some(condition) = &next.condition {
            let tested = list(walk, state, condition)?;
            state.dirs = tested.ok;
            open = tested.failed;
        }
        dirs = dirs.union(&list(walk, state, &next.body)?.all()?)?;
    }
    Ok(anyhow(dirs.union(&open)?))
}

fn case(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    clause: &CaseClauseCommand,
) -> Result<ExitDirectories, CommandRefusal> {
    words::evaluate_one(walk, state, &clause.value.value)?;
    let start = state.dirs.clone();
    let mut dirs = start.clone();
    for item in &clause.cases {
        for pattern in &item.patterns {
            words::evaluate_one(walk, state, &pattern.value)?;
        }
        if let Some(body) = &item.cmd {
            // `;&` and `;;&` continue with the next item: it may start wherever any other one ended.
            state.dirs = dirs.clone();
            dirs = dirs.union(&list(walk, state, body)?.all()?)?;
        }
    }
    state.dirs = start;
    Ok(anyhow(dirs))
}

/// Reads `for name in words`.
fn over_words(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    clause: &ForClauseCommand,
) -> Result<ExitDirectories, CommandRefusal> {
    let name = clause.variable_name.as_str();
    if !may_be_set(name) {
        return Err(CommandRefusal::construct(
            "for",
            "use a lower-case name for the loop's variable",
        ));
    }
    for value in clause.values.iter().flatten() {
        words::evaluate(walk, state, &value.value)?;
    }
    walk.variables.push(name.to_owned());
    let start = state.dirs.clone();
    let ends = list(walk, state, &clause.body.list)?;
    again(walk, state, &start, ends, &clause.body.list)
}

/// Reads a loop again from any directory if its body may end in another directory than it started in.
fn again(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    start: &Dirs,
    ends: ExitDirectories,
    body: &CompoundList,
) -> Result<ExitDirectories, CommandRefusal> {
    let after = start.union(&ends.all()?)?;
    if after == *start {
        return Ok(anyhow(after));
    }
    if !walk.grants.witness {
        return Err(CommandRefusal::construct(
            "cd_in_loop",
            "put the body into a subshell: `(cd x && …)`",
        ));
    }
    state.dirs = Dirs::Unknown;
    list(walk, state, body)?;
    Ok(anyhow(Dirs::Unknown))
}

/// Reads `while` and `until`.
fn on_condition(
    walk: &mut CommandWalk<'_>,
    state: &mut ShellState,
    clause: &WhileOrUntilClauseCommand,
) -> Result<ExitDirectories, CommandRefusal> {
    let start = state.dirs.clone();
    let mut condition = ShellState {
        reads_lines: true,
        ..state.clone()
    };
    let tested = list(walk, &mut condition, &clause.0)?.all()?;
    if tested != start {
        return Err(CommandRefusal::construct(
            "cd_in_loop",
            "put `cd` before the loop, not into its condition",
        ));
    }
    let ends = list(walk, state, &clause.1.list)?;
    let ends = again(walk, state, &start, ends, &clause.1.list)?;
    if ends.ok == Dirs::Unknown {
        condition.dirs = Dirs::Unknown;
        list(walk, &mut condition, &clause.0)?;
    }
    Ok(ends)
}
