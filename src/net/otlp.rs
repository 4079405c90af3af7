//! Sends spans to an OpenTelemetry collector by OTLP over HTTP.

use super::client;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::time::Duration;

/// Spans in one request: the default of OpenTelemetry's batch span processor.
const BATCH: usize = 512;
/// Time limit until a connection is established.
const CONNECT: Duration = Duration::from_secs(5);
/// The collector's address when no endpoint is set.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// The encoding of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpEncoding {
    Protobuf,
    Json,
}

/// Sends all spans in batches, each with the retries that OTLP prescribes. Endpoint, headers, compression and resource
/// come from the usual `OTEL_*` variables; `endpoint` must be the same endpoint, and only determines the proxy.
///
/// # Errors
/// A sentence: the configuration is invalid, or the collector did not accept a batch. Earlier batches were sent.
pub async fn send(mut spans: Vec<SpanData>, encoding: OtlpEncoding, endpoint: Option<&str>) -> Result<(), String> {
    let client = client::plain(endpoint.unwrap_or(DEFAULT_ENDPOINT), CONNECT).map_err(|error| error.to_string())?;
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(match encoding {
            OtlpEncoding::Protobuf => Protocol::HttpBinary,
            OtlpEncoding::Json => Protocol::HttpJson,
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

/// The resource of the spans: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, by default this program's name.
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
