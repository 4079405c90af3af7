//! The head of an HTML report: one self-contained page whose content security policy names the digests of its style and
//! script, so nothing else is loaded or runs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

/// The `head` of a page with this style, and with this script if it has one.
pub fn head(title: &str, style: &str, script: Option<&str>) -> Markup {
    let digest = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let script = script.map(|script| format!(" script-src 'sha256-{}';", digest(script)));
    let csp = format!(
        "default-src 'none'; style-src 'sha256-{}';{} base-uri 'none'; form-action 'none'",
        digest(style),
        script.unwrap_or_default()
    );
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(csp);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="referrer" content="no-referrer";
            meta name="robots" content="noindex";
            title { (title) }
            style { (PreEscaped(style)) }
        }
    }
}
