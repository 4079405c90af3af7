//! What the output of a command may be, so far as later words depend on it: numbers, names inside the workspace, or anything. Judges nothing.

use super::scope::{State, Walk};
use super::{Range, Tame, Word, WordKind, flow_git as git};

/// The output of one command.
pub fn output(walk: &Walk<'_>, state: &State, program: &str, words: &[Word], redirected: bool) -> Range {
    let rest: Vec<&Word> = words.iter().skip(1).collect();
    let operands: Vec<&&Word> = rest
        .iter()
        .filter(|word| word.exact().is_none_or(|text| !text.starts_with('-')))
        .collect();
    let has = |names: &[&str]| {
        rest.iter()
            .any(|word| word.exact().is_some_and(|text| names.contains(&text)))
    };
    let input = || {
        if redirected {
            Range::wild()
        } else {
            state.input.clone().unwrap_or_else(Range::wild)
        }
    };
    match program {
        "cd" | "true" | "false" | ":" | "test" | "[" | "mkdir" | "touch" | "rm" | "sleep" => super::walk::silent(),
        "pwd" => Range::one_of(vec![".".to_owned()]),
        "nproc" | "id" if operands.is_empty() => token(),
        "seq" if rest.iter().all(|word| super::simple::is_number(word)) => numbers(&rest),
        "date" if rest.iter().all(|word| word.exact().is_some_and(is_date_format)) => token(),
        "wc" if operands.is_empty() => token(),
        "git" => git::output(walk, state, &rest),
        "find" => find(walk, state, &rest),
        "ls" if operands.is_empty() && !shows_more(&rest) => dashing(Range::of(Tame::Inside)),
        "grep" | "rg" if lists_names(&rest) => dashing(Range::of(Tame::Inside)),
        "grep" if rest.iter().any(|word| word.exact() == Some("-c")) && operands.len() <= 2 && !redirected => {
            counted(&rest)
        }
        // Filters that pass lines on as they are.
        "sort" | "uniq" | "tac" | "shuf" if operands.is_empty() => input(),
        "head" | "tail" if operands.iter().all(|word| super::simple::is_number(word)) => input(),
        "grep" if operands.len() == 1 && !has(&["-o", "-n", "-f", "--only-matching"]) && plain_flags(&rest) => input(),
        "cat" if rest.is_empty() => input(),
        "tr" if rest.iter().all(|word| word.exact().is_some_and(keeps_names)) => input(),
        "basename" | "dirname" => last_or_parent(&operands, rest.len()),
        _ => Range::wild(),
    }
}

/// Whether `ls` prints more than plain names, or the hidden ones as well.
fn shows_more(rest: &[&Word]) -> bool {
    rest.iter().any(|word| {
        word.exact().is_none_or(|text| {
            let short = text.starts_with('-') && !text.starts_with("--");
            (short && text.contains(['l', 'R', 'a', 'A', 'f', 'n', 'o', 'g', 's', 'i'])) || text.ends_with("all")
        })
    })
}

/// A number or name of an object.
pub fn token() -> Range {
    Range::of(Tame::Token)
}

/// The same, but it may begin with a dash.
pub fn dashing(range: Range) -> Range {
    Range { dash: true, ..range }
}

fn numbers(rest: &[&Word]) -> Range {
    Range {
        dash: rest.iter().any(|word| word.range.dash),
        ..token()
    }
}

/// `grep -c`: a number, or `name:number` for several files.
fn counted(rest: &[&Word]) -> Range {
    if rest
        .iter()
        .any(|word| matches!(word.exact(), Some("-r" | "-R" | "-rc" | "-H")))
    {
        Range::wild()
    } else {
        token()
    }
}

fn is_date_format(text: &str) -> bool {
    text == "-u"
        || text.strip_prefix('+').is_some_and(|format| {
            format.starts_with(|first: char| first == '%' || first.is_ascii_alphanumeric())
                && format
                    .chars()
                    .all(|next| next == '%' || next.is_ascii_alphanumeric() || "_:.- ".contains(next))
                && !format.contains("%D")
                && !format.contains("%x")
                && !format.contains("..")
        })
}

fn lists_names(rest: &[&Word]) -> bool {
    let lists = |text: &str| {
        matches!(text, "--files" | "--files-with-matches" | "--files-without-match")
            || (text.starts_with('-')
                && !text.starts_with("--")
                && text.contains(['l', 'L'])
                && text[1..].chars().all(|flag| "rRlLiEFwnsIHhqv".contains(flag)))
    };
    let inside = |word: &&&Word| {
        word.exact()
            .is_none_or(|text| text.starts_with('-') || (!text.starts_with(['/', '~']) && !text.contains("..")))
    };
    rest.iter().any(|word| word.exact().is_some_and(lists)) && rest.iter().filter(inside).count() == rest.len()
}

fn plain_flags(rest: &[&Word]) -> bool {
    rest.iter().all(|word| {
        word.exact().is_none_or(|text| {
            !text.starts_with('-') || text[1..].chars().all(|flag| "viEFwxqzm0123456789P".contains(flag))
        })
    })
}

fn keeps_names(text: &str) -> bool {
    matches!(
        text,
        "-d" | "-s" | "\\n" | "\\0" | "\\t" | " " | "\\r" | "\n" | "[:space:]" | "\\n\\r" | "\\000"
    )
}

/// `basename` and `dirname` of a plain name stay a plain name.
fn last_or_parent(operands: &[&&Word], words: usize) -> Range {
    let tame = |word: &&&Word| match word.kind {
        WordKind::Known => !word.text.contains("..") && !word.text.starts_with(['/', '~']),
        _ => match &word.range.values {
            Some(values) => values
                .iter()
                .all(|text| !text.contains("..") && !text.starts_with(['/', '~', '-'])),
            None => word.range.tame < Tame::Wild,
        },
    };
    if operands.is_empty() || operands.len() != words || !operands.iter().all(tame) {
        return Range::wild();
    }
    Range {
        dash: operands.iter().any(|word| word.range.dash) || operands.iter().any(|word| word.text.contains("/-")),
        ..Range::of(Tame::Inside)
    }
}

fn find(walk: &Walk<'_>, state: &State, rest: &[&Word]) -> Range {
    let has = |names: &[&str]| rest.iter().any(|word| names.contains(&word.text.as_str()));
    if has(&[
        "-printf", "-exec", "-execdir", "-ls", "-L", "-follow", "-fprintf", "-ok", "-okdir",
    ]) {
        return Range::wild();
    }
    let roots = rest
        .iter()
        .take_while(|word| word.exact().is_none_or(|text| !text.starts_with(['-', '(', '!'])));
    for root in roots {
        let Some(uses) = super::place::uses(walk, state, root) else {
            return Range::wild();
        };
        if root.range.dash
            || uses
                .iter()
                .any(|found| found.place.as_ref().is_none_or(|place| !place.inside))
        {
            return Range::wild();
        }
    }
    Range::of(Tame::Inside)
}
