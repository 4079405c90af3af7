//! What a run or a batch leaves, however it ended, before those who read it: our own schemas, Jenkins' schema of JUnit
//! reports, the checker of HTML pages that browsers' authors use, and `git am`.
//!
//! `OVERNIGHT_NODE` has `vnu-jar`, which needs Java.

use super::batch::{call, fleet, rows};
use super::exit_codes::table::{Case, cases};
use super::harness::{World, at_once, git_in, have, open_policy, says, script, shell, writes};
use super::published::module;
use super::validators::{has, python};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Jenkins reads JUnit with a schema of its own (`junit-10.xsd` of its xUnit plugin). These are its rules, as a table:
/// the children that an element may have, the attributes that it must have and may have.
const JENKINS: &str = r#"
import re, sys, xml.etree.ElementTree as tree
TIME = re.compile(r'(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?')
RESULT = ((), '', 'type message')
RERUN = (('stackTrace', 'system-out', 'system-err'), 'type', 'message')
TEXT = ((), '', '')
RULES = {
    'testsuites': (('testsuite',), '', 'name time tests failures errors'),
    'testsuite': (('testsuite', 'properties', 'testcase', 'system-out', 'system-err'), 'name tests failures errors',
                  'group time skipped timestamp hostname id package file log url'),
    'properties': (('property',), '', ''),
    'property': ((), 'name value', ''),
    'testcase': (('skipped', 'error', 'failure', 'rerunFailure', 'rerunError', 'flakyFailure', 'flakyError', 'system-out',
                  'system-err'), 'name', 'time classname group'),
    'failure': RESULT, 'error': RESULT, 'skipped': RESULT,
    'rerunFailure': RERUN, 'rerunError': RERUN, 'flakyFailure': RERUN, 'flakyError': RERUN,
    'stackTrace': TEXT, 'system-out': TEXT, 'system-err': TEXT,
}
# Elements that may hold text.
TEXTS = {'failure', 'error', 'skipped', 'rerunFailure', 'rerunError', 'flakyFailure', 'flakyError', 'stackTrace',
         'system-out', 'system-err'}
def look(element, where):
    rules = RULES.get(element.tag)
    if rules is None:
        return [where + ': unknown element ' + element.tag]
    children, must, may = rules
    where += '/' + element.tag
    wrong = [where + ': no attribute ' + name for name in must.split() if name not in element.attrib]
    wrong += [where + ': attribute ' + name for name in element.attrib if name not in (must + ' ' + may).split()]
    if element.tag in ('testsuite', 'testsuites') and not TIME.fullmatch(element.attrib.get('time', '')):
        wrong.append(where + ': time ' + element.attrib['time'])
    if element.tag not in TEXTS:
        loose = [element.text] + [child.tail for child in element]
        wrong += [where + ': text' for text in loose if text and text.strip()]
    wrong += [where + ': child ' + child.tag for child in element if child.tag not in children]
    if rules is RERUN:
        order = [children.index(child.tag) for child in element if child.tag in children]
        wrong += [where + ': order'] if order != sorted(set(order)) else []
    return wrong + [problem for child in element for problem in look(child, where)]
wrong = []
for path in sys.argv[1:]:
    root = tree.parse(path).getroot()
    if root.tag not in ('testsuites', 'testsuite'):
        wrong.append(path + ': ' + root.tag)
    wrong += [path + ': ' + problem for problem in look(root, '')]
print('\n'.join(wrong))
sys.exit(bool(wrong))
"#;

/// The schema of a kind, as the program prints it.
fn schema(kind: &str) -> jsonschema::Validator {
    let text = World::new().call(&["schema", kind]).exits(0).stdout;
    jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap()
}

fn unfit(schema: &jsonschema::Validator, what: &str, value: &Value) -> Vec<String> {
    let one = |error: jsonschema::ValidationError<'_>| format!("{what}: {}: {error}", error.instance_path());
    schema.iter_errors(value).map(one).collect()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a case, checks its JSON, and puts page and report aside.
fn judged(case: &Case, aside: &Path, result: &jsonschema::Validator, event: &jsonschema::Validator) -> Vec<String> {
    let job = (case.make)();
    let done = job.run("stream-json");
    let name = case.name.replace(' ', "-");
    let mut wrong = Vec::new();
    if done.code != case.code {
        wrong.push(format!("{name}: code {}", done.code));
    }
    let stored = std::fs::read_to_string(job.world.out().join("result.json")).unwrap();
    wrong.extend(unfit(result, &name, &serde_json::from_str(&stored).unwrap()));
    for line in done.stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        wrong.extend(unfit(event, &format!("{name}: {line}"), &line));
    }
    for line in lines(&job.world.out().join("journal.jsonl")) {
        wrong.extend(unfit(event, &format!("{name}: {line}"), &line));
    }
    for (from, ending) in [
        ("report.html", "html"),
        ("junit.xml", "xml"),
        ("transcript.json", "transcript"),
    ] {
        let _ = std::fs::copy(job.world.out().join(from), aside.join(format!("{name}.{ending}")));
    }
    if job.world.out().join("journal.jsonl").is_file() {
        wrong.extend(reported(&job.world, aside, &name));
    }
    drop(job.service);
    wrong
}

/// Prints what only `report` prints of a run that began, and puts it aside; `git am` takes its change.
fn reported(world: &World, aside: &Path, name: &str) -> Vec<String> {
    let out = world.out().to_string_lossy().into_owned();
    let mut wrong = Vec::new();
    for format in ["sarif", "rdjson", "codequality", "checkstyle", "github", "mbox"] {
        let printed = world.command(&["report", &out, "--format", format]).output().unwrap();
        if !printed.status.success() {
            wrong.push(format!(
                "{name}: {format}: {}",
                String::from_utf8_lossy(&printed.stderr)
            ));
        }
        std::fs::write(aside.join(format!("{name}.{format}")), &printed.stdout).unwrap();
    }
    let mail = aside.join(format!("{name}.mbox"));
    if std::fs::metadata(&mail).unwrap().len() > 0 {
        let clone = world.path().join("clone");
        git_in(world.path(), &["clone", "-q", "ws", "clone"]);
        git_in(&clone, &["am", "-q", mail.to_str().unwrap()]);
    }
    wrong
}

/// A batch whose jobs end in different ways, one of them not at all; its directory.
fn mixed_batch(world: &World) -> std::path::PathBuf {
    world.beside(
        "down.yaml",
        json!({"replies": [{"error": {"class": "unavailable", "message": "overloaded <b>"}}]}).to_string(),
    );
    world.beside("denied.yaml", script(&[shell("rm a.txt"), says("I may not")]));
    world.beside(
        "long.yaml",
        script(&[writes("hello.txt", "hello\n"), writes("b.txt", "b\n"), says("done")]),
    );
    let mut manifest =
        "version: 1\nname: mixed\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets:\n"
            .to_owned();
    for (n, script) in ["ok", "bad", "down", "denied", "long"].iter().enumerate() {
        manifest.push_str(&format!(
            "  - {{ path: r0, id: j{n}, params: {{ who: \"<{script}> & co\" }}, model: \"script:{script}.yaml\" }}\n"
        ));
    }
    manifest.push_str("  - { path: r0, id: gone, ref: no-such-branch }\n  - { path: r0, id: left-out }\n");
    world.beside("m.yaml", &manifest);
    call(
        world,
        &[
            "batch",
            "m.yaml",
            "--out",
            "out",
            "--only",
            "^(j|gone)",
            "--format",
            "json",
        ],
    );
    world.path().join("out")
}

#[test]
fn every_ending_is_accepted_by_those_who_read_it() {
    let aside = tempfile::tempdir().unwrap();
    let cases = cases();
    let (result, event) = (schema("result"), schema("event"));
    let mut wrong = at_once(4, &cases, |case| judged(case, aside.path(), &result, &event));

    let world = fleet(1);
    let dir = mixed_batch(&world);
    let verdicts: std::collections::BTreeSet<String> = rows(&world, "out")
        .iter()
        .map(|row| row["verdict"].as_str().unwrap().to_owned())
        .collect();
    for verdict in ["passed", "failed", "provider", "environment"] {
        assert!(verdicts.contains(verdict), "{verdicts:?}");
    }
    let (row, whole) = (schema("runs"), schema("batch-result"));
    for line in rows(&world, "out") {
        wrong.extend(unfit(&row, "runs.jsonl", &line));
    }
    let stored = std::fs::read_to_string(dir.join("result.json")).unwrap();
    wrong.extend(unfit(&whole, "batch", &serde_json::from_str(&stored).unwrap()));
    std::fs::copy(dir.join("junit.xml"), aside.path().join("batch.xml")).unwrap();
    std::fs::copy(dir.join("report.html"), aside.path().join("batch.html")).unwrap();
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));

    let with_ending = |ending: &str| -> Vec<std::path::PathBuf> {
        let all = std::fs::read_dir(aside.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_some_and(|own| own == ending))
            .collect()
    };
    let reports = with_ending("xml");
    assert!(reports.len() > 20, "{} reports", reports.len());
    let judge = python(&["-c", JENKINS]).args(&reports).output().unwrap();
    assert!(
        judge.status.success(),
        "{}{}",
        String::from_utf8_lossy(&judge.stdout),
        String::from_utf8_lossy(&judge.stderr)
    );
    pages_are_accepted(aside.path(), with_ending("html").len());
    junit_is_read(&reports);
    transcripts_are_valid(&with_ending("transcript"));
    findings_are_accepted(&with_ending);
    let changes = with_ending("mbox");
    let changed = |path: &&std::path::PathBuf| std::fs::metadata(path).unwrap().len() > 0;
    assert!(changes.iter().filter(changed).count() >= 3, "{changes:?}");
}

/// The JUnit reader of Python.
fn junit_is_read(reports: &[std::path::PathBuf]) {
    const READ: &str = "
import sys
from junitparser import JUnitXml
for path in sys.argv[1:]:
    report = JUnitXml.fromfile(path)
    assert any('completed' in [case.name for case in suite] for suite in report) or path.endswith('batch.xml'), path
    report.update_statistics()
";
    if !has("junitparser") {
        return;
    }
    let judge = python(&["-c", READ]).args(reports).output().unwrap();
    assert!(judge.status.success(), "{}", String::from_utf8_lossy(&judge.stderr));
}

/// Harbor's validator of transcripts.
fn transcripts_are_valid(transcripts: &[std::path::PathBuf]) {
    const VALIDATE: &str = "
import sys
from pathlib import Path
from harbor.utils.trajectory_validator import TrajectoryValidator
wrong = []
for path in sys.argv[1:]:
    validator = TrajectoryValidator()
    if not validator.validate(Path(path)):
        wrong.append((path, validator.errors))
assert not wrong, wrong
";
    assert!(transcripts.len() > 15, "{transcripts:?}");
    if !has("harbor.utils.trajectory_validator") {
        return;
    }
    let judge = python(&["-c", VALIDATE]).args(transcripts).output().unwrap();
    assert!(judge.status.success(), "{}", String::from_utf8_lossy(&judge.stderr));
}

/// The validators of reports of findings.
fn findings_are_accepted(with_ending: &dyn Fn(&str) -> Vec<std::path::PathBuf>) {
    for path in with_ending("codequality") {
        let issues: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(issues.is_array(), "{}", path.display());
    }
    const PARSE: &str = "
import sys, xml.etree.ElementTree as tree
for path in sys.argv[1:]:
    assert tree.parse(path).getroot().tag == 'checkstyle', path
";
    let judge = python(&["-c", PARSE]).args(with_ending("checkstyle")).output().unwrap();
    assert!(judge.status.success(), "{}", String::from_utf8_lossy(&judge.stderr));
    let logs = with_ending("sarif");
    if let Some(tool) = module("@microsoft/sarif-multitool-linux/Sarif.Multitool") {
        let done = Command::new(tool)
            .arg("validate")
            .args(&logs)
            .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        let scanned = format!("{} files scanned", logs.len());
        assert!(
            logs.len() > 15 && said.contains(&scanned) && !said.contains(" error "),
            "{said}"
        );
    }
    if let Some(tool) = module("@umbrelladocs/rdformat-validator/bin/rdformat-validator.js") {
        let done = Command::new("node")
            .arg(tool)
            .args(with_ending("rdjson"))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }
}

/// The checker of HTML pages over a directory.
fn pages_are_accepted(dir: &Path, least: usize) {
    assert!(least > 10, "{least} pages");
    let java = Command::new("java").arg("-version").output().is_ok();
    let Some(jar) = module("vnu-jar/build/dist/vnu.jar").filter(|_| have("java", java)) else {
        return;
    };
    let mut checker = Command::new("java");
    checker
        .arg("-jar")
        .arg(&jar)
        .args(["--format", "json", "--skip-non-html"])
        .arg(dir);
    let output = checker.output().unwrap();
    let found: Value = serde_json::from_slice(&output.stderr).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let wrong: Vec<String> = found["messages"]
        .as_array()
        .unwrap()
        .iter()
        // The digests in the page's policy are those of its style and script (tests of `report` and `batch` compute
        // them); the checker does not.
        .filter(|message| {
            !message["message"]
                .as_str()
                .is_some_and(|text| text.contains("violates Content Security Policy"))
        })
        .map(|message| {
            let page = message["url"]
                .as_str()
                .unwrap_or_default()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            format!("{page}: {} near {}", message["message"], message["extract"])
        })
        .collect();
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_judge_of_junit_refuses_what_jenkins_does() {
    let dir = tempfile::tempdir().unwrap();
    for (n, (text, good)) in [
        ("<testsuites><testsuite name='a' tests='1' failures='0' errors='0' time='1.5'><testcase name='x'/></testsuite></testsuites>", true),
        ("<testsuites skipped='1'/>", false),
        ("<testsuites><testsuite name='a' tests='1' failures='0' errors='0' disabled='0'/></testsuites>", false),
        ("<testsuites><testsuite name='a' tests='1' failures='0' errors='0' time='soon'/></testsuites>", false),
        ("<testsuites><testcase name='a'/></testsuites>", false),
        ("<testsuite name='a' tests='1' failures='0' errors='0'><testcase/></testsuite>", false),
        ("<testsuite name='a' tests='1' failures='0' errors='0'><testcase name='x'><flakyFailure/></testcase></testsuite>", false),
        ("<testsuite name='a' tests='1' failures='0' errors='0'><testcase name='x'><rerunFailure type='t'/></testcase></testsuite>", true),
        ("<testsuite name='a' tests='1' failures='0' errors='0'><testcase name='x'><rerunFailure type='t' time='1'/></testcase></testsuite>", false),
        ("<report/>", false),
    ]
    .iter()
    .enumerate()
    {
        let path = dir.path().join(format!("{n}.xml"));
        std::fs::write(&path, text).unwrap();
        let judge = python(&["-c", JENKINS]).arg(&path).output().unwrap();
        assert_eq!(judge.status.success(), *good, "{text}: {}", String::from_utf8_lossy(&judge.stderr));
    }
}

#[test]
fn git_am_takes_the_patch_as_a_message() {
    let latin: &[u8] = b"caf\xe9\r\none\r\n";
    let world = World::repo(&[("a.txt", "one\n"), ("gone.txt", "x\n"), ("run.sh", "#!/bin/sh\n")]);
    std::fs::write(world.ws().join("latin.txt"), latin).unwrap();
    world.commit("latin");
    let command = "printf 'caf\\351\\r\\ntwo\\r\\n' > latin.txt; printf '\\000\\001\\002' > data.bin; rm gone.txt; chmod +x run.sh; \
        printf 'From me\\n--- a\\ndiff -r\\n' > quoted.txt; printf 'no end' > a.txt";
    let policy = open_policy(&["printf", "rm", "chmod"]);
    let recipe =
        "version: 1\nname: tidy\ndescription: \"Räumt auf – From: nobody\"\nsteps:\n  - { id: one, prompt: go }\n";
    world
        .recipe(
            recipe,
            &script(&[shell(command), says("done\n---\ndiff --git a/x b/x")]),
            &policy,
            &[],
        )
        .exits(0);
    let out = world.out().to_string_lossy().into_owned();
    let mail = world.command(&["report", &out, "--format", "mbox"]).output().unwrap();
    assert!(mail.status.success());
    world.beside("run.mbox", &mail.stdout);
    let clone = world.path().join("clone");
    git_in(world.path(), &["clone", "-q", "ws", "clone"]);
    git_in(&clone, &["am", "-q", "../run.mbox"]);
    for file in ["latin.txt", "data.bin", "quoted.txt", "a.txt"] {
        assert_eq!(
            std::fs::read(clone.join(file)).unwrap(),
            std::fs::read(world.ws().join(file)).unwrap(),
            "{file}"
        );
    }
    assert!(!clone.join("gone.txt").exists());
    let shown = git_in(&clone, &["log", "-1", "--format=%an <%ae>%n%s%n%b"]);
    let run = world.result()["run"].as_str().unwrap().to_owned();
    assert!(
        shown.starts_with("overnight <overnight@localhost>\ntidy: Räumt auf – From: nobody\n"),
        "{shown}"
    );
    assert!(shown.contains(&format!("Overnight-Run: {run}")), "{shown}");
    // Made from the journal: the same again is the same message.
    let again = world.command(&["report", &out, "--format", "mbox"]).output().unwrap();
    assert_eq!(again.stdout, mail.stdout);

    let idle = World::repo(&[("a.txt", "one\n")]);
    idle.run(&script(&[says("nothing to do")]), &open_policy(&[]), &["-p", "x"])
        .exits(0);
    let out = idle.out().to_string_lossy().into_owned();
    assert_eq!(idle.call(&["report", &out, "--format", "mbox"]).exits(0).stdout, "");
}
