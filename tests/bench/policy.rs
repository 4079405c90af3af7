//! What a ruling costs: usual commands one by one with their percentiles, and the largest texts that are read at all.

use criterion::{Criterion, criterion_group, criterion_main};
use overnight::base::ruling::PolicyInput;
use overnight::diag::SourceFiles;
use overnight::policy::lexical_access::{by_name, without_tree};
use overnight::policy::{KnownTools, PolicySet, PolicySource, Uses, decide, load};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};

const BENIGN: &str = include_str!("../../fixtures/policy/commands/benign-by-program.yaml");
const ATTACKS: &str = include_str!("../../fixtures/policy/commands/attacks-by-program.yaml");
/// The largest text that is read.
const LIMIT: usize = 16 * 1024;

/// The first policy of a corpus, and all its commands.
fn corpus(text: &str) -> Option<(PolicySet, Vec<String>)> {
    let corpus: Value = serde_saphyr::from_str(text).ok()?;
    let policy = corpus["policies"].get(0)?;
    let rules = json!([
        { "allow": "run_shell_command", "commands": policy["commands"] },
        { "allow": "write_file", "paths": policy["write"] },
        { "allow": "web_fetch", "hosts": policy["hosts"] },
    ]);
    let source = PolicySource {
        name: "bench.yaml".to_owned(),
        text: json!({ "version": 1, "rules": rules }).to_string(),
    };
    let (set, _) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()).ok()?;
    let commands = corpus["cases"]
        .as_array()?
        .iter()
        .flat_map(|case| case["commands"].as_array());
    let commands = commands
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    Some((set, commands))
}

fn ruling(set: &PolicySet, text: &str) -> Duration {
    let args = json!({ "command": text });
    let (tool, kind, origin, access) = by_name("run_shell_command", &args);
    let asked = PolicyInput {
        tool: &tool,
        kind,
        origin: &origin,
        args: &args,
    };
    let start = Instant::now();
    without_tree(|fs_view| black_box(decide(set, &asked, &access, fs_view, &Uses::default())));
    start.elapsed()
}

/// Texts near the limit that are dear to read.
fn largest() -> Vec<String> {
    let fill = |part: &str, end: &str| {
        let mut text = part.repeat((LIMIT - end.len() - 1) / part.len());
        text.push_str(end);
        text
    };
    vec![
        fill("ls -la src; ", "ls"),
        fill("a", ""),
        format!("echo {}", fill("'x' ", "").split_at(LIMIT - 8).0),
        format!("echo {}", "\"$(ls)\" ".repeat(150)),
        format!("cat {}", "src/a-file-with-a-name.rs ".repeat(600)),
        format!("grep -e {} src", "x ".repeat(4000)),
        format!("sed '{}' src/lib.rs", "s/a/b/;".repeat(2200)),
        format!("awk '{{ {} }}' src/lib.rs", "print $1; ".repeat(1500)),
        format!("cat <<'E'\n{}E\n", "a line of a document\n".repeat(700)),
        format!("for f in {}; do ls \"$f\"; done", "a ".repeat(7000)),
        format!("unknown-program {}", "git -a ".repeat(2000)),
        "if ls; then ".repeat(1200),
        "( ".repeat(8000),
        "$( ".repeat(5000),
        "ls | ".repeat(3000),
        "ls | ".repeat(600),
        format!("ls {}", "{a,b}".repeat(3200)),
        format!("ls {}", "[a]".repeat(5300)),
        format!("ls {}", "a=b ".repeat(4000)),
        fill("ls > a ", "ls"),
    ]
}

fn percentile(times: &mut [Duration], part: f64) -> Duration {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index below the number of samples"
    )]
    let at = (last as f64 * part) as usize;
    times.get(at).copied().unwrap_or_default()
}

fn report(name: &str, mut times: Vec<Duration>) {
    use std::io::Write;
    let (half, most, all) = (
        percentile(&mut times, 0.5),
        percentile(&mut times, 0.99),
        percentile(&mut times, 1.0),
    );
    let _ = writeln!(
        std::io::stdout(),
        "{name}: {} rulings, median {half:.1?}, p99 {most:.1?}, longest {all:.1?}",
        times.len()
    );
}

fn rulings(bench: &mut Criterion) {
    for (name, text) in [("usual", BENIGN), ("hostile", ATTACKS)] {
        let Some((set, commands)) = corpus(text) else { return };
        let all = || -> Vec<Duration> { commands.iter().map(|text| ruling(&set, text)).collect() };
        all();
        report(name, (0..10).flat_map(|_| all()).collect());
        bench.bench_function(name, |bench| bench.iter(all));
    }
    let Some((set, _)) = corpus(BENIGN) else { return };
    let texts = largest();
    let all = || -> Vec<Duration> { texts.iter().map(|text| ruling(&set, text)).collect() };
    all();
    report("at the limit of 16 KiB", (0..20).flat_map(|_| all()).collect());
    for (text, took) in texts
        .iter()
        .zip(all())
        .filter(|(_, took)| *took > Duration::from_millis(20))
    {
        report(&format!("  of these, {:?}", text.get(..24)), vec![took]);
    }
}

/// Names of files as trees have them.
const NAMES: [&str; 8] = [
    "src/policy/shell/words.rs",
    "crates/engine/src/Scheduler.rs",
    "node_modules/@types/node/fs/promises.d.ts",
    "docs/a page with blanks.md",
    "target/debug/deps/libserde-0123456789abcdef.rmeta",
    "app/src/main/java/org/example/service/AccountService.java",
    "tests/data/case-17/expected.json",
    "README.md",
];

/// The question that is asked for every name of a tree: a line for the cost of one.
fn closed(bench: &mut Criterion) {
    for (name, rules) in [
        ("closed: protected names only", json!([])),
        (
            "closed: and five deny rules",
            json!([
                { "deny": "write_file", "paths": ["tests/**", "fixtures/**"] },
                { "deny": "*", "paths": ["**/*.pem", "**/*.lock"], "except": ["tmp/**"] },
                { "deny": "replace", "paths": ["src/gen/*.rs"] },
                { "suspend": "write_file", "paths": ["deploy/"] },
                { "deny": "run_shell_command", "paths": ["**/migrations/**"] },
            ]),
        ),
    ] {
        let source = PolicySource {
            name: "bench.yaml".to_owned(),
            text: json!({ "version": 1, "rules": rules }).to_string(),
        };
        let Ok((set, _)) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()) else {
            return;
        };
        let closed = set.closed();
        let mut names = NAMES.iter().cycle();
        bench.bench_function(name, |bench| {
            bench.iter(|| names.next().map(|name| closed.closed(black_box(name), false)));
        });
    }
}

criterion_group!(benches, rulings, closed);
criterion_main!(benches);
