//! The Landlock ruleset of a confined command: the files that it may access, and the other restrictions of Landlock.

use super::report::step;
use super::spec::Spec;
use crate::process::write_guard::at;
use crate::process::{SandboxLevel, SignalScope};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use std::path::{Path, PathBuf};

/// The newest Landlock ABI that is requested; an older kernel applies what it supports.
const NEWEST: ABI = ABI::V6;

/// Programs, libraries and settings of the machine.
pub(crate) const SYSTEM: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix",
    "/gnu",
    "/run/current-system",
    "/snap",
];

/// Names in `/etc` that hold secrets or settings for them.
pub(super) const SECRET_ETC: [&str; 16] = [
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "ssh",
    "security",
    "krb5.keytab",
    "ipsec.secrets",
    "ipsec.d",
    "wireguard",
    "NetworkManager",
    "docker",
    "kubernetes",
    "rancher",
];

/// Devices that programs commonly need.
pub(super) const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Restricts this process and its descendants.
pub(super) fn apply(spec: &Spec) -> Result<(), String> {
    let status = step("landlock", restrict(spec))?;
    match status.ruleset {
        landlock::RulesetStatus::NotEnforced => Err("landlock: this kernel does not enforce it".to_owned()),
        _ => Ok(()),
    }
}

fn restrict(spec: &Spec) -> Result<landlock::RestrictionStatus, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST) & !Scope::Signal)?;
    // At `full` a namespace of processes keeps signals inside too.
    ruleset = match (spec.level, spec.signals) {
        (SandboxLevel::Landlock, SignalScope::Mediated) => ruleset,
        (SandboxLevel::Landlock, SignalScope::Kernel) => ruleset
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::Signal)?
            .set_compatibility(CompatLevel::BestEffort),
        (SandboxLevel::Full | SandboxLevel::None, _) => ruleset.scope(Scope::Signal)?,
    };
    if spec.level == SandboxLevel::Landlock {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let rules = ruleset.create()?;
    let rules = system(rules, spec.level)?;
    let rules = devices(rules, spec.level)?;
    let all = AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let rules = match spec.reach.tree {
        true => allow(rules, &spec.workspace, all)?,
        false => allow(rules, &spec.workspace, AccessFs::from_read(NEWEST))?,
    };
    let mut rules = inside(rules, spec, all)?;
    // Those in the workspace are readable with it; a command could have put a link there that leads elsewhere.
    let outside = |path: &&PathBuf| !path.starts_with(&spec.workspace);
    for path in spec.readable.iter().filter(outside) {
        rules = allow(rules, path, AccessFs::from_read(NEWEST))?;
    }
    for path in &spec.writable {
        rules = allow(rules, path, all)?;
    }
    if spec.level == SandboxLevel::Full {
        for path in spec.placed.seen() {
            rules = allow(rules, path, all)?;
        }
        for (_, path) in &spec.placed.read_only {
            rules = allow(rules, path, AccessFs::from_read(NEWEST))?;
        }
        for path in ["/tmp", "/var/tmp", "/dev/shm", "/dev/pts"] {
            rules = allow(rules, path.as_ref(), all)?;
        }
        rules = allow(rules, "/dev/ptmx".as_ref(), all)?;
    }
    rules.restrict_self()
}

fn system(mut rules: RulesetCreated, level: SandboxLevel) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::from_read(NEWEST);
    for path in SYSTEM {
        rules = allow(rules, path.as_ref(), read)?;
    }
    if level == SandboxLevel::Full {
        // Secrets are already covered in this view: one rule instead of several hundred.
        rules = allow(rules, "/etc".as_ref(), read)?;
    } else {
        rules = etc(rules, read)?;
    }
    let processes = AccessFs::ReadFile | AccessFs::ReadDir;
    rules = allow(rules, "/proc".as_ref(), processes)?;
    allow(rules, "/sys/devices/system/cpu".as_ref(), processes)
}

/// Grants every entry of `/etc` that is no secret.
fn etc(mut rules: RulesetCreated, read: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let entries = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    for entry in entries.filter(|entry| {
        !entry
            .file_name()
            .to_str()
            .is_some_and(|name| SECRET_ETC.contains(&name))
    }) {
        if entry.file_name() == "ssl" {
            for below in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                if below.file_name() != "private" {
                    rules = allow(rules, &below.path(), read)?;
                }
            }
        } else {
            rules = allow(rules, &entry.path(), read)?;
        }
    }
    // Listing shows only names.
    allow(rules, "/etc".as_ref(), AccessFs::ReadDir.into())
}

fn devices(mut rules: RulesetCreated, level: SandboxLevel) -> Result<RulesetCreated, RulesetError> {
    let use_it = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    for path in DEVICES {
        if level == SandboxLevel::Full || path != "/dev/tty" {
            rules = allow(rules, path.as_ref(), use_it)?;
        }
    }
    Ok(rules)
}

/// Grants places of the workspace. Paths are opened without following links, so a link that was put there meanwhile
/// grants nothing.
fn inside(mut rules: RulesetCreated, spec: &Spec, all: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(root) = at::root(&spec.workspace) else {
        return Ok(rules);
    };
    for path in &spec.reach.writable {
        let Ok(handle) = at::handle(&root, path) else { continue };
        let access = match rustix::fs::fstat(&handle) {
            Ok(data) if at::is_dir(&data) => all,
            Ok(_) => AccessFs::from_file(NEWEST) & !AccessFs::IoctlDev,
            Err(_) => continue,
        };
        rules = rules.add_rule(PathBeneath::new(handle, access))?;
    }
    Ok(rules)
}

/// Grants access to a path; a missing path grants nothing.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(fd) = PathFd::new(path) else {
        return Ok(rules);
    };
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(NEWEST)
    };
    rules.add_rule(PathBeneath::new(fd, access))
}
