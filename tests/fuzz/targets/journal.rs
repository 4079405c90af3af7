//! See `overnight_fuzz::journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (&str, &str)| overnight_fuzz::journal(input));
