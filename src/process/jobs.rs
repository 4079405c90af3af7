//! Commands that go on in the background of a run, and their end. Knows no tool.

/// The background commands of one run; all are killed when it is closed.
#[derive(Default)]
pub struct Jobs {}
