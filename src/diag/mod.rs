//! Diagnostics for files that users write: the position, what is wrong, and what to write instead. Pure.

pub mod diagnostic;
pub mod reader;
pub mod render;
pub mod source;
pub mod tree;
pub mod units;
pub mod yaml;

pub use diagnostic::{Diagnostic, Label, Severity, any_error, did_you_mean, file_line, settle};
pub use reader::Reader;
pub use render::{data as github_data, github, property as github_property, render, render_all};
pub use source::{SourceFiles, SourceId, SourcePlace, Span, Spanned};
pub use tree::{MapEntry, Scalar, Shape, YamlNode};
pub use yaml::parse;
