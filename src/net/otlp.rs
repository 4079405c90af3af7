//! The way of spans to an OpenTelemetry collector, by OTLP over HTTP. Knows no run, and never decides how one ended.

use super::client;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::time::Duration;

/// Spans of one request: what the batch processors of the vendors' kits send, too.
const BATCH: usize = 512;
/// Until a connection stands.
const CONNECT: Duration = Duration::from_secs(5);
/// Where a collector listens when no endpoint is named.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// How spans are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Protobuf,
    Json,
}

/// Sends all spans, batch after batch, each tried again as OTLP prescribes. Endpoint, headers, compression and resource are
/// those of the usual `OTEL_*` variables; `endpoint` is what they name, for the choice of a proxy.
///
/// # Errors
/// One sentence: the configuration cannot be used, or the collector did not take a batch. What came before it was sent.
pub async fn send(mut spans: Vec<SpanData>, encoding: Encoding, endpoint: Option<&str>) -> Result<(), String> {
    let client = client::plain(endpoint.unwrap_or(DEFAULT_ENDPOINT), CONNECT).map_err(|error| error.to_string())?;
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(match encoding {
            Encoding::Protobuf => Protocol::HttpBinary,
            Encoding::Json => Protocol::HttpJson,
        })
        .build()
        .map_err(|error| error.to_string())?;
    exporter.set_resource(&resource());
    while !spans.is_empty() {
        let rest = spans.split_off(spans.len().min(BATCH));
        let batch = std::mem::replace(&mut spans, rest);
        exporter.export(batch).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What the spans come from: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, else our own name.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = || Resource::builder().with_attribute(version.clone());
    let named = builder().build();
    let name = named.get(&Key::from_static_str("service.name"));
    let unnamed = name.is_none_or(|name| name.as_str().starts_with("unknown_service"));
    match unnamed {
        true => builder().with_service_name("overnight").build(),
        false => named,
    }
}
