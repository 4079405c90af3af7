//! The whole command line as one text: every subcommand's help. A change of it is a change of a promise.

use super::harness::{World, project};

/// The subcommands that a help text names.
fn named(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = list.take_while(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned));
    names.filter(|name| name != "help").collect()
}

fn reference(world: &World, path: &[String], text: &mut String) -> Vec<String> {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    args.push("--help");
    let help = world.call(&args).exits(0).stdout;
    text.push_str(&format!(
        "## {}\n\n{}\n",
        ["overnight"]
            .iter()
            .copied()
            .chain(path.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" "),
        help.trim_end()
    ));
    text.push('\n');
    let mut all = vec![path.join(" ")];
    for name in named(&help) {
        let mut longer = path.to_vec();
        longer.push(name);
        all.extend(reference(world, &longer, text));
    }
    all
}

#[test]
fn the_reference_is_as_it_was() {
    let mut text = String::new();
    let all = reference(&World::new(), &[], &mut text);
    assert!(all.len() > 10, "{all:?}");
    let path = project().join("fixtures/cli/reference.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(
        kept == text,
        "the command line changed: look at it, then UPDATE_EXPECT=1 cargo test --test it cli\n{text}"
    );
}

#[test]
fn the_help_of_report_names_every_format() {
    let world = World::new();
    let refused = world.call(&["report", "x", "--format", "nope"]).exits(2).stderr;
    let known = refused.split("one of ").nth(1).unwrap().lines().next().unwrap();
    let help = world.call(&["report", "--help"]).exits(0).stdout;
    for name in known.split(", ") {
        assert!(help.contains(name), "{name}: {help}");
    }
    assert!(help.contains("`always`, `never` or `auto`"), "{help}");
}

#[test]
fn completions_and_the_manual_know_every_command() {
    let world = World::new();
    let commands = named(&world.call(&["--help"]).exits(0).stdout);
    let mut texts = vec![("man", world.call(&["man"]).exits(0).stdout)];
    for shell in ["bash", "zsh", "fish"] {
        texts.push((shell, world.call(&["completions", shell, "--fixed"]).exits(0).stdout));
    }
    for (name, text) in texts {
        for command in &commands {
            assert!(text.contains(command.as_str()), "{name} does not know {command}");
        }
        assert!(text.contains("max") && text.len() > 1_000, "{name} is empty");
    }
}

#[test]
fn what_is_listed_can_be_called() {
    let world = World::new();
    let list = world.call(&["tools", "list", "--format", "json"]).exits(0).json();
    let tools = list
        .as_array()
        .cloned()
        .or_else(|| list["tools"].as_array().cloned())
        .unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in [
        "list_directory",
        "read_file",
        "glob",
        "grep_search",
        "write_file",
        "replace",
        "run_shell_command",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for tool in &tools {
        for key in ["name", "display_name", "kind", "origin", "parameters"] {
            assert!(!tool[key].is_null(), "{key}: {tool}");
        }
    }
    world.file("a.txt", "one\n");
    let call = |args: &[&str], code| world.call(&[&["tools", "call"], args].concat()).exits(code);
    assert!(
        call(&["read_file", "--args", "{\"file_path\": \"a.txt\"}"], 0)
            .stdout
            .contains("one")
    );
    assert!(
        !call(&["read_file", "--args", "{\"file_path\": \"b.txt\"}"], 1)
            .stderr
            .is_empty()
    );
    let denied = call(
        &[
            "write_file",
            "--args",
            "{\"file_path\": \"b.txt\", \"content\": \"\"}",
            "--format",
            "json",
        ],
        4,
    );
    assert_eq!(denied.json()["decision"], "deny");
    assert!(!world.ws().join("b.txt").exists());
}
