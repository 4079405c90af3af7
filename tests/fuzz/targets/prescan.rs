//! See `overnight_fuzz::prescan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| overnight_fuzz::prescan(&String::from_utf8_lossy(data)));
