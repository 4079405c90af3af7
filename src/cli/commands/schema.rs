//! Implements `overnight schema`: prints one JSON Schema, lists them, or writes all to a directory.

use super::printed;
use crate::cli::args::SchemaArgs;
use crate::cli::exit;
use crate::cli::refusal::Refusal;
use crate::cli::schemas::SchemaKind;
use crate::journal::artefacts;
use clap::ValueEnum;

/// Runs the command.
///
/// # Errors
/// [`Refusal::Output`] if a file or stdout cannot be written.
pub fn schema(args: &SchemaArgs) -> Result<u8, Refusal> {
    let wanted: Vec<SchemaKind> = match args.kind {
        Some(kind) => vec![kind],
        None => SchemaKind::value_variants().to_vec(),
    };
    if let Some(dir) = &args.dir {
        for kind in wanted {
            let path = dir.join(kind.file_name());
            artefacts::replace(&path, kind.text().as_bytes())?;
            printed(&format!("{}\n", path.display()))?;
        }
        return Ok(exit::PASSED);
    }
    if let Some(kind) = args.kind {
        return printed(kind.text());
    }
    let mut text = String::new();
    for kind in wanted {
        let what = kind.to_possible_value();
        let what = what.as_ref().and_then(|value| value.get_help());
        let what = what.map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("{:<13} {what}\n", kind.as_str()));
    }
    printed(&text)
}
