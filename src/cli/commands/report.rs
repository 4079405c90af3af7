//! Implements `overnight report`: renders any output again from the journal.

use super::printed;
use crate::cli::args::ReportArgs;
use crate::cli::outputs::{self, Copies};
use crate::cli::refusal::Refusal;
use crate::cli::{exit, github, out, variables};
use crate::journal::no_follow::settled;
use crate::journal::run_dirs::RefusedRun;
use crate::journal::{self, JournalError, run_dirs};
use crate::report::export::{self, RenderContext, ReportFile};
use crate::report::findings;
use crate::report::markdown;
use crate::report::result::{self, OutputFacts};
use crate::report::summary::RunSummary;
use std::path::Path;

/// Writes one output to stdout, or all files to the run directory.
///
/// # Errors
/// [`Refusal::Environment`] if there is no such run, its journal cannot be read, or `--github` is given outside of a
/// step of GitHub Actions; [`Refusal::Usage`] for a wrong value of `OVERNIGHT_GITHUB`; [`Refusal::Output`] if stdout or
/// a file of the step cannot be written.
pub fn report(args: &ReportArgs) -> Result<u8, Refusal> {
    let run = match &args.run {
        Some(run) => run.clone(),
        None => run_dirs::newest(&args.workspace)?,
    };
    let located = run_dirs::locate(&run, &args.workspace);
    let step = match variables::github(args.github)? {
        true => Some(github::files()?),
        false => None,
    };
    if let Err(JournalError::NeverBegan { dir, .. }) = &located
        && let Some(refused) = run_dirs::refused(Path::new(dir))
    {
        return of_refused(Path::new(dir), &refused, args.format, step.is_some());
    }
    // The files of a run name absolute paths, wherever they are written again.
    let dir = settled(&located?);
    let Some(format) = args.format else {
        let mut written = outputs::write(&dir, &args.workspace, &Copies::default(), None)?;
        if let Some(step) = step {
            step.publish_run(&dir, &mut written)?;
        }
        for problem in &written.problems {
            out::stderr(&format!("error: not written: {problem}"));
        }
        let files: String = written
            .result
            .artefacts
            .iter()
            .filter(|(name, _)| *name != result::DIRECTORY)
            .map(|(_, path)| format!("{path}\n"))
            .collect();
        printed(&files)?;
        return Ok(if written.problems.is_empty() {
            exit::PASSED
        } else {
            exit::OUTPUT
        });
    };
    let journal = journal::read(&dir)?;
    let events = &journal.events;
    let sum = RunSummary::fold(events);
    let patch = outputs::patch_bytes(&dir, &sum)?;
    let ending = OutputFacts {
        exit_code: i32::from(exit::code(&sum.outcome)),
        artefacts: outputs::existing(&dir),
        digests: outputs::digests(&dir)?,
        journal: Some(outputs::head(&journal)),
    };
    let beside = RenderContext {
        ending: &ending,
        declared: outputs::declared(&sum),
        patch: (!patch.is_empty()).then_some(patch.as_slice()),
    };
    if let Some(step) = step {
        let values = crate::report::github::run_outputs(&result::result(&sum, &ending));
        let annotations = crate::report::github::annotations(&sum, &ending);
        step.publish(&values, &crate::report::markdown::summary(&sum, &ending), &annotations)?;
    }
    if format == ReportFile::Result {
        let mut object = result::result(&sum, &ending);
        outputs::seal(&mut object, journal.keyed)?;
        return printed(&object.to_pretty());
    }
    if matches!(
        format,
        ReportFile::Sarif | ReportFile::Rdjson | ReportFile::Codequality | ReportFile::Checkstyle | ReportFile::Github
    ) {
        for problem in findings::collect(&sum).1 {
            out::stderr(&format!("warning[finding]: {problem}"));
        }
    }
    let bytes = export::render(format, &sum, beside).map_err(|error| Refusal::Output(error.to_string()))?;
    let printed = match format {
        ReportFile::Text | ReportFile::Summary | ReportFile::Review => {
            out::stdout_of_others(&String::from_utf8_lossy(&bytes))
        }
        // Not escaped: this output consists of workflow commands.
        ReportFile::Github => out::stdout_bytes(&bytes),
        _ => match std::str::from_utf8(&bytes) {
            Ok(json) if json.starts_with(['{', '[']) => out::stdout_of_others(json),
            _ => out::stdout_of_programs(&bytes),
        },
    };
    printed.map_err(|error| Refusal::Output(format!("stdout: {error}")))?;
    Ok(exit::PASSED)
}

/// Reports a run that was refused before it began: the files that the refusal left, or what they say.
fn of_refused(dir: &Path, refused: &RefusedRun, format: Option<ReportFile>, in_step: bool) -> Result<u8, Refusal> {
    let mut written = outputs::unstarted(&refused.outcome(), &refused.recipe);
    if in_step {
        github::publish_refusal(&mut written);
        outputs::report_problems(&written);
    }
    let code = match written.problems.is_empty() {
        true => exit::PASSED,
        false => exit::OUTPUT,
    };
    let text = match format {
        None => {
            let files = ["junit.xml", "result.json"].map(|name| dir.join(name));
            let there = files.iter().filter(|file| file.is_file());
            there.map(|file| format!("{}\n", file.display())).collect()
        }
        Some(ReportFile::Text) => String::new(),
        Some(ReportFile::Summary) => markdown::unstarted(&written.result),
        Some(format @ (ReportFile::Result | ReportFile::Junit)) => {
            let path = dir.join(format.file().unwrap_or_default());
            std::fs::read_to_string(&path)
                .map_err(|error| Refusal::Environment(format!("cannot read {}: {error}", path.display())))?
        }
        Some(format) => {
            return Err(Refusal::Environment(format!(
                "the run in {} failed before it started ({}), so there is no {} report: {}",
                dir.display(),
                refused.verdict.as_str(),
                format.as_str(),
                refused.message
            )));
        }
    };
    printed(&text)?;
    Ok(code)
}
