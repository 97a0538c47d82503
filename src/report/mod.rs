//! Reports as data for `--json` and as text for people. Nothing is printed here.

pub mod scan;
