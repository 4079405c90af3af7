//! Reads the policies of a run and the files that they extend.

use super::change_reach::{ends_in, held_back};
use super::committed::{self, Commit};
use super::inputs;
use super::origin::{self, OwnPolicy};
use super::refusal::Refusal;
use crate::base::event::{PolicyPart, PolicyText};
use crate::diag::SourceFiles;
use crate::policy::extends::{self, Extended};
use crate::policy::{self, KnownTools, PolicySet, PolicySource, presets};
use crate::workspace::toolchains;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// Policy sources, with the files that they extend.
#[derive(Debug, Default)]
pub struct Policies {
    pub sources: Vec<PolicySource>,
    pub extended: Extended,
}

impl Policies {
    /// A policy as the journal recorded it, including the texts that it extended then.
    pub fn recorded(recorded: &PolicyText) -> Self {
        let part = |part: &PolicyPart| (part.name.clone(), Ok(part.text.clone()));
        Self {
            sources: vec![PolicySource {
                name: recorded.name.clone(),
                text: recorded.text.clone(),
            }],
            extended: Extended {
                texts: recorded.extends.iter().map(part).collect(),
                tree: recorded.tree.clone(),
            },
        }
    }

    /// Adds more policies. A name that both extend has the same text in both, because both were read from the same
    /// place.
    pub fn add(&mut self, other: Policies) {
        self.sources.extend(other.sources);
        self.extended.texts.extend(other.extended.texts);
        for name in other.extended.tree {
            if !self.extended.tree.contains(&name) {
                self.extended.tree.push(name);
            }
        }
    }

    /// All problems of the sources, and the set as far as it could be read; see [`policy::check_with()`].
    pub fn check(&self, files: &mut SourceFiles) -> (PolicySet, Vec<crate::diag::Diagnostic>) {
        policy::check_with(files, &self.sources, &KnownTools::builtin(), &self.extended)
    }

    /// Parses the sources.
    ///
    /// # Errors
    /// As [`policy::load()`].
    pub fn load(
        &self,
        files: &mut SourceFiles,
    ) -> Result<(PolicySet, Vec<crate::diag::Diagnostic>), Vec<crate::diag::Diagnostic>> {
        policy::load_with(files, &self.sources, &KnownTools::builtin(), &self.extended)
    }
}

/// Reads the policies that the command line names (files, `builtin:NAME`, `git:REV:PATH`, `-`) and everything that they
/// extend. `own`: a recipe names them. Then files that look like secrets, and those of git, are not read, and those of an
/// untrusted recipe may extend only files in certain directories.
///
/// # Errors
/// [`Refusal::Invalid`] if a policy or preset is missing or may not be read or extended; [`Refusal::Usage`] if stdin
/// was read before; [`Refusal::Environment`] if a file or stdin cannot be read or git cannot be started.
pub async fn policies(names: &[String], workspace: &Path, own: Option<&OwnPolicy>) -> Result<Policies, Refusal> {
    policies_from(Path::new(""), names, workspace, own).await
}

/// As [`policies`], with the names of files relative to this directory and not to the current one.
///
/// # Errors
/// As for [`policies`].
pub async fn policies_from(
    directory: &Path,
    names: &[String],
    workspace: &Path,
    own: Option<&OwnPolicy>,
) -> Result<Policies, Refusal> {
    let mut all = Policies::default();
    let mut reader = Reader {
        directory,
        workspace,
        own,
        commits: BTreeMap::new(),
    };
    if names.iter().any(|name| extends::depends_on_tree(name)) {
        all.extended.tree = toolchains::of(workspace);
    }
    for name in names {
        let text = reader.policy(name, &all.extended.tree).await?;
        all.sources.push(PolicySource {
            name: name.clone(),
            text,
        });
    }
    reader.extended(&mut all).await?;
    Ok(all)
}

/// A preset by its name, without detecting the toolchains of a tree.
///
/// # Errors
/// [`Refusal::Invalid`] if there is no such preset.
pub fn builtin(name: &str) -> Result<Policies, Refusal> {
    let text = presets::text(name, None, &[]).ok_or_else(|| {
        let help = presets::did_you_mean(name);
        Refusal::Invalid(format!(
            "{name}:1:1: error[unknown-preset]: there is no preset {name}\nhelp: {help}"
        ))
    })?;
    Ok(Policies {
        sources: vec![PolicySource {
            name: name.to_owned(),
            text,
        }],
        extended: Extended::default(),
    })
}

/// Reads policies and what they extend; all files of one revision come from the same commit.
struct Reader<'a> {
    /// What the names of files are relative to; empty for the current directory.
    directory: &'a Path,
    workspace: &'a Path,
    /// The recipe's own policy, if it is that.
    own: Option<&'a OwnPolicy>,
    commits: BTreeMap<String, Commit>,
}

impl Reader<'_> {
    async fn policy(&mut self, name: &str, tree: &[String]) -> Result<String, Refusal> {
        if name.starts_with("builtin:") {
            return presets::text(name, None, tree).ok_or_else(|| {
                let help = presets::did_you_mean(name);
                Refusal::Invalid(format!(
                    "{name}:1:1: error[unknown-preset]: there is no preset {name}\nhelp: {help}"
                ))
            });
        }
        if name.starts_with("git:") {
            return self.committed(name).await;
        }
        if name == "-" {
            return inputs::stdin();
        }
        let path = &self.directory.join(name);
        if path.is_dir() {
            return Err(Refusal::Invalid(format!(
                "{name}:1:1: error[no-file]: {name} is a directory\nhelp: name a policy file in it"
            )));
        }
        if !path.exists() {
            let preset = format!("builtin:{name}");
            let preset = presets::names().any(|known| known == preset).then_some(preset);
            let help = match preset.or_else(|| inputs::near_file(path)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!(
                    "name a file, git:REV:PATH, `-` for stdin, or a policy of this program: {}",
                    presets::names().collect::<Vec<_>>().join(", ")
                ),
            };
            return Err(Refusal::Invalid(format!(
                "{name}:1:1: error[no-file]: there is no policy file {name}\nhelp: {help}"
            )));
        }
        if let Some(why) = self.held_back(path) {
            return Err(Refusal::Invalid(format!(
                "{name}:1:1: error[secret-file]: the policy is not read: {why}\nhelp: name a policy file"
            )));
        }
        inputs::text(path)
    }

    /// Why a file that a recipe's policy leads to is not read.
    fn held_back(&self, path: &Path) -> Option<String> {
        self.own.and_then(|_| held_back(path))
    }

    async fn committed(&mut self, name: &str) -> Result<String, Refusal> {
        let spec = name.strip_prefix("git:").and_then(|spec| spec.split_once(':'));
        let known = spec.and_then(|(revision, path)| Some((self.commits.get(revision)?.clone(), path.to_owned())));
        let (commit, path) = match known {
            Some(known) => known,
            None => origin::committed(name, self.workspace).await?,
        };
        let text = origin::text_of(name, &commit, &path).await?;
        if let Some((revision, _)) = spec {
            self.commits.insert(revision.to_owned(), commit);
        }
        Ok(text)
    }

    /// Reads what the sources extend, recursively, up to the limits. A file that cannot be read is reported where it is
    /// named.
    async fn extended(&mut self, all: &mut Policies) -> Result<(), Refusal> {
        let mut left: VecDeque<(String, String)> = all
            .sources
            .iter()
            .map(|source| (source.name.clone(), source.text.clone()))
            .collect();
        while let Some((name, text)) = left.pop_front() {
            if all.extended.tree.is_empty() && extends::looks_at_tree(&text) {
                all.extended.tree = toolchains::of(self.workspace);
            }
            for file in extends::files_of(&name, &text) {
                if all.extended.texts.contains_key(&file) {
                    continue;
                }
                let read = match all.extended.texts.len() < extends::MAX_FILES {
                    true => self.beside(&file).await?,
                    false => Err(format!("more than {} files are extended", extends::MAX_FILES)),
                };
                if let Ok(text) = &read {
                    left.push_back((file.clone(), text.clone()));
                }
                all.extended.texts.insert(file, read);
                if all.extended.texts.len() > extends::MAX_FILES {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The text of an extended file, or why it cannot be read.
    async fn beside(&mut self, name: &str) -> Result<Result<String, String>, Refusal> {
        if name.starts_with("git:") {
            if let Some(why) = committed::owned(self.workspace) {
                return Ok(Err(format!("{why}: {}", committed::OWNED_HELP)));
            }
            let read = self.committed(name).await;
            return match read {
                Ok(text) => Ok(small(text)),
                Err(Refusal::Invalid(_)) => Ok(Err("there is no such file in that commit".to_owned())),
                Err(other) => Err(other),
            };
        }
        let path = &self.directory.join(name);
        let within = self.own.and_then(|own| own.within.as_deref());
        if within.is_some_and(|places| !ends_in(path, places)) {
            return Ok(Err(
                "it is outside the workspace's repository, and the recipe that names this policy is not trusted"
                    .to_owned(),
            ));
        }
        if let Some(why) = self.held_back(path) {
            return Ok(Err(format!("it is not read: {why}")));
        }
        let found = std::fs::metadata(path);
        Ok(match found {
            Ok(found) if !found.is_file() => Err("it is not a file".to_owned()),
            Ok(found) if found.len() > extends::MAX_BYTES => Err(too_large()),
            Ok(_) => inputs::text(path)
                .map_err(|refusal| refusal.to_string())
                .and_then(small),
            Err(_) => Err("there is no such file".to_owned()),
        })
    }
}

fn too_large() -> String {
    format!("it is larger than {} KiB", extends::MAX_BYTES >> 10)
}

fn small(text: String) -> Result<String, String> {
    match text.len() as u64 > extends::MAX_BYTES {
        true => Err(too_large()),
        false => Ok(text),
    }
}
