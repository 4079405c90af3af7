//! `summary.md` of a batch: for a CI step summary or a chat message.

use super::result::{BatchResult, JobReport};
use crate::base::quote::counted;
use crate::report::text;

/// Limit of jobs that are listed.
const LISTED: usize = 100;

/// The page. Text from outside is put into code spans or escaped.
pub fn page(result: &BatchResult, name: &str, jobs: &[JobReport]) -> String {
    let mut page = format!("## {}: {}\n\n", cell(name), result.verdict.replace('_', " "));
    let counts: Vec<String> = result
        .jobs
        .verdicts
        .iter()
        .map(|(word, n)| format!("{n} {}", word.replace('_', " ")))
        .collect();
    page.push_str(&format!(
        "{}: {} run, {} up to date, {} not run{}{}. ${:.4}, {} tokens.\n",
        counted(result.jobs.total, "job"),
        result.jobs.run,
        result.jobs.up_to_date,
        result.jobs.not_run,
        if counts.is_empty() { "" } else { "; " },
        counts.join(", "),
        result.cost,
        text::grouped(result.usage.tokens)
    ));
    if let Some(reason) = &result.stopped {
        page.push_str(&format!("\nNo more jobs were started: {}\n", cell(reason)));
    }
    if !result.evaluation.is_empty()
        && (result.evaluation.len() > 1 || result.evaluation.iter().any(|score| score.trials > score.jobs))
    {
        page.push_str("\n| recipe | model | passed | rate | 95 % interval | cost | time |\n| --- | --- | --- | --- | --- | --- | --- |\n");
        for score in &result.evaluation {
            page.push_str(&format!(
                "| {} | {} | {}/{}{} | {:.1} % | {:.1} to {:.1} % | ${:.4} | {:.0} s |\n",
                cell(&score.recipe),
                cell(&score.model),
                score.passed,
                score.trials,
                match score.not_judged {
                    0 => String::new(),
                    n => format!(" ({n} not judged)"),
                },
                score.rate * 100.0,
                score.low * 100.0,
                score.high * 100.0,
                score.cost,
                score.seconds
            ));
        }
    }
    let open: Vec<&JobReport> = jobs
        .iter()
        .filter(|job| !matches!(job.state.as_str(), "passed" | "no_change" | "skipped"))
        .collect();
    if !open.is_empty() {
        page.push_str("\n| job | outcome | why |\n| --- | --- | --- |\n");
        for job in open.iter().take(LISTED) {
            page.push_str(&format!(
                "| {} | {} | {} |\n",
                cell(&job.job),
                job.state.replace('_', " "),
                cell(&job.message)
            ));
        }
        if open.len() > LISTED {
            page.push_str(&format!(
                "\n{} in `runs.jsonl`.\n",
                counted(open.len() - LISTED, "more job")
            ));
        }
    }
    page
}

/// Text from outside as one table cell: without markup, links and mentions.
fn cell(text: &str) -> String {
    let line = text::line(text, 200).replace('`', "'").replace('|', "¦");
    if line.is_empty() {
        String::new()
    } else {
        format!("`{line}`")
    }
}
