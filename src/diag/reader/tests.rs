//! Tests of the typed getters: values come out, and all problems of a file at once.

use super::*;
use crate::diag::{SourceFiles, parse, render_all};

fn with<T>(text: &str, read: impl FnOnce(&mut Reader<'_>, &mut Problems) -> T) -> (T, String) {
    let mut files = SourceFiles::new();
    let id = files.add("f.yaml", text);
    let node = parse(&files, id).unwrap();
    let mut problems = Vec::new();
    let mut reader = Reader::open(&node, "the file", &mut problems).unwrap();
    let value = read(&mut reader, &mut problems);
    reader.finish(&mut problems);
    (value, render_all(&files, &problems))
}

#[test]
fn values_come_out() {
    let text = "t: x\nn: 2_000_000\na: 2.00\nb: true\nd: 1h30m\nl: [x, 1]\no: x\nm: {k: v}\nc: tell\nnothing:\n";
    let ((), problems) = with(text, |r, p| {
        assert_eq!(r.text("t", p).unwrap().value, "x");
        assert_eq!(r.whole("n", p).unwrap().value, 2_000_000);
        assert_eq!(r.amount("a", p).unwrap().value, 2.0);
        assert!(r.bool("b", p).unwrap().value);
        assert_eq!(r.duration("d", p).unwrap().value, 5_400_000);
        let list: Vec<String> = r.texts("l", p).unwrap().into_iter().map(|item| item.value).collect();
        assert_eq!(list, ["x", "1"]);
        assert_eq!(r.one_or_more("o", p).unwrap().len(), 1);
        assert_eq!(r.text_map("m", p).unwrap()[0].1.value, "v");
        assert_eq!(r.object("m", p).unwrap()["k"], "v");
        assert_eq!(r.choice("c", &[("tell", 7), ("stop", 8)], p).unwrap().value, 7);
        assert_eq!(r.text("nothing", p), None);
        assert_eq!(r.text("absent", p), None);
    });
    assert_eq!(problems, "");
}

#[test]
fn all_problems_at_once() {
    let text = "n: many\nb: yes\nd: 5\nl: x\nc: tel\nx:\n  - 1\nttt: 1\nq: \"4\"\n";
    let ((), problems) = with(text, |r, p| {
        r.whole("n", p);
        r.bool("b", p);
        r.duration("d", p);
        r.texts("l", p);
        r.choice("c", &[("tell", 7), ("stop", 8)], p);
        r.text("x", p);
        r.whole("q", p);
        r.need_text("tttt", p);
    });
    let firsts: Vec<&str> = problems.lines().filter(|line| line.starts_with("f.yaml")).collect();
    assert_eq!(
        firsts,
        [
            "f.yaml:1:4: error[wrong-type]: `n` must be a whole number such as `40` or `2000000`, found the string \"many\"",
            "f.yaml:2:4: error[wrong-type]: `b` must be `true` or `false`, found the string \"yes\"",
            "f.yaml:3:4: error[wrong-type]: `d` must be a duration such as `5s`, `20m` or `1h30m`, found the number 5",
            "f.yaml:4:4: error[wrong-type]: `l` must be a list such as `[one, two]`, found the string \"x\"",
            "f.yaml:5:4: error[unknown-word]: `c` cannot be `tel`",
            "f.yaml:7:3: error[wrong-type]: `x` must be a string, found a list",
            "f.yaml:9:4: error[wrong-type]: `q` must be a whole number such as `40` or `2000000`, found the string \"4\"",
            "f.yaml:1:1: error[missing-key]: `tttt` is missing in the file",
            "f.yaml:8:1: error[unknown-key]: unknown key `ttt` in the file",
        ]
    );
    assert!(problems.contains("help: did you mean `tttt`?"), "{problems}");
    assert_eq!(problems.matches("help: ").count(), 9);
}

#[test]
fn version_is_one() {
    for (text, good) in [
        ("version: 1", true),
        ("version: 2", false),
        ("version: '1'", false),
        ("{}", false),
    ] {
        let ((), problems) = with(text, |r, p| r.version(p));
        assert_eq!(problems.is_empty(), good, "{text}: {problems}");
    }
}
