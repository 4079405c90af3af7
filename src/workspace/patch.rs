//! The run's own changes: a baseline of the tree, and the patch against it. Git does the work with our own object
//! directory, index and configuration; nothing is written to the repository's `.git`. Knows no event.

mod nested;
mod own;

use crate::process::plain::{self, Printed};
use std::path::{Path, PathBuf};

/// Our own git directory for one tree.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// Holds objects, index and configuration; lies in the run directory.
    dir: PathBuf,
    /// Top of the repository, or the workspace where there is none.
    top: PathBuf,
    /// The workspace below `top`: `""` or `sub/dir/`.
    prefix: String,
    repository: Option<Repository>,
}

/// Where a repository keeps its things.
#[derive(Clone, Debug)]
pub struct Repository {
    pub top: PathBuf,
    /// The directory of this worktree: `index`, `HEAD`.
    pub git_dir: PathBuf,
    /// The directory that all worktrees share: `objects`, `info`.
    pub common_dir: PathBuf,
}

/// The tree's state at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Id of the git tree.
    pub tree: String,
}

/// What lies between two snapshots.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// A patch that `git apply` takes; empty when nothing changed.
    pub patch: Vec<u8>,
    pub files: Vec<crate::base::event::FileChange>,
}

/// The repository that a directory lies in, found without running anything.
pub fn repository(workspace: &Path) -> Option<Repository> {
    for top in workspace.ancestors() {
        let dot_git = top.join(".git");
        let git_dir = if dot_git.is_dir() {
            dot_git
        } else {
            let Ok(text) = std::fs::read_to_string(&dot_git) else {
                continue;
            };
            top.join(text.strip_prefix("gitdir:")?.trim())
        };
        let common_dir = match std::fs::read_to_string(git_dir.join("commondir")) {
            Ok(text) => git_dir.join(text.trim()),
            Err(_) => git_dir.clone(),
        };
        return Some(Repository {
            top: top.to_owned(),
            git_dir,
            common_dir,
        });
    }
    None
}

/// The commit that `HEAD` names; `None` before the first one.
pub async fn head(repository: &Repository) -> Result<Option<String>, String> {
    if let Some(id) = branch_head(repository) {
        return Ok(Some(id));
    }
    let dir = repository.git_dir.to_string_lossy();
    let args = [
        "--git-dir",
        dir.as_ref(),
        "rev-parse",
        "--verify",
        "--quiet",
        "HEAD^{commit}",
    ];
    let printed = plain::git(&args, &repository.top, &[], None).await?;
    let id = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    Ok((printed.ok && !id.is_empty()).then_some(id))
}

/// The commit of a branch or a detached `HEAD` as it stands in the files of git: a process less at every start. `None`
/// leaves the question to git itself (no commit yet, another way of keeping references).
fn branch_head(repository: &Repository) -> Option<String> {
    let id = |text: &str| {
        let text = text.trim();
        let hex = matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        hex.then(|| text.to_owned())
    };
    let head = std::fs::read_to_string(repository.git_dir.join("HEAD")).ok()?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return id(&head);
    };
    if !name.starts_with("refs/heads/") || name.split('/').any(|part| part == "..") {
        return None;
    }
    if let Ok(text) = std::fs::read_to_string(repository.common_dir.join(name)) {
        return id(&text);
    }
    let packed = std::fs::read_to_string(repository.common_dir.join("packed-refs")).ok()?;
    packed.lines().find_map(|line| {
        let (commit, at) = line.split_once(' ')?;
        (at == name).then(|| id(commit)).flatten()
    })
}

/// How often, and after which pause, an index that is locked is tried again: two seconds in all.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// A branch without commits.
const HEAD: &[u8] = b"ref: refs/heads/none\n";

impl Shadow {
    /// Prepares a git directory of our own in `dir` for the tree of `workspace`. Paths under `hidden` (the run
    /// directory, when it lies in the tree) are never part of a snapshot.
    pub fn open(dir: &Path, workspace: &Path, hidden: &[PathBuf]) -> std::io::Result<Self> {
        let repository = repository(workspace);
        let top = repository.as_ref().map_or(workspace, |found| &found.top).to_owned();
        let prefix = match workspace.strip_prefix(&top) {
            Ok(below) if !below.as_os_str().is_empty() => format!("{}/", below.to_string_lossy()),
            _ => String::new(),
        };
        let shadow = Self {
            dir: dir.to_owned(),
            top,
            prefix,
            repository,
        };
        // A process that was killed may have left it half made.
        if !std::fs::read(dir.join("HEAD")).is_ok_and(|text| text == HEAD) {
            shadow.lay_out(hidden)?;
        }
        Ok(shadow)
    }

    fn lay_out(&self, hidden: &[PathBuf]) -> std::io::Result<()> {
        let info = self.dir.join("info");
        let objects = self.dir.join("objects");
        std::fs::create_dir_all(&info)?;
        std::fs::create_dir_all(objects.join("info"))?;
        std::fs::create_dir_all(self.dir.join("refs"))?;
        let sha256 = self.uses_sha256();
        let format = if sha256 { "1" } else { "0" };
        let mut config = format!("[core]\n\trepositoryformatversion = {format}\n\tbare = false\n\tsymlinks = true\n");
        if sha256 {
            config.push_str("[extensions]\n\tobjectformat = sha256\n");
        }
        std::fs::write(self.dir.join("config"), config)?;
        // Highest precedence: whatever the tree's own attributes say, bytes go in and out as they are.
        std::fs::write(
            info.join("attributes"),
            "* -text !eol -filter -ident !working-tree-encoding !diff !merge\n",
        )?;
        let mut excludes = String::from("/.overnight/\n.overnight-tmp-*\n");
        for path in hidden {
            if let Ok(below) = path.strip_prefix(&self.top) {
                excludes.push_str(&format!("/{}/\n", escape_pattern(&below.to_string_lossy())));
            }
        }
        if let Some(repository) = &self.repository {
            if !self.prefix.is_empty() {
                excludes.push_str(&format!("/{}.overnight/\n", escape_pattern(&self.prefix)));
            }
            excludes.push_str(&std::fs::read_to_string(repository.common_dir.join("info/exclude")).unwrap_or_default());
            let shared = repository.common_dir.join("objects");
            let shared = std::fs::canonicalize(&shared).unwrap_or(shared);
            std::fs::write(objects.join("info/alternates"), format!("{}\n", shared.display()))?;
        }
        std::fs::write(info.join("exclude"), excludes)?;
        // Last, because its presence says that all of the above is there.
        std::fs::write(self.dir.join("HEAD"), HEAD)
    }

    fn uses_sha256(&self) -> bool {
        let config = self.repository.as_ref().map(|found| found.common_dir.join("config"));
        config
            .and_then(|path| std::fs::read_to_string(path).ok())
            .is_some_and(|text| text.to_ascii_lowercase().contains("objectformat = sha256"))
    }

    async fn git(&self, args: &[&str], stdin: Option<&[u8]>) -> Result<Printed, String> {
        self.git_with(args, &[], stdin).await
    }

    async fn git_with(
        &self,
        args: &[&str],
        more: &[(String, String)],
        stdin: Option<&[u8]>,
    ) -> Result<Printed, String> {
        let own = [("GIT_DIR", &self.dir), ("GIT_WORK_TREE", &self.top)];
        let own = own.map(|(name, path)| (name.to_owned(), path.to_string_lossy().into_owned()));
        plain::git(args, &self.top, &[&own, more].concat(), stdin).await
    }

    /// The first snapshot. Starts from the repository's index where that is safe, so that unchanged files are not read.
    pub async fn baseline(&self) -> Result<Snapshot, String> {
        let Some(repository) = &self.repository else {
            return self.snapshot().await;
        };
        // The index may have megabytes: another thread copies it, so that the first request need not wait.
        let (shadow, theirs) = (self.clone(), repository.clone());
        let copied = tokio::task::spawn_blocking(move || shadow.copy_index(&theirs)).await;
        if copied.unwrap_or(false) {
            if let Ok(snapshot) = self.snapshot().await {
                return Ok(snapshot);
            }
            // An index that our git cannot use; whatever it was, the names alone will do.
            let _ = std::fs::remove_file(self.dir.join("index"));
        }
        // Files that are tracked although an ignore file names them are known from the list of names only.
        let names = self.tracked(repository).await?;
        self.git(&["update-index", "--add", "-z", "--stdin"], Some(&names))
            .await?;
        self.snapshot().await
    }

    /// Takes over the repository's index, unless its entries may say less than the files. Gives whether it did.
    fn copy_index(&self, repository: &Repository) -> bool {
        let index = std::fs::read(repository.git_dir.join("index")).unwrap_or_default();
        let usable = !index.is_empty() && !self.bytes_may_differ(repository, &index);
        usable && std::fs::write(self.dir.join("index"), index).is_ok()
    }

    /// Whether the repository's attributes or settings let a stored file differ from the one in the tree.
    fn bytes_may_differ(&self, repository: &Repository, index: &[u8]) -> bool {
        let config = std::fs::read_to_string(repository.common_dir.join("config")).unwrap_or_default();
        let config = config.to_ascii_lowercase();
        let converts = ["autocrlf", "[filter", "eol", "attributesfile", "splitindex", "sparse"]
            .iter()
            .any(|word| config.contains(word));
        let names = |needle: &[u8]| memchr::memmem::find(index, needle).is_some();
        converts
            || names(b".gitattributes")
            || names(b"link\0\0\0")
            || repository.common_dir.join("info/attributes").exists()
            || self.top.join(".gitattributes").exists()
    }

    async fn tracked(&self, repository: &Repository) -> Result<Vec<u8>, String> {
        let dir = repository.git_dir.to_string_lossy();
        let top = self.top.to_string_lossy();
        let args = ["--git-dir", dir.as_ref(), "--work-tree", top.as_ref(), "ls-files", "-z"];
        Ok(plain::git(&args, &self.top, &[], None).await?.stdout)
    }

    /// The tree as it is now.
    pub async fn snapshot(&self) -> Result<Snapshot, String> {
        let scope = if self.prefix.is_empty() {
            "."
        } else {
            self.prefix.as_str()
        };
        let literal = format!(":(literal){scope}");
        let pathspec = if self.prefix.is_empty() { "." } else { literal.as_str() };
        let mut added = self.add(pathspec).await?;
        for _ in 0..nested::DEPTH {
            if !self.open_links(&added.stderr).await? {
                break;
            }
            added = self.add(pathspec).await?;
        }
        let written = self.git(&["write-tree"], None).await?;
        let tree = String::from_utf8_lossy(&written.stdout).trim().to_owned();
        if !written.ok || tree.is_empty() {
            return Err(format!("git write-tree: {} {}", added.stderr, written.stderr));
        }
        Ok(Snapshot { tree })
    }

    /// Brings the index up to the tree. A process of ours that was killed may have left git's lock behind, or git itself at
    /// work for a moment more; without the lock the index would stay as it was, and pass for the tree.
    async fn add(&self, pathspec: &str) -> Result<Printed, String> {
        let args = ["add", "-A", "--ignore-errors", "--", pathspec];
        let locked = |added: &Printed| !added.ok && added.stderr.contains("index.lock");
        for _ in 0..LOCK_TRIES {
            let added = self.git(&args, None).await?;
            if !locked(&added) {
                return Ok(added);
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        // Whoever holds the run directory is alone in it, and whoever held it before is gone by now.
        let _ = std::fs::remove_file(self.dir.join("index.lock"));
        let added = self.git(&args, None).await?;
        match locked(&added) {
            true => Err(format!("git add: {}", added.stderr)),
            false => Ok(added),
        }
    }

    /// What changed from one snapshot to another.
    pub async fn delta(&self, from: &Snapshot, to: &Snapshot) -> Result<Delta, String> {
        if from == to {
            return Ok(Delta::default());
        }
        let common = ["diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv"];
        let run = |extra: &'static [&'static str]| {
            let args: Vec<&str> = common
                .iter()
                .chain(extra)
                .copied()
                .chain([from.tree.as_str(), to.tree.as_str()])
                .collect();
            async move { self.git(&args, None).await }
        };
        let patch = run(&["-p", "--binary", "--full-index"]).await?;
        let raw = run(&["-z", "--raw", "--numstat"]).await?;
        if !patch.ok || !raw.ok {
            return Err(format!("git diff-tree: {} {}", patch.stderr, raw.stderr));
        }
        Ok(Delta {
            patch: patch.stdout,
            files: changes(&raw.stdout, &self.prefix),
        })
    }

    /// Applies a delta's patch to the tree.
    pub async fn apply(&self, patch: &[u8]) -> Result<(), String> {
        let applied = self
            .git(&["apply", "--binary", "--whitespace=nowarn", "-"], Some(patch))
            .await?;
        if applied.ok { Ok(()) } else { Err(applied.stderr) }
    }
}

fn escape_pattern(path: &str) -> String {
    let mut escaped = String::new();
    for c in path.chars() {
        if "\\*?[!# ".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Reads `-z --raw --numstat`: records `:mode mode id id STATUS\0path\0[path\0]`, then `added\tremoved\tpath\0` or
/// `added\tremoved\t\0from\0to\0`.
fn changes(raw: &[u8], prefix: &str) -> Vec<crate::base::event::FileChange> {
    let mut files = Vec::new();
    let mut fields = raw
        .split(|byte| *byte == 0)
        .map(|field| String::from_utf8_lossy(field).into_owned());
    let local = |path: String| path.strip_prefix(prefix).map(str::to_owned).unwrap_or(path);
    while let Some(field) = fields.next() {
        if let Some(record) = field.strip_prefix(':') {
            let mut words = record.split(' ');
            let (old_mode, new_mode) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (old_id, new_id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let status = words.next().unwrap_or_default();
            let first = fields.next().unwrap_or_default();
            let (from, path) = match status.chars().next() {
                Some('R' | 'C') => (Some(local(first)), local(fields.next().unwrap_or_default())),
                _ => (None, local(first)),
            };
            let kind = match status.chars().next() {
                Some('A' | 'C') => "added",
                Some('D') => "deleted",
                Some('R') => "renamed",
                _ if old_id == new_id && old_mode != new_mode => "mode",
                _ => "modified",
            };
            files.push(crate::base::event::FileChange {
                path,
                kind: kind.to_owned(),
                from,
                added: None,
                removed: None,
            });
        } else if let Some((counts, path)) = field.rsplit_once('\t') {
            let path = if path.is_empty() {
                fields.next();
                fields.next().unwrap_or_default()
            } else {
                path.to_owned()
            };
            let path = local(path);
            let (added, removed) = counts.split_once('\t').unwrap_or_default();
            if let Some(file) = files.iter_mut().find(|file| file.path == path) {
                file.added = added.parse().ok();
                file.removed = removed.parse().ok();
            }
        }
    }
    files
}
