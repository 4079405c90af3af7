//! Diagnostics for files that users write: the position, what is wrong, and what to write instead. Pure.

pub mod diagnostic;
mod file_kind;
mod front_matter;
mod jsonl;
pub mod reader;
pub mod render;
pub mod source;
mod toml;
pub mod tree;
pub mod units;
pub mod yaml;

pub use diagnostic::{Diagnostic, Label, Severity, any_error, did_you_mean, file_line, settle, similar_word};
pub use file_kind::FileKind;
pub use front_matter::{FrontMatter, front_matter};
pub use jsonl::{json_lines, not_json};
pub use reader::Reader;
pub use render::{data as github_data, github, property as github_property, render, render_all};
pub use source::{SourceFiles, SourceId, SourcePlace, Span, Spanned};
pub use toml::parse_toml;
pub use tree::{MapEntry, Scalar, Shape, YamlNode};
pub use yaml::parse;
