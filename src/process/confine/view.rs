//! The file system that a command sees at level `full`: a new root made of bind mounts, most of them read-only.

use super::cloned_mount::{ClonedMount, READ_ONLY, WRITABLE, set_attributes};
use super::new_root::{Links, NewRoot, TreePart};
use super::report::{send_with_descriptor, step};
use super::rules::{DEVICES, SECRET_ETC, SYSTEM};
use super::spec::{ChildMessage, PROXY_PORT, Spec};
use super::{layers, limits};
use crate::process::write_guard::at;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const DEVICE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// Builds the new root and switches to it; brings up the loopback interface; passes the proxy's socket to the parent if
/// one is needed. The returned descriptors hold resources of the view and must stay open while it is used.
pub(super) fn build(spec: &Spec, channel: &OwnedFd) -> Result<Vec<OwnedFd>, String> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    step("leaving the machine's mounts", mount_change("/", private))?;
    let descriptors = step("descriptor limit", limits::many_descriptors())?;
    let (planned, held) = collect(spec)?;
    let base = &spec.workspace;
    let mut root = step("new root", NewRoot::mount(base))?;
    for (target, planned) in planned {
        let placed = match planned {
            Planned::ClonedMount(piece) => root.attach(&target, piece),
            Planned::Part(part) => root.attach_part(&part),
        };
        step(target.display(), placed)?;
    }
    step("devices", devices(base))?;
    step("links", links(base))?;
    masks(spec, &mut root)?;
    let identity = step("the workspace", root.workspace_identity())?;
    drop(root);
    step("descriptor limit", descriptors.put_back())?;
    step(
        "processes",
        mount(
            "proc",
            base.join("proc"),
            "proc",
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            None,
        ),
    )?;
    step("entering the new root", enter(base))?;
    step("the workspace", has_identity(&spec.workspace, identity))?;
    limits::shrink_table(spec);
    step("sealing the root", seal_root())?;
    step("host name", rustix::system::sethostname(b"overnight"))?;
    step("loopback", loopback_up())?;
    if spec.proxy {
        step("proxy", hand_over_listener(channel))?;
    }
    Ok(held)
}

/// Where a mount of the view comes from.
enum Planned {
    ClonedMount(ClonedMount),
    Part(TreePart),
}

/// All mounts by their place, sorted so that a place comes after the one that contains it.
fn collect(spec: &Spec) -> Result<(BTreeMap<PathBuf, Planned>, Vec<OwnedFd>), String> {
    let mut pieces = BTreeMap::new();
    for path in SYSTEM.iter().chain(&["/etc", "/sys/devices/system/cpu"]) {
        take_at_place(&mut pieces, path.as_ref(), READ_ONLY);
    }
    for path in DEVICES {
        take_at_place(&mut pieces, path.as_ref(), DEVICE);
    }
    let mut parts = BTreeMap::new();
    for path in &spec.readable {
        match path.strip_prefix(&spec.workspace) {
            // A command could have put a link there that leads out of the workspace.
            Ok(inside) if !inside.as_os_str().is_empty() => {
                parts.insert(path.clone(), TreePart::new(inside, READ_ONLY));
            }
            _ => take_at_place(&mut pieces, path, READ_ONLY),
        }
    }
    for (from, to) in &spec.placed.writable {
        take_along(&mut pieces, from, to, WRITABLE);
    }
    step("directories above the workspace", fix_way(spec, &mut pieces))?;
    let held = layers::take(spec, &mut pieces);
    for path in &spec.writable {
        take_at_place(&mut pieces, path, WRITABLE);
    }
    if let Some(tmp) = &spec.tmp {
        take_along(&mut pieces, tmp, "/tmp".as_ref(), WRITABLE);
        take_along(&mut pieces, tmp, "/var/tmp".as_ref(), WRITABLE);
    }
    // An empty path means the workspace itself.
    let is_part = |path: &&PathBuf| !path.as_os_str().is_empty();
    let workspace = match spec.reach.tree || !spec.reach.writable.iter().all(|path| is_part(&path)) {
        true => WRITABLE,
        false => READ_ONLY,
    };
    take_along(&mut pieces, &spec.workspace, &spec.workspace, workspace);
    if !pieces.contains_key(&spec.workspace) {
        return Err("the workspace cannot be mounted".to_owned());
    }
    let at_place = |path: &PathBuf| -> PathBuf { spec.workspace.iter().chain(path.iter()).collect() };
    for path in spec.reach.writable.iter().filter(is_part) {
        parts.insert(at_place(path), TreePart::new(path, WRITABLE));
    }
    let read_only = spec.reach.read_only.iter().filter(is_part);
    for path in read_only.filter(|path| !spec.reach.writable.contains(path)) {
        parts.insert(at_place(path), TreePart::new(path, READ_ONLY));
    }
    for path in spec.reach.fixed.iter().filter(is_part) {
        let target = at_place(path);
        // What is mounted there already cannot be renamed.
        if !pieces.contains_key(&target) && !parts.contains_key(&target) {
            parts.insert(target, TreePart::dir(path, WRITABLE));
        }
    }
    let mut planned: BTreeMap<PathBuf, Planned> = BTreeMap::new();
    planned.extend(
        pieces
            .into_iter()
            .map(|(target, piece)| (target, Planned::ClonedMount(piece))),
    );
    planned.extend(parts.into_iter().map(|(target, part)| (target, Planned::Part(part))));
    let mut over = BTreeMap::new();
    for (from, to) in &spec.placed.read_only {
        take_along(&mut over, from, to, READ_ONLY);
    }
    planned.extend(
        over.into_iter()
            .map(|(target, piece)| (target, Planned::ClonedMount(piece))),
    );
    Ok((planned, held))
}

/// Adds mounts of the directories between a private directory and the workspace below it: a mount point cannot be
/// renamed or removed, so no command can put another tree at the path of the workspace.
fn fix_way(spec: &Spec, pieces: &mut BTreeMap<PathBuf, ClonedMount>) -> io::Result<()> {
    for dir in spec.workspace.ancestors().skip(1) {
        let above = spec.placed.writable.iter().filter(|(_, to)| dir.starts_with(to));
        let nearest = above.max_by_key(|(_, to)| to.components().count());
        let Some((from, to)) = nearest.filter(|_| !pieces.contains_key(dir)) else {
            continue;
        };
        let inside = dir.strip_prefix(to).map_err(io::Error::other)?;
        let handle = at::dir_made(&at::root(from)?, inside)?;
        pieces.insert(dir.to_path_buf(), ClonedMount::at(&handle, WRITABLE)?);
    }
    Ok(())
}

/// Adds a mount of a path at its own place; a symbolic link is left out.
fn take_at_place(pieces: &mut BTreeMap<PathBuf, ClonedMount>, path: &Path, attributes: u64) {
    if !std::fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink()) {
        take_along(pieces, path, path, attributes);
    }
}

/// Adds a mount; a missing path is left out.
fn take_along(pieces: &mut BTreeMap<PathBuf, ClonedMount>, from: &Path, to: &Path, attributes: u64) {
    pieces.extend(ClonedMount::of(from, attributes).map(|piece| (to.to_path_buf(), piece)));
}

/// Whether the workspace is at its path in the new root: nothing may run in another directory.
fn has_identity(workspace: &Path, identity: (u64, u64)) -> io::Result<()> {
    let data = rustix::fs::stat(workspace)?;
    match (data.st_dev, data.st_ino) == identity {
        true => Ok(()),
        false => Err(io::Error::other("another directory is at its path")),
    }
}

/// Recreates those entries of [`SYSTEM`] that are symbolic links in the old root.
fn links(base: &Path) -> io::Result<()> {
    for path in SYSTEM {
        if let Ok(target) = std::fs::read_link(path) {
            let to = base.join(path.trim_start_matches('/'));
            if std::fs::symlink_metadata(&to).is_err() {
                symlink(target, to)?;
            }
        }
    }
    Ok(())
}

fn devices(base: &Path) -> io::Result<()> {
    let dev = base.join("dev");
    std::fs::create_dir_all(dev.join("shm"))?;
    std::fs::create_dir_all(dev.join("pts"))?;
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name))?;
    }
    tmpfs(&dev.join("shm"), c"mode=1777,size=1g")?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    // A private `devpts` is a convenience: on a kernel without it only terminals are missing.
    let _ = mount(
        "devpts",
        dev.join("pts"),
        "devpts",
        flags,
        c"newinstance,ptmxmode=0666,mode=620",
    );
    for (name, options) in [("tmp", c"mode=1777,size=1g"), ("var/tmp", c"mode=1777,size=64m")] {
        let dir = base.join(name);
        if !dir.exists() {
            std::fs::create_dir_all(&dir)?;
            tmpfs(&dir, options)?;
        }
    }
    std::fs::create_dir_all(base.join("run"))?;
    std::fs::create_dir_all(base.join("proc"))
}

/// Covers unreadable places with empty mounts. Granted places below them are mounted again.
fn masks(spec: &Spec, root: &mut NewRoot) -> Result<(), String> {
    let etc = SECRET_ETC.iter().map(|name| Path::new("/etc").join(name));
    let private = [PathBuf::from("/etc/ssl/private")];
    let empty = step("empty file", root.file(".empty", b""))?;
    // These were named from outside, perhaps through links; the others were found in the tree without them.
    let named = etc.chain(private).chain(spec.hidden.iter().cloned());
    let found = spec.reach.hidden.iter().cloned();
    for (path, links) in named
        .map(|path| (path, Links::Followed))
        .chain(found.map(|path| (path, Links::Refused)))
    {
        let keeps = |granted: &PathBuf| granted.starts_with(&path);
        if spec.workspace.starts_with(&path) || spec.readable.iter().any(keeps) {
            continue;
        }
        let granted: Vec<PathBuf> = spec.writable.iter().filter(|granted| keeps(granted)).cloned().collect();
        step(path.display(), root.hide(&path, links, &empty, &granted))?;
    }
    for (number, (path, contents)) in spec.reach.copies.iter().enumerate() {
        let copy = step(path.display(), root.file(&format!(".copy-{number}"), contents))?;
        step(path.display(), root.show(&copy, path))?;
    }
    for (path, file) in &spec.reach.shown {
        let file = step(
            path.display(),
            rustix::fs::open(file, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()),
        )?;
        step(path.display(), root.show(&file, path))?;
    }
    for socket in &spec.reach.covered {
        step(
            socket.display(),
            root.hide(&spec.workspace.join(socket), Links::Refused, &empty, &[]),
        )?;
    }
    Ok(())
}

fn tmpfs(at: &Path, options: &std::ffi::CStr) -> io::Result<()> {
    Ok(mount(
        "tmpfs",
        at,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options,
    )?)
}

/// Makes `base` the root; the old root becomes unreachable for this process and its descendants.
fn enter(base: &Path) -> io::Result<()> {
    rustix::process::chdir(base)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Makes the root itself and `/proc` read-only, so that nothing is written to the machine's settings.
fn seal_root() -> io::Result<()> {
    let open = |path: &str| rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    set_attributes(&open("/proc")?, libc::MOUNT_ATTR_RDONLY, false)?;
    set_attributes(&open("/")?, READ_ONLY, false)
}

/// Brings up the loopback interface of the new network namespace, so that tests can reach their own servers.
#[expect(unsafe_code, reason = "interfaces are set up by ioctl")]
fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: all-zero is a valid request; the name fits with room for its NUL; the request lives through the calls.
    let done = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = from.cast_signed();
        }
        let got = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request);
        request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        if got < 0 {
            got
        } else {
            libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
        }
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Passes a listening socket to the parent. A socket stays in the network namespace in which it was created: the parent
/// accepts connections in the child's namespace and connects from its own.
fn hand_over_listener(channel: &OwnedFd) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    send_with_descriptor(channel, &ChildMessage::Listener, &listener)
}
