//! Coordinates the requests of many processes: one shared rate, a common pause when a service asks for it, and a stop
//! when a key was refused or a quota is used up. The state is in small files in one directory, each replaced under a
//! lock.
//!
//! The supervisor of a batch creates the directory and passes it to its runs in `OVERNIGHT_REQUEST_GATE`; without the
//! variable there is no gate. Times are milliseconds since the epoch, by the machine's clock.

use super::wait::{WaitEnd, pause};
use crate::base::ids::sha256_hex;
use crate::base::secret;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// The variable that names the directory.
pub const VARIABLE: &str = "OVERNIGHT_REQUEST_GATE";
/// Length limit of a reason that is stored, in bytes.
const REASON: usize = 1_000;
/// Interval at which a waiting process checks whether the gate has been closed.
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

/// The state of one service, or of one model of it, in a file named after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceState {
    /// `VENDOR/NAME` of the model that was asked when the state was last changed.
    pub model: String,
    /// No request before this time, in milliseconds since the Unix epoch; 0 when no pause was requested.
    pub until: u64,
    /// Why no further request can succeed.
    pub closed: Option<String>,
    /// Whether it is closed for `model` only.
    #[serde(default)]
    pub of_model: bool,
}

/// Why a request may not be sent.
#[derive(Debug)]
pub enum GateRefusal {
    /// The key was refused or the quota is used up: the reason that the service gave another run.
    Closed(String),
    /// The wait was cancelled.
    Ended(WaitEnd),
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

    /// Waits for this process's turn to send a request for `model` to `service` (its base URL).
    ///
    /// # Errors
    /// The service or the model is closed, or the wait was cancelled. If the gate's files cannot be read, the request
    /// may be sent.
    pub async fn pass(
        &self,
        service: &str,
        model: &str,
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Result<(), GateRefusal> {
        let mut slot = None;
        loop {
            let whole = self.service(&Self::name(&[service])).unwrap_or_default();
            let own = self.service(&Self::name(&[service, model])).unwrap_or_default();
            if let Some(reason) = whole.closed.or(own.closed) {
                return Err(GateRefusal::Closed(reason));
            }
            let now = now_ms();
            if slot.is_none() && whole.until <= now {
                slot = Some(self.take_slot(now));
            }
            let until = slot.unwrap_or(0).max(whole.until);
            if until <= now {
                return Ok(());
            }
            let length = Duration::from_millis(until - now).min(LOOK);
            match pause(length, deadline, cancel).await {
                WaitEnd::Over => {}
                end => return Err(GateRefusal::Ended(end)),
            }
        }
    }

    /// Reserves the next free time of the shared rate. If that cannot be recorded, as on a full disk, this process
    /// keeps the interval for itself.
    fn take_slot(&self, now: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch have 41 bits")]
        let now = now as f64;
        let (mut slot, mut after) = (now, now);
        let recorded = self.change("rate", |rate: &mut Rate| {
            slot = rate.next.max(now);
            after = slot + rate.interval;
            rate.next = after;
        });
        let slot = if recorded.is_ok() { slot } else { after };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "milliseconds since the epoch"
        )]
        let slot = slot.ceil() as u64;
        slot
    }

    /// Records for all processes that `service` asks for a pause of this length.
    pub fn slow_down(&self, service: &str, model: &str, length: Duration) {
        let until = now_ms().saturating_add(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
        // If the state cannot be written, at least this process waits.
        let _ = self.change(&Self::name(&[service]), |state: &mut ServiceState| {
            model.clone_into(&mut state.model);
            state.until = state.until.max(until);
        });
    }

    /// Records for all processes that no request to `service` can succeed any more: its key was refused.
    pub fn close(&self, service: &str, model: &str, reason: &str) {
        self.shut(&Self::name(&[service]), model, reason, false);
    }

    /// Records for all processes that no request for this model can succeed any more: vendors count their quotas by
    /// model.
    pub fn close_model(&self, service: &str, model: &str, reason: &str) {
        self.shut(&Self::name(&[service, model]), model, reason, true);
    }

    /// The first reason stays: several processes may be refused at the same time. Services quote what they were sent.
    fn shut(&self, name: &str, model: &str, reason: &str, of_model: bool) {
        let safe = secret::start(reason, REASON);
        let reason = &safe[..safe.floor_char_boundary(REASON)];
        let _ = self.change(name, |state: &mut ServiceState| {
            if state.closed.is_none() {
                model.clone_into(&mut state.model);
                state.closed = Some(reason.to_owned());
                state.of_model = of_model;
            }
        });
    }

    /// The states of all services that asked for a pause or are closed.
    pub fn services(&self) -> Vec<ServiceState> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let services = names.filter(|name| name.starts_with("service-"));
        services.filter_map(|name| self.service(&name)).collect()
    }

    /// The file of a service, given by its base URL, or of one of its models, given by both.
    fn name(parts: &[&str]) -> String {
        let digest = sha256_hex(&[parts.join("\0").as_bytes()]);
        format!("service-{}", &digest[..16])
    }

    fn service(&self, name: &str) -> Option<ServiceState> {
        let text = std::fs::read_to_string(self.dir.join(name)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Replaces a file under a lock; a missing one counts as new. The lock is on a file of its own, because the state
    /// is replaced as a whole: a process that is killed and a disk that is full leave the earlier state.
    fn change<T: Default + Serialize + serde::de::DeserializeOwned>(
        &self,
        name: &str,
        change: impl FnOnce(&mut T),
    ) -> io::Result<()> {
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.dir.join(format!("lock-{name}")))?;
        lock.lock()?;
        let path = self.dir.join(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let mut state: T = serde_json::from_str(&text).unwrap_or_default();
        change(&mut state);
        let new = self.dir.join(format!("new-{name}"));
        std::fs::write(&new, serde_json::to_string(&state)?)?;
        std::fs::rename(new, path)
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
        let passes = (0..6).map(|_| gate.pass("https://a", "gemini/x", soon(), &cancel));
        futures_util::future::join_all(passes).await;
        assert!(began.elapsed() >= Duration::from_millis(195), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_pause_and_an_end_hold_for_one_service() {
        let dir = tempfile::tempdir().unwrap();
        let gate = RequestGate::make(&dir.path().join("gate"), None).unwrap();
        let cancel = CancellationToken::new();
        let began = Instant::now();
        let pause = Duration::from_secs(2);
        gate.slow_down("https://a", "gemini/x", pause);
        gate.pass("https://b", "gemini/x", soon(), &cancel).await.unwrap();
        assert!(began.elapsed() < pause);
        gate.pass("https://a", "gemini/x", soon(), &cancel).await.unwrap();
        // The clock of the state has milliseconds.
        assert!(began.elapsed() + Duration::from_millis(5) >= pause);
        gate.close("https://a", "gemini/x", "the key is refused");
        assert!(matches!(
            gate.pass("https://a", "gemini/y", soon(), &cancel).await,
            Err(GateRefusal::Closed(_))
        ));
        assert_eq!(gate.services().len(), 1);
        assert!(gate.services().iter().all(|service| !service.of_model));
        gate.pass("https://b", "gemini/x", soon(), &cancel).await.unwrap();
    }

    #[tokio::test]
    async fn the_end_of_a_quota_holds_for_one_model_and_its_first_reason_stays() {
        let dir = tempfile::tempdir().unwrap();
        let gate = RequestGate::make(&dir.path().join("gate"), None).unwrap();
        let cancel = CancellationToken::new();
        gate.close_model("https://a", "gemini/x", &"ä".repeat(REASON));
        gate.close_model("https://a", "gemini/x", "a later one");
        let Err(GateRefusal::Closed(reason)) = gate.pass("https://a", "gemini/x", soon(), &cancel).await else {
            panic!("the model is closed");
        };
        assert_eq!(reason, "ä".repeat(REASON / 2));
        assert!(gate.services().iter().all(|service| service.of_model));
        gate.pass("https://a", "gemini/y", soon(), &cancel).await.unwrap();
    }

    #[test]
    fn a_reason_is_stored_without_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let gate = RequestGate::make(&dir.path().join("gate"), None).unwrap();
        let stored = |text: &str| {
            gate.close(text, "gemini/x", text);
            let state = gate.service(&RequestGate::name(&[text])).unwrap();
            state.closed.unwrap()
        };
        secret::check_cut(REASON, stored);
        // The text is not cut.
        secret::check_cut(0, stored);
    }

    /// A process that is killed between two steps of a change, and a full disk, must not lose the rate.
    #[tokio::test]
    async fn the_rate_is_replaced_whole_and_kept_when_it_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let gate = RequestGate::make(dir.path(), Some(Duration::from_millis(40))).unwrap();
        let cancel = CancellationToken::new();
        let old = std::fs::File::open(dir.path().join("rate")).unwrap();
        gate.pass("https://a", "gemini/x", soon(), &cancel).await.unwrap();
        let rate: Rate = serde_json::from_reader(&old).unwrap();
        assert!(rate.interval > 0.0 && rate.next < 1.0, "{rate:?}");
        // Nothing can be written where the new state is prepared.
        std::fs::create_dir(dir.path().join("new-rate")).unwrap();
        let began = Instant::now();
        for _ in 0..3 {
            gate.pass("https://a", "gemini/x", soon(), &cancel).await.unwrap();
        }
        assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
    }
}
