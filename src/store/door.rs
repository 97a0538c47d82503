//! The one function through which bytes become visible, and the broom for what a crash leaves before it.

use crate::error::{IoContext, Result};
use crate::store::stat::FileStat;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Every temporary's name starts with this; the dot hides it from trainers' globs.
pub const TEMPORARY_PREFIX: &str = ".prebake-tmp-";

/// A temporary this old has no living writer: writing one artefact takes seconds.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// Makes `bytes` the whole content of the file at `path`, creating its parent folders; returns the new file's stat.
///
/// At any instant, a crash and a power loss included, `path` is what it was before or all of `bytes`: they are
/// written to a temporary in the same folder, synced to the disk, and only then renamed over `path`. The rename
/// itself is synced last (Unix), so after a return the new file survives a power loss too. A crash before the rename
/// leaves a temporary that [`sweep_temporaries`] removes; an error removes it at once. Permissions are those of any new
/// file, 0666 less the umask, so other users and containers can read what was baked.
pub fn publish(path: &Path, bytes: &[u8]) -> Result<FileStat> {
    let folder = parent(path);
    fs::create_dir_all(folder).at(folder)?;
    let mut temporary = new_temporary(folder).at(folder)?;
    temporary.write_all(bytes).at(path)?;
    temporary.as_file().sync_all().at(path)?;
    // Dropping the error drops the temporary with it, which removes the file.
    let file = temporary.persist(path).map_err(|failed| failed.error).at(path)?;
    sync_folder(folder).at(folder)?;
    // Of the handle, after the rename: the rename moves the change time, and the path may be another's by now.
    Ok(FileStat::of(&file.metadata().at(path)?))
}

/// Makes `folder` and makes sure that files can be made in it.
///
/// # Errors
/// What the system says, with the folder.
pub fn ensure_writable(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).at(folder)?;
    new_temporary(folder).at(folder).map(drop)
}

/// The folder that holds `path`; the current one for a bare name.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn new_temporary(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY_PREFIX);
    #[cfg(unix)]
    let permissions = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(permissions);
    builder.tempfile_in(folder)
}

/// Syncs a rename in `folder`. Some network and FUSE file systems cannot sync a folder and say `EINVAL` or `ENOTSUP`;
/// the content is synced by then, so that is no failure.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    match fs::File::open(folder)?.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        other => other,
    }
}

/// Windows cannot open a folder to sync it; NTFS journals the rename.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Removes temporaries of crashed runs from `folder`, not from folders in it; returns how many.
///
/// A temporary goes when it has not been written to for an hour, so one that another process is writing stays. What
/// cannot be looked at or removed is left; a missing folder has none.
pub fn sweep_temporaries(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let abandoned = |path: &PathBuf| is_abandoned(path, SystemTime::now());
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()))
        .map(|entry| entry.path())
        .filter(abandoned)
        .filter(|path| fs::remove_file(path).is_ok())
        .count()
}

fn is_abandoned(path: &Path, now: SystemTime) -> bool {
    fs::symlink_metadata(path)
        .ok()
        .filter(fs::Metadata::is_file)
        .and_then(|metadata| metadata.modified().ok())
        .and_then(|modified| now.duration_since(modified).ok())
        .is_some_and(|age| age > ABANDONED_AFTER)
}
