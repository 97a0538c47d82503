//! What is in a dataset: images, their captions, and everything about them that harms training, by file.
//!
//! Reads only; no picture is ever changed, and one bad file never stops a scan. Refuses to guess: a file whose state
//! cannot be told is named with the reason. The result does not depend on the number of threads, nor on whether a
//! file was read or [`Known`].
//!
//! | module | what |
//! |---|---|
//! | [`mod@walk`] | which files lie there: images by name or content, others, what is left out |
//! | [`probe`] | one file's bytes → format, size, orientation … and whether it is whole |
//! | [`hazards`] | facts that harm training, in words |
//! | [`captions`] | which caption belongs to which image, and whether it can be read |
//! | [`known`] | what an earlier scan found out |
//! | [`listed`] | files that a description names one by one |
//! | [`mod@scan`] | all of it over a folder, in parallel |

pub mod captions;
pub mod hazards;
pub mod known;
pub mod listed;
mod path;
pub mod probe;
mod read;
pub mod scan;
mod structure;
mod twins;
pub mod walk;

pub use known::{Known, Unknown};
pub use listed::{Listed, Stated};
pub use probe::{Probe, Probed, Profile};
pub use scan::{Dataset, Image, ScanOptions, scan, scan_files, scan_folder, scan_listed};
pub use walk::{Walk, walk};
