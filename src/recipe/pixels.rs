//! The pixel recipe of one sample: every decision between a file's bytes and the encoder's input, already taken.

use crate::units::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Raised in the commit that changes a pixel: a decoder, a filter, a rounding.
///
/// Part of every key. Decoders: mozjpeg for JPEG, the `image` crate for the rest; see [`Decoder`].
pub const PIXELS_REV: u32 = 1;

/// Everything that shapes the pixels of one entry, resolved for one image.
///
/// Resolved means: a setting that cannot matter for this image has one fixed value here (no profile in the file:
/// [`Colour::AsStored`]; no transparency: [`Alpha::Opaque`]; nothing to resize: no filter), so that changing it
/// redoes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PixelRecipe {
    /// Whose values the file's bytes become.
    #[serde(default, skip_serializing_if = "Decoder::is_pillow")]
    pub decoder: Decoder,
    /// The EXIF orientation that is undone, 1–8; 1 leaves the stored order.
    pub orientation: u8,
    /// What happens to the colour profile.
    pub colour: Colour,
    /// True for Pillow's conversion of 16-bit gray, which clips at 255; false takes the high byte.
    pub clip_gray16: bool,
    /// What happens to transparency.
    pub alpha: Alpha,
    /// The filter that really runs; none when `resized` is the upright size.
    pub resample: Option<Resample>,
    /// Size after scaling, before the crop.
    pub resized: Size,
    /// The rectangle kept of the resized picture; its size is the bucket.
    pub crop: Rect,
    /// True when the cropped picture is mirrored left to right.
    pub mirrored: bool,
}

/// A library whose reading of an image file is followed, where readings differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decoder {
    /// Pillow's: libjpeg for JPEG, and 16-bit samples cut to their high byte.
    #[default]
    Pillow,
    /// The `image` crate's: zune-jpeg for JPEG, and 16-bit samples divided by 257 with rounding.
    ImageCrate,
}

impl Decoder {
    /// True for the default, which no key and no receipt names.
    pub fn is_pillow(&self) -> bool {
        *self == Self::Pillow
    }
}

/// What happens to a colour profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Colour {
    /// Channel values are used as they are stored.
    AsStored,
    /// The embedded profile is converted to sRGB.
    IccToSrgb,
}

/// What happens to transparency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alpha {
    /// There is none.
    Opaque,
    /// The channel is cut off; colours hidden under it show.
    Drop,
    /// The picture is laid over this RGB colour before resizing.
    Composite([u8; 3]),
    /// Colour and alpha are resized together and alpha becomes the loss mask. Pillow's filters multiply colour by
    /// alpha before and divide after, so this differs from `Drop` where something is transparent.
    Keep,
}

/// A resampling filter of a named library, exact to the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resample {
    /// OpenCV `INTER_AREA`.
    Cv2Area,
    /// OpenCV `INTER_LINEAR`; not antialiased.
    Cv2Linear,
    /// OpenCV `INTER_CUBIC`; not antialiased.
    Cv2Cubic,
    /// OpenCV `INTER_NEAREST_EXACT`.
    Cv2NearestExact,
    /// Pillow `LANCZOS`, 8-bit between passes.
    PillowLanczos,
    /// Pillow `BICUBIC`, 8-bit between passes.
    PillowBicubic,
    /// Pillow `BILINEAR`, 8-bit between passes.
    PillowBilinear,
    /// Pillow `BOX`, 8-bit between passes.
    PillowBox,
}

impl Resample {
    /// True for the filters that multiply colour by alpha when both are resized together.
    pub fn premultiplies(self) -> bool {
        matches!(self, Self::PillowLanczos | Self::PillowBicubic | Self::PillowBilinear | Self::PillowBox)
    }
}
