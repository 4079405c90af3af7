//! Sends the spans of a finished session to the collector in the `OTEL_*` variables. A failure is a warning: it changes
//! neither verdict nor exit code.

use super::environment;
use super::out;
use crate::base::event::{Event, EventKind};
use crate::journal;
use crate::net::otlp::{self, OtlpEncoding};
use crate::report::traces;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time limit for the collector if the run was interrupted.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends the spans of the session that has just ended, if configured. `ended`: cancelled if the run is interrupted; it
/// shortens the wait.
pub async fn export(dir: &Path, ended: &CancellationToken) {
    let settings = match ExportSettings::of(environment::variable) {
        Ok(Some(settings)) => settings,
        Ok(None) => return,
        Err(why) => return warn(&why),
    };
    let events = match journal::read(dir) {
        Ok(read) => read.events,
        Err(error) => return warn(&error.to_string()),
    };
    // A replay sends nothing over the network.
    if is_replay(&events) {
        return;
    }
    let parent = environment::variable("TRACEPARENT").and_then(|text| traces::parent(&text));
    if parent.as_ref().is_some_and(|parent| !parent.is_sampled()) {
        return;
    }
    let spans = traces::spans(&events, parent.as_ref());
    let time_limit = match ended.is_cancelled() {
        true => settings.time_limit.min(SHORT_TIMEOUT),
        false => settings.time_limit,
    };
    let over = async {
        match ended.is_cancelled() {
            true => std::future::pending().await,
            false => ended.cancelled().await,
        }
    };
    let sent = tokio::select! {
        sent = otlp::send(spans, settings.encoding, settings.endpoint.as_deref()) => sent,
        () = over => Err("the run was ended before the collector had accepted them".to_owned()),
        () = tokio::time::sleep(time_limit) => Err(format!("no response from the collector within {} ms", time_limit.as_millis())),
    };
    if let Err(why) = sent {
        warn(&why);
    }
}

fn warn(why: &str) {
    out::stderr(&format!("warning: the spans of this run were not sent: {why}"));
}

fn is_replay(events: &[Event]) -> bool {
    let head = events.iter().find_map(|event| match &event.kind {
        EventKind::RunStarted(head) => Some(head),
        _ => None,
    });
    head.is_some_and(|head| head.replays.is_some())
}

/// The settings from the variables.
#[derive(Debug, PartialEq)]
struct ExportSettings {
    encoding: OtlpEncoding,
    endpoint: Option<String>,
    time_limit: Duration,
}

impl ExportSettings {
    /// `None` if nothing is to be sent: neither endpoint nor exporter is set, or it is disabled.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        // The variable for traces has precedence over that for all signals.
        let either = |end: &str| {
            variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{end}"))
                .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{end}")))
        };
        let off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let endpoint = either("ENDPOINT");
        let exporters = variable("OTEL_TRACES_EXPORTER");
        let wished = match &exporters {
            Some(list) => list.split(',').any(|name| name.trim() == "otlp"),
            None => endpoint.is_some(),
        };
        if off || !wished {
            return Ok(None);
        }
        let encoding = match either("PROTOCOL").as_deref() {
            None | Some("http/protobuf") => OtlpEncoding::Protobuf,
            Some("http/json") => OtlpEncoding::Json,
            Some(other) => {
                return Err(format!(
                    "OTEL_EXPORTER_OTLP_PROTOCOL is `{other}`; write http/protobuf or http/json"
                ));
            }
        };
        let time_limit = match either("TIMEOUT") {
            None => TIMEOUT,
            Some(text) => Duration::from_millis(
                text.parse()
                    .map_err(|_| format!("OTEL_EXPORTER_OTLP_TIMEOUT is `{text}`; write milliseconds"))?,
            ),
        };
        Ok(Some(Self {
            encoding,
            endpoint,
            time_limit,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(set: &[(&str, &str)]) -> Result<Option<ExportSettings>, String> {
        ExportSettings::of(|name| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_sent_unless_asked_for() {
        for set in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "x")],
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
                ("OTEL_SDK_DISABLED", "true"),
            ],
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
                ("OTEL_TRACES_EXPORTER", "none"),
            ],
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
                ("OTEL_TRACES_EXPORTER", "console"),
            ],
        ] {
            assert_eq!(settings(set), Ok(None), "{set:?}");
        }
    }

    #[test]
    fn what_is_said_of_traces_goes_before_what_is_said_of_all() {
        let found = settings(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ]);
        let settings = found.unwrap().unwrap();
        assert_eq!(settings.endpoint.as_deref(), Some("http://traces:4318/v1/traces"));
        assert_eq!(settings.encoding, OtlpEncoding::Json);
        assert_eq!(settings.time_limit, Duration::from_millis(250));
        let bare = super::tests::settings(&[("OTEL_TRACES_EXPORTER", "otlp")])
            .unwrap()
            .unwrap();
        assert_eq!(
            (bare.endpoint, bare.encoding, bare.time_limit),
            (None, OtlpEncoding::Protobuf, TIMEOUT)
        );
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ] {
            let said = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), (name, value)]);
            assert!(said.unwrap_err().contains(value), "{name}");
        }
    }
}
