//! Batches whose bundle is in an object store: shards on several machines, kills in the middle of an upload, the same
//! shard twice, and what a merge makes of it. On `file://` everywhere; on S3 and Azure Blob Storage as moto and Azurite
//! give them, which `OVERNIGHT_STORES` names (`python/` and `node/`).

use super::batch::{asking, call, fleet, result, rows};
use super::gemini::{self, Gemini};
use super::harness::{Done, World, have, until};
use super::service::{Answer, Service};
use base64::Engine;
use hmac::{KeyInit, Mac};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A server that ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn serve(mut command: Command, port: u16) -> Server {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Server {
        child,
        url: format!("http://127.0.0.1:{port}"),
    };
    for _ in 0..600 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return server;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the object store did not start");
}

/// Where the stores are installed; says so when they are not.
fn stores(part: &str) -> Option<PathBuf> {
    let place = std::env::var_os("OVERNIGHT_STORES").map(|dir| PathBuf::from(dir).join(part));
    let place = place.filter(|place| place.exists());
    have(&format!("the object store {part} of OVERNIGHT_STORES"), place.is_some());
    place
}

/// One request without a client library; its status.
fn request(url: &str, method: &str, path: &str, headers: &str) -> u16 {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// S3 with the bucket `bundles`.
fn moto() -> Option<Server> {
    let modules = stores("python/moto")?;
    let port = port();
    let mut command = Command::new("python3");
    command
        .args(["-m", "moto.server", "-p", &port.to_string()])
        .env("PYTHONPATH", modules.parent().unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let server = serve(command, port);
    assert_eq!(request(&server.url, "PUT", "/bundles", ""), 200);
    Some(server)
}

/// A world that reaches this S3.
fn with_s3(world: World, url: &str) -> World {
    world
        .env("AWS_ACCESS_KEY_ID", "AKIATESTTESTTEST")
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", url)
}

const SECRET: &str = "s3cr3t-0123456789abcdefghij";
/// The account of every Azurite, as its documentation has it.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Azure Blob Storage with the container `bundles`.
fn azurite() -> Option<Server> {
    let modules = stores("node/node_modules/azurite")?;
    let port = port();
    let mut command = Command::new("node");
    command
        .arg(modules.join("dist/src/blob/main.js"))
        .args(["--inMemoryPersistence", "--skipApiVersionCheck", "--silent"])
        .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
    let server = serve(command, port);
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    let signed = format!(
        "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:2021-08-06\n/{ACCOUNT}/{ACCOUNT}/bundles\nrestype:container"
    );
    let base64 = base64::engine::general_purpose::STANDARD;
    let key = base64.decode(ACCOUNT_KEY).unwrap();
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(signed.as_bytes());
    let signature = base64.encode(mac.finalize().into_bytes());
    let headers =
        format!("x-ms-date: {date}\r\nx-ms-version: 2021-08-06\r\nAuthorization: SharedKey {ACCOUNT}:{signature}\r\n");
    let path = format!("/{ACCOUNT}/bundles?restype=container");
    assert_eq!(request(&server.url, "PUT", &path, &headers), 201);
    Some(server)
}

/// A fleet with a manifest of jobs that each write a file, `m.yaml`.
fn greeting(world: World, jobs: usize) -> World {
    let manifest = asking(jobs, "policy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n")
        .replace("ask.yaml", "greet.yaml")
        .replace("params: { n:", "params: { who:");
    world.beside("m.yaml", manifest);
    world
}

/// A copy of the fleet's files: another machine that runs the same manifest.
fn machine(world: &World, name: &str) -> PathBuf {
    let dir = world.path().join(name);
    std::fs::create_dir(&dir).unwrap();
    for entry in std::fs::read_dir(world.path()).unwrap().flatten() {
        let file = entry.file_name().into_string().unwrap();
        if file.ends_with(".yaml") || file == "r0" {
            let status = Command::new("cp").arg("-r").arg(entry.path()).arg(&dir).status();
            assert!(status.unwrap().success());
        }
    }
    dir
}

fn on(world: &World, machine: &Path, args: &[&str]) -> Done {
    let mut command = world.command(args);
    Done::of(command.current_dir(machine).output().unwrap())
}

/// Rows without what differs between two calls, in the order of the jobs.
fn compared(world: &World, dir: &str) -> Vec<Value> {
    let mut rows = rows(world, dir);
    for row in &mut rows {
        let row = row.as_object_mut().unwrap();
        for key in ["started", "ended", "seconds", "shard", "run", "source"] {
            row.remove(key);
        }
    }
    rows.sort_by_key(|row| row["job"].as_str().unwrap().to_owned());
    rows
}

/// Two shards on two machines, merged on a third: what one machine gives.
fn shards_merge(world: &World, store: &str) {
    call(world, &["batch", "m.yaml", "--out", "one"]).exits(0);
    let mut last = PathBuf::new();
    for shard in ["1/2", "2/2"] {
        last = machine(world, &format!("machine-{}", &shard[..1]));
        let done = on(world, &last, &["batch", "m.yaml", "--shard", shard, "--out", store]).exits(0);
        assert!(
            done.stdout
                .contains(&format!("bundle: {store}/shards/{}-of-2", &shard[..1])),
            "{}",
            done.stdout
        );
    }
    let merged = call(world, &["merge", store, "--out", "out", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(merged["jobs"]["passed"], json!(6));
    assert_eq!(compared(world, "out"), compared(world, "one"));
    let out = world.path().join("out");
    for row in rows(world, "out") {
        let run = out.join(row["run"].as_str().unwrap());
        assert!(run.join("report.html").is_file() && run.with_extension("log").is_file());
        assert!(out.join(row["patch"].as_str().unwrap()).is_file());
        call(world, &["runs", "verify", run.to_str().unwrap()]).exits(0);
    }
    // The same call again, and the same on a machine that has nothing: no job runs.
    let again = ["batch", "m.yaml", "--shard", "2/2", "--out", store, "--format", "json"];
    let fresh = machine(world, "fresh");
    for place in [&last, &fresh] {
        let done = on(world, place, &again).exits(0).json();
        assert_eq!(done["jobs"]["run"], json!(0), "{}", place.display());
        assert_eq!(done["jobs"]["up_to_date"], done["jobs"]["total"]);
    }
    // `--dry-run` asks the store too. A new commit runs all jobs again, as further attempts would.
    let dry = on(
        world,
        &machine(world, "dry"),
        &["batch", "m.yaml", "--shard", "2/2", "--out", store, "--dry-run"],
    );
    assert!(dry.exits(0).stdout.contains(" 0 to run"));
    let more = on(
        world,
        &fresh,
        &[
            "batch", "m.yaml", "--shard", "2/2", "--out", store, "--again", "--format", "json",
        ],
    );
    assert_eq!(more.exits(0).json()["jobs"]["up_to_date"], json!(0));
    call(world, &["merge", store, "--out", "out", "--format", "json"]).exits(0);
    let attempts: BTreeSet<u64> = rows(world, "out")
        .iter()
        .map(|row| row["attempt"].as_u64().unwrap())
        .collect();
    assert_eq!(attempts, BTreeSet::from([1, 2]));
    assert_eq!(result(world, "out")["jobs"]["passed"], json!(6));
}

fn file_store(world: &World) -> String {
    format!("file://{}/store", world.path().display())
}

#[test]
fn shards_on_several_machines_merge_from_files() {
    let world = greeting(fleet(1), 6);
    shards_merge(&world, &file_store(&world));
}

#[test]
fn shards_on_several_machines_merge_from_s3() {
    let Some(server) = moto() else { return };
    let world = greeting(with_s3(fleet(1), &server.url), 6);
    shards_merge(&world, "s3://bundles/nightly/titles");
}

#[test]
fn shards_on_several_machines_merge_from_azure() {
    let Some(server) = azurite() else { return };
    let world = fleet(1)
        .env("AZURE_STORAGE_USE_EMULATOR", "true")
        .env("AZURITE_BLOB_STORAGE_URL", server.url.clone());
    shards_merge(&greeting(world, 6), "az://bundles/nightly");
}

#[test]
fn what_is_cut_altered_missing_or_foreign_is_named() {
    let world = greeting(fleet(1), 4);
    let store = file_store(&world);
    let place = world.path().join("store");
    call(&world, &["batch", "m.yaml", "--shard", "1/2", "--out", &store]).exits(0);
    call(&world, &["batch", "m.yaml", "--shard", "2/2", "--out", &store]).exits(0);
    let merge = |out: &str| call(&world, &["merge", &store, "--out", out]);
    merge("whole").exits(0);
    let shard = place.join("shards/1-of-2");
    let name = format!("{store}/shards/1-of-2:1:1: error");
    let change = |path: &Path, out: &str, change: &dyn Fn(&Path), code: &str| {
        let bytes = std::fs::read(path).unwrap();
        change(path);
        let done = merge(out).exits(3);
        assert!(
            done.stderr.contains(&format!("{name}[{code}]")),
            "{code}: {}",
            done.stderr
        );
        assert!(!world.path().join(out).join("runs.jsonl").exists());
        std::fs::write(path, bytes).unwrap();
    };
    let cut = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 10]).unwrap();
    };
    let alter = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let last = bytes.len() - 20;
        bytes[last] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let remove = |path: &Path| std::fs::remove_file(path).unwrap();
    let under = |dir: &str, end: &str| find(&shard.join(dir), end);
    let journal = under("jobs", "journal.jsonl");
    change(&journal, "m1", &cut, "cut-bundle");
    change(&journal, "m2", &alter, "altered-bundle");
    change(&journal, "m3", &remove, "cut-bundle");
    change(&under("ended", ".json"), "m4", &remove, "cut-bundle");
    change(&under("ended", ".json"), "m5", &cut, "altered-bundle");
    change(&under("runs", ".jsonl"), "m6", &alter, "altered-bundle");
    change(&shard.join("plan.json"), "m7", &cut, "cut-bundle");
    change(&shard.join("bundle.json"), "m8", &cut, "altered-bundle");
    // A shard that has not ended is named, and the rest merged.
    let sealed = std::fs::read(shard.join("bundle.json")).unwrap();
    remove(&shard.join("bundle.json"));
    let done = merge("part").exits(10);
    let told = format!("{store}/shards/1-of-2: this shard has not ended");
    assert!(done.stderr.contains(&told), "{}", done.stderr);
    std::fs::write(shard.join("bundle.json"), sealed).unwrap();
    // The part is completed in the same place.
    merge("part").exits(0);
    // Nothing there, a foreign place, another manifest.
    let done = call(&world, &["merge", &format!("{store}/nothing"), "--out", "none"]).exits(3);
    assert!(done.stderr.contains("no-bundle"), "{}", done.stderr);
    world.beside("foreign/thing", "");
    merge("foreign").exits(8);
    assert!(!world.path().join("foreign/bundles").exists());
    world.beside(
        "m.yaml",
        std::fs::read_to_string(world.path().join("m.yaml"))
            .unwrap()
            .replace("n3", "other"),
    );
    let changed = ["batch", "m.yaml", "--shard", "1/2", "--out", &store];
    let done = on(&world, &machine(&world, "other"), &changed).exits(3);
    assert!(done.stderr.contains("changed-manifest"), "{}", done.stderr);
    // The working directory of one store is not that of another.
    let done = call(
        &world,
        &["batch", "m.yaml", "--shard", "1/2", "--out", &format!("{store}-2")],
    )
    .exits(8);
    assert!(
        done.stderr.contains("with another --out") || done.stderr.contains("as --out"),
        "{}",
        done.stderr
    );
}

/// The first file below a directory whose name ends so.
fn find(dir: &Path, end: &str) -> PathBuf {
    let mut open = vec![dir.to_owned()];
    let mut found = Vec::new();
    while let Some(place) = open.pop() {
        for entry in std::fs::read_dir(place).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                found.push(path);
            }
        }
    }
    found.sort();
    found.remove(0)
}

#[test]
fn addresses_that_cannot_be_used_say_what_to_write() {
    let world = greeting(fleet(1), 1);
    for (address, told) in [
        ("ftp://host/x", "not a known object store"),
        ("s3://bucket", "needs a bucket or container and a prefix"),
        ("file://relative", "three slashes"),
        ("az://box/p?sig=0123456789", "credentials come from the environment"),
        ("az://box/p", "AZURE_STORAGE_ACCOUNT_NAME"),
    ] {
        let done = call(&world, &["batch", "m.yaml", "--out", address]).exits(2);
        assert!(done.stderr.contains(told), "{address}: {}", done.stderr);
        assert!(!done.stderr.contains("0123456789"));
        call(&world, &["merge", address, "--out", "out"]).exits(2);
    }
    let script = [
        "batch", "script", "--engine", "slurm", "--shards", "2", "m.yaml", "--out", "s3://b/p",
    ];
    let done = call(&world, &script).exits(2);
    assert!(
        done.stderr.contains("as the argument of `overnight merge`"),
        "{}",
        done.stderr
    );
    assert!(!world.path().join(".overnight").exists() && !world.path().join("out").exists());
}

/// What the server says of a refused request holds what the request held.
#[test]
fn credentials_are_in_no_message_and_no_file() {
    let body = format!("<Error><Code>AccessDenied</Code><Message>token {SECRET} has expired</Message></Error>");
    let service = Service::new(vec![Answer::Status(403, Vec::new(), body)]);
    let world = greeting(
        with_s3(fleet(1), &service.url).env("AWS_SESSION_TOKEN", format!("session-{SECRET}")),
        1,
    );
    let done = call(
        &world,
        &["batch", "m.yaml", "--out", "s3://bundles/p", "--format", "json"],
    )
    .exits(8);
    let told = format!("{}{}", done.stdout, done.stderr);
    assert!(
        told.contains("AccessDenied") && told.contains("s3://bundles/p"),
        "{told}"
    );
    assert!(!told.contains(SECRET) && told.contains("redacted"), "{told}");
    // With a store that takes it: in none of the files.
    let Some(server) = moto() else { return };
    let world = greeting(with_s3(fleet(1), &server.url), 1);
    call(&world, &["batch", "m.yaml", "--out", "s3://bundles/p"]).exits(0);
    call(&world, &["merge", "s3://bundles/p", "--out", "out"]).exits(0);
    for dir in [".overnight", "out"] {
        let found = Command::new("grep")
            .args(["-rl", SECRET, dir])
            .current_dir(world.path())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    }
}

/// Passes connections on until so many bytes went up; then nothing more comes or goes.
fn stalling(server: &str, limit: u64) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = server.strip_prefix("http://").unwrap().to_owned();
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    std::thread::spawn(move || {
        for peer in listener.incoming().map_while(Result::ok) {
            let Ok(behind) = TcpStream::connect(&server) else {
                return;
            };
            let (mut from, mut to) = (peer.try_clone().unwrap(), behind.try_clone().unwrap());
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                let mut piece = [0; 512];
                while let Ok(read @ 1..) = from.read(&mut piece) {
                    if counted.fetch_add(read as u64, Ordering::SeqCst) >= limit {
                        // Keeps the connection open and says nothing more.
                        std::thread::sleep(Duration::from_secs(60));
                        return;
                    }
                    if to.write_all(&piece[..read]).is_err() {
                        return;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
            let (mut from, mut to) = (behind, peer);
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    });
    (url, sent)
}

#[test]
fn a_shard_killed_in_the_middle_of_an_upload_leaves_nothing_that_a_merge_takes() {
    let Some(server) = moto() else { return };
    let service = Gemini::new(vec![gemini::says("hi")]);
    let world = with_s3(fleet(1), &server.url)
        .env("GEMINI_API_KEY", "k-0123456789")
        .env("GOOGLE_GEMINI_BASE_URL", service.url.clone());
    let jobs = 2;
    world.beside("m.yaml", asking(jobs, "models: [gemini/gemini-2.5-pro]\n"));
    // How much goes up in all.
    let (url, sent) = stalling(&server.url, u64::MAX);
    let whole = machine(&world, "whole");
    let started = |place: &Path, out: &str, url: &str| {
        let mut command = world.command(&["batch", "m.yaml", "--out", out]);
        command.current_dir(place).env("AWS_ENDPOINT_URL", url);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let out = "s3://bundles/whole";
    assert!(started(&whole, out, &url).wait().unwrap().success());
    let all = sent.load(Ordering::SeqCst);
    let asked = service.seen().len();
    assert_eq!(asked, jobs);
    for part in [2, 4, 6, 8, 9] {
        let limit = all * part / 10;
        let place = machine(&world, &format!("killed-{part}"));
        let out = format!("s3://bundles/killed-{part}");
        let (url, sent) = stalling(&server.url, limit);
        let mut child = started(&place, &out, &url);
        until("so much is up", || sent.load(Ordering::SeqCst) >= limit);
        child.kill().unwrap();
        child.wait().unwrap();
        let merged = format!("merged-{part}");
        let half = call(&world, &["merge", &out, "--out", &merged]).exits(10);
        assert!(half.stderr.contains("has not ended"), "{}", half.stderr);
        assert_eq!(rows(&world, &merged).len(), 0);
        // The same command goes on, here or on a machine that has nothing; what has ended is not asked again here.
        let fresh = part % 4 == 0;
        let place = if fresh {
            machine(&world, &format!("fresh-{part}"))
        } else {
            place
        };
        let before = service.seen().len();
        on(&world, &place, &["batch", "m.yaml", "--out", &out]).exits(0);
        if !fresh {
            assert!(service.seen().len() - before <= jobs);
        }
        call(&world, &["merge", &out, "--out", &merged]).exits(0);
        let names: BTreeSet<String> = rows(&world, &merged)
            .iter()
            .map(|row| row["job"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            (names.len(), rows(&world, &merged).len()),
            (jobs, jobs),
            "killed at {part} tenths"
        );
    }
}

#[test]
fn a_shard_that_runs_twice_at_the_same_time_has_one_result() {
    let world = fleet(1);
    let replies = json!({"replies": [{"text": "hi", "delay_ms": 1200}]});
    world.beside("slow.yaml", replies.to_string());
    world.beside("m.yaml", asking(3, "models: [\"script:slow.yaml\"]\n"));
    let store = file_store(&world);
    let places = [machine(&world, "a"), machine(&world, "b")];
    let children: Vec<Child> = places
        .iter()
        .map(|place| {
            let mut command = world.command(&["batch", "m.yaml", "--out", &store, "--jobs", "3"]);
            command
                .current_dir(place)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let told: String = children
        .into_iter()
        .map(|child| {
            let done = Done::of(child.wait_with_output().unwrap()).exits(0);
            done.stderr
        })
        .collect();
    assert_eq!(
        told.matches("has already ended in another call; that result counts")
            .count(),
        3,
        "{told}"
    );
    let row_set = |dir: &str| -> BTreeSet<String> { rows(&world, dir).iter().map(Value::to_string).collect() };
    let (a, b) = (row_set("a/.overnight/batches/m"), row_set("b/.overnight/batches/m"));
    assert_eq!(a, b, "both have the rows of the winners");
    assert_eq!(a.len(), 3);
    call(&world, &["merge", &store, "--out", "out"]).exits(0);
    assert_eq!(rows(&world, "out").len(), 3);
    // What the other one ran is kept beside.
    let unused = |place: &Path| {
        let jobs = place.join(".overnight/batches/m/jobs");
        let dirs = std::fs::read_dir(jobs).unwrap().flatten();
        let names = dirs.flat_map(|dir| std::fs::read_dir(dir.path()).unwrap().flatten());
        names
            .filter(|entry| entry.path().is_dir() && entry.file_name().to_string_lossy().contains(".unused-"))
            .count()
    };
    assert_eq!(places.iter().map(|place| unused(place)).sum::<usize>(), 3);
}
