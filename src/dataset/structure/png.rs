//! PNG (W3C PNG, third edition): chunks, each with its checksum, from `IHDR` to `IEND`.
//!
//! Picture data is checked by its checksums alone; inflating it is left to a deep scan. `gAMA` and `cHRM` are not
//! taken for a profile, since no decoder here applies them. Bytes after `IEND` are fine.

use super::bytes::Bytes;
use super::{Facts, Fault, corrupt, cut, ifd};
use crate::units::Size;
use image::ImageDecoder;
use image::codecs::png::PngDecoder;

const SIGNATURE_BYTES: usize = 8;

pub(super) fn walk(png: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let mut bytes = Bytes::new(png);
    bytes.skip(SIGNATURE_BYTES).ok_or_else(|| cut("in its signature"))?;
    let mut palette = false;
    let mut picture_data = false;
    for index in 0.. {
        let (kind, data) = chunk(&mut bytes)?;
        if (index == 0) != (kind == *b"IHDR") {
            return Err(corrupt("IHDR is not the first chunk, or not the only one"));
        }
        match &kind {
            b"IHDR" => read_header(data, facts)?,
            b"PLTE" => palette = true,
            b"IDAT" if is_palette(png) && !palette => return Err(corrupt("its palette is missing")),
            b"IDAT" => picture_data = true,
            b"tRNS" => (facts.alpha_channel, facts.keyed_alpha) = (true, true),
            b"sRGB" => facts.says_srgb = true,
            b"iCCP" => facts.icc = Some(inflate_profile(png)),
            b"eXIf" => facts.orientation = ifd::orientation(data),
            b"acTL" => facts.frames = Bytes::new(data).u32_be().unwrap_or(1).max(1),
            b"IEND" if !picture_data => return Err(corrupt("it holds no picture data")),
            b"IEND" => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

/// The next chunk as (type, data), its checksum verified.
fn chunk<'a>(bytes: &mut Bytes<'a>) -> Result<([u8; 4], &'a [u8]), Fault> {
    let at = bytes.at();
    let length = bytes.u32_be().ok_or_else(|| cut("before its IEND chunk"))?;
    let body = bytes.rest();
    let kind = bytes.array::<4>().ok_or_else(|| cut("before its IEND chunk"))?;
    if length > i32::MAX as u32 || !kind.iter().all(u8::is_ascii_alphabetic) {
        return Err(corrupt(format_args!("byte {at} begins no chunk")));
    }
    let name = String::from_utf8_lossy(&kind);
    let data = bytes.take(length as usize);
    let (data, stored) =
        data.zip(bytes.u32_be()).ok_or_else(|| cut(&format!("inside its {name} chunk at byte {at}")))?;
    if crc32fast::hash(&body[..4 + data.len()]) != stored {
        return Err(corrupt(format_args!("the checksum of its {name} chunk at byte {at} is wrong")));
    }
    Ok((kind, data))
}

/// Colour types of IHDR.
const GRAY: u8 = 0;
const PALETTE: u8 = 3;
const GRAY_ALPHA: u8 = 4;

fn read_header(data: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let mut bytes = Bytes::new(data);
    let mut read = || Some((bytes.u32_be()?, bytes.u32_be()?, bytes.u8()?, bytes.u8()?));
    let (width, height, bits, colour) = read().ok_or_else(|| corrupt("its IHDR chunk is too short"))?;
    let legal = match colour {
        GRAY => matches!(bits, 1 | 2 | 4 | 8 | 16),
        PALETTE => matches!(bits, 1 | 2 | 4 | 8),
        2 | GRAY_ALPHA | 6 => matches!(bits, 8 | 16),
        _ => false,
    };
    if !legal || width.max(height) > i32::MAX as u32 {
        return Err(corrupt(format_args!("IHDR declares {width}x{height}, {bits} bits, colour type {colour}")));
    }
    facts.size = Size::new(width, height);
    facts.bits = if colour == PALETTE { 8 } else { bits };
    facts.gray = matches!(colour, GRAY | GRAY_ALPHA);
    facts.alpha_channel = matches!(colour, GRAY_ALPHA | 6);
    if facts.size.is_empty() { Err(corrupt("it declares a side of 0 pixels")) } else { Ok(()) }
}

/// True when IHDR, which stands at a fixed place, declares a palette.
fn is_palette(png: &[u8]) -> bool {
    png.get(25) == Some(&PALETTE)
}

/// The ICC profile as the decoder that bakes sees it; empty where it cannot be inflated.
fn inflate_profile(png: &[u8]) -> Vec<u8> {
    let profile = PngDecoder::new(std::io::Cursor::new(png)).and_then(|mut decoder| decoder.icc_profile());
    profile.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk_of(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let crc = crc32fast::hash(&[kind, data].concat());
        [&(data.len() as u32).to_be_bytes()[..], kind, data, &crc.to_be_bytes()].concat()
    }

    fn png(colour: u8, chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
        let header = [0, 0, 0, 9, 0, 0, 0, 7, 8, colour, 0, 0, 0];
        let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
        png.extend(chunk_of(b"IHDR", &header));
        chunks.iter().for_each(|(kind, data)| png.extend(chunk_of(kind, data)));
        png
    }

    fn verdict(bytes: &[u8]) -> (Facts, Result<(), Fault>) {
        let mut facts = Facts::default();
        let verdict = walk(bytes, &mut facts);
        (facts, verdict)
    }

    #[test]
    fn a_wrong_checksum_is_named_with_its_chunk_and_place() {
        let mut bytes = png(2, &[(b"IDAT", b"data"), (b"IEND", b"")]);
        assert_eq!(verdict(&bytes).1, Ok(()));
        bytes[8 + 25 + 8] ^= 1;
        assert_eq!(verdict(&bytes).1.unwrap_err(), "corrupt: the checksum of its IDAT chunk at byte 33 is wrong");
    }

    #[test]
    fn a_file_without_end_picture_or_palette_is_refused() {
        assert_eq!(verdict(&png(2, &[(b"IDAT", b"data")])).1.unwrap_err(), "cut: the file ends before its IEND chunk");
        assert!(verdict(&png(2, &[(b"IEND", b"")])).1.is_err());
        assert!(verdict(&png(3, &[(b"IDAT", b"data"), (b"IEND", b"")])).1.is_err());
    }

    #[test]
    fn header_chunks_are_read_and_trailing_bytes_are_fine() {
        let animation = [0, 0, 0, 5, 0, 0, 0, 0];
        let chunks: [(&[u8; 4], &[u8]); 5] =
            [(b"sRGB", &[0]), (b"tRNS", &[0; 6]), (b"acTL", &animation), (b"IDAT", b""), (b"IEND", b"")];
        let (facts, whole) = verdict(&[png(2, &chunks), b"trailing".to_vec()].concat());
        assert_eq!(whole, Ok(()));
        assert_eq!((facts.size, facts.frames), (Size::new(9, 7), 5));
        assert!(facts.alpha_channel && facts.keyed_alpha && facts.says_srgb && !facts.gray);
    }
}
