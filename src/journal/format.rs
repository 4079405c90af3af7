//! One line of `journal.jsonl`: `{"chain":HEX,"entry":EVENT}`. Pure; the hash chain makes a changed or missing line visible.

use crate::base::event::Event;
use crate::base::ids::sha256_hex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version that this program writes; `RunStarted.format` carries it.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    /// SHA-256 of the chain of the line before (64 hex digits; empty for the first) and the bytes of `entry`.
    chain: &'a str,
    #[serde(borrow)]
    entry: &'a RawValue,
}

/// The line for an event that is serialized already, without the line end, and its chain.
pub fn encode(previous: &str, entry: &str) -> (String, String) {
    let chain = sha256_hex(&[previous.as_bytes(), entry.as_bytes()]);
    let line = format!("{{\"chain\":\"{chain}\",\"entry\":{entry}}}");
    (line, chain)
}

/// The event of a line and its chain, after the chain was checked.
pub fn decode(previous: &str, line: &str) -> Result<(Event, String), String> {
    let parsed: Line = serde_json::from_str(line).map_err(|error| format!("not a journal line: {error}"))?;
    let chain = sha256_hex(&[previous.as_bytes(), parsed.entry.get().as_bytes()]);
    if chain != parsed.chain {
        return Err("the hash chain is broken: this line, or one before it, was changed".to_owned());
    }
    let event = serde_json::from_str(parsed.entry.get()).map_err(|error| format!("unknown event: {error}"))?;
    Ok((event, chain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::EventKind;

    #[test]
    fn a_line_round_trips_and_a_changed_one_is_refused() {
        let event = Event {
            seq: 3,
            at: jiff::Timestamp::UNIX_EPOCH,
            kind: EventKind::Warned {
                code: "w".into(),
                message: "a \u{1b}[0m \"b\"".into(),
            },
        };
        let entry = serde_json::to_string(&event).unwrap();
        let (line, chain) = encode("", &entry);
        assert_eq!(decode("", &line).unwrap(), (event, chain));
        assert!(decode("00", &line).is_err(), "another predecessor");
        assert!(decode("", &line.replace("\"w\"", "\"x\"")).is_err(), "changed text");
    }
}
