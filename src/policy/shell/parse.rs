//! Runs the main bash parser on text that passed the scan.

use super::CommandRefusal;
use brush_parser::ast::{Command, CompoundCommand, CompoundList, Program};
use brush_parser::{Parser, ParserOptions};

/// Up to this many openers the caller's stack is sufficient for the parser.
const SMALL: usize = 16;
/// Stack size in bytes of the parser's thread for larger texts: the worst case that the scan accepts needs less than
/// half of it.
const STACK: usize = 32 * 1024 * 1024;
/// The deepest nesting of compound commands.
const MAX_DEPTH: usize = 12;

/// The syntax tree of `text`, with bash's grammar and `extglob` off, as in a non-interactive shell. `openers` is the
/// count from the scan. The tree is at most 12 compound commands deep.
///
/// # Errors
/// `parse_error`: the whole command is refused, since bash would run the lines before the error; `limit:nesting`.
pub fn parse(text: &str, openers: usize) -> Result<Program, CommandRefusal> {
    if openers <= SMALL {
        // The parser panics on a few malformed texts. It shares no state with the caller, so nothing is left
        // inconsistent.
        return std::panic::catch_unwind(|| shallow(text)).unwrap_or_else(|_| Err(unreadable()));
    }
    // The parser recurses, and a stack overflow cannot be caught. Deep trees are dropped on the thread that made them.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let parsed = thread
            .spawn_scoped(scope, || shallow(text))
            .map(std::thread::ScopedJoinHandle::join);
        match parsed {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(_)) | Err(_) => Err(unreadable()),
        }
    })
}

fn shallow(text: &str) -> Result<Program, CommandRefusal> {
    let options = ParserOptions {
        enable_extended_globbing: false,
        ..ParserOptions::default()
    };
    let program = Parser::new(text.as_bytes(), &options)
        .parse_program()
        .map_err(|_| unreadable())?;
    if program.complete_commands.iter().any(|list| deeper(list, MAX_DEPTH)) {
        return Err(CommandRefusal::new(
            "limit:nesting",
            "groups are nested more than 12 deep",
            "nest it less deeply",
        ));
    }
    Ok(program)
}

fn unreadable() -> CommandRefusal {
    CommandRefusal::new(
        "parse_error",
        "the command cannot be parsed as bash",
        "check quotes and brackets; use plain commands, lists and pipes",
    )
}

/// Whether compound commands are nested more than `left` levels deep below `list`.
fn deeper(list: &CompoundList, left: usize) -> bool {
    list.0.iter().any(|item| {
        item.0
            .iter()
            .any(|(_, pipeline)| pipeline.seq.iter().any(|command| command_is_deeper(command, left)))
    })
}

fn command_is_deeper(command: &Command, left: usize) -> bool {
    let Some(next) = left.checked_sub(1) else {
        return !matches!(command, Command::Simple(_) | Command::ExtendedTest(..));
    };
    let compound = match command {
        Command::Simple(_) | Command::ExtendedTest(..) => return false,
        Command::Function(function) => &function.body.0,
        Command::Compound(compound, _) => compound,
    };
    match compound {
        CompoundCommand::Arithmetic(_) => false,
        CompoundCommand::ArithmeticForClause(clause) => deeper(&clause.body.list, next),
        CompoundCommand::BraceGroup(group) => deeper(&group.list, next),
        CompoundCommand::Subshell(group) => deeper(&group.list, next),
        CompoundCommand::ForClause(clause) => deeper(&clause.body.list, next),
        CompoundCommand::CaseClause(clause) => clause
            .cases
            .iter()
            .any(|case| case.cmd.as_ref().is_some_and(|list| deeper(list, next))),
        CompoundCommand::IfClause(clause) => {
            deeper(&clause.condition, next)
                || deeper(&clause.then, next)
                || clause.elses.iter().flatten().any(|branch| {
                    deeper(&branch.body, next) || branch.condition.as_ref().is_some_and(|list| deeper(list, next))
                })
        }
        CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
            deeper(&clause.0, next) || deeper(&clause.1.list, next)
        }
        CompoundCommand::Coprocess(clause) => command_is_deeper(&clause.body, next),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::scan;
    use super::parse;

    /// The worst case that the scan accepts must not exhaust the small stack of a worker thread.
    #[test]
    fn the_deepest_text_that_passes_the_scan_fits_a_small_stack() {
        let texts = [
            "if x; then ".repeat(48),
            format!("{}x{}", "if x; then ".repeat(48), "; fi".repeat(48)),
            format!("{}x{}", "while x; do ".repeat(48), "; done".repeat(48)),
            "{ ':}'; ".repeat(200),
            "(:;':)';".repeat(200),
            format!("{}x{}", "{ ':}'; ".repeat(120), " }".repeat(8)),
            "( ".repeat(7),
            "((".repeat(4),
            "$(: ':)' ".repeat(200),
            format!("{}{}", "\"$(: ')' ".repeat(200), ")\"".repeat(200)),
            "! ".repeat(8000),
            "x|".repeat(8000),
            "x&&".repeat(5000),
            "x;".repeat(8000),
            "x\n".repeat(8000),
            "${a:-'}'".repeat(200),
            "[[ ".repeat(2000),
            format!("[[ {}", "! ".repeat(8000)),
            format!("[[ {}x ]]", "! ".repeat(200)),
            format!("[[ {}x ]]", "x && ".repeat(3000)),
            format!("[[ {}x ]]", "x || ".repeat(3000)),
            format!("[[ {}x ]]", "-n x -a ".repeat(2000)),
            format!("[[ {}x ]]", "!\\\n ".repeat(2000)),
            format!("if x; then x; {} fi", "elif x; then x; ".repeat(1000)),
            format!("a={}", "$((1+".repeat(100)),
            format!("[[ {}x", "(')' ".repeat(200)),
            format!("case x in {}", "a) ".repeat(2000)),
            format!("{}x", "time ".repeat(3000)),
            format!("{}x", ">a ".repeat(5000)),
        ];
        for text in texts {
            let handle = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(move || {
                if let Ok(openers) = scan(&text) {
                    let start = std::time::Instant::now();
                    let _ = parse(&text, openers);
                    let took = start.elapsed();
                    if took.as_millis() > 50 {
                        println!("{took:?} {}", &text[..40.min(text.len())]);
                    }
                    true
                } else {
                    false
                }
            });
            let passed = handle.unwrap().join().unwrap();
            println!("{passed}");
        }
    }
}
