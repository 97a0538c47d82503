//! stub
pub mod raster;
pub mod resize;

pub use raster::Raster;
