//! Programs that run the command given as their operands: removed by an exact grammar of their options. An operand that
//! does not match the grammar is a concern.

use super::scope::CommandWalk;
use super::{CommandRefusal, ShellWord, WordKind, assign, option_name};

/// What follows a program's name.
pub enum WrapperStep {
    /// No wrapper, or one without a command.
    Plain,
    /// A command inside a command.
    Inner(Vec<ShellWord>),
    /// A shell text.
    Text(String),
    /// A wrapper whose options are not understood, so that its command is unknown.
    Odd(usize, CommandRefusal),
}

/// The options of a wrapper.
struct Grammar {
    name: &'static str,
    flags: &'static [&'static str],
    /// Options with a value: the next word, or attached (`-n5`, `--adjustment=5`).
    valued: &'static [&'static str],
    /// Number of words between the options and the command.
    operands: usize,
    /// Whether `-5` is an option.
    numbers: bool,
}

const GRAMMARS: [Grammar; 8] = [
    Grammar {
        name: "timeout",
        flags: &["--preserve-status", "--foreground", "-v", "--verbose"],
        valued: &["-k", "--kill-after", "-s", "--signal"],
        operands: 1,
        numbers: false,
    },
    Grammar {
        name: "nice",
        flags: &[],
        valued: &["-n", "--adjustment"],
        operands: 0,
        numbers: true,
    },
    Grammar {
        name: "ionice",
        flags: &["-t"],
        valued: &["-c", "-n", "--class", "--classdata"],
        operands: 0,
        numbers: false,
    },
    Grammar {
        name: "nohup",
        flags: &[],
        valued: &[],
        operands: 0,
        numbers: false,
    },
    Grammar {
        name: "stdbuf",
        flags: &[],
        valued: &["-i", "-o", "-e", "--input", "--output", "--error"],
        operands: 0,
        numbers: false,
    },
    Grammar {
        name: "builtin",
        flags: &[],
        valued: &[],
        operands: 0,
        numbers: false,
    },
    Grammar {
        name: "command",
        flags: &[],
        valued: &[],
        operands: 0,
        numbers: false,
    },
    Grammar {
        name: "xargs",
        flags: &[
            "-0",
            "--null",
            "-r",
            "--no-run-if-empty",
            "-t",
            "--verbose",
            "-x",
            "--exit",
            "-0r",
            "-r0",
        ],
        valued: &[
            "-n",
            "--max-args",
            "-P",
            "--max-procs",
            "-L",
            "--max-lines",
            "-d",
            "--delimiter",
            "-s",
            "--max-chars",
            "-E",
        ],
        operands: 0,
        numbers: false,
    },
];

/// Programs that run others but are not treated as wrappers: deny rules examine their operands nevertheless.
pub const LAUNCHERS: [&str; 44] = [
    "sudo",
    "doas",
    "su",
    "chroot",
    "unshare",
    "nsenter",
    "ssh",
    "docker",
    "podman",
    "parallel",
    "watch",
    "script",
    "setsid",
    "flock",
    "systemd-run",
    "at",
    "crontab",
    "strace",
    "ltrace",
    "gdb",
    "busybox",
    "npx",
    "pnpx",
    "bunx",
    "uvx",
    "runuser",
    "setpriv",
    "firejail",
    "proot",
    "fakeroot",
    "entr",
    "env",
    "timeout",
    "nice",
    "ionice",
    "nohup",
    "stdbuf",
    "builtin",
    "command",
    "xargs",
    "time",
    "bash",
    "sh",
    "dash",
];

/// Whether the program runs a command that it is given, so that what it executes is judged.
pub fn is_wrapper(program: &str) -> bool {
    matches!(program, "env" | "bash" | "sh" | "dash" | "find" | "time")
        || GRAMMARS.iter().any(|one| one.name == program)
}

/// The index of the word with which the command itself begins, where the words begin with assignments or with a wrapper
/// and its own words. Both are taken off before a rule is looked up, so that no command matches such a prefix.
pub fn behind(words: &[&str]) -> Option<usize> {
    let is_assignment = |word: &&&str| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let assigned = words.iter().take_while(is_assignment).count();
    if assigned > 0 {
        return Some(assigned);
    }
    let (first, rest) = words.split_first()?;
    let at = match *first {
        "command" | "builtin" => return None,
        "env" | "time" => {
            let own = rest
                .iter()
                .take_while(|word| word.starts_with('-') || is_assignment(word));
            1 + own.count()
        }
        name => {
            let grammar = GRAMMARS.iter().find(|grammar| grammar.name == name)?;
            let words: Vec<ShellWord> = words.iter().copied().map(ShellWord::known).collect();
            skip_options(grammar, &words).ok()? + grammar.operands
        }
    };
    (at < words.len()).then_some(at)
}

/// Interprets the words after the first one. Sets `leads_code` if `env` sets a variable that makes the inner command
/// load code of the tree.
///
/// # Errors
/// `assignment:*` for names that `env` may not set or remove.
pub fn step(
    walk: &CommandWalk<'_>,
    words: &[ShellWord],
    program: &str,
    leads_code: &mut bool,
) -> Result<WrapperStep, CommandRefusal> {
    match program {
        "env" => env(walk, words, leads_code),
        "bash" | "sh" | "dash" => Ok(shell(words)),
        "command" if words.get(1).is_some_and(|word| word.text == "-v" || word.text == "-V") => Ok(WrapperStep::Plain),
        "xargs" => Ok(xargs(words)),
        _ => Ok(GRAMMARS
            .iter()
            .find(|grammar| grammar.name == program)
            .map_or(WrapperStep::Plain, |grammar| plain(grammar, words))),
    }
}

fn odd(at: usize, word: Option<&ShellWord>) -> WrapperStep {
    let text = word.map_or("", |word| word.text.as_str());
    let fix = match text.contains("{}") {
        true => "pass `{}` as an argument: `sh -c 'wc -l \"$1\"' _ {}`",
        false => "run the command directly",
    };
    WrapperStep::Odd(
        at,
        CommandRefusal::new(
            format!("unknown_option:{text}"),
            format!("`{text}` hides which command runs"),
            fix,
        ),
    )
}

fn plain(grammar: &Grammar, words: &[ShellWord]) -> WrapperStep {
    match skip_options(grammar, words) {
        Ok(at) if at + grammar.operands < words.len() => {
            let skipped = &words[at..at + grammar.operands];
            if let Some(bad) = skipped.iter().position(|word| word.exact().is_none()) {
                return odd(at + bad, words.get(at + bad));
            }
            WrapperStep::Inner(words[at + grammar.operands..].to_vec())
        }
        Ok(_) => WrapperStep::Plain,
        Err(at) => odd(at, words.get(at)),
    }
}

/// The index of the first word that is not an option, or of the first one that is not understood.
fn skip_options(grammar: &Grammar, words: &[ShellWord]) -> Result<usize, usize> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(text) = word.exact() else {
            return Err(at);
        };
        if text == "--" {
            return Ok(at + 1);
        }
        if !text.starts_with('-') || text == "-" {
            return Ok(at);
        }
        let long = option_name(text);
        if grammar.flags.contains(&text) || (grammar.numbers && text[1..].parse::<u32>().is_ok()) {
            at += 1;
        } else if grammar.valued.contains(&text) {
            match words.get(at + 1) {
                Some(value) if value.exact().is_some() => at += 2,
                _ => return Err(at),
            }
        } else if (text.starts_with("--") && long != text && grammar.valued.contains(&long))
            || (!text.starts_with("--") && text.get(..2).is_some_and(|short| grammar.valued.contains(&short)))
        {
            at += 1;
        } else {
            return Err(at);
        }
    }
    Ok(at)
}

fn env(walk: &CommandWalk<'_>, words: &[ShellWord], leads_code: &mut bool) -> Result<WrapperStep, CommandRefusal> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.exact() {
            // Without the variables that are set for commands, git and other programs would read the machine's own
            // settings.
            Some("-i" | "-" | "--ignore-environment") => return Err(assign::removed("-i")),
            Some("-u" | "--unset") => {
                let Some(name) = words.get(at + 1).and_then(ShellWord::exact) else {
                    return Ok(odd(at, Some(word)));
                };
                assign::may_be_removed(name)?;
                at += 2;
            }
            Some("--") => {
                at += 1;
                break;
            }
            Some(text) if text.starts_with("--unset=") => {
                assign::may_be_removed(&text["--unset=".len()..])?;
                at += 1;
            }
            Some(text) if text.starts_with('-') => return Ok(odd(at, Some(word))),
            Some(text) if text.contains('=') => break,
            Some(_) => break,
            None => break,
        }
    }
    while let Some(word) = words.get(at) {
        let source = word.exact().unwrap_or(&word.head);
        let Some((name, value)) = source.split_once('=') else {
            break;
        };
        let value = word
            .exact()
            .map_or_else(|| ShellWord::unknown(&word.text, ""), |_| ShellWord::known(value));
        *leads_code |= assign::before(walk, name, &value)?;
        at += 1;
    }
    if at >= words.len() {
        return Ok(WrapperStep::Plain);
    }
    Ok(WrapperStep::Inner(words[at..].to_vec()))
}

/// Only `bash -c TEXT` is interpreted; other uses are those of an ordinary program. The words after TEXT become `$0`, `$1`
/// …; inside TEXT their values count as unknown.
fn shell(words: &[ShellWord]) -> WrapperStep {
    let mut at = 1;
    let mut text_follows = false;
    while let Some(text) = words.get(at).and_then(ShellWord::exact) {
        match text {
            "-o" if words
                .get(at + 1)
                .is_some_and(|value| matches!(value.exact(), Some("pipefail" | "errexit" | "nounset"))) =>
            {
                at += 1
            }
            // `+x` turns an option off; the text still follows.
            _ if text.starts_with('+') && text.len() > 1 && text[1..].chars().all(|flag| "eux".contains(flag)) => {}
            _ if text.starts_with('-') && text.len() > 1 && text[1..].chars().all(|flag| "ceux".contains(flag)) => {
                text_follows |= text.contains('c');
            }
            _ if text.starts_with('-')
                && text[1..]
                    .strip_suffix('o')
                    .is_some_and(|rest| rest.chars().all(|flag| "ceux".contains(flag))) =>
            {
                text_follows |= text.contains('c');
                if words.get(at + 1).is_none_or(|value| value.exact() != Some("pipefail")) {
                    return odd(at, words.get(at));
                }
                at += 1;
            }
            _ => break,
        }
        at += 1;
    }
    if !text_follows {
        return WrapperStep::Plain;
    }
    match words.get(at).and_then(ShellWord::exact) {
        Some(text) if !text.starts_with(['-', '+']) => WrapperStep::Text(text.to_owned()),
        _ => odd(at.min(words.len().saturating_sub(1)), words.get(at)),
    }
}

fn xargs(words: &[ShellWord]) -> WrapperStep {
    let Some(grammar) = GRAMMARS.iter().find(|grammar| grammar.name == "xargs") else {
        return WrapperStep::Plain;
    };
    // `-I MARK` precedes the command and determines where the values are inserted.
    let mark_at = words.iter().position(|word| word.text.starts_with("-I"));
    let mut mark = None;
    let mut rest = words.to_vec();
    if let Some(at) = mark_at.filter(|&at| {
        words[1..at]
            .iter()
            .all(|word| word.exact().is_some_and(|text| grammar.flags.contains(&text)))
    }) {
        let glued = words[at]
            .exact()
            .and_then(|text| text.strip_prefix("-I"))
            .unwrap_or_default();
        let (found, length) = if glued.is_empty() {
            (words.get(at + 1).and_then(ShellWord::exact).unwrap_or_default(), 2)
        } else {
            (glued, 1)
        };
        if found.is_empty() {
            return odd(at, words.get(at));
        }
        mark = Some(found.to_owned());
        rest.drain(at..(at + length).min(words.len()));
    }
    match skip_options(grammar, &rest) {
        Err(at) => odd(at, rest.get(at)),
        Ok(at) if at >= rest.len() => WrapperStep::Plain,
        Ok(at) => WrapperStep::Inner(match mark {
            Some(mark) => rest[at..].iter().map(|word| filled(word, &mark)).collect(),
            None => {
                let mut words = rest[at..].to_vec();
                words.push(ShellWord::unknown("(standard input)", ""));
                words
            }
        }),
    }
}

/// A word in which `mark` is replaced by an unknown value.
pub fn filled(word: &ShellWord, mark: &str) -> ShellWord {
    match word.text.split_once(mark) {
        Some((head, _)) if word.kind != WordKind::Unknown => ShellWord::unknown(&word.text, head),
        _ => word.clone(),
    }
}
