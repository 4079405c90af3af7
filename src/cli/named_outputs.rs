//! The rules for output files that the user names. Their paths must not have a symbolic link that is in a tree, because
//! a commit can bring one that leads anywhere. They must not be files that the command reads, or that git tracks and
//! that are not earlier outputs, because a mistake in the command line would overwrite them.

use crate::base::quote::shell_word;
use crate::cli::excluded_trees;
use crate::cli::refusal::Refusal;
use crate::journal::no_follow::settled;
use crate::journal::{JournalError, artefacts, no_follow};
use crate::process::own_git::{self, GitAccess};
use crate::report::export::ReportFile;
use crate::workspace::patch::repository;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How many bytes of a file are read to find out whether it is an earlier output.
const HEAD: u64 = 4 << 10;

/// An output file that a flag names.
pub struct NamedOutput<'a> {
    pub flag: &'a str,
    pub kind: ReportFile,
    pub path: &'a Path,
}

/// A file that the command reads, and what names it: a flag, a variable or the recipe.
pub struct ReadFile {
    pub by: String,
    pub path: PathBuf,
}

impl ReadFile {
    pub fn new(by: &str, path: impl Into<PathBuf>) -> Self {
        Self {
            by: by.to_owned(),
            path: path.into(),
        }
    }
}

/// Refuses output files that the command also reads.
///
/// # Errors
/// [`Refusal::Usage`] for the first such file.
pub fn refuse_read(outputs: &[NamedOutput<'_>], read: &[ReadFile]) -> Result<(), Refusal> {
    for output in outputs {
        if let Some(file) = read.iter().find(|file| is_same(output.path, &file.path)) {
            return Err(Refusal::Usage(format!(
                "{} {}: this file is read by the command ({}), and nothing was changed: {}",
                output.flag,
                output.path.display(),
                file.by,
                output.instead()
            )));
        }
    }
    Ok(())
}

/// Refuses output files that the repository around them tracks, unless they look like an earlier output of the same
/// kind.
///
/// # Errors
/// [`Refusal::Usage`] for the first such file; [`Refusal::Environment`] if git cannot be run.
pub async fn refuse_tracked(outputs: &[NamedOutput<'_>]) -> Result<(), Refusal> {
    for output in outputs {
        let Some(file) = artefacts::file_of(output.path).filter(|file| file.is_file()) else {
            continue;
        };
        if !output.is_earlier(&file) && is_tracked(&file).await? {
            return Err(Refusal::Usage(format!(
                "{} {}: git tracks this file, it is no earlier {}, and nothing was changed: {}",
                output.flag,
                output.path.display(),
                output.kind.as_str(),
                output.instead()
            )));
        }
    }
    Ok(())
}

impl NamedOutput<'_> {
    /// The advice in the message of a refusal: another file name.
    fn instead(&self) -> String {
        let name = match self.kind {
            ReportFile::Mbox => "changes.mbox",
            kind => kind.file().unwrap_or("output"),
        };
        let mut beside = self.path.with_file_name(name);
        if beside.exists() {
            beside.set_file_name(format!("overnight-{name}"));
        }
        let beside = beside.to_string_lossy().into_owned();
        format!("name another file, for example {} {}", self.flag, shell_word(&beside))
    }

    /// Whether a file begins like an output of this kind, or is empty: then nothing is lost.
    fn is_earlier(&self, file: &Path) -> bool {
        let mut head = Vec::new();
        let read = File::open(file).and_then(|file| file.take(HEAD).read_to_end(&mut head));
        let has = |part: &[u8]| head.windows(part.len()).any(|at| at == part);
        read.is_ok()
            && match self.kind {
                _ if head.is_empty() => true,
                ReportFile::Patch => head.starts_with(b"diff --git "),
                ReportFile::Junit => has(b"<testsuite"),
                ReportFile::Transcript => has(b"\"schema_version\": \"ATIF-"),
                ReportFile::Mbox => head.starts_with(b"From "),
                _ => false,
            }
    }
}

/// Whether two paths lead to the same file. Links are followed; if neither exists, the paths are compared.
fn is_same(one: &Path, other: &Path) -> bool {
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => settled(one) == settled(other),
        _ => false,
    }
}

/// Whether the index of the repository around a file contains it.
async fn is_tracked(file: &Path) -> Result<bool, Refusal> {
    let Some(found) = file.parent().and_then(repository) else {
        return Ok(false);
    };
    let Ok(below) = file.strip_prefix(&found.top) else {
        return Ok(false);
    };
    let (dir, top) = (found.git_dir.to_string_lossy(), found.top.to_string_lossy());
    let name = below.to_string_lossy();
    let args = [
        "--literal-pathspecs",
        "--git-dir",
        dir.as_ref(),
        "--work-tree",
        top.as_ref(),
        "ls-files",
        "-z",
        "--cached",
        "--",
        name.as_ref(),
    ];
    let listed = own_git::git(&args, &found.top, &[], None, GitAccess::Read).await;
    let listed = listed.map_err(Refusal::Environment)?;
    Ok(listed.ok && !listed.stdout.is_empty())
}

/// Refuses an output whose path leads through a symbolic link below the top of the repository of `workspace` or of the
/// current directory, or of any other repository. Links above and beside these are the user's own, and so are those of a
/// repository at the user's home unless it is worked on.
///
/// # Errors
/// [`JournalError::Link`] with the link.
pub fn refuse_link(workspace: &Path, path: &Path) -> Result<(), JournalError> {
    let here = std::env::current_dir().ok().and_then(|here| repository(&here));
    let tops = [Some(top(workspace)), here.map(|here| here.top)];
    for top in tops.into_iter().flatten() {
        let of_tree = |link: &PathBuf| no_follow::is_inside(&top, link);
        let link = no_follow::link_inside(&top, path).or_else(|| artefacts::links(path).into_iter().find(of_tree));
        if let Some(link) = link {
            return Err(JournalError::Link(link.display().to_string()));
        }
    }
    match no_follow::links_of(path).into_iter().find(|link| is_in_a_tree(link)) {
        Some(link) => Err(JournalError::Link(link.display().to_string())),
        None => Ok(()),
    }
}

/// Whether a repository is around a link, which is named by its real directory. What its `.git` says does not count: that
/// could be part of the tree. One at the root of the machine does not count: all its links are in it.
fn is_in_a_tree(link: &Path) -> bool {
    let is_repository = |dir: &Path| dir.join(".git").symlink_metadata().is_ok();
    let is_top = |dir: &Path| dir.parent().is_some() && is_repository(dir) && !excluded_trees::is_home(dir);
    link.ancestors().skip(1).any(is_top)
}

/// The top of the repository of a workspace, or the workspace.
fn top(workspace: &Path) -> PathBuf {
    let workspace = std::fs::canonicalize(workspace).unwrap_or_else(|_| workspace.to_owned());
    repository(&workspace).map_or(workspace, |found| found.top)
}
