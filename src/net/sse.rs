//! Decodes server-sent events from a byte stream. Pure and bounded; chunk boundaries do not matter.

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The `event:` field; empty when absent.
    pub event: String,
    /// The `data:` fields joined by newlines.
    pub data: String,
}

/// The name of an event that reports an error.
pub const ERROR: &str = "error";

/// A line or an event exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// A decoder for a stream of bytes.
#[derive(Debug)]
pub struct SseDecoder {
    most: usize,
    line: Vec<u8>,
    event: String,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    at_start: bool,
}

impl SseDecoder {
    /// A decoder that buffers at most `most` bytes of one event.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            event: String::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes a chunk and appends the completed events to `out`.
    ///
    /// # Errors
    /// [`TooLong`]; the decoder is unusable afterwards.
    pub fn push(&mut self, mut piece: &[u8], out: &mut Vec<Frame>) -> Result<(), TooLong> {
        if self.after_cr && !piece.is_empty() {
            self.after_cr = false;
            if piece[0] == b'\n' {
                piece = &piece[1..];
            }
        }
        while let Some(end) = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.hold(&piece[..end])?;
            self.line_done(out)?;
            let cr = piece[end] == b'\r';
            piece = &piece[end + 1..];
            match (cr, piece.first()) {
                (true, Some(b'\n')) => piece = &piece[1..],
                (true, None) => self.after_cr = true,
                _ => {}
            }
        }
        self.hold(piece)
    }

    /// Call at the end of the stream. An event without its final blank line is returned too, so that the caller can
    /// judge it.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn finish(&mut self, out: &mut Vec<Frame>) -> Result<(), TooLong> {
        if !self.line.is_empty() {
            self.line_done(out)?;
        }
        self.dispatch(out);
        Ok(())
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > self.most {
            return Err(TooLong(self.most));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_done(&mut self, out: &mut Vec<Frame>) -> Result<(), TooLong> {
        let taken = std::mem::take(&mut self.line);
        let mut line = taken.as_slice();
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(out);
        } else if line[0] == b'{' {
            // Some servers put a bare JSON error into the stream.
            self.data_line(line)?;
            self.dispatch(out);
        } else {
            let (name, value) = match line.iter().position(|byte| *byte == b':') {
                Some(colon) => (&line[..colon], &line[colon + 1..]),
                None => (line, &b""[..]),
            };
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match name {
                b"data" => self.data_line(value)?,
                b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
                // Not in the standard: llama.cpp names the field after the event.
                b"error" => {
                    ERROR.clone_into(&mut self.event);
                    self.data_line(value)?;
                }
                _ => {}
            }
        }
        // The buffer is kept, because most lines have about the same length.
        self.line = taken;
        self.line.clear();
        Ok(())
    }

    fn data_line(&mut self, value: &[u8]) -> Result<(), TooLong> {
        if self.data.len() + value.len() > self.most {
            return Err(TooLong(self.most));
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        self.has_data = true;
        Ok(())
    }

    fn dispatch(&mut self, out: &mut Vec<Frame>) {
        let event = std::mem::take(&mut self.event);
        // The standard drops events without data, but an error must not be lost.
        if std::mem::take(&mut self.has_data) || event == ERROR {
            out.push(Frame {
                event,
                data: String::from_utf8_lossy(&self.data).into_owned(),
            });
            self.data.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = SseDecoder::new(1 << 16);
        let mut out = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut out).unwrap();
        }
        decoder.finish(&mut out).unwrap();
        out.into_iter().map(|frame| (frame.event, frame.data)).collect()
    }

    fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
        wanted.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
    }

    /// llama.cpp names the field after the event.
    #[test]
    fn an_error_is_an_event_in_every_form() {
        let told = all(&[b"error: {}\n\nevent: error\n\nevent: ping\n\n"]);
        let error = |data: &str| ("error".to_owned(), data.to_owned());
        assert_eq!(told, [error("{}"), error("")]);
    }

    #[test]
    fn fields_comments_and_line_ends() {
        assert_eq!(
            all(&[b"data: a\n\ndata:b\r\n\r\n: hi\rdata: c\r\r"]),
            pairs(&[("", "a"), ("", "b"), ("", "c")])
        );
        assert_eq!(
            all(&[b"event: ping\ndata: 1\ndata: 2\nid: 7\n\n"]),
            pairs(&[("ping", "1\n2")])
        );
        assert_eq!(
            all(&[b"\xef\xbb\xbfdata: a\n\n\n\nevent: lost\n\n"]),
            pairs(&[("", "a")])
        );
        assert_eq!(all(&[b"data\n\n"]), pairs(&[("", "")]));
        assert_eq!(all(&[b"data: unfinished"]), pairs(&[("", "unfinished")]));
        assert_eq!(
            all(&[b"{\"error\": 1}\ndata: b\n\n"]),
            pairs(&[("", "{\"error\": 1}"), ("", "b")])
        );
        assert_eq!(
            all(&[b"data: a\r", b"\n\r", b"\ndata: b\n\n"]),
            pairs(&[("", "a"), ("", "b")])
        );
    }

    #[test]
    fn long_lines_are_refused() {
        let mut decoder = SseDecoder::new(8);
        assert_eq!(decoder.push(b"data: 0123456789", &mut Vec::new()), Err(TooLong(8)));
        let mut decoder = SseDecoder::new(8);
        let many = b"data: a\n".repeat(9);
        assert_eq!(decoder.push(&many, &mut Vec::new()), Err(TooLong(8)));
    }

    proptest! {
        #[test]
        fn split_anywhere_gives_the_same(text in "(data: [a-zé]{0,5}|event: x|: c|)((\r\n|\n|\r)(data: [a-zé]{0,5}|event: x|: c|)){0,12}", cuts in prop::collection::vec(0usize..200, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(all(&pieces), all(&[bytes]));
        }
    }
}
