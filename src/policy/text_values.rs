//! Reads strings of a policy file. An unquoted number or boolean instead of a string is an error.

use crate::diag::reader::{Problems, wrong_type};
use crate::diag::{Diagnostic, Scalar, Shape, Spanned, YamlNode};
use serde_json::Value;

/// A string or a list of strings. Unquoted numbers and booleans are errors.
pub fn strings(node: &YamlNode, key: &str, problems: &mut Problems) -> Vec<Spanned<String>> {
    let items = match &node.shape {
        Shape::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if items.is_empty() {
        let problem = Diagnostic::error("empty-list", node.span, format!("`{key}` lists nothing"));
        problems.push(problem.help("write at least one entry, or leave the key out"));
    }
    items.iter().filter_map(|item| string(item, key, problems)).collect()
}

/// A string. An unquoted number or boolean is an error.
pub fn string(node: &YamlNode, key: &str, problems: &mut Problems) -> Option<Spanned<String>> {
    match &node.shape {
        Shape::Scalar(scalar) if is_text(scalar) => Some(Spanned {
            value: scalar.text.clone(),
            span: node.span,
        }),
        Shape::Scalar(scalar) if !scalar.is_null() => {
            let problem = wrong_type(node, &format!("`{key}`"), "a text");
            problems.push(problem.help(format!("put it in quotes: \"{}\"", scalar.text)));
            None
        }
        _ => {
            problems.push(wrong_type(node, &format!("an entry of `{key}`"), "a text"));
            None
        }
    }
}

fn is_text(scalar: &Scalar) -> bool {
    matches!(scalar.value(), Value::String(_))
}
