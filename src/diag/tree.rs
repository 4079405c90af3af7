//! A YAML document in which every key and value has its source position.

use super::source::{SourceFiles, Span, Spanned};
use crate::base::secret;
use serde_json::{Map, Value};

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlNode {
    pub span: Span,
    pub shape: Shape,
}

/// The kinds of values.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Scalar(Scalar),
    List(Vec<YamlNode>),
    Map(Vec<MapEntry>),
}

/// A scalar whose type is not decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    pub text: String,
    /// Whether it was written without quotes, so that it may be a number, a boolean or null.
    pub plain: bool,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    pub key: String,
    pub key_span: Span,
    pub value: YamlNode,
}

impl Scalar {
    /// The value by YAML's core schema; integers out of range become floats, `.inf` and `.nan` stay strings.
    pub fn value(&self) -> Value {
        if !self.plain {
            return Value::String(self.text.clone());
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            text => number(text).unwrap_or_else(|| Value::String(self.text.clone())),
        }
    }

    /// Whether it is null or empty.
    pub fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

fn number(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(Value::from);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return u64::from_str_radix(octal, 8).ok().map(Value::from);
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || !unsigned.contains(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        let whole = text.strip_prefix('+').unwrap_or(text);
        if let Ok(value) = whole.parse::<i64>() {
            return Some(Value::from(value));
        }
        if let Ok(value) = whole.parse::<u64>() {
            return Some(Value::from(value));
        }
    }
    let shaped = unsigned.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    let value = if shaped { text.parse::<f64>().ok()? } else { return None };
    serde_json::Number::from_f64(value).map(Value::Number)
}

impl YamlNode {
    /// The value without positions.
    pub fn to_json(&self) -> Value {
        match &self.shape {
            Shape::Scalar(scalar) => scalar.value(),
            Shape::List(items) => Value::Array(items.iter().map(YamlNode::to_json).collect()),
            Shape::Map(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Whether it is null or empty.
    pub fn is_null(&self) -> bool {
        matches!(&self.shape, Shape::Scalar(scalar) if scalar.is_null())
    }

    /// The value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        match &self.shape {
            Shape::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value),
            _ => None,
        }
    }

    /// A description for messages: `a list`, `the number 3`, `the string "x"`.
    pub fn describe(&self) -> String {
        match &self.shape {
            Shape::List(_) => "a list".to_owned(),
            Shape::Map(_) => "a map".to_owned(),
            Shape::Scalar(scalar) => match scalar.value() {
                Value::Null => "nothing".to_owned(),
                Value::Bool(value) => format!("`{value}`"),
                Value::Number(value) => format!("the number {value}"),
                _ => format!("the string \"{}\"", shortened(&scalar.text)),
            },
        }
    }
}

impl Spanned<String> {
    /// The source range of the bytes `within` of this scalar, despite escapes, folding and indentation.
    ///
    /// Found by counting how often the same text occurs before it; falls back to the whole scalar.
    pub fn locate(&self, files: &SourceFiles, within: std::ops::Range<usize>) -> Span {
        let Some(wanted) = self.value.get(within.clone()).filter(|wanted| !wanted.is_empty()) else {
            return self.span;
        };
        let earlier = self
            .value
            .match_indices(wanted)
            .take_while(|(at, _)| *at < within.start);
        let found = files.slice(self.span).match_indices(wanted).nth(earlier.count());
        found.map_or(self.span, |(at, text)| Span {
            file: self.span.file,
            start: self.span.start + at,
            end: self.span.start + at + text.len(),
        })
    }
}

/// Characters of a string that messages show.
const SHOWN: usize = 40;

fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match secret::shortened(line, SHOWN) {
        whole if whole == line && line.len() < text.trim_end().len() => format!("{line}…"),
        shown => shown,
    }
}
