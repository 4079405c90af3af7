//! A provider made of several models: when one fails permanently, the next is asked.

use super::{AskContext, FailedAttempt, ModelInfo, ModelRequest, Provider, ProviderClass, ProviderError};
use crate::base::message::Reply;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Models in the order in which they are asked. The last one that answered is asked first from then on, so that a run
/// does not repeat the fallback on each turn.
pub struct Fallback {
    models: Vec<Arc<dyn Provider>>,
    current: AtomicUsize,
    none: ModelInfo,
}

impl Fallback {
    /// A list with at least one model.
    pub fn new(models: Vec<Arc<dyn Provider>>) -> Self {
        Self {
            models,
            current: AtomicUsize::new(0),
            none: ModelInfo {
                id: "no model".to_owned(),
                window: None,
                recorded: false,
                nearby: false,
            },
        }
    }

    async fn answer(&self, request: &ModelRequest<'_>, cx: AskContext<'_>) -> Result<Reply, ProviderError> {
        let start = self.current.load(Ordering::Relaxed);
        let mut last = ProviderError::new(ProviderClass::Rejected, "no model is named");
        for (index, model) in self.models.iter().enumerate().skip(start) {
            if index > start {
                if !(cx.has_room)(last.discarded.as_deref()) {
                    break;
                }
                let next = format!("{}; continuing with {}", last.message, model.info().id);
                (cx.retried)(FailedAttempt {
                    attempt: 0,
                    class: last.class.as_str(),
                    message: &next,
                    wait_ms: 0,
                    discarded: last.discarded.as_deref(),
                });
            }
            match model.ask(request, cx).await {
                Ok(reply) => {
                    self.current.store(index, Ordering::Relaxed);
                    return Ok(reply);
                }
                Err(error) if helps(error.class) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

/// Whether another model may succeed. A replay miss and a cancellation concern the run, not the model, and after a
/// context overflow the engine shortens the history and asks the same model again.
fn helps(class: ProviderClass) -> bool {
    !matches!(
        class,
        ProviderClass::ReplayMiss | ProviderClass::Cancelled | ProviderClass::ContextOverflow
    )
}

impl Provider for Fallback {
    fn info(&self) -> &ModelInfo {
        self.models
            .get(self.current.load(Ordering::Relaxed))
            .map_or(&self.none, |model| model.info())
    }

    fn ask<'a>(
        &'a self,
        request: &'a ModelRequest<'a>,
        cx: AskContext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.answer(request, cx))
    }
}
