//! What a recipe names is read before anything runs, outside the sandbox: a recipe of the change must not get the secret files of the
//! checkout that way, whatever name leads to them, and no message may quote them.

use super::harness::{Done, World, says, script};
use std::path::Path;

const PASSWORD: &str = "s3cr3t-of-the-file";
const POLICY: &str = "version: 1\nextends: [builtin:read-only]\n";
const SCHEMA: &str = "{\"type\": \"object\"}";
const ASK: &str = "steps:\n  - { id: a, prompt: go }\n";
const CAT: &str = "steps:\n  - { id: s, run: 'cat $OVERNIGHT_RECIPE_DIR/notes.txt' }\n  - { id: a, prompt: 'look: {{ steps.s.output }}' }\n";

/// A checkout with ignored secrets, and links to them that a change committed.
fn checkout() -> World {
    let world = World::repo(&[
        (".gitignore", ".env\n"),
        ("ci/plain.txt", "a plain note\n"),
        ("schemas/out.json", SCHEMA),
        ("ci/own.yaml", POLICY),
        ("ci/more.yaml", "version: 1\nextends: [own.yaml]\n"),
        ("ci/leads.yaml", "version: 1\nextends: [../.env]\n"),
        ("ci/leads-by-link.yaml", "version: 1\nextends: [notes.txt]\n"),
    ]);
    world.file(".env", format!("DB_HOST=x\nDB_PASS={PASSWORD}\n"));
    let config = world.ws().join(".git/config");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[a]\n\tb = {PASSWORD}\n")).unwrap();
    std::fs::write(world.ws().join(".git/other"), PASSWORD).unwrap();
    let ci = world.ws().join("ci");
    for (target, name) in [
        ("../.env", "notes.txt"),
        ("notes.txt", "twice.txt"),
        ("../.git/config", "config.txt"),
        ("../.git/other", "other.txt"),
        ("plain.txt", "linked.txt"),
        ("..", "up"),
        ("../.env", "recipe.yaml"),
    ] {
        std::os::unix::fs::symlink(target, ci.join(name)).unwrap();
    }
    world
}

fn run(world: &World, recipe: &str, more: &[&str]) -> Done {
    let script = format!(
        "script:{}",
        world.beside("script.yaml", script(&[says("{}"), says("{}")]))
    );
    let policy = world.beside("policy.yaml", POLICY);
    let out = world.out().to_string_lossy().into_owned();
    let _ = std::fs::remove_dir_all(&out);
    let mut args = vec!["run", recipe, "--model", &script, "--policy", &policy, "--out", &out];
    args.extend(more);
    world.call(&args)
}

fn holds(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => holds(&path),
            false => String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).contains(PASSWORD),
        }
    })
}

fn leaks(world: &World, done: &Done) -> bool {
    done.stdout.contains(PASSWORD) || done.stderr.contains(PASSWORD) || holds(&world.out())
}

#[test]
fn a_recipe_gets_no_secret_file_by_another_name() {
    let world = checkout();
    for (name, listed, part) in [
        ("a link", "notes.txt", ".env"),
        ("a link to a link", "twice.txt", ".env"),
        ("git's settings", "config.txt", ".git"),
        ("another file of git", "other.txt", ".git"),
        ("a linked directory", "up/.git/other", ".git"),
        ("its own name", "../.env", ".env"),
    ] {
        let steps = CAT.replace("notes.txt", listed);
        world.file("ci/r.yaml", format!("version: 1\nname: r\nfiles: [{listed}]\n{steps}"));
        for more in [&[][..], &["--trust", "recipe"]] {
            let done = run(&world, "ci/r.yaml", more).exits(3);
            assert!(done.stderr.contains(part), "{name}: {}", done.stderr);
            assert!(!leaks(&world, &done), "{name}: {}", done.stderr);
        }
    }
    // A link to a file that is no secret is given, and a directory without its links.
    let steps = CAT.replace("notes.txt", "linked.txt");
    world.file(
        "ci/r.yaml",
        format!("version: 1\nname: r\nfiles: [linked.txt]\n{steps}"),
    );
    run(&world, "ci/r.yaml", &[]).exits(0);
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(journal.contains("a plain note"), "{journal}");
    let steps = CAT.replace("notes.txt", "plain.txt");
    world.file("ci/r.yaml", format!("version: 1\nname: r\n{steps}"));
    let done = run(&world, "ci/r.yaml", &[]).exits(0);
    assert!(!leaks(&world, &done), "{}", done.stderr);
}

#[test]
fn no_message_about_a_recipe_quotes_a_secret_file() {
    let world = checkout();
    let mut cases = Vec::new();
    for file in ["../.env", "notes.txt", "twice.txt", "../.git/config", "other.txt"] {
        cases.push(format!("response: {{ schema: {file} }}\n"));
        cases.push(format!("input: {{ schema: {file} }}\n"));
        cases.push(format!("policy: {file}\n"));
        cases.push(format!("tools: {{ settings: {file} }}\n"));
    }
    cases.extend(["leads.yaml", "leads-by-link.yaml"].map(|file| format!("policy: {file}\n")));
    for case in &cases {
        world.file("ci/r.yaml", format!("version: 1\nname: r\n{case}{ASK}"));
        for args in [
            &["recipe", "check", "ci/r.yaml"][..],
            &["tools", "list", "--recipe", "ci/r.yaml"],
        ] {
            let done = world.call(args);
            assert!(!leaks(&world, &done), "{case}{args:?}: {}", done.stderr);
        }
        let done = run(&world, "ci/r.yaml", &[]).exits(3);
        assert!(!leaks(&world, &done), "{case}: {}", done.stderr);
        let manifest = "version: 1\nname: night\nrecipe: ws/ci/r.yaml\npolicy: policy.yaml\ntargets:\n  - { path: ws, id: j1, model: 'script:script.yaml' }\n";
        let manifest = world.beside("batch.yaml", manifest);
        let night = world.path().join("night").to_string_lossy().into_owned();
        let done = world.call(&["batch", &manifest, "--out", &night]);
        assert_ne!(done.code, 0, "{case}");
        assert!(
            !leaks(&world, &done) && !holds(Path::new(&night)),
            "{case}: {}",
            done.stderr
        );
    }
    // The recipe is the link.
    for args in [
        &["recipe", "check", "ci/recipe.yaml"][..],
        &["run", "ci/recipe.yaml", "--dry-run"],
        &["recipe", "show", "ci/recipe.yaml"],
    ] {
        let done = world.call(args);
        assert_ne!(done.code, 0, "{args:?}");
        assert!(!leaks(&world, &done), "{args:?}: {}", done.stderr);
    }
    let done = run(&world, "ci/recipe.yaml", &[]).exits(3);
    assert!(!leaks(&world, &done), "{}", done.stderr);
}

#[test]
fn a_recipe_uses_the_files_that_are_no_secrets() {
    let world = checkout();
    std::os::unix::fs::symlink("own.yaml", world.ws().join("ci/linked.yaml")).unwrap();
    for case in [
        "response: { schema: ../schemas/out.json }\n",
        "policy: own.yaml\n",
        "policy: linked.yaml\n",
        "policy: more.yaml\n",
    ] {
        world.file("ci/r.yaml", format!("version: 1\nname: r\n{case}{ASK}"));
        run(&world, "ci/r.yaml", &[]).exits(0);
        world.call(&["recipe", "check", "ci/r.yaml"]).exits(0);
    }
    world.file("ci/r.yaml", format!("version: 1\nname: r\n{ASK}"));
    let link = world.path().join("link.yaml");
    std::os::unix::fs::symlink(world.ws().join("ci/r.yaml"), &link).unwrap();
    run(&world, &link.to_string_lossy(), &[]).exits(0);
}
