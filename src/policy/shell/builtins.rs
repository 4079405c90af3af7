//! Shell builtins: which are refused, and which need no rule.

use super::{CommandRefusal, ShellWord, WordKind};

/// Builtins that change how the rest of a text is interpreted, or run text that was not examined.
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

/// Refuses builtins that no rule can allow.
///
/// # Errors
/// `refused_construct:NAME`.
pub fn check(words: &[ShellWord], reads_lines: bool) -> Result<(), CommandRefusal> {
    let program = words.first().map_or("", |word| word.text.as_str());
    if activates(words) {
        return Ok(());
    }
    if REFUSED.contains(&program) {
        return Err(CommandRefusal::construct(program, fix_for(program, words)));
    }
    match program {
        "read" => read(words, reads_lines),
        "test" | "[" => test(words),
        "printf" => printf(words),
        "set" => set(words),
        _ => Ok(()),
    }
}

fn fix_for(program: &str, words: &[ShellWord]) -> &'static str {
    let sets_path = |word: &ShellWord| word.text.starts_with("PATH=");
    match program {
        "export" | "declare" | "typeset" | "readonly" if words.iter().any(sets_path) => {
            "no command may set PATH: run the program by its name or its path"
        }
        "ulimit" | "umask" | "shopt" | "jobs" | "times" | "history" | "hash" | "bind" | "disown" | "trap" => {
            "leave it out, and write only the commands"
        }
        "export" | "declare" | "typeset" => "put the assignment before the command that needs it: `NAME=value command`",
        "source" | "." => {
            "run the script by its name; of virtual environments, `source .venv/bin/activate` is accepted"
        }
        "pushd" | "popd" => "use a subshell: `(cd x && …)`",
        _ => "write the commands themselves",
    }
}

/// Whether the words activate a virtual environment of the workspace: `source .venv/bin/activate`.
pub fn activates(words: &[ShellWord]) -> bool {
    let [first, script] = words else { return false };
    let plain = |text: &str| {
        let path = text.strip_prefix("./").unwrap_or(text);
        !path.starts_with('/') && !path.split('/').any(str::is_empty) && is_activate(path)
    };
    matches!(first.exact(), Some("source" | ".")) && script.exact().is_some_and(plain)
}

/// Whether a workspace path is the script that activates a virtual environment.
pub fn is_activate(path: &str) -> bool {
    const SCRIPTS: [&str; 2] = [".venv/bin/activate", "venv/bin/activate"];
    SCRIPTS
        .iter()
        .any(|end| path == *end || path.ends_with(&format!("/{end}")))
}

/// `read -r NAME…` is accepted only as the condition of a loop; elsewhere it sets variables to unknown values.
fn read(words: &[ShellWord], reads_lines: bool) -> Result<(), CommandRefusal> {
    let refused = || CommandRefusal::construct("read", "use `while read -r name; do …; done` at the end of a pipe");
    let plain = words.iter().skip(1).all(|word| {
        word.exact()
            .is_some_and(|text| text == "-r" || super::variables::may_be_set(text))
    });
    if reads_lines && plain && words.len() > 1 {
        Ok(())
    } else {
        Err(refused())
    }
}

/// Stopping at errors is harmless; other settings change how the rest is interpreted or displayed.
fn set(words: &[ShellWord]) -> Result<(), CommandRefusal> {
    let harmless = |word: &ShellWord| {
        word.exact().is_some_and(|text| {
            matches!(text, "pipefail" | "errexit" | "nounset" | "-o")
                || text
                    .strip_prefix('-')
                    .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "euo".contains(flag)))
        })
    };
    // A final `-o` prints settings; a name after `-eu` would be a positional parameter.
    let named = |pair: &[ShellWord]| pair[0].text.ends_with('o') != pair[1].text.starts_with('-');
    let shape = words.windows(2).skip(1).all(named) && words.last().is_some_and(|last| !last.text.ends_with("-o"));
    if words.len() > 1 && words[1].text.starts_with('-') && words.iter().skip(1).all(harmless) && shape {
        Ok(())
    } else {
        Err(CommandRefusal::construct(
            "set",
            "only `set -euo pipefail` and parts of it are accepted",
        ))
    }
}

/// Bash evaluates a subscript in a variable's name: `test -v 'a[$(x)]'` runs x.
fn test(words: &[ShellWord]) -> Result<(), CommandRefusal> {
    let refused = || CommandRefusal::construct("test -v", "test the value: `[ -n \"$name\" ]`");
    for word in words.iter().skip(1) {
        match word.exact() {
            Some(text) if text == "-v" || text == "-R" || text.contains(['$', '`']) => return Err(refused()),
            None if word.kind == WordKind::Unknown && word.may_be_option() && !is_one_word(&word.text) => {
                return Err(unquoted(&words[0].text, &word.text));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The refusal of a word for `test` that may expand to several, `-v` among them.
fn unquoted(program: &str, source: &str) -> CommandRefusal {
    let quoted = format!("\"{source}\"");
    let fix = match is_one_word(&quoted) {
        true => format!("quote it: `{quoted}`"),
        false => "test one quoted value: `[ -n \"$name\" ]`".to_owned(),
    };
    let reason =
        format!("`{source}` without quotes may become several words of `{program}`, `-v` among them, which runs code");
    CommandRefusal {
        reason,
        fix,
        ..CommandRefusal::construct("test -v", "")
    }
}

/// Whether a source expands to exactly one word that is not an option: one pair of double quotes, a status or a count.
fn is_one_word(source: &str) -> bool {
    let inner = source.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    matches!(source, "$?" | "$#" | "$$")
        || inner.is_some_and(|inner| !inner.is_empty() && !inner.contains(['"', '@', '*']))
}

/// `-v` sets a variable and evaluates a subscript in its name; so does the conversion `%n`. The format must be known,
/// and only conversions that print are accepted.
fn printf(words: &[ShellWord]) -> Result<(), CommandRefusal> {
    let mut rest = words.iter().skip(1);
    let mut format = rest.next();
    let ends_options = format.is_some_and(|word| word.exact() == Some("--"));
    if ends_options {
        format = rest.next();
    }
    let fine = match format.map(ShellWord::exact) {
        None => true,
        Some(Some(text)) => (ends_options || !text.starts_with('-')) && only_prints(text),
        Some(None) => false,
    };
    if fine {
        Ok(())
    } else {
        Err(CommandRefusal::construct(
            "printf",
            "write the format itself, with conversions such as %s and %d: `printf '%s\\n' \"$name\"`",
        ))
    }
}

/// Whether a `printf` format has only conversions that print their argument.
fn only_prints(format: &str) -> bool {
    let mut chars = format.chars().peekable();
    while let Some(next) = chars.next() {
        if next != '%' {
            continue;
        }
        while chars.next_if(|c| "-+ #0'*.123456789hlLjzt".contains(*c)).is_some() {}
        match chars.next() {
            Some('(') => {
                if !chars.by_ref().any(|c| c == ')') || chars.next() != Some('T') {
                    return false;
                }
            }
            Some(conversion) if "%diouxXeEfFgGaAcsbqQ".contains(conversion) => {}
            _ => return false,
        }
    }
    true
}

/// Whether a command only reads state, prints its words, or changes nothing but the shell's own state. None of these
/// executes a program; their redirections are judged like any others.
pub fn is_state_only(words: &[ShellWord]) -> bool {
    let program = words.first().map_or("", |word| word.text.as_str());
    matches!(
        program,
        "true"
            | "false"
            | ":"
            | "test"
            | "["
            | "[["
            | "exit"
            | "return"
            | "break"
            | "continue"
            | "pwd"
            | "wait"
            | "type"
            | "read"
            | "set"
            | "echo"
            | "printf"
    )
}
