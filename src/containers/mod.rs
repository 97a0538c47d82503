//! Containers: bytes ↔ named arrays plus one receipt text and a few texts more. Pure; no file is opened here.
//!
//! | module | what |
//! |---|---|
//! | [`npz`] | an uncompressed zip of `.npy` members, as `numpy.savez` writes; the receipt is one more member |
//! | `npy` | one member of an npz |
//! | [`safetensors`] | the receipt is one metadata value |
//! | [`torch`] | torch's zip of one pickled tensor; the receipt is one more record |

pub mod array;
mod npy;
pub mod npz;
pub mod safetensors;
pub mod torch;

pub use array::{Array, Dtype};
use std::collections::BTreeMap;
use std::path::Path;

/// The name under which a receipt rides in a container.
pub const RECEIPT_NAME: &str = "prebake_receipt";

/// Bytes of an array, or `None` where the product overflows.
fn byte_len(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(dtype.size(), |product, &side| product.checked_mul(side))
}

/// What one container holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Arrays by name, the receipt not among them.
    pub arrays: BTreeMap<String, Array>,
    /// The receipt's JSON, if the container carries one.
    pub receipt: Option<String>,
    /// Further texts by name, where the format has room for them: safetensors has, npz has not and leaves them out.
    pub metadata: BTreeMap<String, String>,
}

/// The file formats that artefacts come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// numpy's zip of arrays.
    Npz,
    /// safetensors.
    Safetensors,
    /// torch's `.pt` of one tensor, named [`torch::TENSOR`].
    Torch(torch::Gzip),
}

impl Container {
    /// The bytes of a file that holds `contents`; the same contents give the same bytes.
    ///
    /// Fails for what the format cannot hold: a bf16 array in npz, an array with a name that the format keeps for
    /// itself.
    pub fn write(self, contents: &Contents) -> Result<Vec<u8>, String> {
        match self {
            Self::Npz => npz::write(contents),
            Self::Safetensors => safetensors::write(contents),
            Self::Torch(gzip) => torch::write(contents, gzip),
        }
    }

    /// The format that a file's extension names, in any case of letters.
    pub fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        [(Self::Npz, "npz"), (Self::Safetensors, "safetensors"), (Self::Torch(torch::Gzip::Read), "pt")]
            .into_iter()
            .find_map(|(container, name)| extension.eq_ignore_ascii_case(name).then_some(container))
    }

    /// True when a file's directory or header is intact, so that what [`Container::read`] refused in it is of another
    /// tool's making, not damage.
    pub fn is_whole(self, bytes: &[u8]) -> bool {
        match self {
            Self::Npz => npz::is_whole(bytes),
            Self::Safetensors => safetensors::is_whole(bytes),
            Self::Torch(_) => torch::is_whole(bytes),
        }
    }

    /// Reads a whole file; the error says what is wrong with it, in one lower-case line.
    pub fn read(self, bytes: &[u8]) -> Result<Contents, String> {
        match self {
            Self::Npz => npz::read(bytes),
            Self::Safetensors => safetensors::read(bytes),
            Self::Torch(gzip) => torch::read(bytes, gzip),
        }
    }
}
