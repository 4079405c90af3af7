//! Finds mistakes that would certainly cause a failure at run time: unknown model names, commands with bash syntax
//! errors, missing context files.

use crate::diag::{Diagnostic, Spanned};
use crate::policy::shell;
use crate::provider::open::check_name;
use crate::recipe::Recipe;
use crate::recipe::model::StepSource;
use std::path::Path;

/// The problems of a recipe; missing files are checked only if a workspace is given.
pub fn problems(recipe: &Recipe, workspace: Option<&Path>) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for model in &recipe.models {
        if let Err(why) = check_name(&model.value) {
            found.push(Diagnostic::error("unknown-model", model.span, why));
        }
    }
    for step in &recipe.steps {
        if let StepSource::Run { command, .. } = &step.work {
            found.extend(broken(command));
        }
        for check in &step.checks {
            found.extend(check.what.command().and_then(broken));
        }
    }
    if let Some(root) = workspace {
        for path in recipe.context.iter().filter(|path| !is_there(root, &path.value)) {
            let message = format!("{} has no `{}`", root.display(), path.value);
            let problem = Diagnostic::error("no-context-file", path.span, message);
            found.push(
                problem.help("name a file of the workspace; in a run this is a warning unless it is `required: true`"),
            );
        }
    }
    if let Some(root) = workspace {
        for path in recipe.skills.iter().filter(|path| !is_there(root, &path.value)) {
            let message = format!("{} has no skill `{}`", root.display(), path.value);
            let problem = Diagnostic::error("no-skill", path.span, message);
            found.push(
                problem.help("name a SKILL.md of the workspace, or a directory with one; in a run this is a warning"),
            );
        }
    }
    found
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
            "this is not a bash command: a quote or bracket is not closed",
        )
        .help("try it with `bash -n`")
    })
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

#[cfg(test)]
mod tests {
    use super::*;

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
