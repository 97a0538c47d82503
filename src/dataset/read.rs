//! Reading files that may be pipes, be huge, or change while they are read.

use crate::store::FileStat;
use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Largest file that is read: beyond what [`MAX_PIXELS`](crate::pixels::MAX_PIXELS) of 16-bit RGBA take (1.4 GB).
const MAX_FILE_BYTES: u64 = 2 << 30;

/// Files over this many bytes, and pictures that decode to more, are handled one at a time, so that the memory of a
/// scan is bounded by the threads times this, one large file and one large picture.
const LARGE_BYTES: u64 = 64 << 20;

/// How often a file that changes under the reader is read again.
const ATTEMPTS: usize = 3;

/// Whose turn it is; process-wide, as memory is. A thread that needs both takes the file's first.
static LARGE_FILE: Mutex<()> = Mutex::new(());
static LARGE_PICTURE: Mutex<()> = Mutex::new(());

/// Waits for the turn of a file of `bytes`, if it is large; held while the file is in memory.
pub(super) fn file_turn(bytes: u64) -> Option<MutexGuard<'static, ()>> {
    turn(&LARGE_FILE, bytes)
}

/// Waits for the turn of a picture that decodes to `bytes`, if it is large; held while the picture is in memory.
pub(super) fn picture_turn(bytes: u64) -> Option<MutexGuard<'static, ()>> {
    turn(&LARGE_PICTURE, bytes)
}

fn turn(queue: &'static Mutex<()>, bytes: u64) -> Option<MutexGuard<'static, ()>> {
    // The lock guards no data, so one left behind by a panic is as good as new.
    (bytes > LARGE_BYTES).then(|| queue.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A whole file as it was at one moment.
pub(super) struct Contents {
    pub bytes: Vec<u8>,
    pub stat: FileStat,
    /// The moment before the first byte was read.
    pub read_at: SystemTime,
}

/// Why a file gave no bytes.
pub(super) enum Failure {
    /// The system refused, or it is no regular file.
    Unreadable(String),
    /// It kept changing.
    Changing,
    /// Of this many bytes, more than are read.
    TooLarge(u64),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(format!("cannot be read: {error}"))
    }
}

/// Reads a regular file, again if it changed meanwhile: the stat before and after must agree.
pub(super) fn read(path: &Path) -> Result<Contents, Failure> {
    for _ in 0..ATTEMPTS {
        let (file, before) = open_regular(path)?;
        if before.len() > MAX_FILE_BYTES {
            return Err(Failure::TooLarge(before.len()));
        }
        let stat = FileStat::of(&before);
        let read_at = SystemTime::now();
        let bytes = read_at_most(&file, before.len())?;
        // Asked of the path, so that another file renamed into its place shows too.
        if FileStat::of(&fs::metadata(path)?) == stat && bytes.len() as u64 == stat.size {
            return Ok(Contents { bytes, stat, read_at });
        }
    }
    Err(Failure::Changing)
}

/// The first `limit` bytes of a regular file.
pub(super) fn read_start(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let (file, _) = open_regular(path)?;
    read_at_most(&file, limit)
}

fn read_at_most(file: &File, limit: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let room = usize::try_from(limit).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(room).is_err() {
        return Err(Failure::Unreadable(format!("cannot be read: no memory for {limit} bytes")));
    }
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens what is a regular file before and after opening; never waits for the other end of a pipe.
fn open_regular(path: &Path) -> Result<(File, Metadata), Failure> {
    let ensure_file = |metadata: &Metadata| match describe(metadata.file_type()) {
        None => Ok(()),
        Some(what) => Err(Failure::Unreadable(format!("is {what}, not a file"))),
    };
    ensure_file(&fs::metadata(path)?)?;
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // What was a file a moment ago may be a pipe by now.
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    ensure_file(&metadata)?;
    Ok((file, metadata))
}

/// What something is that is no regular file; `None` for a file.
pub(super) fn describe(kind: FileType) -> Option<&'static str> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a named pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
        if kind.is_block_device() || kind.is_char_device() {
            return Some("a device");
        }
    }
    if kind.is_dir() {
        return Some("a folder");
    }
    if kind.is_file() { None } else { Some("something else") }
}
