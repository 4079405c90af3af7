//! `report.html` of a batch: one self-contained page. Its script filters and sorts the table; the content security
//! policy names the digests of that script and of the style, so nothing else runs. All text from outside is escaped.

use super::evaluation::ModelScore;
use super::job_result::JobDisposition;
use super::result::{BatchResult, JobReport};
use crate::base::percent::encode_path;
use crate::report::html_head::head;
use crate::report::text;
use maud::{DOCTYPE, Markup, html};
use std::io::{self, Write};

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/table.js");
/// Row limit of the table; when there are more jobs, those that did not pass come first.
const MAX_ROWS: usize = 20_000;

/// Writes the page.
///
/// # Errors
/// Write errors of `out`.
pub fn write(out: &mut dyn Write, result: &BatchResult, jobs: &[JobReport]) -> io::Result<()> {
    let title = format!("{}: {}", text::line(&result.name, 80), result.verdict.replace('_', " "));
    writeln!(
        out,
        "{}<html lang=\"en\">{}<body>",
        DOCTYPE.into_string(),
        head(&title, STYLE, Some(SCRIPT)).into_string()
    )?;
    writeln!(out, "{}<main>", header(result).into_string())?;
    if !result.evaluation.is_empty() {
        writeln!(out, "{}", matrix(&result.evaluation).into_string())?;
    }
    table(out, jobs)?;
    writeln!(out, "</main><script>{SCRIPT}</script></body></html>")
}

fn colour(state: &str) -> &'static str {
    match state {
        "passed" | "no_change" => "good",
        "suspended" | "not_run" | "skipped" | "cancelled" | "budget" | "incomplete" => "wait",
        _ => "bad",
    }
}

fn header(result: &BatchResult) -> Markup {
    let counts = &result.jobs;
    html! {
        header {
            h1 { (text::line(&result.name, 80)) " "
                span class={ "pill " (colour(&result.verdict)) } { (result.verdict.replace('_', " ")) }
            }
            @if let Some(reason) = &result.stopped { p { "No more jobs were started: " (text::line(reason, 300)) } }
            dl {
                (fact("Jobs", &counts.total.to_string()))
                (fact("Run", &counts.run.to_string()))
                (fact("Up to date", &counts.up_to_date.to_string()))
                (fact("Not run", &counts.not_run.to_string()))
                @for (word, count) in &counts.verdicts { (fact(&word.replace('_', " "), &count.to_string())) }
                (fact("Cost", &format!("{}${:.4}", if result.unpriced { "at least " } else { "" }, result.cost)))
                (fact("Tokens", &text::grouped(result.usage.tokens)))
                @if let Some(shard) = &result.shard { (fact("Shard", shard)) }
            }
        }
    }
}

fn fact(name: &str, value: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn matrix(scores: &[ModelScore]) -> Markup {
    html! {
        section {
            h2 { "Recipes and models" }
            div.scroll { table {
                thead { tr {
                    th { "Recipe" } th { "Model" } th.n { "Jobs" } th.n { "Passed" } th.n { "Rate" } th { "95 % interval" }
                    th { "Pass@k" } th.n { "Cost" } th.n { "Time" }
                } }
                tbody { @for score in scores { tr {
                    td { (text::line(&score.recipe, 80)) }
                    td { (text::line(&score.model, 80)) }
                    td.n { (score.jobs) }
                    td.n { (score.passed) "/" (score.trials)
                        @if score.not_judged > 0 { " " small { "(" (score.not_judged) " not judged)" } }
                    }
                    td.n { (percent(score.rate)) }
                    td { meter min="0" max="1" value=(format!("{:.3}", score.rate)) {} " " (percent(score.low)) " to " (percent(score.high)) }
                    td { @for (k, value) in score.pass_at.iter().take(5) { "@" (k) " " (percent(*value)) " " } }
                    td.n { "$" (format!("{:.4}", score.cost)) }
                    td.n { (format!("{:.1} s", score.seconds)) }
                } } }
            } }
        }
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn table(out: &mut dyn Write, jobs: &[JobReport]) -> io::Result<()> {
    let mut states: Vec<&str> = jobs.iter().map(|job| job.state.as_str()).collect();
    states.sort_unstable();
    states.dedup();
    let head = html! {
        h2 { "Jobs" }
        p.tools {
            label { "Search " input #search type="search" placeholder="job, target, model, message"; }
            label { "Outcome " select #state {
                option value="" { "all" }
                @for state in &states { option value=(state) { (state.replace('_', " ")) } }
            } }
            span #shown {}
        }
        @if jobs.len() > MAX_ROWS {
            p { "The table lists " (MAX_ROWS) " of " (jobs.len()) " jobs, those that did not pass first; all are in runs.jsonl." }
        }
    };
    writeln!(out, "<section>{}", head.into_string())?;
    let columns = [
        "Job", "Outcome", "Recipe", "Target", "Model", "Trial", "Cost", "Tokens", "Time", "Message",
    ];
    let heads = html! { thead { tr { @for column in columns {
        th.n[matches!(column, "Trial" | "Cost" | "Tokens" | "Time")] scope="col" { button type="button" { (column) } }
    } } } };
    write!(
        out,
        "<div class=\"scroll\"><table id=\"jobs\">{}<tbody>",
        heads.into_string()
    )?;
    let is_open = |job: &&JobReport| !matches!(job.state.as_str(), "passed" | "no_change" | "skipped");
    let cut = jobs.len() > MAX_ROWS;
    let (open, rest): (Vec<&JobReport>, Vec<&JobReport>) = match cut {
        true => jobs.iter().partition(|job| is_open(job)),
        false => (jobs.iter().collect(), Vec::new()),
    };
    for job in open.into_iter().chain(rest).take(MAX_ROWS) {
        writeln!(out, "{}", row(job).into_string())?;
    }
    writeln!(out, "</tbody></table></div></section>")
}

fn row(job: &JobReport) -> Markup {
    let row = job.row.as_ref();
    let text_of = |get: fn(&super::rows::RunRow) -> &str| row.map_or(String::new(), |row| text::line(get(row), 120));
    let page = row.and_then(|row| row.run.as_deref()).filter(|run| is_local(run));
    let patch = row.and_then(|row| row.patch.as_deref()).filter(|patch| is_local(patch));
    html! {
        tr data-s=(job.state) {
            td {
                @match page {
                    Some(run) => { a href=(link(run, "/report.html")) { (text::line(&job.job, 120)) } }
                    None => { (text::line(&job.job, 120)) }
                }
                @if let Some(patch) = patch { " " a.patch href=(link(patch, "")) { "patch" } }
            }
            td { span class={ "pill " (colour(&job.state)) } { (job.state.replace('_', " ")) }
                @if job.disposition == JobDisposition::UpToDate { " " small { "up to date" } }
            }
            td { (text_of(|row| &row.recipe)) }
            td { (text_of(|row| &row.target)) }
            td { (text_of(|row| &row.model)) }
            td.n { (row.map_or(String::new(), |row| row.trial.to_string())) }
            td.n { (row.map_or(String::new(), |row| format!("{:.4}", row.cost))) }
            td.n { (row.map_or(String::new(), |row| row.tokens.to_string())) }
            td.n { (row.map_or(String::new(), |row| format!("{:.1}", row.seconds))) }
            td { (text::line(&job.message, 200)) }
        }
    }
}

/// Whether a path in a row is relative and stays inside the directory: rows of a bundle may come from elsewhere.
fn is_local(path: &str) -> bool {
    !path.starts_with('/') && !path.contains(':') && !path.contains('\\')
}

fn link(path: &str, more: &str) -> String {
    encode_path(path) + more
}
