//! Finds mistakes that would certainly cause a failure at run time: unknown names of models and tools, commands with
//! bash syntax errors, command lines without a program, missing context files and prepared replies.

use super::environment;
use super::programs::{self, AbsentProgram, CommandPlace};
use super::refusal::Refusal;
use crate::base::call::ToolKind;
use crate::base::model_name::{REPLAY, SCRIPT};
use crate::diag::{self, Diagnostic, Span, Spanned};
use crate::journal::run_dirs;
use crate::policy::rule::is_later;
use crate::policy::shell;
use crate::process::private::RECIPE_VARIABLE;
use crate::provider::open::check_name;
use crate::recipe::model::{CheckKind, StepSource};
use crate::recipe::{Plan, Recipe};
use crate::tools::{builtin_specs, field_names, words};
use std::path::Path;

/// The problems of a recipe; missing files are checked only if a workspace is given.
pub fn problems(recipe: &Recipe, workspace: Option<&Path>) -> Vec<Diagnostic> {
    let mut found = unknown_models(recipe);
    found.extend(absent_replies(recipe, workspace));
    found.extend(unknown_tools(recipe));
    found.extend(no_programs(recipe));
    for step in &recipe.steps {
        if let StepSource::Run {
            command, allow_failure, ..
        } = &step.work
        {
            found.extend(broken(command));
            found.extend(Some(command).filter(|_| !allow_failure).and_then(hidden_failure));
        }
        for check in &step.checks {
            found.extend(check.what.command().and_then(broken));
            found.extend(check.what.command().and_then(hidden_failure));
            found.extend(empty_check(&check.what));
        }
    }
    if let Some(root) = workspace {
        found.extend(required_context(recipe, root));
        let required = |span| recipe.required_context.iter().any(|required| required.span == span);
        let others = recipe.context.iter().filter(|path| !required(path.span));
        found.extend(absent_context(others, root, Diagnostic::warning));
    }
    if let Some(root) = workspace {
        for path in recipe.skills.iter().filter(|path| !is_there(root, &path.value)) {
            let message = format!("{} has no skill `{}`", root.display(), path.value);
            let problem = Diagnostic::warning("no-skill", path.span, message);
            found.push(problem.help("name a SKILL.md of the workspace, or a directory with one"));
        }
    }
    found
}

/// The context files that the workspace lacks and that the recipe requires: a run with this tree does not begin.
pub fn required_context(recipe: &Recipe, workspace: &Path) -> Vec<Diagnostic> {
    absent_context(recipe.required_context.iter(), workspace, Diagnostic::error).collect()
}

/// One problem for each of these context files that the workspace lacks.
fn absent_context<'a>(
    paths: impl Iterator<Item = &'a Spanned<String>>,
    workspace: &Path,
    problem: impl Fn(&'static str, Span, String) -> Diagnostic,
) -> impl Iterator<Item = Diagnostic> {
    paths.filter(|path| !is_there(workspace, &path.value)).map(move |path| {
        let message = format!("{} has no `{}`", workspace.display(), path.value);
        problem("no-context-file", path.span, message).help("name a file of the workspace")
    })
}

/// The names in `model` that no provider has.
pub fn unknown_models(recipe: &Recipe) -> Vec<Diagnostic> {
    let wrong = |model: &Spanned<String>| {
        let why = check_name(&model.value).err()?;
        let help = "name a model of one of these, or give another one with `--model`";
        Some(Diagnostic::error("unknown-model", model.span, why).help(help))
    };
    recipe.models.iter().filter_map(wrong).collect()
}

/// Warns about files of prepared replies named in `model` that do not exist here. No error, because the recipe may be run
/// in another directory.
fn absent_replies(recipe: &Recipe, workspace: Option<&Path>) -> Vec<Diagnostic> {
    let tree = workspace.unwrap_or(Path::new("."));
    let absent = |model: &Spanned<String>| {
        let message = match (model.value.strip_prefix(SCRIPT), model.value.strip_prefix(REPLAY)) {
            (Some(file), _) if !Path::new(file).exists() => format!("there is no file `{file}` here"),
            (None, Some(run)) if run_dirs::locate(run, tree).is_err() => format!("there is no run `{run}` here"),
            _ => return None,
        };
        let problem = Diagnostic::warning("no-replies", model.span, message);
        Some(
            problem
                .help("name it as seen from the directory in which the run is started, or give a model with `--model`"),
        )
    };
    recipe.models.iter().filter_map(absent).collect()
}

/// The command lines of servers and of the discovery that name no program, or that need a shell: none reads them.
fn no_programs(recipe: &Recipe) -> Vec<Diagnostic> {
    let wrong = |text: &Spanned<String>, why: &str| {
        let message = format!("this command line cannot be started: {why}");
        Diagnostic::error("bad-command", text.span, message).help("write a program and its arguments")
    };
    let lines = recipe.tools.discovery.iter().flat_map(|(list, call)| [list, call]);
    let lines = lines.filter_map(|text| {
        let plain = with_recipe_dir(&text.value, "x");
        words::words(&plain).err().map(|why| wrong(text, &why))
    });
    let programs = recipe
        .tools
        .mcp_servers
        .iter()
        .filter_map(|server| server.command.as_ref());
    let nameless = programs.filter(|text| text.value.trim().is_empty());
    lines
        .chain(nameless.map(|text| wrong(text, "it names no program")))
        .collect()
}

/// The programs that the recipe's commands run in any case and that this machine lacks.
pub fn absent_programs(recipe: &Recipe, plan: &Plan, workspace: &Path) -> Vec<Diagnostic> {
    let one = |absent: AbsentProgram| {
        let step = |id: &str| recipe.steps.iter().find(|step| step.id.value == id);
        let command = match &absent.place {
            CommandPlace::Step(id) => match &step(id)?.work {
                StepSource::Run { command, .. } => command,
                StepSource::Prompt(_) | StepSource::Mcp { .. } => return None,
            },
            CommandPlace::Check { step: id, name } => {
                let mut checks = step(id)?.checks.iter();
                checks.find(|check| check.name.value == *name)?.what.command()?
            }
            CommandPlace::Call => recipe.tools.discovery.as_ref().map(|(_, call)| call)?,
        };
        let message = format!(
            "this machine has no program `{}`, which this command runs",
            absent.program
        );
        let problem = Diagnostic::error("no-program", command.span, message);
        Some(problem.help("install it on this machine, or name a program that it has"))
    };
    let root = environment::absolute(workspace);
    let absent = programs::absent(plan, &root, &environment::variables());
    absent.into_iter().filter_map(one).collect()
}

/// The problems of names in `tools.include`, `tools.exclude` and `budget.calls` that no tool can have. Names that only
/// servers or a discovery give to tools are checked when those have started.
pub fn unknown_tools(recipe: &Recipe) -> Vec<Diagnostic> {
    let tools = &recipe.tools;
    let is_discovered = tools.discovery.is_some() || tools.settings.is_some();
    let patterns = tools.include.iter().flatten().chain(&tools.exclude);
    let of_server = |pattern: &str| {
        let mut servers = tools.mcp_servers.iter();
        servers.any(|server| may_select_of(pattern, &server.name.value))
    };
    let unselected = patterns.filter(|pattern| !selects(&pattern.value) && !of_server(&pattern.value));
    let budgets = recipe.steps.iter().filter_map(|step| step.budget.as_ref());
    let limits = std::iter::once(&recipe.budget).chain(budgets);
    let limited = limits.flat_map(|budget| &budget.calls).map(|(name, _)| name);
    // Calls are counted by the name of their tool, so a limit of an alias would never be reached.
    let uncounted = limited.filter(|name| builtin_specs().iter().all(|spec| spec.name != name.value));
    let mut found: Vec<Diagnostic> = unselected
        .chain(uncounted)
        .filter(|name| !is_discovered && !is_later(&name.value))
        .map(unknown_tool)
        .collect();
    diag::diagnostic::sort(&mut found);
    found
}

/// Checks that `--tools` names only tools that can exist, with this recipe or with none; as [`unknown_tools`].
///
/// # Errors
/// [`Refusal::Usage`] with the first name that no tool can have.
pub fn tools_of_flag(names: Option<&[String]>, recipe: Option<&Recipe>) -> Result<(), Refusal> {
    let is_discovered =
        recipe.is_some_and(|recipe| recipe.tools.discovery.is_some() || recipe.tools.settings.is_some());
    let of_server = |name: &str| {
        let mut servers = recipe.into_iter().flat_map(|recipe| &recipe.tools.mcp_servers);
        servers.any(|server| may_select_of(name, &server.name.value))
    };
    let is_unknown = |name: &&String| !selects(name) && !of_server(name) && !is_later(name);
    let mut unknown = names.into_iter().flatten().filter(is_unknown);
    match unknown.next().filter(|_| !is_discovered) {
        None => Ok(()),
        Some(name) => Err(Refusal::Usage(format!(
            "--tools {name}: there is no tool `{name}`; {}",
            tool_help(name, builtin_specs().iter().map(|spec| spec.name.as_str()))
        ))),
    }
}

/// Whether a pattern of `tools` may select tools of a server, whose names are known when it has started.
pub fn may_select_of(pattern: &str, server: &str) -> bool {
    let start = format!("{server}__");
    pattern.starts_with(&start) || pattern.strip_suffix('*').is_some_and(|stem| start.starts_with(stem))
}

/// Whether a pattern of `tools` can select a tool without a server and a discovery.
fn selects(pattern: &str) -> bool {
    if let Some(kind) = pattern.strip_prefix("kind:") {
        return kind == ToolKind::Other.as_str() || builtin_specs().iter().any(|spec| spec.kind.as_str() == kind);
    }
    if let Some(origin) = pattern.strip_prefix("origin:") {
        return matches!(origin, "builtin" | "discovered" | "mcp") || origin.starts_with("mcp:");
    }
    let mut known = builtin_specs()
        .iter()
        .flat_map(|spec| std::iter::once(&spec.name).chain(&spec.aliases));
    match pattern.strip_suffix('*') {
        Some(start) => known.any(|name| name.starts_with(start)),
        None => known.any(|name| name == pattern),
    }
}

fn unknown_tool(name: &Spanned<String>) -> Diagnostic {
    let specs = builtin_specs();
    let problem = Diagnostic::error("unknown-tool", name.span, format!("there is no tool `{}`", name.value));
    if let Some(spec) = specs.iter().find(|spec| spec.aliases.contains(&name.value)) {
        return problem.help(format!("write `{}`: calls are counted by this name", spec.name));
    }
    problem.help(tool_help(&name.value, specs.iter().map(|spec| spec.name.as_str())))
}

/// What to write for a tool that there is not.
pub fn tool_help<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = field_names::meant(name).or_else(|| field_names::of_server(name));
    match near.or_else(|| diag::similar_word(name, known)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`overnight tools list` shows the names".to_owned(),
    }
}

/// Whether a context file (without its `@`) exists. A path with a template or a pattern counts as existing, because it
/// is not known yet.
pub fn is_there(root: &Path, path: &str) -> bool {
    let path = path.strip_prefix('@').unwrap_or(path);
    path.contains(['{', '*', '?', '[']) || root.join(path).exists()
}

/// The problem of a command that bash cannot parse.
fn broken(command: &Spanned<String>) -> Option<Diagnostic> {
    shell::is_broken(&without_templates(&command.value)).then(|| {
        Diagnostic::error(
            "bad-command",
            command.span,
            "this is not a bash command: a quote, a bracket, an `if`, a loop or a `case` is not closed",
        )
        .help("`bash -n` says where")
    })
}

/// The warning for a pipe whose last program hides that the command before it failed.
fn hidden_failure(command: &Spanned<String>) -> Option<Diagnostic> {
    let hiding = programs::hiding_failure(&without_templates(&command.value))?;
    let message = format!("`{hiding}` at the end of this pipe hides a failure of the command before it");
    let problem = Diagnostic::warning("hidden-failure", command.span, message);
    Some(problem.help("begin with `set -o pipefail;`, or write it as several lines, which run under `pipefail`"))
}

/// The warning for a check that passes whatever the run does.
fn empty_check(check: &CheckKind) -> Option<Diagnostic> {
    let (span, message) = match check {
        CheckKind::Run { command, .. } | CheckKind::AnswerRun { command, .. } => {
            let is_nothing = programs::runs_nothing(&without_templates(&command.value));
            is_nothing.then_some((
                command.span,
                "this command is only a comment, and a comment always succeeds",
            ))
        }
        CheckKind::File { contains, .. } => {
            let empty = contains.as_ref().filter(|text| text.value.is_empty());
            empty.map(|text| {
                (
                    text.span,
                    "every file contains an empty text, so that this always passes",
                )
            })
        }
        CheckKind::Changed { .. } | CheckKind::AnswerSchema(_) => None,
    }?;
    let problem = Diagnostic::warning("empty-check", span, message);
    Some(problem.help("write what must hold, or remove it"))
}

/// The text with a word in place of each template expression; template statements and comments are removed.
fn without_templates(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest
        .find("{{")
        .into_iter()
        .chain(rest.find("{%"))
        .chain(rest.find("{#"))
        .min()
    {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let (close, word) = match from.get(..2) {
            Some("{{") => ("}}", "x"),
            Some("{%") => ("%}", ""),
            _ => ("#}", ""),
        };
        let Some(end) = from.find(close) else {
            return out;
        };
        out.push_str(word);
        rest = from.get(end + 2..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// A word of a command line of servers or discovery with this directory of the files beside the recipe.
pub fn with_recipe_dir(word: &str, dir: &str) -> String {
    word.replace(&format!("${{{RECIPE_VARIABLE}}}"), dir)
        .replace(&format!("${RECIPE_VARIABLE}"), dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::SourceFiles;

    fn unknown(text: &str) -> Vec<String> {
        let mut files = SourceFiles::default();
        let file = files.add(
            "r.yaml",
            format!("version: 1\nname: x\nsteps: [{{ id: a, prompt: Do it. }}]\n{text}"),
        );
        let recipe = crate::recipe::parse(&files, file, &mut Vec::new()).unwrap();
        let one = |problem: &Diagnostic| diag::render(&files, problem);
        unknown_tools(&recipe).iter().map(one).collect()
    }

    #[test]
    fn every_name_that_no_tool_can_have_is_found_where_it_is_written() {
        let text =
            "tools: { include: [read_fil, kind:red], exclude: [wrte_file] }\nbudget: { calls: { read_fil: 2 } }\n";
        let found = unknown(text);
        let starts = [
            "r.yaml:4:20: error[unknown-tool]: there is no tool `read_fil`",
            "r.yaml:4:30: error[unknown-tool]: there is no tool `kind:red`",
            "r.yaml:4:51: error[unknown-tool]: there is no tool `wrte_file`",
            "r.yaml:5:20: error[unknown-tool]: there is no tool `read_fil`",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (one, start) in found.iter().zip(starts) {
            assert!(one.starts_with(start), "{one}");
        }
        assert!(found[0].contains("did you mean `read_file`?") && found[2].contains("did you mean `write_file`?"));
        for text in [
            "tools: { include: [read_file, 'kind:edit', 'origin:mcp', 'read_*', docs__find, '*'] }\n",
            "tools: { exclude: [mine], discovery: { command: list, call: call } }\nbudget: { calls: { its: 1 } }\n",
            "budget: { calls: { docs__find: 1, glob: 2 } }\n",
            "tools: { include: ['docs*', 'docs_*'], mcp_servers: { docs: { command: x } } }\n",
        ] {
            assert_eq!(unknown(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn only_what_no_bash_would_read_is_broken() {
        for text in ["echo '", "if true; then", "(echo", "echo \"x"] {
            assert!(shell::is_broken(text), "{text}");
        }
        for text in [
            "echo 'a'",
            "for f in *.rs; do echo \"$f\"; done",
            "cat <<EOF\nit's\nEOF\n",
            "[[ a =~ ^(b|c)$ ]] && echo $((1 + 2))",
            "f() { local x=1; echo ${x:-2}; }; f",
            // Not parsed.
            "$(".repeat(100_000).as_str(),
        ] {
            assert!(!shell::is_broken(text), "{text}");
        }
    }

    #[test]
    fn templates_are_words() {
        assert_eq!(
            without_templates("echo {{ a }} {% if b %}c{% endif %}{# d #}!"),
            "echo x c!"
        );
    }
}
