//! Coordinates the requests of many processes: one shared rate, a common pause when a service asks for it, and a stop
//! when a key was refused or a quota is used up. The state is in small files in one directory, each changed under a
//! lock.
//!
//! The supervisor of a batch creates the directory and passes it to its runs in `OVERNIGHT_REQUEST_GATE`; without the
//! variable there is no gate. Times are milliseconds since the epoch, by the machine's clock.

use super::wait::{Pause, pause};
use crate::base::ids::sha256_hex;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// The variable that names the directory.
pub const VARIABLE: &str = "OVERNIGHT_REQUEST_GATE";
/// Length limit of a reason that is stored, in bytes.
const REASON: usize = 1_000;
/// Interval at which a waiting process checks whether the gate was closed meanwhile.
const LOOK: Duration = Duration::from_millis(500);

/// The gate of this process.
#[derive(Clone, Debug)]
pub struct RequestGate {
    dir: PathBuf,
}

/// The shared rate, in the file `rate`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Rate {
    /// Milliseconds between two requests; 0 for no limit.
    interval: f64,
    /// When the next request may be sent.
    next: f64,
}

/// The state of one service, in a file named after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceState {
    /// `VENDOR/NAME` of the model that was asked when the state was last changed.
    pub model: String,
    /// No request before this time; 0 when no pause was requested.
    pub until: u64,
    /// Why no further request can succeed.
    pub closed: Option<String>,
}

/// Why a request may not be sent.
#[derive(Debug)]
pub enum Barred {
    /// The key was refused or the quota is used up: the reason that the service gave another run.
    Closed(String),
    /// The wait was cancelled.
    Ended(Pause),
}

impl RequestGate {
    /// The gate that the environment names; the variable is read once.
    pub fn of_process() -> Option<&'static Self> {
        static GATE: OnceLock<Option<RequestGate>> = OnceLock::new();
        let found = GATE.get_or_init(|| {
            let dir = std::env::var_os(VARIABLE).filter(|dir| !dir.is_empty())?;
            Some(Self { dir: dir.into() })
        });
        found.as_ref()
    }

    /// Creates an open gate in `dir`, with at most one request every `interval`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn make(dir: &Path, interval: Option<Duration>) -> io::Result<Self> {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::create_dir_all(dir)?;
        let gate = Self { dir: dir.to_owned() };
        gate.change("rate", |rate: &mut Rate| {
            rate.interval = interval.map_or(0.0, |interval| interval.as_secs_f64() * 1_000.0);
        })?;
        Ok(gate)
    }

    /// Waits for this process's turn to send a request to `service` (its base URL).
    ///
    /// # Errors
    /// The service is closed, or the wait was cancelled. If the gate's files cannot be used, the request may be sent.
    pub async fn pass(&self, service: &str, deadline: Instant, cancel: &CancellationToken) -> Result<(), Barred> {
        let mut slot = None;
        loop {
            let state = self.service(&Self::name(service)).unwrap_or_default();
            if let Some(reason) = state.closed {
                return Err(Barred::Closed(reason));
            }
            let now = now_ms();
            if slot.is_none() && state.until <= now {
                slot = Some(self.take_slot(now).unwrap_or(now));
            }
            let until = slot.unwrap_or(0).max(state.until);
            if until <= now {
                return Ok(());
            }
            let length = Duration::from_millis(until - now).min(LOOK);
            match pause(length, deadline, cancel).await {
                Pause::Over => {}
                end => return Err(Barred::Ended(end)),
            }
        }
    }

    /// Reserves the next free time of the shared rate.
    fn take_slot(&self, now: u64) -> io::Result<u64> {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch have 41 bits")]
        let now = now as f64;
        let mut slot = now;
        self.change("rate", |rate: &mut Rate| {
            slot = rate.next.max(now);
            rate.next = slot + rate.interval;
        })?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "milliseconds since the epoch"
        )]
        Ok(slot.ceil() as u64)
    }

    /// Records for all processes that `service` asks for a pause of this length.
    pub fn slow_down(&self, service: &str, model: &str, length: Duration) {
        let until = now_ms().saturating_add(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
        // If the state cannot be written, at least this process waits.
        let _ = self.change(&Self::name(service), |state: &mut ServiceState| {
            model.clone_into(&mut state.model);
            state.until = state.until.max(until);
        });
    }

    /// Records for all processes that no request to `service` can succeed any more.
    pub fn close(&self, service: &str, model: &str, reason: &str) {
        let end = reason
            .char_indices()
            .nth(REASON / 4)
            .map_or(reason.len(), |(end, _)| end);
        let _ = self.change(&Self::name(service), |state: &mut ServiceState| {
            model.clone_into(&mut state.model);
            state.closed = Some(reason[..end].to_owned());
        });
    }

    /// The states of all services that asked for a pause or are closed.
    pub fn services(&self) -> Vec<ServiceState> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let services = names.filter(|name| name.starts_with("service-"));
        services.filter_map(|name| self.service(&name)).collect()
    }

    fn name(service: &str) -> String {
        let digest = sha256_hex(&[service.as_bytes()]);
        format!("service-{}", &digest[..16])
    }

    fn service(&self, name: &str) -> Option<ServiceState> {
        let file = File::open(self.dir.join(name)).ok()?;
        file.lock_shared().ok()?;
        let mut text = String::new();
        (&file).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Changes a file under its lock. A file that a killed process left incomplete counts as new.
    fn change<T: Default + Serialize + serde::de::DeserializeOwned>(
        &self,
        name: &str,
        change: impl FnOnce(&mut T),
    ) -> io::Result<()> {
        let path = self.dir.join(name);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut state: T = serde_json::from_str(&text).unwrap_or_default();
        change(&mut state);
        let text = serde_json::to_string(&state)?;
        file.seek(SeekFrom::Start(0))?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())
    }
}

/// Milliseconds since the epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[tokio::test]
    async fn requests_keep_the_shared_rate() {
        let dir = tempfile::tempdir().unwrap();
        let gate = RequestGate::make(&dir.path().join("gate"), Some(Duration::from_millis(40))).unwrap();
        let began = Instant::now();
        let cancel = CancellationToken::new();
        let passes = (0..6).map(|_| gate.pass("https://a", soon(), &cancel));
        futures_util::future::join_all(passes).await;
        assert!(began.elapsed() >= Duration::from_millis(195), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_pause_and_an_end_hold_for_one_service() {
        let dir = tempfile::tempdir().unwrap();
        let gate = RequestGate::make(&dir.path().join("gate"), None).unwrap();
        let cancel = CancellationToken::new();
        gate.slow_down("https://a", "gemini/x", Duration::from_millis(120));
        let began = Instant::now();
        gate.pass("https://b", soon(), &cancel).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(100));
        gate.pass("https://a", soon(), &cancel).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(115));
        gate.close("https://a", "gemini/x", "the key is refused");
        assert!(matches!(
            gate.pass("https://a", soon(), &cancel).await,
            Err(Barred::Closed(_))
        ));
        assert_eq!(gate.services().len(), 1);
        gate.pass("https://b", soon(), &cancel).await.unwrap();
    }
}
