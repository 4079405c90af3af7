#![doc = include_str!("architecture.md")]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "overnight runs on Linux only: its sandbox is made of Landlock, seccomp and namespaces of the Linux kernel; build it there, in a container or a virtual machine"
);

pub mod base;
pub mod batch;
pub mod cli;
pub mod deliver;
pub mod diag;
pub mod engine;
pub mod journal;
pub mod net;
pub mod policy;
pub mod process;
pub mod provider;
pub mod recipe;
pub mod report;
pub mod tools;
pub mod workspace;
