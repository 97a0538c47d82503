//! What a GPU may be given in one call: never so much that a kernel counts wrongly, and what that takes of its memory,
//! with room for what its convolutions allocate beside the activations.
//!
//! **Counting.** Read from the source of candle 0.11.1 (`cuda_backend`, `candle-kernels`); none of it checks itself.
//!
//! | operation | counts | so at most |
//! |---|---|---|
//! | unrolling before a convolution without cuDNN (`im2col`) | one thread an element, in u32; wraps silently, the result is wrong | 2³² − 1 columns' elements |
//! | elementwise, cast, strided copy | a u32 counter that steps by the whole grid; from 2³¹ on it wraps and elements are computed again, close to 2³² for ever | 2³¹ elements |
//! | `copy2d` (padding, concatenation) | rows · width in u32 | 2³² − 1 elements |
//! | `fast_sum` (group norm) | a block a row, u32 index | 2³¹ − 1 rows, 2³² − 1 elements |
//! | `softmax` | i32 index | 2³¹ − 1 elements |
//! | matrix products | m, n, k in i32, strides and pointers in 64 bits | 2³¹ − 1 a side |
//! | cuDNN | refuses larger tensors, by its documentation | 2³¹ − 1 elements |
//!
//! One limit for every activation, 2³¹ − 1, satisfies all but the first row; the columns have their own.
//!
//! **Memory.** Counted from the same source, not measured. In units u of one first-level activation in the encoder's
//! dtype, a convolution without cuDNN holds the block's input, its own input, 9 u of columns, and its result twice
//! (the product, and transposed): 13 u. A group norm of half types holds 7 u, of f32 5 u. cuDNN picks its algorithm by
//! heuristics and allocates whatever workspace that asks for, with no limit that candle could set; its explicit
//! product needs the same 9 u of columns, so 13 u leave room for that as well.

use crate::recipe::Precision;
use crate::units::Size;
use crate::vae::candle::SCORE_BLOCK;
use crate::vae::layout::EncoderLayout;
use crate::vae::memory::weight_bytes;

/// Elements that every kernel counts rightly.
const COUNTED: u64 = i32::MAX as u64;

/// Elements that the unrolling kernel counts rightly.
const UNROLLED: u64 = u32::MAX as u64;

/// First-level activations that live at the peak; see the module's text.
const PEAK_ACTIVATIONS: u64 = 13;

/// Pictures of `size`, whose sides are multiples of the layout's stride and not 0, that one call may take so that no
/// kernel counts wrongly; 0 where not even one. `unrolls` is true without cuDNN, where convolutions unroll their input.
pub(super) fn images_at_once(layout: &EncoderLayout, size: Size, unrolls: bool) -> u64 {
    let images = COUNTED / largest_activation(layout, size).max(1);
    if unrolls { images.min(UNROLLED / largest_columns(layout, size).max(1)) } else { images }
}

/// Estimated peak bytes of a call with `batch` pictures of `size` on a GPU, weights included. An upper estimate by
/// counting; saturates instead of overflowing.
pub(super) fn peak_bytes(layout: &EncoderLayout, size: Size, batch: usize, precision: Precision) -> u64 {
    let element = if precision == Precision::F32 { 4 } else { 2 };
    let activation = channels(layout, 0).saturating_mul(size.area()).saturating_mul(element);
    let pictures = activation.saturating_mul(PEAK_ACTIVATIONS).saturating_mul(batch as u64);
    weight_bytes(layout, precision).saturating_add(pictures)
}

/// Elements of the largest tensor of one picture that is not a convolution's columns: an activation, one padded by a
/// row and a column before it is halved, or a block of attention scores.
fn largest_activation(layout: &EncoderLayout, size: Size) -> u64 {
    let padded = |level: usize| {
        let side = |side: u32| (u64::from(side) >> level) + 1;
        widest(layout, level).saturating_mul(side(size.width).saturating_mul(side(size.height)))
    };
    let scores = if layout.mid_attention { scores(layout, size) } else { 0 };
    levels(layout).map(padded).max().unwrap_or(0).max(scores)
}

/// Elements of the largest block of attention scores of one picture, as `candle` cuts it.
fn scores(layout: &EncoderLayout, size: Size) -> u64 {
    let tokens = u64::from(size.width / layout.stride()) * u64::from(size.height / layout.stride());
    tokens.saturating_mul(tokens).min(tokens.max(SCORE_BLOCK as u64))
}

/// Elements of the largest unrolled input of a 3 × 3 convolution of one picture. One that halves unrolls a quarter of
/// its level, so those that keep the size decide.
fn largest_columns(layout: &EncoderLayout, size: Size) -> u64 {
    let columns = |level: usize| {
        let side = |side: u32| u64::from(side) >> level;
        side(size.width).saturating_mul(side(size.height)).saturating_mul(9 * widest(layout, level))
    };
    levels(layout).map(columns).max().unwrap_or(0)
}

/// Most channels of a tensor at `level`: its first block reads those of the level above.
fn widest(layout: &EncoderLayout, level: usize) -> u64 {
    channels(layout, level).max(if level == 0 { 3 } else { channels(layout, level - 1) })
}

fn channels(layout: &EncoderLayout, level: usize) -> u64 {
    layout.block_out_channels.get(level).copied().unwrap_or(0) as u64
}

fn levels(layout: &EncoderLayout) -> std::ops::Range<usize> {
    0..layout.block_out_channels.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The channels of a tensor and the side it has, of every tensor of one square picture, written out operation by
    /// operation from the encoder: what the closed forms above are held against.
    fn tensors(layout: &EncoderLayout, side: u64) -> (Vec<u64>, Vec<u64>) {
        let (mut activations, mut columns) = (vec![3 * side * side], vec![9 * 3 * side * side]);
        let mut into = layout.block_out_channels[0] as u64;
        let mut at = side;
        let last = layout.block_out_channels.len() - 1;
        for (level, &out) in layout.block_out_channels.iter().enumerate() {
            let out = out as u64;
            for layer in 0..layout.layers_per_block {
                let read = if layer == 0 { into } else { out };
                activations.extend([read * at * at, out * at * at]);
                columns.extend([9 * read * at * at, 9 * out * at * at]);
            }
            if level != last {
                activations.extend([out * at * (at + 1), out * (at + 1) * (at + 1)]);
                at /= 2;
                columns.push(9 * out * at * at);
            }
            into = out;
        }
        let tokens = at * at;
        let rows = (SCORE_BLOCK as u64 / tokens).clamp(1, tokens);
        activations.extend([rows * tokens, tokens * into]);
        columns.push(9 * into * tokens);
        (activations, columns)
    }

    #[test]
    fn no_tensor_of_any_layout_or_size_passes_what_its_kernel_counts() {
        let channels = [[128, 256, 512, 512], [32, 64, 128, 128], [32, 32, 1024, 4096], [512, 256, 64, 32]];
        for block_out_channels in channels {
            let layout = EncoderLayout { block_out_channels: block_out_channels.to_vec(), ..EncoderLayout::sdxl() };
            for side in [8, 16, 64, 512, 1024, 1096, 1448, 1928, 2048, 4096, 16384, 65536] {
                let size = Size::new(side, side);
                let (activations, columns) = tensors(&layout, u64::from(side));
                let (activation, column) = (activations.iter().max().unwrap(), columns.iter().max().unwrap());
                assert!(largest_activation(&layout, size) >= *activation, "{block_out_channels:?} {side}");
                assert_eq!(largest_columns(&layout, size), *column, "{block_out_channels:?} {side}");
                for unrolls in [false, true] {
                    let images = images_at_once(&layout, size, unrolls);
                    assert!(images * activation < 1 << 31);
                    assert!(!unrolls || images * column < 1 << 32);
                }
            }
        }
    }

    #[test]
    fn unrolling_allows_three_pictures_of_1024_and_none_of_2048() {
        let counted = |side, unrolls| images_at_once(&EncoderLayout::sdxl(), Size::new(side, side), unrolls);
        assert_eq!(largest_columns(&EncoderLayout::sdxl(), Size::new(1024, 1024)), 1024 * 1024 * 128 * 9);
        assert_eq!((counted(1024, true), counted(2048, true)), (3, 0));
        // 1024² · 128 is 2²⁷: sixteen would be exactly 2³¹, and the padding counts as well.
        assert_eq!((counted(1024, false), counted(2048, false), counted(4096, false)), (15, 3, 0));
    }

    #[test]
    fn the_smallest_picture_is_bounded_too() {
        let size = Size::new(8, 8);
        assert_eq!(largest_activation(&EncoderLayout::sdxl(), size), 128 * 9 * 9);
        assert_eq!(images_at_once(&EncoderLayout::sdxl(), size, true), u64::from(u32::MAX) / (8 * 8 * 128 * 9));
    }

    #[test]
    fn a_picture_beyond_all_arithmetic_gives_none() {
        let size = Size::new(u32::MAX / 8 * 8, u32::MAX / 8 * 8);
        assert_eq!(images_at_once(&EncoderLayout::sdxl(), size, true), 0);
        assert_eq!(peak_bytes(&EncoderLayout::sdxl(), size, usize::MAX, Precision::F32), u64::MAX);
    }

    #[test]
    fn memory_grows_with_the_batch_by_thirteen_activations_a_picture() {
        let peak = |batch, precision| peak_bytes(&EncoderLayout::sdxl(), Size::new(1024, 1024), batch, precision);
        assert_eq!(peak(3, Precision::Bf16) - peak(2, Precision::Bf16), 13 * (256 << 20));
        assert_eq!(peak(2, Precision::F32) - peak(1, Precision::F32), 13 * (512 << 20));
        assert_eq!(peak(0, Precision::F32), weight_bytes(&EncoderLayout::sdxl(), Precision::F32));
    }
}
