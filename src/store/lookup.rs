//! What lies at an artefact's place: missing, damaged, foreign or ours.
//!
//! Owns the judgement of an artefact's bytes against its receipt; refuses to judge freshness, which is the plan's.
//! Where the index knows the file at its very stat, no byte is read.

use crate::containers::{Array, Container, Contents, Dtype};
use crate::recipe::receipt::{EntryReceipt, Receipt};
use crate::store::index::{Index, Known, Shapes};
use crate::store::stat::FileStat;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

/// What lies at an artefact's place.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Nothing.
    Missing,
    /// Something that cannot be used at all, and why, in one lower-case line.
    Damaged(String),
    /// Another tool's file, readable and finite: it cannot be verified.
    Foreign(Shapes),
    /// A file with our receipt.
    Ours {
        /// What it remembers, damaged entries included.
        receipt: Receipt,
        /// Entries whose arrays are not what the receipt says, and why.
        damaged: Vec<(String, String)>,
        /// Finite arrays that no entry names: another tool put them there.
        foreign: Shapes,
    },
}

impl Found {
    /// What the index may remember of it: only what is wholly sound.
    pub fn known(&self) -> Option<Known> {
        match self {
            Self::Ours { receipt, damaged, foreign } if damaged.is_empty() => {
                Some(Known { receipt: Some(receipt.clone()), foreign: foreign.clone() })
            }
            Self::Foreign(foreign) => Some(Known { receipt: None, foreign: foreign.clone() }),
            _ => None,
        }
    }
}

/// Looks at the artefact at `path`; `index_path` is its name in the index.
///
/// A file that the index knows at its present stat is not read. Any other is read whole and checked, and remembered
/// when sound and settled.
pub fn inspect(path: &Path, container: Container, index: &Index, index_path: &[u8]) -> Found {
    match stat_of(path) {
        Err(found) => found,
        Ok(stat) => match index.artefact(index_path, &stat) {
            Some(Known { receipt: Some(receipt), foreign }) => Found::Ours { receipt, damaged: Vec::new(), foreign },
            Some(Known { receipt: None, foreign }) => Found::Foreign(foreign),
            None => read_and_remember(path, container, index, index_path),
        },
    }
}

/// Looks at the artefact at `path` and reads it whole, whatever is known of it.
pub fn verify(path: &Path, container: Container) -> Found {
    match stat_of(path) {
        Err(found) => found,
        Ok(_) => match read_settled(path) {
            Ok((bytes, _)) => judge_bytes(&bytes, container),
            Err(error) => found_instead(&error),
        },
    }
}

/// Judges contents that were already read: [`Found::Foreign`], [`Found::Ours`], or [`Found::Damaged`] for a receipt
/// that cannot be read and for a foreign file with NaN or infinity in it.
pub fn judge(contents: &Contents) -> Found {
    let receipt = match contents.receipt.as_deref().map(Receipt::from_json) {
        None => return judge_foreign(contents),
        Some(Err(why)) => return Found::Damaged(why),
        Some(Ok(receipt)) => receipt,
    };
    let damaged = receipt
        .entries
        .iter()
        .filter_map(|(name, entry)| Some((name.clone(), fault_of(name, entry, &contents.arrays)?)))
        .collect();
    let named: BTreeSet<&String> = receipt.entries.values().flat_map(|entry| entry.arrays.keys()).collect();
    let others = contents.arrays.iter().filter(|(name, array)| !named.contains(name) && !array.has_non_finite());
    let foreign = others.map(shape_of).collect();
    Found::Ours { receipt, damaged, foreign }
}

/// Why an entry is not what its receipt says, or `None` when it is.
///
/// Checked: each array is there and has its checksum, the entry's own tensor has the dtype and shape of the receipt,
/// and no float is NaN or infinite.
pub fn fault_of(name: &str, entry: &EntryReceipt, arrays: &BTreeMap<String, Array>) -> Option<String> {
    if !entry.arrays.contains_key(name) {
        return Some(format!("the receipt of `{name}` does not cover its tensor"));
    }
    for (array_name, checksum) in &entry.arrays {
        let Some(array) = arrays.get(array_name) else {
            return Some(format!("`{array_name}` is missing"));
        };
        if array.checksum() != *checksum {
            return Some(format!("`{array_name}` does not match its checksum"));
        }
        if array.has_non_finite() {
            return Some(non_finite(array_name));
        }
    }
    let tensor = arrays.get(name)?;
    let is_as_said = tensor.dtype == entry.dtype && tensor.shape == entry.shape;
    (!is_as_said).then(|| {
        let (is, said) = (tensor.dtype.name(), entry.dtype.name());
        format!("`{name}` is {is} {:?}, its receipt says {said} {:?}", tensor.shape, entry.shape)
    })
}

fn judge_foreign(contents: &Contents) -> Found {
    match contents.arrays.iter().find(|(_, array)| array.has_non_finite()) {
        Some((name, _)) => Found::Damaged(non_finite(name)),
        None => Found::Foreign(contents.arrays.iter().map(shape_of).collect()),
    }
}

fn non_finite(name: &str) -> String {
    format!("`{name}` holds NaN or infinity")
}

fn shape_of((name, array): (&String, &Array)) -> (String, (Dtype, Vec<usize>)) {
    (name.clone(), (array.dtype, array.shape.clone()))
}

fn judge_bytes(bytes: &[u8], container: Container) -> Found {
    container.read(bytes).map_or_else(Found::Damaged, |contents| judge(&contents))
}

/// The stat of a regular file; what was found instead of one otherwise. A pipe is not opened: that would block.
fn stat_of(path: &Path) -> Result<FileStat, Found> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(FileStat::of(&metadata)),
        Ok(_) => Err(Found::Damaged("not a regular file".into())),
        Err(error) => Err(found_instead(&error)),
    }
}

fn found_instead(error: &io::Error) -> Found {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Found::Missing,
        _ => Found::Damaged(format!("cannot be read: {error}")),
    }
}

/// The bytes, and the stat that they belong to if a later change is bound to show.
fn read_settled(path: &Path) -> io::Result<(Vec<u8>, Option<FileStat>)> {
    let read_at = SystemTime::now();
    let mut file = File::open(path)?;
    let before = FileStat::of(&file.metadata()?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let after = FileStat::of(&file.metadata()?);
    Ok((bytes, Some(after).filter(|stat| *stat == before && stat.is_settled(read_at))))
}

fn read_and_remember(path: &Path, container: Container, index: &Index, index_path: &[u8]) -> Found {
    let (bytes, stat) = match read_settled(path) {
        Ok(read) => read,
        Err(error) => return found_instead(&error),
    };
    let found = judge_bytes(&bytes, container);
    match (found.known(), stat) {
        (Some(known), Some(stat)) => index.remember_artefact(index_path, &stat, &known),
        // Too young to trust; what the index has of an older stat is no fact and does no harm.
        (Some(_), None) => {}
        (None, _) => index.forget_artefact(index_path),
    }
    found
}
