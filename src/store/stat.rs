//! What tells whether a file may have changed since it was read, and when that is too young to trust.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Coarsest tick of clocks that show parts of a second: Linux stamps files at its timer tick, 1 to 10 ms; the rest
/// is room for network file systems.
const FINE_TICK: Duration = Duration::from_millis(50);
/// The tick of FAT, the coarsest file system in use: two seconds.
const COARSE_TICK: Duration = Duration::from_secs(2);

/// A file's identity as far as the system tells it without reading the bytes.
///
/// Where the system has no change time or inode (Windows), they are 0 and size and mtime decide alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStat {
    /// Length in bytes.
    pub size: u64,
    /// Last modification, nanoseconds since 1970; anyone may set it.
    pub mtime_ns: i64,
    /// Last change of content or attributes, nanoseconds since 1970; only the system sets it.
    pub ctime_ns: i64,
    /// The file's number in its file system; another file renamed into place has another one.
    pub inode: u64,
}

impl FileStat {
    /// The stat that `metadata` shows.
    pub fn of(metadata: &Metadata) -> Self {
        let (ctime_ns, inode) = change_time_and_inode(metadata);
        let mtime_ns = metadata.modified().map_or(0, since_1970_ns);
        Self { size: metadata.len(), mtime_ns, ctime_ns, inode }
    }

    /// True when a later change of the file is bound to show in its stat.
    ///
    /// `read_at` is the time before the first byte was read. A file changed within one tick of the clock around
    /// that moment can change again without another time stamp, so what was read of it must not be remembered (git's
    /// "racily clean" entries). A change time in the future means that the file's clock is not ours: not settled. A
    /// modification time further in the future was set by hand, and the change time guards the file.
    pub fn is_settled(&self, read_at: SystemTime) -> bool {
        let fine = [self.mtime_ns, self.ctime_ns].iter().any(|ns| ns % 1_000_000_000 != 0);
        let tick = if fine { FINE_TICK } else { COARSE_TICK }.as_nanos() as i64;
        let read_at = since_1970_ns(read_at);
        let near = |ns: i64| (read_at.saturating_sub(tick)..=read_at.saturating_add(tick)).contains(&ns);
        !near(self.mtime_ns) && self.ctime_ns < read_at.saturating_sub(tick)
    }
}

/// The bytes of a regular file; a pipe or a device, which may never end, is refused without being opened.
///
/// # Errors
/// What the system says, or `InvalidInput` for what is no regular file.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    fs::read(path)
}

/// Nanoseconds since 1970, negative before; clamped to what an i64 holds (the years 1678 to 2262).
fn since_1970_ns(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

#[cfg(unix)]
fn change_time_and_inode(metadata: &Metadata) -> (i64, u64) {
    use std::os::unix::fs::MetadataExt;
    let ns = metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
    (ns, metadata.ino())
}

#[cfg(not(unix))]
fn change_time_and_inode(_metadata: &Metadata) -> (i64, u64) {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const READ_AT: i64 = 1_700_000_000 * SECOND;

    fn is_settled(mtime_ns: i64, ctime_ns: i64) -> bool {
        let read_at = UNIX_EPOCH + Duration::from_nanos(READ_AT as u64);
        FileStat { size: 1, mtime_ns, ctime_ns, inode: 1 }.is_settled(read_at)
    }

    #[test]
    fn a_file_changed_within_a_tick_of_the_reading_is_not_settled() {
        let old = READ_AT - 3600 * SECOND + 1;
        let ms = SECOND / 1000;
        assert!(is_settled(old, old));
        assert!(is_settled(READ_AT - 51 * ms, READ_AT - 51 * ms));
        assert!(!is_settled(READ_AT - 49 * ms, old), "modified just before");
        assert!(!is_settled(READ_AT + 49 * ms, old), "modified just after");
        assert!(!is_settled(old, READ_AT - 49 * ms), "changed just before, modification time set back");
        assert!(!is_settled(old, READ_AT + 49 * ms), "changed just after");
    }

    #[test]
    fn whole_seconds_mean_a_coarse_clock() {
        assert!(!is_settled(READ_AT - 2 * SECOND, READ_AT - 2 * SECOND));
        assert!(is_settled(READ_AT - 3 * SECOND, READ_AT - 3 * SECOND));
        assert!(is_settled(READ_AT - 2 * SECOND, READ_AT - 2 * SECOND + 1), "one fine stamp shows a fine clock");
    }

    #[test]
    fn a_date_in_the_future_settles_only_if_it_was_set_by_hand() {
        let old = READ_AT - 3600 * SECOND + 1;
        assert!(is_settled(READ_AT + 86_400 * SECOND, old));
        assert!(!is_settled(old, READ_AT + 86_400 * SECOND));
    }

    #[test]
    fn dates_beyond_the_range_of_an_i64_are_clamped() {
        assert_eq!(since_1970_ns(UNIX_EPOCH - Duration::from_nanos(5)), -5);
        assert_eq!(since_1970_ns(UNIX_EPOCH + Duration::from_secs(10_000_000_000)), i64::MAX);
        assert_eq!(since_1970_ns(UNIX_EPOCH - Duration::from_secs(10_000_000_000)), i64::MIN);
    }
}
