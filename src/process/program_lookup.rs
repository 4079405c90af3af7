//! Finds out whether commands find a program in the directories of their `PATH`.

use super::confine::SYSTEM;
use super::{Confinement, SandboxLevel, own_path};
use std::path::{Path, PathBuf};

impl Confinement {
    /// Whether commands find a program of this name, which has no slash, in their `PATH`. For a directory that only
    /// commands see, such as a layer, the corresponding directory of the machine is searched.
    pub fn finds_program(&self, name: &str) -> bool {
        let path = self.env.iter().rfind(|(variable, _)| variable == "PATH");
        let dirs = path.into_iter().flat_map(|(_, dirs)| dirs.split(':')).map(Path::new);
        dirs.filter(|dir| dir.is_absolute())
            .flat_map(|dir| self.real_places(dir))
            .map(|dir| dir.join(name))
            .any(|file| own_path::is_program(&file) && self.shows(&file))
    }

    /// Where on the machine the files are that commands see in this directory.
    fn real_places(&self, dir: &Path) -> Vec<PathBuf> {
        let placed = &self.placed;
        let layers = placed.layers.iter().map(|layer| (&layer.below, &layer.place));
        let all = placed.read_only.iter().chain(&placed.writable);
        let all = all.map(|(real, seen)| (real, seen)).chain(layers);
        let found = all.filter_map(|(real, seen)| Some(real.join(dir.strip_prefix(seen).ok()?)));
        found.chain([dir.to_path_buf()]).collect()
    }

    /// Whether commands can read this file of the machine, wherever links lead.
    fn shows(&self, file: &Path) -> bool {
        if self.level == SandboxLevel::None {
            return true;
        }
        let Ok(real) = file.canonicalize() else { return false };
        let placed = &self.placed;
        let system = SYSTEM.iter().map(Path::new);
        let granted = self.readable.iter().chain(&self.writable).chain([&self.workspace]);
        let moved = placed.read_only.iter().chain(&placed.writable).map(|(real, _)| real);
        let layers = placed.layers.iter().map(|layer| &layer.below);
        let mut dirs = system.chain(granted.chain(moved).chain(layers).map(PathBuf::as_path));
        dirs.any(|dir| real.starts_with(dir) || dir.canonicalize().is_ok_and(|dir| real.starts_with(dir)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    #[test]
    fn a_program_counts_only_where_commands_see_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for program in [
            "ws/bin/own",
            "tools/bin/granted",
            "home/bin/hidden",
            "cache/bin/layered",
        ] {
            let file = at(program);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::write(at("tools/bin/data"), "").unwrap();
        std::os::unix::fs::symlink(at("home/bin/hidden"), at("tools/bin/linked")).unwrap();
        let mut confinement = Confinement::unconfined(&at("ws"));
        let path = ["ws/bin", "tools/bin", "home/bin", "seen/bin"].map(|dir| at(dir).display().to_string());
        confinement.env = vec![("PATH".to_owned(), path.join(":"))];
        assert!(confinement.finds_program("hidden"));
        confinement.level = SandboxLevel::Full;
        confinement.readable = vec![at("tools")];
        Arc::make_mut(&mut confinement.placed).read_only = vec![(at("cache"), at("seen"))];
        for (program, expected) in [
            ("own", true),
            ("granted", true),
            ("layered", true),
            ("hidden", false),
            ("linked", false),
            ("data", false),
            ("nothing", false),
        ] {
            assert_eq!(confinement.finds_program(program), expected, "{program}");
        }
    }
}
