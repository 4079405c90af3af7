//! What a sandbox costs a command: the same `true` without this program, and at each level with each write grant, in trees of
//! several sizes. "First of a run" has nothing to build on; "prepared" is the same after what a run does while it waits for
//! its first answer. Before each command is a pause, as there is in a run, where a model answers meanwhile: the child for the
//! next command prepares itself then.

#![expect(clippy::disallowed_methods, reason = "the bare spawn is what is compared with")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use overnight::base::grant::{ClosedPaths, WriteKind, WritePath, Writes};
use overnight::base::secret::Redactor;
use overnight::diag::SourceFiles;
use overnight::policy::{KnownTools, PolicySource, load};
use overnight::process::private::{Private, SandboxRequest, confinement};
use overnight::process::{self, Confinement, Invocation, Network, SandboxLevel, Spawn};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Files of the trees; 20 in each directory.
const SIZES: [usize; 3] = [20, 50_000, 200_000];
/// Between two commands.
const PAUSE: Duration = Duration::from_millis(40);

/// The time of `count` commands, without the pauses. In a pause the runtime goes on with its background work.
fn timed(runtime: &Runtime, count: u64, mut command: impl FnMut()) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..count {
        runtime.block_on(async { tokio::time::sleep(PAUSE).await });
        let start = Instant::now();
        command();
        total += start.elapsed();
    }
    total
}

fn tree(files: usize) -> std::io::Result<tempfile::TempDir> {
    let top = tempfile::tempdir()?;
    for dir in 0..files.div_ceil(20) {
        let dir = top.path().join(format!("d{}/e{dir}", dir % 40));
        std::fs::create_dir_all(&dir)?;
        for file in 0..20 {
            std::fs::write(dir.join(format!("file{file}.rs")), "fn main() {}\n")?;
        }
    }
    Ok(top)
}

fn sandbox(bench: &mut Criterion) {
    process::use_helper(env!("CARGO_BIN_EXE_overnight"));
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let Ok(private) = Private::create(None) else { return };
    // What a real run closes: protected names, and the tests.
    let source = PolicySource {
        name: "bench.yaml".to_owned(),
        text: "version: 1\nrules:\n  - { allow: run_shell_command, commands: [make] }\n  - { deny: write_file, paths: ['tests/**'] }\n".to_owned(),
    };
    let Ok((set, _)) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()) else {
        return;
    };
    let closed = set.closed();
    let mut group = bench.benchmark_group("sandbox");
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    group.bench_function("plain spawn", |bench| {
        bench.iter_custom(|count| {
            timed(&runtime, count, || {
                let plain = async { tokio::process::Command::new("true").env_clear().output().await };
                let _ = std::hint::black_box(runtime.block_on(plain));
            })
        });
    });
    let paths = Writes::Paths {
        paths: vec![WritePath {
            path: "new.txt".to_owned(),
            kind: WriteKind::Entry,
        }],
        maybe: Vec::new(),
    };
    for files in SIZES {
        let Ok(top) = tree(files) else { return };
        for level in [SandboxLevel::None, SandboxLevel::Landlock, SandboxLevel::Full] {
            for (name, writes) in [
                ("nothing", &Writes::Nothing),
                ("paths", &paths),
                ("tree", &Writes::Tree),
            ] {
                // Without a sandbox every grant is that of the whole tree.
                if level == SandboxLevel::None && *writes != Writes::Tree {
                    continue;
                }
                let Some(confinement) = confined(level, top.path(), &private, &closed) else {
                    return;
                };
                let run = |confinement: &Confinement| runtime.block_on(run(writes.clone(), top.path(), confinement));
                // Examines the tree for hard links, which is done once per run.
                run(&confinement);
                let id = BenchmarkId::new(format!("{} {name}", level.as_str()), files);
                group.bench_function(id, |bench| {
                    bench.iter_custom(|count| {
                        timed(&runtime, count, || {
                            std::hint::black_box(run(&confinement));
                        })
                    });
                });
                if level == SandboxLevel::None || name == "paths" {
                    continue;
                }
                let id = BenchmarkId::new(format!("{} {name}, first of a run", level.as_str()), files);
                group.bench_function(id, |bench| {
                    bench.iter_custom(|count| {
                        let each = (0..count).filter_map(|_| {
                            let confinement = confined(level, top.path(), &private, &closed)?;
                            Some(timed(&runtime, 1, || {
                                std::hint::black_box(run(&confinement));
                            }))
                        });
                        each.sum()
                    });
                });
                let id = BenchmarkId::new(format!("{} {name}, first of a run, prepared", level.as_str()), files);
                group.bench_function(id, |bench| {
                    bench.iter_custom(|count| {
                        let each = (0..count).filter_map(|_| {
                            let confinement = confined(level, top.path(), &private, &closed)?;
                            let ahead = confinement.clone();
                            let prepared = runtime.spawn_blocking(move || process::prepare_ahead(&ahead));
                            runtime.block_on(prepared).ok()?;
                            Some(timed(&runtime, 1, || {
                                std::hint::black_box(run(&confinement));
                            }))
                        });
                        each.sum()
                    });
                });
            }
        }
    }
    group.finish();
}

/// As a run makes it, once for all its commands.
fn confined(level: SandboxLevel, top: &Path, private: &Private, closed: &Arc<dyn ClosedPaths>) -> Option<Confinement> {
    let network = match level {
        SandboxLevel::None => Network::Open,
        _ => Network::None,
    };
    let wishes = SandboxRequest {
        level,
        workspace: top,
        hidden: &[],
        closed,
        network: &network,
        witness: true,
        toolchains: &[],
        credentials: |_| false,
        keep_caches: false,
        pass: &[],
        parent: &[],
    };
    confinement(&wishes, private).ok()
}

async fn run(writes: Writes, top: &Path, confinement: &Confinement) -> bool {
    let spawn = Spawn {
        program: Invocation::Argv(vec!["true".to_owned()]),
        dir: top.to_path_buf(),
        env: Vec::new(),
        stdin: None,
        timeout: Duration::from_secs(10),
        cancel: CancellationToken::new(),
        on_output: None,
        keep: None,
        shown: 1024,
        redactor: Arc::new(Redactor::default()),
        writes,
        judge: None,
    };
    process::run(spawn, confinement).await.is_ok()
}

criterion_group!(benches, sandbox);
criterion_main!(benches);
