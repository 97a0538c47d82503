//! A reader over a file's bytes that can run out but never panic: every step says whether the bytes were there.

/// Reads forward through `bytes`.
#[derive(Clone)]
pub(super) struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    /// A reader at the start of `all`.
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    /// Offset of the next byte.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.all.get(self.at..).unwrap_or_default()
    }

    /// The next `count` bytes, or `None` (and no step) when fewer are left.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.rest().get(..count)?;
        self.at += count;
        Some(taken)
    }

    /// Steps over `count` bytes, all of which must be there.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// One byte.
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes, little-endian.
    pub(super) fn u16_le(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Two bytes, big-endian.
    pub(super) fn u16_be(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes, little-endian.
    pub(super) fn u32_le(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Four bytes, big-endian.
    pub(super) fn u32_be(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Three bytes, little-endian.
    pub(super) fn u24_le(&mut self) -> Option<u32> {
        self.array().map(|[low, middle, high]| u32::from_le_bytes([low, middle, high, 0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_past_the_end_takes_nothing() {
        let mut bytes = Bytes::new(&[1, 2, 3]);
        assert_eq!(bytes.u32_le(), None);
        assert_eq!(bytes.u16_be(), Some(0x0102));
        assert_eq!(bytes.take(usize::MAX), None);
        assert_eq!(bytes.rest(), [3]);
    }
}
