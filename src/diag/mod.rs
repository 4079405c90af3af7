//! Errors in files that users write: where, what is wrong, what to write instead. Pure.
