//! What builds need outside the workspace: places to read, variables, links in the private home. Pure: looks at no file.
//!
//! What a command may write outlives the run, so nothing shared is writable. Caches of fetched packages are read-only and are
//! reached in the way that each tool has for that; what a tool adds lands in the private home and goes with the run.
//!
//! | name | read | how builds find it |
//! | --- | --- | --- |
//! | `rust` | toolchains of rustup, fetched crates | private `CARGO_HOME` whose `registry` and `git` are links; offline without network |
//! | `node` | version managers | `PATH`; the package cache is private |
//! | `python` | pyenv, uv, the user's packages | `PYTHONUSERBASE`; the pip cache is private |
//! | `go` | fetched modules | as a file proxy; module and build caches are private |
//! | `java` | sdkman, fetched artefacts | Maven's repository tail, Gradle's read-only cache |
//!
//! With network hosts granted, cargo gets an empty registry of its own instead of links, since it must be able to add to it.

use std::path::{Path, PathBuf};

/// The names that a policy may use.
pub const NAMES: [&str; 5] = ["rust", "node", "python", "go", "java"];

/// What one or more toolchains add to a confinement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Places that may be read and executed. One that is not there grants nothing.
    pub readable: Vec<PathBuf>,
    /// Directories of programs, before those of the system.
    pub path: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Links in the private home: its name there, and where it leads.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// Where the user's own things lie, and the private home that children get.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// The user's home; children never see it.
    pub home: &'a Path,
    pub private_home: &'a Path,
    /// The environment of this program.
    pub parent: &'a [(String, String)],
    /// Whether any host is granted.
    pub network: bool,
}

impl Ground<'_> {
    fn var(&self, name: &str) -> Option<&str> {
        let found = self.parent.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The place that a variable names, or its default in the home.
    fn place(&self, name: &str, default: &str) -> PathBuf {
        self.var(name).map_or_else(|| self.home.join(default), PathBuf::from)
    }

    fn private(&self, name: &str) -> String {
        self.private_home.join(name).display().to_string()
    }

    /// The parent's own program directories below any of `roots`.
    fn programs_below(&self, roots: &[PathBuf]) -> Vec<String> {
        let dirs = self.var("PATH").unwrap_or_default().split(':');
        let below = dirs.filter(|dir| roots.iter().any(|root| Path::new(dir).starts_with(root)));
        below.map(str::to_owned).collect()
    }
}

/// What the named toolchains need. `Err` is a name that is not one of `NAMES`.
pub fn grant(names: &[String], ground: &Ground<'_>) -> Result<Grant, String> {
    let mut all = Grant::default();
    for name in names {
        let one = match name.as_str() {
            "rust" => rust(ground),
            "node" => node(ground),
            "python" => python(ground),
            "go" => go(ground),
            "java" => java(ground),
            other => return Err(other.to_owned()),
        };
        all.readable.extend(one.readable);
        all.path.extend(one.path);
        all.env.extend(one.env);
        all.links.extend(one.links);
    }
    Ok(all)
}

fn pair(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn rust(ground: &Ground<'_>) -> Grant {
    let cargo = ground.place("CARGO_HOME", ".cargo");
    let rustup = ground.place("RUSTUP_HOME", ".rustup");
    let private = ground.private_home.join(".cargo");
    let mut env = vec![
        pair("CARGO_HOME", shown(&private)),
        pair("RUSTUP_HOME", shown(&rustup)),
        pair("CARGO_TERM_COLOR", "never"),
    ];
    env.extend(
        ground
            .var("RUSTUP_TOOLCHAIN")
            .map(|name| pair("RUSTUP_TOOLCHAIN", name)),
    );
    let mut links = Vec::new();
    if !ground.network {
        env.push(pair("CARGO_NET_OFFLINE", "true"));
        for name in ["registry", "git"] {
            links.push((PathBuf::from(".cargo").join(name), cargo.join(name)));
        }
    }
    Grant {
        readable: vec![cargo.join("bin"), cargo.join("registry"), cargo.join("git"), rustup],
        path: vec![shown(&cargo.join("bin"))],
        env,
        links,
    }
}

fn node(ground: &Ground<'_>) -> Grant {
    let roots = vec![
        ground.place("NVM_DIR", ".nvm"),
        ground.place("VOLTA_HOME", ".volta"),
        ground.place("FNM_DIR", ".local/share/fnm"),
        ground.place("N_PREFIX", "n"),
        ground.place("PNPM_HOME", ".local/share/pnpm"),
        ground.place("BUN_INSTALL", ".bun"),
        ground.home.join(".asdf"),
        ground.home.join(".local/share/mise"),
    ];
    let mut env = vec![
        pair("npm_config_update_notifier", "false"),
        pair("npm_config_fund", "false"),
        pair("npm_config_audit", "false"),
        pair("npm_config_cache", ground.private(".npm")),
    ];
    env.extend(ground.var("VOLTA_HOME").map(|home| pair("VOLTA_HOME", home)));
    Grant {
        path: ground.programs_below(&roots),
        readable: roots,
        env,
        links: Vec::new(),
    }
}

fn python(ground: &Ground<'_>) -> Grant {
    let pyenv = ground.place("PYENV_ROOT", ".pyenv");
    let user = ground.place("PYTHONUSERBASE", ".local");
    let roots = vec![
        pyenv.clone(),
        ground.home.join(".local/share/uv"),
        ground.home.join("miniconda3"),
        ground.home.join(".local/share/mise"),
    ];
    let mut path = ground.programs_below(&roots);
    path.push(shown(&user.join("bin")));
    let mut readable = roots;
    readable.extend([user.join("bin"), user.join("lib")]);
    Grant {
        readable,
        path,
        env: vec![
            pair("PYENV_ROOT", shown(&pyenv)),
            pair("PYTHONUSERBASE", shown(&user)),
            pair("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
            pair("PIP_NO_INPUT", "1"),
        ],
        links: Vec::new(),
    }
}

fn go(ground: &Ground<'_>) -> Grant {
    let gopath = ground.place("GOPATH", "go");
    let modules = ground
        .var("GOMODCACHE")
        .map_or_else(|| gopath.join("pkg/mod"), PathBuf::from);
    let fetched = modules.join("cache/download");
    let root = ground.place("GOROOT", ".local/go");
    let rest = if ground.network {
        ",https://proxy.golang.org"
    } else {
        ",off"
    };
    let mut env = vec![
        pair("GOPATH", ground.private("go")),
        pair("GOMODCACHE", ground.private("go/pkg/mod")),
        pair("GOCACHE", ground.private(".cache/go-build")),
        pair("GOPROXY", format!("file://{}{rest}", fetched.display())),
        pair("GOFLAGS", "-modcacherw"),
        pair("GOTOOLCHAIN", "local"),
    ];
    if !ground.network {
        env.push(pair("GOSUMDB", "off"));
    }
    Grant {
        path: vec![
            shown(&root.join("bin")),
            "/usr/local/go/bin".to_owned(),
            shown(&gopath.join("bin")),
        ],
        readable: vec![fetched, gopath.join("bin"), root],
        env,
        links: Vec::new(),
    }
}

fn java(ground: &Ground<'_>) -> Grant {
    let maven = ground.home.join(".m2/repository");
    let gradle = ground.place("GRADLE_USER_HOME", ".gradle");
    let sdkman = ground.place("SDKMAN_DIR", ".sdkman");
    let user_home = format!("-Duser.home={}", ground.private_home.display());
    let offline = if ground.network { "" } else { " -o" };
    let mut readable = vec![
        maven.clone(),
        gradle.join("caches"),
        gradle.join("wrapper"),
        sdkman.clone(),
    ];
    let mut env = vec![
        pair("MAVEN_OPTS", user_home.clone()),
        pair(
            "MAVEN_ARGS",
            format!("-B{offline} -Dmaven.repo.local.tail={}", maven.display()),
        ),
        pair("GRADLE_OPTS", format!("{user_home} -Dorg.gradle.daemon=false")),
        pair("GRADLE_USER_HOME", ground.private(".gradle")),
        pair("GRADLE_RO_DEP_CACHE", shown(&gradle.join("caches"))),
    ];
    let mut path = ground.programs_below(&[sdkman]);
    if let Some(home) = ground.var("JAVA_HOME") {
        readable.push(PathBuf::from(home));
        path.push(format!("{home}/bin"));
        env.push(pair("JAVA_HOME", home));
    }
    Grant {
        readable,
        path,
        env,
        links: vec![(PathBuf::from(".gradle/wrapper"), gradle.join("wrapper"))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(names: &[&str], parent: &[(&str, &str)], network: bool) -> Result<Grant, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let parent: Vec<(String, String)> = parent.iter().map(|(name, value)| pair(name, *value)).collect();
        let ground = Ground {
            home: Path::new("/home/u"),
            private_home: Path::new("/p"),
            parent: &parent,
            network,
        };
        grant(&names, &ground)
    }

    #[test]
    fn every_name_is_known_and_others_are_not() {
        for name in NAMES {
            assert!(!granted(&[name], &[], false).unwrap().readable.is_empty(), "{name}");
        }
        assert_eq!(granted(&["rust", "cobol"], &[], false), Err("cobol".to_owned()));
    }

    #[test]
    fn shared_crates_are_linked_without_network_and_left_alone_with_it() {
        let offline = granted(&["rust"], &[("CARGO_HOME", "/c")], false).unwrap();
        assert_eq!(
            offline.links[0],
            (PathBuf::from(".cargo/registry"), PathBuf::from("/c/registry"))
        );
        assert!(offline.env.contains(&pair("CARGO_HOME", "/p/.cargo")));
        assert!(offline.env.contains(&pair("CARGO_NET_OFFLINE", "true")));
        assert!(granted(&["rust"], &[], true).unwrap().links.is_empty());
    }

    #[test]
    fn programs_of_a_version_manager_come_from_the_parents_path() {
        let path = [("PATH", "/usr/bin:/home/u/.nvm/versions/node/v22/bin:/home/u/bin")];
        assert_eq!(
            granted(&["node"], &path, false).unwrap().path,
            ["/home/u/.nvm/versions/node/v22/bin"]
        );
    }

    #[test]
    fn the_home_itself_is_never_granted() {
        let all: Vec<&str> = NAMES.to_vec();
        let grant = granted(&all, &[], false).unwrap();
        assert!(grant.readable.iter().all(|path| path != Path::new("/home/u")));
    }
}
