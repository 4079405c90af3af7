//! The final answer on stdout: inert where a CI runner reads the log, as it is where a program reads.

use super::harness::{Done, World, says, script};

const HOSTILE: &str = "::set-output name=a::b\n\u{1b}]0;x\u{7} ##vso[task.complete]\r::add-mask::y";
const INERT: &str =
    ":\u{200b}:set-output name=a::b\n\u{241b}]0;x\u{2407} #\u{200b}#vso[task.complete]\u{240d}::add-mask::y\n";

fn args(world: &World, more: &[&str]) -> Vec<String> {
    let model = format!("script:{}", world.beside("script.yaml", script(&[says(HOSTILE)])));
    let args = ["run", "-p", "x", "--model", &model];
    args.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
}

fn call(world: &World, more: &[&str]) -> Done {
    let args = args(world, more);
    world.call(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn text_is_inert_in_the_log_of_each_runner() {
    for name in ["GITHUB_ACTIONS", "GITLAB_CI", "TEAMCITY_VERSION", "TF_BUILD"] {
        let world = World::repo(&[("a.txt", "one\n")]).env(name, "true");
        assert_eq!(call(&world, &[]).exits(0).stdout, INERT, "{name}");
        let run = world
            .call(&["runs"])
            .stdout
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned();
        assert_eq!(
            world.call(&["report", &run, "--format", "text"]).exits(0).stdout,
            INERT,
            "{name}"
        );
        let summary = world.call(&["report", &run, "--format", "summary"]).exits(0).stdout;
        assert!(!summary.contains("##vso[") && !summary.contains('\u{1b}'), "{summary}");
        // What a program reads is as it was said, and nothing in it is a command.
        let done = call(&world, &["--format", "json"]).exits(0);
        assert_eq!(done.json()["response"], HOSTILE, "{name}");
        let stream = call(&world, &["--format", "stream-json"]).exits(0).stdout;
        let transcript = world.call(&["report", &run, "--format", "transcript"]).exits(0).stdout;
        for text in [&done.stdout, &stream, &transcript] {
            assert!(text.contains("vso[task") && !text.contains("##"), "{name}: {text}");
        }
        let file = world.path().join("answer.txt");
        let args = args(&world, &[]);
        let mut command = world.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdout(std::fs::File::create(&file).unwrap()).status().unwrap();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            format!("{HOSTILE}\n"),
            "{name}"
        );
    }
}

#[test]
fn a_pipe_outside_of_ci_gets_the_text_as_it_is() {
    let world = World::repo(&[("a.txt", "one\n")]);
    assert_eq!(call(&world, &[]).exits(0).stdout, format!("{HOSTILE}\n"));
    let world = world.env("GITHUB_ACTIONS", "");
    assert_eq!(call(&world, &[]).exits(0).stdout, format!("{HOSTILE}\n"));
}
