//! Finds the words of a deny rule in other spellings: abbreviated, in a group of short options, in the long or short
//! form of an option, as an alias of a subcommand, after operands. If in doubt, a word matches.

use super::npm_names;
use super::spellings::{
    BETWEEN, COMMANDS, DASHLESS, INCLUDED, MIXED, OPERANDS, OPTIONS, OWN_COMMANDS, PLACES, PROGRAMS, SCRIPT_RUNNERS,
    SUBCOMMANDS, VERSIONED, WITH_OBJECTS, WITH_TARGETS,
};

/// The name under which the tables have a program: without a version, and the first of its names.
pub fn family(program: &str) -> &str {
    let is_version = |rest: &str| {
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let mut versioned = VERSIONED.into_iter();
    let plain = versioned.find(|name| program.strip_prefix(name).is_some_and(is_version));
    let name = plain.unwrap_or(program);
    let names = PROGRAMS.iter().find(|names| names.contains(&name));
    names.and_then(|names| names.first().copied()).unwrap_or(name)
}

/// Whether a program is the one that a deny rule names, by another name or in another version.
pub fn is_program(wanted: &str, program: &str) -> bool {
    wanted == program || family(wanted) == family(program)
}

/// Other commands that mean the same as one that begins with these words: for each, how many of the words it replaces,
/// and by which.
pub fn same_commands(words: &[&str]) -> Vec<(usize, Vec<String>)> {
    let Some((first, rest)) = words.split_first() else {
        return Vec::new();
    };
    let program = family(first.rsplit('/').next().unwrap_or(first));
    let listed = |text: &'static str| -> Vec<&'static str> { text.split_whitespace().collect() };
    let begins = |form: &[&str]| {
        form.len() <= rest.len()
            && form
                .iter()
                .zip(rest)
                .all(|(wanted, word)| is_subcommand(program, wanted, word))
    };
    let groups = COMMANDS.iter().filter(|(programs, _)| programs.contains(&program));
    let mut found = Vec::new();
    for (_, forms) in groups {
        let Some(given) = forms.iter().find(|form| begins(&listed(form))) else {
            continue;
        };
        for other in forms.iter().filter(|form| *form != given) {
            let replaced = std::iter::once(program).chain(listed(other));
            found.push((1 + listed(given).len(), replaced.map(str::to_owned).collect()));
        }
    }
    // `yarn run deploy` does the same as `yarn deploy`.
    if let [run, name, ..] = rest
        && SCRIPT_RUNNERS.contains(&program)
        && is_subcommand(program, "run", run)
        && !name.starts_with('-')
    {
        found.push((2, vec![program.to_owned()]));
    }
    // And the reverse. `yarn run publish` is a script of that name, and not the command `yarn publish`.
    if let [name, ..] = rest
        && SCRIPT_RUNNERS.contains(&program)
        && !name.starts_with('-')
        && !is_subcommand(program, "run", name)
        && !OWN_COMMANDS.contains(name)
    {
        found.push((1, vec![program.to_owned(), "run".to_owned()]));
    }
    for pair in BETWEEN {
        for (given, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let mut form = given.split_whitespace();
            if form.next() != Some(program) {
                continue;
            }
            let behind: Vec<&str> = form.collect();
            if begins(&behind) {
                let replaced = listed(other).into_iter().map(str::to_owned);
                found.push((1 + behind.len(), replaced.collect()));
            }
        }
    }
    found
}

/// Whether a word, or the one before it, only chooses where the command that follows runs (`yarn workspace NAME`).
pub fn chooses_place(program: &str, before: Option<&str>, word: &str) -> bool {
    let chooses = |word: &str| PLACES.contains(&(program, word));
    chooses(word) || before.is_some_and(chooses)
}

/// Whether an operand before the wanted word may be a further target or a setting.
pub fn has_targets(program: &str) -> bool {
    WITH_TARGETS.contains(&program)
}

/// Whether options of git before the subcommand define aliases, or read a file that may, so that the subcommand may be any
/// (`git -c alias.x=push x`). Git runs one of its own in the same process, so no exec shows it.
pub fn sets_commands(words: &[Option<&str>]) -> bool {
    let defines = |setting: &str| {
        let setting = setting.to_ascii_lowercase();
        setting.starts_with("alias.") || setting.starts_with("include")
    };
    let mut before = "";
    for word in words {
        let Some(word) = word else { return false };
        let attached = word.strip_prefix("--config-env=").or_else(|| word.strip_prefix("-c"));
        if ["-c", "--config-env"].contains(&before) && defines(word) || attached.is_some_and(defines) {
            return true;
        }
        if !word.starts_with('-') && !before.starts_with('-') {
            return false;
        }
        before = word;
    }
    false
}

/// Whether a word of a deny rule is an option, which may be anywhere in the command.
pub fn is_option(wanted: &str) -> bool {
    wanted.len() > 1 && wanted.starts_with('-') && wanted != "--"
}

/// The words in which to look for an option of a deny rule, out of those after the program: the words after the
/// subcommand that the rule names before it; otherwise only those before operands, because options after operands may
/// belong to another program or a subcommand (`git -c`, `bash -c`).
pub fn place_of_options<'a, 'b>(program: &str, words: &'a [Option<&'b str>], at: usize) -> &'a [Option<&'b str>] {
    if at > 0 || MIXED.contains(&program) {
        return words.get(at..).unwrap_or_default();
    }
    let dashed =
        |word: Option<&Option<&str>>| word.is_some_and(|word| word.is_none_or(|word| word.starts_with(['-', '+'])));
    let leads = |at: usize| dashed(words.get(at)) || at > 0 && dashed(words.get(at - 1));
    let end = (0..words.len()).take_while(|at| leads(*at)).count();
    words.get(..end).unwrap_or_default()
}

/// Whether the command ends here, as the `$` of a rule demands. If the rule has options, remaining options are ignored,
/// because the rule's own may be among them.
pub fn is_end(has_options: bool, words: &[Option<&str>]) -> bool {
    words.is_empty() || has_options && words.iter().all(|word| word.is_some_and(|word| word.starts_with('-')))
}

/// Whether a word is this subcommand of the program, or an alias or accepted abbreviation of it.
pub fn is_subcommand(program: &str, wanted: &str, word: &str) -> bool {
    let names = SUBCOMMANDS
        .iter()
        .filter(|(programs, names)| programs.contains(&program) && names.contains(&wanted))
        .flat_map(|(_, names)| names.iter().copied());
    let names: Vec<&str> = std::iter::once(wanted).chain(names).collect();
    let fits = |word: &str| {
        names.contains(&word)
            || program == "npm" && npm_names::may_mean(wanted, word).unwrap_or_default()
            || program == "pnpm" && names.iter().any(|name| is_pattern_of(word, name))
    };
    let mut objects = word.split(',').filter_map(|object| object.split(['/', '.']).next());
    fits(word) || WITH_OBJECTS.contains(&program) && objects.any(fits)
}

/// Whether the word is a regular expression for names of scripts (`pnpm run "/^dep/"`) that may match the name. Only
/// anchors and `.*` are evaluated; an expression with anything else counts as a match.
fn is_pattern_of(word: &str, name: &str) -> bool {
    let Some(pattern) = word.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) else {
        return false;
    };
    let (from_start, body) = match pattern.strip_prefix('^') {
        Some(body) => (true, body),
        None => (false, pattern),
    };
    let (to_end, body) = match body.strip_suffix('$') {
        Some(body) => (true, body),
        None => (false, body),
    };
    let is_plain = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b":_-".contains(&byte))
    };
    let parts: Vec<&str> = body.split(".*").collect();
    if !parts.iter().all(|part| is_plain(part)) {
        return true;
    }
    let mut rest = name;
    for (index, part) in parts.iter().enumerate() {
        let found = match index == 0 && from_start {
            true => rest.starts_with(part).then_some(0),
            false => rest.find(part),
        };
        let Some(at) = found else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    let last = parts.last().copied().unwrap_or_default();
    !to_end || rest.is_empty() || parts.len() > 1 && name.ends_with(last) || !from_start && name.ends_with(last)
}

/// Whether some word before `--` may be this option. `None` is an unknown word, which may be anything if `unknown` is
/// set.
pub fn has_option(program: &str, words: &[Option<&str>], wanted: &str, unknown: bool) -> bool {
    let all: Vec<&str> = words.iter().copied().flatten().collect();
    let words: Vec<Option<&str>> = words.iter().copied().take_while(|word| *word != Some("--")).collect();
    if words.iter().any(Option::is_none) && unknown {
        return true;
    }
    let dashless = words.first().copied().flatten();
    let dashless = dashless.filter(|word| DASHLESS.contains(&program) && !word.starts_with('-'));
    let group = dashless.map(|word| format!("-{word}"));
    let words: Vec<&str> = words.into_iter().flatten().chain(group.as_deref()).collect();
    if words.iter().any(|word| is_same(word, wanted)) || means_option(program, &all, wanted) {
        return true;
    }
    let mut included = INCLUDED.iter().filter(|(of, ..)| *of == program);
    if included.any(|(_, given, included)| {
        is_named(program, wanted, included) && words.iter().any(|word| is_same(word, &format!("--{given}")))
    }) {
        return true;
    }
    // The long name, and other letters for it, such as `-R` for `-r` of `rm`.
    let long = |letter: char| {
        let mut names = forms(program)
            .filter(|(short, _)| *short == letter)
            .map(|(_, name)| name);
        names.any(|name| {
            let mut letters = forms(program).filter(|(_, long)| *long == name);
            words.iter().any(|word| is_same(word, &format!("--{name}")))
                || letters.any(|(short, _)| has_letter(&words, short))
        })
    };
    let either = |letter: char| has_letter(&words, letter) || long(letter);
    if let Some(name) = wanted.strip_prefix("--") {
        let name = name.split('=').next().unwrap_or_default();
        return forms(program).any(|(letter, long)| long == name && either(letter));
    }
    let letters: Vec<char> = wanted.chars().skip(1).collect();
    // Up to three letters are a group of short options; more are a long option with one dash.
    if letters.len() > 3 || !letters.iter().all(char::is_ascii_alphanumeric) {
        return false;
    }
    match (program, letters.as_slice()) {
        // `git branch -D` is `git branch -d -f`.
        ("git", ['D']) => either('D') || (either('d') && either('f')),
        (_, letters) => letters.iter().all(|letter| either(*letter)),
    }
}

/// Whether the option `wanted` of a deny rule is the short or long form of the option with this long name.
fn is_named(program: &str, wanted: &str, long: &str) -> bool {
    let letters = forms(program).filter(|(_, name)| *name == long);
    let mut letters = letters.map(|(letter, _)| format!("-{letter}"));
    wanted == format!("--{long}") || letters.any(|letter| wanted == letter)
}

/// Whether an operand has the effect of the option (`+main` forces `git push`), before or after `--`.
fn means_option(program: &str, words: &[&str], wanted: &str) -> bool {
    let mut known = OPERANDS.iter().filter(|(of, ..)| *of == program);
    known.any(|(_, sign, long)| is_named(program, wanted, long) && words.iter().any(|word| word.starts_with(*sign)))
}

/// Whether the words before `--` have the option with this value: in the next word, or attached (`-XPOST`,
/// `--request=POST`).
pub fn has_value(program: &str, words: &[Option<&str>], option: &str, value: &str) -> bool {
    let words: Vec<&str> = words
        .iter()
        .take_while(|word| **word != Some("--"))
        .flatten()
        .copied()
        .collect();
    let is_option = |word: &str| has_option(program, &[Some(word)], option, false);
    let is_attached = |word: &&str| {
        let before = word.strip_suffix(value).filter(|before| before.len() > 1);
        before.is_some_and(|before| is_option(before.strip_suffix('=').unwrap_or(before)))
    };
    let is_next = |pair: &[&str]| matches!(pair, [before, word] if *word == value && is_option(before));
    words.iter().any(is_attached) || words.windows(2).any(is_next)
}

fn forms(program: &str) -> impl Iterator<Item = (char, &'static str)> {
    let known = OPTIONS.iter().filter(move |(programs, _)| programs.contains(&program));
    known.flat_map(|(_, forms)| forms.iter().copied())
}

/// The option itself, with an attached value, abbreviated, or with another number of dashes.
fn is_same(word: &str, wanted: &str) -> bool {
    if word == wanted || word.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('=')) {
        return true;
    }
    let bare = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
    match wanted.strip_prefix("--") {
        Some(name) => {
            let given = word.strip_prefix("--").map(bare).unwrap_or_default();
            let value = wanted.contains('=');
            // Some programs take their long options with one dash, too.
            let one_dash = name.len() > 1 && word.strip_prefix('-').map(bare).is_some_and(|given| given == name);
            // One letter is enough where no other option begins with it.
            !value && (one_dash || !given.is_empty() && name.starts_with(&given))
        }
        None => wanted.len() > 2 && word.starts_with("--") && bare(word).strip_prefix('-') == Some(wanted),
    }
}

/// Whether a group of short options has this letter. After the first character that is not a letter or digit, the rest
/// is a value.
fn has_letter(words: &[&str], letter: char) -> bool {
    let group = |word: &&str| word.len() > 1 && word.starts_with('-') && !word.starts_with("--");
    words.iter().filter(|word| group(word)).any(|word| {
        let mut letters = word.chars().skip(1).take_while(char::is_ascii_alphanumeric);
        letters.any(|c| c == letter)
    })
}

/// The modules that Python may run (`-m pip`, `-mpip`, `-Im pip`), each with the index of the word after it.
pub fn modules(program: &str, words: &[Option<&str>]) -> Vec<(String, usize)> {
    if !program.starts_with("python") && !program.starts_with("pypy") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().skip(1) {
        let Some(group) = word.filter(|word| word.len() > 1 && !word.starts_with("--")) else {
            continue;
        };
        let Some((before, name)) = group.strip_prefix('-').and_then(|letters| letters.split_once('m')) else {
            continue;
        };
        if !before.chars().all(|c| c.is_ascii_alphabetic()) {
            continue;
        }
        let (name, behind) = match name {
            "" => (words.get(at + 1).copied().flatten().unwrap_or_default(), at + 2),
            name => (name, at + 1),
        };
        let first = name.split('.').next().unwrap_or_default();
        if !first.is_empty() {
            found.push((first.to_owned(), behind));
        }
    }
    found
}
