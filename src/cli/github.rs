//! Reports to a step of GitHub Actions (`--github`): its outputs, its summary, and annotations on stderr.

use super::environment;
use super::out;
use super::outputs::{self, WrittenOutputs};
use super::refusal::Refusal;
use crate::base::ids::hex;
use crate::journal;
use crate::report::github;
use crate::report::result::OutputFacts;
use crate::report::summary::RunSummary;
use crate::report::{markdown, text};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Random bytes in the delimiter of output values.
const RANDOM: usize = 24;

/// The files that the runner reads after the step.
#[derive(Clone, Debug)]
pub struct StepFiles {
    output: PathBuf,
    summary: PathBuf,
}

/// The files from the runner's variables.
///
/// # Errors
/// A variable is not set, so this is not a step of GitHub Actions.
pub fn files() -> Result<StepFiles, Refusal> {
    let file = |name: &str| {
        environment::variable(name).map(PathBuf::from).ok_or_else(|| {
            Refusal::Environment(format!(
                "--github: {name} is not set; it is set in a step of GitHub Actions, and names a file that the runner reads"
            ))
        })
    };
    Ok(StepFiles {
        output: file("GITHUB_OUTPUT")?,
        summary: file("GITHUB_STEP_SUMMARY")?,
    })
}

/// A random text that the author of a value cannot know.
fn delimiter() -> Result<String, Refusal> {
    let mut random = [0_u8; RANDOM];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| Refusal::Environment(format!("--github: no random bytes: {error}")))?;
    Ok(format!("overnight_{}", hex(&random)))
}

fn append(path: &Path, text: &str) -> Result<(), Refusal> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Refusal::Output(format!("{}: {error}", path.display())))
}

impl StepFiles {
    /// Whether both files can be written, so that no run is paid for whose outputs the step would not get.
    ///
    /// # Errors
    /// [`Refusal::Output`]: a file cannot be opened.
    pub fn check(&self) -> Result<(), Refusal> {
        append(&self.output, "").and_then(|()| append(&self.summary, ""))
    }

    /// Appends outputs and summary, and prints the annotations.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn publish(&self, values: &[(&str, String)], summary: &str, annotations: &str) -> Result<(), Refusal> {
        self.append_values(values)?;
        let taken = std::fs::metadata(&self.summary).map_or(0, |data| data.len());
        let room = (github::SUMMARY_BYTES as u64).saturating_sub(taken);
        if summary.len() as u64 <= room {
            append(&self.summary, &format!("{summary}\n"))?;
        } else {
            out::stderr("warning: the step's summary is full: the summary of this run is only in its directory");
        }
        out::workflow_commands(annotations);
        Ok(())
    }

    fn append_values(&self, values: &[(&str, String)]) -> Result<(), Refusal> {
        // A value must not begin in a line that another command of the step left open; the runner skips empty lines.
        append(&self.output, &format!("\n{}", github::outputs(values, &delimiter()?)))
    }

    /// Publishes the outputs of a run again, whose result has changed since; for the runner the later ones count. The
    /// summary stays as it is.
    pub fn publish_values(&self, written: &mut WrittenOutputs) {
        let done = self.append_values(&github::run_outputs(&written.result));
        note(done, written);
    }

    /// Publishes a run from its journal. A file that cannot be written becomes a problem of the outputs.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn publish_run(&self, home: &Path, written: &mut WrittenOutputs) -> Result<(), Refusal> {
        let journal = journal::read(home)?;
        let sum = RunSummary::fold(&journal.events);
        let ending = OutputFacts {
            exit_code: i32::from(written.code),
            artefacts: written.result.artefacts.clone(),
            ..OutputFacts::default()
        };
        let (summary, annotations) = (markdown::summary(&sum, &ending), github::annotations(&sum, &ending));
        let done = self.publish(&github::run_outputs(&written.result), &summary, &annotations);
        note(done, written);
        Ok(())
    }
}

/// Publishes a run that could not start. Without the runner's files there is nothing to publish to; the refusal itself
/// says so.
pub fn publish_refusal(written: &mut WrittenOutputs) {
    let Ok(files) = files() else { return };
    let done = files.publish(
        &github::run_outputs(&written.result),
        &markdown::unstarted(&written.result),
        &github::unstarted(&written.result),
    );
    note(done, written);
}

fn note(done: Result<(), Refusal>, written: &mut WrittenOutputs) {
    if let Err(refusal) = done {
        written.problems.push(refusal.to_string());
        written.code = outputs::add_unwritten(written.code, &mut written.result);
    }
}

/// A job of a batch that needs attention: its name, its state and why.
#[derive(Clone, Debug)]
pub struct JobNotice<'a> {
    pub job: &'a str,
    pub state: &'a str,
    pub message: &'a str,
}

/// The annotations of a batch: one for each of these jobs.
pub fn of_jobs(jobs: &[JobNotice<'_>]) -> String {
    let one = |job: &JobNotice<'_>| {
        let title = format!("{}: {}", text::line(job.job, 120), text::line(job.state, 40));
        let message = if job.message.is_empty() { job.state } else { job.message };
        github::Annotation::new(github::Level::Error, &title, message)
    };
    let all: Vec<github::Annotation> = jobs.iter().map(one).collect();
    github::limited(&all, "result.json and report.html of the batch")
}
