//! The part of a prompt that its author wrote, told from the values in it. Opens no file.

use super::{Raw, Scope, TemplateError, environment, plain, run, write};

/// What stands in [`render_author`] for a value.
pub const VALUE: char = '\0';

/// The author's own words of a prompt: as [`render`], with [`VALUE`] in the place of every value that is not piped through
/// `raw`. Files that this text refers to were asked for by the author, and not by whoever wrote a value.
///
/// # Errors
/// As [`render`].
pub fn render_author(text: &str, scope: &Scope<'_>) -> Result<String, TemplateError> {
    let mut env = environment();
    env.add_filter("raw", |value: minijinja::Value| {
        minijinja::Value::from_object(Raw(plain(&value)))
    });
    env.set_formatter(|out, _, value| match value.downcast_object_ref::<Raw>() {
        Some(raw) => write(out, &raw.0),
        None => write(out, VALUE.encode_utf8(&mut [0; 4])),
    });
    run(&env, text, scope)
}
