//! See `overnight_fuzz::changes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| overnight_fuzz::changes(text));
