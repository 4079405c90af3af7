//! The client side of a connection: handles progress, changed tool lists and elicitation. Sampling and roots are not
//! offered.

use super::elicit;
use super::limits::{PROGRESS, QUESTION, QUESTIONS, cut};
use crate::base::event::ProgressEvent;
use crate::base::ids::CallId;
use crate::base::secret::shortened;
use crate::base::sync::lock;
use crate::tools::LiveSender;
use crate::tools::notices::Notices;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    ErrorData, FormElicitationCapability, Implementation, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The client side of one connection. Clones share their state.
#[derive(Clone)]
pub struct Host {
    /// The server's name in the recipe.
    name: String,
    notices: Notices,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    /// Requests to a server run one at a time (`RunningServer::ask`), so any progress belongs to this one.
    current: Mutex<Option<(CallId, LiveSender)>>,
    tools_changed: AtomicBool,
    /// How many questions the server has asked during the current request.
    questions: AtomicUsize,
}

impl Host {
    /// The client side of a connection to the server with this name.
    pub fn new(name: &str, notices: &Notices) -> Self {
        Self {
            name: name.to_owned(),
            notices: notices.clone(),
            heard: Arc::default(),
        }
    }

    /// Sets the call to which progress notifications and questions belong.
    pub fn listen_for(&self, call: Option<(CallId, LiveSender)>) {
        self.heard.questions.store(0, Ordering::SeqCst);
        *lock(&self.heard.current) = call;
    }

    /// Whether the server has reported a changed tool list since the last call of this function.
    pub fn tools_changed(&self) -> bool {
        self.heard.tools_changed.swap(false, Ordering::SeqCst)
    }

    /// Marks the tool list as changed, so that it is compared before the next request.
    pub fn report_tools_changed(&self) {
        self.heard.tools_changed.store(true, Ordering::SeqCst);
    }

    fn emit_progress(&self, chunk: String) {
        let current = lock(&self.heard.current).clone();
        if let Some((call, live)) = current {
            live.send(ProgressEvent::Output { call, chunk });
        }
    }
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let mut elicitation = ElicitationCapability::default();
        elicitation.form = Some(FormElicitationCapability::default());
        capabilities.elicitation = Some(elicitation);
        let own = Implementation::new("overnight", env!("CARGO_PKG_VERSION"));
        // The newest protocol version with an `initialize` handshake; later versions are negotiated without one.
        ClientConfig::new(capabilities, own).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let before = self.heard.questions.fetch_add(1, Ordering::SeqCst);
        if before >= QUESTIONS {
            if before == QUESTIONS {
                let message = format!(
                    "MCP server {} asked more than {QUESTIONS} questions in the middle of a call; the rest is declined and not told",
                    self.name
                );
                self.notices.add("mcp_elicitation", message);
            }
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        let answered = elicit::answer(&request);
        let how = match answered.action {
            ElicitationAction::Accept => "accepted with the defaults of the form",
            _ => "declined",
        };
        let question = match &request {
            ElicitRequestParams::FormElicitationParams { message, .. }
            | ElicitRequestParams::UrlElicitationParams { message, .. } => shortened(message, QUESTION),
            _ => String::new(),
        };
        self.notices.add(
            "mcp_elicitation",
            format!(
                "MCP server {} asked a question in the middle of a call, which was {how}: {question}",
                self.name
            ),
        );
        self.emit_progress(format!("the server asked a question, which was {how}: {question}\n"));
        Ok(answered)
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let total = progress.total.map(|total| format!("/{total}")).unwrap_or_default();
        let message = progress
            .message
            .map(|message| format!(" {}", cut(&message, PROGRESS)))
            .unwrap_or_default();
        self.emit_progress(format!("{}{total}{message}\n", progress.progress));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.report_tools_changed();
    }
}
