//! Layers out of an opened weights file.

use super::layers::{Attention, DownBlock, Downsampler, NormLayer, Resnet};
use crate::kernels::{Cpu, Direct, Rms, Stride, Window, Winograd};
use crate::vae::Weights;
use crate::vae::layout::EncoderLayout;

/// Where layers come from; names are canonical, without `.weight`. Opening the file has made sure that all are there.
pub(super) struct Source<'a> {
    pub(super) weights: &'a Weights,
    pub(super) cpu: Cpu,
}

impl Source<'_> {
    pub(super) fn direct(&self, name: &str, window: Window) -> Direct {
        Direct::new(self.cpu, &self.weight(name), &self.bias(name), window)
    }

    pub(super) fn winograd(&self, name: &str, stride: Stride) -> Winograd {
        Winograd::new(self.cpu, &self.weight(name), &self.bias(name), stride)
    }

    pub(super) fn norm(&self, name: &str) -> NormLayer {
        let weight = self.weight(name);
        if self.weights.layout().network.norms_by_pixel() {
            NormLayer::Rms(Rms::new(&weight))
        } else {
            NormLayer::Group { weight, bias: self.bias(name) }
        }
    }

    pub(super) fn resnet(&self, name: &str) -> Resnet {
        let at = |part: &str| format!("{name}.{part}");
        let shortcut = at("conv_shortcut");
        let has_shortcut = self.weights.holds(&format!("{shortcut}.weight"));
        Resnet {
            norm1: self.norm(&at("norm1")),
            conv1: self.winograd(&at("conv1"), Stride::One),
            norm2: self.norm(&at("norm2")),
            conv2: self.winograd(&at("conv2"), Stride::One),
            conv_shortcut: has_shortcut.then(|| self.direct(&shortcut, Window::POINT)),
        }
    }

    pub(super) fn down_block(&self, layout: &EncoderLayout, level: usize) -> DownBlock {
        let at = |part: String| format!("encoder.down_blocks.{level}.{part}");
        DownBlock {
            resnets: (0..layout.layers_per_block).map(|i| self.resnet(&at(format!("resnets.{i}")))).collect(),
            downsampler: layout.halved(level).map(|_| self.downsampler(layout, &at("downsamplers.0.conv".into()))),
        }
    }

    fn downsampler(&self, layout: &EncoderLayout, name: &str) -> Downsampler {
        if layout.network.unshuffles() {
            Downsampler::Unshuffled(self.winograd(name, Stride::One))
        } else {
            Downsampler::Strided(self.winograd(name, Stride::Two))
        }
    }

    pub(super) fn attention(&self, name: &str) -> Attention {
        let at = |part: &str| format!("{name}.{part}");
        let (mut query, mut bias) = (self.weight(&at("to_q")), self.bias(&at("to_q")));
        let scale = (bias.len() as f32).sqrt().recip();
        query.iter_mut().chain(&mut bias).for_each(|value| *value *= scale);
        Attention {
            group_norm: self.norm(&at("group_norm")),
            to_q: Direct::new(self.cpu, &query, &bias, Window::POINT),
            to_k: self.direct(&at("to_k"), Window::POINT),
            to_v: self.direct(&at("to_v"), Window::POINT),
            to_out: self.direct(&at("to_out.0"), Window::POINT),
        }
    }

    fn weight(&self, name: &str) -> Vec<f32> {
        self.weights.values(&format!("{name}.weight"))
    }

    fn bias(&self, name: &str) -> Vec<f32> {
        self.weights.values(&format!("{name}.bias"))
    }
}
