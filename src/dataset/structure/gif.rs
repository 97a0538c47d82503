//! GIF (GIF89a): blocks from the logical screen to the trailer.
//!
//! A file that ends between two blocks after at least one frame may lack only its trailer: the first frame, the only
//! one that is used, is left to the decoder (`undecided`).

use super::bytes::Bytes;
use super::{Facts, Fault, corrupt, cut};
use crate::units::Size;

pub(super) fn walk(gif: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let mut bytes = Bytes::new(gif);
    let mut frames = 0u32;
    read_screen(&mut bytes, facts).ok_or_else(|| cut("in its header"))?;
    // Whether the graphic control extension before a frame names a transparent colour.
    let mut transparent_colour = false;
    loop {
        let ends_early = || cut(&format!("inside frame {}", frames.saturating_add(1)));
        match bytes.u8() {
            Some(0x3b) if frames > 0 => break,
            None if frames > 0 => {
                facts.undecided = true;
                break;
            }
            Some(0x3b) => return Err(corrupt("it holds no frame")),
            None => return Err(cut("before its first frame")),
            Some(0x21) => {
                let label = bytes.u8().ok_or_else(ends_early)?;
                let first = sub_blocks(&mut bytes).ok_or_else(ends_early)?;
                if label == 0xf9 {
                    transparent_colour = first.first().is_some_and(|flags| flags & 1 == 1);
                }
            }
            Some(0x2c) => {
                let covered = read_frame(&mut bytes).ok_or_else(ends_early)?;
                if frames == 0 {
                    facts.alpha_channel = transparent_colour || covered != Some(facts.size);
                    facts.keyed_alpha = facts.alpha_channel;
                }
                transparent_colour = false;
                frames = frames.saturating_add(1);
            }
            Some(other) => return Err(corrupt(format_args!("byte {} ({other}) begins no block", bytes.at() - 1))),
        }
    }
    facts.frames = frames;
    Ok(())
}

/// Signature, logical screen and global colour table.
fn read_screen(bytes: &mut Bytes<'_>, facts: &mut Facts) -> Option<()> {
    bytes.skip(6)?;
    facts.size = Size::new(u32::from(bytes.u16_le()?), u32::from(bytes.u16_le()?));
    let flags = bytes.u8()?;
    bytes.skip(2 + colour_table_bytes(flags))
}

/// Bytes of the colour table that a packed flag byte announces.
fn colour_table_bytes(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// One image: descriptor, local colour table, code size, data. Gives its size if it begins in the upper left corner.
fn read_frame(bytes: &mut Bytes<'_>) -> Option<Option<Size>> {
    let (left, top) = (bytes.u16_le()?, bytes.u16_le()?);
    let size = Size::new(u32::from(bytes.u16_le()?), u32::from(bytes.u16_le()?));
    let flags = bytes.u8()?;
    bytes.skip(colour_table_bytes(flags) + 1)?;
    sub_blocks(bytes)?;
    Some(((left, top) == (0, 0)).then_some(size))
}

/// Walks data sub-blocks up to their terminator; gives the first.
fn sub_blocks<'a>(bytes: &mut Bytes<'a>) -> Option<&'a [u8]> {
    let mut first = None;
    loop {
        let length = bytes.u8()?;
        let block = bytes.take(usize::from(length))?;
        let first = *first.get_or_insert(block);
        if length == 0 {
            return Some(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: &[u8] = b"GIF89a\x03\0\x02\0\0\0\0";
    const FRAME: &[u8] = b"\x2c\0\0\0\0\x03\0\x02\0\0\x02\x02\x44\x01\0";
    const TRANSPARENT: &[u8] = b"\x21\xf9\x04\x01\0\0\0\0";

    fn verdict(parts: &[&[u8]]) -> (Facts, Result<(), Fault>) {
        let mut facts = Facts::default();
        let verdict = walk(&parts.concat(), &mut facts);
        (facts, verdict)
    }

    #[test]
    fn frames_are_counted_and_transparency_is_asked_of_the_first() {
        let (facts, whole) = verdict(&[SCREEN, FRAME, TRANSPARENT, FRAME, b";"]);
        assert_eq!((whole, facts.size, facts.frames), (Ok(()), Size::new(3, 2), 2));
        assert!(!facts.alpha_channel);
        assert!(verdict(&[SCREEN, TRANSPARENT, FRAME, b";"]).0.alpha_channel);
    }

    #[test]
    fn only_a_missing_trailer_is_forgiven() {
        let (facts, whole) = verdict(&[SCREEN, FRAME]);
        assert_eq!((whole, facts.undecided), (Ok(()), true));
        assert!(verdict(&[SCREEN, &FRAME[..FRAME.len() - 1]]).1.unwrap_err().starts_with("cut"));
        assert!(verdict(&[SCREEN]).1.unwrap_err().starts_with("cut"));
        assert!(verdict(&[SCREEN, b";"]).1.unwrap_err().starts_with("corrupt"));
    }
}
