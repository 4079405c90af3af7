//! The names of models whose replies are prepared. Pure.

/// Begins the name of a model that takes its replies from a file.
pub const SCRIPT: &str = "script:";
/// Begins the name of a model that takes its replies from the journal of an earlier run.
pub const REPLAY: &str = "replay:";

/// Whether the model is a script or a recorded run, so that no service is asked.
pub fn is_played(model: &str) -> bool {
    model.starts_with(SCRIPT) || model.starts_with(REPLAY)
}
