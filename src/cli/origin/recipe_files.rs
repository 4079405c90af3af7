//! Reads the files beside a recipe that its commands get: those of `files`, or, if the recipe lists none and a command
//! names its directory, all files of that directory.

use super::{Kind, RecipeOrigin, Trust, dir_of, within};
use crate::base::ids::BlobId;
use crate::base::source::KeptFile;
use crate::cli::change_reach::{ends_in, held_back};
use crate::cli::environment;
use crate::cli::inputs;
use crate::cli::refusal::Refusal;
use crate::cli::shipped;
use crate::diag::{Diagnostic, Span};
use crate::journal::{JournalError, artefacts};
use crate::policy::secrets_like::secret_like;
use crate::process::private::{Private, RECIPE_VARIABLE};
use crate::recipe::model::StepSource;
use crate::recipe::{Plan, Recipe};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Limit of the files beside one recipe.
const MAX_FILES: usize = 256;
/// Limit of their bytes together.
const MAX_BYTES: u64 = 8 << 20;
/// Limit of the levels of directories below the recipe's.
const MAX_DEPTH: usize = 16;

/// A file that the commands of a recipe get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeFile {
    /// Relative to the recipe's directory, with `/`.
    pub path: String,
    pub bytes: Vec<u8>,
    pub executable: bool,
}

impl RecipeFile {
    /// As the journal records it.
    pub fn kept(&self) -> KeptFile {
        KeptFile {
            path: self.path.clone(),
            blob: BlobId::of(&self.bytes),
            executable: self.executable,
        }
    }

    /// The files of a recorded run, with their contents from its blobs in `dir`.
    ///
    /// # Errors
    /// A blob is missing or altered.
    pub fn recorded(kept: &[KeptFile], dir: &Path) -> Result<Vec<Self>, JournalError> {
        let one = |kept: &KeptFile| {
            Ok(Self {
                path: kept.path.clone(),
                bytes: artefacts::read_blob(dir, &kept.blob)?,
                executable: kept.executable,
            })
        };
        kept.iter().map(one).collect()
    }
}

/// Gives the files and the input of a plan to the commands of a run.
///
/// # Errors
/// They cannot be written.
pub fn give(own: &mut Private, files: &[RecipeFile], plan: &Plan) -> Result<(), Refusal> {
    let files = files
        .iter()
        .map(|file| (file.path.as_str(), file.bytes.as_slice(), file.executable));
    let input = plan.input.as_ref().map(|input| {
        let name = format!("input.{}", plan.input_format.extension());
        (name, crate::recipe::input::written(input, plan.input_format))
    });
    let input = input.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    own.give(files, input)
        .map_err(|error| Refusal::Environment(format!("the files beside the recipe cannot be written: {error}")))
}

/// The files found so far, with the position in the recipe that asks for them.
struct Found<'a> {
    files: Vec<RecipeFile>,
    /// Their paths, which the run must not write.
    places: Vec<PathBuf>,
    bytes: u64,
    at: Span,
    listed: bool,
    problems: &'a mut Vec<Diagnostic>,
}

impl Found<'_> {
    fn problem(&mut self, message: String, help: &str) {
        self.problems
            .push(Diagnostic::error("recipe-files", self.at, message).help(help));
    }

    /// Whether one more file of this size is within the limits; reports the first one that is not.
    fn has_room(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        if self.files.len() < MAX_FILES && self.bytes <= MAX_BYTES {
            return true;
        }
        let what = match self.listed {
            true => "`files` names",
            false => "the recipe's directory has",
        };
        let message = format!("{what} more than {MAX_FILES} files or {} MiB", MAX_BYTES >> 20);
        self.problem(message, "name those that its commands need: `files: [check.py]`");
        false
    }

    /// Adds a file; reports one that contains a secret of this environment.
    fn add(&mut self, path: String, bytes: Vec<u8>, executable: bool) {
        if self.files.iter().any(|file| file.path == path) {
            return;
        }
        let secrets = environment::redactor();
        if secrets.find(&bytes).is_some() {
            let message = format!("`{path}` contains the value of a secret of this environment");
            self.problem(
                message,
                "remove it from the file: a command that needs it gets it by `env: pass` of the policy",
            );
            return;
        }
        self.files.push(RecipeFile {
            path,
            bytes,
            executable,
        });
    }
}

/// Where a command of the recipe first names the directory.
fn mention(recipe: &Recipe) -> Option<Span> {
    let steps = recipe.steps.iter().flat_map(|step| {
        let own = match &step.work {
            StepSource::Run { command, .. } => Some(command),
            StepSource::Prompt(_) | StepSource::Mcp { .. } => None,
        };
        own.into_iter()
            .chain(step.checks.iter().filter_map(|check| check.what.command()))
    });
    let discovery = recipe.tools.discovery.iter().flat_map(|(list, call)| [list, call]);
    let servers = recipe.tools.mcp_servers.iter().flat_map(|server| {
        let env = server.env.iter().map(|(_, text)| text);
        server.command.iter().chain(&server.args).chain(env)
    });
    let mut texts = steps.chain(discovery).chain(servers);
    texts
        .find(|text| text.value.contains(RECIPE_VARIABLE))
        .map(|text| text.span)
}

impl RecipeOrigin {
    /// Reads the files that the recipe's commands get, and their paths in the tree. For a recipe from a commit they
    /// come from that commit; an untrusted recipe gets only files in the workspace's repository or beside the recipe.
    /// Every problem is added to `problems`, at the position in the recipe that asks for the file.
    ///
    /// # Errors
    /// Git cannot be run.
    pub async fn read_beside(
        &self,
        recipe: &Recipe,
        trust: &Trust,
        workspace: &Path,
        problems: &mut Vec<Diagnostic>,
    ) -> Result<(Vec<RecipeFile>, Vec<PathBuf>), Refusal> {
        let listed = !recipe.files.is_empty();
        let wanted: Vec<(String, Span)> = match listed {
            true => recipe
                .files
                .iter()
                .map(|name| (name.value.clone(), name.span))
                .collect(),
            false => mention(recipe).map(|at| (".".to_owned(), at)).into_iter().collect(),
        };
        let Some((_, first)) = wanted.first() else {
            return Ok((Vec::new(), Vec::new()));
        };
        let mut found = Found {
            files: Vec::new(),
            places: Vec::new(),
            bytes: 0,
            at: *first,
            listed,
            problems,
        };
        for (name, at) in &wanted {
            found.at = *at;
            match &self.kind {
                Kind::File(path) => {
                    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
                    let dir = dir.unwrap_or(Path::new("."));
                    let readable = (!trust.trusted).then(|| self.readable(workspace));
                    of_directory(dir, name, readable.as_deref(), &mut found);
                }
                Kind::Commit { commit, path } => {
                    let Some(place) = in_commit(path, name) else {
                        found.problem(
                            format!("`{name}` leads out of the repository"),
                            "name a file beside the recipe",
                        );
                        continue;
                    };
                    let top = dir_of(path);
                    let listing = match commit.list(&place).await? {
                        Ok(listing) => listing,
                        Err(why) => {
                            found.problem(why, "name a file or directory of that commit, relative to the recipe");
                            continue;
                        }
                    };
                    for (path, bytes, executable) in listing {
                        let below = path
                            .strip_prefix(top)
                            .unwrap_or(&path)
                            .trim_start_matches('/')
                            .to_owned();
                        if skipped(&below, listed, &mut found) {
                            continue;
                        }
                        if !found.has_room(bytes) {
                            break;
                        }
                        found.places.push(commit.repository().top.join(&path));
                        match commit.read(&path).await? {
                            Ok(bytes) => found.add(below, bytes, executable),
                            Err(why) => found.problem(why, "name a file of that commit"),
                        }
                    }
                }
                Kind::Shipped if !listed => {
                    found.problem(
                        format!("a built-in recipe uses {RECIPE_VARIABLE} and lists no `files`"),
                        "list them in the recipe",
                    );
                }
                Kind::Shipped => {
                    let files = shipped::files_below(name);
                    if files.is_empty() {
                        found.problem(
                            format!("there is no built-in file `{name}`"),
                            "name a file of `recipes/`",
                        );
                    }
                    for (path, bytes) in files {
                        if found.has_room(bytes.len() as u64) {
                            found.add(path, bytes.to_vec(), bytes.starts_with(b"#!"));
                        }
                    }
                }
                Kind::Stdin => {
                    found.problem(
                        "a recipe from stdin has no files beside it".to_owned(),
                        "run it from a file, or write the commands in the recipe itself",
                    );
                    break;
                }
            }
        }
        found.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((found.files, found.places))
    }
}

/// Whether a file is left out: hidden names and files that look like secrets. Listing a secret-like file is a problem.
fn skipped(path: &str, listed: bool, found: &mut Found<'_>) -> bool {
    if let Some(why) = secret_like(path) {
        if listed {
            found.problem(
                format!("`{path}` is not given to commands: {why}"),
                "a command that needs a secret gets it by `env: pass` of the policy",
            );
        }
        return true;
    }
    !listed && path.split('/').any(|part| part.starts_with('.'))
}

/// The path in the commit, from the top of the repository; empty for the top itself.
fn in_commit(recipe: &str, name: &str) -> Option<String> {
    match name {
        "." => Some(dir_of(recipe).to_owned()),
        name => within(dir_of(recipe), name),
    }
}

/// Adds a file, or everything below a directory. `readable`: the directories in which the files must be after following
/// links; `None` for a trusted recipe.
fn of_directory(dir: &Path, name: &str, readable: Option<&[PathBuf]>, found: &mut Found<'_>) {
    let start = match name {
        "." => PathBuf::new(),
        name => name.split('/').filter(|part| !matches!(*part, "" | ".")).collect(),
    };
    let mut left = vec![start];
    while let Some(below) = left.pop() {
        let real = dir.join(&below);
        let path = below.to_string_lossy().into_owned();
        if !path.is_empty() && skipped(&path, found.listed, found) {
            continue;
        }
        if readable.is_some_and(|places| !ends_in(&real, places)) {
            found.problem(
                format!("`{path}` is outside the workspace's repository, and the recipe is not trusted"),
                "name files beside the recipe",
            );
            continue;
        }
        // The name was looked at above; this is what it leads to.
        if let Some(why) = held_back(&real) {
            if found.listed {
                found.problem(
                    format!("`{path}` is not given to commands: {why}"),
                    "a command that needs a secret gets it by `env: pass` of the policy",
                );
            }
            continue;
        }
        let data = match std::fs::metadata(&real) {
            Ok(data) => data,
            Err(error) => {
                found.problem(
                    format!("`{path}`: {error}"),
                    "name a file or directory beside the recipe",
                );
                continue;
            }
        };
        if data.is_dir() {
            if below.components().count() > MAX_DEPTH {
                found.problem(
                    format!("`{path}` is more than {MAX_DEPTH} directories deep"),
                    "name what is needed",
                );
                continue;
            }
            match std::fs::read_dir(&real) {
                Ok(entries) => {
                    let mut names: Vec<PathBuf> = entries
                        .flatten()
                        // Links inside a directory are not followed; a link that `files` names is.
                        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_file()))
                        .map(|entry| below.join(entry.file_name()))
                        .collect();
                    names.sort_by(|a, b| b.cmp(a));
                    left.extend(names);
                }
                Err(error) => found.problem(format!("`{path}`: {error}"), "make it readable"),
            }
            continue;
        }
        if !data.is_file() {
            found.problem(
                format!("`{path}` is not a file"),
                "name a file or directory beside the recipe",
            );
            continue;
        }
        if !found.has_room(data.len()) {
            return;
        }
        match inputs::bytes(&real) {
            Ok(bytes) => found.add(path, bytes, data.permissions().mode() & 0o111 != 0),
            Err(refusal) => found.problem(refusal.to_string(), "make it readable"),
        }
        found.places.push(real);
    }
}
