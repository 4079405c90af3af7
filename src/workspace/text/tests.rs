//! Tests of decoding, mapping back and splicing.

use super::*;
use proptest::prelude::*;

fn text(bytes: &[u8]) -> Text {
    decode(bytes).unwrap()
}

fn spelled(content: &str, encoding: TextEncoding, mark: bool) -> Vec<u8> {
    let content = if mark {
        format!("\u{feff}{content}")
    } else {
        content.to_owned()
    };
    let mut bytes = Vec::new();
    match encoding {
        TextEncoding::Utf8 => bytes.extend(content.bytes()),
        TextEncoding::Utf16Le => content.encode_utf16().for_each(|unit| bytes.extend(unit.to_le_bytes())),
        TextEncoding::Utf16Be => content.encode_utf16().for_each(|unit| bytes.extend(unit.to_be_bytes())),
        TextEncoding::Utf32Le => content.chars().for_each(|c| bytes.extend((c as u32).to_le_bytes())),
        TextEncoding::Utf32Be => content.chars().for_each(|c| bytes.extend((c as u32).to_be_bytes())),
        TextEncoding::SingleByte | TextEncoding::BrokenUtf8 => panic!("not spelled here"),
    }
    bytes
}

fn replaced(text: &Text, old: &str, new: &str) -> Result<Vec<u8>, SpliceError> {
    let at = text.as_str().find(old).unwrap();
    text.with_replacements(&[(at..at + old.len(), new.to_owned())])
}

const WIDE: [TextEncoding; 5] = [
    TextEncoding::Utf8,
    TextEncoding::Utf16Le,
    TextEncoding::Utf16Be,
    TextEncoding::Utf32Le,
    TextEncoding::Utf32Be,
];

#[test]
fn every_encoding_is_found_and_kept() {
    let content = "let grüße = \"😀\";\r\nlast";
    for encoding in WIDE {
        for mark in [true, false] {
            let bytes = spelled(content, encoding, mark);
            let text = text(&bytes);
            assert_eq!((text.encoding(), text.has_mark()), (encoding, mark));
            assert_eq!(text.as_str(), "let grüße = \"😀\";\nlast");
            let expected = spelled("let größe = \"😀\";\r\nlast", encoding, mark);
            assert_eq!(replaced(&text, "grüße", "größe").unwrap(), expected);
        }
    }
}

#[test]
fn binary_and_untrue_marks_are_refused() {
    assert_eq!(decode(b"\x7fELF\x02\x01\x01\0\0\0\0").unwrap_err(), Undecodable::Binary);
    assert_eq!(decode(b"a\0b").unwrap_err(), Undecodable::Binary);
    assert_eq!(decode(b"\xff\xfea").unwrap_err(), Undecodable::Malformed("UTF-16LE"));
    assert_eq!(
        decode(b"\xfe\xff\xd8\x00").unwrap_err(),
        Undecodable::Malformed("UTF-16BE")
    );
}

#[test]
fn latin_1_is_edited_byte_by_byte() {
    let text = text(b"// caf\xe9\r\nlet x = 1;\r\n");
    assert_eq!(text.encoding(), TextEncoding::SingleByte);
    assert_eq!(
        replaced(&text, "x = 1", "y = 2").unwrap(),
        b"// caf\xe9\r\nlet y = 2;\r\n"
    );
    assert_eq!(replaced(&text, "x = 1", "é").unwrap(), b"// caf\xe9\r\nlet \xe9;\r\n");
    let refused = replaced(&text, "x = 1", "日").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`日` (U+65E5) cannot be written in this file's encoding, windows-1252"
    );
}

#[test]
fn stray_bytes_in_utf8_stay() {
    let text = text(
        "a é \u{fffd}\nx "
            .as_bytes()
            .iter()
            .chain(b"\xff\xfe y\nz\n")
            .copied()
            .collect::<Vec<_>>()
            .as_slice(),
    );
    assert_eq!(text.encoding(), TextEncoding::BrokenUtf8);
    assert_eq!(text.as_str(), "a é \u{fffd}\nx \u{fffd}\u{fffd} y\nz\n");
    let expected = [&b"a \xc3\xa9 \xef\xbf\xbd\nx \xff\xfe w\nz\n"[..]].concat();
    assert_eq!(
        replaced(&text, "x \u{fffd}\u{fffd} y", "x \u{fffd}\u{fffd} w").unwrap(),
        expected
    );
    assert!(matches!(
        replaced(&text, "z", "\u{fffd}"),
        Err(SpliceError::Unrepresentable(_))
    ));
    assert_eq!(
        replaced(&text, "\u{fffd}\nx", "\u{fffd}\nq").unwrap()[..11],
        *b"a \xc3\xa9 \xef\xbf\xbd\nq "
    );
}

#[test]
fn new_lines_take_the_line_end_around_them() {
    // bytes, old, new, expected
    let cases: &[(&str, &str, &str, &str)] = &[
        ("a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"),
        ("a\r\nb\nc\n", "a\n", "a\nx\n", "a\r\nx\r\nb\nc\n"),
        ("a\r\nb\nc\n", "c\n", "x\nc\n", "a\r\nb\nx\nc\n"),
        ("a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc", "a\r\nB\nc\r\n"),
        ("a\nb\r\nc", "c", "c\nd", "a\nb\r\nc\r\nd"),
        ("a\rb\rc", "b", "b\nx", "a\rb\rx\rc"),
        ("a\r\nb\nc\n", "a\nb\n", "z\n", "z\r\nc\n"),
        ("a\r\nb\nc\n", "a\n", "", "b\nc\n"),
        ("one", "one", "one\ntwo\n", "one\ntwo\n"),
        ("a\r\nb\n", "a", "a\r\nx", "a\r\nx\r\nb\n"),
    ];
    for (before, old, new, after) in cases {
        let bytes = replaced(&text(before.as_bytes()), old, new).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            *after,
            "{before:?}: {old:?} -> {new:?}"
        );
    }
}

#[test]
fn a_rewrite_keeps_what_does_not_change() {
    let mixed = text(b"\xef\xbb\xbfa\r\nb\nc\r\nd\r\n");
    assert_eq!(
        mixed.rewrite("a\nb\nnew\nc\nd\n").unwrap(),
        b"\xef\xbb\xbfa\r\nb\nnew\r\nc\r\nd\r\n"
    );
    assert_eq!(mixed.rewrite("a\nB\nc\nd").unwrap(), b"\xef\xbb\xbfa\r\nB\nc\r\nd");
    assert_eq!(mixed.rewrite("\u{feff}a\r\n").unwrap(), b"\xef\xbb\xbfa\r\n");
    let wide = spelled("a\r\nb\r\n", TextEncoding::Utf16Le, true);
    assert_eq!(
        text(&wide).rewrite("a\nc\n").unwrap(),
        spelled("a\r\nc\r\n", TextEncoding::Utf16Le, true)
    );
}

#[test]
fn lines_are_numbered_from_one() {
    let text = text(b"a\r\nb\r\n\r\nc");
    assert_eq!(text.lines().collect::<Vec<_>>(), ["a", "b", "", "c"]);
    assert_eq!([0, 1, 2, 4, 5].map(|at| text.line_of(at)), [1, 1, 2, 3, 4]);
    assert_eq!(super::decode(b"").unwrap().lines().count(), 0);
    assert_eq!(text.oddity().as_deref(), Some("CRLF line ends"));
}

#[test]
fn bad_ranges_are_refused() {
    let text = text("aé\n".as_bytes());
    assert_eq!(
        text.with_replacements(&[(0..2, String::new())]),
        Err(SpliceError::BadRange)
    );
    let overlap = [(0..1, "x".to_owned()), (0..3, "y".to_owned())];
    assert_eq!(text.with_replacements(&overlap), Err(SpliceError::BadRange));
    assert_eq!(
        text.with_replacements(&[(9..9, String::new())]),
        Err(SpliceError::BadRange)
    );
}

proptest! {
    #[test]
    fn bytes_outside_a_range_never_change(
        lines in prop::collection::vec(("[a-cé😀]{0,4}", prop::sample::select(vec!["\n", "\r\n", "\r"])), 0..8),
        tail in "[a-c]{0,2}",
        new in "[a-cx\n]{0,6}",
        encoding in prop::sample::select(WIDE.to_vec()),
        mark: bool,
        cut: (prop::sample::Index, prop::sample::Index),
    ) {
        let content: String = lines.iter().map(|(line, end)| format!("{line}{end}")).chain([tail]).collect();
        let bytes = spelled(&content, encoding, true);
        let bytes = if mark || encoding != TextEncoding::Utf8 { bytes } else { content.clone().into_bytes() };
        let text = decode(&bytes).unwrap();
        let mut places: Vec<usize> = text.as_str().char_indices().map(|(at, _)| at).collect();
        places.push(text.as_str().len());
        let (a, b) = (places[cut.0.index(places.len())], places[cut.1.index(places.len())]);
        let range = a.min(b)..a.max(b);
        let raw = text.raw_range(range.clone()).unwrap();
        let out = text.with_replacements(&[(range.clone(), new.clone())]).unwrap();
        prop_assert!(out.starts_with(&bytes[..raw.start]));
        prop_assert!(out.ends_with(&bytes[raw.end..]));
        let mut plain = text.as_str().to_owned();
        plain.replace_range(range.clone(), &new);
        // A CR at the end of the new text may be followed by an LF outside, and both become one line end.
        if !content.contains('\r') {
            let again = decode(&out).unwrap();
            prop_assert_eq!(again.as_str(), plain);
        }
        let same = text.as_str()[range.clone()].to_owned();
        prop_assert_eq!(text.with_replacements(&[(range, same)]).unwrap(), bytes);
    }

    #[test]
    fn any_bytes_decode_and_come_back(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(text) = decode(&bytes) {
            let all = 0..text.as_str().len();
            prop_assert_eq!(text.raw_range(all.clone()).unwrap().end, bytes.len());
            prop_assert_eq!(text.with_replacements(&[(all, text.as_str().to_owned())]).unwrap(), bytes);
        }
    }
}

#[test]
fn a_wrap_keeps_the_line_end_of_each_line() {
    let text = decode(b"a();\r\nb();\nc();\r\nd();\n").unwrap();
    let range = 0..text.as_str().find("d();").unwrap();
    let wrapped = "if x {\n    a();\n    b();\n    c();\n}\n";
    let bytes = text.with_replacements(&[(range.clone(), wrapped.to_owned())]).unwrap();
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        "if x {\r\n    a();\r\n    b();\n    c();\r\n}\r\nd();\n"
    );
    let unwrapped = decode(b"if x {\r\n\ta();\n\tb();\r\n}\nc();\n").unwrap();
    let range = 0..unwrapped.as_str().find("c();").unwrap();
    let bytes = unwrapped
        .with_replacements(&[(range, "a();\nb();\n".to_owned())])
        .unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), "a();\nb();\r\nc();\n");
}
