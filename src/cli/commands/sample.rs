//! Implements `--sample`: runs a recipe on a temporary copy of its sample repository with recorded replies. Needs no
//! key.

use crate::cli::args::RunArgs;
use crate::cli::environment;
use crate::cli::origin::RecipeOrigin;
use crate::cli::refusal::Refusal;
use crate::cli::shipped;
use crate::process::temporary::{self, Temporary};
use crate::process::unsandboxed;
use crate::recipe::plan::InputFormat;
use std::path::{Path, PathBuf};

/// The directory of a recipe's sample: `samples/STEM` beside the recipe.
pub fn dir(recipe: &Path) -> PathBuf {
    let stem = recipe.file_stem().unwrap_or_default();
    recipe
        .parent()
        .unwrap_or_else(|| Path::new(""))
        .join("samples")
        .join(stem)
}

/// The arguments of the sample's run, and the temporary copy, which is deleted when dropped.
///
/// # Errors
/// [`Refusal::Usage`] if no recipe is named; [`Refusal::Invalid`] if the recipe is missing or has no sample;
/// [`Refusal::Environment`] if the copy cannot be made or committed.
pub async fn prepare(mut args: RunArgs) -> Result<(RunArgs, Temporary), Refusal> {
    let recipe = args
        .recipe
        .clone()
        .ok_or_else(|| Refusal::Usage("--sample needs a recipe".to_owned()))?;
    let copy = Temporary::make(temporary::SAMPLE).map_err(|error| Refusal::Environment(temporary::why_not(&error)))?;
    let shipped = recipe.to_str().and_then(|name| name.strip_prefix(shipped::PREFIX));
    let sample = match shipped {
        None => dir(&recipe),
        Some(name) => {
            // Reports a recipe that does not exist, with the nearest name.
            RecipeOrigin::open(&recipe, Path::new(".")).await?;
            let to = copy.path().join("sample");
            if let Some(written) = shipped::write_sample(name, &to) {
                written.map_err(|error| Refusal::Environment(format!("{}: {error}", to.display())))?;
            }
            to
        }
    };
    let (repo, replies) = (sample.join("repo"), sample.join("replies.yaml"));
    if !repo.is_dir() || !replies.is_file() {
        // A recipe that does not exist is the reason before its sample is.
        RecipeOrigin::open(&recipe, Path::new(".")).await?;
        return Err(Refusal::Invalid(format!(
            "{}:1:1: error[no-sample]: this recipe has no sample\nhelp: a sample is {} and {}",
            recipe.display(),
            repo.display(),
            replies.display()
        )));
    }
    let tree = copy.path().join("repo");
    copy_tree(&repo, &tree).map_err(|error| Refusal::Environment(format!("{}: {error}", repo.display())))?;
    first_commit(&tree).await?;
    let formats = InputFormat::WORDS.iter();
    let mut inputs = formats.map(|(_, format)| sample.join(format!("input.{}", format.extension())));
    if args.input.is_none()
        && let Some(input) = inputs.find(|input| input.is_file())
    {
        args.input = Some(input.to_string_lossy().into_owned());
    }
    if args.out.is_none() {
        let run = crate::journal::run_dirs::new_run_id(jiff::Timestamp::now());
        crate::journal::run_dirs::ignore_runs(Path::new("."))?;
        args.out = Some(crate::journal::run_dirs::default_dir(Path::new(""), &run));
        args.run_id = Some(run);
    }
    // For a recipe without a policy of its own.
    let rules = std::fs::read_to_string(sample.join("policy.txt")).unwrap_or_default();
    args.shared.policy.extend(rules.lines().map(str::to_owned));
    args.shared.model = Some(format!("script:{}", environment::absolute(&replies).display()));
    args.shared.workspace = Some(tree);
    Ok((args, copy))
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Commits the copy, so that the patch has a base.
async fn first_commit(tree: &Path) -> Result<(), Refusal> {
    let who: Vec<(String, String)> = [
        "GIT_AUTHOR_NAME",
        "GIT_COMMITTER_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_EMAIL",
    ]
    .iter()
    .map(|name| ((*name).to_owned(), "sample@example.org".to_owned()))
    .chain(["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"].map(|name| (name.to_owned(), "2026-01-01T00:00:00Z".to_owned())))
    .collect();
    for args in [
        &["init", "--quiet", "--initial-branch", "main"][..],
        &["add", "--all"],
        &["commit", "--quiet", "--message", "sample"],
    ] {
        let done = unsandboxed::git(args, tree, &who, None)
            .await
            .map_err(Refusal::Environment)?;
        if !done.ok {
            return Err(Refusal::Environment(format!("git {}: {}", args.join(" "), done.stderr)));
        }
    }
    Ok(())
}
