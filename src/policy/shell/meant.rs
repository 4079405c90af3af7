//! Finds the words of a deny rule in other spellings: abbreviated, in a group of short options, in the long or short
//! form of an option, as an alias of a subcommand, after operands. If in doubt, a word matches.

/// Programs, and the short letter and long name of their options.
type OptionForms = (&'static [&'static str], &'static [(char, &'static str)]);

/// Other forms of options, by program.
const FORMS: [OptionForms; 8] = [
    (
        &["git"],
        &[
            ('f', "force"),
            ('d', "delete"),
            ('n', "no-verify"),
            ('i', "interactive"),
            ('o', "output"),
        ],
    ),
    (
        &["rm", "cp", "mv", "chmod", "chown", "chgrp", "ln"],
        &[('r', "recursive"), ('R', "recursive"), ('f', "force")],
    ),
    (
        &["sed", "gsed"],
        &[('i', "in-place"), ('f', "file"), ('e', "expression")],
    ),
    (
        &["curl"],
        &[
            ('X', "request"),
            ('o', "output"),
            ('d', "data"),
            ('T', "upload-file"),
            ('F', "form"),
            ('H', "header"),
            ('k', "insecure"),
            ('K', "config"),
        ],
    ),
    (
        &["docker", "podman", "nerdctl"],
        &[
            ('i', "interactive"),
            ('t', "tty"),
            ('d', "detach"),
            ('v', "volume"),
            ('p', "publish"),
            ('e', "env"),
        ],
    ),
    (&["npm", "pnpm"], &[('g', "global"), ('f', "force")]),
    (
        &["tar", "gtar", "bsdtar"],
        &[
            ('x', "extract"),
            ('x', "get"),
            ('c', "create"),
            ('t', "list"),
            ('r', "append"),
            ('u', "update"),
            ('A', "concatenate"),
            ('A', "catenate"),
            ('f', "file"),
            ('C', "directory"),
            ('P', "absolute-names"),
            ('I', "use-compress-program"),
        ],
    ),
    (
        &["gh"],
        &[
            ('X', "method"),
            ('f', "raw-field"),
            ('F', "field"),
            ('H', "header"),
            ('R', "repo"),
        ],
    ),
];

/// Other names of subcommands.
const NAMES: [(&str, &str, &[&str]); 13] = [
    ("npm", "install", &["i", "in", "add", "isntall"]),
    ("npm", "uninstall", &["un", "unlink", "remove", "rm", "r"]),
    ("npm", "exec", &["x"]),
    ("npm", "run", &["run-script", "rum", "urn"]),
    ("npm", "test", &["t", "tst"]),
    ("pnpm", "install", &["i"]),
    ("pnpm", "remove", &["rm", "un", "uninstall"]),
    ("cargo", "build", &["b"]),
    ("cargo", "check", &["c"]),
    ("cargo", "test", &["t"]),
    ("cargo", "run", &["r"]),
    ("cargo", "doc", &["d"]),
    ("cargo", "remove", &["rm"]),
];

/// The fewest characters of an abbreviated subcommand.
const SHORTEST: usize = 2;

/// Programs that are also installed under their name with a version (`pip3`, `python3.12`).
const VERSIONED: [&str; 3] = ["pip", "python", "pypy"];

/// Programs whose operands are several targets in any order, and settings (`make CC=gcc clean deploy`).
const WITH_TARGETS: [&str; 12] = [
    "make", "gmake", "ninja", "just", "task", "rake", "ant", "gradle", "gradlew", "mvn", "mvnw", "tox",
];

/// Programs whose first word may be a group of short options without a dash (`tar xzf a.tgz`).
const DASHLESS: [&str; 3] = ["tar", "gtar", "bsdtar"];

/// Whether a program is the one that a deny rule names, or another version of it.
pub fn is_program(wanted: &str, program: &str) -> bool {
    let name = |text: &str| -> Option<&'static str> {
        let is_version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let mut names = VERSIONED.into_iter();
        names.find(|name| text.strip_prefix(name).is_some_and(is_version))
    };
    wanted == program || name(wanted).is_some_and(|wanted| name(program) == Some(wanted))
}

/// Whether an operand before the wanted word may be a further target or a setting.
pub fn has_targets(program: &str) -> bool {
    WITH_TARGETS.contains(&program)
}

/// Whether a word of a deny rule is an option, which may be anywhere in the command.
pub fn is_option(wanted: &str) -> bool {
    wanted.len() > 1 && wanted.starts_with('-') && wanted != "--"
}

/// Programs that accept options after operands, and have no subcommands.
const MIXED: [&str; 15] = [
    "rm", "cp", "mv", "chmod", "chown", "chgrp", "ln", "sed", "gsed", "curl", "wget", "tar", "gtar", "bsdtar", "find",
];

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
    let named =
        |(of, name, others): &(&str, &str, &[&str])| *of == program && *name == wanted && others.contains(&word);
    let short = matches!(program, "npm") && word.len() > SHORTEST && wanted.starts_with(word);
    word == wanted || short || NAMES.iter().any(named)
}

/// Whether some word before `--` may be this option. `None` is an unknown word, which may be anything if `unknown` is
/// set.
pub fn has_option(program: &str, words: &[Option<&str>], wanted: &str, unknown: bool) -> bool {
    let words: Vec<Option<&str>> = words.iter().copied().take_while(|word| *word != Some("--")).collect();
    if words.iter().any(Option::is_none) && unknown {
        return true;
    }
    let dashless = words.first().copied().flatten();
    let dashless = dashless.filter(|word| DASHLESS.contains(&program) && !word.starts_with('-'));
    let group = dashless.map(|word| format!("-{word}"));
    let words: Vec<&str> = words.into_iter().flatten().chain(group.as_deref()).collect();
    if words.iter().any(|word| is_same(word, wanted)) {
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

fn forms(program: &str) -> impl Iterator<Item = (char, &'static str)> {
    let known = FORMS.iter().filter(move |(programs, _)| programs.contains(&program));
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
            // One letter is enough where no other option begins with it.
            !value && !given.is_empty() && name.starts_with(&given)
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
