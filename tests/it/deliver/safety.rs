//! What must not happen: a token that is seen, a program of the target repository that runs, a delivery that is lost at a kill or done
//! twice.

use super::scenes::{BRANCH, Delivery, RECIPE, Scene, bare, copy, named, run, template};
use super::server::{Failure, Pull, TOKEN, Wire, tip};
use crate::batch_crash::processes;
use crate::harness::{Done, World, have, says, until, writes};
use base64::Engine as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// All that is secret, in every form in which it is sent.
fn secrets() -> Vec<String> {
    let encoded = |user: &str| base64::engine::general_purpose::STANDARD.encode(format!("{user}:{TOKEN}"));
    vec![TOKEN.to_owned(), encoded("x-access-token"), encoded("oauth2")]
}

fn holds_secret(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    secrets().iter().any(|secret| text.contains(secret.as_str()))
}

/// Command lines that hold a secret, of the processes that name this server.
fn seen_in_process_list(of: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| holds_secret(line) && String::from_utf8_lossy(line).contains(of))
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .collect()
}

fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn a_token_is_in_no_process_list_no_file_and_no_output() {
    for wire in [Wire::Github, Wire::Gitlab, Wire::Forgejo] {
        let scene = Scene::new(wire);
        // One call that fails with the token in its answer.
        scene.forge.state().failures.push(Failure {
            of: "GET o/n.git/info/refs",
            times: 1,
            status: 503,
            headers: &[],
            body: "tok-5ecret-0f-the-forge",
            after: false,
        });
        scene.forge.state().at_push = Some(|_| std::thread::sleep(Duration::from_millis(400)));
        static DONE: AtomicBool = AtomicBool::new(false);
        DONE.store(false, Ordering::Relaxed);
        let server = scene.forge.url.trim_start_matches("http://").to_owned();
        let watch = std::thread::spawn(move || {
            let mut found = Vec::new();
            let mut looks = 0;
            while !DONE.load(Ordering::Relaxed) {
                found.extend(seen_in_process_list(&server));
                looks += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            (found, looks)
        });
        let done = scene.deliver("a", &[]);
        DONE.store(true, Ordering::Relaxed);
        let (found, looks) = watch.join().unwrap();
        let done = done.ends("opened", 0);
        assert!(looks > 20, "{looks}");
        assert_eq!(found, Vec::<String>::new());
        assert!(!holds_secret(done.done.stdout.as_bytes()) && !holds_secret(done.done.stderr.as_bytes()));
        let mut all = Vec::new();
        files(scene.dir.path(), &mut all);
        assert!(all.iter().any(|path| path.ends_with("deliver.jsonl")));
        for path in all {
            assert!(!holds_secret(&std::fs::read(&path).unwrap()), "{}", path.display());
        }
        for pull in &scene.forge.state().pulls {
            assert!(!holds_secret(format!("{pull:?}").as_bytes()));
        }
    }
}

#[test]
fn a_token_goes_to_no_other_server_and_not_in_the_clear() {
    let scene = Scene::new(Wire::Github);
    // A remote on another host than the forge's gets no token: its git server refuses.
    let elsewhere = scene.forge.remote("o/n").replace("127.0.0.1", "localhost");
    let done = scene
        .deliver("a", &["--remote", &elsewhere, "--max-wall", "2s"])
        .ends("failed", 8);
    assert!(!done.reason().is_empty());
    for (remote, api) in [
        ("http://forge.example.org/o/n", "http://forge.example.org/api"),
        ("https://forge.example.org/o/n", "http://forge.example.org/api"),
    ] {
        let done = scene
            .deliver("a", &["--remote", remote, "--to", "github", "--api-url", api])
            .ends("failed", 8);
        assert!(done.reason().contains("unencrypted"), "{}", done.reason());
    }
    // A password in the address is sent, and said nowhere.
    let url = scene
        .forge
        .remote("o/n")
        .replace("http://", &format!("http://me:{TOKEN}@"));
    let done = scene
        .deliver("a", &["--to", "push", "--remote", &url])
        .ends("opened", 0);
    assert!(!holds_secret(done.done.stdout.as_bytes()) && !holds_secret(done.done.stderr.as_bytes()));
    let log = std::fs::read(scene.run_dir("a").join("deliver.jsonl")).unwrap();
    assert!(!holds_secret(&log));
}

#[test]
fn a_header_of_the_users_settings_is_not_sent_beside_the_token() {
    let scene = Scene::new(Wire::Github);
    let mut command = scene.command("a", &[]);
    command
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", format!("http.{}/.extraHeader", scene.forge.url))
        .env("GIT_CONFIG_VALUE_0", "Authorization: Basic b3RoZXI6b3RoZXI=");
    Delivery::of(Done::of(command.output().unwrap())).ends("opened", 0);
}

#[test]
fn nothing_of_the_target_repository_runs() {
    let world = World::repo(&[
        ("a.txt", "one\n"),
        (".gitattributes", "* filter=evil diff=evil merge=evil\n"),
    ]);
    run(&world, "r", RECIPE, &[writes("a.txt", "two\n"), says("x")]);
    let mark = world.path().join("ran").to_string_lossy().into_owned();
    let evil = world.beside("evil.sh", format!("#!/bin/sh\necho \"$0 $*\" >> {mark}\n"));
    std::fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // A newer base, so that something must be merged.
    world.file("b.txt", "b\n");
    world.commit("more");
    let srv = world.path().join("srv/o/n.git");
    bare(&world.ws(), &srv);
    world.git(&["remote", "add", "origin", &format!("file://{}", srv.display())]);
    for (key, value) in [
        (
            "core.hooksPath",
            world.path().join("hooks").to_string_lossy().into_owned(),
        ),
        ("core.fsmonitor", evil.clone()),
        ("core.sshCommand", evil.clone()),
        ("core.pager", evil.clone()),
        ("core.alternateRefsCommand", evil.clone()),
        ("filter.evil.clean", evil.clone()),
        ("filter.evil.smudge", evil.clone()),
        ("diff.evil.command", evil.clone()),
        ("diff.evil.textconv", evil.clone()),
        ("merge.evil.driver", evil.clone()),
        ("gpg.program", evil.clone()),
        ("commit.gpgSign", "true".to_owned()),
        ("credential.helper", evil.clone()),
        ("remote.origin.uploadpack", evil.clone()),
        ("remote.origin.receivepack", evil.clone()),
        ("remote.origin.vcs", "evil".to_owned()),
        ("uploadpack.packObjectsHook", evil.clone()),
        ("user.name", "Evil".to_owned()),
        ("user.email", "evil@example.org".to_owned()),
        ("url.file:///elsewhere/.insteadOf", format!("file://{}", srv.display())),
    ] {
        world.git(&["config", key, &value]);
    }
    for hook in [
        "reference-transaction",
        "pre-push",
        "post-commit",
        "update",
        "pre-receive",
        "post-update",
        "prepare-commit-msg",
        "applypatch-msg",
    ] {
        for dir in [world.path().join("hooks"), world.ws().join(".git/hooks")] {
            std::fs::create_dir_all(&dir).unwrap();
            copy(Path::new(&evil), &dir.join(hook));
        }
    }
    let dir = world.path().join("runs/r").to_string_lossy().into_owned();
    for target in ["branch", "push", "mbox"] {
        let mut command = world.command(&["deliver", &dir, "--to", target, "--format", "json"]);
        named(&mut command);
        Delivery::of(Done::of(command.output().unwrap())).ends("opened", 0);
        assert!(
            !Path::new(&mark).exists(),
            "{target}: {}",
            std::fs::read_to_string(&mark).unwrap()
        );
    }
    let author = Command::new("git")
        .arg("--git-dir")
        .arg(&srv)
        .args(["log", "-1", "--format=%an", BRANCH])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(author.stdout).unwrap().trim(), "Night Bot");
    assert_eq!(
        tip(&srv, BRANCH),
        tip(&world.ws().join(".git"), BRANCH),
        "the same delivery makes the same commit"
    );
}

#[test]
fn the_name_comes_from_the_users_configuration_and_is_asked_for() {
    let world = World::repo(&[("a.txt", "one\n")]);
    run(&world, "r", RECIPE, &[writes("a.txt", "two\n"), says("x")]);
    world.git(&["config", "user.name", "Evil"]);
    world.git(&["config", "user.email", "evil@example.org"]);
    let dir = world.path().join("runs/r").to_string_lossy().into_owned();
    let args = ["deliver", dir.as_str(), "--to", "branch", "--format", "json"];
    let config = world.path().join("home/.gitconfig");
    std::fs::write(&config, "[user]\n\tuseConfigOnly = true\n").unwrap();
    let done = Delivery::of(world.call(&args)).ends("failed", 8);
    assert!(done.reason().contains("user.name"), "{}", done.reason());
    std::fs::write(&config, "[user]\n\tname = Her\n\temail = her@example.org\n").unwrap();
    Delivery::of(world.call(&args)).ends("opened", 0);
    assert_eq!(
        world.git(&["log", "-1", "--format=%an %ae %cn", BRANCH]).trim(),
        "Her her@example.org Her"
    );
}

#[test]
fn commits_are_signed_as_the_user_signs() {
    let found = Command::new("ssh-keygen")
        .arg("-?")
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if !have("ssh-keygen", found) {
        return;
    }
    let world = World::repo(&[("a.txt", "one\n")]);
    run(&world, "r", RECIPE, &[writes("a.txt", "two\n"), says("x")]);
    let key = world.path().join("home/key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .status()
        .unwrap();
    assert!(made.success());
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    let allowed = world.beside("allowed", format!("her@example.org {public}"));
    let config = format!(
        "[user]\n\tname = Her\n\temail = her@example.org\n\tsigningKey = {}\n[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tallowedSignersFile = {allowed}\n[commit]\n\tgpgSign = true\n",
        key.display()
    );
    std::fs::write(world.path().join("home/.gitconfig"), config).unwrap();
    let dir = world.path().join("runs/r").to_string_lossy().into_owned();
    let args = ["deliver", dir.as_str(), "--to", "branch", "--format", "json"];
    Delivery::of(world.call(&args)).ends("opened", 0);
    let verified = Command::new("git")
        .args(["verify-commit", BRANCH])
        .current_dir(world.ws())
        .env("HOME", world.path().join("home"))
        .output()
        .unwrap();
    assert!(
        verified.status.success(),
        "{}",
        String::from_utf8_lossy(&verified.stderr)
    );
    Delivery::of(world.call(&args)).ends("unchanged", 0);
    // A key that is gone is no reason to deliver without it.
    std::fs::remove_file(&key).unwrap();
    Delivery::of(world.call(&[
        "deliver",
        dir.as_str(),
        "--to",
        "branch",
        "--branch",
        "other",
        "--format",
        "json",
    ]))
    .ends("failed", 8);
}

/// Holds a push up until [`go_on`].
fn held_up(root: &Path) {
    std::fs::write(root.join("pushing"), "").unwrap();
    appears(&root.join("go"));
}

fn go_on(root: &Path) {
    std::fs::write(root.join("go"), "").unwrap();
}

/// Waits for a file, as long as a busy machine may need.
fn appears(file: &Path) {
    for _ in 0..12_000 {
        if file.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} did not appear", file.display());
}

#[test]
fn a_delivery_that_is_killed_goes_on() {
    for wire in [Wire::Github, Wire::Gitlab, Wire::Forgejo] {
        let scene = Scene::new(wire);
        // Killed while the server takes the push.
        scene.forge.state().at_push = Some(held_up);
        let mut child = scene
            .command("a", &[])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        appears(&scene.forge.root.join("pushing"));
        child.kill().unwrap();
        child.wait().unwrap();
        go_on(&scene.forge.root);
        scene.deliver("a", &[]).ends("opened", 0);
        assert_eq!(scene.forge.state().pulls.len(), 1);
        // The record tells of both.
        let log = std::fs::read_to_string(scene.run_dir("a").join("deliver.jsonl")).unwrap();
        let steps: Vec<String> = log
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["step"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert_eq!(steps.iter().filter(|step| *step == "begun").count(), 2, "{steps:?}");
        assert_eq!(steps.last().unwrap(), "ended");
    }
}

/// Leaves the log of run `a` as a kill between these two steps does; `torn` is the beginning of a line.
fn killed(scene: &Scene, (last, next): (&str, &str), torn: &str) {
    let file = scene.run_dir("a").join("deliver.jsonl");
    let log = std::fs::read_to_string(&file).unwrap();
    let is_step = |line: &&str, step: &str| line.contains(&format!("\"step\":\"{step}\""));
    let kept: Vec<&str> = log.lines().take_while(|line| !is_step(line, next)).collect();
    assert!(is_step(kept.last().unwrap(), last));
    std::fs::write(&file, kept.join("\n") + "\n" + torn).unwrap();
}

#[test]
fn a_killed_opening_is_found_again() {
    let scene = Scene::new(Wire::Github);
    scene.deliver("a", &[]).ends("opened", 0);
    // As a kill between the request and its record leaves it.
    killed(&scene, ("opening", "opened"), "{\"step\":\"ope");
    scene.deliver("a", &[]).ends("opened", 0);
    scene.deliver("a", &[]).ends("unchanged", 0);
    assert_eq!(scene.forge.state().pulls.len(), 1);
}

#[test]
fn a_delivery_that_is_killed_after_the_opening_sets_the_labels() {
    let scene = Scene::new(Wire::Github);
    scene.deliver("a", &[]).ends("opened", 0);
    // As a kill between the request and its labels leaves it.
    killed(&scene, ("opened", "ended"), "");
    scene.forge.state().pulls[0].labels.clear();
    scene.deliver("a", &[]).ends("opened", 0);
    assert_eq!(scene.forge.state().pulls[0].labels, ["bot"]);
    scene.deliver("a", &[]).ends("unchanged", 0);
    assert_eq!(scene.forge.state().pulls.len(), 1);
}

#[test]
fn labels_that_the_service_did_not_take_are_set_by_the_next_delivery() {
    for wire in [Wire::Github, Wire::Forgejo] {
        let scene = Scene::new(wire);
        scene.forge.state().known_labels = vec!["bot".to_owned()];
        let failure = |times: usize, status: u16, headers: &'static [(&'static str, &'static str)]| Failure {
            of: "POST /labels",
            times,
            status,
            headers,
            body: "{\"message\":\"no\"}",
            after: false,
        };
        // The first failure is followed by another attempt; then the service asks for a longer wait than is allowed.
        scene.forge.state().failures = vec![failure(1, 503, &[]), failure(2, 429, &[("Retry-After", "3600")])];
        let done = scene.deliver("a", &[]).ends("opened", 0);
        assert!(done.reason().contains("429"), "{}", done.reason());
        let asked = || {
            let state = scene.forge.state();
            let labels = state.calls.iter().filter(|call| call.path.ends_with("/labels"));
            labels.filter(|call| call.method == "POST").count()
        };
        assert_eq!(asked(), 2);
        assert!(scene.forge.state().pulls[0].labels.is_empty());
        // It stays known until it is done.
        let done = scene.deliver("a", &[]).ends("unchanged", 0);
        assert!(done.reason().contains("429"), "{}", done.reason());
        let done = scene.deliver("a", &[]).ends("unchanged", 0);
        assert!(done.reason().contains("labels"), "{}", done.reason());
        assert_eq!(scene.forge.state().pulls[0].labels.len(), 1);
        // After that nobody asks again.
        let done = scene.deliver("a", &[]).ends("unchanged", 0);
        assert_eq!((done.reason(), asked()), ("", 4));
    }
}

/// Forgejo cannot list the requests of one branch. Of a project with more than are read, the open ones are all known.
#[test]
fn a_project_with_very_many_requests_is_delivered_to() {
    let scene = Scene::new(Wire::Forgejo);
    let pull = |number: u64, branch: &str, open: bool| Pull {
        number,
        project: "o/n".to_owned(),
        branch: branch.to_owned(),
        base: "main".to_owned(),
        title: "another".to_owned(),
        body: "another".to_owned(),
        open,
        merged: false,
        labels: Vec::new(),
        reviewers: Vec::new(),
        head: "0".repeat(40),
    };
    scene.deliver("a", &[]).ends("opened", 0);
    let mut later: Vec<Pull> = (2..205).map(|number| pull(number, "theirs", false)).collect();
    scene.forge.state().pulls.append(&mut later);
    scene.forge.state().page = 2;
    // Its own request is beyond the last page that is read, and open.
    let done = scene.deliver("a", &[]).ends("unchanged", 0);
    assert!(
        done.reason().contains("more requests than are listed"),
        "{}",
        done.reason()
    );
    scene.deliver("b", &[]).ends("updated", 0);
    assert_eq!(scene.forge.state().pulls.len(), 204);
}

/// A server that takes connections and says nothing.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

#[test]
fn a_server_that_says_nothing_takes_no_longer_than_the_limit() {
    let scene = Scene::new(Wire::Github);
    let (_listener, url) = silent();
    let silent_git = format!("{url}/o/n.git");
    let git = scene
        .forge
        .remote("o/n")
        .replace("http://", &format!("http://me:{TOKEN}@"));
    for more in [
        &["--to", "push", "--remote", silent_git.as_str()][..],
        &["--to", "github", "--remote", git.as_str(), "--api-url", url.as_str()][..],
    ] {
        let began = Instant::now();
        let done = scene
            // Not a whole number of seconds, which is what git's own limit on silence is.
            .deliver("a", &[more, &["--max-wall", "1500ms"]].concat())
            .ends("failed", 7);
        assert!(done.reason().contains("--max-wall (1 s)"), "{}", done.reason());
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[test]
fn a_signal_ends_a_delivery_with_its_line() {
    let scene = Scene::new(Wire::Github);
    let (listener, url) = silent();
    let remote = format!("{url}/o/n.git");
    let asked = scene.command("a", &["--to", "push", "--remote", &remote]);
    // Away from the terminal of whoever runs the tests: at a terminal git stays in its group.
    let mut apart = Command::new("setsid");
    apart
        .arg(asked.get_program())
        .args(asked.get_args())
        .current_dir(asked.get_current_dir().unwrap())
        .env_clear()
        .envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = apart
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    listener.set_nonblocking(true).unwrap();
    let connection = std::cell::OnceCell::new();
    until("git asks the server", || {
        listener.accept().is_ok_and(|(peer, _)| connection.set(peer).is_ok())
    });
    assert!(processes(&remote).iter().any(|line| line.contains("git-remote-http")));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let done = Delivery::of(Done::of(child.wait_with_output().unwrap())).ends("failed", 143);
    assert!(done.reason().contains("SIGTERM"), "{}", done.reason());
    until("nothing of git is left", || processes(&remote).is_empty());
    assert!(!done.line["run"].as_str().unwrap().is_empty(), "{}", done.line);
}

#[test]
fn an_interrupted_delivery_to_another_repository_does_not_count() {
    let scene = Scene::new(Wire::Github);
    bare(&scene.repo(), &scene.forge.repo("o/m"));
    scene.deliver("a", &[]).ends("opened", 0);
    let other = scene.forge.remote("o/m");
    let file = scene.run_dir("a").join("deliver.jsonl");
    let before = std::fs::read_to_string(&file).unwrap().lines().count();
    scene.deliver("a", &["--remote", &other]).ends("opened", 0);
    // The second one was killed while it opened its request.
    let log = std::fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = log
        .lines()
        .enumerate()
        .take_while(|(at, line)| *at < before || !line.contains("\"step\":\"opened\""))
        .map(|(_, line)| line)
        .collect();
    assert!(kept.last().unwrap().contains("\"step\":\"opening\""));
    std::fs::write(&file, kept.join("\n") + "\n").unwrap();
    scene.deliver("a", &[]).ends("unchanged", 0);
    scene.deliver("a", &["--remote", &other]).ends("opened", 0);
}

#[test]
fn two_deliveries_at_once() {
    for wire in [Wire::Github, Wire::Gitlab, Wire::Forgejo] {
        let scene = Scene::new(wire);
        // Of one run directory: the second is kept out.
        scene.forge.state().at_push = Some(held_up);
        let first = scene
            .command("a", &[])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        appears(&scene.forge.root.join("pushing"));
        let second = scene.deliver("a", &[]);
        go_on(&scene.forge.root);
        assert_eq!(second.done.code, 8, "{}", second.done.stderr);
        Delivery::of(Done::of(first.wait_with_output().unwrap())).ends("opened", 0);

        // Of two machines, which know nothing of each other: one request, and nobody fails.
        let scene = Scene::new(wire);
        copy(&scene.run_dir("a"), &scene.dir.path().join("runs/a2"));
        copy(&scene.run_dir("a"), &scene.dir.path().join("runs/a3"));
        let spawned: Vec<_> = ["a", "a2", "a3"]
            .map(|name| {
                scene
                    .command(name, &[])
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .into();
        for child in spawned {
            let done = Delivery::of(Done::of(child.wait_with_output().unwrap()));
            assert_eq!(done.done.code, 0, "{}", done.done.stdout);
            assert!(matches!(done.outcome(), "opened" | "unchanged"), "{}", done.done.stdout);
        }
        assert_eq!(scene.forge.state().pulls.len(), 1, "{wire:?}");
    }
}

#[test]
fn a_dry_run_leaves_no_trace() {
    let scene = Scene::new(Wire::Gitlab);
    let done = scene.deliver("a", &["--dry-run"]).ends("opened", 0);
    assert_eq!(done.line["dry_run"], true);
    assert!(!scene.run_dir("a").join("deliver.jsonl").exists());
    let state = scene.forge.state();
    assert!(state.calls.iter().all(|call| call.method == "GET"), "it only asks");
    assert_eq!(state.pushes, 0);
    drop(state);
    // The commit that was shown is the one that is made.
    let shown = done.line["commit"].as_str().unwrap().to_owned();
    let made = scene.deliver("a", &[]).ends("opened", 0);
    assert_eq!(made.line["commit"], shown.as_str());
    assert_eq!(template().world.git(&["status", "--porcelain"]), "");
}
