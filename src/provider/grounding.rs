//! Web search through Gemini: one question, answered with the vendor's Google Search grounding. Separate from the run's
//! conversation.

use super::fault::{self, Fault};
use super::http::{Failed, Service};
use super::{ProviderClass, ProviderError};
use crate::net::client::{Client, HttpError, Until};
use crate::net::retry::{RetryDecision, chance};
use crate::net::wait::{WaitEnd, pause};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// Size limit of a response, in bytes.
const ANSWER_MOST: usize = 4 << 20;

/// An answer and its sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grounded {
    pub text: String,
    /// Title and URL.
    pub sources: Vec<(String, String)>,
    /// For a position in the text (UTF-8 bytes): the indices of the sources that support it.
    pub supports: Vec<(usize, Vec<usize>)>,
}

/// The request body.
pub fn request(query: &str) -> Value {
    json!({
        "contents": [{ "role": "user", "parts": [{ "text": query }] }],
        "tools": [{ "googleSearch": {} }],
    })
}

/// Parses a response.
pub fn read(answer: &Value) -> Grounded {
    let candidate = &answer["candidates"][0];
    let texts = candidate["content"]["parts"].as_array().into_iter().flatten();
    let texts = texts
        .filter(|part| part["thought"] != true)
        .filter_map(|part| part["text"].as_str());
    let metadata = &candidate["groundingMetadata"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let index = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let sources = metadata["groundingChunks"].as_array().into_iter().flatten();
    let supports = metadata["groundingSupports"].as_array().into_iter().flatten();
    Grounded {
        text: texts.collect(),
        sources: sources
            .map(|chunk| (word(&chunk["web"]["title"]), word(&chunk["web"]["uri"])))
            .collect(),
        supports: supports
            .filter_map(|support| {
                let end = index(&support["segment"]["endIndex"])?;
                let chunks = support["groundingChunkIndices"].as_array()?;
                Some((end, chunks.iter().filter_map(index).collect()))
            })
            .collect(),
    }
}

/// Asks, with retries by the service's schedule, when the request gate of a batch lets it. It does not close the gate:
/// a quota of searches says nothing about the model's own.
///
/// # Errors
/// As for a provider: the class and one sentence.
pub async fn search(
    service: &Service,
    client: &Client,
    query: &str,
    until: Until<'_>,
) -> Result<Grounded, ProviderError> {
    let mut waited = Duration::ZERO;
    let mut failed = 0;
    loop {
        let fault = match once(service, client, query, until).await {
            Ok(found) => return Ok(found),
            Err(Failed::Ended(end, _)) => return Err(ended(end)),
            Err(Failed::Barred(fault)) => return Err(fault.into()),
            Err(Failed::Fault(fault)) => fault,
        };
        failed += 1;
        let Some(pace) = fault.again else {
            return Err(fault.into());
        };
        let RetryDecision::Wait(length) = service.schedule.next(pace, failed, fault.asked, waited, chance()) else {
            return Err(fault.into());
        };
        waited = waited.saturating_add(length);
        if pause(length, until.deadline, until.cancel).await != WaitEnd::Over {
            return Err(fault.into());
        }
    }
}

fn ended(end: WaitEnd) -> ProviderError {
    let message = match end {
        WaitEnd::Cancelled | WaitEnd::Over => "cancelled while waiting for the search",
        WaitEnd::Deadline => "the time for the search is over",
    };
    ProviderError::new(ProviderClass::Cancelled, message)
}

/// As for a request of the run, but without its advice: a search has time limits of its own.
fn failed(trouble: HttpError) -> Failed {
    let message = trouble.to_string();
    match Failed::from(trouble) {
        Failed::Fault(fault) => Failed::Fault(Fault { message, ..fault }),
        other => other,
    }
}

async fn once(service: &Service, client: &Client, query: &str, until: Until<'_>) -> Result<Grounded, Failed> {
    service.pass_gate(until).await?;
    let url = format!("{}/v1beta/models/{}:generateContent", service.base, service.model);
    let headers = super::wire::headers(service.wire, service.key.as_ref());
    let body = request(query).to_string().into_bytes();
    let mut answer = client.post(&url, &headers, body, until).await.map_err(failed)?;
    let text = answer.text(ANSWER_MOST, until).await.map_err(failed)?;
    if answer.status != 200 {
        let fault = fault::from_answer(answer.status, |name| answer.header(name), &text, SystemTime::now());
        return Err(fault.into());
    }
    match serde_json::from_str(&text) {
        Ok(value) => Ok(read(&value)),
        Err(_) => Err(Fault::unusable("the response to the search is not JSON").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_recorded() {
        let answer: Value =
            serde_json::from_str(include_str!("../../fixtures/wire/gemini/search.response.json")).unwrap();
        let expected: Value =
            serde_json::from_str(include_str!("../../fixtures/wire/gemini/search.reply.json")).unwrap();
        let found = read(&answer);
        let got = json!({ "text": found.text, "sources": found.sources, "supports": found.supports });
        assert_eq!(got, expected);
        let asked: Value =
            serde_json::from_str(include_str!("../../fixtures/wire/gemini/search.request.json")).unwrap();
        assert_eq!(request("farben"), asked);
    }

    #[test]
    fn an_answer_without_sources_is_only_text() {
        assert_eq!(
            read(&json!({ "candidates": [{ "content": { "parts": [{ "text": "a" }] } }] })).text,
            "a"
        );
        assert_eq!(read(&json!({})), Grounded::default());
    }
}
