//! The one picture type between decoding and the encoder.

use crate::units::Size;

/// A picture of 8 bits a channel, row-major and interleaved, without padding.
///
/// `data.len()` is `size.area() * channels`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raster {
    /// Columns and rows.
    pub size: Size,
    /// 1 (gray), 3 (RGB) or 4 (RGB and straight alpha).
    pub channels: usize,
    /// The samples, 0–255.
    pub data: Vec<u8>,
}
