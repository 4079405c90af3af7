//! Search and listing give the same bytes whatever the locale and whatever order a file system keeps its names in.

use super::harness::{Done, World};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Names that sort, fold or decode differently from one locale to another.
const NAMES: [&[u8]; 18] = [
    b"a.txt",
    b"B.txt",
    b"_c.txt",
    b".hidden.txt",
    b"file10.txt",
    b"file9.txt",
    b"I.txt",
    b"i.txt",
    "İ.txt".as_bytes(),
    "ı.txt".as_bytes(),
    "ä.txt".as_bytes(),
    "a\u{308}.txt".as_bytes(),
    "Z.txt".as_bytes(),
    "ß.txt".as_bytes(),
    "日本.txt".as_bytes(),
    b"latin-\xe4.txt",
    b"with space.txt",
    b"a-b.txt",
];

/// A tree in which everything was made in this order.
fn tree(order: impl Iterator<Item = &'static [u8]> + Clone) -> World {
    let world = World::new();
    for dir in ["sub", "İç", "Sub2", "a"] {
        for name in order.clone() {
            let dir = world.ws().join(dir);
            std::fs::create_dir_all(&dir).unwrap();
            let text = "needle TITLE\ntitle: ilk ışık İstanbul\nIstanbul straße STRASSE\n";
            std::fs::write(dir.join(OsStr::from_bytes(name)), text).unwrap();
        }
    }
    world
}

#[test]
fn listing_and_search_depend_on_no_locale_and_no_order_of_creation() {
    let calls = [
        ("list_directory", json!({ "dir_path": "." }), "Sub2"),
        ("list_directory", json!({ "dir_path": "İç" }), "ı.txt"),
        ("glob", json!({ "pattern": "**/*.TXT" }), "sub/日本.txt"),
        ("glob", json!({ "pattern": "**/i*.txt" }), "sub/I.txt"),
        (
            "glob",
            json!({ "pattern": "I*", "case_sensitive": true, "dir_path": "sub" }),
            "I.txt",
        ),
        (
            "grep_search",
            json!({ "pattern": "istanbul|title" }),
            "L1: needle TITLE",
        ),
        ("grep_search", json!({ "pattern": "i", "fixed_strings": true }), "TITLE"),
        (
            "grep_search",
            json!({ "pattern": r"\bilk\b", "case_sensitive": true }),
            "ilk",
        ),
        (
            "grep_search",
            json!({ "pattern": "title", "names_only": true }),
            "a/B.txt",
        ),
        ("read_many_files", json!({ "include": ["**/*.txt"] }), "straße"),
        (
            "read_many_files",
            json!({ "include": ["sub"], "exclude": ["**/i*"] }),
            "straße",
        ),
    ];
    let forth = tree(NAMES.into_iter());
    let back = tree(NAMES.into_iter().rev());
    for (tool, args, says) in &calls {
        let first = answer(&forth, "C", tool, args);
        assert!(first.contains(says), "{tool} {args} {first}");
        for locale in ["C", "C.UTF-8", "tr_TR.UTF-8"] {
            assert_eq!(answer(&back, locale, tool, args), first, "{tool} {args} {locale}");
        }
    }
}

/// What the call prints.
fn answer(world: &World, locale: &str, tool: &str, args: &Value) -> String {
    let args = args.to_string();
    let mut command = world.command(&["tools", "call", tool, "--args", &args, "--format", "json"]);
    command.env("LC_ALL", locale).env("LANG", locale);
    Done::of(command.output().unwrap()).exits(0).stdout
}
