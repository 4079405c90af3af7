//! Tests of the built-in tables: they parse, no program has two, and they mean what they say.

use super::{Arity, ValueClass, builtin, parse, table};

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
    // The index is built without parsing the tables.
    let indexed: Vec<&str> = super::names().collect();
    assert_eq!(all, indexed);
    assert!(count >= 200);
}

/// The page lists every class with its meaning, every trait and key, and its example loads.
#[test]
fn the_page_says_what_there_is() {
    const PAGE: &str = include_str!("README.md");
    for (name, _, meaning) in super::CLASSES {
        assert!(PAGE.contains(&format!("| `{name}` | {meaning} |")), "{name}");
    }
    for word in super::read::TRAITS.iter().chain(&super::read::FLAG_LISTS) {
        assert!(PAGE.contains(&format!("`{word}`")), "{word}");
    }
    for list in crate::policy::helpers::names() {
        assert!(PAGE.contains(&format!("`{list}`")), "{list}");
    }
    let (_, example) = PAGE.split_once("```yaml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let mut files = crate::diag::SourceFiles::new();
    let source = crate::policy::PolicySource {
        name: "page.yaml".to_owned(),
        text: example.to_owned(),
    };
    let loaded = crate::policy::load(&mut files, &[source], &crate::policy::KnownTools::builtin());
    if let Err(problems) = loaded {
        panic!("{}", crate::diag::render_all(&files, &problems));
    }
}

#[test]
fn a_table_reads_as_it_is_written() {
    let profile = builtin("git").unwrap();
    let (_, diff) = profile.subs.iter().find(|(name, _)| name == &["diff"]).unwrap();
    assert_eq!(diff.options.get("--stat"), Some(&Arity::Attached(ValueClass::Free)));
    assert_eq!(diff.options.get("--output"), None);
    assert!(parse("x", "programs: x\nflags: -a\n").is_err());
    assert!(parse("x", "programs: x\noptions: { nothing: -a }\n").is_err());
}
