//! `--format stream-json`: one event per line during the run, the result object last.
//!
//! A line is a journal event with the key `type` instead of `event`: `{"type":"run_started","seq":0,"at":…}`. The first
//! line is `{"type":"stream","schema":"overnight/stream/v1"}`. Live text is not part of the stream.

use super::result::RunResult;
use crate::base::event::{Event, Sink};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// The value of `schema` in the first line.
pub const SCHEMA: &str = "overnight/stream/v1";

/// A sink that writes one JSON object per line. A closed pipe does not stop the run.
pub struct Stream<W> {
    out: W,
    begun: bool,
    gone: bool,
}

impl<W: Write + Send> Stream<W> {
    /// Writes to `out`, which is flushed after each line.
    pub fn new(out: W) -> Self {
        Self {
            out,
            begun: false,
            gone: false,
        }
    }

    /// Writes the last line: the result object with `"type":"result"`. Call it once, even if there was no event.
    ///
    /// # Errors
    /// Write errors other than a broken pipe.
    pub fn last(&mut self, result: &RunResult) -> io::Result<()> {
        self.begin()?;
        self.line(&last(result))
    }

    /// The writer.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn begin(&mut self) -> io::Result<()> {
        if self.begun {
            return Ok(());
        }
        self.begun = true;
        self.line(&format!("{}\n", json!({"type": "stream", "schema": SCHEMA})))
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        if self.gone {
            return Ok(());
        }
        let written = self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            other => other,
        }
    }
}

impl<W: Write + Send> Sink for Stream<W> {
    fn on_event(&mut self, event: &Event) -> io::Result<()> {
        self.begin()?;
        self.line(&line(event)?)
    }
}

/// The last line of the stream: the result object with its type, and a newline.
pub fn last(result: &RunResult) -> String {
    let mut object = Map::new();
    object.insert("type".to_owned(), Value::from("result"));
    if let Value::Object(rest) = result.to_value() {
        object.extend(rest);
    }
    format!("{}\n", Value::Object(object))
}

/// An event as a line of the stream, with a newline.
fn line(event: &Event) -> io::Result<String> {
    let mut object = Map::new();
    object.insert("type".to_owned(), Value::Null);
    if let Value::Object(fields) = serde_json::to_value(event)? {
        for (name, value) in fields {
            let name = if name == "event" { "type".to_owned() } else { name };
            object.insert(name, value);
        }
    }
    Ok(format!("{}\n", Value::Object(object)))
}
