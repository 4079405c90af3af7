//! See `overnight_fuzz::execs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (&str, Vec<&str>, &str, u8)| overnight_fuzz::execs(input));
