//! Syncs a journal to disk on a background thread, and reports the first failure. The thread never writes events.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// A thread that syncs one file. It ends when this value is dropped.
#[derive(Debug)]
pub struct BackgroundSync {
    ask: SyncSender<Vec<u8>>,
    done: Receiver<io::Result<()>>,
    /// Syncs that were requested and have not finished.
    open: usize,
}

impl BackgroundSync {
    /// Starts the thread. `head` is the file that records how much of the journal is on disk.
    ///
    /// # Errors
    /// The file cannot be opened a second time, or no thread can be started.
    pub fn start(file: &File, head: Option<File>) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (ask, asked) = sync_channel::<Vec<u8>>(2);
        let (answer, done) = sync_channel(2);
        std::thread::Builder::new()
            .name("journal".to_owned())
            .stack_size(64 << 10)
            .spawn(move || {
                while let Ok(line) = asked.recv() {
                    let synced = file.sync_data().and_then(|()| match &head {
                        Some(head) => head.write_all_at(&line, 0),
                        None => Ok(()),
                    });
                    if answer.send(synced).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self { ask, done, open: 0 })
    }

    /// Requests a sync and returns at once, unless two are pending. After the sync the thread writes `line` to the head
    /// file.
    ///
    /// # Errors
    /// An earlier sync or an earlier write of the head file failed, or the thread has ended.
    pub fn sync(&mut self, line: Vec<u8>) -> io::Result<()> {
        loop {
            match self.done.try_recv() {
                Ok(done) => {
                    self.open -= 1;
                    done?;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(gone()),
            }
        }
        if self.open == 2 {
            self.wait_for_one()?;
        }
        self.ask.send(line).map_err(|_| gone())?;
        self.open += 1;
        Ok(())
    }

    /// Waits until no sync is pending.
    ///
    /// # Errors
    /// One of the pending syncs or writes of the head file failed, or the thread has ended.
    pub fn settle(&mut self) -> io::Result<()> {
        while self.open > 0 {
            self.wait_for_one()?;
        }
        Ok(())
    }

    fn wait_for_one(&mut self) -> io::Result<()> {
        self.open -= 1;
        self.done.recv().map_err(|_| gone())?
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that syncs the journal has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_syncs_are_all_answered() {
        let file = tempfile::tempfile().unwrap();
        let mut background = BackgroundSync::start(&file, None).unwrap();
        for _ in 0..20 {
            background.sync(Vec::new()).unwrap();
        }
        background.settle().unwrap();
        assert_eq!(background.open, 0);
    }

    #[test]
    fn the_head_is_told_when_the_journal_is_on_the_disk() {
        let (file, head) = (tempfile::tempfile().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let mut background = BackgroundSync::start(&file, Some(head.reopen().unwrap())).unwrap();
        for n in 0..5 {
            background.sync(format!("{n}\n").into_bytes()).unwrap();
        }
        background.settle().unwrap();
        assert_eq!(std::fs::read_to_string(head.path()).unwrap(), "4\n");
    }

    #[test]
    fn a_failure_is_told_once_it_is_known() {
        // A pipe cannot be synced.
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let mut background = BackgroundSync::start(&file, None).unwrap();
        background.sync(Vec::new()).unwrap();
        assert!(background.settle().is_err());
    }
}
