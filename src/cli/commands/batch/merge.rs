//! Implements `overnight merge`: finds the bundles, and prints the result.

use super::{address, closing_line, printed, publish, step_files};
use crate::base::quote::counted;
use crate::batch::merge::{self as merging, BundlePlace};
use crate::batch::{BatchError, manifest};
use crate::batch::{outputs, remote};
use crate::cli::args::{MergeArgs, TextOrJson};
use crate::cli::refusal::Refusal;
use crate::cli::{named_outputs, out};
use std::collections::BTreeSet;
use std::path::Path;

/// `overnight merge`. Returns the exit code.
///
/// # Errors
/// [`Refusal`]: bundles that cannot be read or do not belong together, or an output that cannot be written.
pub async fn merge(args: &MergeArgs) -> Result<u8, Refusal> {
    let github = step_files(args.github)?;
    named_outputs::refuse_link(Path::new("."), &args.out)?;
    let _held = merging::hold(&args.out)?;
    let places = bundle_places(args).await?;
    let merged = merging::merge(&places, &args.out, args.changed)?;
    for line in &merged.missing {
        out::stderr(&format!("overnight: {line}"));
    }
    if merged.left_out > 0 {
        out::stderr(&format!(
            "overnight: {} that the manifest does not define any more, left out",
            counted(merged.left_out, "job")
        ));
    }
    if let Some(first) = merged.outside.first() {
        out::stderr(&format!(
            "overnight: {} not below {}, for example {first}, so `overnight deliver` refuses this result; to deliver it, name a \
             directory above the bundles as --out",
            counted(merged.outside.len(), "bundle"),
            args.out.display()
        ));
    }
    let text = match args.format {
        TextOrJson::Json => format!("{}\n", serde_json::to_string(&merged.result).unwrap_or_default()),
        TextOrJson::Text => closing_line(&merged.result, &args.out, None),
    };
    if let Some(github) = github {
        publish(&github, &merged.result, &args.out, &merged.jobs)?;
    }
    printed(&text)?;
    Ok(merged.result.exit_code)
}

/// The directories of all bundles. Those of object stores are downloaded into the output directory, so that the merged
/// rows can refer to their run directories.
async fn bundle_places(args: &MergeArgs) -> Result<Vec<BundlePlace>, Refusal> {
    let (mut places, mut remote) = (Vec::new(), Vec::new());
    for argument in &args.bundles {
        match address(argument)? {
            Some(objects) => remote.extend(remote::bundles(&objects).await?),
            None => places.push(BundlePlace {
                dir: argument.clone(),
                shown: argument.display().to_string(),
            }),
        }
    }
    if remote.is_empty() {
        return Ok(places);
    }
    merging::fits(&args.out, None)?;
    let downloads = args.out.join(outputs::DOWNLOADS);
    let (mut names, mut problems) = (BTreeSet::new(), Vec::new());
    for objects in remote {
        let last = objects.url().rsplit('/').next().unwrap_or_default();
        let plain = if manifest::is_job_name(last) { last } else { "bundle" };
        let mut name = plain.to_owned();
        let mut number = 2;
        while !names.insert(name.clone()) {
            name = format!("{plain}.{number}");
            number += 1;
        }
        let dir = downloads.join(name);
        match remote::download(&objects, &dir).await {
            Ok(()) => {}
            Err(BatchError::Invalid(text)) => problems.push(text),
            Err(other) => return Err(other.into()),
        }
        places.push(BundlePlace {
            dir,
            shown: objects.url().to_owned(),
        });
    }
    match problems.is_empty() {
        true => Ok(places),
        false => Err(Refusal::Invalid(problems.join("\n"))),
    }
}
