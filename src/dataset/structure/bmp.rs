//! Windows bitmaps: the header, and whether as many bytes of pixels follow as it asks for.
//!
//! Run-length coded bitmaps do not tell their length; beyond that their data begins inside the file, the decoder
//! decides.

use super::bytes::Bytes;
use super::{Facts, Fault, corrupt, cut};
use crate::units::Size;

/// `biCompression` of the forms whose rows have a known length.
const RGB: u32 = 0;
const BITFIELDS: u32 = 3;
const ALPHA_BITFIELDS: u32 = 6;

pub(super) fn walk(bmp: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let header = Header::read(bmp).ok_or_else(|| cut("in its header"))?;
    facts.size = header.size;
    facts.bits = 8;
    facts.alpha_channel = header.alpha_mask != 0;
    if header.size.is_empty() {
        return Err(corrupt("it declares a side of 0 pixels"));
    }
    let needed = match header.compression {
        // Rows are padded to 4 bytes.
        RGB | BITFIELDS | ALPHA_BITFIELDS => {
            let row = (u64::from(header.size.width) * u64::from(header.bits_per_pixel)).div_ceil(32) * 4;
            row.saturating_mul(u64::from(header.size.height))
        }
        _ => {
            facts.undecided = true;
            1
        }
    };
    let there = (bmp.len() as u64).saturating_sub(u64::from(header.data_offset));
    if there < needed { Err(format!("cut: holds {there} of {needed} bytes of pixels")) } else { Ok(()) }
}

struct Header {
    data_offset: u32,
    size: Size,
    bits_per_pixel: u16,
    compression: u32,
    alpha_mask: u32,
}

impl Header {
    fn read(bmp: &[u8]) -> Option<Self> {
        let mut bytes = Bytes::new(bmp);
        bytes.skip(10)?;
        let data_offset = bytes.u32_le()?;
        let header_bytes = bytes.u32_le()?;
        // The core header has sides of 16 bits and nothing after the depth.
        if header_bytes == 12 {
            let size = Size::new(u32::from(bytes.u16_le()?), u32::from(bytes.u16_le()?));
            bytes.skip(2)?;
            return Some(Self { data_offset, size, bits_per_pixel: bytes.u16_le()?, compression: RGB, alpha_mask: 0 });
        }
        let width = bytes.u32_le()?.cast_signed();
        // A negative height means rows from top to bottom.
        let height = bytes.u32_le()?.cast_signed();
        let size = Size::new(u32::try_from(width).unwrap_or(0), height.unsigned_abs());
        bytes.skip(2)?;
        let bits_per_pixel = bytes.u16_le()?;
        // The OS/2 short header ends here.
        let compression = if header_bytes >= 20 { bytes.u32_le()? } else { RGB };
        // The alpha mask counts only beside the colour masks, in headers that have room for it.
        let has_masks = matches!(compression, BITFIELDS | ALPHA_BITFIELDS) && header_bytes >= 56;
        let alpha_mask = if has_masks { Bytes::new(bmp.get(66..)?).u32_le()? } else { 0 };
        Some(Self { data_offset, size, bits_per_pixel, compression, alpha_mask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 24-bit bitmap header of `width` x `height` with `pixels` bytes after it.
    fn bmp(width: i32, height: i32, pixels: usize) -> Vec<u8> {
        let mut bytes = b"BM\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend(54u32.to_le_bytes());
        bytes.extend(40u32.to_le_bytes());
        bytes.extend(width.to_le_bytes());
        bytes.extend(height.to_le_bytes());
        bytes.extend([1, 0, 24, 0]);
        bytes.resize(54 + pixels, 0);
        bytes
    }

    fn verdict(bytes: &[u8]) -> (Size, Result<(), Fault>) {
        let mut facts = Facts::default();
        let verdict = walk(bytes, &mut facts);
        (facts.size, verdict)
    }

    #[test]
    fn rows_are_padded_and_a_negative_height_is_a_height() {
        // Three pixels are 9 bytes, padded to 12.
        assert_eq!(verdict(&bmp(3, -2, 24)), (Size::new(3, 2), Ok(())));
        assert_eq!(verdict(&bmp(3, 2, 23)).1.unwrap_err(), "cut: holds 23 of 24 bytes of pixels");
    }

    #[test]
    fn extreme_sides_are_refused_without_overflow() {
        assert!(verdict(&bmp(i32::MAX, i32::MIN, 0)).1.is_err());
        assert!(verdict(&bmp(-1, 5, 100)).1.is_err());
    }
}
