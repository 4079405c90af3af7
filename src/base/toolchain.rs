//! The names of toolchains: what a policy may list in `sandbox.toolchains`.

/// All names, in the order in which they are shown.
pub const NAMES: [&str; 5] = ["rust", "node", "python", "go", "java"];
