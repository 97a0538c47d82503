//! The encoder's layers as packed weights. Field names equal diffusers' names.

use crate::kernels::{Affine, Direct, Moments, Winograd};
use crate::vae::layout::NORM_GROUPS;

/// diffusers `resnet_eps` and the attention's `eps` in this encoder.
const NORM_EPS: f64 = 1e-6;

pub(super) struct DownBlock {
    pub(super) resnets: Vec<Resnet>,
    /// Weights at `downsamplers.0.conv`.
    pub(super) downsampler: Option<Winograd>,
}

pub(super) struct Resnet {
    pub(super) norm1: GroupNorm,
    pub(super) conv1: Winograd,
    pub(super) norm2: GroupNorm,
    pub(super) conv2: Winograd,
    pub(super) conv_shortcut: Option<Direct>,
}

pub(super) struct Attention {
    pub(super) group_norm: GroupNorm,
    /// Scaled by C^-1/2 already.
    pub(super) to_q: Direct,
    pub(super) to_k: Direct,
    pub(super) to_v: Direct,
    pub(super) to_out: Direct,
}

pub(super) struct GroupNorm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

impl GroupNorm {
    /// What this norm does to an activation whose channels have these `moments`.
    pub(super) fn affine(&self, moments: &[Moments]) -> Affine {
        Affine::group_norm(moments, NORM_GROUPS, &self.weight, &self.bias, NORM_EPS)
    }
}
