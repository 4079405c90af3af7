//! Reads the path and the arguments of an exec from the memory of the suspended process.

use crate::base::path::PATH_MAX;
use rustix::process::Pid;
use std::ops::Range;

/// The most arguments of one exec.
const MOST_WORDS: usize = 65_536;
/// The most bytes of all arguments of one exec. The kernel itself accepts at most a quarter of the stack limit, 6 MiB.
const MOST_BYTES: usize = 4 << 20;
/// Bytes of a process's list of mappings; the kernel allows some 65,000 lines.
const MOST_MAPS: u64 = 16 << 20;

const PAGE: u64 = 4096;

/// Why an exec cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The memory may not be read, or the process has ended.
    Memory,
    /// One of the limits above was exceeded.
    TooLong,
    /// It is in memory that other processes could change during the judgement.
    Shared,
}

/// The memory of one process.
pub(super) struct ProcessMemory {
    process: i32,
    /// Mappings shared by several processes, in order.
    shared: Vec<Range<u64>>,
    left: usize,
}

impl ProcessMemory {
    /// Prepares reading a process.
    ///
    /// # Errors
    /// [`Unread::Memory`] if its mappings cannot be read; [`Unread::TooLong`] if there are too many.
    pub fn of(process: i32) -> Result<Self, Unread> {
        Ok(Self {
            process,
            shared: shared(process)?,
            left: MOST_BYTES,
        })
    }

    /// Reads a path without its NUL; `None` when it is longer than any valid path.
    ///
    /// # Errors
    /// [`Unread::Memory`] if the memory cannot be read; [`Unread::Shared`] if another process could change it.
    pub fn path(&mut self, at: u64) -> Result<Option<Vec<u8>>, Unread> {
        match self.text(at, PATH_MAX) {
            Ok(path) => Ok(Some(path)),
            Err(Unread::TooLong) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a list of strings that ends with a null pointer, as lossy UTF-8. A null list pointer means an empty list.
    ///
    /// # Errors
    /// [`Unread::Memory`] if the memory cannot be read; [`Unread::Shared`] if another process could change it;
    /// [`Unread::TooLong`] if the list or its text exceeds the limits.
    pub fn words(&mut self, at: u64) -> Result<Vec<String>, Unread> {
        let mut words = Vec::new();
        for pointer in self.pointers(at)? {
            let word = self.text(pointer, self.left)?;
            words.push(String::from_utf8_lossy(&word).into_owned());
        }
        Ok(words)
    }

    fn pointers(&self, mut at: u64) -> Result<Vec<u64>, Unread> {
        let mut all = Vec::new();
        if at == 0 {
            return Ok(all);
        }
        let mut buffer = [0; 512];
        loop {
            // A pointer may cross a page boundary; reads whole pointers only.
            let want = (to_page_end(at).min(512) & !7).max(8);
            let got = self.read(at, &mut buffer[..want])?;
            if got < 8 {
                return Err(Unread::Memory);
            }
            for bytes in buffer[..got & !7].chunks_exact(8) {
                let pointer = bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
                if pointer == 0 {
                    return Ok(all);
                }
                if all.len() == MOST_WORDS {
                    return Err(Unread::TooLong);
                }
                all.push(pointer);
            }
            at = at.wrapping_add((got & !7) as u64);
        }
    }

    /// Never reads across the end of a page: the next page may not be mapped.
    fn text(&mut self, mut at: u64, most: usize) -> Result<Vec<u8>, Unread> {
        let mut text = Vec::new();
        let mut buffer = [0; PAGE as usize];
        loop {
            let want = to_page_end(at).min(if text.is_empty() { 256 } else { buffer.len() });
            let got = self.read(at, &mut buffer[..want])?;
            let piece = &buffer[..got];
            let end = piece.iter().position(|byte| *byte == 0);
            text.extend_from_slice(&piece[..end.unwrap_or(got)]);
            if text.len() >= most.min(self.left) {
                return Err(Unread::TooLong);
            }
            if end.is_some() {
                self.left -= text.len() + 1;
                return Ok(text);
            }
            at = at.wrapping_add(got as u64);
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Unread> {
        let end = at.wrapping_add(into.len() as u64);
        if self.shared.iter().any(|range| range.start < end && at < range.end) {
            return Err(Unread::Shared);
        }
        read_memory(self.process, at, into).ok_or(Unread::Memory)
    }
}

fn to_page_end(at: u64) -> usize {
    usize::try_from(PAGE - at % PAGE).unwrap_or(1)
}

/// Returns the number of bytes read, at least one.
#[expect(unsafe_code, reason = "another process's memory is read by a system call")]
fn read_memory(process: i32, at: u64, into: &mut [u8]) -> Option<usize> {
    Pid::from_raw(process)?;
    let ours = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let theirs = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(at).ok()?),
        iov_len: into.len(),
    };
    // SAFETY: `ours` is a buffer that this function owns during the call; `theirs` is an address in another process,
    // which the kernel checks.
    let got = unsafe { libc::process_vm_readv(process, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(got).ok().filter(|got| *got > 0)
}

/// The shared mappings of a process.
fn shared(process: i32) -> Result<Vec<Range<u64>>, Unread> {
    use std::io::Read;
    let file = std::fs::File::open(format!("/proc/{process}/maps")).map_err(|_| Unread::Memory)?;
    // With room for some pages each call returns as much as the kernel gives at once.
    let mut text = Vec::with_capacity(4 * PAGE as usize);
    file.take(MOST_MAPS)
        .read_to_end(&mut text)
        .map_err(|_| Unread::Memory)?;
    if text.is_empty() {
        return Err(Unread::Memory);
    }
    if text.len() as u64 == MOST_MAPS {
        return Err(Unread::TooLong);
    }
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(shared_range)
        .collect::<Option<Vec<_>>>()
        .map(|ranges| ranges.into_iter().flatten().collect())
        .ok_or(Unread::Memory)
}

/// Parses `55d0c0000000-55d0c0001000 rw-s …`. `None` for a malformed line.
fn shared_range(line: &[u8]) -> Option<Option<Range<u64>>> {
    let mut fields = line.split(|byte| *byte == b' ');
    let range = std::str::from_utf8(fields.next()?).ok()?;
    let rights = fields.next()?;
    if rights.get(3)? != &b's' {
        return Some(None);
    }
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Some(number(start)?..number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ourselves() -> ProcessMemory {
        ProcessMemory::of(rustix::process::getpid().as_raw_nonzero().get()).unwrap()
    }

    #[test]
    fn words_are_read_whole_and_across_pages() {
        let long = "x".repeat(9_000);
        let texts = [
            c"git".to_owned(),
            std::ffi::CString::new(long.clone()).unwrap(),
            c"".to_owned(),
        ];
        let mut list: Vec<u64> = texts.iter().map(|text| text.as_ptr() as u64).collect();
        list.push(0);
        let mut memory = of_ourselves();
        let words = memory.words(list.as_ptr() as u64).unwrap();
        assert_eq!(words, ["git", long.as_str(), ""]);
        assert_eq!(memory.words(0).unwrap(), [""; 0]);
        assert_eq!(memory.path(list[1]).unwrap(), None);
        assert_eq!(memory.path(list[0]).unwrap().unwrap(), b"git");
    }

    #[test]
    fn limits_and_holes_are_errors() {
        let text = c"abc";
        let mut list = vec![text.as_ptr() as u64; MOST_WORDS + 1];
        list.push(0);
        assert_eq!(of_ourselves().words(list.as_ptr() as u64), Err(Unread::TooLong));
        let long = std::ffi::CString::new("y".repeat(MOST_BYTES / 2)).unwrap();
        let list = [long.as_ptr() as u64, long.as_ptr() as u64, 0];
        assert_eq!(of_ourselves().words(list.as_ptr() as u64), Err(Unread::TooLong));
        assert_eq!(of_ourselves().words(8), Err(Unread::Memory));
    }

    #[test]
    fn lines_of_mappings() {
        let range = shared_range(b"7f00-7f10 rw-s 00000000 00:01 5 /dev/zero (deleted)");
        assert_eq!(range, Some(Some(0x7f00..0x7f10)));
        assert_eq!(shared_range(b"7f00-7f10 rw-p 00000000 00:00 0 [heap]"), Some(None));
        assert_eq!(shared_range(b"nonsense"), None);
    }
}
