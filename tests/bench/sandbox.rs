//! What a sandbox costs a command: the same `true` without this program, and at each level; and what it costs a program that executes
//! others, when each exec is asked about and when not.

#![expect(clippy::disallowed_methods, reason = "the bare spawn is what is compared with")]

use criterion::{Criterion, criterion_group, criterion_main};
use overnight::base::secret::Redactor;
use overnight::process::private::{Private, Wishes, confinement};
use overnight::process::{self, Level, Network, Program, Spawn};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn sandbox(bench: &mut Criterion) {
    process::use_helper(env!("CARGO_BIN_EXE_overnight"));
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let (Ok(top), Ok(private)) = (tempfile::tempdir(), Private::create()) else {
        return;
    };
    bench.bench_function("plain spawn", |bench| {
        bench.iter(|| runtime.block_on(async { tokio::process::Command::new("true").env_clear().output().await }));
    });
    for level in [Level::None, Level::Landlock, Level::Full] {
        let network = if level == Level::None {
            Network::Open
        } else {
            Network::None
        };
        let wishes = Wishes {
            level,
            workspace: top.path(),
            hidden: &[],
            protected: &[".git".to_owned()],
            network: &network,
            witness: true,
            toolchains: &[],
            pass: &[],
            parent: &[],
        };
        let Ok(confinement) = confinement(&wishes, &private) else {
            return;
        };
        bench.bench_function(level.as_str(), |bench| {
            bench.iter(|| {
                let spawn = Spawn {
                    program: Program::Argv(vec!["true".to_owned()]),
                    dir: top.path().to_path_buf(),
                    env: Vec::new(),
                    stdin: None,
                    timeout: Duration::from_secs(10),
                    cancel: CancellationToken::new(),
                    on_output: None,
                    keep: None,
                    shown: 1024,
                    redactor: Arc::new(Redactor::default()),
                    writes: overnight::base::grant::Writes::Tree,
                    judge: None,
                };
                runtime.block_on(process::run(spawn, &confinement))
            });
        });
    }
}

criterion_group!(benches, sandbox);
criterion_main!(benches);
