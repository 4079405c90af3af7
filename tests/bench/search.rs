//! `grep_search` and `glob` beside `rg` on a tree of 20,000 files. Without `rg` on the path only ours are measured.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench that cannot make its tree has nothing to measure"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use overnight::base::ids::CallId;
use overnight::process::Confinement;
use overnight::tools::{LiveSender, Registry, ToolContext, ToolScope};
use overnight::workspace::Workspace;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILES: usize = 20_000;

/// Files of 60 lines of eight made-up words, the same at every run.
fn make_tree(root: &Path) {
    let mut seed: u64 = 7;
    let mut next = |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for n in 0..FILES {
        let dir = root.join(format!("d{}/s{}", n % 40, n % 200));
        std::fs::create_dir_all(&dir).unwrap();
        let mut text = String::new();
        for _ in 0..60 {
            for _ in 0..8 {
                text.push_str(&format!("w{:x} ", next(3_000)));
            }
            text.push('\n');
        }
        std::fs::write(dir.join(format!("f{n}.rs")), text).unwrap();
    }
}

struct Ours {
    workspace: Arc<Workspace>,
    registry: Registry,
    runtime: tokio::runtime::Runtime,
}

impl Ours {
    fn call(&self, tool: &str, args: &Value) -> String {
        let found = self.registry.find(tool).unwrap();
        let args = found.accept(args).unwrap().args;
        let prepared = found.tool.prepare(&args, &self.workspace).unwrap();
        let output = self.runtime.block_on((prepared.work)(self.context())).unwrap();
        output.summary
    }

    fn context(&self) -> ToolContext {
        let root = self.workspace.root().to_owned();
        ToolContext {
            call: CallId::nth(1),
            workspace: Arc::clone(&self.workspace),
            scope: Arc::new(ToolScope {
                confinement: Confinement::unconfined(&root).into(),
                jobs: overnight::process::jobs::Jobs::default(),
                results: root.join(".overnight/results").into(),
                redactor: Arc::default(),
                memory: root.join(".overnight/memory"),
                servers: overnight::tools::mcp::Servers::default(),
                notices: overnight::tools::notices::Notices::default(),
                web: overnight::tools::web::Web::default(),
            }),
            cancel: tokio_util::sync::CancellationToken::new(),
            deadline: Instant::now() + Duration::from_secs(60),
            live: LiveSender::none(),
            writes: overnight::base::grant::Writes::Nothing,
            judge: None,
        }
    }
}

fn rg(root: &Path, args: &[&str]) {
    let mut command = Command::new("rg");
    command.arg("--no-config").args(args).current_dir(root);
    command.stdout(Stdio::null()).status().unwrap();
}

fn search(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let ours = Ours {
        workspace: Arc::new(Workspace::open(dir.path()).unwrap()),
        registry: Registry::builtin().unwrap(),
        runtime: tokio::runtime::Builder::new_multi_thread()
            .enable_time()
            .build()
            .unwrap(),
    };
    let has_rg = Command::new("rg").arg("--version").output().is_ok();
    let cases = [
        (
            "grep word",
            "grep_search",
            json!({ "pattern": "w7ab" }),
            vec!["-i", "-n", "w7ab"],
        ),
        (
            "grep none",
            "grep_search",
            json!({ "pattern": "zzqq" }),
            vec!["-i", "-n", "zzqq"],
        ),
        (
            "grep regex",
            "grep_search",
            json!({ "pattern": r"wa[0-9]+ w\w+ wb", "case_sensitive": true }),
            vec!["-n", r"wa[0-9]+ w\w+ wb"],
        ),
        (
            "glob",
            "glob",
            json!({ "pattern": "**/f*7.rs" }),
            vec!["--files", "-g", "**/f*7.rs"],
        ),
    ];
    for (name, tool, args, rg_args) in cases {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(20);
        group.bench_function("overnight", |bencher| bencher.iter(|| ours.call(tool, &args)));
        if has_rg {
            group.bench_function("rg", |bencher| bencher.iter(|| rg(dir.path(), &rg_args)));
        }
        group.finish();
    }
}

criterion_group!(benches, search);
criterion_main!(benches);
