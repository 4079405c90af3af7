//! What tools return to the model, and the media that messages hold.

use serde::{Deserialize, Serialize};

/// An image, an audio clip or a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Media {
    /// MIME type, for example `image/png`.
    pub mime: String,
    /// The bytes in standard base64.
    pub data: String,
    /// File name, relative to the workspace, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What a tool returns to the model: text or media.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolContent {
    Text {
        /// The text.
        text: String,
    },
    Media(Media),
}

impl ToolContent {
    /// A text result.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}
