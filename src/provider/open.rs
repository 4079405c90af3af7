//! Creates a provider from a model's name: resolves key, base URL and settings. Opens no connection.

use super::http::{Http, Service};
use super::pricing;
use super::scripted::Scripted;
use super::wire::{self, Wire};
use super::{Provider, RequestSettings};
use crate::base::model_name::{REPLAY, SCRIPT, is_played};
use crate::diag::{SourceFiles, render_all};
use crate::net::client::{Limits, checked_base, is_nearby};
use crate::net::retry::Schedule;
use secrecy::SecretString;
use std::sync::Arc;
use std::time::Duration;

/// Access to the environment and to files that opening a model needs.
#[derive(Clone, Copy)]
pub struct OpenWith<'a> {
    /// Reads a variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// `--base-url`, for models behind HTTP.
    pub base_url: Option<&'a str>,
    /// Reads the text of a script file, or returns a sentence that says why it cannot be read.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
    pub limits: Limits,
    pub schedule: Schedule,
    pub settings: RequestSettings,
}

/// Time limit for the first byte of a response.
pub const FIRST_BYTE: Duration = Duration::from_secs(180);
/// The same for a server on this machine or in a private network, which often processes the prompt slowly.
pub const FIRST_BYTE_NEARBY: Duration = Duration::from_secs(600);

/// Why a model cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The name is unknown: a mistake in the command line or recipe.
    #[error("{0}")]
    Name(String),
    /// A key, an address or a file is missing or unusable: exit code 8.
    #[error("{0}")]
    Environment(String),
    /// The script is invalid: exit code 3. The text is the rendered problems, each `FILE:LINE:COLUMN: error[code]: …`.
    #[error("{0}")]
    Invalid(String),
}

/// Opens `PROVIDER/NAME` or `script:FILE`. (`replay:RUN` needs the run's journal: see `replay`.)
///
/// # Errors
/// [`OpenError`], which names the variable, provider or file.
pub fn open(model: &str, with: &OpenWith<'_>) -> Result<Arc<dyn Provider>, OpenError> {
    if let Some(file) = model.strip_prefix(SCRIPT) {
        let text = (with.read)(file).map_err(|why| OpenError::Environment(format!("script {file}: {why}")))?;
        let mut files = SourceFiles::new();
        let id = files.add(file, text);
        let script = Scripted::parse(model, &files, id)
            .map_err(|problems| OpenError::Invalid(render_all(&files, &problems).trim_end().to_owned()))?;
        return Ok(Arc::new(script));
    }
    Ok(Arc::new(Http::new(service(model, with)?)))
}

/// The service behind `PROVIDER/NAME`, with its address and key.
///
/// # Errors
/// As [`open`].
pub fn service(model: &str, with: &OpenWith<'_>) -> Result<Service, OpenError> {
    let (provider, name) = model.split_once('/').ok_or_else(|| unknown(model))?;
    let wire = wire::find(provider).ok_or_else(|| unknown(model))?;
    let name = name.trim();
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#')) {
        return Err(OpenError::Name(format!(
            "`{model}` names no model of {provider}: write {provider}/NAME"
        )));
    }
    let base = base(wire, with)?;
    let key = key(wire, &base, model, with)?;
    let usual = match is_nearby(&base.address) {
        true => FIRST_BYTE_NEARBY,
        false => FIRST_BYTE,
    };
    Ok(Service {
        wire,
        model: name.to_owned(),
        base: base.address,
        base_from: base.from,
        key,
        max_output_tokens: with.settings.max_output_tokens,
        limits: Limits {
            first_byte: with.settings.first_byte_timeout.unwrap_or(usual),
            ..with.limits
        },
        schedule: with.schedule,
    })
}

/// Opens several models as one provider: each later one is used when those before it fail permanently.
///
/// # Errors
/// As [`open`], for the first model that cannot be opened. `base_url` applies to the first only.
pub fn open_all(model: &str, fallback: &[String], with: &OpenWith<'_>) -> Result<Arc<dyn Provider>, OpenError> {
    let first = open(model, with)?;
    if fallback.is_empty() {
        return Ok(first);
    }
    let mut all = vec![first];
    for model in fallback {
        let with = OpenWith {
            base_url: None,
            ..*with
        };
        all.push(open(model, &with)?);
    }
    Ok(Arc::new(super::fallback::Fallback::new(all)))
}

/// Checks that this can name a model: `PROVIDER/NAME` of a known provider, `script:FILE` or `replay:RUN`. Needs no key.
///
/// # Errors
/// A sentence: what is wrong, and what to write.
pub fn check_name(model: &str) -> Result<(), String> {
    let played = [(SCRIPT, "FILE", "file"), (REPLAY, "RUN", "run")];
    if let Some((_, form, what)) = played.into_iter().find(|(prefix, ..)| *prefix == model) {
        return Err(format!("`{model}` names no {what}: write {model}{form}"));
    }
    if is_played(model) {
        return Ok(());
    }
    let known = |provider: &str| wire::find(provider).is_some();
    match model.split_once('/') {
        Some((provider, name)) if known(provider) && !name.trim().is_empty() => Ok(()),
        Some((provider, _)) if known(provider) => {
            Err(format!("`{model}` names no model of {provider}: write {provider}/NAME"))
        }
        _ => Err(unknown(model).to_string()),
    }
}

fn unknown(model: &str) -> OpenError {
    let known: Vec<String> = wire::ALL
        .into_iter()
        .map(|wire| format!("{}/NAME", wire.vendor()))
        .collect();
    // Others write `PROVIDER:NAME`; a name may have a colon of its own behind the slash.
    let spelled = match model.contains('/') {
        true => model.to_owned(),
        false => model.replacen(':', "/", 1),
    };
    if let Some(meant) = compatible(&spelled) {
        return OpenError::Name(format!("no provider for the model `{model}`: write {meant}"));
    }
    let forms = format!("{}, script:FILE or replay:RUN", known.join(", "));
    OpenError::Name(match meant(&spelled) {
        Some(id) => format!("no provider for the model `{model}`: did you mean `{id}`? Write {forms}"),
        None => format!("no provider for the model `{model}`: write {forms}"),
    })
}

/// The id of a model that is named in another way: with the name alone, with another separator, or in short, as
/// `sonnet`.
fn meant(spelled: &str) -> Option<String> {
    let (provider, name) = spelled.split_once('/').unwrap_or(("", spelled));
    if wire::find(provider).is_some() && !name.trim().is_empty() {
        return Some(spelled.to_owned());
    }
    let name = name.to_lowercase();
    let is_named = |id: &&str| id.split_once('/').is_some_and(|(_, known)| known == name);
    let short = format!("anthropic/claude-{}-", name.strip_prefix("claude-").unwrap_or(&name));
    let of_short = || {
        pricing::ids()
            .filter(|id| id.starts_with(&short))
            .max_by_key(|id| version(id))
    };
    pricing::ids().find(is_named).or_else(of_short).map(str::to_owned)
}

/// The numbers of a model's id, to compare versions.
fn version(id: &str) -> Vec<u64> {
    id.split('-').filter_map(|part| part.parse().ok()).collect()
}

/// Services with the wire of OpenAI that others name like a provider, with their addresses.
const COMPATIBLE: [(&str, &str); 10] = [
    ("ollama", "http://localhost:11434/v1"),
    ("ollama_chat", "http://localhost:11434/v1"),
    ("lmstudio", "http://localhost:1234/v1"),
    ("lm_studio", "http://localhost:1234/v1"),
    ("vllm", "http://localhost:8000/v1"),
    ("hosted_vllm", "http://localhost:8000/v1"),
    ("openrouter", "https://openrouter.ai/api/v1"),
    ("groq", "https://api.groq.com/openai/v1"),
    ("deepseek", "https://api.deepseek.com/v1"),
    ("mistral", "https://api.mistral.ai/v1"),
];

/// What to write for a model of a compatible service that is named like a provider.
fn compatible(model: &str) -> Option<String> {
    let (provider, name) = model.split_once('/').filter(|(_, name)| !name.trim().is_empty())?;
    let (_, address) = COMPATIBLE.iter().find(|(known, _)| *known == provider)?;
    Some(format!("openai/{name} with --base-url {address}"))
}

struct Base {
    address: String,
    /// The flag or variable that gave it; `None` for the vendor's own.
    from: Option<&'static str>,
}

fn base(wire: Wire, with: &OpenWith<'_>) -> Result<Base, OpenError> {
    let service = wire.service();
    let (variable, usual) = (service.base_variable, service.default_base);
    let from_env = || {
        let value = (with.env)(variable)?;
        (!value.trim().is_empty()).then(|| (variable, value.trim().to_owned()))
    };
    let named = with
        .base_url
        .map(|url| ("--base-url", url.trim().to_owned()))
        .or_else(from_env);
    let Some((place, url)) = named else {
        return Ok(Base {
            address: usual.to_owned(),
            from: None,
        });
    };
    let address = checked_base(&url).map_err(|why| match with.base_url {
        Some(_) => OpenError::Name(format!("{place}: {why}")),
        None => OpenError::Environment(format!("{place}: {why}")),
    })?;
    // Both forms are common; the vendor's own clients expect the address without the version.
    let version = service.own_version.unwrap_or_default();
    let address = address.strip_suffix(version).unwrap_or(&address);
    Ok(Base {
        address: address.to_owned(),
        from: Some(place),
    })
}

fn key(wire: Wire, base: &Base, model: &str, with: &OpenWith<'_>) -> Result<Option<SecretString>, OpenError> {
    let found = wire.service().key_names.iter().find_map(|name| {
        let value = (with.env)(name)?;
        (!value.trim().is_empty()).then(|| (*name, value.trim().to_owned()))
    });
    match found {
        Some((name, key)) if key.chars().any(|c| !c.is_ascii_graphic()) => Err(OpenError::Environment(format!(
            "{name} contains characters that a key cannot have"
        ))),
        Some((_, key)) => Ok(Some(key.into())),
        None if base.from.is_some() && wire.service().may_lack_key => Ok(None),
        None => Err(OpenError::Environment(format!(
            "no key for {model}: set {}",
            wire.service().key_names.first().unwrap_or(&"the key's variable")
        ))),
    }
}

#[cfg(test)]
mod tests;
