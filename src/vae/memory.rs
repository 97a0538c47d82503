//! What an encode needs of memory on the CPU, as measured.
//!
//! The unit is one activation of the first level, u = C₀·H·W·4 bytes (128 MiB for SD and Flux at 512²). At its peak, in
//! the first level, the f32 encoder holds four: the block's input, the running value, and two in the norm or the
//! convolution at hand. Half types norm in f32, and bf16 multiplies in f32 as well, so they save little.
//!
//! Measured on 2026-12-01, 2-core AMD EPYC (Zen 3), Linux, glibc: growth of VmHWM, reset once the
//! encoder is loaded, in u. (While it loads, the file's mapped pages count as well; the system may drop them.)
//!
//! | encoder, size | f32 | f16 | bf16 | u |
//! |---|---|---|---|---|
//! | 128–512 channels, 256² | 4.29 | 3.68 | 4.72 | 32 MiB |
//! | 128–512 channels, 512² | 4.13 | – | – | 128 MiB |
//! | 32–128 channels, 512² | 4.36 | 3.81 | 4.81 | 32 MiB |

use crate::recipe::Precision;
use crate::units::Size;
use crate::vae::layout::EncoderLayout;

/// Buffers that do not grow with the picture: one convolution tile and its packed copy a thread, one block of
/// attention scores. Reckoned for a few threads; a thread takes about 4 MiB.
const FIXED_BYTES: u64 = 32 << 20;

/// Estimated peak bytes of [`Encoder::encode`](crate::vae::Encoder::encode) on the CPU, weights included.
///
/// An upper estimate for pictures of `size`: up to 5 % above the greatest measurement of this module, plus a fixed
/// 32 MiB (31 MiB were measured at 64²).
/// Pictures of a batch are encoded one by one, so `batch` adds only their posteriors. The caller's pixels are not
/// counted. Saturates instead of overflowing.
pub fn peak_bytes(layout: &EncoderLayout, size: Size, batch: usize, precision: Precision) -> u64 {
    let first = layout.block_out_channels.first().copied().unwrap_or(0) as u64;
    let level = first.saturating_mul(size.area()).saturating_mul(4);
    let posteriors = (size.area() / 64).saturating_mul(2 * 4 * layout.latent_channels as u64);
    weight_bytes(layout, precision)
        .saturating_add(FIXED_BYTES)
        .saturating_add(level.saturating_mul(tenths_of_level(precision)) / 10)
        .saturating_add(posteriors.saturating_mul(batch as u64))
}

/// Bytes of the loaded encoder's weights.
pub fn weight_bytes(layout: &EncoderLayout, precision: Precision) -> u64 {
    let values: usize = layout.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let each = if precision == Precision::F32 { 4 } else { 2 };
    values as u64 * each
}

/// Activations of the first level that live at the peak, in tenths; see the module's table.
fn tenths_of_level(precision: Precision) -> u64 {
    match precision {
        Precision::F32 => 44,
        Precision::F16 => 39,
        Precision::Bf16 => 49,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sdxl() -> EncoderLayout {
        EncoderLayout {
            block_out_channels: vec![128, 256, 512, 512],
            layers_per_block: 2,
            latent_channels: 4,
            quant_conv: true,
            mid_attention: true,
        }
    }

    #[test]
    fn the_estimate_lies_just_above_what_was_measured() {
        for (precision, measured) in [(Precision::F32, 4.36), (Precision::F16, 3.81), (Precision::Bf16, 4.81)] {
            let size = Size::new(512, 512);
            let activations = peak_bytes(&sdxl(), size, 0, precision) - weight_bytes(&sdxl(), precision) - FIXED_BYTES;
            let ratio = activations as f64 / (measured * (128 * 4 * size.area()) as f64);
            assert!((1.0..1.05).contains(&ratio), "{}: {ratio}", precision.name());
        }
    }

    #[test]
    fn weights_weigh_what_their_parameters_do() {
        assert_eq!(weight_bytes(&sdxl(), Precision::F32), 34_163_664 * 4);
        assert_eq!(weight_bytes(&sdxl(), Precision::Bf16), 34_163_664 * 2);
    }

    #[test]
    fn a_batch_adds_only_its_posteriors_and_nothing_overflows() {
        let peak = |batch| peak_bytes(&sdxl(), Size::new(1024, 1024), batch, Precision::F32);
        assert_eq!(peak(5) - peak(1), 4 * 128 * 128 * 4 * 2 * 4);
        assert!(peak(1) > 2200 * MIB && peak(1) < 2600 * MIB);
        let huge = Size::new(u32::MAX, u32::MAX);
        assert_eq!(peak_bytes(&sdxl(), huge, usize::MAX, Precision::F32), u64::MAX);
    }
}
