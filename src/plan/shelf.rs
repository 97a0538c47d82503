//! Who holds which key: a few words an entry, no receipts, so that a large cache fits in memory.

use crate::containers::Container;
use crate::hash::Key;
use crate::recipe::{KeyInputs, Precision, Receipt, Tile, staleness};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Where the payload of a key can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) path: PathBuf,
    pub(super) container: Container,
    pub(super) tensor: String,
}

/// Valid entries of ours by key, and by everything in the key but the weights.
pub(super) struct Shelf {
    /// The least precision that is asked for: what ran more coarsely is no source.
    precision: Option<Precision>,
    /// Likewise the finest tiling.
    tile: Tile,
    by_key: HashMap<Key, Holder>,
    by_partial: HashMap<Key, Holder>,
}

impl Shelf {
    pub(super) fn new(precision: Option<Precision>, tile: Tile) -> Self {
        Self { precision, tile, by_key: HashMap::new(), by_partial: HashMap::new() }
    }

    /// Adds the entries of one artefact of ours, damaged ones left out. The first holder of a key stays.
    pub(super) fn add(&mut self, path: &Path, container: Container, receipt: &Receipt, damaged: &[(String, String)]) {
        for (tensor, entry) in &receipt.entries {
            let coarse = |ran| !staleness::explain_ran(ran, self.precision, self.tile).is_empty();
            if damaged.iter().any(|(name, _)| name == tensor) || entry.ran.as_ref().is_some_and(coarse) {
                continue;
            }
            let holder = || Holder { path: path.to_path_buf(), container, tensor: tensor.clone() };
            self.by_key.entry(entry.key).or_insert_with(holder);
            self.by_partial.entry(entry.inputs.key_without_weights()).or_insert_with(holder);
        }
    }

    /// Who holds `key`, or, without weights, an entry with the same inputs but for them.
    pub(super) fn holder(&self, key: Option<Key>, inputs: &KeyInputs) -> Option<&Holder> {
        match key {
            Some(key) => self.by_key.get(&key),
            None => self.by_partial.get(&inputs.key_without_weights()),
        }
    }
}
