//! What the output of git's reading commands may be. Judges nothing.

use super::flow::{dashing, token};
use super::scope::{State, Walk};
use super::{Range, Tame, Word, place};
use crate::base::access::Found;

/// A subcommand with only these options (or some of them) prints this.
struct Known {
    sub: &'static [&'static str],
    /// One of these must be given; empty for no need.
    needs: &'static [&'static str],
    only: &'static [&'static str],
    tame: Tame,
}

const KNOWN: [Known; 8] = [
    Known {
        sub: &["rev-parse"],
        needs: &[],
        only: &["--short", "--verify", "--abbrev-ref", "-q", "--quiet"],
        tame: Tame::Token,
    },
    Known {
        sub: &["merge-base", "hash-object", "write-tree"],
        needs: &[],
        only: &[],
        tame: Tame::Token,
    },
    Known {
        sub: &["rev-list"],
        needs: &[],
        only: &[
            "--count",
            "-n",
            "--max-count",
            "--all",
            "--max-parents",
            "--no-merges",
            "-1",
        ],
        tame: Tame::Token,
    },
    Known {
        sub: &["describe"],
        needs: &[],
        only: &["--tags", "--always", "--abbrev", "--long"],
        tame: Tame::Token,
    },
    Known {
        sub: &["branch"],
        needs: &["--show-current"],
        only: &["--show-current"],
        tame: Tame::Inside,
    },
    Known {
        sub: &["ls-files"],
        needs: &[],
        only: &[
            "-m",
            "-o",
            "-z",
            "-c",
            "-d",
            "--modified",
            "--others",
            "--exclude-standard",
            "--cached",
            "--deleted",
            "--",
        ],
        tame: Tame::Inside,
    },
    Known {
        sub: &["diff", "diff-tree", "show"],
        needs: &["--name-only"],
        only: &[
            "--name-only",
            "--diff-filter",
            "--cached",
            "--staged",
            "-z",
            "--",
            "-r",
            "--no-commit-id",
        ],
        tame: Tame::Inside,
    },
    Known {
        sub: &["grep"],
        needs: &["-l", "--files-with-matches", "--name-only"],
        only: &["-l", "-i", "-E", "--name-only", "--files-with-matches", "-w", "-F"],
        tame: Tame::Inside,
    },
];

/// The output of `git` with these words.
pub fn output(walk: &Walk<'_>, state: &State, words: &[&Word]) -> Range {
    let Some((sub, rest)) = words.split_first() else {
        return Range::wild();
    };
    let Some(sub) = sub.exact() else {
        return Range::wild();
    };
    let flags: Vec<&str> = rest
        .iter()
        .filter_map(|word| word.exact())
        .filter(|text| text.starts_with('-'))
        .collect();
    if sub == "rev-parse" && flags == ["--show-toplevel"] && rest.len() == 1 {
        return toplevel(walk, state);
    }
    // A value that may become an option could change what is printed.
    if rest.is_empty() && sub == "rev-parse" || rest.iter().any(|word| word.range.dash && word.exact().is_none()) {
        return Range::wild();
    }
    if matches!(sub, "log" | "show") && is_id_format(&flags) {
        return token();
    }
    let named = |flag: &str, names: &[&str]| names.iter().any(|name| flag.split('=').next() == Some(name));
    let fits = |known: &&Known| {
        known.sub.contains(&sub)
            && flags.iter().all(|flag| named(flag, known.only))
            && (known.needs.is_empty() || flags.iter().any(|flag| named(flag, known.needs)))
    };
    match KNOWN.iter().find(fits) {
        // The names of files may begin with a dash; those of branches may not.
        Some(known) if known.tame == Tame::Inside && sub != "branch" => dashing(Range::of(known.tame)),
        Some(known) => Range::of(known.tame),
        None => Range::wild(),
    }
}

fn is_id_format(flags: &[&str]) -> bool {
    let format = |flag: &&str| {
        flag.strip_prefix("--format=")
            .or_else(|| flag.strip_prefix("--pretty=format:"))
            .or_else(|| flag.strip_prefix("--pretty="))
            .is_some_and(|format| matches!(format, "%H" | "%h" | "%ct" | "%at" | "%T" | "%P"))
    };
    flags.iter().any(&format)
        && flags
            .iter()
            .all(|flag| format(flag) || matches!(*flag, "-s" | "-1" | "-n" | "--no-patch" | "-n1"))
}

/// The root of the working tree: the workspace's own root, when its `.git` lies there and none lies nearer.
fn toplevel(walk: &Walk<'_>, state: &State) -> Range {
    let is_root = |dir: &str| !matches!((walk.terrain.locate)(&place::join(dir, ".git")).found, Found::Nothing);
    let [dir] = state.dirs.as_slice() else {
        return Range::wild();
    };
    let mut ups = Vec::new();
    let mut here = dir.as_str();
    loop {
        if is_root(here) {
            break;
        }
        if here.is_empty() {
            return Range::wild();
        }
        ups.push("..");
        here = here.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    let path = if ups.is_empty() { ".".to_owned() } else { ups.join("/") };
    Range::one_of(vec![path])
}
