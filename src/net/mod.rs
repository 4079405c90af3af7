//! The door to the network. The only room that opens a connection.

pub mod addresses;
pub mod wait;
