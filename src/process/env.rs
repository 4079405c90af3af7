//! The base environment of children: nothing is inherited except harmless fixed names and what the policy passes.

/// Names that are never passed on, whatever a policy says: they make a program load or run code.
const NEVER: [&str; 9] = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
];

/// The directories in which children look for programs, after those of toolchains.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of children: fixed names, `HOME` and `TMPDIR` as given, then those variables of `parent` that the
/// policy passes, each by its whole name.
pub fn base_env(
    home: &str,
    tmp: &str,
    path: &str,
    pass: &[String],
    parent: &[(String, String)],
) -> Vec<(String, String)> {
    let fixed = [
        ("PATH", path),
        ("HOME", home),
        ("TMPDIR", tmp),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("CI", "true"),
        ("NO_COLOR", "1"),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        // Compiled files beside the sources would count as changes made by the run.
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("OVERNIGHT", "1"),
    ];
    let mut env: Vec<(String, String)> = Vec::new();
    for (name, value) in fixed {
        set(&mut env, name, value);
    }
    for (name, value) in parent.iter().filter(|(name, _)| passes(pass, name)) {
        set(&mut env, name, value);
    }
    for (name, value) in super::unsandboxed::neutral() {
        set(&mut env, &name, &value);
    }
    env
}

/// Sets a variable, replacing an earlier value.
pub fn set(env: &mut Vec<(String, String)>, name: &str, value: &str) {
    match env.iter_mut().find(|(have, _)| have == name) {
        Some((_, old)) => value.clone_into(old),
        None => env.push((name.to_owned(), value.to_owned())),
    }
}

fn passes(pass: &[String], name: &str) -> bool {
    let never = NEVER.contains(&name) || name.starts_with("GIT_CONFIG");
    !never && pass.iter().any(|wanted| wanted == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(pass: &[&str], parent: &[(&str, &str)]) -> Vec<String> {
        let pass: Vec<String> = pass.iter().map(|name| (*name).to_owned()).collect();
        let parent: Vec<(String, String)> = parent
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let before = base_env("/h", "/t", "/bin", &[], &parent);
        let after = base_env("/h", "/t", "/bin", &pass, &parent);
        after
            .iter()
            .filter(|pair| !before.contains(pair))
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    #[test]
    fn nothing_of_the_parent_goes_through_unasked() {
        let env = base_env("/h", "/t", "/bin", &[], &[("FOO".to_owned(), "1".to_owned())]);
        assert!(env.iter().all(|(name, _)| name != "FOO"));
        assert!(env.contains(&("HOME".to_owned(), "/h".to_owned())));
        assert!(env.contains(&("GIT_CONFIG_NOSYSTEM".to_owned(), "1".to_owned())));
    }

    #[test]
    fn only_whole_names_pass() {
        let parent = [("MY_A", "1"), ("MY_TOKEN", "t")];
        assert_eq!(passed(&["MY_TOKEN", "MY"], &parent), ["MY_TOKEN=t"]);
        assert!(passed(&["MY_*", "*"], &parent).is_empty());
    }

    #[test]
    fn what_loads_programs_never_passes() {
        let parent = [("LD_PRELOAD", "x"), ("BASH_ENV", "x"), ("GIT_CONFIG_COUNT", "9")];
        assert!(passed(&["LD_PRELOAD", "BASH_ENV", "GIT_CONFIG_COUNT"], &parent).is_empty());
    }

    #[test]
    fn a_passed_name_replaces_the_fixed_one() {
        assert_eq!(passed(&["LANG"], &[("LANG", "de_DE.UTF-8")]), ["LANG=de_DE.UTF-8"]);
    }
}
