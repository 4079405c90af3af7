//! A URL that a pattern covers has a host of the strict grammar that ends in the pattern's name. Resolves nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overnight::policy::hosts::{HostPattern, judge, target};

fuzz_target!(|input: (&str, &str)| {
    let (pattern, url) = input;
    let docs = HostPattern::parse("*.docs.rs").expect("a pattern");
    if let Ok(found) = judge(url, std::slice::from_ref(&docs)) {
        let shown = format!("{found:?}").to_ascii_lowercase();
        assert!(shown.contains(".docs.rs"), "{url} became {shown}");
        assert!(!url.contains('\0') && !url.contains('@'), "{url}");
    }
    if let (Ok(pattern), Ok(found)) = (HostPattern::parse(pattern), target(url)) {
        assert!(!pattern.fits(&found) || pattern.touches(&found), "it covers and does not touch");
    }
});
