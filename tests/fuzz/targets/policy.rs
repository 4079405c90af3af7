//! Any policy file is read or refused with problems that can be shown. Rules on nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overnight::diag::{Files, render_all};
use overnight::policy::{KnownTools, Source, load};

fuzz_target!(|text: &str| {
    let mut files = Files::new();
    let source = Source { name: "fuzz.yaml".to_owned(), text: text.to_owned() };
    if let Err(problems) = load(&mut files, &[source], &KnownTools::builtin()) {
        assert!(!problems.is_empty());
        assert!(!render_all(&files, &problems).is_empty());
    }
});
