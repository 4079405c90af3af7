//! Journals, results and all that lies beside them, changed by somebody: every change is found, and nobody acts on it.

use super::harness::{Done, World, calls, open_policy, says, script, shell, writes};
use overnight::journal::format;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const KEY: &str = "a key that only the runner has";

/// A run that has everything: a patch, a kept result, all reports.
fn finished(world: &World) -> String {
    let replies = [
        writes("b.txt", "b\n"),
        shell("seq 20000"),
        calls("read_file", json!({"file_path": "a.txt"})),
        says("done"),
    ];
    world
        .run(&script(&replies), &open_policy(&["seq"]), &["-p", "x"])
        .exits(0);
    world.out().to_string_lossy().into_owned()
}

fn tree() -> World {
    World::repo(&[("a.txt", "one\n")])
}

fn verify(world: &World, out: &str) -> Done {
    world.call(&["runs", "verify", out])
}

/// The same as a machine sees it that did not run it: another state directory.
pub fn elsewhere(world: World) -> World {
    let home = world.path().join("elsewhere");
    std::fs::create_dir_all(&home).unwrap();
    world.env("HOME", home.to_string_lossy())
}

/// All files of a run but its store.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() == "git" => {}
            true => found.extend(files(&entry.path())),
            false if entry.file_name() == ".gitignore" => {}
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

/// One place of each class of byte, and the edges.
fn places(bytes: &[u8]) -> Vec<usize> {
    let classes: [fn(&u8) -> bool; 7] = [
        |byte| byte.is_ascii_digit(),
        |byte| byte.is_ascii_lowercase(),
        |byte| byte.is_ascii_uppercase(),
        |byte| *byte == b'"',
        |byte| b"{}[]<>".contains(byte),
        |byte| *byte == b' ',
        |byte| *byte == b'\n',
    ];
    let middle = bytes.len() / 2;
    let of_class = classes.iter().filter_map(|class| {
        let behind = bytes.iter().skip(middle).position(class).map(|at| at + middle);
        behind.or_else(|| bytes.iter().position(class))
    });
    let mut places: Vec<usize> = of_class.chain([0, middle, bytes.len() - 1]).collect();
    places.sort_unstable();
    places.dedup();
    places
}

#[test]
fn every_changed_byte_of_every_file_is_found() {
    let world = tree();
    let out = finished(&world);
    verify(&world, &out).exits(0);
    let all = files(&world.out());
    let names: Vec<String> = all
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    for name in [
        "changes.patch",
        "junit.xml",
        "report.html",
        "result.json",
        "summary.md",
        "transcript.json",
        "c2",
    ] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    let mut tried = 0;
    for path in all {
        let whole = std::fs::read(&path).unwrap();
        for at in places(&whole) {
            let mut changed = whole.clone();
            // Another character of the same class where there is one.
            changed[at] = match changed[at] {
                byte @ (b'0'..=b'8' | b'a'..=b'y' | b'A'..=b'Y') => byte + 1,
                b' ' => b'\t',
                _ => b' ',
            };
            std::fs::write(&path, &changed).unwrap();
            let done = verify(&world, &out);
            assert_ne!(done.code, 0, "byte {at} of {}", path.display());
            assert!(done.stderr.starts_with("error: "), "{}", done.stderr);
            tried += 1;
        }
        for changed in [&whole[..whole.len() - 1], &[whole.as_slice(), b"\n"].concat(), b""] {
            std::fs::write(&path, changed).unwrap();
            assert_ne!(
                verify(&world, &out).code,
                0,
                "{} bytes of {}",
                changed.len(),
                path.display()
            );
        }
        std::fs::remove_file(&path).unwrap();
        assert_ne!(verify(&world, &out).code, 0, "{} is missing", path.display());
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert_ne!(verify(&world, &out).code, 0, "{} is a link", path.display());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(tried > 50, "{tried}");
    for extra in ["blobs/0123", "results/c9", "suspension.md", "suspension.json"] {
        std::fs::write(world.out().join(extra), "more").unwrap();
        let done = verify(&world, &out).exits(1);
        assert!(
            done.stderr.contains(&format!("{extra} does not belong to this run")),
            "{}",
            done.stderr
        );
        std::fs::remove_file(world.out().join(extra)).unwrap();
    }
    verify(&world, &out).exits(0);
    // Entries that no output is made from.
    let note = world.out().join("note.txt");
    std::fs::write(&note, "more").unwrap();
    std::fs::create_dir(world.out().join("sub")).unwrap();
    let store = world.out().join("git");
    std::fs::rename(&store, world.path().join("store")).unwrap();
    let done = verify(&world, &out).exits(1);
    for said in [
        ": note.txt does not belong to this run",
        ": sub does not belong to this run",
        ": git/ is missing",
    ] {
        assert!(done.stderr.contains(said), "{said}: {}", done.stderr);
    }
    std::fs::remove_file(note).unwrap();
    std::fs::remove_dir(world.out().join("sub")).unwrap();
    std::fs::rename(world.path().join("store"), store).unwrap();
    // A delivery adds its log.
    std::fs::write(world.out().join("deliver.jsonl"), "").unwrap();
    verify(&world, &out).exits(0);
    // What is made again is the same again.
    world.call(&["report", &out]).exits(0);
    verify(&world, &out).exits(0);
}

fn lines(out: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(out.join("journal.jsonl")).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn entry(line: &str) -> Value {
    serde_json::from_str::<Value>(line).unwrap()["entry"].clone()
}

/// The journal of these events with a chain that holds, as anybody can write one.
fn chained(events: &[Value]) -> String {
    let mut chain = String::new();
    let mut text = String::new();
    for event in events {
        let (line, link) = format::encode(&chain, &event.to_string(), None);
        text.push_str(&line);
        text.push('\n');
        chain = link;
    }
    text
}

#[test]
fn a_cut_journal_is_found_by_everybody_who_reads_it() {
    let world = tree();
    let out = finished(&world);
    let path = world.out().join("journal.jsonl");
    let whole = lines(&world.out());
    let policy = world.beside("policy.yaml", open_policy(&["seq"]));
    let replay = format!("replay:{out}");
    let mut reordered = whole.clone();
    reordered.swap(3, 4);
    for cut in [whole[..8].to_vec(), whole[..whole.len() - 1].to_vec(), reordered] {
        std::fs::write(&path, cut.join("\n") + "\n").unwrap();
        verify(&world, &out).exits(1);
        for args in [
            vec!["report", &out],
            vec!["report", &out, "--format", "text"],
            vec!["resume", &out],
        ] {
            let done = world.call(&args).exits(8);
            assert!(done.stderr.contains("damaged"), "{args:?}: {}", done.stderr);
        }
        let again = world.path().join("again").to_string_lossy().into_owned();
        world
            .call(&[
                "run", "-p", "x", "--model", &replay, "--policy", &policy, "--out", &again,
            ])
            .exits(8);
    }
    // On a machine that does not know the run, the result tells.
    std::fs::write(&path, whole[..8].join("\n") + "\n").unwrap();
    let there = elsewhere(world);
    let done = verify(&there, &out).exits(1);
    assert!(done.stderr.contains("it was truncated"), "{}", done.stderr);
    let done = there.call(&["resume", &out, "--policy", &policy]).exits(8);
    assert!(done.stderr.contains("it was truncated"), "{}", done.stderr);
    // The control: the whole journal there.
    std::fs::write(&path, whole.join("\n") + "\n").unwrap();
    verify(&there, &out).exits(0);
    there.call(&["report", &out, "--format", "text"]).exits(0);
}

#[test]
fn a_journal_that_was_written_anew_is_not_the_one_that_this_machine_wrote() {
    let world = tree();
    let out = finished(&world);
    let events: Vec<Value> = lines(&world.out()).iter().map(|line| entry(line)).collect();
    let text = serde_json::to_string(&events).unwrap().replace("b.txt", "c.txt");
    let forged: Vec<Value> = serde_json::from_str(&text).unwrap();
    std::fs::write(world.out().join("journal.jsonl"), chained(&forged)).unwrap();
    verify(&world, &out).exits(1);
    world.call(&["report", &out]).exits(8);
    // Where nobody knows the run, it is at odds with the result, and with no result it is not whole.
    let there = elsewhere(world);
    verify(&there, &out).exits(1);
    std::fs::remove_file(there.out().join("result.json")).unwrap();
    let done = verify(&there, &out).exits(1);
    assert!(done.stderr.contains("result.json is missing"), "{}", done.stderr);
}

#[test]
fn a_key_is_demanded_and_binds_result_and_artefacts() {
    let world = tree().env("OVERNIGHT_JOURNAL_KEY", KEY);
    let out = finished(&world);
    assert!(lines(&world.out())[0].starts_with("{\"mac\":\""));
    let done = verify(&world, &out).exits(0);
    assert!(done.stdout.contains("keyed"), "{}", done.stdout);
    let other = |key: Option<&str>, args: &[&str]| {
        let mut command = world.command(args);
        match key {
            Some(key) => command.env("OVERNIGHT_JOURNAL_KEY", key),
            None => command.env_remove("OVERNIGHT_JOURNAL_KEY"),
        };
        Done::of(command.output().unwrap())
    };
    let done = other(None, &["runs", "verify", &out]).exits(1);
    assert!(done.stderr.contains("set OVERNIGHT_JOURNAL_KEY"), "{}", done.stderr);
    other(None, &["report", &out]).exits(8);
    other(None, &["resume", &out]).exits(8);
    let done = other(Some("another key of this length"), &["runs", "verify", &out]).exits(1);
    assert!(done.stderr.contains("another key"), "{}", done.stderr);
    let done = other(Some(""), &["runs", "verify", &out]).exits(1);
    assert!(done.stderr.contains("has 0 bytes"), "{}", done.stderr);
    let (model, policy) = (world.path().join("script.yaml"), world.path().join("policy.yaml"));
    let (model, policy) = (
        format!("script:{}", model.display()),
        policy.to_string_lossy().into_owned(),
    );
    let done = other(
        Some("short"),
        &["run", "-p", "x", "--model", &model, "--policy", &policy],
    )
    .exits(8);
    assert!(done.stderr.contains("has 5 bytes"), "{}", done.stderr);
    // Files and digests changed together: only the key tells.
    let result = world.out().join("result.json");
    let whole = std::fs::read_to_string(&result).unwrap();
    let kept = world.out().join("results/c2");
    let mut bytes = std::fs::read(&kept).unwrap();
    let before = overnight::base::ids::sha256_hex(&[&bytes]);
    bytes[0] = b'7';
    std::fs::write(&kept, &bytes).unwrap();
    let after = overnight::base::ids::sha256_hex(&[&bytes]);
    assert!(whole.contains(&before));
    std::fs::write(&result, whole.replace(&before, &after)).unwrap();
    let done = verify(&world, &out).exits(1);
    assert!(
        done.stderr.contains("is not authenticated by the key"),
        "{}",
        done.stderr
    );
    // A journal without a key in the place of one under it.
    let events: Vec<Value> = lines(&world.out()).iter().map(|line| entry(line)).collect();
    std::fs::write(world.out().join("journal.jsonl"), chained(&events)).unwrap();
    std::fs::remove_dir_all(world.path().join("home/.local")).unwrap();
    let done = verify(&world, &out).exits(1);
    assert!(done.stderr.contains("without a key"), "{}", done.stderr);
    world.call(&["resume", &out]).exits(8);
}

#[test]
fn a_journal_of_the_first_version_is_read() {
    let world = tree();
    let out = finished(&world);
    let result = world.out().join("result.json");
    let mut old: Value = serde_json::from_str(&std::fs::read_to_string(&result).unwrap()).unwrap();
    for name in ["journal", "digests"] {
        old.as_object_mut().unwrap().remove(name);
    }
    std::fs::write(&result, format!("{old:#}\n")).unwrap();
    std::fs::remove_dir_all(world.path().join("home/.local")).unwrap();
    let done = verify(&world, &out).exits(1);
    assert!(done.stderr.contains("overnight report"), "{}", done.stderr);
    world.call(&["report", &out]).exits(0);
    verify(&world, &out).exits(0);
}

/// Writes a journal anew with its text changed, and a chain that holds.
pub fn forged_journal(out: &Path, change: impl FnOnce(String) -> String) {
    let events: Vec<Value> = lines(out).iter().map(|line| entry(line)).collect();
    let text = change(serde_json::to_string(&events).unwrap());
    let forged: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_ne!(events, forged, "nothing was changed");
    std::fs::write(out.join("journal.jsonl"), chained(&forged)).unwrap();
}

/// Appends events to a journal, with a chain that holds.
pub fn appended(out: &Path, more: &[Value]) {
    let path = out.join("journal.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for event in more {
        let last: Value = serde_json::from_str(text.lines().next_back().unwrap()).unwrap();
        let mut event = event.clone();
        event["seq"] = json!(text.lines().count());
        event["at"] = json!("2026-01-01T00:00:00Z");
        let (line, _) = format::encode(last["chain"].as_str().unwrap(), &event.to_string(), None);
        text.push_str(&line);
        text.push('\n');
    }
    std::fs::write(path, text).unwrap();
}

/// Sets the recorded end of a run: that of a process which was killed behind this many events.
fn recorded(world: &World, events: usize, open: bool) {
    let lines = lines(&world.out());
    let run = entry(&lines[0])["run"].as_str().unwrap().to_owned();
    let last: Value = serde_json::from_str(&lines[events - 1]).unwrap();
    let path = world.path().join("home/.local/state/overnight/heads").join(run);
    let mut head: Value =
        serde_json::from_str(std::fs::read_to_string(&path).unwrap().lines().next().unwrap()).unwrap();
    head["events"] = json!(events);
    head["head"] = last["chain"].clone();
    head["open"] = json!(open);
    std::fs::write(path, format!("{head}\n")).unwrap();
}

#[test]
fn what_stands_behind_the_recorded_end_of_a_journal_does_not_count() {
    let world = tree();
    let ask = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file }\n  - { allow: write_file, paths: \
               ['**'] }\nsandbox: { level: none }\n";
    let replies = script(&[writes("b.txt", "b\n"), says("done")]);
    world.run(&replies, ask, &["-p", "x"]).exits(5);
    let out = world.out().to_string_lossy().into_owned();
    let path = world.out().join("journal.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    let count = whole.lines().count();
    let resumed = json!({"event": "resumed", "by": "x", "model": "m"});
    let approved = json!({"event": "approved", "call": "c1", "allow": true, "by": "x"});
    let warned = json!({"event": "warned", "code": "w", "message": "m"});
    let mut passed = entry(whole.lines().next_back().unwrap());
    passed["outcome"]["verdict"] = json!("passed");
    // An end was recorded: nothing follows it.
    for more in [
        vec![resumed.clone(), approved.clone()],
        vec![resumed.clone(), passed.clone()],
        vec![warned.clone()],
    ] {
        appended(&world.out(), &more);
        let commands: [(&[&str], i32); 4] = [
            (&["runs", "verify", &out], 1),
            (&["resume", &out], 8),
            (&["report", &out], 8),
            (&["deliver", &out, "--to", "branch"], 1),
        ];
        for (args, code) in commands {
            let done = world.call(args).exits(code);
            let all = format!("{}{}", done.stdout, done.stderr);
            assert!(all.contains("continues after event"), "{args:?}: {all}");
        }
        std::fs::write(&path, &whole).unwrap();
    }
    // A resume that was killed before it recorded its first lines: nobody has approved anything.
    recorded(&world, count, true);
    appended(&world.out(), &[resumed.clone(), approved.clone()]);
    let done = verify(&world, &out).exits(0);
    assert!(
        done.stdout.contains("2 events after the recorded end left out"),
        "{}",
        done.stdout
    );
    world.call(&["resume", &out]).exits(5);
    assert!(!world.ws().join("b.txt").exists());
    // Such a process writes nothing else there.
    let whole = std::fs::read_to_string(&path).unwrap();
    let count = whole.lines().count();
    recorded(&world, count, true);
    appended(&world.out(), &[resumed, approved, warned]);
    world.call(&["resume", &out]).exits(8);
    std::fs::write(&path, &whole).unwrap();
    recorded(&world, count, false);
    world.call(&["resume", &out, "--approve", "c1"]).exits(0);
    assert_eq!(world.read("b.txt"), "b\n");
    // A run that was killed before it recorded its end has none yet.
    let whole = std::fs::read_to_string(&path).unwrap();
    recorded(&world, whole.lines().count() - 1, false);
    std::fs::remove_file(world.out().join("result.json")).unwrap();
    let done = verify(&world, &out);
    assert!(
        !done.stderr.contains("result.json is missing") && !done.stderr.contains("damaged"),
        "{}",
        done.stderr
    );
    world.call(&["resume", &out]).exits(0);
    verify(&world, &out).exits(0);
    // A result that names the end of the journal knows of no part of a line behind it.
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{{\"chain\":")).unwrap();
    let done = verify(&world, &out).exits(1);
    assert!(done.stderr.contains("after its last event"), "{}", done.stderr);
}
