//! Detects a model that is stuck: turns that repeat, alone or as a short cycle, and replies that repeat themselves.
//! Pure. A turn includes its results, so a test run again after an edit, or output that has grown, is no repeat.

use std::collections::VecDeque;

/// The longest cycle of turns that is detected: A, A, A …; A, B, A, B …; A, B, C, A, B, C ….
const CYCLE: usize = 3;
/// The longest repeated passage that is detected, in bytes.
const PERIOD: usize = 400;
/// How many times in a row the passage must occur at the end of a reply.
const TIMES: usize = 12;
/// Shortest reply, in bytes, that is searched for repetition; tables and progress bars are usually shorter.
const LENGTH: usize = 1_200;

/// The last turns, each as one text of its calls and results.
#[derive(Clone, Debug, Default)]
pub struct RepetitionDetector {
    last: VecDeque<String>,
    /// For cycles of one, two, … turns: how many turns in a row equal the turn one cycle before.
    runs: [u32; CYCLE],
}

impl RepetitionDetector {
    /// Adds a turn. Returns how often in a row the same turn or cycle was made; 1 for a new one.
    pub fn note(&mut self, turn: &str) -> u32 {
        let mut most = 0;
        for (n, run) in self.runs.iter_mut().enumerate() {
            let before = self.last.len().checked_sub(n + 1).and_then(|at| self.last.get(at));
            *run = if before.is_some_and(|before| before == turn) {
                *run + 1
            } else {
                0
            };
            most = most.max(*run / (n as u32 + 1));
        }
        self.last.push_back(turn.to_owned());
        if self.last.len() > CYCLE {
            self.last.pop_front();
        }
        most + 1
    }
}

/// Whether the text ends with one passage repeated many times.
pub fn echoes(text: &str) -> bool {
    let bytes = text.trim_end().as_bytes();
    if bytes.len() < LENGTH {
        return false;
    }
    (1..=PERIOD).any(|period| {
        let span = (period * TIMES).max(LENGTH);
        let Some(tail) = bytes.len().checked_sub(span).and_then(|start| bytes.get(start..)) else {
            return false;
        };
        let same = |pair: (&u8, &u8)| pair.0 == pair.1;
        // A row of one to three different characters is a ruler or a table border.
        let plain = tail.iter().collect::<std::collections::BTreeSet<_>>().len() < 4;
        !plain && tail.iter().zip(&tail[period..]).all(same)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(turns: &[&str]) -> u32 {
        let mut repetition = RepetitionDetector::default();
        turns.iter().map(|turn| repetition.note(turn)).max().unwrap_or(0)
    }

    #[test]
    fn repeats_and_short_cycles_count() {
        assert_eq!(most(&["a"]), 1);
        assert_eq!(most(&["a", "a", "a"]), 3);
        assert_eq!(most(&["a", "b", "a", "b", "a", "b"]), 3);
        assert_eq!(most(&["a", "b", "c", "a", "b", "c"]), 2);
    }

    #[test]
    fn lawful_repetition_does_not_count() {
        let tests = [
            "edit 1",
            "test red",
            "edit 2",
            "test red",
            "edit 3",
            "test red",
            "edit 4",
            "test green",
        ];
        assert_eq!(most(&tests), 1, "the same test after each edit");
        let polls: Vec<String> = (0..50).map(|n| format!("read job1: {n} lines")).collect();
        assert_eq!(
            most(&polls.iter().map(String::as_str).collect::<Vec<_>>()),
            1,
            "output that grows"
        );
        let mut repetition = RepetitionDetector::default();
        for turn in ["a", "a", "a", "a", "b"] {
            repetition.note(turn);
        }
        assert_eq!(repetition.note("a"), 1, "it went another way in between");
    }

    #[test]
    fn echoes_are_told_from_tables() {
        assert!(echoes(&"I will now look at the file. ".repeat(60)));
        assert!(echoes(&format!(
            "First a plan. {}",
            "Wait, let me check that again.\n".repeat(50)
        )));
        assert!(!echoes(&"=".repeat(5_000)), "a ruler");
        assert!(!echoes("short short short short"));
        let table: String = (0..200).map(|n| format!("| row {n} | value {} |\n", n * 7)).collect();
        assert!(!echoes(&table));
    }
}
