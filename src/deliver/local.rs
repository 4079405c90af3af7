//! Reads and updates a branch of the local repository without using configuration that could run a program. Whoever finds
//! the repository checks it ([`Repository::check`]).

use super::DeliverStop;
use super::store::DeliveryStore;
use crate::base::ids::is_object_id;
use crate::process::own_git::{self, GitAccess, Scratch};
use crate::process::unsandboxed::Printed;
use crate::workspace::patch::Repository;

async fn git(repository: &Repository, args: &[&str], may: GitAccess<'_>) -> Result<Printed, DeliverStop> {
    let dir = repository.common_dir.to_string_lossy().into_owned();
    let mut all = vec!["--git-dir", &dir];
    all.extend(args);
    let env = [("GIT_NO_REPLACE_OBJECTS".to_owned(), "1".to_owned())];
    own_git::git(&all, &repository.top, &env, None, may)
        .await
        .map_err(DeliverStop::Environment)
}

fn line(printed: &Printed) -> Option<String> {
    let text = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    (printed.ok && !text.is_empty()).then_some(text)
}

/// The commit of a branch.
///
/// # Errors
/// [`DeliverStop::Environment`] when git fails.
pub async fn branch(repository: &Repository, name: &str) -> Result<Option<String>, DeliverStop> {
    let name = format!("refs/heads/{name}^{{commit}}");
    let found = git(
        repository,
        &["rev-parse", "--verify", "--quiet", &name],
        GitAccess::Read,
    )
    .await?;
    Ok(line(&found).filter(|id| is_object_id(id)))
}

/// The checked-out branch, if any, and commit.
///
/// # Errors
/// [`DeliverStop::Environment`] when git fails.
pub async fn head(repository: &Repository) -> Result<(Option<String>, Option<String>), DeliverStop> {
    let here = Repository {
        common_dir: repository.git_dir.clone(),
        ..repository.clone()
    };
    let name = git(&here, &["symbolic-ref", "--quiet", "--short", "HEAD"], GitAccess::Read).await?;
    let commit = git(
        &here,
        &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"],
        GitAccess::Read,
    )
    .await?;
    Ok((line(&name), line(&commit).filter(|id| is_object_id(id))))
}

/// Whether one commit is an ancestor of another.
///
/// # Errors
/// [`DeliverStop::Environment`] when git fails.
pub async fn is_ancestor(repository: &Repository, one: &str, other: &str) -> Result<bool, DeliverStop> {
    Ok(git(
        repository,
        &["merge-base", "--is-ancestor", one, other],
        GitAccess::Read,
    )
    .await?
    .ok)
}

/// The URL of a named remote from the repository's own configuration file; included files are not read.
///
/// # Errors
/// [`DeliverStop::Environment`] when git fails.
pub async fn remote(repository: &Repository, name: &str) -> Result<Option<String>, DeliverStop> {
    let file = repository.common_dir.join("config").to_string_lossy().into_owned();
    let key = format!("remote.{name}.url");
    let args = ["config", "--file", &file, "--no-includes", "--get", &key];
    Ok(line(&git(repository, &args, GitAccess::Read).await?))
}

/// Moves a branch to a commit of the store if it still points to the commit that was read. `false`: it was moved
/// meanwhile.
///
/// # Errors
/// [`DeliverStop::Conflict`] when the branch is checked out somewhere, [`DeliverStop::Environment`] when git fails.
pub async fn set_branch(
    repository: &Repository,
    store: &DeliveryStore<'_>,
    name: &str,
    commit: &str,
    base: &str,
    seen: Option<&str>,
) -> Result<bool, DeliverStop> {
    let full = format!("refs/heads/{name}");
    let format = "--format=%(worktreepath)";
    if let Some(tree) = line(&git(repository, &["for-each-ref", format, &full], GitAccess::Read).await?) {
        return Err(DeliverStop::Conflict(format!(
            "the branch {name} is checked out in {tree}"
        )));
    }
    let pack = store.pack(commit, base).await?;
    let scratch = Scratch::make(commit.len() == 64).map_err(DeliverStop::Environment)?;
    let objects = repository.objects();
    let mut env = scratch.env();
    env.push((
        "GIT_OBJECT_DIRECTORY".to_owned(),
        objects.to_string_lossy().into_owned(),
    ));
    let places = [objects];
    let args = ["unpack-objects", "-q"];
    let unpacked = own_git::git(&args, scratch.path(), &env, Some(&pack), GitAccess::Write(&places)).await;
    let unpacked = unpacked.map_err(DeliverStop::Environment)?;
    if !unpacked.ok {
        return Err(DeliverStop::Environment(format!(
            "git unpack-objects: {}",
            unpacked.stderr
        )));
    }
    let places = [repository.common_dir.clone()];
    let zeros = "0".repeat(commit.len());
    let args = [
        "update-ref",
        "-m",
        "overnight deliver",
        &full,
        commit,
        seen.unwrap_or(&zeros),
    ];
    let moved = git(repository, &args, GitAccess::Write(&places)).await?;
    if moved.ok {
        return Ok(true);
    }
    match branch(repository, name).await?.as_deref() == seen {
        // Nobody moved it, so git itself failed.
        true => Err(DeliverStop::Environment(format!("git update-ref: {}", moved.stderr))),
        false => Ok(false),
    }
}
