//! Any text is read or refused in bounded time, and what is refused has a code from the closed list. No rules here.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overnight::policy::calls::without_tree;
use overnight::policy::codes;
use overnight::policy::shell::{Grants, MAX_BYTES, read};
use std::time::{Duration, Instant};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let start = Instant::now();
    let reading = without_tree(|terrain| read(&text, "", terrain, &Grants::default()));
    assert!(start.elapsed() < Duration::from_secs(2), "too slow");
    match reading {
        Ok(reading) => {
            assert!(text.len() <= MAX_BYTES);
            let found = reading.commands.len() + reading.reads.len() + reading.writes.len();
            assert!(found > 0, "nothing is read from it and it is not refused");
        }
        Err(refusal) => assert!(codes::find(&refusal.code).is_some(), "unknown code {}", refusal.code),
    }
});
