//! What it costs a program that executes others when each exec is asked about, and when not.

use criterion::{Criterion, criterion_group, criterion_main};
use overnight::base::grant::{ClosedPaths, Exec, ExecAnswer, ExecJudge, NothingClosed, Starts, Writes};
use overnight::base::secret::Redactor;
use overnight::process::private::{Private, SandboxRequest, confinement};
use overnight::process::{self, Invocation, Network, SandboxLevel, Spawn};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Judges by the name of the file only: `sh` may start anything, the rest nothing.
#[derive(Debug)]
struct ByName;

impl ExecJudge for ByName {
    fn judge(&self, exec: &Exec) -> ExecAnswer {
        let free = exec.path.ends_with("sh");
        ExecAnswer::Allow {
            starts: if free { Starts::Anything } else { Starts::Nothing },
            writes: Vec::new(),
        }
    }

    fn asks_below_anything(&self) -> bool {
        false
    }
}

/// 500 execs in one command: not asked about, passed on below a free program, judged. The difference to the first, divided by 500, is
/// what one costs.
fn execs(bench: &mut Criterion) {
    process::use_helper(env!("CARGO_BIN_EXE_overnight"));
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let (Ok(top), Ok(private)) = (tempfile::tempdir(), Private::create(None)) else {
        return;
    };
    let closed: Arc<dyn ClosedPaths> = Arc::new(NothingClosed);
    let many = "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done";
    let below = format!("sh -c '{many}'; true");
    let mut group = bench.benchmark_group("500 execs");
    group.sample_size(10);
    for level in [SandboxLevel::Landlock, SandboxLevel::Full] {
        let wishes = SandboxRequest {
            level,
            workspace: top.path(),
            hidden: &[],
            closed: &closed,
            network: &Network::None,
            witness: true,
            toolchains: &[],
            credentials: |_| false,
            keep_caches: false,
            pass: &[],
            parent: &[],
        };
        let Ok(confinement) = confinement(&wishes, &private) else {
            return;
        };
        for (name, text, judged) in [
            ("not asked about", below.as_str(), false),
            ("passed on", below.as_str(), true),
            ("not asked about, by the shell", many, false),
            ("judged", many, true),
        ] {
            group.bench_function(format!("{}: {name}", level.as_str()), |bench| {
                bench.iter(|| {
                    let judge: Option<Arc<dyn ExecJudge>> = if judged { Some(Arc::new(ByName)) } else { None };
                    let spawn = Spawn {
                        program: Invocation::Shell(text.to_owned()),
                        dir: top.path().to_path_buf(),
                        env: Vec::new(),
                        stdin: None,
                        timeout: Duration::from_secs(60),
                        cancel: CancellationToken::new(),
                        on_output: None,
                        keep: None,
                        shown: 1024,
                        redactor: Arc::new(Redactor::default()),
                        writes: Writes::Tree,
                        judge,
                    };
                    runtime.block_on(process::run(spawn, &confinement))
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, execs);
criterion_main!(benches);
