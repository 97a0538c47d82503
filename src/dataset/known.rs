//! What an earlier scan found out, as far as it still holds.

use super::probe::Probed;
use crate::hash::ContentHash;
use crate::store::{FileStat, Index};

/// Remembers what files held at which stat. Methods are called from many threads.
///
/// An accelerator only: a scan gives the same result with and without it.
pub trait Known: Sync {
    /// What the file at `path` (bytes, relative to the dataset) held, if it was remembered at this very stat.
    fn image(&self, path: &[u8], stat: &FileStat) -> Option<(ContentHash, Probed)>;
    /// Remembers what the file at `path` held at `stat`; asked only where a later change is bound to show in the stat.
    fn remember(&self, path: &[u8], stat: &FileStat, content: ContentHash, probed: &Probed);
}

/// Knows nothing and forgets everything: every file is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unknown;

impl Known for Unknown {
    fn image(&self, _path: &[u8], _stat: &FileStat) -> Option<(ContentHash, Probed)> {
        None
    }

    fn remember(&self, _path: &[u8], _stat: &FileStat, _content: ContentHash, _probed: &Probed) {}
}

impl Known for Index {
    fn image(&self, path: &[u8], stat: &FileStat) -> Option<(ContentHash, Probed)> {
        let (content, probed) = Index::image(self, path, stat)?;
        // What cannot be parsed was written by another version: not known.
        Some((content, serde_json::from_str(&probed).ok()?))
    }

    fn remember(&self, path: &[u8], stat: &FileStat, content: ContentHash, probed: &Probed) {
        if let Ok(json) = serde_json::to_string(probed) {
            self.remember_image(path, stat, content, &json);
        }
    }
}
