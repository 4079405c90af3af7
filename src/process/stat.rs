//! Reads and parses the kernel's line about a process or thread, `/proc/PID/stat`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

/// More bytes than a line has: 52 numbers and a name.
const MOST_LINE: usize = 2048;

/// Reads a line with one system call; `std::fs::read` makes six for a file whose size the kernel does not report.
/// `None` when the process has ended.
pub(super) fn read_stat(path: impl AsRef<Path>) -> Option<Vec<u8>> {
    let mut line = vec![0; MOST_LINE];
    let length = File::open(path).ok()?.read(&mut line).ok()?;
    line.truncate(length);
    Some(line)
}

/// The fields after the name of the program, which is in parentheses and may contain any bytes.
pub(super) struct StatFields<'a>(Vec<&'a str>);

impl<'a> StatFields<'a> {
    /// `None` when the text is incomplete.
    pub fn of(text: &'a [u8]) -> Option<Self> {
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        Some(Self(rest.split_ascii_whitespace().collect()))
    }

    /// The name of the program, at most 15 bytes, as lossy UTF-8.
    pub fn name(text: &[u8]) -> Option<String> {
        let begin = text.iter().position(|byte| *byte == b'(')?;
        let end = text.iter().rposition(|byte| *byte == b')')?;
        Some(String::from_utf8_lossy(text.get(begin + 1..end)?).into_owned())
    }

    /// The letter of the state.
    pub fn state(&self) -> Option<&'a str> {
        self.0.first().copied()
    }

    /// A field by its number, counted from 1 as in proc_pid_stat(5). The state is the third, the first one here.
    pub fn number<N: FromStr>(&self, at: usize) -> Option<N> {
        self.0.get(at.checked_sub(3)?)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_confuse_the_fields() {
        let stat = StatFields::of(b"7 (a) S 9) (x) Z 3 4 5 0 -1").unwrap();
        assert_eq!(stat.state(), Some("Z"));
        assert_eq!(StatFields::name(b"7 (a) S 9) (x) Z 3").unwrap(), "a) S 9) (x");
        let numbers = [4, 6, 8].map(|at| stat.number::<i32>(at));
        assert_eq!(numbers, [Some(3), Some(5), Some(-1)]);
        assert_eq!((stat.number::<u64>(8), stat.number::<i32>(9)), (None, None));
        assert!(StatFields::of(b"7 (a").is_none());
        assert_eq!(StatFields::of(b"7 (a)").unwrap().state(), None);
    }
}
