//! Process-wide settings of journals: the key of the hash chain, and the user's state directory. Set once.

use super::error::JournalError;
use crate::base::ids::hex;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The variable that holds the journal key.
pub const KEY_VARIABLE: &str = "OVERNIGHT_JOURNAL_KEY";
/// Minimum length of the key, in bytes.
pub const KEY_BYTES: usize = 16;

/// A key that makes the hash chain of a journal an HMAC-SHA256.
#[derive(Clone)]
pub struct JournalKey(Hmac<Sha256>);

impl fmt::Debug for JournalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalKey")
    }
}

impl JournalKey {
    /// Reads the key from the value of [`KEY_VARIABLE`].
    ///
    /// # Errors
    /// A sentence, for an empty or short value: it is a mistake (such as a secret that this job is not given) and does
    /// not mean "no key".
    pub fn new(value: &str) -> Result<Self, String> {
        if value.len() < KEY_BYTES {
            return Err(format!(
                "{KEY_VARIABLE} is set and has {} bytes: set it to at least {KEY_BYTES} bytes, or unset it",
                value.len()
            ));
        }
        let mac = Hmac::<Sha256>::new_from_slice(value.as_bytes()).map_err(|error| error.to_string())?;
        Ok(Self(mac))
    }

    /// HMAC-SHA256 over the concatenated pieces, in lower-case hex.
    pub fn mac(&self, pieces: &[&[u8]]) -> String {
        let mut mac = self.0.clone();
        for piece in pieces {
            mac.update(piece);
        }
        hex(&mac.finalize().into_bytes())
    }

    /// Whether this is the HMAC over the pieces; compares in constant time.
    pub fn verifies(&self, pieces: &[&[u8]], hex: &str) -> bool {
        let mine = self.mac(pieces);
        let differing = mine.bytes().zip(hex.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        mine.len() == hex.len() && differing == 0
    }
}

/// The settings from the environment of this process.
#[derive(Debug)]
pub struct JournalSettings {
    /// The key, if one is set; an error when it is invalid.
    pub key: Result<Option<JournalKey>, String>,
    /// The state directory of this user, whether it exists or not; an error when it cannot be determined.
    pub state: Result<PathBuf, String>,
}

static SETTINGS: OnceLock<JournalSettings> = OnceLock::new();

impl JournalSettings {
    /// From the environment: the state directory is `$XDG_STATE_HOME/overnight`, else `~/.local/state/overnight`.
    pub fn from_env(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let directory = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = directory("XDG_STATE_HOME")
            .or_else(|| directory("HOME").map(|home| home.join(".local/state")))
            .map(|dir| dir.join("overnight"))
            .ok_or_else(|| "neither XDG_STATE_HOME nor HOME names a directory".to_owned());
        Self {
            key: variable(KEY_VARIABLE).map(|value| JournalKey::new(&value)).transpose(),
            state,
        }
    }
}

/// Sets them for this process. Must be called once, early; without a call there is no key and no state directory.
pub fn use_settings(settings: JournalSettings) {
    // A second call comes from the same environment.
    let _ = SETTINGS.set(settings);
}

/// The key of this process.
///
/// # Errors
/// [`JournalError::Key`] if the key in the environment is not valid.
pub fn key() -> Result<Option<&'static JournalKey>, JournalError> {
    match SETTINGS.get().map(|own| &own.key) {
        None => Ok(None),
        Some(Ok(key)) => Ok(key.as_ref()),
        Some(Err(why)) => Err(JournalError::Key(why.clone())),
    }
}

/// The state directory of this process.
///
/// # Errors
/// Why there is none: neither `XDG_STATE_HOME` nor `HOME` names a directory, or the settings of this process were never
/// set.
pub fn state() -> Result<&'static Path, String> {
    match SETTINGS.get().map(|own| &own.state) {
        None => Err("this process has no state directory".to_owned()),
        Some(Ok(dir)) => Ok(dir),
        Some(Err(why)) => Err(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of any length, for the test vectors of RFC 4231.
    fn raw(key: &[u8]) -> JournalKey {
        JournalKey(Hmac::<Sha256>::new_from_slice(key).unwrap())
    }

    #[test]
    fn the_examples_of_rfc_4231_hold() {
        let long = [0xaa; 131];
        let cases: [(&[u8], &[u8], &str); 4] = [
            (
                &[0x0b; 20],
                b"Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 20],
                &[0xdd; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
            (
                &long,
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, data, mac) in cases {
            let (head, tail) = data.split_at(3);
            assert_eq!(raw(key).mac(&[head, tail]), mac);
            assert!(raw(key).verifies(&[data], mac));
            assert!(!raw(key).verifies(&[data], &mac.replace('0', "1")));
            assert!(!raw(key).verifies(&[data], &mac[..62]));
        }
    }

    #[test]
    fn a_key_that_is_set_must_be_one() {
        assert!(JournalKey::new("").is_err() && JournalKey::new("fifteen bytes..").is_err());
        assert!(JournalKey::new("sixteen bytes...").is_ok());
        let none = JournalSettings::from_env(&|_| None);
        assert!(none.state.is_err() && matches!(none.key, Ok(None)));
        let set = JournalSettings::from_env(&|name| (name == "HOME").then(|| "/home/u".to_owned()));
        assert_eq!(set.state, Ok(PathBuf::from("/home/u/.local/state/overnight")));
        let relative = JournalSettings::from_env(&|name| (name == "XDG_STATE_HOME").then(|| "here".to_owned()));
        assert!(relative.state.is_err());
    }
}
