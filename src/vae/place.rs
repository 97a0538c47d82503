//! Where a canonical tensor lies in a file, which may hold it under another shape.

use candle_core::DType;
use std::borrow::Cow;
use std::ops::Range;

/// Where one tensor lies and what it is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dtype: DType,
    /// The canonical one.
    pub(super) shape: Vec<usize>,
    bytes: Range<usize>,
    /// Frames of a kernel over time, 1 for others; of each group of so many the last is the tensor's.
    frames: usize,
}

impl Place {
    /// The values in the file's dtype, little-endian.
    pub(super) fn raw_bytes<'a>(&self, file: &'a [u8]) -> Cow<'a, [u8]> {
        let bytes = &file[self.bytes.clone()];
        if self.frames == 1 {
            return Cow::Borrowed(bytes);
        }
        let frame: usize = self.shape.iter().skip(2).product::<usize>() * self.dtype.size_in_bytes();
        let last = |kernel: &'a [u8]| kernel[kernel.len() - frame..].iter().copied();
        Cow::Owned(bytes.chunks_exact(frame * self.frames).flat_map(last).collect())
    }

    /// The values as little-endian f32.
    pub(super) fn f32_bytes<'a>(&self, file: &'a [u8]) -> Cow<'a, [u8]> {
        let bytes = self.raw_bytes(file);
        let widen = |to_f32: fn([u8; 2]) -> f32| {
            Cow::Owned(bytes.chunks_exact(2).flat_map(|b| to_f32([b[0], b[1]]).to_le_bytes()).collect())
        };
        match self.dtype {
            DType::F16 => widen(|b| half::f16::from_le_bytes(b).to_f32()),
            DType::BF16 => widen(|b| half::bf16::from_le_bytes(b).to_f32()),
            _ => bytes,
        }
    }
}

/// The canonical tensors that one of a file holds under `name`: itself, or the three that `to_qkv` joins.
pub(super) fn pieces(name: String, dtype: DType, shape: &[usize], bytes: Range<usize>) -> Vec<(String, Place)> {
    let (shape, frames) = canonical_shape(&name, shape);
    let rows = shape.first().copied().unwrap_or(0);
    if !name.contains(".to_qkv.") || rows % 3 != 0 {
        return vec![(name, Place { dtype, shape, bytes, frames })];
    }
    let (mut shape, length) = (shape, bytes.len() / 3);
    shape[0] = rows / 3;
    let piece = |(index, part): (usize, &str)| {
        let bytes = bytes.start + index * length..bytes.start + (index + 1) * length;
        (name.replace("to_qkv", part), Place { dtype, shape: shape.clone(), bytes, frames })
    };
    ["to_q", "to_k", "to_v"].into_iter().enumerate().map(piece).collect()
}

/// The same values in the same order, but for kernels over time, of which the last frame remains. Original keys hold
/// attention matrices as 1×1 convolutions, (C, C, 1, 1); Wan its norms as (C, 1, 1) and (C, 1, 1, 1).
fn canonical_shape(name: &str, shape: &[usize]) -> (Vec<usize>, usize) {
    match shape {
        [out, into, 1, 1] if name.contains(".attentions.") => (vec![*out, *into], 1),
        [channels, 1, 1] | [channels, 1, 1, 1] if name.contains("norm") => (vec![*channels], 1),
        [out, into, frames, rows, columns] if *frames > 0 => (vec![*out, *into, *rows, *columns], *frames),
        _ => (shape.to_vec(), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(place: &Place, file: &[f32]) -> Vec<f32> {
        let bytes: Vec<u8> = file.iter().flat_map(|v| v.to_le_bytes()).collect();
        place.f32_bytes(&bytes).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn of_a_kernel_over_time_the_last_frame_remains() {
        let file: Vec<f32> = (0..2 * 3 * 2).map(|i| i as f32).collect();
        let (name, place) = pieces("encoder.conv_in.weight".into(), DType::F32, &[2, 1, 3, 1, 2], 0..48).remove(0);
        assert_eq!((name.as_str(), place.shape.as_slice()), ("encoder.conv_in.weight", &[2, 1, 1, 2][..]));
        assert_eq!(floats(&place, &file), [4.0, 5.0, 10.0, 11.0]);
    }

    #[test]
    fn a_joined_projection_falls_into_three() {
        let file: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let name = "encoder.mid_block.attentions.0.to_qkv.weight";
        let parts = pieces(name.into(), DType::F32, &[3, 2, 1, 1], 0..24);
        let names: Vec<_> = parts.iter().map(|(name, _)| name.rsplit('.').nth(1).unwrap()).collect();
        assert_eq!(names, ["to_q", "to_k", "to_v"]);
        assert_eq!((parts[1].1.shape.as_slice(), floats(&parts[1].1, &file)), (&[1, 2][..], vec![2.0, 3.0]));
    }

    #[test]
    fn norms_lose_their_empty_axes() {
        for shape in [&[5, 1, 1][..], &[5, 1, 1, 1]] {
            let (_, place) = pieces("encoder.conv_norm_out.weight".into(), DType::F16, shape, 0..10).remove(0);
            assert_eq!(place.shape, [5]);
        }
    }
}
