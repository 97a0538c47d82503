//! The directory structure of TIFF 6.0 and BigTIFF, which EXIF shares.
//!
//! Values are read one by one from where the file says they are; a count is never trusted with an allocation.

/// A TIFF's bytes with the byte order and offset width of its header.
#[derive(Clone, Copy)]
pub(super) struct Tiff<'a> {
    bytes: &'a [u8],
    big_endian: bool,
    /// BigTIFF: offsets and counts of 8 bytes.
    wide: bool,
}

/// One entry of a directory.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    tiff: Tiff<'a>,
    /// What the entry is about.
    pub tag: u16,
    kind: u16,
    /// How many values.
    pub count: u64,
    /// Offset of the first value.
    at: u64,
}

/// The orientation, 1–8, in an EXIF block (a TIFF header and directory, with or without the `Exif\0\0` that some
/// writers leave in front); 1 where it is absent, illegal or unreadable.
pub(super) fn orientation(exif: &[u8]) -> u8 {
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let read = || {
        let (tiff, first) = Tiff::open(exif)?;
        tiff.directory(first)?.0.find(|entry| entry.tag == ORIENTATION)?.first()
    };
    legal_orientation(read())
}

/// The tag of the orientation.
pub(super) const ORIENTATION: u16 = 274;

/// 1–8 as stored, anything else 1.
pub(super) fn legal_orientation(stored: Option<u64>) -> u8 {
    stored.and_then(|value| u8::try_from(value).ok()).filter(|value| (1..=8).contains(value)).unwrap_or(1)
}

impl<'a> Tiff<'a> {
    /// Reads the header; gives the offset of the first directory.
    pub(super) fn open(bytes: &'a [u8]) -> Option<(Self, u64)> {
        let (big_endian, version) = match bytes.get(..4)? {
            [b'I', b'I', version, 0] => (false, *version),
            [b'M', b'M', 0, version] => (true, *version),
            _ => return None,
        };
        let tiff = Self { bytes, big_endian, wide: version == 43 };
        let first = match version {
            42 => tiff.number(4, 4)?,
            43 if tiff.number(4, 2)? == 8 => tiff.number(8, 8)?,
            _ => return None,
        };
        Some((tiff, first))
    }

    /// An unsigned number of `width` bytes (1, 2, 4 or 8) at `at`.
    fn number(self, at: u64, width: usize) -> Option<u64> {
        let start = usize::try_from(at).ok()?;
        let stored = self.bytes.get(start..start.checked_add(width)?)?;
        let digit = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(if self.big_endian { stored.iter().fold(0, digit) } else { stored.iter().rev().fold(0, digit) })
    }

    /// The entries of the directory at `at`, and the offset of the next directory (0 at the last).
    ///
    /// `None` where the directory does not lie inside the file.
    pub(super) fn directory(self, at: u64) -> Option<(impl Iterator<Item = Entry<'a>>, u64)> {
        let (count_width, entry_width, word) = if self.wide { (8, 20, 8) } else { (2, 12, 4) };
        let count = self.number(at, count_width)?;
        let first = at.checked_add(count_width as u64)?;
        let next = self.number(first.checked_add(count.checked_mul(entry_width)?)?, word)?;
        let entries = (0..count).filter_map(move |index| self.entry(first + index * entry_width));
        Some((entries, next))
    }

    fn entry(self, at: u64) -> Option<Entry<'a>> {
        let word = if self.wide { 8 } else { 4 };
        let count = self.number(at + 4, word)?;
        let kind = self.number(at + 2, 2)? as u16;
        let value = at + 4 + word as u64;
        // Values that fit stand in the place of their offset.
        let inside = count.checked_mul(width_of(kind)? as u64).is_some_and(|bytes| bytes <= word as u64);
        let at_value = if inside { value } else { self.number(value, word)? };
        Some(Entry { tiff: self, tag: self.number(at, 2)? as u16, kind, count, at: at_value })
    }
}

/// Bytes of one value of a field type; `None` for unknown types.
fn width_of(kind: u16) -> Option<usize> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 | 17 | 18 => Some(8),
        _ => None,
    }
}

impl<'a> Entry<'a> {
    /// The value at `index`; `None` past the last, outside the file, or for a type that is no unsigned integer.
    pub(super) fn value(&self, index: u64) -> Option<u64> {
        if index >= self.count || !matches!(self.kind, 1 | 3 | 4 | 13 | 16 | 18) {
            return None;
        }
        let width = width_of(self.kind)?;
        self.tiff.number(self.at.checked_add(index.checked_mul(width as u64)?)?, width)
    }

    /// The first value.
    pub(super) fn first(&self) -> Option<u64> {
        self.value(0)
    }

    /// The values as raw bytes, if they lie inside the file.
    pub(super) fn raw(&self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.count).ok()?.checked_mul(width_of(self.kind)?)?;
        let start = usize::try_from(self.at).ok()?;
        self.tiff.bytes.get(start..start.checked_add(length)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exif(value: u16, big_endian: bool) -> Vec<u8> {
        let short = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let long = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let order: &[u8] = if big_endian { b"MM" } else { b"II" };
        let entry = [&short(274)[..], &short(3), &long(1), &short(value), &[0, 0]].concat();
        [order, &short(42), &long(8), &short(1), &entry, &long(0)].concat()
    }

    #[test]
    fn the_orientation_is_read_in_both_byte_orders_and_illegal_values_are_one() {
        for big_endian in [false, true] {
            for value in 1..=8 {
                assert_eq!(orientation(&exif(value, big_endian)), value as u8);
            }
            assert_eq!(orientation(&exif(0, big_endian)), 1);
            assert_eq!(orientation(&exif(9, big_endian)), 1);
            assert_eq!(orientation(&exif(262, big_endian)), 1, "not cut to its low byte");
        }
        assert_eq!(orientation(&[b"Exif\0\0", &exif(6, true)[..]].concat()), 6);
    }

    #[test]
    fn a_cut_or_lying_block_has_orientation_one() {
        let whole = exif(6, false);
        for length in 0..whole.len() {
            assert_eq!(orientation(&whole[..length]), 1, "{length}");
        }
        let mut far = whole.clone();
        far[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(orientation(&far), 1);
    }
}
