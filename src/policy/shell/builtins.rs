//! The shell's own commands: which are refused, which need no rule. Knows no other program.

use super::{Refusal, Tame, Word, WordKind};

/// Commands that change how the rest of a text is read, or run text that nobody has looked at.
const REFUSED: [&str; 49] = [
    "eval",
    "exec",
    "source",
    ".",
    "trap",
    "hash",
    "enable",
    "complete",
    "compgen",
    "compopt",
    "bind",
    "shopt",
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "unset",
    "mapfile",
    "readarray",
    "fc",
    "history",
    "disown",
    "umask",
    "ulimit",
    "let",
    "alias",
    "unalias",
    "getopts",
    "pushd",
    "popd",
    "dirs",
    "suspend",
    "logout",
    "coproc",
    "select",
    "function",
    "shift",
    "bg",
    "fg",
    "caller",
    "times",
    "jobs",
    "{",
    "}",
    "time",
    "!",
    "((",
    "]]",
];

/// Refuses what no rule can allow.
///
/// # Errors
/// `refused_construct:NAME`.
pub fn check(words: &[Word], reads_lines: bool) -> Result<(), Refusal> {
    let program = words.first().map_or("", |word| word.text.as_str());
    if REFUSED.contains(&program) {
        return Err(Refusal::construct(program, fix_for(program)));
    }
    match program {
        "read" => read(words, reads_lines),
        "test" | "[" => test(words),
        "printf" => printf(words),
        "set" => set(words),
        _ => Ok(()),
    }
}

fn fix_for(program: &str) -> &'static str {
    match program {
        "export" | "declare" | "typeset" => {
            "put the assignment in front of the command that needs it: `NAME=value command`"
        }
        "source" | "." => "run the script by its name",
        "pushd" | "popd" => "use a subshell: `(cd x && …)`",
        _ => "write the commands themselves",
    }
}

/// `read -r NAME…` is a loop's own way to take lines; anything else sets variables by surprise.
fn read(words: &[Word], reads_lines: bool) -> Result<(), Refusal> {
    let refused = || Refusal::construct("read", "use `while read -r name; do …; done` at the end of a pipe");
    let plain = words.iter().skip(1).all(|word| {
        word.exact()
            .is_some_and(|text| text == "-r" || super::assign::may_be_set(text))
    });
    if reads_lines && plain && words.len() > 1 {
        Ok(())
    } else {
        Err(refused())
    }
}

/// Stopping at errors is harmless; other settings change how the rest is read or shown.
fn set(words: &[Word]) -> Result<(), Refusal> {
    let harmless = |word: &Word| {
        word.exact().is_some_and(|text| {
            matches!(text, "pipefail" | "errexit" | "nounset" | "-o")
                || text
                    .strip_prefix('-')
                    .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "euo".contains(flag)))
        })
    };
    // A last `-o` prints settings; a name behind `-eu` would be a positional parameter.
    let named = |pair: &[Word]| pair[0].text.ends_with('o') != pair[1].text.starts_with('-');
    let shape = words.windows(2).skip(1).all(named) && words.last().is_some_and(|last| !last.text.ends_with("-o"));
    if words.len() > 1 && words[1].text.starts_with('-') && words.iter().skip(1).all(harmless) && shape {
        Ok(())
    } else {
        Err(Refusal::construct(
            "set",
            "only `set -euo pipefail` and parts of it are accepted",
        ))
    }
}

/// A subscript in a variable's name is evaluated: `test -v 'a[$(x)]'` runs x.
fn test(words: &[Word]) -> Result<(), Refusal> {
    let refused = || Refusal::construct("test -v", "test the value: `[ -n \"$name\" ]`");
    for word in words.iter().skip(1) {
        let evaluated = matches!(word.kind, WordKind::Known)
            && (word.text == "-v" || word.text == "-R" || word.text.contains(['$', '`']));
        let may_be = word
            .range
            .values
            .as_ref()
            .is_some_and(|all| all.iter().any(|text| text == "-v" || text == "-R"));
        let splits = word.kind == WordKind::Opaque && word.range.many && word.range.dash;
        if evaluated || may_be || splits {
            return Err(refused());
        }
    }
    Ok(())
}

/// `-v` sets a variable, and evaluates a subscript in its name.
fn printf(words: &[Word]) -> Result<(), Refusal> {
    let refused = || Refusal::construct("printf -v", "begin the format with a plain text");
    match words.get(1) {
        Some(first) if first.range.dash && first.exact().is_none_or(|text| text.starts_with("-v")) => Err(refused()),
        _ => Ok(()),
    }
}

/// Whether a command only asks, or changes nothing but the shell's own state.
/// `echo` and `printf` count when their words are known and nobody but the reader gets them.
pub fn is_state_only(words: &[Word], redirected: bool, feeds: bool) -> bool {
    let Some((program, rest)) = words.split_first() else {
        return false;
    };
    match program.text.as_str() {
        "true" | "false" | ":" | "test" | "[" | "[[" | "exit" | "return" | "break" | "continue" | "pwd" | "wait"
        | "type" | "read" | "set" => true,
        "echo" | "printf" => {
            let known = |word: &Word| {
                word.kind == WordKind::Known || word.range.values.is_some() || word.range.tame < Tame::Wild
            };
            !redirected && !feeds && rest.iter().all(known)
        }
        _ => false,
    }
}
