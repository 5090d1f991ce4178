//! The page cache against an oracle: a source in memory that counts what is asked of it.

mod accounts;
mod disk;
mod double;
mod faults;
mod limits;
mod reads;
mod tails;
mod warm;
