//! The tables themselves: they parse, no program has two, and they say what they seem to.

use super::{Arity, Class, builtin, parse, table};

#[test]
fn every_table_parses_and_no_program_has_two() {
    let mut all: Vec<String> = Vec::new();
    let mut wrong = Vec::new();
    for (file, text) in table::ALL {
        match parse(file, text) {
            Ok(profile) => all.extend(profile.names),
            Err(problems) => wrong.push(problems),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a program has two tables");
    // The index is made without a parse.
    let indexed: Vec<&str> = super::names().collect();
    assert_eq!(all, indexed);
    assert!(count >= 200);
}

#[test]
fn a_table_reads_as_it_is_written() {
    let profile = builtin("git").unwrap();
    let (_, diff) = profile.subs.iter().find(|(name, _)| name == &["diff"]).unwrap();
    assert_eq!(diff.options.get("--stat"), Some(&Arity::Attached(Class::Free)));
    assert_eq!(diff.options.get("--output"), None);
    assert!(parse("x", "programs: x\nflags: -a\n").is_err());
    assert!(parse("x", "programs: x\noptions: { nothing: -a }\n").is_err());
}
