//! Selects the web search of a run: the model's own, a SearXNG server, a command of the user, or none.

use super::environment::variable;
use crate::base::percent;
use crate::base::secret::bounded;
use crate::net::client::{Client, Limits, Until, checked_base};
use crate::net::retry::Schedule;
use crate::process::unsandboxed;
use crate::provider::RequestSettings;
use crate::provider::grounding::{self, Grounded};
use crate::provider::open::{OpenWith, service};
use crate::tools::web::{Citation, Search, SearchAnswer, WebSource};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Base URL of a SearXNG server with the JSON format enabled.
const SEARXNG: &str = "OVERNIGHT_SEARXNG_URL";
/// A shell command that reads the query from stdin and prints the results.
pub const COMMAND: &str = "OVERNIGHT_SEARCH_COMMAND";

/// Upper limit for the results of one search.
const RESULTS: usize = 10;
/// Upper limit for the bytes of a response.
const ANSWER_MOST: usize = 1 << 20;
/// Upper limit for the bytes that a command of a search may print; of these, [`ANSWER_MOST`] are used.
const PRINTED_MOST: usize = 16 << 20;
const TIME: Duration = Duration::from_secs(60);

/// The search for a run with this model. A search that the user configured has precedence over the model's own.
pub fn of(model: Option<&str>, base_url: Option<&str>) -> Option<Search> {
    if let Some(url) = variable(SEARXNG) {
        return Some(searxng(url));
    }
    if let Some(command) = variable(COMMAND) {
        return Some(by_command(command));
    }
    gemini(model?, base_url)
}

/// A search that finds nothing: for a replay of a run that had a search.
pub fn none() -> Search {
    Arc::new(|_, _, _| Box::pin(async { Err("no search is configured here".to_owned()) }))
}

fn gemini(model: &str, base_url: Option<&str>) -> Option<Search> {
    if !model.starts_with("gemini/") {
        return None;
    }
    let with = OpenWith {
        env: &variable,
        base_url,
        read: &|_| Err("a search reads no file".to_owned()),
        limits: Limits::default(),
        schedule: Schedule::default(),
        settings: RequestSettings::default(),
    };
    let service = Arc::new(service(model, &with).ok()?);
    let client = Arc::new(Client::new(Limits::default()));
    Some(Arc::new(move |query, cancel, deadline| {
        let (service, client) = (Arc::clone(&service), Arc::clone(&client));
        Box::pin(async move {
            let until = within(deadline, &cancel);
            let found = grounding::search(&service, &client, &query, until).await;
            found.map(from_grounded).map_err(|error| error.message)
        })
    }))
}

fn within(deadline: Instant, cancel: &CancellationToken) -> Until<'_> {
    Until {
        deadline: deadline.min(Instant::now() + TIME),
        cancel,
    }
}

fn from_grounded(found: Grounded) -> SearchAnswer {
    let sources = found.sources.into_iter().map(|(title, url)| WebSource { title, url });
    let marks = found
        .supports
        .into_iter()
        .map(|(end, sources)| Citation { end, sources });
    SearchAnswer {
        text: found.text,
        sources: sources.collect(),
        marks: marks.collect(),
    }
}

fn searxng(base: String) -> Search {
    let client = Arc::new(Client::new(Limits::default()));
    Arc::new(move |query, cancel, deadline| {
        let (base, client) = (base.clone(), Arc::clone(&client));
        Box::pin(async move {
            let base = checked_base(&base).map_err(|why| format!("{SEARXNG}: {why}"))?;
            let url = format!("{base}/search?format=json&q={}", percent::encode(&query));
            let until = within(deadline, &cancel);
            let mut answer = client.get(&url, until).await.map_err(|trouble| trouble.to_string())?;
            let text = answer
                .text(ANSWER_MOST, until)
                .await
                .map_err(|trouble| trouble.to_string())?;
            if answer.status != 200 {
                return Err(format!(
                    "the server of {SEARXNG} answered with HTTP status {}",
                    answer.status
                ));
            }
            let value: Value = serde_json::from_str(&text)
                .map_err(|_| format!("the server of {SEARXNG} does not return JSON (is `json` among its formats?)"))?;
            Ok(listed(&value["results"]))
        })
    })
}

fn by_command(command: String) -> Search {
    Arc::new(move |query, cancel, deadline| {
        let command = command.clone();
        Box::pin(async move {
            let time = within(deadline, &cancel)
                .deadline
                .saturating_duration_since(Instant::now());
            let printed = tokio::select! {
                () = cancel.cancelled() => return Err("the run is ending".to_owned()),
                printed = unsandboxed::own_command(Path::new("."), &command, query.as_bytes(), (time, PRINTED_MOST)) => printed?,
            };
            if !printed.ok {
                return Err(format!("the command of {COMMAND} failed: {}", printed.stderr));
            }
            let text = String::from_utf8_lossy(&bounded(printed.stdout, ANSWER_MOST)).into_owned();
            Ok(match serde_json::from_str(&text) {
                Ok(results @ Value::Array(_)) => listed(&results),
                _ => SearchAnswer {
                    text,
                    ..SearchAnswer::default()
                },
            })
        })
    })
}

/// A list of `{title, url, content}` as text with its sources.
fn listed(results: &Value) -> SearchAnswer {
    let mut answer = SearchAnswer::default();
    for result in results.as_array().into_iter().flatten().take(RESULTS) {
        let word = |name: &str| result[name].as_str().unwrap_or_default().trim().to_owned();
        answer.text.push_str(&word("content"));
        answer.marks.push(Citation {
            end: answer.text.len(),
            sources: vec![answer.sources.len()],
        });
        answer.text.push('\n');
        answer.sources.push(WebSource {
            title: word("title"),
            url: word("url"),
        });
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_of_results_is_text_with_marks() {
        let answer = listed(&json!([
            { "title": "A", "url": "https://a.test", "content": "One thing." },
            { "title": "B", "url": "https://b.test" },
        ]));
        assert_eq!(answer.text, "One thing.\n\n");
        assert_eq!(answer.marks.iter().map(|mark| mark.end).collect::<Vec<_>>(), [10, 11]);
        assert_eq!(answer.sources[1].url, "https://b.test");
        assert_eq!(listed(&Value::Null), SearchAnswer::default());
    }

    #[tokio::test]
    async fn a_command_reads_the_query_and_prints_results() {
        let deadline = Instant::now() + Duration::from_secs(10);
        let search = by_command("printf 'found: '; cat".to_owned());
        let answer = search("x y".to_owned(), CancellationToken::new(), deadline)
            .await
            .unwrap();
        assert_eq!(answer.text, "found: x y");
        let search = by_command("echo no >&2; exit 3".to_owned());
        let why = search("x".to_owned(), CancellationToken::new(), deadline)
            .await
            .unwrap_err();
        assert!(why.contains("failed: no"), "{why}");
    }
}
