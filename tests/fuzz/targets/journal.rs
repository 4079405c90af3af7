//! Any line of a journal is refused or is byte for byte as this program writes it. Reads no file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overnight::journal::format::{decode, encode};

fuzz_target!(|input: (&str, &str)| {
    let (previous, text) = input;
    if let Ok(found) = decode(previous, text, None) {
        assert!(text.contains(&found.chain), "{text}");
    }
    // With a link that holds, only the event itself can be refused.
    let (line, chain) = encode(previous, text, None);
    if let Ok(found) = decode(previous, &line, None) {
        assert_eq!((found.chain, found.keyed), (chain, false));
    }
});
