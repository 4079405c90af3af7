//! Implements `overnight mcp-probe URL`: connects to one server through the layer that runs use and calls every tool
//! once. For the MCP conformance suite, which passes its settings in environment variables; no parser, help or completion knows it.

use crate::base::ids::CallId;
use crate::base::secret::Redactor;
use crate::cli::environment;
use crate::cli::refusal::Refusal;
use crate::cli::{bootstrap, exit, out};
use crate::process::Confinement;
use crate::tools::mcp::{self, Address, Authority, Config, Credentials, Proof, ServerLocation, Servers, Transport};
use crate::tools::notices::Notices;
use crate::tools::web::Web;
use crate::tools::{LiveSender, Tool, ToolContext, ToolError};
use crate::workspace::Workspace;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Time limit of the probe.
const TIME: Duration = Duration::from_secs(25);

/// Runs the command. Returns exit code 0 if the connection worked, whatever the tools returned.
///
/// # Errors
/// [`Refusal::Environment`] if the server cannot be reached, there is no temporary directory, or a tool fails in a way
/// that no further call can work.
pub async fn probe(url: String) -> Result<u8, Refusal> {
    let wanted: Value = environment::variable("MCP_CONFORMANCE_CONTEXT")
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or(Value::Null);
    let text = |name: &str| wanted.get(name).and_then(Value::as_str).map(str::to_owned);
    let proof = text("client_secret")
        .map(Proof::Secret)
        .or_else(|| text("private_key_pem").map(Proof::Key));
    let oauth = text("client_id").zip(proof).map(|(client_id, proof)| Credentials {
        client_id,
        proof,
        scopes: Vec::new(),
        authority: text("issuer").map(Authority::Issuer),
    });
    let config = Config {
        name: "probe".to_owned(),
        location: ServerLocation::Url(Address {
            url,
            kind: Transport::Http,
            headers: Vec::new(),
            oauth,
        }),
        required: true,
        start: TIME,
        call: TIME,
        include: None,
        exclude: Vec::new(),
    };
    let with = mcp::McpContext {
        redactor: Arc::new(Redactor::default()),
        notices: Notices::default(),
        deadline: Instant::now() + TIME,
    };
    let (servers, started) = mcp::start(vec![config], &with).await;
    for one in started {
        let tools = one.outcome.map_err(Refusal::Environment)?;
        call_all(&tools, &wanted, &servers, &with).await?;
    }
    servers.close().await;
    Ok(exit::PASSED)
}

async fn call_all(
    tools: &[Arc<dyn Tool>],
    wanted: &Value,
    servers: &Servers,
    with: &mcp::McpContext,
) -> Result<(), Refusal> {
    let trouble = |error: std::io::Error| Refusal::Environment(error.to_string());
    let dir = tempfile::tempdir().map_err(trouble)?;
    let workspace = Workspace::open(dir.path()).map_err(|error| Refusal::Environment(error.to_string()))?;
    let mut scope = bootstrap::scope(dir.path(), &workspace, &with.redactor, Web::default());
    scope.confinement = Confinement::unconfined(dir.path()).into();
    scope.servers = servers.clone();
    scope.notices = with.notices.clone();
    let scope = Arc::new(scope);
    let workspace = Arc::new(workspace);
    let asked = wanted.get("toolCalls").and_then(Value::as_array).cloned();
    for (number, (tool, args)) in calls(tools, asked.as_deref()).into_iter().enumerate() {
        let context = ToolContext {
            call: CallId::nth(number as u64 + 1),
            workspace: Arc::clone(&workspace),
            scope: Arc::clone(&scope),
            cancel: CancellationToken::new(),
            deadline: with.deadline,
            live: LiveSender::none(),
            writes: crate::base::grant::Writes::Tree,
            judge: None,
        };
        let name = &tool.spec().name;
        let done = match tool.prepare(&args, &workspace) {
            Ok(prepared) => (prepared.work)(context).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(output) => out::stderr(&format!("{name}: {}", output.model_text())),
            Err(ToolError::Model { kind, message }) => out::stderr(&format!("{name}: {kind}: {message}")),
            Err(ToolError::Fatal(why)) => return Err(Refusal::Environment(why)),
        }
    }
    Ok(())
}

/// The calls that the suite asks for; if it names none, each tool once.
fn calls<'a>(tools: &'a [Arc<dyn Tool>], asked: Option<&[Value]>) -> Vec<(&'a Arc<dyn Tool>, Value)> {
    let Some(asked) = asked else {
        return tools
            .iter()
            .map(|tool| (tool, with_schema(tools, tool, sample(&tool.spec().parameters))))
            .collect();
    };
    let found = asked.iter().filter_map(|call| {
        let name = format!("probe__{}", call.get("name")?.as_str()?);
        let tool = tools.iter().find(|tool| tool.spec().name == name)?;
        Some((tool, call.get("arguments").cloned().unwrap_or_else(|| json!({}))))
    });
    found.collect()
}

/// If a tool wants a schema as argument, inserts the one of the first other tool.
fn with_schema(tools: &[Arc<dyn Tool>], tool: &Arc<dyn Tool>, mut args: Value) -> Value {
    let other = tools.iter().find(|other| other.spec().name != tool.spec().name);
    if let (Some(schema), Some(other)) = (args.get_mut("schema").filter(|schema| schema.is_object()), other) {
        *schema = other.spec().parameters.clone();
    }
    args
}

/// Arguments that match a simple schema: one value for every required property.
fn sample(schema: &Value) -> Value {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let values: Map<String, Value> = required
        .filter_map(Value::as_str)
        .map(|name| {
            let kind = schema
                .pointer(&format!("/properties/{name}/type"))
                .and_then(Value::as_str);
            let value = match kind {
                Some("number" | "integer") => json!(1),
                Some("boolean") => json!(true),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ => json!("text"),
            };
            (name.to_owned(), value)
        })
        .collect();
    Value::Object(values)
}
