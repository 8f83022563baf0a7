//! The `wpack` command.
fn main() {}
