//! Compares and edits tree objects by id. Starts git only to read objects that only the repository has.

use super::object::MOST_OBJECT;
use super::object::{DIRECTORY, Id, METADATA, ObjectFormat, ObjectKind, TreeEntry, entries, order, push_entry};
use super::repository::is_partial;
use super::scan::MOST_DEPTH;
use super::store::Store;
use super::unknown::UnknownContent;
use crate::base::event::PathChange;
use crate::process::own_git::{Batch, ObjectHeader};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Reads objects from the store and from the repository, and verifies them against their ids.
pub(super) struct ObjectReader<'a> {
    pub format: ObjectFormat,
    pub store: &'a Store,
    /// The object directory of the repository, if there is one.
    pub elsewhere: Option<PathBuf>,
    pub batch: Option<Batch>,
}

/// The message for a content that is kept apart from the store, and is not here.
const PRIVATE_ABSENT: &str = "the content of a file with a secret is not in the run directory: it is kept in the state \
    directory of the user who ran it, on that machine, until the run has ended; resume the run there, or start a new one";

/// Mode and id of a file or link.
pub(super) type Leaf = (u32, Id);

/// Receives contents with their ids.
pub(super) type ContentSink<'a> = &'a mut dyn FnMut(&Id, Vec<u8>) -> Result<(), String>;

/// A path that differs between two trees: a file or link, never a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeChange {
    pub path: Vec<u8>,
    pub old: Option<Leaf>,
    pub new: Option<Leaf>,
}

impl TreeChange {
    /// The path as a text; bytes that are not UTF-8 are replaced.
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// The text in place of a content that is not known, now or before the change.
    pub fn unknown(&self) -> Option<Id> {
        let of = |leaf: Option<Leaf>| leaf.filter(|(mode, _)| *mode == METADATA).map(|(_, id)| id);
        of(self.new).or(of(self.old))
    }

    /// How the path differs.
    pub fn kind(&self) -> PathChange {
        match (&self.old, &self.new) {
            (None, _) => PathChange::Added,
            (_, None) => PathChange::Deleted,
            (Some((_, old)), Some((_, new))) if old == new => PathChange::Mode,
            _ => PathChange::Modified,
        }
    }
}

impl<'a> ObjectReader<'a> {
    /// A reader of this store. `elsewhere`: the object directory of the repository, if there is one.
    pub fn new(format: ObjectFormat, store: &'a Store, elsewhere: Option<PathBuf>) -> Self {
        Self {
            format,
            store,
            elsewhere,
            batch: None,
        }
    }

    /// The entries of a tree; none for the empty tree, which need not be stored.
    ///
    /// # Errors
    /// As for [`ObjectReader::read`], or the object is not a well-formed tree.
    pub fn tree(&mut self, id: &Id) -> Result<Vec<TreeEntry>, String> {
        if *id == self.format.id_of(ObjectKind::Tree, b"")? {
            return Ok(Vec::new());
        }
        entries(self.format, &self.read(id, ObjectKind::Tree)?)
    }

    /// Why a content is not known: the first line of the text in its place.
    ///
    /// # Errors
    /// As for [`ObjectReader::read`].
    pub fn why(&mut self, id: &Id) -> Result<UnknownContent, String> {
        let text = self.read(id, ObjectKind::Blob)?;
        let text = String::from_utf8_lossy(&text);
        Ok(UnknownContent::parse(text.lines().next().unwrap_or_default()))
    }

    /// The content of one object.
    ///
    /// # Errors
    /// Neither the store nor the repository has the object, it is of another kind or does not have the content of its
    /// id, or git cannot be started or fails.
    pub fn read(&mut self, id: &Id, kind: ObjectKind) -> Result<Vec<u8>, String> {
        if let Some(content) = self.store.read(id, kind)? {
            return Ok(content);
        }
        let mut found = Vec::new();
        self.foreign(&[*id], kind, &mut |_, content| {
            found = content;
            Ok(())
        })?;
        Ok(found)
    }

    /// The contents of many objects, in any order.
    ///
    /// # Errors
    /// As for [`ObjectReader::read`], or the error of `take`.
    pub fn each(&mut self, ids: &[Id], kind: ObjectKind, take: ContentSink<'_>) -> Result<(), String> {
        let mut others = Vec::new();
        for id in ids {
            match self.store.read(id, kind)? {
                Some(content) => take(id, content)?,
                None => others.push(*id),
            }
        }
        if others.is_empty() {
            return Ok(());
        }
        self.foreign(&others, kind, take)
    }

    fn foreign(&mut self, ids: &[Id], kind: ObjectKind, take: ContentSink<'_>) -> Result<(), String> {
        let format = self.format;
        let names: Vec<String> = ids.iter().map(|id| format.hex(id)).collect();
        let elsewhere = self.elsewhere.as_deref();
        let store = self.store;
        let batch = match (&mut self.batch, &self.elsewhere) {
            (Some(batch), _) => batch,
            (none, Some(objects)) => none.insert(Batch::open(objects, format == ObjectFormat::Sha256)?),
            (None, None) => {
                let private = store.private_ids();
                return Err(match names.iter().any(|name| private.contains(name)) {
                    true => PRIVATE_ABSENT.to_owned(),
                    false => format!("object {} is missing", names.join(" ")),
                });
            }
        };
        batch.each(&names, &mut |number, header, content| {
            let name = names.get(number).map_or("", String::as_str);
            let Some(header) = header else {
                return Err(match store.private_ids().contains(name) {
                    true => PRIVATE_ABSENT.to_owned(),
                    false => absent(name, elsewhere),
                });
            };
            let content = checked(format, header, kind, content)?;
            let id = format.id_of(kind, &content)?;
            match ids.get(number) {
                Some(asked) if *asked == id => take(asked, content),
                _ => Err(format!("object {name} of the repository was altered")),
            }
        })
    }

    /// The tree id of a commit.
    ///
    /// # Errors
    /// `commit` is not the id of a commit, or as for [`ObjectReader::read`].
    pub fn tree_of(&mut self, commit: &str) -> Result<Id, String> {
        let none = || format!("{commit} is not a commit");
        let id = self.format.parse(commit).ok_or_else(none)?;
        let content = self.read(&id, ObjectKind::Commit)?;
        let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let hex = line.strip_prefix(b"tree ").and_then(|hex| str::from_utf8(hex).ok());
        hex.and_then(|hex| self.format.parse(hex)).ok_or_else(none)
    }

    /// The id of the tree at a path (with slashes; `""` is the tree itself).
    ///
    /// # Errors
    /// As for [`ObjectReader::tree`]. A path that is not there is `None`.
    pub fn below(&mut self, tree: &Id, path: &[u8]) -> Result<Option<Id>, String> {
        let mut here = *tree;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let found = self.tree(&here)?.into_iter().find(|entry| entry.name == part);
            match found {
                Some(entry) if entry.is_dir() => here = entry.id,
                _ => return Ok(None),
            }
        }
        Ok(Some(here))
    }

    /// The file or link at a path.
    ///
    /// # Errors
    /// As for [`ObjectReader::tree`]. A path that is not there is `None`.
    pub fn leaf(&mut self, tree: &Id, path: &[u8]) -> Result<Option<Leaf>, String> {
        let slash = memchr::memrchr(b'/', path);
        let (dir, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
        let Some(dir) = self.below(tree, dir)? else {
            return Ok(None);
        };
        let found = self.tree(&dir)?.into_iter().find(|entry| entry.name == name);
        Ok(found
            .filter(|entry| !entry.is_dir())
            .map(|entry| (entry.mode, entry.id)))
    }

    /// The files and links at these paths of a commit.
    ///
    /// # Errors
    /// As for [`ObjectReader::tree_of`] and [`ObjectReader::tree`]. A path that is not there is left out.
    pub fn leaves<'p>(
        &mut self,
        commit: &str,
        paths: impl Iterator<Item = &'p [u8]>,
    ) -> Result<BTreeMap<Vec<u8>, Leaf>, String> {
        let tree = self.tree_of(commit)?;
        let mut names: BTreeMap<&[u8], BTreeSet<&[u8]>> = BTreeMap::new();
        for path in paths {
            let slash = memchr::memrchr(b'/', path);
            let (dir, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
            names.entry(dir).or_default().insert(name);
        }
        let mut found = BTreeMap::new();
        for (dir, names) in names {
            let Some(id) = self.below(&tree, dir)? else {
                continue;
            };
            let entries = self.tree(&id)?.into_iter();
            for entry in entries.filter(|entry| !entry.is_dir() && names.contains(entry.name.as_slice())) {
                found.insert([dir, &entry.name].concat(), (entry.mode, entry.id));
            }
        }
        Ok(found)
    }

    /// The differences from one tree to another, by path.
    ///
    /// # Errors
    /// As for [`ObjectReader::tree`], or directories are nested too deeply.
    pub fn differences(&mut self, from: &Id, to: &Id) -> Result<Vec<TreeChange>, String> {
        let mut found = Vec::new();
        self.compare(Some(from), Some(to), &mut Vec::new(), &mut found, MOST_DEPTH + 1)?;
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn compare(
        &mut self,
        from: Option<&Id>,
        to: Option<&Id>,
        path: &mut Vec<u8>,
        found: &mut Vec<TreeChange>,
        depth: usize,
    ) -> Result<(), String> {
        if from == to {
            return Ok(());
        }
        let depth = depth.checked_sub(1).ok_or("a tree is nested too deeply")?;
        let mut names: BTreeMap<Vec<u8>, [Option<Leaf>; 2]> = BTreeMap::new();
        for (side, tree) in [from, to].into_iter().enumerate() {
            let Some(tree) = tree else { continue };
            for entry in self.tree(tree)? {
                if let Some(slot) = names.entry(entry.name).or_default().get_mut(side) {
                    *slot = Some((entry.mode, entry.id));
                }
            }
        }
        for (name, [old, new]) in names {
            if old == new {
                continue;
            }
            let length = path.len();
            path.extend_from_slice(&name);
            let split = |entry: Option<Leaf>| match entry {
                Some((DIRECTORY, id)) => (Some(id), None),
                leaf => (None, leaf),
            };
            let ((old_tree, old), (new_tree, new)) = (split(old), split(new));
            if old != new {
                let path = path.clone();
                found.push(TreeChange { path, old, new });
            }
            path.push(b'/');
            self.compare(old_tree.as_ref(), new_tree.as_ref(), path, found, depth)?;
            path.truncate(length);
        }
        Ok(())
    }

    /// The tree `from` with other files at some paths (`None`: no file); new trees are passed to `put`. `None` if the
    /// result is empty.
    ///
    /// # Errors
    /// As for [`ObjectReader::tree`], or the error of `put`.
    pub fn edited(
        &mut self,
        from: Option<&Id>,
        edits: &BTreeMap<Vec<u8>, Option<Leaf>>,
        put: &mut dyn FnMut(&[u8]) -> Result<Id, String>,
    ) -> Result<Option<Id>, String> {
        let mut names: BTreeMap<Vec<u8>, Leaf> = BTreeMap::new();
        if let Some(from) = from {
            names = self
                .tree(from)?
                .into_iter()
                .map(|entry| (entry.name, (entry.mode, entry.id)))
                .collect();
        }
        let mut below: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Option<Leaf>>> = BTreeMap::new();
        for (path, leaf) in edits {
            match memchr::memchr(b'/', path) {
                Some(slash) => {
                    let (name, rest) = path.split_at(slash);
                    let rest = rest.get(1..).unwrap_or_default().to_vec();
                    below.entry(name.to_vec()).or_default().insert(rest, *leaf);
                }
                None => match leaf {
                    Some(leaf) => drop(names.insert(path.clone(), *leaf)),
                    None => {
                        if names.get(path).is_some_and(|(mode, _)| *mode != DIRECTORY) {
                            names.remove(path);
                        }
                    }
                },
            }
        }
        for (name, edits) in below {
            let old = names.get(&name).copied();
            let dir = old.filter(|(mode, _)| *mode == DIRECTORY).map(|(_, id)| id);
            match self.edited(dir.as_ref(), &edits, put)? {
                Some(id) => drop(names.insert(name, (DIRECTORY, id))),
                None if dir.is_some() => drop(names.remove(&name)),
                None => {}
            }
        }
        let mut sorted: Vec<(Vec<u8>, Leaf)> = names.into_iter().collect();
        sorted.sort_by(|(a, (mode, _)), (b, (other, _))| order((a, *mode == DIRECTORY), (b, *other == DIRECTORY)));
        let mut tree = Vec::new();
        for (name, (mode, id)) in &sorted {
            push_entry(&mut tree, self.format, name, *mode, id);
        }
        match sorted.is_empty() {
            true => Ok(None),
            false => put(&tree).map(Some),
        }
    }
}

/// The message for an object that the repository does not have.
fn absent(name: &str, objects: Option<&Path>) -> String {
    let partial = match objects.is_some_and(is_partial) {
        true => {
            ": it is a partial clone (`git clone --filter`), which leaves objects with its remote; get them with \
             `git fetch --refetch --no-filter`, or run without `--isolate`, which needs only the files that are checked out"
        }
        false => "",
    };
    format!("object {name} is not in the repository{partial}")
}

/// The content from git, if it is a valid object of this kind.
fn checked(
    format: ObjectFormat,
    header: &ObjectHeader,
    kind: ObjectKind,
    content: &mut dyn Read,
) -> Result<Vec<u8>, String> {
    if header.kind != kind.word() || header.id.len() != format.bytes() * 2 {
        return Err(format!(
            "object {} of the repository is a {}, not a {}",
            header.id,
            header.kind,
            kind.word()
        ));
    }
    if header.size > MOST_OBJECT {
        return Err(format!("object {} has more than {} MiB", header.id, MOST_OBJECT >> 20));
    }
    let mut bytes = Vec::with_capacity(header.size as usize);
    content
        .read_to_end(&mut bytes)
        .map_err(|error| format!("object {}: {error}", header.id))?;
    Ok(bytes)
}
