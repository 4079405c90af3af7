//! What it costs to put secrets out of text that holds none: the redactor with four and with twelve secrets, beside one automaton
//! that looks only for the values as they are.

use aho_corasick::AhoCorasick;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use overnight::base::secret::Redactor;
use std::hint::black_box;

/// Bytes of a text; what a command prints at most in one piece to a model is 40 kB.
const BYTES: usize = 1 << 20;
/// Bytes of a piece of a stream.
const PIECE: usize = 8 << 10;

/// Values with the look of keys, the same in every run.
fn secrets(count: usize) -> Vec<(String, String)> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from_digit((state >> 33) as u32 % 36, 36).unwrap_or('0')
    };
    let name = |n: usize| format!("SECRET_{n}_TOKEN");
    (0..count)
        .map(|n| {
            (
                name(n),
                format!("key-{}", (0..20 + n % 5 * 8).map(|_| letter()).collect::<String>()),
            )
        })
        .collect()
}

/// Source code, a lock file whose hashes look like what secrets are encoded as, a page with many escapes, and prose with
/// none.
fn texts() -> [(&'static str, String); 4] {
    let filled = |text: &str| text.chars().cycle().take(BYTES).collect();
    [
        ("source code", filled(include_str!("../it/corpus_effects.rs"))),
        ("a lock file", filled(include_str!("../../Cargo.lock"))),
        (
            "a page",
            filled(
                "<li><a href=\"/find?q=a%20b%2Fc&amp;page=2\">It&#39;s here &gt;</a> and not in the other place.</li>\n",
            ),
        ),
        (
            "prose",
            filled("The quick brown fox jumps over the lazy dog, and nobody knows why.\n"),
        ),
    ]
}

fn redact(bench: &mut Criterion) {
    for (what, text) in texts() {
        let mut group = bench.benchmark_group(what);
        group.sample_size(20);
        group.throughput(Throughput::Bytes(text.len() as u64));
        for count in [4, 12] {
            let secrets = secrets(count);
            let redactor = Redactor::with_values(secrets.clone());
            let Ok(plain) = AhoCorasick::new(secrets.iter().map(|(_, value)| value)) else {
                return;
            };
            group.bench_function(format!("{count} secrets: the values alone"), |bench| {
                bench.iter(|| plain.find(black_box(&text)));
            });
            group.bench_function(format!("{count} secrets: whole"), |bench| {
                bench.iter(|| redactor.redact(black_box(&text)).len());
            });
            group.bench_function(format!("{count} secrets: by lines"), |bench| {
                bench.iter(|| {
                    text.lines()
                        .map(|line| redactor.redact(black_box(line)).len())
                        .sum::<usize>()
                });
            });
            group.bench_function(format!("{count} secrets: a stream"), |bench| {
                bench.iter(|| {
                    let mut stream = redactor.stream();
                    let passed: usize = text
                        .as_bytes()
                        .chunks(PIECE)
                        .map(|piece| stream.push(piece).len())
                        .sum();
                    passed + stream.finish().len()
                });
            });
        }
        group.finish();
    }
    let secrets = secrets(12);
    bench.bench_function("making a redactor of 12 secrets", |bench| {
        bench.iter(|| Redactor::with_values(black_box(secrets.clone())));
    });
}

criterion_group!(benches, redact);
criterion_main!(benches);
