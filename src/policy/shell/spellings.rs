//! Other spellings of the words of deny rules, by program: names of programs, subcommands and options that mean the same.

/// Programs, and the short letter and long name of their options. Letters with one long name are equal to each other, and
/// so are the long names of one letter.
pub type OptionForms = (&'static [&'static str], &'static [(char, &'static str)]);

/// Other forms of options, by program.
pub const OPTIONS: &[OptionForms] = &[
    (
        &["git"],
        &[
            ('a', "all"),
            ('A', "all"),
            ('d', "delete"),
            ('f', "force"),
            ('i', "interactive"),
            ('m', "message"),
            ('n', "no-verify"),
            ('o', "output"),
        ],
    ),
    (
        &["rm", "cp", "mv", "chmod", "chown", "chgrp", "ln"],
        &[('r', "recursive"), ('R', "recursive"), ('f', "force")],
    ),
    (&["sed"], &[('i', "in-place"), ('f', "file"), ('e', "expression")]),
    (
        &["awk"],
        &[('e', "source"), ('f', "file"), ('i', "include"), ('l', "load")],
    ),
    (
        &["curl"],
        &[
            ('A', "user-agent"),
            ('F', "form"),
            ('F', "form-string"),
            ('G', "get"),
            ('H', "header"),
            ('I', "head"),
            ('K', "config"),
            ('L', "location"),
            ('O', "remote-name"),
            ('T', "upload-file"),
            ('X', "request"),
            ('b', "cookie"),
            ('c', "cookie-jar"),
            ('d', "data"),
            ('d', "data-ascii"),
            ('d', "data-binary"),
            ('d', "data-raw"),
            ('d', "data-urlencode"),
            ('d', "json"),
            ('k', "insecure"),
            ('o', "output"),
            ('u', "user"),
            ('x', "proxy"),
        ],
    ),
    (
        &["wget"],
        &[
            ('O', "output-document"),
            ('P', "directory-prefix"),
            ('e', "execute"),
            ('i', "input-file"),
            ('m', "mirror"),
            ('o', "output-file"),
            ('r', "recursive"),
        ],
    ),
    (
        DOCKER,
        &[
            ('d', "detach"),
            ('e', "env"),
            ('f', "force"),
            ('h', "hostname"),
            ('i', "interactive"),
            ('p', "publish"),
            ('t', "tty"),
            ('u', "user"),
            ('v', "volume"),
            ('w', "workdir"),
        ],
    ),
    (
        KUBECTL,
        &[
            ('A', "all-namespaces"),
            ('R', "recursive"),
            ('c', "container"),
            ('f', "filename"),
            ('i', "stdin"),
            ('k', "kustomize"),
            ('l', "selector"),
            ('n', "namespace"),
            ('o', "output"),
            ('t', "tty"),
        ],
    ),
    (
        &["helm"],
        &[
            ('f', "values"),
            ('g', "generate-name"),
            ('i', "install"),
            ('n', "namespace"),
        ],
    ),
    (
        &["systemctl"],
        &[('H', "host"), ('M', "machine"), ('f', "force"), ('t', "type")],
    ),
    (&["npm", "pnpm"], &[('g', "global"), ('f', "force")]),
    (
        &["cargo"],
        &[
            ('F', "features"),
            ('j', "jobs"),
            ('p', "package"),
            ('q', "quiet"),
            ('r', "release"),
        ],
    ),
    (
        &["pip"],
        &[
            ('U', "upgrade"),
            ('c', "constraint"),
            ('e', "editable"),
            ('f', "find-links"),
            ('i', "index-url"),
            ('r', "requirement"),
            ('t', "target"),
            ('y', "yes"),
        ],
    ),
    // Whether the value of the code is printed makes no difference.
    (
        &["node", "bun"],
        &[
            ('e', "eval"),
            ('p', "eval"),
            ('e', "print"),
            ('p', "print"),
            ('r', "require"),
            ('r', "preload"),
            ('r', "import"),
        ],
    ),
    (
        &["deno"],
        &[
            ('A', "allow-all"),
            ('E', "allow-env"),
            ('N', "allow-net"),
            ('R', "allow-read"),
            ('S', "allow-sys"),
            ('W', "allow-write"),
            ('c', "config"),
        ],
    ),
    // `-E` is `-e` with newer features; there is no long name.
    (&["perl"], &[('e', "e"), ('E', "e")]),
    (&["Rscript"], &[('e', "e")]),
    (
        &["php"],
        &[
            ('B', "process-begin"),
            ('E', "process-end"),
            ('F', "process-file"),
            ('R', "process-code"),
            ('S', "server"),
            ('a', "interactive"),
            ('d', "define"),
            ('f', "file"),
            ('r', "run"),
        ],
    ),
    (
        &["tar"],
        &[
            ('x', "extract"),
            ('x', "get"),
            ('c', "create"),
            ('t', "list"),
            ('r', "append"),
            ('u', "update"),
            ('A', "concatenate"),
            ('A', "catenate"),
            ('f', "file"),
            ('C', "directory"),
            ('P', "absolute-names"),
            ('I', "use-compress-program"),
        ],
    ),
    (
        &["gzip", "bzip2", "xz", "zstd"],
        &[('d', "decompress"), ('d', "uncompress"), ('f', "force"), ('k', "keep")],
    ),
    (
        &["gh", "glab"],
        &[
            ('X', "method"),
            ('f', "raw-field"),
            ('F', "field"),
            ('H', "header"),
            ('R', "repo"),
        ],
    ),
    (
        &["make"],
        &[
            ('B', "always-make"),
            ('C', "directory"),
            ('E', "eval"),
            ('f', "file"),
            ('f', "makefile"),
            ('j', "jobs"),
            ('k', "keep-going"),
        ],
    ),
    (
        &["psql"],
        &[
            ('U', "username"),
            ('c', "command"),
            ('d', "dbname"),
            ('f', "file"),
            ('h', "host"),
            ('o', "output"),
        ],
    ),
    (
        &["mysql"],
        &[('D', "database"), ('e', "execute"), ('h', "host"), ('u', "user")],
    ),
    (
        &["rsync"],
        &[('a', "archive"), ('e', "rsh"), ('n', "dry-run"), ('r', "recursive")],
    ),
    (
        &["sudo"],
        &[('E', "preserve-env"), ('i', "login"), ('s', "shell"), ('u', "user")],
    ),
    (&["sort"], &[('o', "output")]),
    (&["tee"], &[('a', "append")]),
    (&["eslint"], &[('c', "config"), ('f', "format"), ('o', "output-file")]),
    (&["prettier"], &[('w', "write"), ('c', "check")]),
    (&["jest"], &[('c', "config"), ('u', "updateSnapshot")]),
    (&["vitest"], &[('c', "config"), ('u', "update")]),
    (&["pytest"], &[('c', "config-file"), ('o', "override-ini")]),
    (&["tsc"], &[('b', "build"), ('p', "project"), ('w', "watch")]),
];

/// Operands of a program that mean an option, by their first character: `git push origin +main`, `git push origin :old`.
pub const OPERANDS: &[(&str, char, &str)] = &[("git", '+', "force"), ("git", ':', "delete")];

/// Names of one subcommand, or of an operand that selects what it is about.
pub const SUBCOMMANDS: &[(&[&str], &[&str])] = &[
    (&["git"], &["add", "stage"]),
    (&["git"], &["push", "send-pack", "http-push"]),
    (&["git"], &["rm", "remove"]),
    (&["git"], &["blame", "annotate"]),
    (&["pnpm"], &["list", "ls", "la", "ll"]),
    (&["pnpm"], &["explain", "why"]),
    (&["pnpm"], &["install", "i"]),
    (&["pnpm"], &["remove", "rm", "un", "uninstall"]),
    (&["pnpm"], &["update", "up", "upgrade"]),
    (&["pnpm"], &["run", "run-script"]),
    (&["pnpm"], &["test", "t", "tst"]),
    (&["pnpm"], &["link", "ln"]),
    (&["pnpm"], &["rebuild", "rb"]),
    (&["yarn"], &["upgrade", "up"]),
    (&["bun"], &["install", "i"]),
    (&["bun"], &["add", "a"]),
    (&["bun"], &["remove", "rm"]),
    (&["deno"], &["install", "i"]),
    (&["deno"], &["remove", "rm"]),
    (&["cargo"], &["build", "b"]),
    (&["cargo"], &["check", "c"]),
    (&["cargo"], &["test", "t"]),
    (&["cargo"], &["run", "r"]),
    (&["cargo"], &["doc", "d"]),
    (&["cargo"], &["remove", "rm"]),
    (&["helm"], &["uninstall", "delete", "del", "un"]),
    (&["helm"], &["list", "ls"]),
    (&["helm"], &["pull", "fetch"]),
    (&["helm"], &["dependency", "dependencies", "dep"]),
    (&["helm"], &["remove", "rm"]),
    (DOCKER, &["rm", "remove"]),
    (DOCKER, &["ls", "list"]),
    (&["gh", "glab"], &["list", "ls"]),
    (&["gh", "glab"], &["create", "new"]),
    (&["gh"], &["codespace", "cs"]),
    (&["gh"], &["extension", "extensions", "ext"]),
    (&["glab"], &["delete", "del"]),
    (&["glab"], &["ci", "pipe", "pipeline"]),
    (KUBECTL, &["pod", "pods", "po"]),
    (KUBECTL, &["deployment", "deployments", "deploy"]),
    (KUBECTL, &["service", "services", "svc"]),
    (KUBECTL, &["namespace", "namespaces", "ns"]),
    (KUBECTL, &["node", "nodes", "no"]),
    (KUBECTL, &["secret", "secrets"]),
    (KUBECTL, &["configmap", "configmaps", "cm"]),
    (KUBECTL, &["ingress", "ingresses", "ing"]),
    (KUBECTL, &["job", "jobs"]),
    (KUBECTL, &["cronjob", "cronjobs", "cj"]),
    (KUBECTL, &["statefulset", "statefulsets", "sts"]),
    (KUBECTL, &["daemonset", "daemonsets", "ds"]),
    (KUBECTL, &["replicaset", "replicasets", "rs"]),
    (KUBECTL, &["serviceaccount", "serviceaccounts", "sa"]),
    (KUBECTL, &["persistentvolume", "persistentvolumes", "pv"]),
    (KUBECTL, &["persistentvolumeclaim", "persistentvolumeclaims", "pvc"]),
    (
        KUBECTL,
        &["customresourcedefinition", "customresourcedefinitions", "crd", "crds"],
    ),
];

/// Programs whose operands list several kinds of objects, each with a group or a name (`pods,svc`, `pod/web`).
pub const WITH_OBJECTS: &[&str] = KUBECTL;

/// Subcommands that only choose where the following command runs: in the workspace that the next word names, or in all.
pub const PLACES: &[(&str, &str)] = &[
    ("yarn", "workspace"),
    ("yarn", "workspaces"),
    ("pnpm", "recursive"),
    ("pnpm", "multi"),
    ("pnpm", "m"),
];

/// Options that have the effect of another option too: program, and the long names of the option and of the included
/// one.
pub const INCLUDED: &[(&str, &str, &str)] = &[
    ("git", "force-with-lease", "force"),
    ("git", "mirror", "force"),
    ("git", "mirror", "prune"),
    ("git", "mirror", "delete"),
    ("git", "prune", "delete"),
];

/// Programs that also run a script without `run` (`yarn deploy`), if they have no command of that name.
pub const SCRIPT_RUNNERS: [&str; 3] = ["pnpm", "yarn", "bun"];

/// Commands of these programs after which a script is hardly named, or that never are the script of that name. `deploy` is
/// none of them: pnpm's own command of that name is rare.
pub const OWN_COMMANDS: [&str; 29] = [
    "add",
    "audit",
    "bin",
    "cache",
    "config",
    "create",
    "dlx",
    "exec",
    "global",
    "info",
    "init",
    "install",
    "link",
    "list",
    "login",
    "logout",
    "npm",
    "outdated",
    "pack",
    "pm",
    "publish",
    "recursive",
    "remove",
    "unlink",
    "update",
    "why",
    "workspace",
    "workspaces",
    "x",
];

/// kubectl, and OpenShift's program, which takes its commands.
const KUBECTL: &[&str] = &["kubectl", "oc"];

/// Docker and the programs that take its commands.
const DOCKER: &[&str] = &["docker", "podman", "nerdctl"];

/// Commands that are the same, by the words after the program.
pub const COMMANDS: &[(&[&str], &[&str])] = &[
    (DOCKER, &["build", "image build", "buildx build", "builder build"]),
    (DOCKER, &["commit", "container commit"]),
    (DOCKER, &["cp", "container cp"]),
    (DOCKER, &["create", "container create"]),
    (DOCKER, &["exec", "container exec"]),
    (DOCKER, &["export", "container export"]),
    (DOCKER, &["history", "image history"]),
    (DOCKER, &["images", "image ls"]),
    (DOCKER, &["import", "image import"]),
    (DOCKER, &["info", "system info"]),
    (DOCKER, &["kill", "container kill"]),
    (DOCKER, &["load", "image load"]),
    (DOCKER, &["logs", "container logs"]),
    (DOCKER, &["ps", "container ls", "container ps"]),
    (DOCKER, &["pull", "image pull"]),
    (DOCKER, &["push", "image push"]),
    (DOCKER, &["restart", "container restart"]),
    (DOCKER, &["rm", "container rm"]),
    (DOCKER, &["rmi", "image rm"]),
    (DOCKER, &["run", "container run"]),
    (DOCKER, &["save", "image save"]),
    (DOCKER, &["start", "container start"]),
    (DOCKER, &["stop", "container stop"]),
    (DOCKER, &["tag", "image tag"]),
    (DOCKER, &["update", "container update"]),
    (&["npm"], &["set", "config set"]),
    (&["npm"], &["publish", "stage publish"]),
    (&["npm", "pnpm", "yarn"], &["test", "run test"]),
    (&["npm", "pnpm", "yarn"], &["start", "run start"]),
    (&["npm", "pnpm", "yarn"], &["stop", "run stop"]),
    (&["npm", "pnpm", "yarn"], &["restart", "run restart"]),
    (&["yarn"], &["publish", "npm publish"]),
    (&["npm"], &["get", "config get"]),
    (&["terraform", "tofu"], &["destroy", "apply -destroy"]),
];

/// Commands of two programs that are the same.
pub const BETWEEN: &[[&str; 2]] = &[
    ["npx", "npm exec"],
    ["bunx", "bun x"],
    ["npm publish", "yarn npm publish"],
    ["pnpx", "pnpm dlx"],
    ["uvx", "uv tool run"],
    ["docker-compose", "docker compose"],
];

/// Names of one program; the other tables have the first.
pub const PROGRAMS: &[&[&str]] = &[
    &["node", "nodejs"],
    &["sed", "gsed"],
    &["tar", "gtar", "bsdtar"],
    &["make", "gmake"],
    &["awk", "gawk", "mawk", "nawk"],
    &["nc", "ncat", "netcat"],
    &["vim", "vi", "view", "ex"],
    &["mysql", "mariadb"],
    &["fd", "fdfind"],
    &["bat", "batcat"],
];

/// Programs that are also installed under their name with a version (`pip3`, `python3.12`, `gcc-13`).
pub const VERSIONED: [&str; 12] = [
    "pip", "python", "pypy", "perl", "php", "ruby", "lua", "node", "gcc", "g++", "clang", "clang++",
];

/// Programs whose operands are several targets in any order, and settings (`make CC=gcc clean deploy`).
pub const WITH_TARGETS: [&str; 11] = [
    "make", "ninja", "just", "task", "rake", "ant", "gradle", "gradlew", "mvn", "mvnw", "tox",
];

/// Programs whose first word may be a group of short options without a dash (`tar xzf a.tgz`).
pub const DASHLESS: [&str; 1] = ["tar"];

/// Programs that accept options after operands, and have no subcommands.
pub const MIXED: [&str; 12] = [
    "rm", "cp", "mv", "chmod", "chown", "chgrp", "ln", "sed", "curl", "wget", "tar", "find",
];
