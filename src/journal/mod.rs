//! The door to the run directory: the append-only record of a run and what lies beside it.
