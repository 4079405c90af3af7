//! Shows the progress of a batch: on a terminal a bar with jobs, outcomes, cost and remaining time, elsewhere one line
//! for each event.

use super::budget::JobSpending;
use super::rows::RunRow;
use crate::base::quote::counted;
use crate::report::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Redraws of the bar per second.
const DRAWN: u8 = 8;

/// Writes lines to stderr, with control characters escaped.
pub type PrintLine = Box<dyn Fn(&str)>;

/// The display of a running batch.
pub struct BatchProgress {
    print_line: PrintLine,
    /// On a terminal.
    bar: Option<ProgressBar>,
    quiet: bool,
    total: usize,
    began: Instant,
    /// The last verdict of each job that ended; a retry counts as the same job.
    ended: BTreeMap<String, String>,
    cost_micros: u64,
    /// The service whose pause was shown last, so that it is shown once.
    paused: Option<String>,
}

impl BatchProgress {
    /// `terminal`: draw a bar; otherwise print lines. `quiet`: show nothing.
    pub fn new(terminal: bool, quiet: bool, print_line: PrintLine) -> Self {
        let bar = (terminal && !quiet).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(DRAWN));
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            print_line,
            bar,
            quiet,
            total: 0,
            began: Instant::now(),
            ended: BTreeMap::new(),
            cost_micros: 0,
            paused: None,
        }
    }

    fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| (self.print_line)(text)),
            None => (self.print_line)(text),
        }
    }

    /// Shows the start of a call that runs `jobs` jobs; `others` need no run.
    pub fn begin(&mut self, jobs: usize, others: usize) {
        self.total = jobs;
        self.began = Instant::now();
        if let Some(bar) = &self.bar {
            bar.set_length(jobs as u64);
        }
        self.line(&format!(
            "overnight: {} to run, {others} up to date or left out",
            counted(jobs, "job")
        ));
    }

    /// A job's process was started.
    pub fn started(&mut self, job: &str, resumed: bool) {
        if self.bar.is_none() {
            let what = if resumed { "resumed" } else { "started" };
            self.line(&format!("{job} {what}"));
        }
    }

    /// An attempt ended.
    pub fn ended(&mut self, row: &RunRow) {
        self.ended.insert(row.job.clone(), row.verdict.clone());
        let done = self.ended.len();
        let mut line = format!(
            "[{}/{}] {} {} {:.1} s ${:.4}",
            done, self.total, row.job, row.verdict, row.seconds, row.cost
        );
        if !row.is_success() && !row.message.is_empty() {
            line.push_str(&format!(": {}", text::line(&row.message, 200)));
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position(done.min(self.total) as u64);
                if !row.is_success() {
                    self.line(&line);
                }
            }
            None => self.line(&line),
        }
    }

    /// Shows a message about the whole batch.
    pub fn note(&mut self, text: &str) {
        self.line(&format!("overnight: {text}"));
    }

    /// Updates the bar several times a second: running and waiting jobs, cost so far, and the pause that a service
    /// asked for.
    pub fn tick(&mut self, running: usize, waiting: usize, spent: JobSpending, pause: Option<(String, u64)>) {
        self.cost_micros = spent.cost_micros;
        match &pause {
            Some((model, ms)) if self.paused.as_ref() != Some(model) => {
                self.note(&format!("{model} asks for a pause of {}", text::duration(*ms)));
                self.paused = Some(model.clone());
            }
            None => self.paused = None,
            Some(_) => {}
        }
        let Some(bar) = &self.bar else { return };
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for verdict in self.ended.values() {
            *counts.entry(verdict).or_default() += 1;
        }
        let verdicts: Vec<String> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let mut message = format!("{running} running, {waiting} waiting");
        if !verdicts.is_empty() {
            message.push_str(&format!("; {}", verdicts.join(", ")));
        }
        message.push_str(&format!("; {}", text::dollars(self.cost_micros)));
        if let Some((_, ms)) = pause {
            message.push_str(&format!("; paused for {}", text::duration(ms)));
        } else if let Some(left) = self.left(running + waiting) {
            message.push_str(&format!("; about {} left", text::duration(left)));
        }
        bar.set_message(message);
    }

    /// Estimated milliseconds for the remaining jobs at the pace so far.
    fn left(&self, jobs: usize) -> Option<u64> {
        let done = u32::try_from(self.ended.len()).ok().filter(|done| *done > 0)?;
        let each: Duration = self.began.elapsed() / done;
        let jobs = u32::try_from(jobs).ok()?;
        u64::try_from(each.saturating_mul(jobs).as_millis()).ok()
    }

    /// Called when the call is over.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
