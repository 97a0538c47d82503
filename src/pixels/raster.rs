//! A decoded picture in memory: 8-bit channels, interleaved, rows top to bottom.

use crate::units::Size;

/// An 8-bit picture: `data[(y * width + x) * channels + c]`.
///
/// `data` holds width × height × `channels` bytes, `channels` being 1 (gray), 3 (RGB) or 4 (RGB and straight alpha).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raster {
    /// Columns and rows.
    pub size: Size,
    /// Bytes a pixel.
    pub channels: usize,
    /// The pixels, row by row without padding.
    pub data: Vec<u8>,
}

impl Raster {
    /// A raster of zeros.
    pub fn zeroed(size: Size, channels: usize) -> Self {
        let bytes = size.width as usize * size.height as usize * channels;
        Self { size, channels, data: vec![0; bytes] }
    }

    /// Bytes a row.
    pub fn stride(&self) -> usize {
        self.size.width as usize * self.channels
    }

    /// The bytes of row `y`, counted from the top; `y` must be under the height.
    pub fn row(&self, y: usize) -> &[u8] {
        let stride = self.stride();
        &self.data[y * stride..(y + 1) * stride]
    }
}
