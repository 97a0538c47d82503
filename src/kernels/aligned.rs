//! Buffers that start at a cache line.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest vector: a vector that straddles two lines costs two loads.
const LINE_BYTES: usize = 64;
/// Values of a cache line.
const LINE: usize = LINE_BYTES / size_of::<f32>();

/// Zeroed f32 values whose first lies at the start of a cache line.
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
        Self::of(vec![0.0; len + LINE], len)
    }

    fn of(values: Vec<f32>, len: usize) -> Self {
        let start = values.as_ptr().align_offset(LINE_BYTES);
        Self { values, start, len }
    }

    /// Makes room for `len` values, which then hold anything; keeps what is larger.
    ///
    /// `None` where the system has no room.
    pub(crate) fn grow(&mut self, len: usize) -> Option<()> {
        if self.len < len {
            // The old one goes first, so that both never count.
            *self = Self::default();
            let padded = len.checked_add(LINE)?;
            // Asked for first, since the zeroed allocation below would end the process instead of failing.
            Vec::<f32>::new().try_reserve_exact(padded).ok()?;
            *self = Self::zeroed(len);
        }
        Some(())
    }
}

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
