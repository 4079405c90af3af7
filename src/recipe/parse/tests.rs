//! Whole recipe files in `fixtures/recipe` against what a user sees of them: the plan, or every problem.

use crate::diag::{SourceFiles, render_all};
use crate::recipe::{DocumentUse, RecipeArguments, lower, parse, show};
use std::path::Path;

/// What `recipe check` and `recipe show` print. The line `# given: NAME=VALUE | NAME=VALUE` in a file gives parameters,
/// `# input: JSON` the input.
fn shown(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let comment = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(&format!("# {name}: ")).map(str::to_owned))
    };
    let params: Vec<String> = comment("given")
        .iter()
        .flat_map(|line| line.split(" | "))
        .map(str::to_owned)
        .collect();
    let input = comment("input").map(|json| serde_json::from_str(&json).unwrap());
    let mut files = SourceFiles::new();
    let id = files.add(path.file_name().unwrap().to_string_lossy(), text.clone());
    let mut warnings = Vec::new();
    let recipe = match parse(&files, id, &mut warnings) {
        Ok(recipe) => recipe,
        Err(problems) => return render_all(&files, &problems),
    };
    let read = |_: DocumentUse, name: &str| {
        std::fs::read_to_string(path.with_file_name(name)).map_err(|_| "no such file".to_owned())
    };
    let given = RecipeArguments {
        params: &params,
        input: input.as_ref(),
        ..RecipeArguments::default()
    };
    match lower(&files, &recipe, &given, &read, &mut warnings) {
        Ok(plan) => {
            let again = serde_json::from_value(serde_json::to_value(&plan).unwrap()).unwrap();
            assert_eq!(plan, again, "a plan survives the journal");
            render_all(&files, &warnings) + &show::text(&plan)
        }
        Err(problems) => render_all(&files, &problems),
    }
}

#[test]
fn fixtures_show_what_the_user_sees() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recipe");
    let mut seen = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let shown = shown(&path);
        let expected = path.with_extension("txt");
        if std::env::var_os("OVERNIGHT_BLESS").is_some() {
            std::fs::write(&expected, &shown).unwrap();
        }
        assert_eq!(shown, std::fs::read_to_string(&expected).unwrap(), "{}", path.display());
        for problem in shown.lines().filter(|line| line.contains(": error[")) {
            assert!(
                problem
                    .split(':')
                    .nth(2)
                    .is_some_and(|column| column.parse::<usize>().is_ok()),
                "{problem}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 8, "only {seen} fixtures");
}

#[test]
fn every_error_has_a_help_line() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recipe");
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let shown = shown(&path);
            let first_line = |line: &&str| {
                let placed = line.contains(": error[") || line.contains(": warning[");
                placed || line.starts_with("error[")
            };
            let problems = shown.lines().filter(first_line);
            let helps = shown.lines().filter(|line| line.starts_with("help: "));
            assert_eq!(problems.count(), helps.count(), "{}:\n{shown}", path.display());
        }
    }
}

#[test]
fn what_the_help_for_a_command_line_says_to_write_is_read() {
    let read = |keys: &str| {
        let text =
            format!("version: 1\nname: a\ntools:\n  mcp_servers:\n    s:\n{keys}steps:\n  - {{ id: a, prompt: x }}\n");
        let mut files = SourceFiles::new();
        let id = files.add("r.yaml", text);
        parse(&files, id, &mut Vec::new())
    };
    let help = |command: &str| {
        let problems = read(&format!("      command: {command}\n")).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].code, "command-line");
        problems[0].help.clone().unwrap()
    };
    let said = help("npx -y @scope/pkg a,b .");
    let keys: String = said
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(|key| ["      ", key, "\n"])
        .collect();
    let recipe = read(&keys).unwrap();
    let server = &recipe.tools.mcp_servers[0];
    let args: Vec<&str> = server.args.iter().map(|arg| arg.value.as_str()).collect();
    assert_eq!(server.command.as_ref().unwrap().value, "npx");
    assert_eq!(args, ["-y", "@scope/pkg", "a,b", "."]);
    assert!(help("sh -c 'exec a b'").contains("each argument as an entry of `args`"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    #[test]
    fn no_damage_makes_it_panic_or_lose_the_place(from in 0usize..2000, length in 0usize..30, put in "[ -~\n]{0,6}") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recipe/full.yaml");
        let mut text = std::fs::read_to_string(path).unwrap();
        let from = from.min(text.len());
        text.replace_range(from..(from + length).min(text.len()), &put);
        let mut files = SourceFiles::new();
        let id = files.add("r.yaml", text);
        let mut problems = Vec::new();
        match parse(&files, id, &mut problems) {
            Ok(recipe) => {
                let given = RecipeArguments::default();
                problems.extend(lower(&files, &recipe, &given, &|_, _| Err("none".to_owned()), &mut Vec::new()).err().into_iter().flatten());
            }
            Err(found) => problems.extend(found),
        }
        for problem in problems {
            proptest::prop_assert!(problem.help.is_some(), "{:?}", problem);
            proptest::prop_assert!(problem.span.is_some_and(|span| span.end <= files.text(id).len()), "{:?}", problem);
        }
    }
}
