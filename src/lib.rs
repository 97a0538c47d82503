//! prebake prepares image datasets for training: it scans, plans buckets, and bakes latent caches keyed by content.

pub mod bake;
pub mod bucket;
pub mod containers;
pub mod dataset;
pub mod error;
pub mod hash;
pub mod kernels;
pub mod pipeline;
pub mod pixels;
pub mod plan;
pub mod problem;
pub mod progress;
pub mod recipe;
pub mod report;
pub mod store;
pub mod trainers;
pub mod units;
pub mod vae;
