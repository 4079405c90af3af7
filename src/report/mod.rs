//! Outputs: folds over the events of a run, and sinks that are fed while it goes on. Cannot influence a run.
