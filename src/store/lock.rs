//! One bake at a time on a dataset: a lock that dies with its process.

use super::FOLDER;
use crate::progress::Cancel;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// How often a waiting process looks again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Held until it is dropped.
pub struct Lock(#[allow(dead_code, reason = "held open, never read")] File);

impl Lock {
    /// Takes the lock of the dataset at `root`; `waiting` is called once if another process holds it.
    ///
    /// None where the file system has no locks or cannot be written (the bake itself says so), or after a cancel:
    /// artefacts are atomic with or without it, the lock only saves double work.
    pub fn acquire(root: &Path, cancel: &Cancel, waiting: impl FnOnce()) -> Option<Self> {
        let folder = root.join(FOLDER);
        fs::create_dir_all(&folder).ok()?;
        let file = File::options().create(true).append(true).open(folder.join("bake.lock")).ok()?;
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => return Some(Self(file)),
                Err(TryLockError::WouldBlock) if !cancel.is_cancelled() => {}
                Err(_) => return None,
            }
            if let Some(waiting) = waiting.take() {
                waiting();
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }
}
