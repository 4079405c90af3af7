//! Tests of the tree, and of whole files in `fixtures/diag` against the text that a user sees.

use super::*;
use crate::diag::{Spanned, render_all};
use serde_json::Value;

fn tree(text: &str) -> (SourceFiles, Result<YamlNode, Vec<Diagnostic>>) {
    let mut files = SourceFiles::new();
    let id = files.add("f.yaml", text);
    let node = parse(&files, id);
    (files, node)
}

fn json(text: &str) -> Value {
    tree(text).1.unwrap().to_json()
}

fn words_of(node: &YamlNode) -> Spanned<String> {
    crate::diag::reader::text(node, "x", &mut Vec::new()).unwrap()
}

/// A recipe of an untrusted tree must not hold up its own refusal.
#[test]
fn many_keys_of_one_map_are_read_in_time() {
    let keys: Vec<String> = (0..40_000).map(|n| format!("{n:x}: 1")).collect();
    let begun = std::time::Instant::now();
    let (_, read) = tree(&format!("{}\n3e8: 2\n", keys.join("\n")));
    let problems = read.unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(begun.elapsed().as_secs() < 4, "{:?}", begun.elapsed());
}

#[test]
fn core_schema_and_quotes() {
    let cases = [
        ("a: 1", r#"{"a":1}"#),
        ("a: '1'", r#"{"a":"1"}"#),
        ("a: yes", r#"{"a":"yes"}"#),
        ("a: true", r#"{"a":true}"#),
        ("a: 2.50", r#"{"a":2.5}"#),
        ("a: 0x1F", r#"{"a":31}"#),
        ("a: 1.2.3", r#"{"a":"1.2.3"}"#),
        ("a: -7", r#"{"a":-7}"#),
        ("a: 1h30m", r#"{"a":"1h30m"}"#),
        ("a: 2_000", r#"{"a":"2_000"}"#),
        ("a: .", r#"{"a":"."}"#),
        ("a: .inf", r#"{"a":".inf"}"#),
        ("a: ~", r#"{"a":null}"#),
        ("a:", r#"{"a":null}"#),
        ("a: [x, {y: z}]", r#"{"a":["x",{"y":"z"}]}"#),
        ("{\"a\": \"b\\n\"}", "{\"a\":\"b\\n\"}"),
        ("a: 12:30:45", r#"{"a":"12:30:45"}"#),
        ("a: 99999999999999999999", r#"{"a":1e20}"#),
        ("", "null"),
        ("# only a comment\n", "null"),
    ];
    for (text, expected) in cases {
        assert_eq!(json(text), serde_json::from_str::<Value>(expected).unwrap(), "{text}");
    }
}

#[test]
fn keys_and_values_know_their_place() {
    let (files, node) = tree("version: 1\nrules:\n  - allow: [a, \"b c\"]\n    why: |\n      one\n      two\n");
    let node = node.unwrap();
    let rules = node.get("rules").unwrap();
    let Shape::List(items) = &rules.shape else {
        unreachable!()
    };
    let Shape::Map(entries) = &items[0].shape else {
        unreachable!()
    };
    assert_eq!(files.place(entries[0].key_span).to_string(), "f.yaml:3:5");
    let Shape::List(words) = &entries[0].value.shape else {
        unreachable!()
    };
    assert_eq!(files.place(words[1].span).to_string(), "f.yaml:3:16");
    assert_eq!(files.slice(words[1].span), "\"b c\"");
    assert_eq!(files.place(entries[1].key_span).to_string(), "f.yaml:4:5");
    let two = words_of(&entries[1].value).locate(&files, 4..7);
    assert_eq!(files.place(two).to_string(), "f.yaml:6:7");
}

#[test]
fn a_stretch_of_text_is_found_in_every_style() {
    for text in [
        "p: x {{ x }} y",
        "p: \"x\\t{{ x }} y\"",
        "p: 'it''s x {{ x }}'",
        "p: >\n  x\n  {{ x }}\n",
        "p: |\n  x\n\n  {{ x }}\n",
    ] {
        let (files, node) = tree(text);
        let node = node.unwrap();
        let value = node.get("p").unwrap();
        let value = words_of(value);
        let at = value.value.find("{{").unwrap();
        let span = value.locate(&files, at + 3..at + 4);
        assert_eq!(span.start, text.find("{{").unwrap() + 3, "{text}");
    }
}

#[test]
fn fixtures_show_what_the_user_sees() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/diag");
    let mut seen = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let mut files = SourceFiles::new();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let id = files.add(name, std::fs::read_to_string(&path).unwrap());
        let shown = match parse(&files, id) {
            Ok(node) => format!("{:#}\n", node.to_json()),
            Err(problems) => render_all(&files, &problems),
        };
        let expected = path.with_extension("txt");
        if std::env::var_os("OVERNIGHT_BLESS").is_some() {
            std::fs::write(&expected, &shown).unwrap();
        }
        assert_eq!(shown, std::fs::read_to_string(&expected).unwrap(), "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 8, "only {seen} fixtures in {}", dir.display());
}

#[test]
fn budgets_hold() {
    let deep = "[".repeat(40) + &"]".repeat(40);
    assert_eq!(tree(&deep).1.unwrap_err()[0].code, "yaml-too-deep");
    let wide = format!("[{}]", "1,".repeat(100_001));
    assert_eq!(tree(&wide).1.unwrap_err()[0].code, "yaml-too-deep");
    let large = "#".repeat(MAX_BYTES + 1);
    assert_eq!(tree(&large).1.unwrap_err()[0].code, "file-too-large");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ -~\n\t:\\[\\]{}&*!|>'\"#äß€-]{0,200}") {
        let (files, node) = tree(&text);
        if let Err(problems) = node {
            proptest::prop_assert!(!problems.is_empty());
            let shown = render_all(&files, &problems);
            proptest::prop_assert!(shown.starts_with("f.yaml:"), "{}", shown);
        }
    }

    #[test]
    fn json_is_read_as_json(value in "[a-z]{1,6}", number in proptest::prelude::any::<i64>(), flag in proptest::prelude::any::<bool>()) {
        let wanted = serde_json::json!({"a": [value, number, flag, null], "b": {"c": "x\ny\"z\\"}});
        proptest::prop_assert_eq!(json(&wanted.to_string()), wanted.clone());
        proptest::prop_assert_eq!(json(&format!("{wanted:#}")), wanted);
    }
}

/// The usual slips, each with the place and the remedy.
#[test]
fn a_syntax_error_says_what_to_write() {
    for (text, place, help) in [
        (
            "steps:\n  - id:a\n    prompt: x\n",
            "2:5",
            "write a space after the colon: `id: a`",
        ),
        (
            "version:1\nname: x\n",
            "1:1",
            "write a space after the colon: `version: 1`",
        ),
        (
            "version: 1\nname:x\nsteps: []\n",
            "2:1",
            "write a space after the colon: `name: x`",
        ),
        ("a: 1\nprompt: @file\n", "2:9", "quote a text that begins with `@`"),
        ("prompt: %x\n", "1:9", "quote a text that begins with `%`"),
        (
            "prompt: 'it's'\n",
            "1:13",
            "write `''` for a quote inside single quotes",
        ),
        (
            "prompt: \"a\" b\n",
            "1:13",
            "write `\\\"` for a quote inside double quotes",
        ),
        ("a:\n  - prompt: \"open\n  - id: b\n", "2:13", "close this quote"),
        (
            "a:\n  prompt: |\n  text here\n  more\n",
            "3:3",
            "indent the text below `|`",
        ),
        // A template on the line is not what is wrong there.
        (
            "prompt: 'it's {{ input }}'\n",
            "1:13",
            "write `''` for a quote inside single quotes",
        ),
        (
            "a:\n  prompt: |\n  {{ input }} text\n  more\n",
            "3:3",
            "indent the text below `|`",
        ),
    ] {
        let (files, read) = tree(text);
        let problem = read.unwrap_err().pop().unwrap();
        assert_eq!(
            files.place(problem.span.unwrap()).to_string(),
            format!("f.yaml:{place}")
        );
        assert!(
            problem.help.as_deref().unwrap().starts_with(help),
            "{text}: {problem:?}"
        );
    }
}
