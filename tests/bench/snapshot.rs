//! What a snapshot of a large tree costs: our own walk and store beside `git add -A` and `git write-tree` on the same files in the
//! same run, with the largest memory of each. `OVERNIGHT_FILES` sets how many files (200,000), `OVERNIGHT_AT` where they lie.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what is compared with is started here, and a measurement that cannot go on has failed"
)]

use overnight::workspace::patch::Shadow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Set for the copy of this program that takes the snapshots, so that its memory is its own.
const CHILD: &str = "OVERNIGHT_SNAPSHOT_CHILD";
const PER_DIRECTORY: usize = 40;

fn main() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return ours(Path::new(&dir));
    }
    let count = std::env::var("OVERNIGHT_FILES")
        .ok()
        .and_then(|count| count.parse().ok());
    let count: usize = count.unwrap_or(200_000);
    let at = std::env::var_os("OVERNIGHT_AT").map_or_else(std::env::temp_dir, PathBuf::from);
    let top = tempfile::tempdir_in(at).unwrap();
    let tree = top.path().join("tree");
    for n in 0..count {
        let dir = tree.join(format!("d{:03}/e{}", n / PER_DIRECTORY / 20, n / PER_DIRECTORY % 20));
        if n % PER_DIRECTORY == 0 {
            std::fs::create_dir_all(&dir).unwrap();
        }
        let text = format!("fn f{n}() {{\n    let value = {n};\n}}\n").repeat(1 + n % 30);
        std::fs::write(dir.join(format!("file_{n}.rs")), text).unwrap();
    }
    println!("{count} files");
    // Files that were just made count as changing still.
    std::thread::sleep(Duration::from_secs(3));

    println!("no repository:");
    child(&tree);
    let git_dir = top.path().join("git");
    run(&tree, &git_dir, &["init", "-q"]);
    gits("first", &tree, &git_dir);
    gits("again", &tree, &git_dir);
    change(&tree);
    gits("after one edit", &tree, &git_dir);

    println!("all of it committed:");
    run(&tree, &tree.join(".git"), &["init", "-q"]);
    run(&tree, &tree.join(".git"), &["add", "-A"]);
    run(&tree, &tree.join(".git"), &["repack", "-adq"]);
    std::thread::sleep(Duration::from_secs(3));
    run(&tree, &tree.join(".git"), &["status", "--short"]);
    child(&tree);
    let shared = top.path().join("shared");
    run(&tree, &shared, &["init", "-q"]);
    std::fs::write(
        shared.join("objects/info/alternates"),
        format!("{}\n", tree.join(".git/objects").display()),
    )
    .unwrap();
    let start = Instant::now();
    std::fs::copy(tree.join(".git/index"), shared.join("index")).unwrap();
    println!("  git   copy of the index   {:>8.1} ms", millis(start));
    gits("first", &tree, &shared);
    gits("again", &tree, &shared);
    change(&tree);
    gits("after one edit", &tree, &shared);

    println!("and 300 MB that git does not know:");
    let large = std::fs::File::create(tree.join("large.bin")).unwrap();
    let part: Vec<u8> = (0..1_u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for _ in 0..300 {
        std::io::Write::write_all(&mut &large, &part).unwrap();
    }
    std::thread::sleep(Duration::from_secs(3));
    child(&tree);
    gits("first", &tree, &shared);
}

fn millis(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

fn change(tree: &Path) {
    let path = tree.join("d000/e0/file_0.rs");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}// {}\n", text.len())).unwrap();
}

fn child(tree: &Path) {
    let done = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, tree)
        .status()
        .unwrap();
    assert!(done.success());
}

/// Takes snapshots with our own store, as a run does.
fn ours(tree: &Path) {
    let dir = tempfile::tempdir_in(tree.parent().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let shadow = Shadow::open(&dir.path().join("git"), tree, &[]).unwrap();
    let start = Instant::now();
    let base = runtime.block_on(shadow.baseline()).unwrap();
    println!("  ours  first               {:>8.1} ms", millis(start));
    for _ in 0..2 {
        let start = Instant::now();
        let again = runtime.block_on(shadow.snapshot()).unwrap();
        println!("  ours  again               {:>8.1} ms", millis(start));
        assert_eq!(again, base);
    }
    change(tree);
    let start = Instant::now();
    let now = runtime.block_on(shadow.snapshot()).unwrap();
    println!("  ours  after one edit      {:>8.1} ms", millis(start));
    let start = Instant::now();
    let delta = runtime.block_on(shadow.delta(&base, &now)).unwrap();
    assert_eq!(delta.files.len(), 1);
    println!("  ours  its patch           {:>8.1} ms", millis(start));
    println!(
        "  ours  memory {:.1} MB, store {:.1} MB",
        peak("self"),
        size(dir.path()) as f64 / 1e6
    );
}

/// The largest memory of a process so far, in MB.
fn peak(process: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1000.0
}

fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries
        .map(|entry| match entry.path().is_dir() {
            true => size(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

fn gits(what: &str, tree: &Path, git_dir: &Path) {
    let start = Instant::now();
    run(tree, git_dir, &["add", "-A"]);
    run(tree, git_dir, &["write-tree"]);
    println!("  git   {what:<19} {:>8.1} ms", millis(start));
}

fn run(tree: &Path, git_dir: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(args)
        .current_dir(tree)
        .env("GIT_DIR", git_dir)
        .env("GIT_WORK_TREE", tree)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(done.success(), "git {args:?}");
}
