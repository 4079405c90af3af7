//! The line format of `journal.jsonl`: `{"chain":HEX,"entry":EVENT}`, or `{"mac":HEX,"entry":EVENT}` with a key. Pure.
//! The hash chain reveals changed or missing lines; with a key, only its holder can write a valid chain.

use super::chain_key::JournalKey;
use crate::base::event::Event;
use crate::base::ids::sha256_hex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The file name of the journal.
pub const FILE: &str = "journal.jsonl";

/// The format version that this program writes; `RunStarted.format` holds it.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    /// SHA-256 over the previous line's hash (64 hex digits; empty for the first line) and the bytes of `entry`.
    #[serde(default)]
    chain: Option<&'a str>,
    /// With a key: HMAC-SHA256 over the same bytes.
    #[serde(default)]
    mac: Option<&'a str>,
    #[serde(borrow)]
    entry: &'a RawValue,
}

/// Why a line is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum LineRefused {
    /// It was written with a key, and no key is set.
    NoKey,
    /// It was changed, or is not a journal line.
    Damaged(String),
}

/// The content of a line.
#[derive(Debug, PartialEq)]
pub struct DecodedEvent {
    pub event: Event,
    /// The line's hash in the chain: 64 hex digits.
    pub chain: String,
    /// Whether the line was written with a key.
    pub keyed: bool,
}

fn link(previous: &str, entry: &str, key: Option<&JournalKey>) -> String {
    let pieces = [previous.as_bytes(), entry.as_bytes()];
    key.map_or_else(|| sha256_hex(&pieces), |key| key.mac(&pieces))
}

/// The line for a serialized event, without the newline, and its hash in the chain. `previous`: the hash of the line
/// before, 64 hex digits; empty for the first line.
pub fn encode(previous: &str, entry: &str, key: Option<&JournalKey>) -> (String, String) {
    let chain = link(previous, entry, key);
    let name = if key.is_some() { "mac" } else { "chain" };
    let line = format!("{{\"{name}\":\"{chain}\",\"entry\":{entry}}}");
    (line, chain)
}

/// The content of a line whose event has not been parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct DecodedLine<'a> {
    /// The JSON text of the entry.
    pub entry: &'a str,
    /// The line's hash in the chain: 64 hex digits.
    pub chain: &'a str,
    /// Whether the line was written with a key.
    pub keyed: bool,
}

/// The content of a line, after its hash was checked.
///
/// # Errors
/// [`LineRefused::NoKey`] if the line has a MAC and `key` is `None`; [`LineRefused::Damaged`] if the hash or the MAC
/// does not match, or the line is not one that this program writes.
pub fn decode(previous: &str, line: &str, key: Option<&JournalKey>) -> Result<DecodedEvent, LineRefused> {
    let decoded = decode_line(previous, line, key)?;
    let event =
        serde_json::from_str(decoded.entry).map_err(|error| LineRefused::Damaged(format!("unknown event: {error}")))?;
    Ok(DecodedEvent {
        event,
        chain: decoded.chain.to_owned(),
        keyed: decoded.keyed,
    })
}

/// Like [`decode`], for a record whose entries are not events of a run.
///
/// # Errors
/// The line was changed, is not in this format, or needs a key.
pub fn decode_line<'a>(
    previous: &str,
    line: &'a str,
    key: Option<&JournalKey>,
) -> Result<DecodedLine<'a>, LineRefused> {
    let damaged = |why: String| LineRefused::Damaged(why);
    let parsed: Line = serde_json::from_str(line).map_err(|error| damaged(format!("not a journal line: {error}")))?;
    let entry = parsed.entry.get();
    let pieces = [previous.as_bytes(), entry.as_bytes()];
    let (chain, keyed, holds) = match (parsed.chain, parsed.mac) {
        (Some(chain), None) => (chain, false, sha256_hex(&pieces) == chain),
        (None, Some(mac)) => {
            let key = key.ok_or(LineRefused::NoKey)?;
            (mac, true, key.verifies(&pieces, mac))
        }
        _ => return Err(damaged("not a journal line: it needs `chain` or `mac`".to_owned())),
    };
    if !holds {
        let other = if keyed {
            ", or it was written with another key"
        } else {
            ""
        };
        return Err(damaged(format!(
            "the hash chain is broken: this line, or one before it, was changed{other}"
        )));
    }
    // The hash covers only the entry; the rest of the line must have the written form, too.
    if encode(previous, entry, key.filter(|_| keyed)).0 != line {
        return Err(damaged("the line is not as it was written".to_owned()));
    }
    Ok(DecodedLine { entry, chain, keyed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::EventKind;

    fn entry() -> (Event, String) {
        let event = Event {
            seq: 3,
            at: jiff::Timestamp::UNIX_EPOCH,
            kind: EventKind::Warned {
                code: "w".into(),
                message: "a \u{1b}[0m \"b\"".into(),
            },
        };
        let text = serde_json::to_string(&event).unwrap();
        (event, text)
    }

    #[test]
    fn a_line_round_trips_and_a_changed_one_is_refused() {
        let (event, entry) = entry();
        let key = JournalKey::new("a key of the tests").unwrap();
        for key in [None, Some(&key)] {
            let (line, chain) = encode("", &entry, key);
            let keyed = key.is_some();
            let back = decode("", &line, key).unwrap();
            assert_eq!((back.event, back.chain, back.keyed), (event.clone(), chain, keyed));
            assert!(decode("00", &line, key).is_err(), "another predecessor");
            assert!(
                decode("", &line.replace("\"w\"", "\"x\""), key).is_err(),
                "changed text"
            );
            for at in 0..line.len() {
                for bit in [0x01, 0x20] {
                    let mut bytes = line.clone().into_bytes();
                    bytes[at] ^= bit;
                    let changed = String::from_utf8_lossy(&bytes);
                    assert!(decode("", &changed, key).is_err(), "byte {at} of {changed}");
                }
            }
            assert!(decode("", &format!(" {line}"), key).is_err(), "blanks are a change too");
        }
    }

    #[test]
    fn a_key_is_asked_for_and_another_one_does_not_do() {
        let (_, entry) = entry();
        let (key, other) = (
            JournalKey::new("a key of the tests").unwrap(),
            JournalKey::new("another key of tests").unwrap(),
        );
        let (line, chain) = encode("", &entry, Some(&key));
        assert_eq!(decode("", &line, None), Err(LineRefused::NoKey));
        assert!(
            matches!(decode("", &line, Some(&other)), Err(LineRefused::Damaged(why)) if why.contains("another key"))
        );
        let stripped = line.replace("\"mac\"", "\"chain\"");
        assert!(
            decode("", &stripped, Some(&key)).is_err() && decode("", &stripped, None).is_err(),
            "{chain}"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_refused_or_is_as_it_was_written(previous in "[0-9a-f]{0,64}", line in any_line()) {
            let key = JournalKey::new("a key of the tests").unwrap();
            for key in [None, Some(&key)] {
                if let Ok(found) = decode(&previous, &line, key) {
                    proptest::prop_assert!(line.contains(&found.chain), "{line}");
                    proptest::prop_assert!(!found.keyed || key.is_some());
                }
            }
        }
    }

    /// Arbitrary text, and text in the form of a line with a valid hash and an arbitrary entry.
    fn any_line() -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::*;
        let json = r#"[\[{]("(seq|at|kind|type|warned|code)":([0-9]{1,3}|"[a-z0-9:TZ-]{0,30}"|\{\}|null),?){0,4}[\]}]"#;
        let linked = (json, any::<bool>()).prop_map(|(entry, keyed)| {
            let key = JournalKey::new("a key of the tests").unwrap();
            encode("", &entry, keyed.then_some(&key)).0
        });
        prop_oneof![any::<String>(), linked]
    }
}
