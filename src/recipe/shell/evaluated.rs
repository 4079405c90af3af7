//! Where a shell does not pass a value on but evaluates it: as an expression, as the name of a variable, or as text that
//! is parsed again. There `a[$(command)]` runs its command in spite of all quotes, and `PATH=1` assigns. Pure.
//!
//! A value in such a place is refused. A variable that holds a value may also get there, which only a shell could
//! follow; so where a command has such a construct at all, values that could do something in it are refused.

use super::CLOSE;

/// Words that may stand before the name of a program.
const BEFORE: [&str; 15] = [
    "if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "command", "builtin", "exec", "env", "sudo",
];
/// Builtins whose operands are names of variables, expressions or commands.
const NAMING: [&str; 9] = [
    "eval",
    "trap",
    "let",
    "read",
    "mapfile",
    "readarray",
    "unset",
    "getopts",
    "wait",
];
/// Builtins whose operands are assignments.
const DECLARING: [&str; 5] = ["declare", "typeset", "local", "readonly", "export"];
/// Programs that take a script after `-c` or `-e`.
const INTERPRETERS: [&str; 12] = [
    "bash", "sh", "dash", "zsh", "ksh", "ash", "su", "python", "perl", "ruby", "node", "php",
];
/// Operators of `[[ … ]]` that compute.
const COMPARING: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

/// Whether a value that is part of `word`, the next word of a simple command with these words before it, would be
/// evaluated. Quoted characters are [`CLOSE`].
pub(super) fn is_operand(command: &[String], word: &str) -> bool {
    let before = command.last().map_or("", String::as_str);
    let is_script = before.starts_with('-') && !before.starts_with("--") && before.ends_with(['c', 'e']);
    if is_script && command.iter().any(|word| INTERPRETERS.contains(&base(word))) {
        return true;
    }
    let name = command.iter().find(|word| !is_before_name(word));
    match name.map_or("", |name| base(name)) {
        name if NAMING.contains(&name) => true,
        name if DECLARING.contains(&name) => !word.contains('=') || command.iter().any(|word| declares_other(word)),
        "printf" => before == "-v",
        // Not `[[`: `&&` in it ends no command. `Arithmetic` refuses a value in any part of it.
        "test" | "[" => matches!(before, "-v" | "-R"),
        _ => false,
    }
}

/// The name of a program without its directory and version.
fn base(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

fn is_before_name(word: &str) -> bool {
    BEFORE.contains(&word) || word.contains('=') || word.starts_with('-')
}

/// Whether this option declares an integer or a reference to another variable.
fn declares_other(word: &str) -> bool {
    word.starts_with('-') && word.contains(['i', 'n'])
}

/// The first construct in a text in which the shell evaluates the content of a variable.
pub(super) fn construct(text: &str) -> Option<&'static str> {
    let text = &without_literals(text);
    let words = || text.split([' ', '\t', '\n', ';', '&', '|', '(', ')', '"', '\'']);
    let has = |wanted: &[&str]| words().any(|word| wanted.contains(&word));
    let reads = |(begin, end): (&str, &str)| {
        let mut sums = text.split(begin).skip(1);
        sums.any(|sum| sum.split(end).next().unwrap_or(sum).contains(reads_variable))
    };
    if [("((", "))"), ("$[", "]")].into_iter().any(reads) {
        return Some("((…))");
    }
    if text.contains("[[") && has(&COMPARING) {
        return Some("[[ … -eq … ]]");
    }
    if has(&["-v", "-R"]) && has(&["test", "[", "[[", "printf"]) {
        return Some("-v");
    }
    if has(&["let"]) {
        return Some("let");
    }
    if expansions(text).any(computes) {
        return Some("${name:…} or ${name[…]}");
    }
    if assigns_element(text) {
        return Some("name[…]=");
    }
    text.split(['\n', ';', '&', '|', '(', ')'])
        .any(names_by_value)
        .then_some("a builtin that takes names of variables")
}

/// The text without the here-documents whose delimiter is quoted: the shell reads nothing in them.
fn without_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        match end {
            Some(word) if line.trim_start_matches('\t').trim_end_matches('\n') == word => end = None,
            Some(_) => continue,
            None => end = quoted_delimiter(line),
        }
        out.push_str(line);
    }
    out
}

/// The delimiter of the first here-document of a line, if it is in quotes.
fn quoted_delimiter(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("<<")?;
    let rest = rest.trim_start_matches('-').trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    rest[1..].split_once(quote).map(|(word, _)| word)
}

fn reads_variable(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$')
}

/// The insides of `${…}`, up to the first closing brace.
fn expansions(text: &str) -> impl Iterator<Item = &str> {
    text.split("${")
        .skip(1)
        .map(|rest| rest.split('}').next().unwrap_or(rest))
}

/// Whether `${…}` has a subscript that is no plain number, or an offset.
fn computes(inside: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let rest = inside.trim_start_matches(['#', '!']).trim_start_matches(name);
    let plain = |subscript: &str| matches!(subscript, "@" | "*") || subscript.bytes().all(|byte| byte.is_ascii_digit());
    if inside.starts_with('!') && rest.is_empty() {
        return true;
    }
    let rest = match rest.strip_prefix('[') {
        Some(subscript) => match subscript.split_once(']') {
            Some((subscript, rest)) if plain(subscript) => rest,
            _ => return true,
        },
        None => rest,
    };
    rest.strip_prefix(':')
        .is_some_and(|offset| !offset.starts_with(['-', '=', '?', '+']))
}

/// Whether an element of an array is assigned whose subscript is no plain number.
fn assigns_element(text: &str) -> bool {
    text.split(']').zip(text.split(']').skip(1)).any(|(before, after)| {
        let Some((name, subscript)) = before.rsplit_once('[') else {
            return false;
        };
        let is_named = name.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let assigns = after.starts_with('=') || after.starts_with("+=");
        is_named && assigns && !subscript.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether a simple command gives a builtin the content of a variable as the name of a variable or as an integer.
fn names_by_value(command: &str) -> bool {
    let mut words = command.split_ascii_whitespace().skip_while(|word| is_before_name(word));
    let name = words.next().unwrap_or_default();
    let mut words = words.peekable();
    if DECLARING.contains(&name) {
        let mut declares = false;
        return words.any(|word| {
            declares |= declares_other(word);
            declares || word.split('=').next().is_some_and(|name| name.contains('$'))
        });
    }
    NAMING.contains(&name) && !matches!(name, "eval" | "trap") && words.any(|word| word.contains('$'))
}

/// Whether a text parses the content of a variable again.
pub(super) fn parses_again(text: &str) -> bool {
    let mut words = text.split([' ', '\t', '\n', ';', '&', '|', '(', ')']);
    words.any(|word| word == "eval")
}

/// Whether a value could run, assign or change something if it were evaluated as an expression.
pub(super) fn is_active(value: &str) -> bool {
    value.contains(['[', '`', '$', '=', CLOSE]) || value.contains("++") || value.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructs_are_found() {
        for text in [
            "if (( n > 3 )); then ls; fi",
            "echo $((n+1))",
            "echo $[n]",
            "[[ $n -gt 3 ]]",
            "[ -v \"$n\" ]",
            "test -v \"$n\"",
            "printf -v \"$n\" x",
            "let n",
            "echo ${s:n}",
            "echo ${s:n:2}",
            "echo ${a[$n]}",
            "echo ${!n}",
            "a[$n]=1",
            "a[n]+=1",
            "cat <<END\n$((n))\nEND",
            "cat <<'END'\n$((n))\nEND\necho $((n))",
            "declare -i m=$n",
            "declare \"$n=1\"",
            "local -n r=$n",
            "read \"$n\"",
            "unset \"$n\"",
            "sleep 0 & wait -n -p \"$n\"",
        ] {
            assert!(construct(text).is_some(), "{text}");
        }
    }

    #[test]
    fn plain_scripts_have_none() {
        for text in [
            "[ \"$n\" -gt 3 ]",
            "if (( 1 + 1 == 2 )); then echo $[3*4]; fi",
            "[[ $n == bug ]]",
            "while read -r line; do echo \"$line\"; done",
            "export PATH=$HOME/bin:$PATH",
            "local name=$1",
            "echo ${x:-y} ${x:?no} ${a[0]} ${a[@]} ${#a[*]}",
            "ls file[ab]* | grep 'x[0-9]'",
            "x=$n; python3 - \"$x\" <<'END'\nprint(((a, b) for a in range(3)))\nEND\necho done",
            "trap 'rm -f \"$tmp\"' EXIT",
            "printf '%s\\n' \"$n\"",
            "wait",
        ] {
            assert_eq!(construct(text), None, "{text}");
        }
    }

    #[test]
    fn values_that_do_something() {
        for value in ["a[$(id)]", "PATH=1", "PATH++", "--PATH", "`id`"] {
            assert!(is_active(value), "{value}");
        }
        for value in ["3", "-3", "x y", "it's; rm -rf /", "v1.2-rc.1"] {
            assert!(!is_active(value), "{value}");
        }
    }
}
