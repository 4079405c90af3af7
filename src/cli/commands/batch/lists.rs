//! The lists that a manifest names: files and commands whose lines are targets or inputs. The shell of a
//! command is killed at a signal and at the end of the batch's wall clock; processes that it started may continue.

use super::call_clock::CallClock;
use super::manifest_source::ManifestSource;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::batch::lines;
use crate::batch::manifest::{self, BatchManifest, TargetSource, TargetSpec};
use crate::cli::inputs as texts;
use crate::cli::refusal::Refusal;
use crate::diag::units::show_duration;
use crate::diag::{Diagnostic, SourceFiles, Spanned, YamlNode};
use crate::process::unsandboxed::{self, Printed};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Time limit for a command that lists targets.
const LIST_TIME: Duration = Duration::from_secs(600);

/// The name and text of a list.
type Listed = Result<(String, String), Box<Diagnostic>>;

/// Replaces each target that names a list by the lines of the list. A list that cannot be read is a problem.
///
/// # Errors
/// [`Refusal::Interrupted`]: a signal or the end of the batch's wall clock came while a command listed targets.
pub async fn expand_lists(
    parsed: &mut BatchManifest,
    source: &ManifestSource,
    clock: &mut CallClock,
    files: &mut SourceFiles,
    problems: &mut Vec<Diagnostic>,
) -> Result<(), Refusal> {
    let wall = parsed.settings.budget.wall();
    let mut targets = Vec::new();
    for target in std::mem::take(&mut parsed.targets) {
        let listed = match &target.source {
            TargetSource::Path(_) | TargetSource::Repo(_) => {
                targets.push(target);
                continue;
            }
            TargetSource::File(file) => list_file(file, source),
            TargetSource::Command(command) => list_command(command, source, clock, wall).await?,
        };
        for node in &nodes_of(listed, files, problems) {
            let Some(mut line) = manifest::target(node, false, problems) else {
                continue;
            };
            // Fields of the list's own entry are defaults for its lines.
            line.recipe = line.recipe.or_else(|| target.recipe.clone());
            line.git_ref = line.git_ref.or_else(|| target.git_ref.clone());
            line.params = line.params.or_else(|| target.params.clone());
            line.input = line.input.or_else(|| target.input.clone());
            line.inputs = line.input.is_none().then(|| target.inputs.clone()).flatten();
            line.model = line.model.or_else(|| target.model.clone());
            targets.push(line);
        }
    }
    parsed.targets = Vec::new();
    let mut read = HashMap::new();
    for target in targets {
        parsed
            .targets
            .extend(of_inputs(target, source, &mut read, files, problems));
    }
    Ok(())
}

/// A target for each line of its `inputs`; the target itself if it names none.
fn of_inputs(
    target: TargetSpec,
    source: &ManifestSource,
    read: &mut HashMap<String, Vec<YamlNode>>,
    files: &mut SourceFiles,
    problems: &mut Vec<Diagnostic>,
) -> Vec<TargetSpec> {
    let Some(list) = &target.inputs else {
        return vec![target];
    };
    // The lines of a list of targets may all have the inputs of that list.
    let nodes = match read.get(&list.value) {
        Some(nodes) => nodes.clone(),
        None => {
            let nodes = nodes_of(list_file(list, source), files, problems);
            read.insert(list.value.clone(), nodes.clone());
            nodes
        }
    };
    let one = |node: YamlNode| TargetSpec {
        head: node.span,
        input: Some(node),
        inputs: None,
        of_list: true,
        ..target.clone()
    };
    nodes.into_iter().map(one).collect()
}

/// The lines of a list; none where it cannot be read.
fn nodes_of(listed: Listed, files: &mut SourceFiles, problems: &mut Vec<Diagnostic>) -> Vec<YamlNode> {
    let (name, text) = match listed {
        Ok(found) => found,
        Err(problem) => {
            problems.push(*problem);
            return Vec::new();
        }
    };
    let file = files.add(name, text);
    let (nodes, found) = lines::parse(files, file);
    problems.extend(found);
    nodes
}

fn list_file(file: &Spanned<String>, source: &ManifestSource) -> Listed {
    let problem = |why: String| {
        let problem = Diagnostic::error("no-file", file.span, why);
        Box::new(problem.help("name a file of JSON Lines, relative to the manifest, or `-` for stdin"))
    };
    if file.value == "-" {
        if source.name == "stdin" {
            return Err(problem("stdin is already used for the manifest".to_owned()));
        }
        if source.stdin_read.replace(true) {
            return Err(problem(
                "stdin is already used for another list of this manifest".to_owned(),
            ));
        }
        let text = texts::stdin().map_err(|refusal| problem(refusal.to_string()))?;
        return Ok(("stdin".to_owned(), text));
    }
    let path = source.base.join(&file.value);
    let text = texts::text(&path).map_err(|refusal| problem(refusal.to_string()))?;
    Ok((path.display().to_string(), text))
}

/// `wall`: the wall-clock limit of the batch.
async fn list_command(
    command: &Spanned<String>,
    source: &ManifestSource,
    clock: &mut CallClock,
    wall: Option<Duration>,
) -> Result<Listed, Refusal> {
    let dir = match source.base.as_os_str().is_empty() {
        true => Path::new("."),
        false => &source.base,
    };
    let left = wall.map(|wall| wall.saturating_sub(clock.began.elapsed()));
    let time = left.map_or(LIST_TIME, |left| left.min(LIST_TIME));
    clock.watch()?;
    let printing = async { Ok::<_, Refusal>(unsandboxed::own_command(dir, &command.value, b"", time).await) };
    let printed = clock.unless_ended(printing).await?;
    if printed.is_err()
        && let Some(wall) = wall.filter(|wall| clock.began.elapsed() >= *wall)
    {
        let wall = show_duration(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        let message = format!(
            "the budget of the batch is used up: wall ({wall}), and `{}` was still listing targets; raise `budget.wall` in the \
             manifest, or make the command faster",
            command.value
        );
        return Err(Refusal::Interrupted(RunOutcome::new(
            Verdict::Budget,
            "limit:wall",
            message,
        )));
    }
    Ok(listed(command, printed))
}

/// The name and text of a list that a command printed.
fn listed(command: &Spanned<String>, printed: Result<Printed, String>) -> Listed {
    let problem = |why: String| {
        let problem = Diagnostic::error("command-failed", command.span, why);
        Box::new(problem.help("the command runs in the manifest's directory and prints one JSON object per line"))
    };
    let printed = printed.map_err(problem)?;
    if !printed.ok {
        let how = match printed.code {
            Some(code) => format!("the command failed with exit code {code}"),
            None => "the command was killed by a signal".to_owned(),
        };
        return Err(problem(match printed.stderr.lines().next_back() {
            Some(said) => format!("{how}: {said}"),
            None => how,
        }));
    }
    let text =
        String::from_utf8(printed.stdout).map_err(|_| problem("the output of the command is not UTF-8".to_owned()))?;
    Ok((format!("`{}`", command.value), text))
}
