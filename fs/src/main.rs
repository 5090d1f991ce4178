//! The binary `lookupfs`.

fn main() {}
