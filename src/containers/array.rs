//! One named array's value: dtype, shape and little-endian bytes in row-major order.

use crate::hash::{Checksum, FieldHasher};
use serde::{Deserialize, Serialize};

/// Element types that artefacts hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    U8,
    Bool,
}

impl Dtype {
    /// Bytes an element takes.
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 | Self::Bool => 1,
        }
    }

    /// Its name in receipts and reports: `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }
}

/// An array: `bytes.len()` is always the product of `shape` times the dtype's size.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Element type.
    pub dtype: Dtype,
    /// Outermost axis first.
    pub shape: Vec<usize>,
    /// Little-endian, row-major.
    pub bytes: Vec<u8>,
}

impl Array {
    /// A float array of `dtype` (F32, F16 or BF16) from f32 values, rounded to nearest even.
    ///
    /// # Panics
    /// If `values` does not fill `shape`, or for a dtype that is not one of these three; both are bugs of the caller.
    pub fn from_f32(dtype: Dtype, shape: Vec<usize>, values: &[f32]) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "values fill the shape");
        let bytes = match dtype {
            Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Dtype::F16 => values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect(),
            Dtype::Bf16 => values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect(),
            other => unreachable!("latents are never stored as {}", other.name()),
        };
        Self { dtype, shape, bytes }
    }

    /// The values of an f32 array; of any other dtype none.
    pub fn to_f32(&self) -> Vec<f32> {
        if self.dtype != Dtype::F32 {
            return Vec::new();
        }
        self.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// A one-dimensional f64 array.
    pub fn from_f64(values: &[f64]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self { dtype: Dtype::F64, shape: vec![values.len()], bytes }
    }

    /// A one-dimensional i64 array.
    pub fn from_i64(values: &[i64]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self { dtype: Dtype::I64, shape: vec![values.len()], bytes }
    }

    /// The same values under another shape: trainers differ in axes of one element, (C, 1, H, W) for (C, H, W).
    ///
    /// # Panics
    /// If `shape` has another number of elements; a bug of the caller.
    pub fn reshaped(self, shape: &[usize]) -> Self {
        assert_eq!(super::byte_len(self.dtype, shape), Some(self.bytes.len()), "the values stay");
        Self { shape: shape.to_vec(), ..self }
    }

    /// BLAKE3 of dtype, shape and bytes.
    pub fn checksum(&self) -> Checksum {
        let mut hasher = FieldHasher::new("prebake array");
        hasher.text("dtype", self.dtype.name());
        for &side in &self.shape {
            hasher.int("side", side as u64);
        }
        Checksum(hasher.bytes("bytes", &self.bytes).finish())
    }

    /// True when the array is of floats and one of them is NaN or infinite.
    pub fn has_non_finite(&self) -> bool {
        let any = |size: usize, bad: fn(&[u8]) -> bool| self.bytes.chunks_exact(size).any(bad);
        match self.dtype {
            Dtype::F64 => any(8, |b| !f64::from_le_bytes(b.try_into().expect("8 bytes")).is_finite()),
            Dtype::F32 => any(4, |b| !f32::from_le_bytes(b.try_into().expect("4 bytes")).is_finite()),
            Dtype::F16 => any(2, |b| !half::f16::from_le_bytes([b[0], b[1]]).is_finite()),
            Dtype::Bf16 => any(2, |b| !half::bf16::from_le_bytes([b[0], b[1]]).is_finite()),
            _ => false,
        }
    }
}
