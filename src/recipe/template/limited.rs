//! Limits of a rendering that the engine's own count of instructions does not give: one filter or one concatenation may
//! take any time and any memory.

use super::super::template_error::MAX_BYTES;
use super::TemplateError;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Time limit of one rendering. One with a few values takes microseconds.
pub(super) const TIME: Duration = Duration::from_secs(5);
/// Stack of the thread that renders, in bytes; as that of the main thread.
const STACK: usize = 8 << 20;

/// The result of `work`, which runs on a thread of its own. Nothing can stop a thread: one that is late is abandoned, and
/// ends with the process, which the error ends soon.
///
/// # Errors
/// It takes longer than `most`, or no thread can be started.
pub(super) fn in_time<T: Send + 'static>(
    most: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TemplateError> {
    let refused = |message: String| TemplateError {
        message,
        range: None,
        help: "loop over less, and build no long texts in the template: let a step write them to a file",
    };
    let (sender, result) = sync_channel(1);
    let thread = std::thread::Builder::new().stack_size(STACK);
    let thread = thread.spawn(move || {
        // Nobody waits any more for a late result.
        let _ = sender.send(work());
    });
    let thread = thread.map_err(|error| refused(format!("no thread can be started for the template: {error}")))?;
    match result.recv_timeout(most) {
        Ok(done) => Ok(done),
        Err(RecvTimeoutError::Timeout) => Err(refused(format!(
            "the template takes longer than {} s",
            most.as_secs_f64()
        ))),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(refused("the template gave no result".to_owned())),
        },
    }
}

/// Whether these tags (`{{ … }}`) only name values, so that rendering them is quick.
pub(super) fn is_simple<'t>(mut tags: impl Iterator<Item = &'t str>) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '{' | '-' | ' ' | '\n' | '\t');
    tags.all(|tag| tag.starts_with("{{") && tag.chars().all(is_of_name))
}

/// A writer that accepts [`MAX_BYTES`] and then fails.
#[derive(Default)]
pub(super) struct Bounded(Vec<u8>);

impl Bounded {
    pub fn into_text(self) -> String {
        String::from_utf8(self.0).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

impl std::io::Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + piece.len() > MAX_BYTES {
            return Err(std::io::Error::other("too long"));
        }
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_result_is_not_waited_for() {
        let (end, ended) = sync_channel::<()>(1);
        let late = move || ended.recv().is_ok();
        let refused = in_time(Duration::from_millis(20), late).unwrap_err();
        assert!(refused.message.contains("0.02 s"), "{refused}");
        drop(end);
        // The control.
        assert_eq!(in_time(Duration::from_secs(60), || 7), Ok(7));
    }

    #[test]
    fn only_names_are_simple() {
        for (tags, simple) in [
            (&["{{ name ", "{{- steps.a-b.output "][..], true),
            (&[][..], true),
            (&["{{ a ~ a "][..], false),
            (&["{{ a|join(a) "][..], false),
            (&["{{ a ", "{% set x = 1 "][..], false),
        ] {
            assert_eq!(is_simple(tags.iter().copied()), simple, "{tags:?}");
        }
    }
}
