//! From a model's name to a provider: names, keys, base URLs. Asks nothing and connects to nothing.

use super::Provider;
use super::scripted::Scripted;
use std::sync::Arc;

/// What opening a model needs from outside.
#[derive(Clone, Copy)]
pub struct OpenWith<'a> {
    /// A variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// `--base-url`, for the wires that reach a service.
    pub base_url: Option<&'a str>,
    /// The text of a script file, or one sentence why it cannot be read.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
}

/// Why a model cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The name is none that we know: a mistake in the command line or recipe.
    #[error("{0}")]
    Name(String),
    /// A key or an address is missing or unusable: exit 8.
    #[error("{0}")]
    Environment(String),
    /// The script is not one: exit 3. `text` begins with the file's name.
    #[error("{0}")]
    Invalid(String),
}

/// Opens `PROVIDER/NAME`, `script:FILE` or `replay:RUN`.
///
/// # Errors
/// [`OpenError`], with the variable, provider or file named.
pub fn open(model: &str, with: &OpenWith<'_>) -> Result<Arc<dyn Provider>, OpenError> {
    if let Some(file) = model.strip_prefix("script:") {
        let text = (with.read)(file).map_err(|why| OpenError::Environment(format!("script {file}: {why}")))?;
        let script = Scripted::parse(model, &text).map_err(|why| OpenError::Invalid(format!("{file}: {why}")))?;
        return Ok(Arc::new(script));
    }
    Err(unknown(model))
}

fn unknown(model: &str) -> OpenError {
    OpenError::Name(format!("no provider for the model `{model}`"))
}
