//! The encoder half of the autoencoders that Stable Diffusion, Flux, Qwen-Image and their like train on.
//!
//! It owns: finding an encoder in a safetensors file whatever its key style ([`weights`], `names`, `place`), what it
//! looks like ([`layout`], `tensors`), telling its family ([`family`]), running it ([`encoder`]; `cpu` in f32 on the CPU
//! with our own kernels, `candle` in half types and on GPUs), the posterior and the one draw from it ([`posterior`]),
//! the space that it is stored in ([`space`]), the choice of devices ([`device`]), how much a GPU's kernels can count (`capacity`), what an encode needs of memory
//! ([`memory`]), what there is ([`available`]), the batch and tiles that follow ([`budget`]), and cutting and blending
//! these ([`tiles`]).
//! It refuses: pickled weights, networks that are not exactly one of the known encoders, and sizes that are not multiples
//! of its stride. It never reads a config file, a decoder, or a global random generator.
//!
//! ```text
//! file ── Weights ──┬─ layout, family, identity        (header and encoder tensors only)
//!                   └─ Encoder::new(device, precision) ── encode(pixels) ── Posterior ── mean | sample(key)
//! ```

pub mod available;
pub mod budget;
mod candle;
mod capacity;
mod cpu;
pub mod device;
pub mod encoder;
pub mod family;
pub mod layout;
#[cfg(test)]
#[path = "../../tests/made_weights.rs"]
#[expect(dead_code, reason = "the tests of the crate's face read the batch-normed goldens, those in here do not")]
mod made_weights;
pub mod memory;
mod names;
mod place;
pub mod posterior;
pub mod space;
mod tensors;
pub mod tiles;
pub mod weights;

pub use budget::{Budget, Step};
pub use device::DeviceRequest;
pub use encoder::Encoder;
pub use family::DetectedFamily;
pub use layout::{EncoderLayout, Network};
pub use posterior::Posterior;
pub use weights::Weights;
