//! TIFF 6.0 and BigTIFF: the first directory, its strips or tiles, and the chain of pages.
//!
//! The format has more compressions and sample layouts than any decoder reads, so the last word is the decoder's.

use super::ifd::{self, Entry, Tiff};
use super::{Facts, Fault, corrupt, cut};
use crate::units::Size;

/// Pages that are counted at most; a chain that turns back on itself ends here.
const MOST_PAGES: u32 = 65_536;

mod tag {
    pub(super) const WIDTH: u16 = 256;
    pub(super) const HEIGHT: u16 = 257;
    pub(super) const BITS_PER_SAMPLE: u16 = 258;
    pub(super) const PHOTOMETRIC: u16 = 262;
    pub(super) const STRIP_OFFSETS: u16 = 273;
    pub(super) const STRIP_BYTES: u16 = 279;
    pub(super) const TILE_OFFSETS: u16 = 324;
    pub(super) const TILE_BYTES: u16 = 325;
    pub(super) const EXTRA_SAMPLES: u16 = 338;
    pub(super) const ICC_PROFILE: u16 = 34675;
}

pub(super) fn walk(tiff: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let (file, first) = Tiff::open(tiff).ok_or_else(|| cut("in its header"))?;
    let (entries, next) = file.directory(first).ok_or_else(|| cut("before its directory"))?;
    let mut width = 0;
    let mut height = 0;
    let (mut strips, mut tiles) = ((None, None), (None, None));
    for entry in entries {
        match entry.tag {
            tag::WIDTH => width = side(&entry),
            tag::HEIGHT => height = side(&entry),
            tag::BITS_PER_SAMPLE => facts.bits = entry.first().unwrap_or(1).min(255) as u8,
            // 0 and 1 are gray, white or black being zero.
            tag::PHOTOMETRIC => facts.gray = entry.first().is_some_and(|kind| kind <= 1),
            // 1 and 2 are associated and unassociated alpha.
            tag::EXTRA_SAMPLES => facts.alpha_channel = entry.first().is_some_and(|kind| matches!(kind, 1 | 2)),
            tag::STRIP_OFFSETS => strips.0 = Some(entry),
            tag::STRIP_BYTES => strips.1 = Some(entry),
            tag::TILE_OFFSETS => tiles.0 = Some(entry),
            tag::TILE_BYTES => tiles.1 = Some(entry),
            tag::ICC_PROFILE => facts.icc = Some(entry.raw().unwrap_or_default().to_vec()),
            ifd::ORIENTATION => facts.orientation = ifd::legal_orientation(entry.first()),
            _ => {}
        }
    }
    facts.size = Size::new(width, height);
    facts.frames = count_pages(file, next);
    facts.undecided = true;
    match (strips, tiles) {
        ((Some(offsets), Some(lengths)), _) | (_, (Some(offsets), Some(lengths))) => {
            ensure_inside(&offsets, &lengths, tiff.len() as u64)
        }
        _ => Err(corrupt("its directory names no picture data")),
    }
}

fn side(entry: &Entry<'_>) -> u32 {
    entry.first().and_then(|side| u32::try_from(side).ok()).unwrap_or(0)
}

/// Checks that every strip or tile lies inside a file of `file_bytes`.
fn ensure_inside(offsets: &Entry<'_>, lengths: &Entry<'_>, file_bytes: u64) -> Result<(), Fault> {
    // The first value outside the file ends the loop, so it runs no longer than the file is long.
    for index in 0..offsets.count {
        let (offset, length) =
            offsets.value(index).zip(lengths.value(index)).ok_or_else(|| cut("inside its directory"))?;
        if offset.checked_add(length).is_none_or(|end| end > file_bytes) {
            return Err(cut(&format!("inside part {} of {} of its picture data", index + 1, offsets.count)));
        }
    }
    if offsets.count == 0 { Err(corrupt("its directory names no picture data")) } else { Ok(()) }
}

/// Directories from the first on, `next` being the offset of the second; one that cannot be read ends the chain.
fn count_pages(file: Tiff<'_>, mut next: u64) -> u32 {
    let mut pages = 1;
    while next != 0 && pages < MOST_PAGES {
        let Some((_, after)) = file.directory(next) else { break };
        pages += 1;
        next = after;
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A little-endian TIFF of 4x2 gray pixels in one strip at byte 8, `entries` added, its next page at `next`.
    fn tiff(entries: &[(u16, u16, u32)], next: u32) -> Vec<u8> {
        let own = [(256, 3, 4), (257, 3, 2), (258, 3, 8), (262, 3, 1), (273, 4, 8), (279, 4, 8)];
        let mut bytes = [b"II\x2a\0", &16u32.to_le_bytes()[..], &[7; 8]].concat();
        let all: Vec<_> = own.iter().chain(entries).collect();
        bytes.extend((all.len() as u16).to_le_bytes());
        for (tag, kind, value) in all {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::to_le_bytes(*kind));
            bytes.extend(1u32.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(next.to_le_bytes());
        bytes
    }

    fn verdict(bytes: &[u8]) -> (Facts, Result<(), Fault>) {
        let mut facts = Facts::default();
        let verdict = walk(bytes, &mut facts);
        (facts, verdict)
    }

    #[test]
    fn the_directory_tells_size_depth_alpha_and_orientation() {
        let (facts, whole) = verdict(&tiff(&[(338, 3, 2), (274, 3, 6)], 0));
        assert_eq!((whole, facts.size, facts.frames), (Ok(()), Size::new(4, 2), 1));
        assert_eq!((facts.gray, facts.alpha_channel, facts.orientation, facts.bits), (true, true, 6, 8));
    }

    #[test]
    fn a_strip_outside_the_file_is_cut() {
        let mut bytes = tiff(&[], 0);
        let at = bytes.len() - 4 - 12 + 8;
        bytes[at..at + 4].copy_from_slice(&10_000u32.to_le_bytes());
        assert!(verdict(&bytes).1.unwrap_err().starts_with("cut"));
    }

    #[test]
    fn a_chain_of_pages_that_turns_back_ends() {
        assert_eq!(verdict(&tiff(&[], 16)).0.frames, MOST_PAGES);
    }
}
