//! The live bar on a terminal: the current activity, below the lines of past events.

use super::{ProgressLines, Verbosity};
use crate::base::event::{Event, EventKind, ProgressEvent, Sink};
use crate::base::secret;
use crate::report::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io;
use std::time::Duration;

/// A sink for a terminal on the error stream.
pub struct LiveBar {
    lines: ProgressLines,
    bar: ProgressBar,
    /// The last part of the model's text or a command's output.
    said: String,
}

impl LiveBar {
    /// Draws on stderr, at most ten times a second. Below [`Verbosity::Normal`] there are only lines.
    pub fn new(level: Verbosity) -> Self {
        Self::on(ProgressDrawTarget::stderr_with_hz(10), level)
    }

    /// Draws on any target.
    pub fn on(target: ProgressDrawTarget, level: Verbosity) -> Self {
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {prefix} {wide_msg}") {
            bar.set_style(style);
        }
        if level > Verbosity::Quiet {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self {
            lines: ProgressLines::new(level),
            bar,
            said: String::new(),
        }
    }

    /// Appends `piece` and shows the last line of the text so far.
    fn say(&mut self, piece: &str) {
        self.said.push_str(piece);
        // Before any cut: half of a secret is not found any more.
        self.said = secret::start(&self.said, usize::MAX).into_owned();
        if self.said.len() > 4096 {
            self.said = text::tail(&self.said, 1024).to_owned();
        }
        let last = self.said.lines().rev().find(|line| !line.trim().is_empty());
        self.show(text::line(last.unwrap_or_default(), 200));
    }

    fn show(&self, what: String) {
        if self.lines.level > Verbosity::Quiet {
            self.bar.set_message(what);
        }
    }
}

impl Sink for LiveBar {
    fn on_earlier(&mut self, event: &Event) {
        self.lines.recall(event);
    }

    fn on_event(&mut self, event: &Event) -> io::Result<()> {
        for line in self.lines.of(event) {
            self.bar.println(line);
        }
        self.said.clear();
        match &event.kind {
            EventKind::Prompted { .. } => self.show("model".to_owned()),
            EventKind::CallStarted { call } => self.show(self.lines.title(call)),
            EventKind::Replied { .. } if self.lines.level > Verbosity::Quiet => {
                self.bar.set_prefix(self.lines.figures())
            }
            EventKind::RunFinished { .. } => self.bar.finish_and_clear(),
            _ => {}
        }
        Ok(())
    }

    fn on_live(&mut self, live: &ProgressEvent) {
        match live {
            ProgressEvent::Text { delta } | ProgressEvent::Thought { delta } => self.say(delta),
            ProgressEvent::Output { chunk, .. } => self.say(chunk),
            ProgressEvent::Waiting { what, ms } => {
                let (what, wait) = (text::line(what, 120), text::duration(*ms));
                self.show(format!("waiting {wait}: {what}"));
            }
            ProgressEvent::Tick => {}
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.bar.finish_and_clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_in_what_a_model_says_is_shown() {
        secret::check_cut(0, |text| {
            let mut live = LiveBar::on(ProgressDrawTarget::hidden(), Verbosity::Normal);
            // A short text, which is shown uncut, in two pieces.
            let (first, rest) = text.split_at(text.find(' ').unwrap() / 2);
            live.say(first);
            live.say(rest.split(' ').next().unwrap());
            live.bar.message()
        });
    }

    #[test]
    fn no_secret_is_shown_of_which_the_beginning_was_dropped() {
        secret::check_cut(0, |text| {
            let mut live = LiveBar::on(ProgressDrawTarget::hidden(), Verbosity::Normal);
            // The end of the text that is kept begins within the secret.
            let (before, after) = ("x".repeat(4_000), "y".repeat(110));
            live.say(&format!("{before}{text}{after}"));
            live.bar.message()
        });
    }
}
