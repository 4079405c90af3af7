//! Separates the part of a prompt that its author wrote from the values in it.

use super::{Raw, TemplateError, TemplateScope, environment, plain, run, write};

/// The placeholder for a value in [`render_author`].
pub const VALUE: char = '\0';

/// The author's own words of a prompt: as [`render`](super::render), but with [`VALUE`] instead of every value that is
/// not piped through `raw`. Only files that this text refers to are read; a value cannot request files.
///
/// # Errors
/// As [`render`](super::render).
pub fn render_author(text: &str, scope: &TemplateScope<'_>) -> Result<String, TemplateError> {
    let mut env = environment();
    env.add_filter("raw", |value: minijinja::Value| {
        plain(&value).map(|text| minijinja::Value::from_object(Raw(text)))
    });
    env.set_formatter(|out, _, value| match value.downcast_object_ref::<Raw>() {
        Some(raw) => write(out, &raw.0),
        None => write(out, VALUE.encode_utf8(&mut [0; 4])),
    });
    run(env, text, scope)
}
