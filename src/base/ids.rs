//! Identifiers of runs, steps, calls and blobs, and their text form.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The id's text form.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

id! {
    /// One run: `YYYYMMDD-HHMMSS-xxxxxx`, also the name of its directory.
    RunId
}
id! {
    /// One step of a recipe, as its `id` says.
    StepId
}
id! {
    /// One tool call. Numbered by this program in the order of the requests (`c1`, `c2`, …), so that a replay yields
    /// the same ids.
    CallId
}
id! {
    /// A blob in the run directory: the SHA-256 of its bytes in lower-case hex.
    BlobId
}

impl CallId {
    /// The id of the `n`th call of a run, counted from one.
    pub fn nth(n: u64) -> Self {
        Self(format!("c{n}"))
    }
}

impl BlobId {
    /// The id of a blob with this content.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256_hex(&[bytes]))
    }
}

/// Whether a text is a full object id of git, with SHA-1 or SHA-256.
pub fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// SHA-256 of the concatenated pieces, in lower-case hex.
pub fn sha256_hex(pieces: &[&[u8]]) -> String {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hex(&hasher.finalize())
}

/// Bytes in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
