//! See `overnight_fuzz::judge`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| overnight_fuzz::judge(text));
