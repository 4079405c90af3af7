//! Captures one output of a command: redacts it as it arrives, keeps head and tail in memory and the complete output in
//! a file.

use super::Captured;
use crate::base::secret::{RedactStream, Redactor};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes kept of the beginning and of the end of one output.
const KEEP_SIDE: u64 = 16 << 20;
/// Bytes that all output files in one directory may have together.
const KEEP_ALL: u64 = 64 << 20;
/// Bytes of the beginning that decide whether an output is text.
const SNIFF: usize = 4096;
/// The number of non-text bytes from which an output can count as binary.
const FEW: usize = 8;

/// Called with each piece of text, redacted, as it arrives; must not block.
pub type OnOutput = Arc<dyn Fn(&str) + Send + Sync>;

/// Takes an output piece by piece.
pub(crate) struct Capture {
    redact: RedactStream,
    live: Option<(OnOutput, Vec<u8>)>,
    head: Vec<u8>,
    head_room: usize,
    tail: VecDeque<u8>,
    tail_room: usize,
    bytes: u64,
    sniffed: Vec<u8>,
    odd: Odd,
    /// Bytes after redaction.
    passed: u64,
    keep: Keep,
}

impl Capture {
    /// Keeps at most `shown` bytes in memory; writes the complete output to `keep` if there are more.
    pub fn new(redactor: &Redactor, shown: usize, keep: Option<PathBuf>, on_output: Option<OnOutput>) -> Self {
        Self {
            redact: redactor.stream(),
            live: on_output.map(|tell| (tell, Vec::new())),
            head: Vec::new(),
            head_room: shown.div_ceil(2),
            tail: VecDeque::new(),
            tail_room: shown / 2,
            bytes: 0,
            sniffed: Vec::new(),
            odd: Odd::default(),
            passed: 0,
            keep: keep.map_or(Keep::Nowhere, Keep::Ready),
        }
    }

    /// Takes the next bytes of the program.
    pub fn push(&mut self, piece: &[u8]) {
        let room = (SNIFF - self.sniffed.len()).min(piece.len());
        self.sniffed.extend_from_slice(&piece[..room]);
        self.odd.count(piece);
        self.bytes += piece.len() as u64;
        let safe = self.redact.push(piece);
        self.take(&safe);
    }

    fn take(&mut self, safe: &[u8]) {
        if safe.is_empty() {
            return;
        }
        if let Some((tell, carry)) = &mut self.live {
            pass_on(tell, carry, safe, false);
        }
        let overflows = self.passed + safe.len() as u64 > (self.head_room + self.tail_room) as u64;
        if overflows {
            self.keep.open(&self.head, &self.tail);
        }
        self.keep.write(safe);
        self.passed += safe.len() as u64;
        let first = (self.head_room - self.head.len()).min(safe.len());
        self.head.extend_from_slice(&safe[..first]);
        let rest = &safe[first..];
        let rest = &rest[rest.len().saturating_sub(self.tail_room)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_room);
        self.tail.drain(..surplus.min(self.tail.len()));
        self.tail.extend(rest);
    }

    /// Ends the capture.
    pub fn finish(mut self) -> Captured {
        let last = self.redact.finish();
        self.take(&last);
        if let Some((tell, carry)) = &mut self.live {
            pass_on(tell, carry, &[], true);
        }
        self.odd.end();
        let tail: Vec<u8> = self.tail.into();
        let cut = self.passed > (self.head.len() + tail.len()) as u64;
        let missing = self.passed - (self.head.len() + tail.len()) as u64;
        let text = if cut {
            join_cut(&self.head, missing, &tail)
        } else {
            self.head.extend_from_slice(&tail);
            shown(&self.head)
        };
        Captured {
            text,
            bytes: self.bytes,
            cut,
            omitted: self.keep.close().unwrap_or(missing).min(missing),
            binary: is_binary(&self.sniffed),
            nuls: self.odd.nuls,
            not_utf8: self.odd.not_utf8,
        }
    }
}

/// Head and tail with a notice between them; a character cut at either side is left out.
fn join_cut(head: &[u8], missing: u64, tail: &[u8]) -> String {
    let head = &head[..head.len() - unfinished(head)];
    let skip = tail
        .iter()
        .take(3)
        .take_while(|byte| (0x80..0xc0).contains(*byte))
        .count();
    let tail = &tail[skip..];
    let missing = missing + skip as u64;
    format!("{}\n[... {missing} bytes left out ...]\n{}", shown(head), shown(tail))
}

/// As text, with a replacement character for each NUL byte and each invalid UTF-8 sequence.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.contains('\0') {
        true => text.replace('\0', "\u{fffd}"),
        false => text.into_owned(),
    }
}

/// Counts of the bytes that do not occur in text.
#[derive(Default)]
struct Odd {
    nuls: u64,
    not_utf8: u64,
    /// The beginning of a UTF-8 sequence that is still incomplete.
    carry: Vec<u8>,
}

impl Odd {
    fn count(&mut self, piece: &[u8]) {
        let joined;
        let piece = match self.carry.is_empty() {
            true => piece,
            false => {
                joined = [&std::mem::take(&mut self.carry), piece].concat();
                &joined
            }
        };
        let (piece, rest) = piece.split_at(piece.len() - unfinished(piece));
        self.carry.extend_from_slice(rest);
        self.nuls += memchr::memchr_iter(0, piece).count() as u64;
        if std::str::from_utf8(piece).is_err() {
            let invalid = piece.utf8_chunks().map(|chunk| chunk.invalid().len() as u64);
            self.not_utf8 += invalid.sum::<u64>();
        }
    }

    fn end(&mut self) {
        self.not_utf8 += std::mem::take(&mut self.carry).len() as u64;
    }
}

/// Whether an output with this beginning is binary: mostly NUL bytes, or many control characters or invalid UTF-8. A
/// NUL-separated list, or a few bytes in another encoding, still counts as text.
fn is_binary(begin: &[u8]) -> bool {
    let count = |odd: fn(u8) -> bool| begin.iter().filter(|byte| odd(**byte)).count();
    let nuls = count(|byte| byte == 0);
    let control = count(|byte| matches!(byte, 0x01..=0x06 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f));
    let cut = begin.len() - unfinished(begin);
    let invalid: usize = begin[..cut].utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    let many = |odd: usize, share: usize| odd >= FEW && odd * 100 > begin.len() * share;
    many(nuls, 50) || many(control, 10) || many(invalid, 30) || many(control + invalid, 20)
}

/// Number of bytes at the end that form an incomplete UTF-8 sequence.
fn unfinished(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    for (at, byte) in bytes.iter().enumerate().skip(from).rev() {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        let have = bytes.len() - at;
        return if have < length { have } else { 0 };
    }
    0
}

fn pass_on(tell: &OnOutput, carry: &mut Vec<u8>, piece: &[u8], last: bool) {
    carry.extend_from_slice(piece);
    let end = if last {
        carry.len()
    } else {
        carry.len() - unfinished(carry)
    };
    if end > 0 {
        tell(&shown(&carry[..end]));
        carry.drain(..end);
    }
}

/// The file with the complete output: its first part in order, then a ring buffer for its last part.
enum Keep {
    Nowhere,
    Ready(PathBuf),
    Open {
        file: File,
        side: u64,
        written: u64,
    },
    /// Writing failed: only what is in memory is kept.
    Failed,
}

impl Keep {
    /// Opens the file when the memory limit is exceeded, and writes what was kept so far.
    fn open(&mut self, head: &[u8], tail: &VecDeque<u8>) {
        let Keep::Ready(path) = self else { return };
        let room = KEEP_ALL.saturating_sub(beside(path)) / 2;
        if let Some(dir) = path.parent() {
            // If the directory cannot be created, opening the file below fails.
            let _ = std::fs::create_dir_all(dir);
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&*path);
        *self = match file {
            Ok(file) if room > 0 => Keep::Open {
                file,
                side: room.min(KEEP_SIDE),
                written: 0,
            },
            _ => Keep::Failed,
        };
        self.write(head);
        let (a, b) = tail.as_slices();
        self.write(a);
        self.write(b);
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Keep::Open { file, side, written } = self
            && write_ring(file, *side, written, bytes).is_err()
        {
            *self = Keep::Failed;
        }
    }

    /// Rotates the ring buffer into order. Returns how many bytes are missing from the file; `None` when there is no
    /// file.
    fn close(self) -> Option<u64> {
        let Keep::Open {
            mut file,
            side,
            written,
        } = self
        else {
            return None;
        };
        let lost = written.saturating_sub(2 * side);
        if lost > 0 {
            unroll(&mut file, side, written, lost).ok()?;
        }
        Some(lost)
    }
}

fn write_ring(file: &mut File, side: u64, written: &mut u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (at, room) = if *written < side {
            (*written, side - *written)
        } else {
            let in_ring = (*written - side) % side;
            (side + in_ring, side - in_ring)
        };
        let count = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&bytes[..count])?;
        *written += count as u64;
        bytes = &bytes[count..];
    }
    Ok(())
}

fn unroll(file: &mut File, side: u64, written: u64, lost: u64) -> io::Result<()> {
    let mut ring = Vec::new();
    file.seek(SeekFrom::Start(side))?;
    file.take(side).read_to_end(&mut ring)?;
    let start = usize::try_from((written - side) % side).unwrap_or(0).min(ring.len());
    ring.rotate_left(start);
    file.seek(SeekFrom::Start(side))?;
    write!(file, "\n[... {lost} bytes left out ...]\n")?;
    file.write_all(&ring)
}

/// Total size of the other files in the directory of `path`.
fn beside(path: &Path) -> u64 {
    let Some(Ok(dir)) = path.parent().map(std::fs::read_dir) else {
        return 0;
    };
    dir.flatten()
        .filter(|item| item.path() != path)
        .filter_map(|item| item.metadata().ok())
        .map(|data| data.len())
        .sum()
}

#[cfg(test)]
mod tests;
