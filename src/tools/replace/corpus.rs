//! Reads the corpus of edits in `fixtures/edits`, for tests and the benchmark.

use serde_json::Value;
use std::path::Path;

/// One edit of the corpus.
pub struct EditCase {
    pub defect: String,
    pub file: Vec<u8>,
    pub old: String,
    pub new: String,
    pub multiple: bool,
    pub wanted: ExpectedEdit,
}

/// The expected result.
pub enum ExpectedEdit {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, or a refusal, because the request is ambiguous.
    BytesOrRefusal(Vec<u8>),
    /// An error of this kind.
    Refusal(String),
}

/// All cases, in the order of the table.
pub fn load() -> Vec<EditCase> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/edits");
    let table = std::fs::read_to_string(dir.join("cases.jsonl")).unwrap();
    let rows = table.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
    rows.map(|row| {
        let base = std::fs::read_to_string(dir.join("base").join(row["base"].as_str().unwrap())).unwrap();
        case(&row, &base)
    })
    .collect()
}

/// The case of one row, which edits the text `base`.
pub fn case(row: &Value, base: &str) -> EditCase {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let form = text("form");
    let after = || {
        let clean = |index: usize| row["clean"][index].as_str().unwrap();
        let base = prepared(base, &form);
        let count = if row["multiple"] == true { usize::MAX } else { 1 };
        assert!(base.contains(clean(0)), "{row}");
        spelled(&base.replacen(clean(0), clean(1), count), &form)
    };
    let wanted = match row["refuse"].as_str() {
        Some(kind) => ExpectedEdit::Refusal(kind.to_owned()),
        None if row["or_refused"] == true => ExpectedEdit::BytesOrRefusal(after()),
        None => ExpectedEdit::Bytes(after()),
    };
    EditCase {
        defect: text("defect"),
        file: spelled(&prepared(base, &form), &form),
        old: text("old"),
        new: text("new"),
        multiple: row["multiple"] == true,
        wanted,
    }
}

/// The content before it is encoded.
fn prepared(base: &str, form: &str) -> String {
    match form {
        _ if form.contains("no_final") => base.trim_end_matches('\n').to_owned(),
        "latin1" => format!("# café, größer\n{base}"),
        _ => base.to_owned(),
    }
}

/// The text in a given encoding and line end form.
fn spelled(text: &str, form: &str) -> Vec<u8> {
    let ends: &[&str] = match form {
        "cr" => &["\r"],
        "mixed" => &["\n", "\r\n", "\r\n", "\n", "\r"],
        _ if form.contains("crlf") => &["\r\n"],
        _ => &["\n"],
    };
    let mut spelled = if form.contains("bom") {
        "\u{feff}".to_owned()
    } else {
        String::new()
    };
    for (index, line) in text.split_inclusive('\n').enumerate() {
        spelled.push_str(line.trim_end_matches('\n'));
        if line.ends_with('\n') {
            // An LF for an empty line would be one end with the CR before it.
            let end = if form == "mixed" && line == "\n" {
                "\r\n"
            } else {
                ends[index % ends.len()]
            };
            spelled.push_str(end);
        }
    }
    let wide16 = |order: fn(u16) -> [u8; 2]| spelled.encode_utf16().flat_map(order).collect();
    let wide32 = |order: fn(u32) -> [u8; 4]| spelled.chars().flat_map(|c| order(c as u32)).collect();
    match form.split('_').next().unwrap_or_default() {
        "utf16le" => wide16(u16::to_le_bytes),
        "utf16be" => wide16(u16::to_be_bytes),
        "utf32le" => wide32(u32::to_le_bytes),
        "utf32be" => wide32(u32::to_be_bytes),
        "latin1" => spelled.chars().map(|c| u8::try_from(c as u32).unwrap()).collect(),
        _ => spelled.into_bytes(),
    }
}
