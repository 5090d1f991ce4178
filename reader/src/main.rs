//! The binary `lookup`.

fn main() {}
