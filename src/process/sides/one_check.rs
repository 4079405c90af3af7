//! The home, temporary files and cache layers of one check. A check runs code that the model wrote, and what that leaves
//! there must decide no other check and no later step: the check works on a copy of the author's directories, which is
//! removed when it ends.
//!
//! ```text
//! author/home, tmp               the copy while the check runs, so that no path differs from that of a step
//! author/kept-N-home, kept-N-tmp the author's own meanwhile
//! author/check-N-layers          upper directories of cache layers, above the author's
//! author/check-N-home, …         what the check left, until it is removed
//! ```

use super::{Copying, LIMIT, Side, Sides, make};
use crate::process::Confinement;
use crate::process::private::remove;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio_util::sync::CancellationToken;

/// The directories that are copied. Layers are not: a check has its own above the author's.
const COPIED: [&str; 2] = ["home", "tmp"];

/// The directories of one check, from its beginning to its end. When it is dropped, the author has its own again.
#[derive(Debug)]
pub struct OneCheck {
    sides: Arc<Sides>,
    number: u32,
    ended: bool,
}

impl Confinement {
    /// The confinement of one check, with what the author's commands have left so far; `None` if there are no private
    /// directories. No other command of the author may run until the check has ended. Once `stop` is cancelled, at most
    /// 16 MiB more of one file are copied.
    ///
    /// # Errors
    /// What could not be copied, a limit that was reached, or the cancellation; the check must not start.
    pub async fn of_check(&self, stop: &CancellationToken) -> Result<(Self, Option<OneCheck>), String> {
        let mut own = self.of_side(Side::Author);
        let Some(side) = &own.side else {
            return Ok((own, None));
        };
        let sides = Arc::clone(&side.sides);
        let stop = stop.clone();
        let check = beside(move || OneCheck::begin(sides, &stop)).await??;
        check.put_layers_above(&mut own);
        Ok((own, Some(check)))
    }

    /// Like [`Confinement::of_check`], for a program of the policy that rewrites a call of the model. It may execute
    /// code that the model wrote, and its output goes to the model, so files that are hidden from the model stay
    /// hidden.
    ///
    /// # Errors
    /// As for [`Confinement::of_check`].
    pub async fn of_rewriting(&self, stop: &CancellationToken) -> Result<(Self, Option<OneCheck>), String> {
        let (mut own, check) = self.of_check(stop).await?;
        if let Some(side) = &mut own.side {
            side.sees_made = false;
        }
        Ok((own, check))
    }
}

impl OneCheck {
    fn begin(sides: Arc<Sides>, stop: &CancellationToken) -> Result<Self, String> {
        let number = sides.checks.fetch_add(1, Ordering::Relaxed);
        let check = Self {
            sides,
            number,
            ended: false,
        };
        // If this fails, dropping it restores the author's own directories.
        check
            .copy(stop)
            .map_err(|error| format!("{LIMIT}: the home of the check cannot be made: {error}"))?;
        Ok(check)
    }

    /// One of the author's directories.
    fn own(&self, name: &str) -> PathBuf {
        self.sides.of(Side::Author).join(name)
    }

    /// Where the author's own directory is meanwhile. It stays in the same directory, because its owner may have taken
    /// away the right to write it, which a move elsewhere needs.
    fn kept(&self, name: &str) -> PathBuf {
        self.own(&format!("kept-{}-{name}", self.number))
    }

    /// What belongs to the check alone.
    fn left(&self, name: &str) -> PathBuf {
        self.own(&format!("check-{}-{name}", self.number))
    }

    fn copy(&self, stop: &CancellationToken) -> io::Result<()> {
        let mut copying = Copying::new(stop);
        for name in COPIED {
            std::fs::rename(self.own(name), self.kept(name))?;
            make(&self.own(name))?;
            copying.copy_dir(&self.kept(name), &self.own(name))?;
        }
        Ok(())
    }

    /// Makes the check read the author's layers and write to its own layers. Kept layers belong to all commands.
    fn put_layers_above(&self, confinement: &mut Confinement) {
        let authors = self.sides.layers(Side::Author);
        if confinement.placed.slots != authors {
            return;
        }
        let placed = Arc::make_mut(&mut confinement.placed);
        placed.slots = self.left("layers");
        placed.below = Some(authors);
    }

    /// Restores the author's directories, and removes what the check has left there. No process of the check may be
    /// alive.
    ///
    /// # Errors
    /// The author's directories cannot be brought back: no further command of the author may start.
    pub async fn end(self) -> Result<(), String> {
        let mut check = self;
        let ended = beside(move || check.close()).await?;
        ended.map_err(|error| format!("the home of steps and checks cannot be brought back: {error}"))
    }

    fn close(&mut self) -> io::Result<()> {
        self.ended = true;
        for name in COPIED {
            // Where copying failed, it may not have been moved.
            if std::fs::symlink_metadata(self.kept(name)).is_err() {
                continue;
            }
            match std::fs::rename(self.own(name), self.left(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
            std::fs::rename(self.kept(name), self.own(name))?;
        }
        for name in super::EACH {
            // What cannot be removed now is removed at the end of the run, and no command sees it.
            let _ = remove(&self.left(name));
        }
        Ok(())
    }
}

impl Drop for OneCheck {
    fn drop(&mut self) {
        if !self.ended {
            // If this fails, the author has no home, and its next command cannot start.
            let _ = self.close();
        }
    }
}

/// Does work with files on another thread.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| format!("the directories of a check cannot be prepared: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::private::Private;
    use crate::process::sides::OwnSide;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_check_finds_what_the_author_left_and_leaves_nothing() {
        let private = Private::create(None).unwrap();
        let sides = Arc::clone(&private.sides);
        let home = sides.home(Side::Author);
        std::fs::write(home.join("first"), "author's").unwrap();
        std::os::unix::fs::symlink("first", home.join("link")).unwrap();
        // The author may have taken away its own right to write.
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o555)).unwrap();
        for dropped in [false, true] {
            let mut check = OneCheck::begin(Arc::clone(&sides), &CancellationToken::new()).unwrap();
            assert_eq!(names(&home), ["first", "link"]);
            std::fs::write(home.join("first"), "the model's").unwrap();
            std::fs::create_dir_all(home.join("closed/deep")).unwrap();
            std::fs::write(sides.tmp(Side::Author).join("planted"), "x").unwrap();
            std::fs::create_dir_all(check.left("layers").join("0/cargo")).unwrap();
            for closed in [home.join("closed"), home.clone()] {
                std::fs::set_permissions(closed, std::fs::Permissions::from_mode(0o500)).unwrap();
            }
            match dropped {
                true => drop(check),
                false => check.close().unwrap(),
            }
            assert_eq!(names(&home), ["first", "link"]);
            assert_eq!(std::fs::read_to_string(home.join("first")).unwrap(), "author's");
            assert_eq!(names(&sides.of(Side::Author)), ["home", "layers", "tmp"]);
            assert_eq!(names(&sides.tmp(Side::Author)), [""; 0]);
        }
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_check_that_cannot_have_its_copy_leaves_the_author_its_own() {
        let private = Private::create(None).unwrap();
        let sides = Arc::clone(&private.sides);
        std::fs::write(sides.home(Side::Author).join("first"), "author's").unwrap();
        std::fs::remove_dir(sides.tmp(Side::Author)).unwrap();
        let refused = OneCheck::begin(Arc::clone(&sides), &CancellationToken::new()).unwrap_err();
        assert!(refused.starts_with("limit:home: "), "{refused}");
        assert_eq!(names(&sides.home(Side::Author)), ["first"]);
    }

    #[test]
    fn a_check_that_the_end_of_the_run_stops_leaves_the_author_its_own() {
        let private = Private::create(None).unwrap();
        let sides = Arc::clone(&private.sides);
        std::fs::write(sides.home(Side::Author).join("first"), "author's").unwrap();
        let stop = CancellationToken::new();
        stop.cancel();
        OneCheck::begin(Arc::clone(&sides), &stop).unwrap_err();
        assert_eq!(names(&sides.home(Side::Author)), ["first"]);
        assert_eq!(names(&sides.of(Side::Author)), ["home", "layers", "tmp"]);
    }

    #[tokio::test]
    async fn a_check_adds_to_caches_above_what_the_author_added() {
        let private = Private::create(None).unwrap();
        let sides = Arc::clone(&private.sides);
        let stop = CancellationToken::new();
        let mut confinement = Confinement::unconfined(Path::new("/"));
        confinement.side = Some(OwnSide {
            sides: Arc::clone(&sides),
            side: Side::Model,
            sees_made: true,
        });
        let of_slots = |slots: PathBuf| {
            let mut confinement = confinement.clone();
            Arc::make_mut(&mut confinement.placed).slots = slots;
            confinement
        };
        let (own, check) = of_slots(sides.layers(Side::Model)).of_check(&stop).await.unwrap();
        let authors = sides.layers(Side::Author);
        assert_eq!(own.placed.below, Some(authors.clone()));
        assert!(own.placed.slots != authors && own.placed.slots.starts_with(sides.of(Side::Author)));
        check.unwrap().end().await.unwrap();
        // Caches that are kept for later runs are those of all commands.
        let (own, check) = of_slots(PathBuf::from("/kept")).of_check(&stop).await.unwrap();
        assert_eq!(
            (own.placed.slots.as_path(), &own.placed.below),
            (Path::new("/kept"), &None)
        );
        check.unwrap().end().await.unwrap();
    }
}
