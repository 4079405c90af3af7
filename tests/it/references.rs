//! What a prompt brings with it: files that its author refers to, and notes of earlier runs. Through the program.

use super::harness::World;
use serde_json::Value;

const POLICY: &str = "version: 1\nextends: [builtin:read-only]\nrules:\n  - { allow: save_memory }\n  - { deny: '*', \
                      paths: ['closed/**'] }\nsandbox: { level: none }\n";
const SAYS: &str = "replies: [{ text: done }]";

fn world() -> World {
    World::repo(&[
        ("docs/a.md", "alpha\n"),
        ("docs/b.md", "beta\n"),
        ("with blank.md", "gamma\n"),
        ("closed/c.md", "delta\n"),
        ("key.pem", "epsilon\n"),
        ("pic.png", "\u{89}PNG"),
    ])
}

fn events(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The texts of the first message, and what was warned of.
fn told(world: &World) -> (String, String) {
    let (mut prompt, mut warnings) = (String::new(), String::new());
    for event in events(world) {
        let text = event.to_string();
        if text.contains("\"prompted\"") && prompt.is_empty() {
            prompt = text;
        } else if text.contains("\"warned\"") {
            warnings += &text;
        }
    }
    (prompt, warnings)
}

#[test]
fn a_typed_prompt_brings_the_files_it_names() {
    let world = world();
    world.file("pic.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    let prompt = "Compare @docs/ with @\"with blank.md\", see @pic.png, and mail me@example.org about {{ this }}.";
    world.run(SAYS, POLICY, &["-p", prompt]).exits(0);
    let (told, warnings) = told(&world);
    for part in ["alpha", "beta", "gamma", "image/png", "{{ this }}", "Compare @docs/"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(warnings, "");
}

#[test]
fn what_the_policy_keeps_unread_stays_so_and_is_warned_of() {
    let world = world();
    let prompt = "Look: @closed/c.md @key.pem @../out.md @missing.md";
    world.run(SAYS, POLICY, &["-p", prompt]).exits(0);
    let (told, warnings) = told(&world);
    assert!(!told.contains("delta") && !told.contains("epsilon"), "{told}");
    for path in ["closed/c.md", "key.pem", "missing.md"] {
        assert!(warnings.contains(path), "{path}: {warnings}");
    }
}

#[test]
fn values_never_bring_files() {
    let world = world();
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: r\nparameters:\n  - { name: about, type: string }\ninput: {}\nsteps:\n  - { id: look, run: \
         \"printf '@docs/b.md'\" }\n  - id: one\n    prompt: \"read @docs/a.md, then {{ about }}, @docs/{{ about }}, {{ \
         input.text }} and {{ steps.look.output }}\"\n",
    );
    let input = world.beside("input.json", r#"{"text":"@docs/b.md"}"#);
    let more = [&recipe, "--param", "about=@docs/b.md", "--input", &input];
    world.run(SAYS, POLICY, &more).exits(0);
    let (told, warnings) = told(&world);
    assert!(told.contains("alpha") && !told.contains("beta"), "{told}");
    assert_eq!(warnings, "");
}

#[test]
fn notes_come_back_only_where_a_recipe_asks_for_them() {
    let world = world();
    let note = r#"replies: [{ calls: [{ tool: save_memory, args: { fact: "use tabs" } }] }, { text: kept }]"#;
    world.run(note, POLICY, &["-p", "remember"]).exits(0);
    for (memory, comes) in [("true", true), ("false", false)] {
        std::fs::remove_dir_all(world.out()).unwrap();
        let text = format!("version: 1\nname: r\nmemory: {memory}\nsteps: [{{ id: one, prompt: go }}]\n");
        let recipe = world.beside("recipe.yaml", text);
        world.run(SAYS, POLICY, &[&recipe]).exits(0);
        let all = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
        assert_eq!(all.contains("use tabs"), comes, "memory: {memory}");
    }
    assert_eq!(
        world.git(&["status", "--porcelain"]),
        "",
        "nothing of it lies in the tree"
    );
}
