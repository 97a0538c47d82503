//! Working memory of a thread, kept between calls.

use super::Aligned;
use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Aligned> = RefCell::default();
}

/// Calls `work` with `len` values that belong to this thread alone; what they hold is left over from earlier calls.
///
/// A thread keeps the largest that it was ever asked for: a fresh buffer a block would cost more in page faults than
/// the work on it. `work` must not call this again.
pub(super) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        assert!(scratch.grow(len).is_some(), "no room for {len} values of working memory");
        work(&mut scratch[..len])
    })
}
