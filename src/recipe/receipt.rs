//! The receipt: what an artefact remembers of how it was made. One canonical JSON text inside the artefact.

use crate::containers::Dtype;
use crate::hash::{Checksum, Key};
use crate::recipe::key::KeyInputs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Raised when a receipt's shape changes so that older readers would misread it.
pub const RECEIPT_VERSION: u32 = 1;

/// What one artefact remembers; an entry each for the tensors it caches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// [`RECEIPT_VERSION`] at the time of writing.
    pub receipt_version: u32,
    /// By the name of the entry's tensor in the container: `latents`, `latents_flipped_16x24` …
    pub entries: BTreeMap<String, EntryReceipt>,
}

/// What is remembered of one entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryReceipt {
    /// The key at the time of writing.
    pub key: Key,
    /// What the key was derived from.
    pub inputs: KeyInputs,
    /// How it was computed; recorded, not keyed.
    pub ran: Option<Ran>,
    /// Checksum of each array that belongs to the entry, its own tensor among them.
    pub arrays: BTreeMap<String, Checksum>,
    /// Dtype of the entry's tensor.
    pub dtype: Dtype,
    /// Shape of the entry's tensor.
    pub shape: Vec<usize>,
    /// For people: the path and settings at the time.
    pub context: BTreeMap<String, String>,
}

/// How an entry was computed. A request accepts an entry that ran at least as exactly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// Arithmetic of the encoder.
    pub precision: Precision,
    /// Encoded in overlapping tiles.
    pub tiled: bool,
    /// Side of these tiles, in pixels; absent where untiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile: Option<u32>,
    /// Repeated in f32 after NaN or infinity.
    pub f32_retry: bool,
    /// `cpu`, `cuda:0` …
    pub device: String,
    /// Version of this crate.
    pub version: String,
}

/// Arithmetic of the encoder, least exact first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Precision {
    Bf16,
    F16,
    F32,
}

impl Precision {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }
}

impl Receipt {
    /// A receipt without entries.
    pub fn empty() -> Self {
        Self { receipt_version: RECEIPT_VERSION, entries: BTreeMap::new() }
    }

    /// Canonical JSON: keys sorted, no spaces, so the same receipt gives the same bytes.
    pub fn to_json(&self) -> String {
        // Through `Value`, whose maps are sorted, so that struct fields are sorted too.
        serde_json::to_value(self).expect("receipts are plain data").to_string()
    }

    /// Reads a receipt; the error says what is wrong with it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let receipt: Self = serde_json::from_str(text).map_err(|e| format!("its receipt cannot be read: {e}"))?;
        if receipt.receipt_version > RECEIPT_VERSION {
            return Err(format!(
                "its receipt has version {}, this build reads up to {RECEIPT_VERSION}",
                receipt.receipt_version
            ));
        }
        Ok(receipt)
    }
}
