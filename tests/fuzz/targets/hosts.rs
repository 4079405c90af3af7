//! See `overnight_fuzz::hosts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (&str, &str)| overnight_fuzz::hosts(input));
