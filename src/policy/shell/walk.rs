//! Walks a syntax tree: lists, pipes, groups, loops, branches, substitutions. Follows the directory; leaves simple commands to `simple`.

use super::redirect::{self, Redirects};
use super::scope::{Ends, MAX_NESTED, State, Walk, union};
use super::{Grants, Range, Reading, Refusal, Word, agree, extended, loops, parse, scan, simple, words};
use crate::base::access::{Place, Terrain};
use brush_parser::ast::{
    AndOr, CaseClauseCommand, Command, CompoundCommand, CompoundList, IfClauseCommand, IoRedirect, Pipeline,
    RedirectList, SeparatorOperator,
};

/// Simple commands in one text, those of its substitutions included.
const MAX_COMMANDS: usize = 200;

/// Reads a whole text. See [`super::read`].
///
/// # Errors
/// A [`Refusal`].
pub fn read(text: &str, dir: &str, terrain: &Terrain<'_>, grants: &Grants<'_>) -> Result<Reading, Refusal> {
    let start: Place = (terrain.locate)(if dir.is_empty() { "." } else { dir });
    if !start.inside {
        return Err(Refusal::new(
            "outside_path",
            format!("`{dir}` lies outside the workspace"),
            "start in a directory inside",
        ));
    }
    let mut walk = Walk {
        terrain: *terrain,
        grants: *grants,
        text,
        texts: 0,
        via: Vec::new(),
        reading: Reading::default(),
        names: Vec::new(),
        targets: Vec::new(),
        heredocs: 0,
    };
    whole(&mut walk, &State::new(vec![start.path]))?;
    if walk.reading == Reading::default() {
        return Err(Refusal::new(
            "parse_error",
            "there is no command in the text",
            "write a command",
        ));
    }
    Ok(walk.reading)
}

/// Scans, parses, walks `walk.text`, and asks the second opinion.
///
/// # Errors
/// A [`Refusal`].
pub fn whole(walk: &mut Walk<'_>, state: &State) -> Result<Range, Refusal> {
    let openers = scan::scan(walk.text)?;
    let seen = agree::look(walk.text)?;
    let program = parse::parse(walk.text, openers)?;
    let mut state = state.clone();
    let mut output = Range::wild();
    for complete in &program.complete_commands {
        let ends = list(walk, &mut state, complete)?;
        state.dirs = ends.all()?;
        output = ends.output;
    }
    if walk.heredocs > 0 {
        heredoc_lines(walk.text)?;
    }
    agree::check(&seen, &walk.names, &walk.targets)?;
    Ok(output)
}

/// A line that opens a here-document may hold no expansion: the parsers lose it there.
fn heredoc_lines(text: &str) -> Result<(), Refusal> {
    let opens = |line: &&str| line.replace("<<<", "").contains("<<");
    for line in text.lines().filter(opens) {
        if line.contains(['$', '`']) || line.ends_with('\\') {
            return Err(Refusal::construct(
                "heredoc_line",
                "keep expansions off the line that opens a here-document",
            ));
        }
    }
    Ok(())
}

/// What `$(text)` prints.
///
/// # Errors
/// A [`Refusal`] of the commands in it.
pub fn substitution(walk: &mut Walk<'_>, state: &State, text: &str) -> Result<Range, Refusal> {
    if state.nested >= MAX_NESTED {
        return Err(Refusal::new(
            "limit:nesting",
            "substitutions are nested more than 8 deep",
            "write it flatter",
        ));
    }
    let openers = scan::scan(text)?;
    let program = parse::parse(text, openers)?;
    let mut inner = State {
        nested: state.nested + 1,
        feeds: true,
        reads_lines: false,
        ..state.clone()
    };
    let mut outputs = Vec::new();
    for complete in &program.complete_commands {
        let ends = list(walk, &mut inner, complete)?;
        inner.dirs = ends.all()?;
        outputs.push(ends.output);
    }
    // Output of several lists runs together; only a single one is followed.
    let single = program.complete_commands.len() == 1 && program.complete_commands[0].0.len() == 1;
    Ok(outputs.pop().filter(|_| single).unwrap_or_else(Range::wild))
}

/// Walks a list; `state.vars` is changed, `state.dirs` is the start.
///
/// # Errors
/// A [`Refusal`].
pub fn list(walk: &mut Walk<'_>, state: &mut State, list: &CompoundList) -> Result<Ends, Refusal> {
    if state.dirs.is_empty() {
        // Behind an `exit`: judged as if it ran from the root.
        state.dirs.push(String::new());
    }
    let mut ends = Ends {
        ok: state.dirs.clone(),
        failed: state.dirs.clone(),
        output: Range::wild(),
    };
    let start = state.dirs.clone();
    for item in &list.0 {
        if matches!(item.1, SeparatorOperator::Async) {
            return Err(Refusal::construct(
                "&",
                "use `is_background` of the tool, or leave the command in the foreground",
            ));
        }
        state.dirs = reached(ends.all()?, &start);
        ends = pipeline(walk, state, &item.0.first)?;
        let sure = state.sure;
        for next in &item.0.additional {
            state.sure = false;
            let output = std::mem::replace(&mut ends.output, Range::wild());
            match next {
                AndOr::And(then) => {
                    state.dirs = reached(ends.ok, &start);
                    let after = pipeline(walk, state, then)?;
                    ends = Ends {
                        ok: after.ok,
                        failed: union(&ends.failed, &after.failed)?,
                        // `cd x && git ls-files` prints what the second prints.
                        output: if output.head == "silent" {
                            after.output
                        } else {
                            Range::wild()
                        },
                    };
                }
                AndOr::Or(otherwise) => {
                    state.dirs = reached(ends.failed, &start);
                    let after = pipeline(walk, state, otherwise)?;
                    ends = Ends {
                        ok: union(&ends.ok, &after.ok)?,
                        failed: after.failed,
                        output: if after.output.head == "silent" {
                            output
                        } else {
                            Range::wild()
                        },
                    };
                }
            }
        }
        state.sure = sure;
    }
    state.dirs = start;
    Ok(ends)
}

/// Behind an `exit` nothing runs; it is judged all the same, from the start of the list.
fn reached(dirs: Vec<String>, start: &[String]) -> Vec<String> {
    if dirs.is_empty() { start.to_vec() } else { dirs }
}

fn pipeline(walk: &mut Walk<'_>, state: &mut State, pipeline: &Pipeline) -> Result<Ends, Refusal> {
    if let [only] = pipeline.seq.as_slice() {
        let mut ends = command(walk, state, only)?;
        if pipeline.bang {
            std::mem::swap(&mut ends.ok, &mut ends.failed);
        }
        return Ok(ends);
    }
    let dirs = state.dirs.clone();
    let mut flow = state.input.clone();
    let last = pipeline.seq.len().saturating_sub(1);
    for (index, stage) in pipeline.seq.iter().enumerate() {
        // Each stage is a subshell: what it changes is gone behind it.
        let mut inner = State {
            input: flow,
            feeds: state.feeds || index < last,
            ..state.clone()
        };
        flow = Some(command(walk, &mut inner, stage)?.output);
    }
    Ok(Ends {
        ok: dirs.clone(),
        failed: dirs,
        output: flow.unwrap_or_else(Range::wild),
    })
}

fn command(walk: &mut Walk<'_>, state: &mut State, command: &Command) -> Result<Ends, Refusal> {
    if walk.reading.commands.len() > MAX_COMMANDS || walk.names.len() > MAX_COMMANDS {
        return Err(Refusal::new(
            "limit:commands",
            "the text holds more than 200 commands",
            "split it into several calls",
        ));
    }
    match command {
        Command::Simple(command) => simple::command(walk, state, command),
        Command::Compound(compound, redirects) => {
            outer(walk, state, redirects.as_ref())?;
            let mut inner = state.clone();
            if reads_file(redirects.as_ref()) {
                inner.input = Some(Range::wild());
            }
            inner.sure &= matches!(compound, CompoundCommand::BraceGroup(_) | CompoundCommand::Subshell(_));
            let ends = compound_command(walk, &mut inner, compound)?;
            if !matches!(compound, CompoundCommand::Subshell(_)) {
                state.vars = inner.vars;
            }
            Ok(ends)
        }
        Command::Function(_) => Err(Refusal::construct("function", "write the commands out")),
        Command::ExtendedTest(test, redirects) => {
            outer(walk, state, redirects.as_ref())?;
            walk.names.push("[[".to_owned());
            extended::check(walk, state, &test.expr)?;
            simple::note(walk, vec![Word::known("[[")]);
            Ok(stay(state, silent()))
        }
    }
}

/// Output of a command that prints nothing.
pub fn silent() -> Range {
    Range {
        head: "silent".to_owned(),
        ..Range::of(super::Tame::Token)
    }
}

/// Ends where it started.
pub fn stay(state: &State, output: Range) -> Ends {
    Ends {
        ok: state.dirs.clone(),
        failed: state.dirs.clone(),
        output,
    }
}

fn reads_file(redirects: Option<&RedirectList>) -> bool {
    redirects.is_some_and(|list| !list.0.is_empty())
}

fn outer(walk: &mut Walk<'_>, state: &State, redirects: Option<&RedirectList>) -> Result<(), Refusal> {
    let list: Vec<&IoRedirect> = redirects.iter().flat_map(|list| list.0.iter()).collect();
    let Redirects { reads, writes, .. } = redirect::all(walk, state, &list)?;
    walk.reading.reads.extend(reads);
    walk.reading.writes.extend(writes);
    Ok(())
}

fn compound_command(walk: &mut Walk<'_>, state: &mut State, compound: &CompoundCommand) -> Result<Ends, Refusal> {
    match compound {
        CompoundCommand::Arithmetic(_) => Err(Refusal::construct("((", "compute the number yourself and write it")),
        CompoundCommand::ArithmeticForClause(_) => Err(Refusal::construct("for ((", "use `for n in 1 2 3`")),
        CompoundCommand::Coprocess(_) => Err(Refusal::construct("coproc", "use a pipe")),
        CompoundCommand::BraceGroup(group) => {
            let ends = list(walk, state, &group.list)?;
            Ok(only_output_of_one(ends, &group.list))
        }
        CompoundCommand::Subshell(group) => {
            let ends = list(walk, &mut state.clone(), &group.list)?;
            Ok(stay(state, only_output_of_one(ends, &group.list).output))
        }
        CompoundCommand::ForClause(clause) => loops::over_words(walk, state, clause),
        CompoundCommand::CaseClause(clause) => case(walk, state, clause),
        CompoundCommand::IfClause(clause) => branch(walk, state, clause),
        CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
            loops::on_condition(walk, state, clause)
        }
    }
}

fn only_output_of_one(ends: Ends, list: &CompoundList) -> Ends {
    let output = if list.0.len() == 1 { ends.output } else { Range::wild() };
    Ends { output, ..ends }
}

fn branch(walk: &mut Walk<'_>, state: &mut State, clause: &IfClauseCommand) -> Result<Ends, Refusal> {
    let tested = list(walk, state, &clause.condition)?;
    state.dirs = tested.ok;
    let then = list(walk, state, &clause.then)?;
    let mut dirs = then.all()?;
    let mut open = tested.failed;
    for next in clause.elses.iter().flatten() {
        state.dirs = open.clone();
        if let Some(condition) = &next.condition {
            let tested = list(walk, state, condition)?;
            state.dirs = tested.ok;
            open = tested.failed;
        }
        dirs = union(&dirs, &list(walk, state, &next.body)?.all()?)?;
    }
    dirs = union(&dirs, &open)?;
    Ok(Ends {
        ok: dirs.clone(),
        failed: dirs,
        output: Range::wild(),
    })
}

fn case(walk: &mut Walk<'_>, state: &mut State, clause: &CaseClauseCommand) -> Result<Ends, Refusal> {
    words::evaluate_one(walk, state, &clause.value.value)?;
    let start = state.dirs.clone();
    let mut dirs = start.clone();
    for item in &clause.cases {
        for pattern in &item.patterns {
            words::evaluate_one(walk, state, &pattern.value)?;
        }
        if let Some(body) = &item.cmd {
            // `;&` and `;;&` fall into the next: it may start wherever any other ended.
            state.dirs = dirs.clone();
            dirs = union(&dirs, &list(walk, state, body)?.all()?)?;
        }
    }
    state.dirs = start;
    Ok(Ends {
        ok: dirs.clone(),
        failed: dirs,
        output: Range::wild(),
    })
}
