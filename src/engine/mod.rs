//! The loop: what comes next, done one thing at a time, recorded before and after.
