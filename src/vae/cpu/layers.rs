//! The encoder's layers as packed weights. Field names equal the canonical names.

use crate::kernels::{Affine, Direct, Moments, Norm, Rms, Winograd};
use crate::vae::layout::NORM_GROUPS;

/// diffusers `resnet_eps` and the attention's `eps` in these encoders.
const NORM_EPS: f64 = 1e-6;

pub(super) struct DownBlock {
    pub(super) resnets: Vec<Resnet>,
    pub(super) downsampler: Option<Downsampler>,
}

/// Weights at `downsamplers.0.conv`.
pub(super) enum Downsampler {
    /// Taps on every other pixel.
    Strided(Winograd),
    /// Taps on every pixel, blocks of which become channels.
    Unshuffled(Winograd),
}

impl Downsampler {
    pub(super) fn conv(&self) -> &Winograd {
        match self {
            Self::Strided(conv) | Self::Unshuffled(conv) => conv,
        }
    }
}

pub(super) struct Resnet {
    pub(super) norm1: NormLayer,
    pub(super) conv1: Winograd,
    pub(super) norm2: NormLayer,
    pub(super) conv2: Winograd,
    pub(super) conv_shortcut: Option<Direct>,
}

pub(super) struct Attention {
    pub(super) group_norm: NormLayer,
    /// Scaled by C^-1/2 already.
    pub(super) to_q: Direct,
    pub(super) to_k: Direct,
    pub(super) to_v: Direct,
    pub(super) to_out: Direct,
}

pub(super) enum NormLayer {
    Group { weight: Vec<f32>, bias: Vec<f32> },
    Rms(Rms),
}

impl NormLayer {
    /// What this norm does to an activation whose channels have these `moments`.
    pub(super) fn of(&self, moments: &[Moments]) -> Norm<'_> {
        match self {
            Self::Group { weight, bias } => {
                Norm::Affine(Affine::group_norm(moments, NORM_GROUPS, weight, bias, NORM_EPS))
            }
            Self::Rms(rms) => Norm::Rms(rms),
        }
    }
}
