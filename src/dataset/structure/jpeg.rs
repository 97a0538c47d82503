//! JPEG (ITU-T T.81): markers, the frame header, and scans up to the end marker.
//!
//! A file that ends inside a scan may lack the two bytes of its end marker or half its rows: entropy-coded data does
//! not say how long it is. Such a file is left to the decoder, which knows (`undecided`), and so are rare processes.
//! Bytes after the end marker are fine: cameras put previews there.

use super::bytes::Bytes;
use super::{Facts, Fault, corrupt, cut, ifd};
use crate::units::Size;

const START_OF_IMAGE: u8 = 0xd8;
const END_OF_IMAGE: u8 = 0xd9;
const START_OF_SCAN: u8 = 0xda;
const APP1: u8 = 0xe1;
const APP2: u8 = 0xe2;

pub(super) fn walk(jpeg: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let mut bytes = Bytes::new(jpeg);
    let mut profile = Profile::default();
    let mut has_exif = false;
    let mut has_scan = false;
    bytes.skip(2).ok_or_else(|| cut("in its first marker"))?;
    loop {
        let Some(marker) = next_marker(&mut bytes) else {
            facts.icc = profile.join();
            facts.undecided |= has_scan;
            return if has_scan { Ok(()) } else { Err(cut("before its picture data begins")) };
        };
        match marker {
            END_OF_IMAGE => {
                facts.icc = profile.join();
                return if has_scan { Ok(()) } else { Err(corrupt("it ends without picture data")) };
            }
            START_OF_IMAGE => return Err(corrupt("a second picture begins inside the first")),
            _ => {}
        }
        let Some(payload) = segment(&mut bytes)? else {
            facts.icc = profile.join();
            // A marker cut behind a scan may be the next scan's or all that is missing: the decoder counts scans.
            facts.undecided |= has_scan;
            return if has_scan { Ok(()) } else { Err(cut("inside its header")) };
        };
        match marker {
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                read_frame(payload, facts)?;
                // Baseline, extended and progressive with 8 bits are read; of other kinds the decoder knows.
                facts.undecided |= marker > 0xc2 || facts.bits != 8;
            }
            APP1 if !has_exif => {
                if let Some(exif) = payload.strip_prefix(b"Exif\0\0") {
                    has_exif = true;
                    facts.orientation = ifd::orientation(exif);
                }
            }
            APP2 => profile.add(payload),
            START_OF_SCAN if facts.size.is_empty() => return Err(corrupt("its picture data has no frame header")),
            START_OF_SCAN => has_scan = true,
            _ => {}
        }
    }
}

/// The next marker, or `None` at the end of the file.
///
/// Entropy-coded bytes lie before it behind a scan header; stray bytes elsewhere are passed as libjpeg passes them.
fn next_marker(bytes: &mut Bytes<'_>) -> Option<u8> {
    loop {
        bytes.skip(distance_to_ff(bytes.rest()) + 1)?;
        let fill = bytes.rest().iter().take_while(|&&byte| byte == 0xff).count();
        bytes.skip(fill)?;
        match bytes.u8()? {
            // A stuffed 0xff of the entropy-coded data, TEM, a restart: they stand alone.
            0 | 0x01 | 0xd0..=0xd7 => {}
            marker => return Some(marker),
        }
    }
}

/// Bytes before the first 0xff, all of them where there is none.
fn distance_to_ff(bytes: &[u8]) -> usize {
    // Whole blocks without an exit inside compile to vector compares; scans are most of a photo's bytes.
    let (blocks, _) = bytes.as_chunks::<32>();
    let clean = blocks.iter().take_while(|block| !block.iter().fold(false, |any, &byte| any | (byte == 0xff))).count();
    let start = clean * 32;
    start + bytes[start..].iter().take_while(|&&byte| byte != 0xff).count()
}

/// The payload of a segment, or `None` where the file ends before it does.
fn segment<'a>(bytes: &mut Bytes<'a>) -> Result<Option<&'a [u8]>, Fault> {
    let Some(length) = bytes.u16_be() else { return Ok(None) };
    // The length counts its own two bytes.
    let length = length.checked_sub(2).ok_or_else(|| corrupt("a segment is shorter than its own length field"))?;
    Ok(bytes.take(usize::from(length)))
}

fn read_frame(payload: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let mut bytes = Bytes::new(payload);
    let mut read = || Some((bytes.u8()?, bytes.u16_be()?, bytes.u16_be()?, bytes.u8()?));
    let (bits, height, width, components) = read().ok_or_else(|| corrupt("its frame header is too short"))?;
    facts.size = Size::new(u32::from(width), u32::from(height));
    facts.bits = bits;
    facts.gray = components == 1;
    if facts.size.is_empty() { Err(corrupt("it declares a side of 0 pixels")) } else { Ok(()) }
}

/// The parts of an ICC profile (ICC.1:2022, annex B.4).
#[derive(Default)]
struct Profile<'a> {
    parts: Vec<Option<&'a [u8]>>,
    broken: bool,
}

impl<'a> Profile<'a> {
    fn add(&mut self, payload: &'a [u8]) {
        let Some([number, count, data @ ..]) = payload.strip_prefix(b"ICC_PROFILE\0") else { return };
        if self.parts.is_empty() {
            self.parts = vec![None; usize::from(*count)];
        }
        match usize::from(*number).checked_sub(1).and_then(|index| self.parts.get_mut(index)) {
            Some(part @ None) => *part = Some(data),
            _ => self.broken = true,
        }
    }

    /// The whole profile; an incomplete one counts as none, as for the decoder.
    fn join(&self) -> Option<Vec<u8>> {
        let parts = self.parts.iter().copied().collect::<Option<Vec<&[u8]>>>()?;
        (!parts.is_empty() && !self.broken).then(|| parts.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A JPEG's skeleton: a frame header of 3x2 gray pixels, one scan with `data`, then `tail`.
    fn jpeg(data: &[u8], tail: &[u8]) -> Vec<u8> {
        let frame = [0xff, 0xc0, 0, 11, 8, 0, 2, 0, 3, 1, 1, 0x11, 0];
        let scan = [0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0];
        [&[0xff, 0xd8], &frame[..], &scan, data, tail].concat()
    }

    fn verdict(bytes: &[u8]) -> (Facts, Result<(), Fault>) {
        let mut facts = Facts::default();
        let verdict = walk(bytes, &mut facts);
        (facts, verdict)
    }

    #[test]
    fn stuffed_bytes_restarts_and_fill_are_passed_and_bytes_after_the_end_are_fine() {
        let (facts, whole) = verdict(&jpeg(&[7, 0xff, 0, 9, 0xff, 0xd3, 5], b"\xff\xff\xff\xd9trailing"));
        assert_eq!(whole, Ok(()));
        assert_eq!((facts.size, facts.gray, facts.undecided), (Size::new(3, 2), true, false));
    }

    #[test]
    fn a_missing_end_is_left_to_the_decoder() {
        for tail in [&b""[..], b"\xff", b"\xff\xff"] {
            let (facts, whole) = verdict(&jpeg(&[7; 100], tail));
            assert_eq!((whole, facts.undecided), (Ok(()), true), "{tail:?}");
        }
    }

    #[test]
    fn an_end_without_a_scan_and_a_scan_without_a_frame_are_corrupt() {
        assert!(verdict(b"\xff\xd8\xff\xd9").1.unwrap_err().starts_with("corrupt"));
        assert!(verdict(b"\xff\xd8\xff\xda\0\x08\x01\x01\0\0\x3f\0\xff\xd9").1.unwrap_err().starts_with("corrupt"));
    }

    #[test]
    fn the_search_for_a_marker_finds_it_at_every_distance() {
        for distance in 0..100 {
            let mut bytes = vec![0xfe; 100];
            bytes[distance] = 0xff;
            assert_eq!(distance_to_ff(&bytes), distance);
        }
        assert_eq!(distance_to_ff(&[0; 70]), 70);
    }
}
