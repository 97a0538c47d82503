//! The store: where artefacts lie, how they become visible, and what is known of them without reading them.
//!
//! ```text
//! DATASET/
//!   .prebake/
//!     CACHEDIR.TAG  .gitignore     backup tools and git leave the folder alone
//!     index.sqlite                 what is known of files by their stat: an accelerator, safe to delete
//!     store/ab/<64 hex>.safetensors  the content-addressed layout; `ab` are the key's first two digits
//!   cat_0512x0768_sdxl.npz         a trainer's layout: beside the image, under the trainer's own name
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`door`] | the one function through which bytes become visible |
//! | [`stat`] | what tells whether a file may have changed, and when that is too young to trust |
//! | [`index`] | the database of what was true at which stat |
//! | [`layout`] | names in the content-addressed layout |
//! | [`locations`] | where the artefacts of a dataset live |
//! | `lock` | one bake at a time on a dataset |
//! | [`lookup`] | what lies at an artefact's place: missing, damaged, foreign or ours |
//! | [`merge`] | an artefact's new contents from the old ones and a set of changes |

pub mod door;
pub mod index;
pub mod layout;
pub mod locations;
mod lock;
pub mod lookup;
pub mod merge;
pub mod stat;

pub use door::publish;
pub use index::Index;
pub use layout::store_path;
pub use locations::Locations;
pub use lock::Lock;
pub use lookup::{Found, inspect};
pub use stat::{FileStat, read_regular};

/// The folder under a dataset or an artefact root that is ours.
pub const FOLDER: &str = ".prebake";
