//! Attacks that need more than data.
