//! Locates a recipe, reads it and the files that it names, and decides whether it is trusted.

mod recipe_files;

pub use recipe_files::{RecipeFile, give};

use super::change_reach::{ends_in, held_back, places, reached_through_link, reaches};
use super::committed::{self, Commit};
use super::inputs;
use super::refusal::Refusal;
use super::shipped;
use crate::diag::{Spanned, similar_word};
use crate::recipe::{DocumentUse, Recipe, named};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A recipe as the command line names it.
#[derive(Clone, Debug)]
pub struct RecipeOrigin {
    /// As given: a path, `git:REV:PATH` or `-`.
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    File(PathBuf),
    /// `path` is relative to the top of the repository.
    Commit {
        commit: Commit,
        path: String,
    },
    Stdin,
    /// Built in.
    Shipped,
}

/// Whether the recipe's own requests (servers, hosts, variables) are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    pub trusted: bool,
    /// The reason, as a message fragment for people.
    pub why: String,
}

impl Trust {
    /// Trusted, for this reason.
    pub fn yes(why: impl Into<String>) -> Self {
        Self {
            trusted: true,
            why: why.into(),
        }
    }

    /// Not trusted, for this reason.
    pub fn no(why: impl Into<String>) -> Self {
        Self {
            trusted: false,
            why: why.into(),
        }
    }
}

/// The policy that a recipe names.
#[derive(Clone, Debug)]
pub struct OwnPolicy {
    /// As the command line would name it.
    pub name: String,
    /// Directories in which the files that it extends must be; any for a trusted recipe.
    pub within: Option<Vec<PathBuf>>,
}

/// The files that a recipe names, with their contents.
#[derive(Debug, Default)]
pub struct Named {
    texts: BTreeMap<String, Result<String, String>>,
    /// Their paths; for a recipe from a commit, their paths in the working tree.
    pub files: Vec<PathBuf>,
}

impl Named {
    /// The text of one of the files.
    ///
    /// # Errors
    /// Why it cannot be read, as a sentence for people.
    pub fn text(&self, name: &str) -> Result<String, String> {
        let found = self.texts.get(name).cloned();
        found.unwrap_or_else(|| Err("it was not read".to_owned()))
    }
}

/// A problem with the name of a recipe or policy.
fn invalid(name: &str, code: &str, why: &str, help: &str) -> Refusal {
    Refusal::Invalid(format!("{name}:1:1: error[{code}]: {why}\nhelp: {help}"))
}

const HELP: &str = "write git:REV:PATH, for example git:origin/main:ci/recipe.yaml";

/// Resolves `git:REV:PATH` to a commit and a path relative to the top of the repository.
///
/// # Errors
/// As [`RecipeOrigin::open`].
pub async fn committed(name: &str, workspace: &Path) -> Result<(Commit, String), Refusal> {
    let bad = |why: &str| invalid(name, "no-file", why, HELP);
    let spec = name.strip_prefix("git:").unwrap_or(name);
    let (revision, path) = spec.split_once(':').ok_or_else(|| bad("no path is given"))?;
    let path = within("", path).ok_or_else(|| bad("the path leads out of the repository"))?;
    let resolved = Commit::resolve(revision, workspace).await?;
    let commit = resolved.map_err(|why| match committed::owned(workspace).is_some() {
        true => invalid(name, "foreign-repository", &why, committed::OWNED_HELP),
        false => invalid(name, "no-file", &why, &revision_help(revision, workspace)),
    })?;
    Ok((commit, path))
}

/// What to do about a revision that is no commit of the workspace's repository.
fn revision_help(revision: &str, workspace: &Path) -> String {
    let root = std::fs::canonicalize(workspace).unwrap_or_else(|_| workspace.to_owned());
    if revision.is_empty() || revision.starts_with('-') {
        return HELP.to_owned();
    }
    if crate::workspace::patch::repository(&root).is_none() {
        return "`git:` reads from the workspace's repository: name a checkout with `--workspace`, or the path of a file"
            .to_owned();
    }
    let branch = committed::REMOTES
        .into_iter()
        .find_map(|remote| Some((remote, revision.strip_prefix(remote)?.strip_prefix('/')?)));
    let fetch = match branch {
        Some((remote, branch)) => format!("fetch it: `git fetch {remote} {branch}`"),
        None => "name a branch, tag or commit that this clone has".to_owned(),
    };
    format!("{fetch}; in CI, check out the whole history (`fetch-depth: 0`, `GIT_DEPTH: 0`)")
}

/// The text of a file in a commit. `name` is for messages.
///
/// # Errors
/// As [`RecipeOrigin::open`].
pub async fn text_of(name: &str, commit: &Commit, path: &str) -> Result<String, Refusal> {
    match commit.read(path).await? {
        Ok(bytes) => inputs::utf8(bytes, name),
        Err(why) => Err(invalid(name, "no-file", &why, &path_help(commit, path).await?)),
    }
}

/// What to do about a path that cannot be read in a commit.
async fn path_help(commit: &Commit, path: &str) -> Result<String, Refusal> {
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    let beside = commit.list(dir).await?.unwrap_or_default();
    let is_there = |(name, ..): &(String, u64, bool)| {
        let rest = name.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if beside.iter().any(is_there) {
        return Ok(HELP.to_owned());
    }
    let revision = &commit.revision;
    if commit.repository().top.join(path).is_file() {
        return Ok(format!(
            "the file is in the working tree but not in {revision}: commit it, and push it if {revision} is a branch of a remote"
        ));
    }
    let in_dir = |name: &String| {
        let name = match dir {
            "" => name.as_str(),
            dir => name.strip_prefix(dir)?.strip_prefix('/')?,
        };
        (!name.contains('/')).then(|| name.to_owned())
    };
    let names: Vec<String> = beside.iter().filter_map(|(name, ..)| in_dir(name)).collect();
    Ok(match similar_word(file, names.iter().map(String::as_str)) {
        Some(near) if dir.is_empty() => format!("did you mean `git:{revision}:{near}`?"),
        Some(near) => format!("did you mean `git:{revision}:{dir}/{near}`?"),
        None => HELP.to_owned(),
    })
}

impl RecipeOrigin {
    /// Locates a recipe and reads its text.
    ///
    /// # Errors
    /// The file or revision does not exist (exit code 3); git or the file cannot be read (exit code 8).
    pub async fn open(name: &Path, workspace: &Path) -> Result<(Self, String), Refusal> {
        let name = name.to_string_lossy().into_owned();
        let (kind, text) = if name == "-" {
            (Kind::Stdin, inputs::stdin()?)
        } else if name.starts_with("git:") {
            let (commit, path) = committed(&name, workspace).await?;
            let text = text_of(&name, &commit, &path).await?;
            (Kind::Commit { commit, path }, text)
        } else if let Some(short) = name.strip_prefix(shipped::PREFIX) {
            let text = shipped::recipe(short).ok_or_else(|| {
                let help = shipped::did_you_mean(short);
                invalid(
                    &name,
                    "unknown-recipe",
                    &format!("there is no built-in recipe `{short}`"),
                    &help,
                )
            })?;
            (Kind::Shipped, text.to_owned())
        } else {
            let path = PathBuf::from(&name);
            if let Some(why) = reached_through_link(&path) {
                let help = "name a recipe file that is no link to another kind of file";
                return Err(invalid(&name, "secret-file", &why, help));
            }
            let text = inputs::recipe(&path)?;
            (Kind::File(path), text)
        };
        Ok((Self { name, kind }, text))
    }

    /// Full id of the commit that the recipe is read from, if any.
    pub fn commit(&self) -> Option<&str> {
        match &self.kind {
            Kind::Commit { commit, .. } => Some(&commit.id),
            _ => None,
        }
    }

    /// The name of a policy that the recipe names, as the command line would name it: a path, or a file of the same
    /// commit.
    ///
    /// # Errors
    /// The path leads out of the repository that the recipe is read from.
    pub fn policy(&self, name: &str) -> Result<String, Refusal> {
        if name.starts_with("builtin:") || name.starts_with("git:") {
            return Ok(name.to_owned());
        }
        match &self.kind {
            Kind::Commit { commit, path } => {
                let file = within(dir_of(path), name).ok_or_else(|| self.outside(name))?;
                Ok(format!("git:{}:{file}", commit.id))
            }
            // Built-in recipes may name only built-in policies.
            Kind::Shipped => Err(self.outside(name)),
            _ => Ok(self.beside(name).to_string_lossy().into_owned()),
        }
    }

    fn outside(&self, name: &str) -> Refusal {
        let why = format!("it names `{name}`, which is not a file of the commit that it is read from");
        let help = "name files of a recipe by paths relative to it, within the repository";
        invalid(&self.name, "outside-path", &why, help)
    }

    /// The path of a file that the recipe names, relative to the current directory.
    fn beside(&self, name: &str) -> PathBuf {
        match &self.kind {
            Kind::File(path) => path.parent().unwrap_or_else(|| Path::new("")).join(name),
            _ => PathBuf::from(name),
        }
    }

    /// The path of a file that the recipe names: next to the recipe, but settings files may also be in the workspace.
    fn place(&self, wanted: DocumentUse, name: &str, workspace: &Path) -> PathBuf {
        let own = self.beside(name);
        match wanted {
            DocumentUse::Settings if !own.is_file() => workspace.join(name),
            _ => own,
        }
    }

    /// Reads the files that the recipe names; for a recipe from a commit, from that commit. For an untrusted recipe,
    /// only files in the workspace's repository or next to the recipe are read; files that look like secrets, and those
    /// of git, for none.
    ///
    /// # Errors
    /// Git cannot be run. A file that cannot be read is reported by [`Named::text`].
    pub async fn read_named(&self, recipe: &Recipe, trust: &Trust, workspace: &Path) -> Result<Named, Refusal> {
        let mut all = Named::default();
        let places = self.readable(workspace);
        for (wanted, name) in named(recipe) {
            let text = match &self.kind {
                Kind::Commit { commit, path } => {
                    let stands = within(dir_of(path), &name.value);
                    all.files.extend(stands.map(|path| commit.repository().top.join(path)));
                    committed_text(commit, path, wanted, &name.value, workspace).await?
                }
                Kind::Shipped => {
                    let found = within("", &name.value).and_then(|path| shipped::file(&path));
                    found
                        .map(str::to_owned)
                        .ok_or_else(|| "it is not among the built-in files".to_owned())
                }
                _ => {
                    let file = self.place(wanted, &name.value, workspace);
                    let text = if !trust.trusted && !ends_in(&file, &places) {
                        Err(format!(
                            "it is outside the workspace's repository, and the recipe is not trusted: {}",
                            trust.why
                        ))
                    } else if let Some(why) = held_back(&file) {
                        Err(format!("it is not read: {why}"))
                    } else {
                        inputs::text(&file).map_err(|refusal| refusal.to_string())
                    };
                    all.files.push(file);
                    text
                }
            };
            all.texts.insert(name.value.clone(), text);
        }
        Ok(all)
    }

    /// The recipe's file, or the file at its path in the tree. The run must not write it.
    pub fn file(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::File(path) => Some(path.clone()),
            Kind::Commit { commit, path } => Some(commit.repository().top.join(path)),
            Kind::Stdin | Kind::Shipped => None,
        }
    }

    /// Whether the recipe is trusted in a run on `workspace`. `by_flag`: the command line says so.
    ///
    /// # Errors
    /// Git cannot be run.
    pub async fn trust(&self, by_flag: bool, recipe: &Recipe, workspace: &Path) -> Result<Trust, Refusal> {
        if by_flag {
            return Ok(Trust::yes("`--trust recipe` says so"));
        }
        let places = places(workspace);
        let own = match &self.kind {
            Kind::Stdin => return Ok(Trust::no("it comes from stdin")),
            Kind::Shipped => return Ok(Trust::yes("it is built into this program")),
            Kind::Commit { commit, .. } => match commit.pinned().await? {
                Ok(why) => return Ok(Trust::yes(why)),
                Err(why) => return Ok(Trust::no(why)),
            },
            Kind::File(path) => path,
        };
        if let Some(place) = reaches(own, &places) {
            return Ok(Trust::no(format!(
                "it is in the workspace's repository ({})",
                place.display()
            )));
        }
        if let Ok(data) = std::fs::metadata(own)
            && data.is_file()
            && data.nlink() > 1
        {
            return Ok(Trust::no(
                "its file has more than one hard link, and another of them may lie in the workspace's repository",
            ));
        }
        if let Some((_, place)) = self.settings_within(recipe, workspace) {
            return Ok(Trust::no(format!(
                "its `tools.settings` is in the workspace's repository ({})",
                place.display()
            )));
        }
        Ok(Trust::yes("a file outside the workspace's repository"))
    }

    /// `tools.settings` of the recipe and the place in the workspace's repository that it leads to, if it does. Only for
    /// a recipe that is a file; the files of another one are not read from the workspace.
    pub fn settings_within<'a>(&self, recipe: &'a Recipe, workspace: &Path) -> Option<(&'a Spanned<String>, PathBuf)> {
        let settings = recipe.tools.settings.as_ref()?;
        let Kind::File(_) = &self.kind else { return None };
        let file = self.place(DocumentUse::Settings, &settings.value, workspace);
        Some((settings, reaches(&file, &places(workspace))?))
    }

    /// The policy that a recipe names, and the directories in which the files that it extends must be.
    ///
    /// # Errors
    /// As [`RecipeOrigin::policy`].
    pub fn own_policy(&self, name: &str, trust: &Trust, workspace: &Path) -> Result<OwnPolicy, Refusal> {
        Ok(OwnPolicy {
            name: self.policy(name)?,
            within: (!trust.trusted).then(|| self.readable(workspace)),
        })
    }

    /// Directories in which an untrusted recipe may name files: those of the change under test, and that of the
    /// recipe's real path (a link in the tree may lead to it).
    fn readable(&self, workspace: &Path) -> Vec<PathBuf> {
        let mut all = places(workspace);
        if let Kind::File(path) = &self.kind {
            all.extend(
                path.canonicalize()
                    .ok()
                    .and_then(|real| real.parent().map(Path::to_path_buf)),
            );
        }
        all
    }

    /// The policy that the recipe names, if it is outside the workspace's repository.
    pub fn policy_outside(&self, recipe: &Recipe, workspace: &Path) -> Option<Spanned<String>> {
        let name = recipe.policy.as_ref()?;
        let elsewhere = name.value.starts_with("builtin:") || name.value.starts_with("git:");
        let commit = matches!(self.kind, Kind::Commit { .. } | Kind::Shipped);
        let outside = !elsewhere && !commit && !ends_in(&self.beside(&name.value), &self.readable(workspace));
        outside.then(|| name.clone())
    }
}

async fn committed_text(
    commit: &Commit,
    recipe: &str,
    wanted: DocumentUse,
    name: &str,
    workspace: &Path,
) -> Result<Result<String, String>, Refusal> {
    let no_file = || "it leads out of the commit that the recipe is read from".to_owned();
    let Some(path) = within(dir_of(recipe), name) else {
        return Ok(Err(no_file()));
    };
    let mut read = commit.read(&path).await?;
    if read.is_err() && wanted == DocumentUse::Settings {
        let root = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let below = root.strip_prefix(&commit.repository().top).unwrap_or(Path::new(""));
        if let Some(path) = within(&below.to_string_lossy(), name) {
            read = commit.read(&path).await?;
        }
    }
    Ok(read.and_then(|bytes| inputs::utf8(bytes, name).map_err(|refusal| refusal.to_string())))
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// `name` relative to `dir`, without `.` and `..`; `None` if it leads out of the repository or names no file.
fn within(dir: &str, name: &str) -> Option<String> {
    if name.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_a_commit() {
        assert_eq!(within("ci", "../schemas/a.json").as_deref(), Some("schemas/a.json"));
        assert_eq!(within("ci", "./p.yaml").as_deref(), Some("ci/p.yaml"));
        for name in ["../../x", "/etc/passwd", "..", "a/../../.."] {
            assert_eq!(within("ci", name), None, "{name}");
        }
    }

    proptest::proptest! {
        /// Files that a recipe from a commit names are always in that commit.
        #[test]
        fn no_name_leads_out_of_a_commit(dir in "[a-c./]{0,12}", name in "[a-c./:\\\\ ]{0,20}|.{0,20}") {
            if let Some(path) = within(&dir, &name) {
                proptest::prop_assert!(!path.is_empty() && !path.starts_with('/'));
                proptest::prop_assert!(name.split('/').any(|part| part == "..") || path.split('/').all(|part| part != ".." || dir.contains("..")));
            }
            let clean = within("a/b", &name);
            proptest::prop_assert!(clean.is_none_or(|path| path.split('/').all(|part| !matches!(part, "" | "." | ".."))));
        }
    }
}
