//! Reads the arguments of a system call from the memory of the process that is suspended in it. Read-only.

use rustix::fs::Timespec;
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The memory of a suspended process.
pub(super) struct TracedMemory(File);

impl TracedMemory {
    /// Opens `/proc/PID/mem` of a process for reading.
    ///
    /// # Errors
    /// The error of opening the file: the process has ended, or its memory may not be read.
    pub fn of(process: u32) -> Result<Self> {
        let opened = File::open(format!("/proc/{process}/mem"));
        opened
            .map(Self)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))
    }

    /// Reads exactly `count` bytes.
    ///
    /// # Errors
    /// `EFAULT` if fewer bytes can be read there.
    pub fn bytes(&self, at: u64, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.0.read_exact_at(&mut bytes, at).map_err(|_| Errno::FAULT)?;
        Ok(bytes)
    }

    /// Reads up to the first NUL, which must come within `most` bytes.
    ///
    /// # Errors
    /// `EFAULT` if the memory cannot be read; `ENAMETOOLONG` if no NUL comes in time.
    pub fn text(&self, at: u64, most: usize) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut buffer = [0; 256];
        while text.len() < most {
            let got = self
                .0
                .read_at(&mut buffer, at + text.len() as u64)
                .map_err(|_| Errno::FAULT)?;
            let Some(piece) = buffer.get(..got).filter(|piece| !piece.is_empty()) else {
                return Err(Errno::FAULT);
            };
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&piece[..end]);
                    return if text.len() < most {
                        Ok(text)
                    } else {
                        Err(Errno::NAMETOOLONG)
                    };
                }
                None => text.extend_from_slice(piece),
            }
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Reads an array of 64-bit integers in native byte order.
    ///
    /// # Errors
    /// `EFAULT` if the memory cannot be read.
    pub fn numbers<const N: usize>(&self, at: u64) -> Result<[i64; N]> {
        let bytes = self.bytes(at, N * 8)?;
        let mut numbers = [0; N];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = i64::from_ne_bytes(bytes.try_into().map_err(|_| Errno::FAULT)?);
        }
        Ok(numbers)
    }

    /// Reads two times (access, modification) whose second part is in units of `nanos` nanoseconds; `None` means now.
    ///
    /// # Errors
    /// `EFAULT` if the memory cannot be read.
    pub fn times(&self, at: u64, nanos: i64) -> Result<Option<[Timespec; 2]>> {
        if at == 0 {
            return Ok(None);
        }
        let [access, access_part, modified, modified_part] = self.numbers(at)?;
        let time = |tv_sec, part: i64| Timespec {
            tv_sec,
            tv_nsec: part.saturating_mul(nanos),
        };
        Ok(Some([time(access, access_part), time(modified, modified_part)]))
    }

    /// Reads two times (access, modification) in whole seconds, as utime(2) takes them; `None` means now.
    ///
    /// # Errors
    /// `EFAULT` if the memory cannot be read.
    #[cfg(target_arch = "x86_64")]
    pub fn seconds(&self, at: u64) -> Result<Option<[Timespec; 2]>> {
        if at == 0 {
            return Ok(None);
        }
        let whole = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
        Ok(Some(self.numbers::<2>(at)?.map(whole)))
    }
}
