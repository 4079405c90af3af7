//! The file system that a command sees at level `full`: a new root made of bind mounts, most of them read-only.

use super::piece::{Piece, READ_ONLY, WRITABLE};
use super::report::{send_with_descriptor, step};
use super::rules::{DEVICES, SECRET_ETC, SYSTEM};
use super::spec::{ChildMessage, PROXY_PORT, Spec};
use super::{layers, limits};
use crate::process::write_guard::at;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change, move_mount,
    open_tree, unmount,
};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

const DEVICE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// Builds the new root and switches to it; brings up the loopback interface; passes the proxy's socket to the parent if
/// one is needed. The returned descriptors hold resources of the view and must stay open while it is used.
pub(super) fn build(spec: &Spec, channel: &OwnedFd) -> Result<Vec<OwnedFd>, String> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    step("leaving the machine's mounts", mount_change("/", private))?;
    let descriptors = step("descriptor limit", limits::many_descriptors())?;
    let (pieces, held) = collect(spec)?;
    let base = &spec.workspace;
    step("new root", tmpfs(base, c"mode=755,size=16m"))?;
    for (target, piece) in &pieces {
        let to = below(base, target);
        step(target.display(), place(piece, &to))?;
    }
    drop(pieces);
    step("descriptor limit", descriptors.put_back())?;
    step("links", links(base))?;
    step("devices", devices(base))?;
    masks(spec, base)?;
    for socket in &spec.reach.covered {
        let to = below(base, &spec.workspace).join(socket);
        // A socket that no longer exists needs no cover.
        if std::fs::symlink_metadata(&to).is_ok_and(|data| !data.is_symlink()) {
            step(socket.display(), cover(base, &to))?;
        }
    }
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
    limits::shrink_table(spec);
    step("sealing the root", seal_root())?;
    step("host name", rustix::system::sethostname(b"overnight"))?;
    step("loopback", loopback_up())?;
    if spec.proxy {
        step("proxy", hand_over_listener(channel))?;
    }
    Ok(held)
}

/// All mounts by their place, sorted so that a place comes after the one that contains it.
fn collect(spec: &Spec) -> Result<(BTreeMap<PathBuf, Piece>, Vec<OwnedFd>), String> {
    let mut pieces = BTreeMap::new();
    for path in SYSTEM.iter().chain(&["/etc", "/sys/devices/system/cpu"]) {
        take_at_place(&mut pieces, path.as_ref(), READ_ONLY);
    }
    for path in DEVICES {
        take_at_place(&mut pieces, path.as_ref(), DEVICE);
    }
    for path in &spec.readable {
        take_at_place(&mut pieces, path, READ_ONLY);
    }
    for (from, to) in &spec.placed.writable {
        take_along(&mut pieces, from, to, WRITABLE);
    }
    let held = layers::take(spec, &mut pieces);
    for path in &spec.writable {
        take_at_place(&mut pieces, path, WRITABLE);
    }
    if let Some(tmp) = &spec.tmp {
        take_along(&mut pieces, tmp, "/tmp".as_ref(), WRITABLE);
        take_along(&mut pieces, tmp, "/var/tmp".as_ref(), WRITABLE);
    }
    let workspace = match spec.reach.tree {
        true => WRITABLE,
        false => READ_ONLY,
    };
    take_along(&mut pieces, &spec.workspace, &spec.workspace, workspace);
    let root = step("the workspace", at::root(&spec.workspace))?;
    let parts = [(&spec.reach.writable, WRITABLE), (&spec.reach.read_only, READ_ONLY)];
    for (paths, attributes) in parts {
        for path in paths {
            let is_writable_too = attributes == READ_ONLY && spec.reach.writable.contains(path);
            if !is_writable_too && let Some(piece) = step(path.display(), part(&root, path, attributes))? {
                // An empty path means the workspace itself.
                pieces.insert(spec.workspace.iter().chain(path.iter()).collect(), piece);
            }
        }
    }
    for path in &spec.reach.fixed {
        let target: PathBuf = spec.workspace.iter().chain(path.iter()).collect();
        // What is mounted there already cannot be renamed. What no longer exists, or is only in a layer, is left out.
        if !pieces.contains_key(&target)
            && let Some(piece) = step(path.display(), part(&root, path, WRITABLE))?
            && piece.dir
        {
            pieces.insert(target, piece);
        }
    }
    for (from, to) in &spec.placed.read_only {
        take_along(&mut pieces, from, to, READ_ONLY);
    }
    if pieces.contains_key(&spec.workspace) {
        Ok((pieces, held))
    } else {
        Err("the workspace cannot be mounted".to_owned())
    }
}

/// Adds a mount of a path at its own place; a symbolic link is left out.
fn take_at_place(pieces: &mut BTreeMap<PathBuf, Piece>, path: &Path, attributes: u64) {
    if !std::fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink()) {
        take_along(pieces, path, path, attributes);
    }
}

/// Adds a mount; a missing path is left out.
fn take_along(pieces: &mut BTreeMap<PathBuf, Piece>, from: &Path, to: &Path, attributes: u64) {
    pieces.extend(Piece::of(from, attributes).map(|piece| (to.to_path_buf(), piece)));
}

/// Clones a part of the workspace. `None` when it no longer exists or became a link: then there is nothing to mount.
fn part(root: &OwnedFd, path: &Path, attributes: u64) -> io::Result<Option<Piece>> {
    let handle = match at::handle(root, path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        handle => handle?,
    };
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
    if kind.is_symlink() {
        return Ok(None);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(Some(Piece {
        tree: open_tree(&handle, "", flags)?,
        dir: kind.is_dir(),
        attributes,
    }))
}

fn below(base: &Path, target: &Path) -> PathBuf {
    let inside = target.components().filter(|part| matches!(part, Component::Normal(_)));
    base.join(inside.collect::<PathBuf>())
}

/// Attaches a mount at `to`, which is created if missing.
fn place(piece: &Piece, to: &Path) -> io::Result<()> {
    if piece.dir {
        std::fs::create_dir_all(to)?;
    } else if std::fs::symlink_metadata(to).is_err() {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::File::create(to)?;
    }
    set_attributes(&piece.tree, piece.attributes, true)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(&piece.tree, "", CWD, to, flags)?)
}

/// Recreates those entries of [`SYSTEM`] that are symbolic links in the old root.
fn links(base: &Path) -> io::Result<()> {
    for path in SYSTEM {
        if let Ok(target) = std::fs::read_link(path) {
            let to = below(base, path.as_ref());
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
fn masks(spec: &Spec, base: &Path) -> Result<(), String> {
    let etc = SECRET_ETC.iter().map(|name| Path::new("/etc").join(name));
    let private = [PathBuf::from("/etc/ssl/private")];
    let hidden = spec.hidden.iter().chain(&spec.reach.hidden);
    for path in etc.chain(private).chain(hidden.cloned()) {
        let to = below(base, &path);
        let keeps = |granted: &PathBuf| granted.starts_with(&path);
        if spec.workspace.starts_with(&path) || spec.readable.iter().any(keeps) {
            continue;
        }
        let Ok(data) = std::fs::symlink_metadata(&to) else {
            continue;
        };
        if data.is_dir() {
            let again: Vec<&PathBuf> = spec.writable.iter().filter(|granted| keeps(granted)).collect();
            let mut pieces = BTreeMap::new();
            for granted in again {
                take_along(&mut pieces, &below(base, granted), granted, WRITABLE);
            }
            step(path.display(), tmpfs(&to, c"mode=755,size=1m"))?;
            for (target, piece) in &pieces {
                step(target.display(), place(piece, &below(base, target)))?;
            }
        } else if !data.is_symlink() {
            step(path.display(), while_there(&to, || cover(base, &to)))?;
        }
    }
    for (number, (path, contents)) in spec.reach.copies.iter().enumerate() {
        let to = below(base, path);
        if std::fs::symlink_metadata(&to).is_ok_and(|data| data.is_file()) {
            let copy = base.join(format!(".copy-{number}"));
            step(path.display(), std::fs::write(&copy, contents))?;
            step(path.display(), while_there(&to, || show(&copy, &to)))?;
        }
    }
    for (path, file) in &spec.reach.shown {
        let to = below(base, path);
        if std::fs::symlink_metadata(&to).is_ok_and(|data| data.is_file()) {
            step(path.display(), while_there(&to, || show(file, &to)))?;
        }
    }
    Ok(())
}

/// Covers a file that programs of the machine may replace or remove meanwhile. A file that no longer exists needs no
/// cover, and Landlock protects the names in `/etc` in any case.
fn while_there(to: &Path, cover: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..20 {
        match cover() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if std::fs::symlink_metadata(to).is_err() {
                    return Ok(());
                }
            }
            done => return done,
        }
    }
    cover()
}

/// Mounts an empty file without permissions over a file.
fn cover(base: &Path, to: &Path) -> io::Result<()> {
    let empty = base.join(".empty");
    if !empty.exists() {
        std::fs::write(&empty, "")?;
    }
    show(&empty, to)
}

/// Mounts a file read-only over another one.
fn show(file: &Path, to: &Path) -> io::Result<()> {
    let tree = open_tree(
        CWD,
        file,
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    )?;
    let piece = Piece {
        tree,
        dir: false,
        attributes: READ_ONLY,
    };
    place(&piece, to)
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

/// Adds attributes to a mount, and with `recursive` to the mounts below it.
#[expect(unsafe_code, reason = "the crate for mounts lacks this call")]
fn set_attributes(tree: &OwnedFd, attributes: u64, recursive: bool) -> io::Result<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        user: u64,
    }
    let order = MountAttr {
        set: attributes,
        clear: 0,
        propagation: 0,
        user: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is empty and ends in NUL; `order` has the size that is given and lives through the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const order,
            size_of::<MountAttr>(),
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
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
