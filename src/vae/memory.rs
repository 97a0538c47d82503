//! What an encode needs of memory on the CPU.
//!
//! The unit is one activation of the first level, u = C₀·H·W·4 bytes (128 MiB for SD and Flux at 512²).
//!
//! In f32 the need is planned: **weights + 2 u + 144·C² bytes + threads·scratch + a fixed rest**, where C is the
//! widest level. Two activations of the first level live at a time (later levels need less in SD and Flux; the plan
//! takes the greatest level), 144·C² bytes are the widest convolution's weights transformed (36 MiB for C = 512), and
//! scratch is one block of tiles (12 MiB for C = 512). The buffers are kept from picture to picture.
//!
//! In half types the encoder is candle's, which holds four activations at its peak, in the first level: the block's
//! input, the running value, and two in the norm or the convolution at hand. It norms in f32, and bf16 multiplies in
//! f32 as well. Measured on 2026-12-01, 2-core AMD EPYC (Zen 3), Linux, glibc: growth of VmHWM, reset once the encoder
//! is loaded, in u:
//!
//! | encoder, size | f16 | bf16 | u |
//! |---|---|---|---|
//! | 128–512 channels, 256² | 3.68 | 4.72 | 32 MiB |
//! | 32–128 channels, 512² | 3.81 | 4.81 | 32 MiB |

use crate::recipe::Precision;
use crate::units::Size;
use crate::vae::cpu;
use crate::vae::layout::EncoderLayout;

/// What does not grow with the picture. In f32: statistics of blocks, and the allocator's rounding. In half types: one
/// convolution tile and its packed copy a thread, and one block of attention scores, reckoned for a few threads.
const FIXED_BYTES: u64 = 16 << 20;
const FIXED_BYTES_OF_CANDLE: u64 = 32 << 20;

/// Estimated peak bytes of [`Encoder::encode`](crate::vae::Encoder::encode) on the CPU, weights included.
///
/// An upper estimate for pictures of `size`: in f32 what the plan takes, in half types up to 5 % above the greatest
/// measurement of this module; plus the fixed rest. The threads are those of rayon's pool at the time.
/// Pictures of a batch are encoded one by one, so `batch` adds only their posteriors. The caller's pixels are not
/// counted. Saturates instead of overflowing.
pub fn peak_bytes(layout: &EncoderLayout, size: Size, batch: usize, precision: Precision) -> u64 {
    let working = match precision {
        Precision::F32 => cpu::working_bytes(layout, size).map(|bytes| bytes.saturating_add(FIXED_BYTES)),
        Precision::F16 => candle_bytes(layout, size, 39),
        Precision::Bf16 => candle_bytes(layout, size, 49),
    };
    let latents = size.area() / u64::from(layout.stride()).pow(2);
    let posteriors = latents.saturating_mul(2 * 4 * layout.latent_channels as u64);
    weight_bytes(layout, precision)
        .saturating_add(working.unwrap_or(u64::MAX))
        .saturating_add(posteriors.saturating_mul(batch as u64))
}

/// Bytes of candle's activations, `tenths` of the first level's at the peak (see the module's table).
fn candle_bytes(layout: &EncoderLayout, size: Size, tenths: u64) -> Option<u64> {
    let first = layout.block_out_channels.first().copied().unwrap_or(0) as u64;
    let level = first.checked_mul(size.area())?.checked_mul(4)?;
    (level.checked_mul(tenths)? / 10).checked_add(FIXED_BYTES_OF_CANDLE)
}

/// Bytes of the loaded encoder's weights.
pub fn weight_bytes(layout: &EncoderLayout, precision: Precision) -> u64 {
    let values: usize = layout.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let each = if precision == Precision::F32 { 4 } else { 2 };
    values as u64 * each
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_estimate_for_half_types_lies_just_above_what_was_measured() {
        for (precision, measured) in [(Precision::F16, 3.81), (Precision::Bf16, 4.81)] {
            let size = Size::new(512, 512);
            let fixed = weight_bytes(&EncoderLayout::sdxl(), precision) + FIXED_BYTES_OF_CANDLE;
            let activations = peak_bytes(&EncoderLayout::sdxl(), size, 0, precision) - fixed;
            let ratio = activations as f64 / (measured * (128 * 4 * size.area()) as f64);
            assert!((1.0..1.05).contains(&ratio), "{}: {ratio}", precision.name());
        }
    }

    #[test]
    fn f32_needs_two_activations_of_the_first_level() {
        let size = Size::new(1024, 1024);
        let peak = peak_bytes(&EncoderLayout::sdxl(), size, 1, Precision::F32);
        let known = weight_bytes(&EncoderLayout::sdxl(), Precision::F32) + 2 * 128 * 4 * size.area() + 144 * 512 * 512;
        let threads = rayon::current_num_threads() as u64 * 12 * MIB;
        assert!((known..known + threads + FIXED_BYTES + MIB).contains(&peak), "{peak}");
    }

    #[test]
    fn weights_weigh_what_their_parameters_do() {
        assert_eq!(weight_bytes(&EncoderLayout::sdxl(), Precision::F32), 34_163_664 * 4);
        assert_eq!(weight_bytes(&EncoderLayout::sdxl(), Precision::Bf16), 34_163_664 * 2);
    }

    #[test]
    fn a_batch_adds_only_its_posteriors_and_nothing_overflows() {
        let peak = |batch| peak_bytes(&EncoderLayout::sdxl(), Size::new(1024, 1024), batch, Precision::F32);
        assert_eq!(peak(5) - peak(1), 4 * 128 * 128 * 4 * 2 * 4);
        let huge = Size::new(u32::MAX, u32::MAX);
        assert_eq!(peak_bytes(&EncoderLayout::sdxl(), huge, usize::MAX, Precision::F32), u64::MAX);
    }
}
