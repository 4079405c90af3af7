//! Any recipe is read or refused with problems that can be shown. Reads no file that it names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overnight::diag::{Files, render_all};

fuzz_target!(|text: &str| {
    let mut files = Files::new();
    let id = files.add("fuzz.yaml", text);
    if let Err(problems) = overnight::recipe::parse(&files, id, &mut Vec::new()) {
        assert!(!problems.is_empty());
        assert!(!render_all(&files, &problems).is_empty());
    }
});
