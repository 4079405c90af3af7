#![doc = include_str!("architecture.md")]

pub mod base;
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
