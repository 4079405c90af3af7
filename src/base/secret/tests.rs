//! Tests of redaction: many canaries in every encoding, wrapped and streamed. Other text must stay unchanged.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;

fn canaries() -> Vec<String> {
    let kinds = [
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "p@ss w0rd\"with\\quotes",
        "12345678",
        "ünïcödé-Šecret-日本",
        "a+b/c=d==&e<f>g'h",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "tab\there and more",
        "%41%42 already",
    ];
    let more = (0..10).map(|n| format!("canary-{n:02}-{}", "xYz9!".repeat(n + 1)));
    kinds.iter().map(|kind| (*kind).to_owned()).chain(more).collect()
}

fn hex(text: &str, upper: bool) -> String {
    let plain: String = text.bytes().map(|b| format!("{b:02x}")).collect();
    if upper { plain.to_uppercase() } else { plain }
}

fn all_percent(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}

fn minimal_percent(text: &str) -> String {
    let kept = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes()
        .map(|b| {
            if kept(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02x}")
            }
        })
        .collect()
}

fn codes(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
}

fn inner_json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

fn base32(text: &str, hex: bool) -> String {
    // Five bytes (40 bits) make eight base32 digits.
    let digits: &[u8] = match hex {
        true => b"0123456789ABCDEFGHIJKLMNOPQRSTUV",
        false => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    };
    let group = |bytes: &[u8]| -> String {
        let number = (0..5).fold(0_u64, |sum, i| sum << 8 | u64::from(bytes.get(i).copied().unwrap_or(0)));
        let used = (bytes.len() * 8).div_ceil(5);
        let digit = |i: usize| match i < used {
            true => char::from(digits[(number >> (35 - 5 * i) & 31) as usize]),
            false => '=',
        };
        (0..8).map(digit).collect()
    };
    text.as_bytes().chunks(5).map(group).collect()
}

fn dump(text: &str, before: &str, between: &str) -> String {
    let bytes: Vec<String> = text.bytes().map(|b| format!("{before}{b:02x}")).collect();
    bytes.join(between)
}

fn named(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn numbered(text: &str, hex: bool) -> String {
    let one = |c: char| match hex {
        true => format!("&#x{:x};", u32::from(c)),
        false => format!("&#{};", u32::from(c)),
    };
    text.chars().map(one).collect()
}

fn decimal(text: &str, separator: &str) -> String {
    text.bytes()
        .map(|byte| byte.to_string())
        .collect::<Vec<_>>()
        .join(separator)
}

/// The two-byte words of `xxd`, for a text behind `before`.
fn words(text: &str, before: &str) -> String {
    let digits = hex(&format!("{before}{text}"), false);
    let words: Vec<&str> = (0..digits.len())
        .step_by(4)
        .map(|at| &digits[at..(at + 4).min(digits.len())])
        .collect();
    words.join(" ")
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// As `printf %q` of bash quotes what is printable.
fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || c.is_control() || "_-./:+=@%".contains(c);
    text.chars()
        .map(|c| if plain(c) { c.to_string() } else { format!("\\{c}") })
        .collect()
}

fn encodings(text: &str) -> Vec<(&'static str, String)> {
    vec![
        ("raw", text.to_owned()),
        ("base64", STANDARD.encode(text)),
        ("base64 unpadded", STANDARD_NO_PAD.encode(text)),
        ("base64url", URL_SAFE.encode(text)),
        ("base64url unpadded", URL_SAFE_NO_PAD.encode(text)),
        ("base64 +1", STANDARD.encode(format!("u{text}zz"))),
        ("base64 +2", STANDARD.encode(format!("u:{text}\n"))),
        ("hex", hex(text, false)),
        ("HEX", hex(text, true)),
        ("percent minimal", minimal_percent(text)),
        ("percent full", all_percent(text)),
        ("json", inner_json(text)),
        ("json codes", codes(text)),
        ("json twice", inner_json(&inner_json(text))),
        ("reversed", reversed(text)),
        ("json of reversed", inner_json(&reversed(text))),
        ("json twice of reversed", inner_json(&inner_json(&reversed(text)))),
        ("reversed json", reversed(&inner_json(text))),
        ("json of reversed json", inner_json(&reversed(&inner_json(text)))),
        ("base32", base32(text, false)),
        ("base32 unpadded", base32(text, false).trim_end_matches('=').to_owned()),
        ("base32 lower", base32(text, false).to_lowercase()),
        ("base32hex", base32(text, true)),
        ("base32hex lower", base32(text, true).to_lowercase()),
        ("base32 +1", base32(&format!("u{text}zz"), false)),
        ("base32 +3", base32(&format!("u: {text}\n"), true)),
        ("html named", named(text)),
        ("html numbers", numbered(text, false)),
        ("html hex", numbered(text, true)),
        ("dump spaced", dump(text, "", " ")),
        ("dump colons", dump(text, "", ":")),
        ("dump escapes", dump(text, "\\x", "")),
        ("dump escapes twice", dump(text, "\\\\x", "")),
        ("dump C", dump(text, "0x", ",")),
        ("dump C spaced", dump(text, "0x", ", ").to_uppercase().replace('X', "x")),
        ("base64 + base64", STANDARD.encode(STANDARD.encode(text))),
        ("base64url + base64", STANDARD.encode(URL_SAFE_NO_PAD.encode(text))),
        (
            "base64 +1 + base64url",
            URL_SAFE.encode(format!("x{}", STANDARD.encode(format!("u:{text}")))),
        ),
        ("decimal of Python, spaced", decimal(text, ", ")),
        ("decimal of JavaScript", decimal(text, ",")),
        ("decimal spaced", decimal(text, " ")),
        ("words spaced", words(text, "")),
        ("words spaced +1", words(text, "x")),
        ("base64 of hex", STANDARD.encode(hex(text, false))),
        ("base64 + hex", STANDARD.encode(format!("x{}", hex(text, true)))),
        ("base64 + UTF-16", STANDARD.encode(wide(&format!("$x='{text}'")))),
        ("base64 of UTF-16", STANDARD.encode(wide(text))),
        ("json 3 times of codes", inner_json(&inner_json(&codes(text)))),
        ("json 3 times", inner_json(&inner_json(&inner_json(text)))),
        ("shell quoted", shell_quoted(text)),
    ]
}

#[test]
fn there_are_as_many_encodings_as_are_drawn() {
    assert_eq!(encodings("x").len(), 50);
}

fn wrapped(text: &str, width: usize, with: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let lines: Vec<String> = chars.chunks(width).map(|line| line.iter().collect()).collect();
    lines.join(with)
}

#[test]
fn every_canary_in_every_encoding_is_found() {
    let canaries = canaries();
    assert_eq!(canaries.len(), 20);
    for canary in &canaries {
        let redactor = Redactor::with_values(vec![("C".to_owned(), canary.clone())]);
        for (kind, encoded) in encodings(canary) {
            let text = format!("before {encoded} behind");
            let redacted = redactor.redact(&text);
            assert!(redacted.contains("[redacted:C]"), "{kind} of {canary}: {redacted}");
            if !kind.contains('+') {
                assert_eq!(redacted, "before [redacted:C] behind", "{kind} of {canary}");
            }
            assert_eq!(redactor.find(text.as_bytes()), Some("C"), "{kind} of {canary}");
            for with in ["\n", "\r\n", "\\n", "\n  "] {
                let blanks = kind.contains("spaced") && with.ends_with(' ');
                if (kind.starts_with("json") || kind.contains("escapes")) && with == "\\n"
                    || blanks
                    || canary.contains('\\')
                    || canary.contains('\t')
                    || canary.contains(' ') && with.ends_with(' ')
                {
                    continue;
                }
                let text = format!("before:{}:behind", wrapped(&encoded, 7, with));
                let redacted = redactor.redact(&text);
                assert!(
                    redacted.contains("[redacted:C]"),
                    "{kind} of {canary} wrapped by {with:?}: {redacted}"
                );
                assert!(redactor.find(text.as_bytes()).is_some());
            }
        }
    }
}

#[test]
fn nothing_else_is_touched() {
    let redactor = Redactor::from_env([
        ("API_KEY".to_owned(), "s3cr3t-value-1".to_owned()),
        ("SHORT_TOKEN".to_owned(), "abc".to_owned()),
        ("HOME".to_owned(), "/home/someone".to_owned()),
    ]);
    for text in [
        "",
        "abc /home/someone s3cr3t-value",
        "two\nlines\r\nand \\n more",
        "s3cr3t\n-value",
    ] {
        assert!(matches!(redactor.redact(text), Cow::Borrowed(_)), "{text}");
        assert_eq!(redactor.find(text.as_bytes()), None);
    }
    let none = Redactor::from_env([("SHORT_TOKEN".to_owned(), "abc".to_owned())]);
    assert!(none.is_empty() && !redactor.is_empty());
    assert_eq!(none.redact("abc"), "abc");
}

#[test]
fn each_line_and_each_part_of_a_long_value() {
    let pem =
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n  BAQEFAASCBKcwggSjAgEAAo\n-----END PRIVATE KEY-----\n";
    let long = "0123456789abcdef".repeat(60);
    let redactor = Redactor::with_values(vec![
        ("PEM".to_owned(), pem.to_owned()),
        ("LONG".to_owned(), long.clone()),
    ]);
    assert_eq!(redactor.redact("x BAQEFAASCBKcwggSjAgEAAo y"), "x [redacted:PEM] y");
    let public = "-----BEGIN PRIVATE KEY-----";
    assert_eq!(redactor.redact(public), public);
    assert_eq!(redactor.redact(&format!("<{long}>")), "<[redacted:LONG]>");
    assert_eq!(
        redactor.redact(&format!("<{}>", STANDARD.encode(&long))),
        "<[redacted:LONG]>"
    );
    let wide = format!("<{}>", STANDARD.encode(pem));
    assert!(redactor.redact(&wide).matches("[redacted:PEM]").count() >= 1);
}

#[test]
fn the_longest_value_names_the_hit() {
    let values = vec![
        ("A".to_owned(), "prefix-123".to_owned()),
        ("B".to_owned(), "prefix-123-and-more".to_owned()),
    ];
    let redactor = Redactor::with_values(values);
    assert_eq!(
        redactor.redact("(prefix-123-and-more) (prefix-123)"),
        "([redacted:B]) ([redacted:A])"
    );
}

#[test]
fn json_values_and_keys() {
    let redactor = Redactor::with_values(vec![("K".to_owned(), "12345678".to_owned())]);
    let mut value =
        serde_json::json!({"a": ["x 12345678"], "12345678": {"12345678": 1}, "hex 3132333435363738": 12345678, "n": 1});
    redactor.redact_json(&mut value);
    assert_eq!(
        value,
        serde_json::json!({"a": ["x [redacted:K]"], "[redacted:K]": {"[redacted:K]": 1}, "hex [redacted:K]": "[redacted:K]", "n": 1})
    );
}

fn all_bytes() -> escapes::SecretBytes {
    let mut bytes = escapes::SecretBytes::default();
    bytes.add(&(0..=255).collect::<Vec<u8>>());
    bytes
}

/// `text` with each character encoded in the way that `picks` says, 0 for as it is.
fn partly_encoded(text: &str, picks: &[u8]) -> String {
    let one = |(c, pick): (char, &u8)| match (pick, c) {
        (1, c) => all_percent(&c.to_string()),
        (2, c) => all_percent(&c.to_string()).to_lowercase(),
        (3, c) => format!("&#{};", u32::from(c)),
        (4, c) => format!("&#x{:x};", u32::from(c)),
        (5, c) => format!("&#X{:04X};", u32::from(c)),
        (6, '&') => "&amp;".to_owned(),
        (6, '<') => "&lt;".to_owned(),
        (6, '"') => "&quot;".to_owned(),
        (6, '=') => "&equals;".to_owned(),
        (6, '/') => "&sol;".to_owned(),
        (6, 'ü') => "&uuml;".to_owned(),
        // Encoded twice.
        (7, c) => all_percent(&all_percent(&c.to_string())),
        (8, c) => format!("&amp;#{};", u32::from(c)),
        (9, c) => codes(&c.to_string()),
        (10, c) => inner_json(&codes(&c.to_string())),
        (11, c) if c.is_ascii_punctuation() => format!("\\{c}"),
        (_, c) => c.to_string(),
    };
    text.chars().zip(picks.iter().cycle()).map(one).collect()
}

#[test]
fn what_writers_encode_of_a_key_does_not_matter() {
    let key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY=";
    let redactor = Redactor::with_values(vec![("C".to_owned(), key.to_owned())]);
    // Each subset of the special characters.
    for subset in 0..8_u8 {
        for pick in 1..=11 {
            let of = |c: char| "/+=".find(c).is_some_and(|at| subset >> at & 1 == 1);
            let picks: Vec<u8> = key.chars().map(|c| if of(c) { pick } else { 0 }).collect();
            let encoded = partly_encoded(key, &picks);
            let text = format!("a%20b &amp; u={encoded}&x=%41");
            assert_eq!(redactor.redact(&text), "a%20b &amp; u=[redacted:C]&x=%41", "{encoded}");
            assert_eq!(redactor.find(text.as_bytes()), Some("C"));
        }
    }
    for (text, redacted) in [
        // Gson.
        (
            "\"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\\u003d\"",
            "\"[redacted:C]\"",
        ),
        // Wrapped inside an escape.
        ("wJalrXUtnFEMI/K7MDENG%2\n  BbPxRfiCYEXAMPLEKEY=", "[redacted:C]"),
        // The base64 of a value, in a query.
        (
            "%64%30%70%68%62HJYVXRuRkVNSS9LN01ERU5HK2JQeFJmaUNZRVhBTVBMRUtFWT0%3D",
            "",
        ),
    ] {
        let result = redactor.redact(text);
        assert!(result.contains("[redacted:C]"), "{text}");
        assert!(redacted.is_empty() || result == redacted, "{result}");
    }
    // The plain text of one writer is an escape of the other.
    let other = Redactor::with_values(vec![("D".to_owned(), "ab12+cd34/ef56=".to_owned())]);
    assert_eq!(other.redact("%ab12+cd34&#47;ef56&#x3D;%41"), "%[redacted:D]%41");
    let harmless = "a%20b &amp; 100% &lt;p&gt; wJalrXUtnFEMI%2FK7MDENG";
    assert!(matches!(redactor.redact(harmless), Cow::Borrowed(_)));
}

#[test]
fn a_secret_that_holds_backslashes_is_found_when_other_characters_are_encoded() {
    for (secret, encoded) in [
        // `backslashreplace` of Python and `native2ascii` of Java encode what is outside ASCII and leave backslashes alone.
        (r"DOMAIN\üser:pässword", r"DOMAIN\\u00fcser:p\u00e4ssword"),
        (r"DOMAIN\üser:pässword", r"DOMAIN\\u00fcser:p\\u00e4ssword"),
        (r"a\b!aAAaüA\ü", r"a\\u0062!aAAaüA\ü"),
        (r"ab\x41cd-efgh", r"ab\\u007841cd-efgh"),
        // Only a character outside ASCII is encoded, and only one of two.
        ("!0ü!ü!!ü", r"!0ü!\u00fc!!ü"),
        // What looks like percent encoding is a part of the secret.
        ("0AAüü00%A0", r"0AAüü00\%A%30"),
        // Too short without its backslash.
        (r"!\!Aaaaa", r"!\\\\\\\\!Aaaaa"),
    ] {
        let redactor = Redactor::with_values(vec![("C".to_owned(), secret.to_owned())]);
        let text = format!("before {encoded} behind");
        assert_eq!(redactor.redact(&text), "before [redacted:C] behind", "{encoded}");
        for size in 1..=text.len() {
            let streamed = String::from_utf8(streamed(&redactor, text.as_bytes(), size)).unwrap();
            assert_eq!(
                once(&streamed),
                "before [redacted:C] behind",
                "{encoded} in pieces of {size}"
            );
        }
    }
}

#[test]
fn a_stream_holds_back_a_partly_encoded_beginning_only() {
    let redactor = Redactor::with_values(vec![("C".to_owned(), "a+b/c=d==&e<f>g'h".to_owned())]);
    let mut stream = redactor.stream();
    assert_eq!(stream.push(b"q=%20x&amp;y "), b"q=%20x&amp;y ");
    assert_eq!(stream.push(b"now %6"), b"now ");
    assert_eq!(stream.push(b"1+%62%2fc%"), b"");
    assert_eq!(stream.push(b"3dd&equals;&#6"), b"");
    assert_eq!(stream.push(b"1;&am"), b"");
    assert_eq!(stream.push(b"p;e%3"), b"");
    assert_eq!(stream.push(b"cf>g%27h and the rest"), b"[redacted:C] and the rest");
    assert_eq!(stream.push(b" x%"), b" x");
    assert_eq!(stream.push(b" of it"), b"% of it");
    let escapes = "%25".repeat(50_000);
    assert_eq!(streamed(&redactor, escapes.as_bytes(), 8192), escapes.as_bytes());
    let ends = "%&".repeat(50_000);
    assert_eq!(streamed(&redactor, ends.as_bytes(), 8192), ends.as_bytes());
}

/// Adjacent hits are reported as one or as several, depending on how the stream was cut.
fn once(text: &str) -> String {
    let mut text = text.to_owned();
    while text.contains("[redacted:C][redacted:C]") {
        text = text.replace("[redacted:C][redacted:C]", "[redacted:C]");
    }
    text
}

fn streamed(redactor: &Redactor, text: &[u8], size: usize) -> Vec<u8> {
    let mut stream = redactor.stream();
    let mut out = Vec::new();
    for piece in text.chunks(size) {
        out.extend(stream.push(piece));
        assert!(stream.held.len() <= MAX_HELD + size);
    }
    out.extend(stream.finish());
    out
}

#[test]
fn a_stream_lets_harmless_text_through_at_once() {
    let redactor = Redactor::with_values(vec![("K".to_owned(), "Qs3cr3t-value".to_owned())]);
    let mut stream = redactor.stream();
    assert_eq!(stream.push(b"building...\n"), b"building...\n");
    assert_eq!(stream.push(b"now Qs3c"), b"now ");
    assert_eq!(stream.push(b"r3t-value"), b"");
    assert_eq!(
        stream.push(b" and all of the rest"),
        b"[redacted:K] and all of the rest"
    );
    assert_eq!(stream.finish(), b"");
}

#[test]
fn a_stream_is_bounded_and_fast() {
    let redactor = Redactor::with_values(canaries().into_iter().map(|c| ("C".to_owned(), c)).collect());
    let text = "The quick brown fox jumps over the lazy dog.\n".repeat(20_000);
    assert_eq!(streamed(&redactor, text.as_bytes(), 8192), text.as_bytes());
    let breaks = format!("ghp_{}x", "\n".repeat(200_000));
    assert_eq!(streamed(&redactor, breaks.as_bytes(), 8192), breaks.as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stream_gives_what_the_whole_gives(
        pieces in proptest::collection::vec("[a-z \n]{0,12}|ghp_16C7e42F292c6912E77|Z2hwXzE2QzdlNDJGMjkyYzY5MTJFNzc|6768705f3136433765\n34324632393263363931324537\\\\n37", 0..8),
        size in 1usize..40,
    ) {
        let redactor = Redactor::with_values(vec![("C".to_owned(), "ghp_16C7e42F292c6912E77".to_owned())]);
        let text = pieces.concat();
        let whole = redactor.redact(&text).into_owned();
        let streamed = String::from_utf8(streamed(&redactor, text.as_bytes(), size)).unwrap();
        prop_assert_eq!(once(&streamed), once(&whole));
    }

    #[test]
    fn a_stream_gives_what_the_whole_gives_of_escapes(
        picks in proptest::collection::vec(0u8..12, 1..30),
        between in "[g-z &;\n]{0,12}",
        size in 1usize..40,
    ) {
        let secret = "kp_16C7+42F/2c69=E77&ü";
        let redactor = Redactor::with_values(vec![("C".to_owned(), secret.to_owned())]);
        let encoded = partly_encoded(secret, &picks);
        let text = format!("{between} {encoded} {between}|{encoded}");
        let whole = redactor.redact(&text).into_owned();
        prop_assert_eq!(whole.matches("[redacted:C]").count(), 2, "{}", &text);
        let streamed = String::from_utf8(streamed(&redactor, text.as_bytes(), size)).unwrap();
        prop_assert_eq!(once(&streamed), once(&whole));
    }

    #[test]
    fn no_partly_encoded_secret_survives(
        secret in "[!-~ü]{8,40}",
        picks in proptest::collection::vec(0u8..12, 1..40),
        before in "[!-~]{0,20} ",
        behind in " [!-~]{0,20}",
    ) {
        // A value that consists of escapes may be too short when they are decoded.
        prop_assume!(escapes::forms(secret.as_bytes(), all_bytes()).iter().all(|form| form.len() >= MIN_BYTES));
        let redactor = Redactor::with_values(vec![("C".to_owned(), secret.clone())]);
        let encoded = partly_encoded(&secret, &picks);
        let text = format!("{before}{encoded}{behind}");
        let redacted = redactor.redact(&text).into_owned();
        prop_assert!(!redacted.contains(&encoded) || "[redacted:C]".contains(&encoded), "{}", redacted);
        prop_assert_eq!(redactor.find(text.as_bytes()), Some("C"));
    }

    #[test]
    fn no_secret_survives(secret in "[!-~]{8,40}", before in "[ -~\n]{0,20}", behind in "[ -~\n]{0,20}", which in 0usize..50) {
        let redactor = Redactor::with_values(vec![("C".to_owned(), secret.clone())]);
        let (_, encoded) = encodings(&secret).swap_remove(which);
        let text = format!("{before}{encoded}{behind}");
        let redacted = redactor.redact(&text).into_owned();
        prop_assert!(!redacted.contains(&encoded) || "[redacted:C]".contains(&encoded), "{}", redacted);
        prop_assert_eq!(redactor.find(text.as_bytes()), Some("C"));
    }
}
