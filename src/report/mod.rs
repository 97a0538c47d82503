//! Reports: what people read and what scripts parse, from the same values. Text is built, never printed, here.

pub mod bake;
pub mod plan;
pub mod scan;
pub mod tokens;
