//! `overnight deliver` against real git servers and forges with the wires of GitHub, GitLab and Forgejo.

mod night;
mod openapi;
mod safety;
mod scenes;
mod server;
mod table;
mod targets;
