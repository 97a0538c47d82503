//! The encoder half of the KL autoencoder that Stable Diffusion and Flux train on.
//!
//! It owns: finding an encoder in a safetensors file whatever its key style ([`weights`], `names`, [`layout`]),
//! telling its family ([`family`]), running it ([`encoder`]; `cpu` in f32 on the CPU with our own kernels,
//! `candle_encoder` in half types and on GPUs), the posterior and the one draw from it ([`posterior`]),
//! the choice of devices ([`device`]), how much a GPU's kernels can count (`capacity`), what an encode needs of memory
//! ([`memory`]), what there is ([`available`]), the batch and tiles that follow ([`budget`]), and cutting and blending
//! these ([`tiles`]).
//! It refuses: pickled weights, networks that are not exactly this encoder, and sizes that are not multiples of
//! [`STRIDE`]. It never reads a config file, a decoder, or a global random generator.
//!
//! ```text
//! file ── Weights ──┬─ layout, family, identity        (header and encoder tensors only)
//!                   └─ Encoder::new(device, precision) ── encode(pixels) ── Posterior ── mean | sample(key)
//! ```

pub mod available;
pub mod budget;
mod candle_encoder;
mod capacity;
mod cpu;
pub mod device;
pub mod encoder;
pub mod family;
pub mod layout;
pub mod memory;
mod names;
pub mod posterior;
pub mod tiles;
pub mod weights;

pub use budget::{Budget, Step};
pub use device::DeviceRequest;
pub use encoder::Encoder;
pub use family::DetectedFamily;
pub use layout::EncoderLayout;
pub use posterior::Posterior;
pub use weights::Weights;

/// Pixels that a latent element spans in each direction: three halvings, one between each two levels.
pub const STRIDE: usize = 8;
