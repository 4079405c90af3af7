//! The text of `--version --verbose`: version, commit, features and target.

/// Features of this build.
const FEATURES: &[(&str, bool)] = &[("cloud", cfg!(feature = "cloud")), ("otel", cfg!(feature = "otel"))];

/// The text of `--version --verbose`. The commit is known if `OVERNIGHT_COMMIT` was set at build time.
pub fn long() -> String {
    let chosen: Vec<&str> = FEATURES.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let features = match chosen.is_empty() {
        true => "none".to_owned(),
        false => chosen.join(" "),
    };
    format!(
        "overnight {}\ncommit: {}\nfeatures: {features}\ntarget: {}-linux-{}\nprofile: {}\n",
        env!("CARGO_PKG_VERSION"),
        option_env!("OVERNIGHT_COMMIT").unwrap_or("not recorded in this build"),
        std::env::consts::ARCH,
        if cfg!(target_env = "musl") { "musl" } else { "gnu" },
        if cfg!(debug_assertions) { "debug" } else { "release" },
    )
}

/// Whether the arguments are `--version --verbose`, in any order, long or short.
pub fn asked(args: &[std::ffi::OsString]) -> bool {
    let version = |arg: &str| matches!(arg, "--version" | "-V" | "-vV" | "-Vv");
    let verbose = |arg: &str| matches!(arg, "--verbose" | "-v" | "-vV" | "-Vv");
    let texts: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    texts.len() == args.len()
        && texts.iter().all(|arg| version(arg) || verbose(arg))
        && texts.iter().any(|arg| version(arg))
        && texts.iter().any(|arg| verbose(arg))
}
