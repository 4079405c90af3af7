//! What builds need outside the workspace: readable places, environment variables, caches.
//!
//! At level `full` a tool sees its cache at the real path, so that nothing is rebuilt just because a path differs: the
//! machine's own cache as the lower layer of an overlay, and above it a layer with what a command adds. The upper layer
//! is deleted after the run unless the policy keeps it for the repository. At the other levels there are no overlays,
//! and shared caches are not writable:
//!
//! | name | read | cache at `full` | cache at `landlock` and `none` |
//! | --- | --- | --- | --- |
//! | `rust` | toolchains of rustup, settings of cargo | `registry` and `git` of `CARGO_HOME` | the same, read-only |
//! | `node` | version managers | npm, yarn, pnpm, node-gyp | private |
//! | `python` | pyenv, uv, the user's packages, the base of a virtual environment | pip, uv, poetry | private |
//! | `go` | toolchain, programs | modules and builds | modules as a file proxy, builds private |
//! | `java` | sdkman | Maven's repository, Gradle's home | Maven's repository tail, Gradle's read-only cache |
//!
//! Of a version manager only the directories of programs and libraries are granted. Settings that lie among them can hold
//! passwords too (`etc/npmrc` of a version of node): [`super::granted_parts`] keeps these out of what is granted.
//!
//! Cargo settings that name a token or a password are not shown to commands: at `full` the file is missing, elsewhere
//! commands get a private `CARGO_HOME`. Level `none` uses a private one too, because commands could write and fetch
//! anything there.

use super::placed::Layer;
use std::path::{Path, PathBuf};

/// What one or more toolchains add to a confinement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolchainGrant {
    /// Places that may be read and executed. A place that does not exist grants nothing.
    pub readable: Vec<PathBuf>,
    /// Directories of programs, searched before those of the system.
    pub path: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Links in the private home: name and target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Caches at their real paths; only where overlays are available.
    pub layers: Vec<Layer>,
}

/// Where the user's files are, and the private home of the children.
#[derive(Clone, Copy, Debug)]
pub struct HomePaths<'a> {
    /// The user's home; not visible to children.
    pub home: &'a Path,
    /// The path that children see.
    pub private_home: &'a Path,
    /// The environment of this program.
    pub parent: &'a [(String, String)],
    /// Whether any host is granted.
    pub network: bool,
    /// Whether overlays are available.
    pub layered: bool,
    /// Canonical.
    pub workspace: &'a Path,
    /// The directories of the workspace that may be virtual environments, at their real paths.
    pub environments: &'a [PathBuf],
}

impl HomePaths<'_> {
    pub(super) fn var(&self, name: &str) -> Option<&str> {
        let found = self.parent.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The path that a variable names, or its default in the home.
    fn place(&self, name: &str, default: &str) -> PathBuf {
        self.var(name).map_or_else(|| self.home.join(default), PathBuf::from)
    }

    fn private(&self, name: &str) -> String {
        self.private_home.join(name).display().to_string()
    }

    /// Entries of the parent's `PATH` below any of `roots`.
    fn programs_below(&self, roots: &[PathBuf]) -> Vec<String> {
        let dirs = self.var("PATH").unwrap_or_default().split(':');
        let below = dirs.filter(|dir| roots.iter().any(|root| Path::new(dir).starts_with(root)));
        below.map(str::to_owned).collect()
    }

    /// A cache with a writable layer above it. `None` for a cache in or around the workspace, which has its own rules,
    /// and for a missing cache outside the private home.
    fn layer(&self, name: &str, place: PathBuf, alone: bool) -> Option<Layer> {
        let apart = !place.starts_with(self.workspace) && !self.workspace.starts_with(&place);
        let possible = place.is_dir() || place.starts_with(self.private_home);
        (self.layered && place.is_absolute() && apart && possible).then(|| Layer {
            name: name.to_owned(),
            below: place.clone(),
            place,
            alone,
            of_tree: false,
        })
    }
}

/// What the named toolchains need.
///
/// # Errors
/// The first name that is not one of `base::toolchain::NAMES`.
pub fn grant(names: &[String], homes: &HomePaths<'_>) -> Result<ToolchainGrant, String> {
    let mut all = ToolchainGrant::default();
    for name in names {
        let one = match name.as_str() {
            "rust" => rust(homes),
            "node" => node(homes),
            "python" => python(homes),
            "go" => go(homes),
            "java" => java(homes),
            other => return Err(other.to_owned()),
        };
        all.readable.extend(one.readable);
        all.path.extend(one.path);
        all.env.extend(one.env);
        all.links.extend(one.links);
        all.layers.extend(one.layers);
    }
    Ok(all)
}

/// The toolchain that provides a program, for advice.
pub fn bringing(program: &str) -> Option<&'static str> {
    match program {
        "cargo" | "rustc" | "rustup" | "rustfmt" | "rustdoc" | "cargo-clippy" | "cargo-fmt" => Some("rust"),
        "node" | "npm" | "npx" | "yarn" | "pnpm" | "corepack" | "bun" | "bunx" => Some("node"),
        "python" | "python3" | "pip" | "pip3" | "uv" | "uvx" | "poetry" | "pytest" | "tox" | "ruff" | "mypy" => {
            Some("python")
        }
        "go" | "gofmt" => Some("go"),
        "java" | "javac" | "mvn" | "gradle" => Some("java"),
        _ => None,
    }
}

/// Variables that make package managers work offline, so that a missing package is reported at once instead of after
/// retries of a name that cannot be resolved. For commands without network, whichever toolchains are named; toolchains
/// may override them.
pub fn offline() -> Vec<(String, String)> {
    [
        ("CARGO_NET_OFFLINE", "true"),
        ("npm_config_offline", "true"),
        ("YARN_ENABLE_NETWORK", "0"),
        ("COREPACK_ENABLE_NETWORK", "0"),
        ("PIP_NO_INDEX", "1"),
        ("UV_OFFLINE", "1"),
        ("GOPROXY", "off"),
        ("GOSUMDB", "off"),
        ("GOTOOLCHAIN", "local"),
        ("MAVEN_ARGS", "-B -o"),
    ]
    .map(|(name, value)| pair(name, value))
    .to_vec()
}

/// Gradle has no variable for offline mode; it reads this file from `init.d` in its home.
pub const GRADLE_OFFLINE: (&str, &str) = (
    ".gradle/init.d/overnight-offline.gradle",
    "gradle.startParameter.offline = true\n",
);

fn pair(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// The subdirectories `names` of a version manager's directory.
fn parts(root: &Path, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| root.join(name)).collect()
}

/// The program directories of asdf and mise. Their plugins are programs too, which the shims start.
fn managed(homes: &HomePaths<'_>) -> Vec<PathBuf> {
    let names = ["bin", "installs", "lib", "libexec", "plugins", "shims", "asdf.sh"];
    let roots = [homes.home.join(".asdf"), homes.home.join(".local/share/mise")];
    roots.iter().flat_map(|root| parts(root, &names)).collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn rust(homes: &HomePaths<'_>) -> ToolchainGrant {
    let cargo = homes.place("CARGO_HOME", ".cargo");
    let rustup = homes.place("RUSTUP_HOME", ".rustup");
    let settings: Vec<PathBuf> = ["config.toml", "config"].map(|name| cargo.join(name)).to_vec();
    let there = settings
        .into_iter()
        .filter(|path| std::fs::symlink_metadata(path).is_ok());
    let (open, secret): (Vec<PathBuf>, Vec<PathBuf>) = there.partition(|path| names_no_secret(path));
    // If files cannot be hidden, cargo would fail on a file that it may not read; if it has network, it would write the
    // user's own files.
    let private = !homes.layered && (homes.network || !secret.is_empty());
    let home = match private {
        true => homes.private_home.join(".cargo"),
        false => cargo.clone(),
    };
    let mut env = vec![
        pair("CARGO_HOME", shown(&home)),
        pair("RUSTUP_HOME", shown(&rustup)),
        pair("CARGO_TERM_COLOR", "never"),
        // A compiler wrapper in the user's settings is a program that commands cannot see; cargo's fingerprints do not
        // include its name.
        pair("RUSTC_WRAPPER", ""),
    ];
    env.extend(homes.var("RUSTUP_TOOLCHAIN").map(|name| pair("RUSTUP_TOOLCHAIN", name)));
    let caches = ["registry", "git"];
    let mut readable = vec![cargo.join("bin"), rustup];
    readable.extend(open);
    if !homes.layered {
        readable.extend(caches.map(|name| cargo.join(name)));
        readable.push(cargo.join(".package-cache"));
    }
    let links = caches.map(|name| (PathBuf::from(".cargo").join(name), cargo.join(name)));
    ToolchainGrant {
        readable,
        path: vec![shown(&cargo.join("bin"))],
        env,
        links: if private && !homes.network {
            links.to_vec()
        } else {
            Vec::new()
        },
        layers: caches
            .iter()
            .filter_map(|name| homes.layer(&format!("cargo-{name}"), cargo.join(name), false))
            .collect(),
    }
}

/// Whether a settings file can be shown to commands: nothing in it looks like a secret.
fn names_no_secret(path: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(path) else {
        return false;
    };
    let text = text.to_ascii_lowercase();
    let words = [
        "token",
        "password",
        "passwd",
        "secret",
        "credential",
        "authorization",
        "@",
    ];
    !words.iter().any(|word| text.contains(word))
}

fn node(homes: &HomePaths<'_>) -> ToolchainGrant {
    let managers: [(PathBuf, &[&str]); 5] = [
        (
            homes.place("NVM_DIR", ".nvm"),
            &["versions", "alias", "nvm.sh", "nvm-exec"],
        ),
        (
            homes.place("VOLTA_HOME", ".volta"),
            &["bin", "tools", "layout.v3", "layout.v4"],
        ),
        (
            homes.place("FNM_DIR", ".local/share/fnm"),
            &["node-versions", "aliases"],
        ),
        (
            homes.place("N_PREFIX", "n"),
            &["bin", "include", "lib", "libexec", "n", "share"],
        ),
        (homes.place("BUN_INSTALL", ".bun"), &["bin", "install"]),
    ];
    let mut roots: Vec<PathBuf> = managers.iter().flat_map(|(root, names)| parts(root, names)).collect();
    roots.push(homes.place("PNPM_HOME", ".local/share/pnpm"));
    roots.extend(managed(homes));
    let npm = homes.place("npm_config_cache", ".npm");
    let layers: Vec<Layer> = [
        ("npm", npm.clone()),
        ("yarn", homes.home.join(".cache/yarn")),
        ("yarn-berry", homes.home.join(".yarn/berry")),
        ("pnpm", homes.home.join(".local/share/pnpm/store")),
        ("node-gyp", homes.home.join(".cache/node-gyp")),
    ]
    .into_iter()
    .filter_map(|(name, place)| homes.layer(name, place, true))
    .collect();
    let npm = match layers.iter().any(|layer| layer.place == npm) {
        true => shown(&npm),
        false => homes.private(".npm"),
    };
    let mut env = vec![
        pair("npm_config_update_notifier", "false"),
        pair("npm_config_fund", "false"),
        pair("npm_config_audit", "false"),
        pair("npm_config_cache", npm),
    ];
    env.extend(homes.var("VOLTA_HOME").map(|home| pair("VOLTA_HOME", home)));
    ToolchainGrant {
        path: homes.programs_below(&roots),
        readable: roots,
        env,
        layers,
        ..ToolchainGrant::default()
    }
}

fn python(homes: &HomePaths<'_>) -> ToolchainGrant {
    let pyenv = homes.place("PYENV_ROOT", ".pyenv");
    let user = homes.place("PYTHONUSERBASE", ".local");
    let names = [
        "bin",
        "completions",
        "libexec",
        "plugins",
        "pyenv.d",
        "shims",
        "version",
        "versions",
    ];
    let mut roots = parts(&pyenv, &names);
    // In the same directory, `uv auth login` keeps passwords in clear text.
    roots.extend(parts(&homes.home.join(".local/share/uv"), &["python", "tools"]));
    roots.push(homes.home.join("miniconda3"));
    roots.extend(managed(homes));
    let mut path = homes.programs_below(&roots);
    path.push(shown(&user.join("bin")));
    let mut readable = roots;
    readable.extend([user.join("bin"), user.join("lib")]);
    readable.extend(super::venv::bases(homes.environments));
    let layers: Vec<Layer> = [
        ("pip", homes.place("PIP_CACHE_DIR", ".cache/pip")),
        ("uv", homes.place("UV_CACHE_DIR", ".cache/uv")),
        ("poetry", homes.place("POETRY_CACHE_DIR", ".cache/pypoetry")),
    ]
    .into_iter()
    .filter_map(|(name, place)| homes.layer(name, place, true))
    .collect();
    let mut env = vec![
        pair("PYENV_ROOT", shown(&pyenv)),
        pair("PYTHONUSERBASE", shown(&user)),
        pair("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        pair("PIP_NO_INPUT", "1"),
    ];
    for (name, variable) in [
        ("pip", "PIP_CACHE_DIR"),
        ("uv", "UV_CACHE_DIR"),
        ("poetry", "POETRY_CACHE_DIR"),
    ] {
        let layer = layers.iter().find(|layer| layer.name == name);
        env.extend(layer.map(|layer| pair(variable, shown(&layer.place))));
    }
    ToolchainGrant {
        readable,
        path,
        env,
        layers,
        ..ToolchainGrant::default()
    }
}

fn go(homes: &HomePaths<'_>) -> ToolchainGrant {
    let gopath = homes.place("GOPATH", "go");
    let modules = homes
        .var("GOMODCACHE")
        .map_or_else(|| gopath.join("pkg/mod"), PathBuf::from);
    let root = homes.place("GOROOT", ".local/go");
    let path = vec![
        shown(&root.join("bin")),
        "/usr/local/go/bin".to_owned(),
        shown(&gopath.join("bin")),
    ];
    let mut readable = vec![gopath.join("bin"), root];
    let builds = homes.place("GOCACHE", ".cache/go-build");
    let layers: Vec<Layer> = [("go-modules", modules.clone()), ("go-builds", builds.clone())]
        .into_iter()
        .filter_map(|(name, place)| homes.layer(name, place, true))
        .collect();
    let mut env = match layers.len() {
        2 => {
            let proxy = homes.var("GOPROXY").unwrap_or("https://proxy.golang.org");
            vec![
                pair("GOPATH", shown(&gopath)),
                pair("GOMODCACHE", shown(&modules)),
                pair("GOCACHE", shown(&builds)),
                pair("GOPROXY", if homes.network { proxy } else { "off" }),
            ]
        }
        _ => {
            let fetched = modules.join("cache/download");
            let rest = match homes.network {
                true => ",https://proxy.golang.org",
                false => ",off",
            };
            let proxy = format!("file://{}{rest}", fetched.display());
            readable.push(fetched);
            vec![
                pair("GOPATH", homes.private("go")),
                pair("GOMODCACHE", homes.private("go/pkg/mod")),
                pair("GOCACHE", homes.private(".cache/go-build")),
                pair("GOPROXY", proxy),
            ]
        }
    };
    // Files in a read-only directory could not be removed after the run.
    env.extend([pair("GOFLAGS", "-modcacherw"), pair("GOTOOLCHAIN", "local")]);
    if !homes.network {
        env.push(pair("GOSUMDB", "off"));
    }
    ToolchainGrant {
        readable,
        path,
        env,
        layers: if layers.len() == 2 { layers } else { Vec::new() },
        ..ToolchainGrant::default()
    }
}

fn java(homes: &HomePaths<'_>) -> ToolchainGrant {
    let maven = homes.home.join(".m2/repository");
    let gradle = homes.place("GRADLE_USER_HOME", ".gradle");
    let sdkman = homes.place("SDKMAN_DIR", ".sdkman");
    let user_home = format!("-Duser.home={}", homes.private_home.display());
    let offline = if homes.network { "" } else { " -o" };
    let layers: Vec<Layer> = [
        ("maven", maven.clone()),
        ("gradle-caches", gradle.join("caches")),
        ("gradle-wrapper", gradle.join("wrapper")),
    ]
    .into_iter()
    .filter_map(|(name, place)| homes.layer(name, place, true))
    .collect();
    let mut readable = vec![sdkman.clone()];
    let mut env = vec![
        pair("MAVEN_OPTS", user_home.clone()),
        pair("GRADLE_OPTS", format!("{user_home} -Dorg.gradle.daemon=false")),
    ];
    let mut links = Vec::new();
    if layers.len() == 3 {
        env.push(pair(
            "MAVEN_ARGS",
            format!("-B{offline} -Dmaven.repo.local={}", maven.display()),
        ));
        env.push(pair("GRADLE_USER_HOME", shown(&gradle)));
    } else {
        readable.extend([maven.clone(), gradle.join("caches"), gradle.join("wrapper")]);
        env.push(pair(
            "MAVEN_ARGS",
            format!("-B{offline} -Dmaven.repo.local.tail={}", maven.display()),
        ));
        env.push(pair("GRADLE_USER_HOME", homes.private(".gradle")));
        env.push(pair("GRADLE_RO_DEP_CACHE", shown(&gradle.join("caches"))));
        links.push((PathBuf::from(".gradle/wrapper"), gradle.join("wrapper")));
    }
    let mut path = homes.programs_below(&[sdkman]);
    if let Some(home) = homes.var("JAVA_HOME") {
        readable.push(PathBuf::from(home));
        path.push(format!("{home}/bin"));
        env.push(pair("JAVA_HOME", home));
    }
    ToolchainGrant {
        readable,
        path,
        env,
        links,
        layers: if layers.len() == 3 { layers } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::toolchain::NAMES;

    fn granted(
        names: &[&str],
        parent: &[(&str, &str)],
        (home, layered): (&str, bool),
    ) -> Result<ToolchainGrant, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let parent: Vec<(String, String)> = parent.iter().map(|(name, value)| pair(name, *value)).collect();
        let homes = HomePaths {
            home: Path::new(home),
            private_home: Path::new(if layered { home } else { "/p" }),
            parent: &parent,
            network: false,
            layered,
            workspace: Path::new("/nonexistent/ws"),
            environments: &[],
        };
        grant(&names, &homes)
    }

    const AT_HOME: (&str, bool) = ("/home/u", true);
    const ELSEWHERE: (&str, bool) = ("/home/u", false);

    #[test]
    fn every_name_is_known_and_others_are_not() {
        for name in NAMES {
            for at in [AT_HOME, ELSEWHERE] {
                assert!(!granted(&[name], &[], at).unwrap().readable.is_empty(), "{name}");
            }
        }
        assert_eq!(granted(&["rust", "cobol"], &[], AT_HOME), Err("cobol".to_owned()));
    }

    #[test]
    fn cargo_finds_its_home_at_its_real_path_at_every_level() {
        for at in [AT_HOME, ELSEWHERE] {
            let rust = granted(&["rust"], &[], at).unwrap();
            assert!(rust.env.contains(&pair("CARGO_HOME", "/home/u/.cargo")));
            assert!(rust.links.is_empty());
            assert_eq!(rust.layers.len(), if at.1 { 2 } else { 0 });
            assert_eq!(rust.readable.contains(&PathBuf::from("/home/u/.cargo/registry")), !at.1);
        }
    }

    #[test]
    fn settings_of_cargo_with_a_secret_are_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        std::fs::create_dir(dir.path().join(".cargo")).unwrap();
        let config = dir.path().join(".cargo/config.toml");
        for (text, open) in [
            ("[build]\nrustflags = [\"-Ctarget-cpu=native\"]\n", true),
            ("[registries.own]\ntoken = \"abc\"\n", false),
            ("[http]\nproxy = \"user:pw@host:1\"\n", false),
        ] {
            std::fs::write(&config, text).unwrap();
            let full = granted(&["rust"], &[], (home, true)).unwrap();
            assert_eq!(full.readable.contains(&config), open, "{text}");
            let landlock = granted(&["rust"], &[], (home, false)).unwrap();
            assert_eq!(landlock.readable.contains(&config), open, "{text}");
            // Cargo must not find a file that it may not read.
            assert_eq!(landlock.env.contains(&pair("CARGO_HOME", "/p/.cargo")), !open, "{text}");
            assert_eq!(landlock.links.is_empty(), open, "{text}");
        }
    }

    #[test]
    fn caches_in_or_around_the_workspace_are_not_layered() {
        for place in ["/nonexistent/ws/.cargo", "/nonexistent"] {
            let granted = granted(&["rust"], &[("CARGO_HOME", place)], ("/nonexistent", true)).unwrap();
            let around: Vec<_> = granted
                .layers
                .iter()
                .filter(|layer| layer.place.starts_with("/nonexistent/ws"))
                .collect();
            assert!(around.is_empty(), "{place}: {around:?}");
        }
    }

    #[test]
    fn a_cache_that_is_not_there_is_made_in_the_private_home_only() {
        let granted = granted(&["rust"], &[("CARGO_HOME", "/usr/lib/no-cargo")], AT_HOME).unwrap();
        assert!(granted.layers.is_empty());
    }

    #[test]
    fn programs_of_a_version_manager_come_from_the_parents_path() {
        let path = [("PATH", "/usr/bin:/home/u/.nvm/versions/node/v22/bin:/home/u/bin")];
        assert_eq!(
            granted(&["node"], &path, AT_HOME).unwrap().path,
            ["/home/u/.nvm/versions/node/v22/bin"]
        );
    }

    #[test]
    fn of_version_managers_only_programs_and_libraries_are_granted() {
        let settings = [
            ".local/share/uv/credentials/credentials.toml",
            ".nvm/.npmrc",
            ".volta/hooks.json",
            "n/etc/npmrc",
            ".pyenv/.git/config",
            ".asdf/.git/config",
        ];
        let programs = [
            ".local/share/uv/python/cpython-3.13/bin/python3",
            ".nvm/versions/node/v22/bin/node",
            ".volta/tools/image/node/22.0.0/bin/node",
            "n/bin/node",
            ".pyenv/shims/python3",
            ".local/share/mise/shims/node",
        ];
        for at in [AT_HOME, ELSEWHERE] {
            let granted = granted(&["node", "python"], &[], at).unwrap().readable;
            let is_granted = |path: &str| {
                granted
                    .iter()
                    .any(|root| Path::new("/home/u").join(path).starts_with(root))
            };
            for path in settings {
                assert!(!is_granted(path), "{path}");
            }
            for path in programs {
                assert!(is_granted(path), "{path}");
            }
        }
    }

    #[test]
    fn the_home_itself_is_never_granted() {
        let all: Vec<&str> = NAMES.to_vec();
        for at in [AT_HOME, ELSEWHERE] {
            let grant = granted(&all, &[], at).unwrap();
            assert!(grant.readable.iter().all(|path| path != Path::new("/home/u")));
            assert!(grant.layers.iter().all(|layer| layer.place != Path::new("/home/u")));
        }
    }
}
