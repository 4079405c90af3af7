//! Long runs.
