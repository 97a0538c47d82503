//! The index: what was true of a file at which stat, so that an unchanged file is not read again.
//!
//! Owns `.prebake/index.sqlite`. It is an accelerator and never a judge: no run fails because of it, a fact at another
//! stat is no fact, and a row whose seal is broken is not there. Deleting it costs a re-reading, except that reasons
//! in words for the content-addressed layout ([`Index::last_baked`]) begin afresh.
//!
//! Facts are remembered in memory first and written by thousands in one transaction; [`Index::flush`] or dropping
//! the index writes the rest. Paths are bytes, relative to whatever root the caller chose. The caller remembers a
//! file only if its stat is [settled](crate::store::FileStat::is_settled), or if it wrote the file itself.

mod database;

use crate::containers::Dtype;
use crate::hash::{ContentHash, EncoderId, TextHash};
use crate::recipe::key::KeyInputs;
use crate::recipe::receipt::Receipt;
use crate::recipe::settings::Target;
use crate::store::FOLDER;
use crate::store::stat::FileStat;
use database::Trouble;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The database's name in the folder.
const FILE: &str = "index.sqlite";
/// Facts written in one transaction: a few MB of receipts.
const FLUSH_EVERY: usize = 4096;
/// Backup tools leave a folder with this file alone; the first line is fixed by <https://bford.info/cachedir/>.
const CACHEDIR_TAG: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Made by prebake; everything in here can be made again.\n";

/// Dtype and shape of arrays by name.
pub type Shapes = BTreeMap<String, (Dtype, Vec<usize>)>;

/// What is known of an artefact: it was read whole and found sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Our receipt; none in another tool's file.
    pub receipt: Option<Receipt>,
    /// Arrays that the receipt does not name.
    pub foreign: Shapes,
}

/// What was last baked for a sample: the words for its staleness where a new key has a new place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baked {
    /// The inputs of its key.
    pub inputs: KeyInputs,
    /// The receipt's context.
    pub context: BTreeMap<String, String>,
    /// The artefact's path, as the caller names it.
    pub artefact: Vec<u8>,
}

type BakedKey = (Target, Vec<u8>, String);

/// Facts that are not yet in the database.
#[derive(Default)]
struct Pending {
    images: HashMap<Vec<u8>, (FileStat, ContentHash, String)>,
    /// `None` forgets.
    artefacts: HashMap<Vec<u8>, Option<(FileStat, Known)>>,
    weights: HashMap<Vec<u8>, (FileStat, EncoderId)>,
    baked: HashMap<BakedKey, Baked>,
    counts: HashMap<TextHash, Vec<u8>>,
}

impl Pending {
    fn len(&self) -> usize {
        self.images.len() + self.artefacts.len() + self.weights.len() + self.baked.len() + self.counts.len()
    }
}

struct Inner {
    database: Connection,
    pending: Pending,
    trouble: Option<String>,
}

/// The database of what was true at which stat; shared by reference between threads.
pub struct Index(Mutex<Inner>);

impl Index {
    /// Opens or makes the index under `root`; never fails.
    ///
    /// A damaged database or one of another version is moved aside to `index.sqlite.old`; where the folder cannot
    /// be written, the index lives in memory for this run. Both come with a warning, one line for people.
    pub fn open(root: &Path) -> (Self, Option<String>) {
        let folder = root.join(FOLDER);
        let shown = folder.join(FILE);
        match Self::open_in(&folder) {
            Ok((database, aside)) => {
                let warning = aside.map(|why| format!("`{}`: {why}; moved aside and begun afresh", shown.display()));
                (Self::of(database), warning)
            }
            Err(why) => {
                let warning = format!("`{}`: {why}; nothing is remembered after this run", shown.display());
                (Self::in_memory(), Some(warning))
            }
        }
    }

    fn open_in(folder: &Path) -> Result<(Connection, Option<String>), String> {
        make_folder(folder).map_err(|error| error.to_string())?;
        let path = folder.join(FILE);
        match database::open(&path) {
            Ok(database) => Ok((database, None)),
            Err(Trouble::Refused(why)) => Err(why),
            Err(Trouble::Unusable(why)) => {
                database::set_aside(&path).map_err(|error| error.to_string())?;
                let database = database::open(&path).map_err(Trouble::into_text)?;
                Ok((database, Some(why)))
            }
        }
    }

    /// An index that is gone with the run.
    pub fn in_memory() -> Self {
        Self::of(database::in_memory())
    }

    fn of(database: Connection) -> Self {
        Self(Mutex::new(Inner { database, pending: Pending::default(), trouble: None }))
    }

    /// A panic elsewhere leaves at worst a fact unwritten, so a poisoned lock is used on.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An image's content hash and what probing it gave, if it was remembered at this very stat.
    pub fn image(&self, path: &[u8], stat: &FileStat) -> Option<(ContentHash, String)> {
        let inner = self.lock();
        let (at, content, probed) = match inner.pending.images.get(path) {
            Some(row) => row.clone(),
            None => database::image(&inner.database, path)?,
        };
        (at == *stat).then_some((content, probed))
    }

    /// Remembers an image; `probed` is the caller's own text.
    pub fn remember_image(&self, path: &[u8], stat: &FileStat, content: ContentHash, probed: &str) {
        self.remember(|pending| {
            pending.images.insert(path.to_vec(), (*stat, content, probed.to_owned()));
        });
    }

    /// What is known of an artefact, if it was remembered at this very stat.
    pub fn artefact(&self, path: &[u8], stat: &FileStat) -> Option<Known> {
        let inner = self.lock();
        let (at, known) = match inner.pending.artefacts.get(path) {
            Some(row) => row.clone()?,
            None => database::artefact(&inner.database, path)?,
        };
        (at == *stat).then_some(known)
    }

    /// Remembers an artefact that was read whole and found sound, or was just written.
    pub fn remember_artefact(&self, path: &[u8], stat: &FileStat, known: &Known) {
        self.remember(|pending| {
            pending.artefacts.insert(path.to_vec(), Some((*stat, known.clone())));
        });
    }

    /// Forgets an artefact: it is damaged or gone.
    pub fn forget_artefact(&self, path: &[u8]) {
        self.remember(|pending| {
            pending.artefacts.insert(path.to_vec(), None);
        });
    }

    /// The encoder identity of a weights file, if it was remembered at this very stat.
    pub fn weights_identity(&self, path: &[u8], stat: &FileStat) -> Option<EncoderId> {
        let inner = self.lock();
        let (at, identity) = match inner.pending.weights.get(path) {
            Some(row) => *row,
            None => database::weights(&inner.database, path)?,
        };
        (at == *stat).then_some(identity)
    }

    /// Remembers the encoder identity of a weights file.
    pub fn remember_weights(&self, path: &[u8], stat: &FileStat, identity: EncoderId) {
        self.remember(|pending| {
            pending.weights.insert(path.to_vec(), (*stat, identity));
        });
    }

    /// What was last baked for a sample's entry.
    pub fn last_baked(&self, target: Target, sample: &[u8], entry: &str) -> Option<Baked> {
        let inner = self.lock();
        match inner.pending.baked.get(&(target, sample.to_vec(), entry.to_owned())) {
            Some(baked) => Some(baked.clone()),
            None => database::baked(&inner.database, target, sample, entry),
        }
    }

    /// Remembers what was baked for a sample's entry.
    pub fn remember_baked(&self, target: Target, sample: &[u8], entry: &str, baked: &Baked) {
        self.remember(|pending| {
            pending.baked.insert((target, sample.to_vec(), entry.to_owned()), baked.clone());
        });
    }

    /// What was counted under `key`, a hash of tokenizer, template and text.
    pub fn counted(&self, key: &TextHash) -> Option<Vec<u8>> {
        let inner = self.lock();
        match inner.pending.counts.get(key) {
            Some(counted) => Some(counted.clone()),
            None => database::counted(&inner.database, key),
        }
    }

    /// Remembers what was counted; `counted` is the caller's own encoding.
    pub fn remember_count(&self, key: TextHash, counted: Vec<u8>) {
        self.remember(|pending| {
            pending.counts.insert(key, counted);
        });
    }

    fn remember(&self, note: impl FnOnce(&mut Pending)) {
        let mut inner = self.lock();
        note(&mut inner.pending);
        if inner.pending.len() >= FLUSH_EVERY {
            inner.flush();
        }
    }

    /// Writes what is remembered; returns the last trouble in writing since the last call, for a warning.
    ///
    /// Facts that could not be written are dropped: the next run finds them out again.
    pub fn flush(&self) -> Option<String> {
        let mut inner = self.lock();
        inner.flush();
        inner.trouble.take()
    }
}

impl Inner {
    fn flush(&mut self) {
        if self.pending.len() == 0 {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        if let Err(error) = database::write(&mut self.database, &pending) {
            self.trouble = Some(format!("the index could not be written: {error}"));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Makes the folder, with the marks that keep backup tools and git out of it.
fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, text) in [("CACHEDIR.TAG", CACHEDIR_TAG), (".gitignore", "*\n")] {
        match fs::File::create_new(folder.join(name)) {
            Ok(mut file) => io::Write::write_all(&mut file, text.as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
