//! See `overnight_fuzz::policy_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| overnight_fuzz::policy_file(text));
