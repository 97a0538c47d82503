//! Containers: bytes ↔ named arrays plus one receipt text. Pure; no file is opened here.
//!
//! | module | what |
//! |---|---|
//! | [`npz`] | an uncompressed zip of `.npy` members, as `numpy.savez` writes; the receipt is one more member |
//! | [`safetensors`] | the receipt is one metadata value |

pub mod array;
pub mod npz;
pub mod safetensors;

pub use array::{Array, Dtype};
use std::collections::BTreeMap;

/// The name under which a receipt rides in a container.
pub const RECEIPT_NAME: &str = "prebake_receipt";

/// What one container holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Arrays by name, the receipt not among them.
    pub arrays: BTreeMap<String, Array>,
    /// The receipt's JSON, if the container carries one.
    pub receipt: Option<String>,
}

/// The file formats that artefacts come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// numpy's zip of arrays.
    Npz,
    /// safetensors.
    Safetensors,
}

impl Container {
    /// The bytes of a file that holds `contents`; the same contents give the same bytes.
    pub fn write(self, contents: &Contents) -> Vec<u8> {
        match self {
            Self::Npz => npz::write(contents),
            Self::Safetensors => safetensors::write(contents),
        }
    }

    /// Reads a whole file; the error says what is wrong with it, in one lower-case line.
    pub fn read(self, bytes: &[u8]) -> Result<Contents, String> {
        match self {
            Self::Npz => npz::read(bytes),
            Self::Safetensors => safetensors::read(bytes),
        }
    }
}
