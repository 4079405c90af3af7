//! The only writer of events: timestamp, redact, append to the journal, apply to the state, send to the sinks.
//!
//! `Ledger::state` is public because the effects note two facts in it before their event exists; see `state.rs`.

use super::state::RunState;
use crate::base::event::{Event, EventKind, ProgressEvent, Sink};
use crate::base::secret::Redactor;
use crate::journal::{Journal, JournalError, JournalWriter};
use crate::tools::LiveSender;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Capacity of the progress channel; when it is full, progress events are dropped.
const LIVE_WAITING: usize = 256;

/// The record of a run in progress.
pub struct Ledger {
    writer: JournalWriter,
    /// The state after all recorded events.
    pub state: RunState,
    seq: u64,
    sinks: Vec<Box<dyn Sink>>,
    redactor: Arc<Redactor>,
    lives: mpsc::Receiver<ProgressEvent>,
    sender: LiveSender,
    /// The first error of a sink, reported at the end.
    sink_error: Option<std::io::Error>,
    /// The event that the journal could not take.
    unwritten: Option<Event>,
}

impl Ledger {
    /// Begins a journal with its first event.
    ///
    /// # Errors
    /// The directory is taken, or the journal cannot be written.
    pub fn begin(
        dir: &Path,
        first: EventKind,
        sinks: Vec<Box<dyn Sink>>,
        redactor: Arc<Redactor>,
    ) -> Result<Self, JournalError> {
        let event = clean(
            &redactor,
            Event {
                seq: 0,
                at: Timestamp::now(),
                kind: first,
            },
        );
        let writer = JournalWriter::create(dir, &event)?;
        let mut ledger = Self::over(writer, sinks, redactor);
        ledger.take(&event);
        Ok(ledger)
    }

    /// Continues an existing journal.
    ///
    /// # Errors
    /// The journal cannot be read, or another process continues it.
    pub fn reopen(dir: &Path, sinks: Vec<Box<dyn Sink>>, redactor: Arc<Redactor>) -> Result<Self, JournalError> {
        let (writer, events) = JournalWriter::reopen(dir)?;
        let mut ledger = Self::over(writer, sinks, redactor);
        ledger.state = RunState::fold(&events);
        ledger.seq = events.len() as u64;
        for sink in &mut ledger.sinks {
            for event in &events {
                sink.on_earlier(event);
            }
        }
        Ok(ledger)
    }

    fn over(writer: JournalWriter, sinks: Vec<Box<dyn Sink>>, redactor: Arc<Redactor>) -> Self {
        let (sender, lives) = mpsc::channel(LIVE_WAITING);
        let sender = LiveSender::new(move |live| {
            // If the channel is full the event is dropped, so that a slow reader never delays the run.
            let _ = sender.try_send(live);
        });
        Self {
            writer,
            state: RunState::default(),
            seq: 0,
            sinks,
            redactor,
            lives,
            sender,
            sink_error: None,
            unwritten: None,
        }
    }

    /// Records an event. It survives a crash of the process from here on, and a crash of the machine after `sync`.
    ///
    /// # Errors
    /// The journal cannot take the event, which is kept for [`Ledger::unwritten`].
    pub fn record(&mut self, kind: EventKind) -> Result<(), JournalError> {
        let event = Event {
            seq: self.seq,
            at: Timestamp::now(),
            kind,
        };
        let mut entry = serialized(&event)?;
        // Serialized once for both uses, because most events contain no secret and are written unchanged.
        let event = if self.redactor.is_empty() || self.redactor.find(entry.as_bytes()).is_none() {
            event
        } else {
            let cleaned = clean(&self.redactor, event);
            entry = serialized(&cleaned)?;
            cleaned
        };
        if let Err(error) = self.writer.append(&entry) {
            self.unwritten = Some(event);
            return Err(error);
        }
        self.take(&event);
        Ok(())
    }

    /// Records a warning.
    ///
    /// # Errors
    /// As for [`Ledger::record`].
    pub fn warn(&mut self, code: &str, message: String) -> Result<(), JournalError> {
        self.record(EventKind::Warned {
            code: code.to_owned(),
            message,
        })
    }

    /// The event that the journal could not take: what it tells did happen, such as a reply that was paid for.
    pub fn unwritten(&mut self) -> Option<Event> {
        self.unwritten.take()
    }

    /// What was recorded, even if the journal has since been removed. `None` if it cannot be read.
    pub fn recorded(&self) -> Option<Journal> {
        self.writer.written()
    }

    /// Returns once everything recorded is on disk.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.writer.sync()
    }

    /// Like `sync`, for events that count only once this machine has recorded them: a resume with a person's answers, and
    /// the end of the run.
    ///
    /// # Errors
    /// As for [`Ledger::sync`], or the state directory cannot be written.
    pub fn sync_with_head(&mut self) -> Result<(), JournalError> {
        self.writer.sync_with_head()
    }

    /// Records where the outputs are that flags named, for a later resume.
    pub fn remember(&mut self, copies: BTreeMap<String, String>) {
        self.writer.remember(copies);
    }

    /// Continues in another directory; the files beside the journal are moved with it.
    ///
    /// # Errors
    /// The files cannot be moved.
    pub fn move_to(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.writer.move_to(dir)
    }

    /// Why this machine will not recognise the journal later; `None` if it will.
    pub fn headless(&self) -> Option<&str> {
        self.writer.headless()
    }

    /// Like `sync`, but does not wait: for events that are recorded after an effect.
    ///
    /// # Errors
    /// [`JournalError::Write`] if an earlier sync failed or no sync can be requested.
    pub fn sync_behind(&mut self) -> Result<(), JournalError> {
        self.writer.sync_in_background()
    }

    fn take(&mut self, event: &Event) {
        self.state.apply(&event.kind);
        self.seq = event.seq + 1;
        for sink in &mut self.sinks {
            if let Err(error) = sink.on_event(event) {
                self.sink_error.get_or_insert(error);
            }
        }
    }

    /// Sender of the progress channel.
    pub fn live(&self) -> LiveSender {
        self.sender.clone()
    }

    /// Awaits `work` and passes on progress events meanwhile.
    pub async fn watch<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    while let Ok(live) = self.lives.try_recv() {
                        self.show(&live);
                    }
                    return done;
                }
                Some(live) = self.lives.recv() => self.show(&live),
            }
        }
    }

    fn show(&mut self, live: &ProgressEvent) {
        for sink in &mut self.sinks {
            sink.on_live(live);
        }
    }

    /// Closes the sinks. Returns the final state, and the first error of any sink.
    pub fn finish(mut self) -> (RunState, Result<(), std::io::Error>) {
        self.writer.tidy();
        for sink in &mut self.sinks {
            if let Err(error) = sink.finish() {
                self.sink_error.get_or_insert(error);
            }
        }
        let result = match self.sink_error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        };
        (self.state, result)
    }
}

fn serialized(event: &Event) -> Result<String, JournalError> {
    serde_json::to_string(event).map_err(|error| JournalError::Write {
        path: "journal".to_owned(),
        source: error.into(),
    })
}

/// The event with every known secret redacted.
fn clean(redactor: &Redactor, event: Event) -> Event {
    if redactor.is_empty() {
        return event;
    }
    let Ok(mut value) = serde_json::to_value(&event.kind) else {
        return event;
    };
    if redactor.find(value.to_string().as_bytes()).is_none() {
        return event;
    }
    redactor.redact_json(&mut value);
    match serde_json::from_value(value) {
        Ok(kind) => Event { kind, ..event },
        // If redaction breaks the event's own format (a secret equals a tag), the text is dropped but the event keeps
        // its place.
        Err(_) => Event {
            kind: EventKind::Warned {
                code: "secret_in_record".to_owned(),
                message: "an event was left out because a secret value is a word of its format".to_owned(),
            },
            ..event
        },
    }
}
