//! Row ids and keys to exact rows.
