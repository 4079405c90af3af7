//! Front ends that lead to one program (`npx eslint`, `python -m pylint`, `.venv/bin/ruff`): their further words are judged by the
//! profile of that program. Knows no option of it.

use super::operands::{of_profile, subcommand};
use super::values::{Pass, defer};
use super::{Effect, Reach, Word};
use crate::base::grant::Starts;
use crate::policy::profiles;

/// Directories of programs that belong to a project.
const OF_PROJECTS: [&str; 3] = [".venv/bin/", "venv/bin/", "node_modules/.bin/"];

/// A way to name a program behind another one.
struct FrontEnd {
    program: &'static str,
    /// Words that lead to the name; nothing where it comes at once.
    words: &'static [&'static str],
    /// Options without a value that may stand before the name and change nothing about what runs.
    flags: &'static [&'static str],
}

const fn front_end(program: &'static str, words: &'static [&'static str], flags: &'static [&'static str]) -> FrontEnd {
    FrontEnd { program, words, flags }
}

const FRONT_ENDS: [FrontEnd; 15] = [
    front_end(
        "npx",
        &[],
        &["-y", "--yes", "--no", "--no-install", "-q", "--quiet", "--"],
    ),
    front_end("bunx", &[], &[]),
    front_end("npm", &["exec"], &["-y", "--yes", "--no", "--"]),
    front_end("npm", &["x"], &["-y", "--yes", "--no", "--"]),
    front_end("pnpm", &["exec"], &["--"]),
    front_end("pnpm", &["dlx"], &["--"]),
    front_end("yarn", &["exec"], &["--"]),
    front_end("yarn", &["run"], &[]),
    front_end("yarn", &[], &[]),
    front_end("python", &["-m"], &[]),
    front_end("python3", &["-m"], &[]),
    front_end(
        "uv",
        &["run"],
        &["--frozen", "--locked", "--offline", "--no-sync", "-q", "--quiet", "--"],
    ),
    front_end("uvx", &[], &["--"]),
    front_end("poetry", &["run"], &["--"]),
    front_end("pipenv", &["run"], &[]),
];

/// Judges the words behind a front end by the profile of the program that it leads to. `false` where `program` is none, where it
/// leads to a program without a profile, and where its own table knows the words better.
pub fn leads(pass: &mut Pass<'_, '_>, program: &str) -> bool {
    if let Some(name) = OF_PROJECTS.iter().find_map(|dir| in_project(program, dir)) {
        return by_profile(pass, name, 1);
    }
    let own = profiles::of(program);
    if own.is_some_and(|profile| subcommand(pass.words, profile, 1).is_some()) {
        return false;
    }
    let found = FRONT_ENDS.iter().find_map(|front_end| {
        (front_end.program == program)
            .then(|| name_at(pass.words, front_end))
            .flatten()
    });
    let Some(at) = found else {
        return false;
    };
    let Some(name) = pass.words.get(at).map(|word| word.exact().map(str::to_owned)) else {
        return false;
    };
    let Some(name) = name else {
        defer(pass, at);
        return true;
    };
    // What stands behind a `--` is handed on as it is (`npm exec eslint -- --fix`).
    let handed_on = pass.words.get(at + 1).and_then(Word::exact) == Some("--");
    by_profile(pass, bare(&name), at + 1 + usize::from(handed_on))
}

/// The name of a program below `dir`, at any depth of the workspace.
fn in_project<'a>(program: &'a str, dir: &str) -> Option<&'a str> {
    let (before, name) = program.rsplit_once(dir)?;
    (program.starts_with("./") && before.ends_with('/') && !name.contains('/')).then_some(name)
}

/// Where the name stands.
fn name_at(words: &[Word], front_end: &FrontEnd) -> Option<usize> {
    let mut at = 1;
    for wanted in front_end.words {
        if words.get(at).and_then(Word::exact) != Some(wanted) {
            return None;
        }
        at += 1;
    }
    while words
        .get(at)
        .and_then(Word::exact)
        .is_some_and(|text| front_end.flags.contains(&text))
    {
        at += 1;
    }
    let word = words.get(at)?;
    (!word.may_be_option()).then_some(at)
}

/// `eslint@9` is eslint; a scope (`@scope/name`) is part of the name.
fn bare(name: &str) -> &str {
    match name.rfind('@') {
        Some(at) if at > 0 => name.get(..at).unwrap_or(name),
        _ => name,
    }
}

/// The words from `start` on by the profile of `name`; what runs comes from the project, so it may do what its own code does.
fn by_profile(pass: &mut Pass<'_, '_>, name: &str, start: usize) -> bool {
    let Some(profile) = profiles::of(name) else {
        return false;
    };
    pass.used.effect = Effect {
        tree: true,
        starts: Starts::Anything,
    };
    // For deny rules, where programs are not judged at their exec: the name behind is a program too.
    pass.used.reach = Reach::Operands;
    of_profile(pass, profile, start);
    true
}

#[cfg(test)]
mod tests {
    use super::super::corpus::TERRAIN;
    use super::super::{Grants, read};

    fn concern(text: &str) -> Option<String> {
        let grants = Grants::default();
        let reading = read(text, "", &TERRAIN, &grants).unwrap();
        reading.commands[0].concern.clone().map(|refusal| refusal.code)
    }

    #[test]
    fn options_are_those_of_the_program_behind() {
        for (text, wanted) in [
            ("npx eslint .", None),
            ("npx --yes eslint@9 --fix src", None),
            ("npx eslint -o x .", Some("unknown_option:-o")),
            ("npx eslint@latest -o x .", Some("unknown_option:-o")),
            ("npx -- eslint -o x", Some("unknown_option:-o")),
            ("npm exec eslint -- --fix src", None),
            (
                "npm exec -- eslint --output-file=x",
                Some("unknown_option:--output-file"),
            ),
            ("pnpm exec prettier --plugin=x .", Some("unknown_option:--plugin")),
            ("yarn tsc --outDir x", Some("unknown_option:--outDir")),
            ("python -m pylint src", None),
            ("python3 -m pylint --output=x src", Some("unknown_option:--output")),
            ("uv run --frozen ruff check src", None),
            ("uv run pylint --output=x src", Some("unknown_option:--output")),
            (
                "poetry run pylint --init-hook=x src",
                Some("unknown_option:--init-hook"),
            ),
            (".venv/bin/pylint src", None),
            ("sub/.venv/bin/pylint --output=x src", Some("unknown_option:--output")),
            ("node_modules/.bin/eslint -o x src", Some("unknown_option:-o")),
        ] {
            assert_eq!(concern(text).as_deref(), wanted, "{text}");
        }
    }
}
