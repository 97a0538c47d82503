//! WebP (RFC 9649): the RIFF length, and chunks up to it.
//!
//! The length in the header must be there in the file; more bytes behind it are fine. A missing pad byte after the
//! last chunk is forgiven, since it carries nothing.

use super::bytes::Bytes;
use super::{Facts, Fault, corrupt, cut, ifd};
use crate::units::Size;

pub(super) fn walk(webp: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    // "RIFF", length, "WEBP"; the length counts from "WEBP" on.
    let declared = Bytes::new(webp.get(4..).unwrap_or_default()).u32_le().ok_or_else(|| cut("in its header"))?;
    let end = u64::from(declared) + 8;
    let inside = webp.get(12..usize::try_from(end).unwrap_or(usize::MAX).min(webp.len()));
    let mut bytes = Bytes::new(inside.ok_or_else(|| cut("in its header"))?);
    let mut pictures = false;
    while !bytes.rest().is_empty() {
        let Some((kind, data)) = chunk(&mut bytes, facts)? else { break };
        match &kind {
            b"VP8 " | b"VP8L" => pictures = true,
            b"VP8X" => read_extended(data, facts)?,
            b"ALPH" => facts.alpha_channel = true,
            b"ANMF" if pictures => facts.frames = facts.frames.saturating_add(1),
            b"ANMF" => pictures = true,
            b"ICCP" => facts.icc = Some(data.to_vec()),
            b"EXIF" => facts.orientation = ifd::orientation(data),
            _ => {}
        }
        match &kind {
            b"VP8 " => read_lossy(data, facts)?,
            b"VP8L" => read_lossless(data, facts)?,
            _ => {}
        }
    }
    if (webp.len() as u64) < end {
        return Err(format!("cut: holds {} of {end} bytes", webp.len()));
    }
    if pictures { Ok(()) } else { Err(corrupt("it holds no picture data")) }
}

type Chunk<'a> = ([u8; 4], &'a [u8]);

/// The next chunk; `None` where only the start of a header is left.
fn chunk<'a>(bytes: &mut Bytes<'a>, facts: &mut Facts) -> Result<Option<Chunk<'a>>, Fault> {
    let Some((kind, length)) = bytes.array::<4>().zip(bytes.u32_le()) else { return Ok(None) };
    match bytes.take(length as usize) {
        Some(data) => {
            // Chunks are padded to even lengths.
            let _ = bytes.skip((length % 2) as usize);
            Ok(Some((kind, data)))
        }
        None => {
            // The header of a cut picture still tells its size.
            let _ = match &kind {
                b"VP8 " => read_lossy(bytes.rest(), facts),
                b"VP8L" => read_lossless(bytes.rest(), facts),
                _ => Ok(()),
            };
            Err(cut(&format!("inside its {} chunk", String::from_utf8_lossy(&kind).trim_end().escape_debug())))
        }
    }
}

/// The extended header: flags, then the canvas less one in 24 bits a side.
fn read_extended(data: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    const ALPHA: u8 = 0x10;
    let mut bytes = Bytes::new(data);
    let mut read = || {
        let [flags, ..] = bytes.array::<4>()?;
        Some((flags, bytes.u24_le()?, bytes.u24_le()?))
    };
    let (flags, width, height) = read().ok_or_else(|| corrupt("its VP8X chunk is too short"))?;
    facts.extended_webp = true;
    facts.alpha_channel |= flags & ALPHA != 0;
    facts.size = Size::new(width + 1, height + 1);
    Ok(())
}

/// The key frame header of VP8 (RFC 6386, 9.1): frame tag, start code, 14 bits a side.
fn read_lossy(data: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let mut bytes = Bytes::new(data);
    let mut read = || Some((bytes.u24_le()?, bytes.array::<3>()?, bytes.u16_le()?, bytes.u16_le()?));
    let (tag, start, width, height) = read().ok_or_else(|| corrupt("its VP8 header is too short"))?;
    let is_key_frame = tag & 1 == 0;
    if start != [0x9d, 0x01, 0x2a] || !is_key_frame {
        return Err(corrupt("its VP8 data begins no key frame"));
    }
    if !facts.extended_webp {
        facts.size = Size::new(u32::from(width & 0x3fff), u32::from(height & 0x3fff));
    }
    let first_partition = (tag >> 5) as usize;
    if first_partition > bytes.rest().len() {
        return Err(corrupt("its VP8 data is shorter than its first partition"));
    }
    Ok(())
}

/// The header of VP8L: signature, 14 bits a side less one, the hint that alpha is used.
fn read_lossless(data: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let mut bytes = Bytes::new(data);
    let (signature, bits) = bytes.u8().zip(bytes.u32_le()).ok_or_else(|| corrupt("its VP8L header is too short"))?;
    if signature != 0x2f {
        return Err(corrupt("its VP8L data has the wrong signature"));
    }
    facts.alpha_channel |= bits >> 28 & 1 == 1;
    if !facts.extended_webp {
        facts.size = Size::new((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webp(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
        let mut body = b"WEBP".to_vec();
        for (kind, data) in chunks {
            body.extend(*kind);
            body.extend((data.len() as u32).to_le_bytes());
            body.extend(*data);
            body.extend(vec![0; data.len() % 2]);
        }
        [b"RIFF", &(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    fn verdict(bytes: &[u8]) -> (Facts, Result<(), Fault>) {
        let mut facts = Facts::default();
        let verdict = walk(bytes, &mut facts);
        (facts, verdict)
    }

    const LOSSLESS: [u8; 5] = [0x2f, 99, 0x80, 0x0c, 0x10];

    #[test]
    fn a_lossless_header_tells_size_and_alpha() {
        let (facts, whole) = verdict(&webp(&[(b"VP8L", &LOSSLESS)]));
        assert_eq!((whole, facts.size, facts.alpha_channel), (Ok(()), Size::new(100, 51), true));
    }

    #[test]
    fn an_extended_header_is_the_canvas_and_frames_are_counted() {
        let extended = [0x12, 0, 0, 0, 199, 0, 0, 149, 0, 0];
        let (facts, whole) = verdict(&webp(&[(b"VP8X", &extended), (b"ANMF", b""), (b"ANMF", b"")]));
        assert_eq!((whole, facts.size, facts.frames), (Ok(()), Size::new(200, 150), 2));
        assert!(facts.extended_webp && facts.alpha_channel);
    }

    #[test]
    fn fewer_bytes_than_declared_are_cut_and_no_picture_is_corrupt() {
        let whole = webp(&[(b"VP8L", &LOSSLESS)]);
        assert!(verdict(&whole[..whole.len() - 1]).1.unwrap_err().starts_with("cut"));
        assert!(verdict(&webp(&[(b"EXIF", b"")])).1.unwrap_err().starts_with("corrupt"));
        assert_eq!(verdict(&[whole, vec![0; 9]].concat()).1, Ok(()));
    }
}
