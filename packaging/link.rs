//! The build script: what the linker does for the profile `dist`, which is the only one that is optimised for size.
//! Elsewhere it does nothing, because both steps make a link slower.
#![allow(clippy::print_stdout, reason = "a build script speaks to cargo on stdout")]
#![allow(
    clippy::disallowed_methods,
    reason = "only the program itself starts its processes in one place"
)]

use std::env;
use std::process::Command;

/// The first glibc whose loader reads packed relocations: major and minor number.
const READS_PACKED: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=packaging/link.rs");
    let of = |name: &str| env::var(name).unwrap_or_default();
    let sized = of("OPT_LEVEL") == "s" || of("OPT_LEVEL") == "z";
    // The target whose linker is LLD by default; others do not know these options.
    if !sized || of("TARGET") != "x86_64-unknown-linux-gnu" {
        return;
    }
    // Functions with the same instructions are one. Rust promises no addresses of functions, so nothing depends on them.
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    // 45,000 addresses are adjusted at a start: a list of 1.1 MB, packed 14 KB. An older glibc refuses a program with a
    // packed list. A program is for the glibc of the machine that builds it and for newer ones, so that one decides.
    if of("HOST") == of("TARGET") && glibc().is_some_and(|version| version >= READS_PACKED) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's glibc.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
