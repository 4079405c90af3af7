//! Puts a journal on the disk beside the run: one thread, asked to sync, never asked to write. Tells the first failure.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// A thread that syncs one file. It ends when this is dropped.
#[derive(Debug)]
pub struct Behind {
    ask: SyncSender<()>,
    done: Receiver<io::Result<()>>,
    /// Syncs that were asked for and not answered yet.
    open: usize,
}

impl Behind {
    /// Starts the thread.
    pub fn start(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (ask, asked) = sync_channel::<()>(2);
        let (answer, done) = sync_channel(2);
        std::thread::Builder::new()
            .name("journal".to_owned())
            .stack_size(64 << 10)
            .spawn(move || {
                while asked.recv().is_ok() {
                    if answer.send(file.sync_data()).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self { ask, done, open: 0 })
    }

    /// Asks for a sync and returns at once, unless two are open already.
    pub fn sync(&mut self) -> io::Result<()> {
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
        self.ask.send(()).map_err(|_| gone())?;
        self.open += 1;
        Ok(())
    }

    /// Returns when no sync is open.
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
        let mut behind = Behind::start(&file).unwrap();
        for _ in 0..20 {
            behind.sync().unwrap();
        }
        behind.settle().unwrap();
        assert_eq!(behind.open, 0);
    }

    #[test]
    fn a_failure_is_told_once_it_is_known() {
        // A pipe cannot be synced.
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let mut behind = Behind::start(&file).unwrap();
        behind.sync().unwrap();
        assert!(behind.settle().is_err());
    }
}
