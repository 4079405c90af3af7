//! Many at once: every exec is judged exactly once, and what is passed on is passed on.

use super::super::harness::{World, says, script, shell};
use super::{CONFINED, House, Recorder, house};
use std::collections::BTreeMap;

/// How often each first word was judged.
fn counts(judge: &Recorder) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for argv in judge.argvs() {
        *counts.entry(argv[0].clone()).or_default() += 1;
    }
    counts
}

fn count(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs
        .iter()
        .map(|(name, number)| ((*name).to_owned(), *number))
        .collect()
}

#[tokio::test]
async fn ten_parallel_streams_are_counted_exactly() {
    for level in CONFINED {
        let house = house(level);
        let judge = Recorder::new();
        let text = "for s in {1..10}; do ( for i in {1..10}; do /bin/true; done; seq 3 | xargs -n1 basename; (env ls src/d &) ) & done; wait; sleep 0.1";
        let got = house.run(text, &judge).await;
        let want = count(&[
            ("/bin/true", 100),
            ("seq", 10),
            ("xargs", 10),
            ("basename", 30),
            ("env", 10),
            ("ls", 10),
            ("sleep", 1),
        ]);
        assert_eq!(counts(&judge), want, "{level:?}");
        assert_eq!(
            (got.execs.len(), got.execs_omitted, got.exit.code),
            (171, 0, Some(0)),
            "{level:?}"
        );
    }
}

#[tokio::test]
async fn a_thousand_execs_in_twelve_streams_free_and_judged() {
    for level in CONFINED {
        let Some(house) = House::with_programs(level) else {
            return;
        };
        let judge = Recorder::new();
        let text = "for s in {1..12}; do ( for i in {1..60}; do /bin/true; done; aux/spin 20 /bin/true; aux/runner 'for i in 1 2 3; do /bin/echo free; done | sort'; \
                    seq 20 | xargs -P2 -n1 basename >/dev/null ) & done; wait";
        let got = house.run(text, &judge).await;
        let want = count(&[
            ("/bin/true", 720),
            ("aux/spin", 12),
            ("aux/runner", 12),
            ("seq", 12),
            ("xargs", 12),
            ("basename", 240),
        ]);
        assert_eq!(counts(&judge), want, "{level:?}");
        assert_eq!(got.stdout.text.matches("free\n").count(), 36, "{level:?}");
        // More than are kept for the journal.
        assert_eq!((got.execs.len(), got.execs_omitted), (1_000, 8), "{level:?}");
        assert_eq!((got.exit.code, got.denied), (Some(0), None), "{level:?}");
    }
}

#[tokio::test]
async fn commands_side_by_side_do_not_know_each_other() {
    for level in CONFINED {
        let house = house(level);
        let judges: Vec<_> = (0..4).map(|_| Recorder::new()).collect();
        let runs = judges.iter().enumerate().map(|(at, judge)| {
            let house = &house;
            async move {
                house
                    .run(&format!("for i in {{1..10}}; do basename {at}-$i; done"), judge)
                    .await
            }
        });
        let got = futures_util::future::join_all(runs).await;
        for (at, (judge, got)) in judges.iter().zip(&got).enumerate() {
            assert_eq!(counts(judge), count(&[("basename", 10)]), "{level:?}");
            assert!(judge.argvs().iter().all(|argv| argv[1].starts_with(&format!("{at}-"))));
            assert_eq!(got.stdout.text.lines().count(), 10);
        }
    }
}

/// Each recipe line is a shell that ends at once, often before the thread that judges has seen which program it was.
#[test]
fn what_a_build_starts_in_the_background_is_not_denied() {
    for level in ["landlock", "full"] {
        let world = World::repo(&[("Makefile", "all:\n\t@(sleep 0.01 &)\n\t@sleep 0.01 &\n")]);
        let policy = format!(
            "version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [make], because: x }}\nsandbox: {{ level: {level} }}\n"
        );
        let command = vec!["make"; 40].join("; ");
        let replies = script(&[shell(&command), says("done")]);
        world.run(&replies, &policy, &["-p", "go"]).exits(0);
        assert_eq!(world.result()["denied"], serde_json::json!([]), "{level}");
    }
}
