//! The only writer of events: stamp → redact → journal → state → sinks. Decides nothing.

use super::state::State;
use crate::base::event::{Event, EventKind, Live, Sink};
use crate::base::secret::Redactor;
use crate::journal::{JournalError, Writer};
use crate::tools::LiveSender;
use jiff::Timestamp;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

/// How many passing impressions may wait; more are lost.
const LIVE_WAITING: usize = 256;

/// The record of a run that goes on.
pub struct Ledger {
    writer: Writer,
    /// The fold of all that was recorded.
    pub state: State,
    seq: u64,
    sinks: Vec<Box<dyn Sink>>,
    redactor: Arc<Redactor>,
    lives: mpsc::Receiver<Live>,
    sender: LiveSender,
    /// The first failure of a sink, told at the end.
    sink_error: Option<std::io::Error>,
}

impl Ledger {
    /// Begins a record with its first event.
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
        let writer = Writer::create(dir, &event)?;
        let mut ledger = Self::over(writer, sinks, redactor);
        ledger.take(&event);
        Ok(ledger)
    }

    /// Goes on with a record.
    pub fn reopen(dir: &Path, sinks: Vec<Box<dyn Sink>>, redactor: Arc<Redactor>) -> Result<Self, JournalError> {
        let (writer, events) = Writer::reopen(dir)?;
        let mut ledger = Self::over(writer, sinks, redactor);
        ledger.state = State::fold(&events);
        ledger.seq = events.len() as u64;
        Ok(ledger)
    }

    fn over(writer: Writer, sinks: Vec<Box<dyn Sink>>, redactor: Arc<Redactor>) -> Self {
        let (sender, lives) = mpsc::channel(LIVE_WAITING);
        let sender = LiveSender::new(move |live| {
            // A full queue loses the impression; nothing waits for a slow onlooker.
            let _ = sender.try_send(live);
        });
        Self {
            writer,
            state: State::default(),
            seq: 0,
            sinks,
            redactor,
            lives,
            sender,
            sink_error: None,
        }
    }

    /// Records what happened. It survives the process from here on, and the machine after `sync`.
    pub fn record(&mut self, kind: EventKind) -> Result<(), JournalError> {
        let event = Event {
            seq: self.seq,
            at: Timestamp::now(),
            kind,
        };
        let mut entry = serialized(&event)?;
        // The text is made once for both: most events hold no secret and are written as they are.
        let event = if self.redactor.is_empty() || self.redactor.find(entry.as_bytes()).is_none() {
            event
        } else {
            let cleaned = clean(&self.redactor, event);
            entry = serialized(&cleaned)?;
            cleaned
        };
        self.writer.append(&entry)?;
        self.take(&event);
        Ok(())
    }

    /// Returns when all that was recorded is on the disk.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.writer.sync()
    }

    /// Goes on in another directory; what lies beside the record is moved with it.
    pub fn move_to(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.writer.move_to(dir)
    }

    /// Why this machine will not know the record again.
    pub fn headless(&self) -> Option<&str> {
        self.writer.headless()
    }

    /// As `sync`, but goes on at once: for what is recorded after an effect.
    pub fn sync_behind(&mut self) -> Result<(), JournalError> {
        self.writer.sync_behind()
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

    /// Where passing impressions go.
    pub fn live(&self) -> LiveSender {
        self.sender.clone()
    }

    /// Waits for `work` and shows its passing impressions meanwhile.
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

    fn show(&mut self, live: &Live) {
        for sink in &mut self.sinks {
            sink.on_live(live);
        }
    }

    /// Ends the sinks. The error is the first that any of them had.
    pub fn finish(mut self) -> (State, Result<(), std::io::Error>) {
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

/// The event with every known secret put out of it.
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
        // A secret that is also a word of the format (a tag) cannot be kept; the text is dropped, not the event's place.
        Err(_) => Event {
            kind: EventKind::Warned {
                code: "secret_in_record".to_owned(),
                message: "an event was left out because a secret value is a word of its format".to_owned(),
            },
            ..event
        },
    }
}
