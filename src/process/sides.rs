//! The home and temporary directories of commands. The model's commands and those of the recipe's author have different
//! ones: a file that a command of the model leaves there, such as a start-up file of an interpreter, must not decide a
//! check.
//!
//! ```text
//! author/  home, tmp, layers: steps; each check and each program of the policy works on a copy (`one_check`)
//! model/   home and tmp, a copy of the author's when the model's first command starts; layers above the author's
//! servers/ the same, for MCP servers and discovery
//! ```

mod copying;
mod one_check;

pub use one_check::OneCheck;

use super::Confinement;
use crate::base::sync::lock;
use copying::{Copying, LIMIT};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// The names of the directories that each side has.
const EACH: [&str; 3] = ["home", "tmp", "layers"];

/// Who wrote a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Author,
    Model,
    Servers,
}

impl Side {
    /// All sides.
    pub const ALL: [Side; 3] = [Side::Author, Side::Model, Side::Servers];

    /// The name of the directory of this side.
    pub fn name(self) -> &'static str {
        match self {
            Side::Author => "author",
            Side::Model => "model",
            Side::Servers => "servers",
        }
    }
}

/// The directories of all sides of one run.
#[derive(Debug)]
pub struct Sides {
    /// Their common parent.
    dir: PathBuf,
    /// Whether the files of the author's commands were copied. If that fails, it is tried again for the next command.
    copied: Mutex<bool>,
    /// The number of the next check.
    checks: AtomicU32,
}

impl Sides {
    /// Creates them, empty, in an existing directory.
    ///
    /// # Errors
    /// I/O errors.
    pub fn create(dir: &Path) -> io::Result<Self> {
        for side in Side::ALL {
            EACH.iter()
                .try_for_each(|name| make(&dir.join(side.name()).join(name)))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            copied: Mutex::new(false),
            checks: AtomicU32::new(0),
        })
    }

    /// A directory of one side.
    fn of(&self, side: Side) -> PathBuf {
        self.dir.join(side.name())
    }

    /// The home of a side's commands, as an absolute path of the machine; the sandbox may show it at another.
    pub fn home(&self, side: Side) -> PathBuf {
        self.of(side).join("home")
    }

    /// The directory for temporary files of a side's commands, as an absolute path of the machine.
    pub fn tmp(&self, side: Side) -> PathBuf {
        self.of(side).join("tmp")
    }

    /// The upper directories of cache layers.
    pub fn layers(&self, side: Side) -> PathBuf {
        self.of(side).join("layers")
    }

    /// Copies the files that the author's commands have left so far to the home of the model's commands. Does so only
    /// once, before the first of these starts, so that no command writes there meanwhile.
    fn copy_to_model(&self, stop: &CancellationToken) -> Result<(), String> {
        let mut copied = lock(&self.copied);
        if *copied {
            return Ok(());
        }
        let mut copying = Copying::new(stop);
        let (author, model) = (Side::Author, Side::Model);
        copying
            .copy_dir(&self.home(author), &self.home(model))
            .and_then(|()| copying.copy_dir(&self.tmp(author), &self.tmp(model)))
            .map_err(|error| format!("{LIMIT}: the home of the model's commands cannot be made: {error}"))?;
        *copied = true;
        Ok(())
    }
}

/// The directories of a confinement, and the side to which they belong.
#[derive(Clone, Debug)]
pub struct OwnSide {
    pub sides: Arc<Sides>,
    pub side: Side,
    /// Whether a command of the author can read secret-like files that the run's own steps and checks created. Commands
    /// of other sides never can.
    pub sees_made: bool,
}

impl Confinement {
    /// The same confinement with the home and temporary directory of another side.
    #[must_use]
    pub fn of_side(&self, side: Side) -> Self {
        let mut other = self.clone();
        let Some(own) = &mut other.side else { return other };
        let (from, to) = (own.sides.of(own.side), own.sides.of(side));
        own.side = side;
        let moved = |path: &mut PathBuf| {
            if let Ok(rest) = path.strip_prefix(&from) {
                *path = to.join(rest);
            }
        };
        other.writable.iter_mut().for_each(moved);
        let placed = Arc::make_mut(&mut other.placed);
        placed.writable.iter_mut().for_each(|(real, _)| moved(real));
        moved(&mut placed.slots);
        if side == Side::Author {
            placed.below = None;
        }
        let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
        for (_, value) in &mut other.env {
            *value = value.replace(from.as_ref(), &to);
        }
        other
    }

    /// Makes the directories ready in which a command starts, until `stop` is cancelled.
    ///
    /// # Errors
    /// What could not be copied, a limit that was reached, or the cancellation; the command must not start.
    pub(super) fn open_side(&self, stop: &CancellationToken) -> Result<(), String> {
        match &self.side {
            Some(OwnSide {
                sides,
                side: Side::Model,
                ..
            }) => sides.copy_to_model(stop),
            _ => Ok(()),
        }
    }
}

fn make(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::private::Private;

    #[test]
    fn the_model_finds_what_the_author_left_and_leaves_nothing_for_the_author() {
        let private = Private::create(None).unwrap();
        let sides = Arc::clone(&private.sides);
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).unwrap();
        write(sides.home(Side::Author).join("first"), "author's");
        std::os::unix::fs::symlink("first", sides.home(Side::Author).join("link")).unwrap();
        write(sides.home(Side::Model).join("own"), "filled");
        // What a home begins with, and what a check made of it.
        let machine = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(machine.path(), sides.home(Side::Model).join("cache")).unwrap();
        std::fs::create_dir(sides.home(Side::Author).join("cache")).unwrap();
        write(sides.home(Side::Author).join("cache/planted"), "x");
        let mut confinement = Confinement::unconfined(Path::new("/"));
        confinement.writable = vec![sides.home(Side::Model)];
        confinement.env = vec![("HOME".to_owned(), sides.home(Side::Model).display().to_string())];
        confinement.side = Some(OwnSide {
            sides: Arc::clone(&sides),
            side: Side::Model,
            sees_made: true,
        });
        let author = confinement.of_side(Side::Author);
        let stop = CancellationToken::new();
        author.open_side(&stop).unwrap();
        assert!(
            !sides.home(Side::Model).join("first").exists(),
            "nothing is copied for the author"
        );
        confinement.open_side(&stop).unwrap();
        let names = |side| {
            let entries = std::fs::read_dir(sides.home(side)).unwrap().flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(Side::Model), ["cache", "first", "link", "own"]);
        assert_eq!(
            std::fs::read_dir(machine.path()).unwrap().count(),
            0,
            "nothing is written through a link"
        );
        write(sides.home(Side::Author).join("later"), "x");
        confinement.open_side(&stop).unwrap();
        assert_eq!(names(Side::Model).len(), 4, "once only");
        assert_eq!(names(Side::Author), ["cache", "first", "later", "link"]);
        assert_eq!(author.writable, [sides.home(Side::Author)]);
        assert_eq!(author.env[0].1, sides.home(Side::Author).display().to_string());
    }
}
