//! What shapes a latent: the settings a user gives, the pixel recipe resolved for one sample, and the key over it.
//!
//! Types and hashing only; no I/O. [`settings`] holds what is asked for, [`family`] what model families take, [`pixels`] what one sample gets,
//! [`key`] hashes the latter, [`receipt`] is what an artefact remembers, [`staleness`] tells two of them apart in words.

pub mod family;
pub mod key;
pub mod pixels;
pub mod receipt;
pub mod settings;
pub mod staleness;
pub mod tile;

pub use family::{Autoencoder, Family};
pub use key::{EncodeRecipe, EntryKind, KEY_VERSION, KeyInputs, Posterior, Space, Stored};
pub use pixels::{Alpha, Colour, Decoder, PIXELS_REV, PixelRecipe, Resample};
pub use receipt::{EntryReceipt, Precision, Ran, Receipt};
pub use settings::{Filter, Recipe, Target};
pub use tile::Tile;
