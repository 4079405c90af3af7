//! Tests of `replace` calls through the registry, on a tree.

use crate::base::call::Display;
use crate::tools::testing::TestWorkspace;
use serde_json::{Value, json};

fn args(path: &str, old: &str, new: &str) -> Value {
    json!({"file_path": path, "old_string": old, "new_string": new})
}

fn kind(bench: &TestWorkspace, args: &Value) -> String {
    match bench.run("replace", args).map(|ran| ran.result) {
        Ok(Err(crate::tools::ToolError::Model { kind, .. })) => kind.to_owned(),
        other => format!("{:?}", other.map(|result| result.map(|output| output.summary))),
    }
}

fn on_disk(bench: &TestWorkspace, path: &str) -> Vec<u8> {
    std::fs::read(bench.path(path)).unwrap()
}

#[test]
fn an_edit_keeps_mark_and_line_ends_and_shows_its_lines() {
    let bench = TestWorkspace::new(&[("a.txt", b"\xef\xbb\xbfone\r\n\ttwo\r\nthree")]);
    let ran = bench
        .run("replace", &args("a.txt", "  two\nthree\n", "  2\n  2b\nthree\n"))
        .unwrap();
    assert_eq!(ran.preview.unwrap().added, 2);
    assert_eq!(ran.access.writes.len(), 1);
    let output = ran.result.unwrap();
    assert_eq!(on_disk(&bench, "a.txt"), b"\xef\xbb\xbfone\r\n\t2\r\n\t2b\r\nthree");
    let told = output.model_text();
    assert!(
        told.starts_with("Edited a.txt (indentation-tolerant match; +2 -1 lines)"),
        "{told}"
    );
    assert!(told.contains("+    2: \t2"), "{told}");
    assert!(matches!(output.display, Display::Diff(_)));
    assert_eq!(output.locations.first().unwrap().line, Some(2));
}

#[test]
fn an_empty_old_text_makes_files_only_where_none_is() {
    let bench = TestWorkspace::new(&[("empty", b""), ("full", b"x\n"), ("near.rs", b"y\n")]);
    assert_eq!(
        bench
            .run("edit", &args("dir/new.rs", "", "a\n"))
            .unwrap()
            .result
            .unwrap()
            .summary,
        "created dir/new.rs (+1 -0)"
    );
    assert_eq!(on_disk(&bench, "dir/new.rs"), b"a\n");
    assert!(bench.run("replace", &args("empty", "", "a\n")).unwrap().result.is_ok());
    assert_eq!(on_disk(&bench, "empty"), b"a\n");
    assert_eq!(
        kind(&bench, &args("full", "", "a\n")),
        "attempt_to_create_existing_file"
    );
    assert_eq!(kind(&bench, &args("nera.rs", "y", "z")), "file_not_found");
    assert_eq!(
        kind(&bench, &args("new", "", "// ... rest of the code ...\n")),
        "omission_placeholder"
    );
    assert_eq!(on_disk(&bench, "full"), b"x\n");
}

/// However short the new text is: this run made the edit, and nothing has changed the file since.
#[test]
fn an_edit_that_was_just_made_is_said_to_be() {
    let bench = TestWorkspace::new(&[("a.txt", b"}\none\ntwo\n")]);
    let told = |old: &str, new: &str| bench.run("replace", &args("a.txt", old, new)).unwrap().result;
    for (old, new, line) in [
        ("one", "}", "new_string is at line 2"),
        ("two\n", "", "it was at line 3"),
    ] {
        assert!(told(old, new).unwrap().model_text().starts_with("Edited"));
        let again = told(old, new).unwrap().model_text();
        assert!(again.contains("already made") && again.contains(line), "{again}");
    }
    assert!(told("one", "}").is_err(), "another edit came after it");
    assert_eq!(on_disk(&bench, "a.txt"), b"}\n}\n");
}

#[test]
fn misses_have_their_kinds_and_change_nothing() {
    let before = b"a b\na c\n";
    let bench = TestWorkspace::new(&[("f", before), ("bin", b"\0\x01\x02")]);
    assert_eq!(kind(&bench, &args("f", "a", "x")), "edit_expected_occurrence_mismatch");
    assert_eq!(kind(&bench, &args("f", "zzz", "x")), "edit_no_occurrence_found");
    assert_eq!(kind(&bench, &args("f", "a b", "a b")), "edit_no_change");
    assert_eq!(kind(&bench, &args("bin", "a", "b")), "binary_file");
    assert_eq!(on_disk(&bench, "f"), before);
    let all = json!({"file_path": "f", "old_string": "a", "new_string": "x", "expected_replacements": 2});
    assert!(bench.run("replace", &all).unwrap().result.is_ok());
    assert_eq!(on_disk(&bench, "f"), b"x b\nx c\n");
}

#[test]
fn a_file_that_others_changed_is_noticed() {
    let bench = TestWorkspace::new(&[("f", b"one\ntwo\n")]);
    bench.run("read_file", &json!({"file_path": "f"})).unwrap();
    std::fs::write(bench.path("f"), "one\nTWO\n").unwrap();
    assert_eq!(kind(&bench, &args("f", "one", "1")), "file_changed");
    bench.run("read_file", &json!({"file_path": "f"})).unwrap();
    assert!(bench.run("replace", &args("f", "one", "1")).unwrap().result.is_ok());
    assert!(bench.run("replace", &args("f", "1", "2")).unwrap().result.is_ok());
}

#[test]
fn what_may_not_be_read_is_not_shown_before_the_ruling() {
    let bench = TestWorkspace::with(&[("key.pem", b"secret\n")], |workspace| {
        workspace.set_unreadable(Box::new(|_, path| path.ends_with(".pem")));
    });
    assert!(
        bench
            .run("replace", &args("key.pem", "secret", "x"))
            .unwrap()
            .preview
            .is_none()
    );
}

#[test]
fn what_a_command_of_the_model_changed_is_read_again_and_said() {
    let bench = TestWorkspace::new(&[("a.txt", b"one\ntwo\n")]);
    bench.text_of("read_file", &json!({"file_path": "a.txt"}));
    let told = |tool: &str, args: &Value| bench.text_of(tool, args);
    told("run_shell_command", &json!({"command": "sed -i s/one/1/ a.txt"}));
    let missed = told("replace", &args("a.txt", "one\n", "x\n"));
    assert!(missed.contains("a command of yours had changed the file"), "{missed}");
    let edited = told("replace", &args("a.txt", "1\ntwo\n", "1\n2\n"));
    assert!(edited.starts_with("Edited a.txt (exact match"), "{edited}");
    assert!(edited.contains("a command of yours had changed the file"), "{edited}");
    assert_eq!(on_disk(&bench, "a.txt"), b"1\n2\n");
    let again = told("replace", &args("a.txt", "2\n", "3\n"));
    assert!(again.starts_with("Edited") && !again.contains("had changed"), "{again}");
    // A change from outside the run is refused, as is a whole-file write that is based on an outdated read.
    std::fs::write(bench.path("a.txt"), "1\n4\n").unwrap();
    assert_eq!(kind(&bench, &args("a.txt", "4", "5")), "file_changed");
    told("read_file", &json!({"file_path": "a.txt"}));
    told("run_shell_command", &json!({"command": "sed -i s/4/6/ a.txt"}));
    let whole = told("write_file", &json!({"file_path": "a.txt", "content": "1\n5\n"}));
    assert!(
        whole.starts_with("file_changed: a.txt was changed by a command of yours"),
        "{whole}"
    );
}
