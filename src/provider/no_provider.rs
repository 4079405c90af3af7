//! The model of a run whose steps are all commands: it is never asked, and needs no key and no network.

use super::{AskContext, ModelInfo, ModelRequest, Provider, ProviderClass, ProviderError};
use crate::base::message::Reply;
use futures_util::future::BoxFuture;

/// Its name in the journal and outputs.
pub const NAME: &str = "none";

/// A provider that is never asked.
#[derive(Debug)]
pub struct NoProvider(ModelInfo);

impl Default for NoProvider {
    fn default() -> Self {
        Self(ModelInfo {
            nearby: false,
            id: NAME.to_owned(),
            window: None,
            recorded: false,
        })
    }
}

impl Provider for NoProvider {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    fn ask<'a>(
        &'a self,
        _request: &'a ModelRequest<'a>,
        _cx: AskContext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let error = ProviderError::new(
            ProviderClass::Rejected,
            "this run names no model: name one with --model",
        );
        Box::pin(async { Err(error) })
    }
}
