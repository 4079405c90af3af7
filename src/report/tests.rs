//! Tests of the outputs over runs that are built event by event. Owns no production code.
