//! A model reached over HTTP, independent of its wire: sends requests, retries, and returns one complete reply or one
//! typed failure.

use super::fault::{self, Fault};
use super::prefix::RequestPrefix;
use super::pricing;
use super::wire::names::real_name;
use super::wire::{self, DecodeReply, EncodeOptions, Wire};
use super::{AskContext, Discarded, FailedAttempt, ModelInfo, ModelRequest, Provider, ProviderClass, ProviderError};
use crate::base::event::ProgressEvent;
use crate::base::message::{Part, Reply, Usage};
use crate::base::quote::counted;
use crate::base::sync::lock;
use crate::net::client::{Client, HttpError, Limits, ResponseHead, Until, is_nearby};
use crate::net::gate::{GateRefusal, RequestGate};
use crate::net::retry::{RetryDecision, RetryKind, Schedule, chance};
use crate::net::sse;
use crate::net::wait::{WaitEnd, pause};
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Size limit of a single event of a stream, in bytes.
const EVENT_MOST: usize = 32 << 20;
/// Size limit of an error body that is read, in bytes.
const ERROR_MOST: usize = 256 << 10;

/// The address and limits of a service.
#[derive(Debug)]
pub struct Service {
    pub wire: Wire,
    /// The model's name as the vendor knows it.
    pub model: String,
    /// Without a trailing slash.
    pub base: String,
    /// The flag or variable that gave the base URL; `None` for the vendor's own.
    pub base_from: Option<&'static str>,
    /// `None` for servers that need none.
    pub key: Option<SecretString>,
    /// Limit of a reply, in tokens.
    pub max_output_tokens: Option<u64>,
    pub limits: Limits,
    pub schedule: Schedule,
}

impl Service {
    /// The model as `VENDOR/NAME`.
    fn id(&self) -> String {
        format!("{}/{}", self.wire.vendor(), self.model)
    }

    /// Waits until the request gate of a batch lets this run send a request.
    pub(super) async fn pass_gate(&self, until: Until<'_>) -> Result<(), Failed> {
        let Some(gate) = RequestGate::of_process() else {
            return Ok(());
        };
        match gate.pass(&self.base, &self.id(), until.deadline, until.cancel).await {
            Ok(()) => Ok(()),
            Err(GateRefusal::Ended(end)) => Err(Failed::Ended(end, None)),
            Err(GateRefusal::Closed(reason)) => Err(Failed::Barred(Fault::fatal(
                ProviderClass::Quota,
                format!("not sent, because the service refused another job of the batch: {reason}"),
            ))),
        }
    }
}

/// A model of a service.
#[derive(Debug)]
pub struct Http {
    info: ModelInfo,
    service: Service,
    url: String,
    client: Client,
    prefix: Mutex<RequestPrefix>,
    /// Set once the service has rejected the vendor-specific form of a response schema.
    plain: AtomicBool,
}

/// Why an attempt gave no reply.
pub(super) enum Failed {
    /// The wait was cut short, with the reply as far as it came.
    Ended(WaitEnd, Option<Box<Discarded>>),
    /// Not sent, because the request gate of a batch is closed.
    Barred(Fault),
    Fault(Fault),
}

impl Failed {
    /// With the reply that is discarded.
    fn discarding(self, discarded: Option<Box<Discarded>>) -> Self {
        match self {
            Failed::Fault(fault) => Failed::Fault(Fault { discarded, ..fault }),
            Failed::Ended(end, _) => Failed::Ended(end, discarded),
            barred @ Failed::Barred(_) => barred,
        }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Failed::Fault(fault)
    }
}

impl From<HttpError> for Failed {
    fn from(trouble: HttpError) -> Self {
        let mut message = trouble.to_string();
        let (class, again) = match trouble {
            HttpError::Ended(end) => return Failed::Ended(end, None),
            HttpError::Late(_) => {
                message.push_str(
                    "; a model that reads a long prompt on slow hardware needs more: set --first-byte-timeout, or \
                     `model_settings: { first_byte_timeout: … }` in the recipe",
                );
                (ProviderClass::Transport, Some(RetryKind::Service))
            }
            HttpError::Connect { .. } => (ProviderClass::Transport, Some(RetryKind::Connect)),
            HttpError::Broken(_) => (ProviderClass::Transport, Some(RetryKind::Service)),
            // Another answer to the same request would be as long, and would be charged for again.
            HttpError::TooLong(_) => {
                message.push_str("; set `model_settings: { max_output_tokens: … }` in the recipe");
                (ProviderClass::Transport, None)
            }
            HttpError::Unusable(_) => (ProviderClass::Rejected, None),
        };
        Failed::Fault(Fault {
            class,
            message,
            again,
            asked: None,
            window: None,
            discarded: None,
        })
    }
}

impl Http {
    /// A provider for a service. Opens no connection yet.
    pub fn new(service: Service) -> Self {
        let id = service.id();
        Self {
            info: ModelInfo {
                window: pricing::known(&id).and_then(|known| known.window),
                id,
                recorded: false,
                nearby: is_nearby(&service.base),
            },
            url: service.wire.url(&service.base, &service.model),
            client: Client::new(service.limits),
            prefix: Mutex::default(),
            plain: AtomicBool::new(false),
            service,
        }
    }

    /// Bytes of requests encoded so far; reused prefixes are not counted again.
    pub fn encoded(&self) -> u64 {
        lock(&self.prefix).encoded()
    }

    fn body(&self, request: &ModelRequest<'_>) -> Vec<u8> {
        let options = EncodeOptions {
            model: &self.service.model,
            plain: self.plain.load(Ordering::Relaxed),
            max_output_tokens: self.service.max_output_tokens,
        };
        let mut prefix = lock(&self.prefix);
        prefix.body(self.service.wire, options, request)
    }

    async fn answer(&self, request: &ModelRequest<'_>, cx: AskContext<'_>) -> Result<Reply, ProviderError> {
        let mut waited = Duration::ZERO;
        let mut failed = 0;
        loop {
            let fault = match self.once(request, &cx).await {
                Ok(reply) => return Ok(reply),
                Err(Failed::Ended(end, discarded)) => {
                    return Err(ProviderError {
                        discarded,
                        ..ended(end)
                    });
                }
                // The gate has the reason already; closing it with this one would hide that.
                Err(Failed::Barred(fault)) => return Err(self.to_error(fault, "")),
                Err(Failed::Fault(fault)) => fault,
            };
            failed += 1;
            if self.refuses_schema(request, &fault) {
                self.plain.store(true, Ordering::Relaxed);
                (cx.retried)(FailedAttempt {
                    attempt: failed,
                    class: fault.class.as_str(),
                    message: &fault.message,
                    wait_ms: 0,
                    discarded: fault.discarded.as_deref(),
                });
                continue;
            }
            let wait = self.next(fault, failed, waited, &cx)?;
            self.share_pause(&wait);
            waited = waited.saturating_add(wait.length);
            let ms = u64::try_from(wait.length.as_millis()).unwrap_or(u64::MAX);
            (cx.retried)(FailedAttempt {
                attempt: failed,
                class: wait.class.as_str(),
                message: &wait.message,
                wait_ms: ms,
                discarded: wait.discarded.as_deref(),
            });
            (cx.live)(ProgressEvent::Waiting {
                what: format!("{}: {}", self.info.id, wait.message),
                ms,
            });
            match pause(wait.length, cx.deadline, cx.cancel).await {
                WaitEnd::Over => {}
                end => return Err(ended(end)),
            }
        }
    }

    /// The wait before the next attempt, or the failure that ends the request.
    fn next(&self, fault: Fault, failed: u32, waited: Duration, cx: &AskContext<'_>) -> Result<Wait, ProviderError> {
        let Some(pace) = fault.again else {
            self.share_end(&fault);
            return Err(self.to_error(fault, ""));
        };
        match self.service.schedule.next(pace, failed, fault.asked, waited, chance()) {
            RetryDecision::Exhausted => {
                let attempts = format!(" (after {})", counted(failed, "attempt"));
                Err(self.to_error(fault, &attempts))
            }
            RetryDecision::TooLong(wait) => {
                self.share_end(&fault);
                let wait = format!(" (would have to wait {} s more)", wait.as_secs());
                Err(self.to_error(fault, &wait))
            }
            RetryDecision::Wait(_) if !(cx.has_room)(fault.discarded.as_deref()) => {
                Err(self.to_error(fault, " (not repeated, because a limit of the run is reached)"))
            }
            RetryDecision::Wait(length) if Instant::now() + length >= cx.deadline => {
                // The service asks for a wait past the run's deadline, so the run ends now.
                let wait = format!(" (the run ends before the wait of {} s is over)", length.as_secs());
                let class = ProviderClass::OutOfTime;
                Err(self.to_error(Fault { class, ..fault }, &wait))
            }
            RetryDecision::Wait(length) => Ok(Wait {
                length,
                class: fault.class,
                message: fault.message,
                discarded: fault.discarded,
            }),
        }
    }

    /// Makes the other runs of a batch wait too, when the service asks this one to slow down.
    fn share_pause(&self, wait: &Wait) {
        if let Some(gate) = RequestGate::of_process().filter(|_| wait.class == ProviderClass::Quota) {
            gate.slow_down(&self.service.base, &self.info.id, wait.length);
        }
    }

    /// Stops the requests of all runs of a batch: to the service when the key was refused, for the model when its quota
    /// is used up.
    fn share_end(&self, fault: &Fault) {
        let Some(gate) = RequestGate::of_process() else {
            return;
        };
        match fault.class {
            ProviderClass::Auth => gate.close(&self.service.base, &self.info.id, &fault.message),
            ProviderClass::Quota => gate.close_model(&self.service.base, &self.info.id, &fault.message),
            _ => {}
        }
    }

    fn to_error(&self, fault: Fault, more: &str) -> ProviderError {
        let mut message = format!("{}: {}{more}", self.info.id, fault.message);
        let advice = match fault.class {
            ProviderClass::Auth => self.service.wire.service().key_names.first().copied(),
            _ if fault.again == Some(RetryKind::Connect) => self.service.base_from,
            _ => None,
        };
        if let Some(name) = advice {
            message.push_str(&format!("; check {name}"));
        }
        ProviderError {
            window: fault.window,
            discarded: fault.discarded,
            ..ProviderError::new(fault.class, message)
        }
    }

    /// Whether the service rejected the request only because of the vendor-specific response schema.
    fn refuses_schema(&self, request: &ModelRequest<'_>, fault: &Fault) -> bool {
        const NAMES: &[&str] = &[
            "response_format",
            "responsejsonschema",
            "response_json_schema",
            "response_schema",
            "responseschema",
            "response mime type",
            "response_mime_type",
            "responsemimetype",
            "output_config",
            "output_format",
            "text.format",
            "json_schema",
            "grammar",
        ];
        let message = fault.message.to_ascii_lowercase();
        fault.class == ProviderClass::Rejected
            && request.response.is_some()
            && !self.plain.load(Ordering::Relaxed)
            && NAMES.iter().any(|name| message.contains(name))
    }

    /// The form of a body according to its content type; `None` when that is inconclusive.
    fn declared(&self, answer: &ResponseHead) -> Result<Option<Form>, Fault> {
        let kind = answer.header("content-type").unwrap_or_default().to_ascii_lowercase();
        if kind.contains("event-stream") {
            Ok(Some(Form::Stream))
        } else if kind.contains("json") && !kind.contains("ndjson") {
            Ok(Some(Form::Document))
        } else if kind.contains("html") {
            let address = answer.address();
            let from = self.service.base_from.map(|name| format!(" (from {name})"));
            let from = from.unwrap_or_default();
            Err(Fault::unusable(format!(
                "{address} answered with a web page; is the base URL{from} correct?"
            )))
        } else {
            Ok(None)
        }
    }

    async fn once(&self, request: &ModelRequest<'_>, cx: &AskContext<'_>) -> Result<Reply, Failed> {
        let until = Until {
            deadline: cx.deadline,
            cancel: cx.cancel,
        };
        self.service.pass_gate(until).await?;
        let headers = wire::headers(self.service.wire, self.service.key.as_ref());
        let mut answer = self.client.post(&self.url, &headers, self.body(request), until).await?;
        if answer.status != 200 {
            let body = answer.text(ERROR_MOST, until).await?;
            return Err(fault::from_answer(answer.status, |name| answer.header(name), &body, SystemTime::now()).into());
        }
        let mut decoder = self.service.wire.decoder(&self.service.model, request.turn);
        let mut document = Vec::new();
        let form = self.declared(&answer)?;
        let complete = read(&mut answer, form, decoder.as_mut(), until, cx.live, &mut document).await;
        let of_document = || Discarded::of(&self.service.model, Usage::default(), document.len() as u64);
        let mut discarded = decoder.counted().or_else(of_document);
        if let Some(discarded) = &mut discarded
            && decoder.is_ended()
            && discarded.usage.output > 0
        {
            // The counts of an ended reply are final.
            discarded.received = 0;
        }
        let mut reply = complete
            .and_then(|()| decoder.finish().map_err(Failed::from))
            .map_err(|failed| failed.discarding(discarded))?;
        answer.drain(until).await;
        for part in &mut reply.parts {
            if let Part::Call(call) = part {
                call.tool = real_name(&call.tool, request.tools).to_owned();
            }
        }
        Ok(reply)
    }
}

struct Wait {
    length: Duration,
    class: ProviderClass,
    message: String,
    discarded: Option<Box<Discarded>>,
}

impl Provider for Http {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn ask<'a>(
        &'a self,
        request: &'a ModelRequest<'a>,
        cx: AskContext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.answer(request, cx))
    }
}

fn ended(end: WaitEnd) -> ProviderError {
    let message = match end {
        WaitEnd::Cancelled | WaitEnd::Over => "cancelled while waiting for the model",
        WaitEnd::Deadline => "the run's time ended while waiting for the model",
    };
    ProviderError::new(ProviderClass::Cancelled, message)
}

/// The form of a response body.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Stream,
    Document,
}

/// Feeds the body into the decoder until the response is complete. `form`: `None` if the first bytes tell it. `document`:
/// what was received of a response that is no stream and broke off.
async fn read(
    answer: &mut ResponseHead,
    mut form: Option<Form>,
    decoder: &mut dyn DecodeReply,
    until: Until<'_>,
    live: &(dyn Fn(ProgressEvent) + Send + Sync),
    document: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut events = sse::SseDecoder::new(EVENT_MOST);
    let mut frames = Vec::new();
    loop {
        let piece = match answer.piece(until).await {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            // The response is complete; only closing the connection failed.
            Err(HttpError::Broken(_) | HttpError::TooLong(_)) if decoder.is_ended() => return Ok(()),
            Err(trouble) => return Err(trouble.into()),
        };
        let form = *form.get_or_insert_with(|| sniffed(&piece));
        if form == Form::Document {
            document.extend_from_slice(&piece);
            continue;
        }
        events
            .push(&piece, &mut frames)
            // Another answer would be as long.
            .map_err(|error| Fault::fatal(ProviderClass::Unusable, error.to_string()))?;
        for frame in frames.drain(..) {
            wire::decode_frame(decoder, &frame, &|delta| live(delta))?;
        }
        if decoder.is_done() {
            return Ok(());
        }
        if decoder.is_ended() {
            answer.shorten_idle_limit();
        }
    }
    match form {
        Some(Form::Document) => {
            let document = std::mem::take(document);
            let text = String::from_utf8_lossy(&document);
            wire::decode_document(decoder, &text, &|delta| live(delta))?;
        }
        Some(Form::Stream) => {
            let _ = events.finish(&mut frames);
            for frame in frames.drain(..) {
                // An incomplete last event means a cut stream, not a malformed response.
                wire::decode_frame(decoder, &frame, &|delta| live(delta)).map_err(|fault| match fault.class {
                    ProviderClass::Unusable => Fault::cut(),
                    _ => fault,
                })?;
            }
        }
        None => return Err(Fault::unusable("the service sent an empty body").into()),
    }
    Ok(())
}

/// The form according to the first bytes.
fn sniffed(piece: &[u8]) -> Form {
    match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => Form::Document,
        _ => Form::Stream,
    }
}

#[cfg(test)]
mod tests;
