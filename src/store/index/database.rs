//! The index's tables and every SQL statement on them.
//!
//! Each row carries a seal, a checksum over its fields, since SQLite has none: a bit that flipped on the disk makes
//! a row absent instead of a wrong hit. Errors in reading make a row absent too.

use super::{Baked, Known, Pending};
use crate::hash::{ContentHash, EncoderId, FieldHasher, TextHash};
use crate::recipe::receipt::Receipt;
use crate::recipe::settings::Target;
use crate::store::stat::FileStat;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// Raised when a table changes; a database of another version is moved aside.
const SCHEMA_VERSION: i32 = 1;
/// How long a writer waits for another process that is writing its thousands of rows.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
    CREATE TABLE images(
        path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER,
        content BLOB NOT NULL, probed TEXT NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE artefacts(
        path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER,
        receipt TEXT NOT NULL, shapes TEXT NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE weights(
        path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER,
        identity BLOB NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE baked(
        target TEXT, sample BLOB, entry TEXT, baked TEXT NOT NULL,
        PRIMARY KEY(target, sample, entry)) WITHOUT ROWID;
";

/// Tables that older databases of this version lack; they are added to them.
const ADDED: &str = "
    CREATE TABLE IF NOT EXISTS counts(
        key BLOB PRIMARY KEY, counted BLOB NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
";

/// Why a database could not be opened.
pub(super) enum Trouble {
    /// Its file is of no use: move it aside.
    Unusable(String),
    /// The system or another process says no: leave it alone.
    Refused(String),
}

impl Trouble {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Unusable(why) | Self::Refused(why) => why,
        }
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Unusable(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// Opens or makes the database at `path`.
pub(super) fn open(path: &Path) -> Result<Connection, Trouble> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // WAL lets readers go on while one writes; where it cannot be had, SQLite stays with its rollback journal.
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    // A power loss may cost the last facts, never the database's consistency.
    connection.execute_batch("PRAGMA synchronous = NORMAL")?;
    ensure_schema(&mut connection)?;
    connection.execute_batch(ADDED)?;
    Ok(connection)
}

/// A database that is gone with its connection.
pub(super) fn in_memory() -> Connection {
    let connection = Connection::open_in_memory().expect("an in-memory database needs nothing but memory");
    connection.execute_batch(SCHEMA).expect("the schema is valid and the database empty");
    connection.execute_batch(ADDED).expect("the schema is valid and the database empty");
    connection
}

/// Makes the tables in an empty database; immediate, so that two processes do not both find it empty.
fn ensure_schema(connection: &mut Connection) -> Result<(), Trouble> {
    if version(connection)? == SCHEMA_VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match version(&transaction)? {
        SCHEMA_VERSION => {}
        0 if is_empty(&transaction)? => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        other => {
            let text = format!("has version {other}, this build reads {SCHEMA_VERSION}");
            return Err(Trouble::Unusable(text));
        }
    }
    Ok(transaction.commit()?)
}

fn version(connection: &Connection) -> rusqlite::Result<i32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

/// Renames a database to `….old`, over an earlier one, and removes its journals.
pub(super) fn set_aside(path: &Path) -> io::Result<()> {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    fs::rename(path, beside(".old"))?;
    for journal in ["-wal", "-shm", "-journal"] {
        match fs::remove_file(beside(journal)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Checksum of a row.
fn seal(table: &str, path: &[u8], stat: &FileStat, first: &[u8], second: &[u8]) -> [u8; 32] {
    FieldHasher::new("prebake index row")
        .text("table", table)
        .bytes("path", path)
        .int("size", stat.size)
        .int("mtime_ns", stat.mtime_ns as u64)
        .int("ctime_ns", stat.ctime_ns as u64)
        .int("inode", stat.inode)
        .bytes("first", first)
        .bytes("second", second)
        .finish()
}

/// Columns 0 to 3 of a row; SQLite's integers are signed, so the unsigned ones travel by their bits.
fn stat_of(row: &Row<'_>) -> rusqlite::Result<FileStat> {
    Ok(FileStat {
        size: row.get::<_, i64>(0)? as u64,
        mtime_ns: row.get(1)?,
        ctime_ns: row.get(2)?,
        inode: row.get::<_, i64>(3)? as u64,
    })
}

/// One row by path; absent where it cannot be read.
fn row<T>(
    connection: &Connection,
    sql: &str,
    path: &[u8],
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Option<T> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.query_row([path], read).optional()).ok()?
}

pub(super) fn image(connection: &Connection, path: &[u8]) -> Option<(FileStat, ContentHash, String)> {
    let sql = "SELECT size, mtime_ns, ctime_ns, inode, content, probed, seal FROM images WHERE path = ?1";
    let (stat, content, probed, sealed): (_, [u8; 32], String, [u8; 32]) =
        row(connection, sql, path, |row| Ok((stat_of(row)?, row.get(4)?, row.get(5)?, row.get(6)?)))?;
    let is_whole = sealed == seal("images", path, &stat, &content, probed.as_bytes());
    is_whole.then_some((stat, ContentHash(content), probed))
}

pub(super) fn artefact(connection: &Connection, path: &[u8]) -> Option<(FileStat, Known)> {
    let sql = "SELECT size, mtime_ns, ctime_ns, inode, receipt, shapes, seal FROM artefacts WHERE path = ?1";
    let (stat, receipt, shapes, sealed): (_, String, String, [u8; 32]) =
        row(connection, sql, path, |row| Ok((stat_of(row)?, row.get(4)?, row.get(5)?, row.get(6)?)))?;
    if sealed != seal("artefacts", path, &stat, receipt.as_bytes(), shapes.as_bytes()) {
        return None;
    }
    let receipt = if receipt.is_empty() { None } else { Some(Receipt::from_json(&receipt).ok()?) };
    Some((stat, Known { receipt, foreign: serde_json::from_str(&shapes).ok()? }))
}

pub(super) fn weights(connection: &Connection, path: &[u8]) -> Option<(FileStat, EncoderId)> {
    let sql = "SELECT size, mtime_ns, ctime_ns, inode, identity, seal FROM weights WHERE path = ?1";
    let (stat, identity, sealed): (_, [u8; 32], [u8; 32]) =
        row(connection, sql, path, |row| Ok((stat_of(row)?, row.get(4)?, row.get(5)?)))?;
    (sealed == seal("weights", path, &stat, &identity, b"")).then_some((stat, EncoderId(identity)))
}

pub(super) fn counted(connection: &Connection, key: &TextHash) -> Option<Vec<u8>> {
    let sql = "SELECT counted, seal FROM counts WHERE key = ?1";
    let (counted, sealed): (Vec<u8>, [u8; 32]) = row(connection, sql, &key.0, |row| Ok((row.get(0)?, row.get(1)?)))?;
    (sealed == count_seal(key, &counted)).then_some(counted)
}

fn count_seal(key: &TextHash, counted: &[u8]) -> [u8; 32] {
    FieldHasher::new("prebake index count").bytes("key", &key.0).bytes("counted", counted).finish()
}

/// Only words are made of this row, so it has no seal.
pub(super) fn baked(connection: &Connection, target: Target, sample: &[u8], entry: &str) -> Option<Baked> {
    let sql = "SELECT baked FROM baked WHERE target = ?1 AND sample = ?2 AND entry = ?3";
    let mut statement = connection.prepare_cached(sql).ok()?;
    let text: String = statement.query_row(params![target.name(), sample, entry], |row| row.get(0)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes all pending facts or, on an error, none.
pub(super) fn write(connection: &mut Connection, pending: &Pending) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    write_images(&transaction, pending)?;
    write_artefacts(&transaction, pending)?;
    write_weights(&transaction, pending)?;
    write_baked(&transaction, pending)?;
    write_counts(&transaction, pending)?;
    transaction.commit()
}

fn write_images(transaction: &Transaction<'_>, pending: &Pending) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached("REPLACE INTO images VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    for (path, (stat, content, probed)) in &pending.images {
        let seal = seal("images", path, stat, &content.0, probed.as_bytes());
        let (size, inode) = (stat.size as i64, stat.inode as i64);
        insert.execute(params![path, size, stat.mtime_ns, stat.ctime_ns, inode, content.0, probed, seal])?;
    }
    Ok(())
}

fn write_artefacts(transaction: &Transaction<'_>, pending: &Pending) -> rusqlite::Result<()> {
    let mut forget = transaction.prepare_cached("DELETE FROM artefacts WHERE path = ?1")?;
    let mut insert = transaction.prepare_cached("REPLACE INTO artefacts VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    for (path, fact) in &pending.artefacts {
        let Some((stat, known)) = fact else {
            forget.execute([path])?;
            continue;
        };
        let receipt = known.receipt.as_ref().map(Receipt::to_json).unwrap_or_default();
        let shapes = serde_json::to_string(&known.foreign).expect("shapes are plain data");
        let seal = seal("artefacts", path, stat, receipt.as_bytes(), shapes.as_bytes());
        let (size, inode) = (stat.size as i64, stat.inode as i64);
        insert.execute(params![path, size, stat.mtime_ns, stat.ctime_ns, inode, receipt, shapes, seal])?;
    }
    Ok(())
}

fn write_counts(transaction: &Transaction<'_>, pending: &Pending) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached("INSERT OR REPLACE INTO counts VALUES(?1, ?2, ?3)")?;
    for (key, counted) in &pending.counts {
        statement.execute(params![key.0, counted, count_seal(key, counted)])?;
    }
    Ok(())
}

fn write_weights(transaction: &Transaction<'_>, pending: &Pending) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached("REPLACE INTO weights VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for (path, (stat, identity)) in &pending.weights {
        let seal = seal("weights", path, stat, &identity.0, b"");
        let (size, inode) = (stat.size as i64, stat.inode as i64);
        insert.execute(params![path, size, stat.mtime_ns, stat.ctime_ns, inode, identity.0, seal])?;
    }
    Ok(())
}

fn write_baked(transaction: &Transaction<'_>, pending: &Pending) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached("REPLACE INTO baked VALUES(?1, ?2, ?3, ?4)")?;
    for ((target, sample, entry), baked) in &pending.baked {
        let text = serde_json::to_string(baked).expect("key inputs are plain data");
        insert.execute(params![target.name(), sample, entry, text])?;
    }
    Ok(())
}
