//! The entry: nothing but the way into `cli`.

fn main() {}
