//! See `overnight_fuzz::recipe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| overnight_fuzz::recipe(text));
