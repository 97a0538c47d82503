#![doc = include_str!("../README.md")]
//!
//! # The library
//!
//! Data goes one way: [`trainers::description`] says what a dataset is, [`plan::collect`] scans it,
//! [`plan::build`] places every image, derives its keys and compares them with the cache, [`bake::Bake`] runs the plan.
//! The same plan is what `plan` and `status` report.
//!
//! ```
//! use prebake::bucket::{BucketRule, StoreBuckets, store::Settings};
//! use prebake::units::Size;
//!
//! let rule = StoreBuckets::new(Settings {
//!     max_area: 1024 * 1024,
//!     step: 64,
//!     min_bucket: None,
//!     max_bucket: None,
//!     upscale: false,
//!     fixed: None,
//! })?;
//! let assignment = rule.assign(Size::new(4032, 3024)).expect("a photograph has a bucket");
//! assert_eq!(assignment.bucket, Size::new(1152, 896));
//! assert_eq!(assignment.resized, Size::new(1195, 896));
//! # Ok::<(), String>(())
//! ```

pub mod bake;
pub mod bucket;
pub mod containers;
pub mod dataset;
pub mod error;
pub mod hash;
mod kernels;
pub mod lengths;
pub mod pipeline;
pub mod pixels;
pub mod plan;
pub mod problem;
pub mod progress;
pub mod recipe;
pub mod report;
pub mod store;
pub mod text;
pub mod tokenizer;
pub mod trainers;
pub mod units;
pub mod vae;
