//! From a file's bytes to the encoder's input: decode, colour, orientation, alpha, resize, crop, mirror, normalise.
//!
//! Owns every pixel between the file and the VAE; the decisions themselves come resolved in a
//! [`PixelRecipe`](crate::recipe::PixelRecipe). Refuses to guess: a file that is cut, corrupt or of an unknown kind
//! yields a [`Refusal`], never a half-gray picture. Any change of a pixel raises
//! [`PIXELS_REV`](crate::recipe::PIXELS_REV).
//!
//! ```text
//! format   what the bytes are, by content
//! decode   bytes → Raster (8 bit), profile; jpeg is the fenced libjpeg part, segments its safe neighbour
//! colour   embedded profile → sRGB          orient   EXIF orientation, mirror
//! alpha    drop, composite, keep            resize   the filters of OpenCV and Pillow
//! prepare  all of it in order → Prepared → (3, H, W) f32
//! ```

mod alpha;
pub mod colour;
pub mod decode;
pub mod format;
mod jpeg;
pub mod orient;
mod prepare;
mod raster;
mod refusal;
pub mod resize;
mod segments;

pub use alpha::is_transparent;
pub use decode::{Decoded, MAX_PIXELS, decode, decode_as};
pub use format::Format;
pub use prepare::{Prepared, prepare};
pub use raster::Raster;
pub use refusal::Refusal;
