//! Buffers that start at a cache line, or at a large page.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest vector: a vector that straddles two lines costs two loads.
const LINE_BYTES: usize = 64;

/// Bytes of a large page (x86-64, and ARM with pages of 4 KiB).
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// f32 values whose first lies at the start of a cache line.
///
/// From half a large page on, they lie in large pages where the system has them: a tile's products are spread over 36
/// pages of 4 KiB, more than a core's first-level table of stores holds.
#[derive(Default)]
pub(crate) struct Aligned {
    values: Vec<f32>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeros. Large buffers come from the system page by page as they are first written.
    ///
    /// # Panics
    /// Where the system has no room, as all of Rust's collections do.
    pub(crate) fn zeroed(len: usize) -> Self {
        let (padded, alignment) = padding(len).expect("a length that memory can hold");
        let values = vec![0.0; padded];
        let start = values.as_ptr().align_offset(alignment);
        if alignment == LARGE_PAGE_BYTES {
            prefer_large_pages(&values[start..]);
        }
        Self { values, start, len }
    }

    /// Makes room for `len` values, which then hold anything; keeps what is larger.
    ///
    /// `None` where the system has no room.
    pub(crate) fn grow(&mut self, len: usize) -> Option<()> {
        if self.len < len {
            // The old one goes first, so that both never count.
            *self = Self::default();
            // Asked for first, since a failing allocation of zeros would end the process.
            Vec::<f32>::new().try_reserve_exact(padding(len)?.0).ok()?;
            *self = Self::zeroed(len);
        }
        Some(())
    }
}

/// Values to allocate for `len` aligned ones, and the alignment in bytes.
fn padding(len: usize) -> Option<(usize, usize)> {
    let large = len >= LARGE_PAGE_BYTES / size_of::<f32>() / 2;
    let alignment = if large { LARGE_PAGE_BYTES } else { LINE_BYTES };
    let unit = alignment / size_of::<f32>();
    // A whole number of units behind wherever the first one starts.
    Some((len.checked_next_multiple_of(unit)?.checked_add(unit)?, alignment))
}

/// Asks for large pages under `values`, which start at one; only a hint.
#[cfg(target_os = "linux")]
fn prefer_large_pages(values: &[f32]) {
    let bytes = size_of_val(values) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    // SAFETY: the range lies in an allocation that we hold; the advice changes how it is mapped, not what it holds.
    unsafe { libc::madvise(values.as_ptr().cast_mut().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn prefer_large_pages(_: &[f32]) {}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.start..self.start + self.len]
    }
}
