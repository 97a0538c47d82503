//! The layout of an encoder, read off names and shapes, and the exact list of tensors that it implies.

use crate::recipe::Autoencoder;
use crate::vae::names::LANDMARK;
use serde::Serialize;
use std::collections::BTreeMap;

/// Groups of every group norm: diffusers' default and the only value in released VAEs. It leaves no trace in shapes.
pub(super) const NORM_GROUPS: usize = 32;

/// Levels of the encoder; a halving lies between each two, so four make [`STRIDE`](crate::vae::STRIDE).
const LEVELS: usize = 4;

/// Shapes by canonical name, attention matrices as (C, C).
pub(super) type Shapes = BTreeMap<String, Vec<usize>>;

/// What an encoder looks like; everything but the weights' values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EncoderLayout {
    /// Channels of each of the four levels; SD and Flux: 128, 256, 512, 512. Multiples of 32.
    pub block_out_channels: Vec<usize>,
    /// Resnets in each level; SD and Flux: 2.
    pub layers_per_block: usize,
    /// Channels of the latent: 4 (SD 1, 2, XL) or 16 (SD 3, Flux).
    pub latent_channels: usize,
    /// True when a 1×1 convolution follows the encoder.
    pub quant_conv: bool,
    /// True when the middle block attends; so in all released VAEs of these families.
    pub mid_attention: bool,
}

impl EncoderLayout {
    /// Reads the layout off `shapes` and holds every tensor against it.
    ///
    /// The error says which tensor is missing, of the wrong shape (with the allowed one), or not part of such an
    /// encoder; a tensor too many means another network, whose latents would be wrong.
    pub(super) fn detect(shapes: &Shapes) -> Result<Self, String> {
        let layout = Self::read_off(shapes)?;
        layout.ensure_supported()?;
        let mut unknown = shapes.clone();
        for (name, allowed) in layout.tensors() {
            match unknown.remove(&name) {
                None => return Err(format!("tensor `{name}` is missing")),
                Some(shape) if shape != allowed => {
                    return Err(format!("tensor `{name}` has shape {shape:?}, allowed is {allowed:?}"));
                }
                Some(_) => {}
            }
        }
        match unknown.keys().next() {
            None => Ok(layout),
            Some(name) => Err(format!("tensor `{name}` is not part of a KL encoder as SD and Flux use it")),
        }
    }

    fn read_off(shapes: &Shapes) -> Result<Self, String> {
        let first_side = |name: &str| shapes.get(name).and_then(|shape| shape.first().copied());
        let resnet = |level: usize, layer: usize| {
            first_side(&format!("encoder.down_blocks.{level}.resnets.{layer}.conv1.weight"))
        };
        let moments = first_side("encoder.conv_out.weight").ok_or("tensor `encoder.conv_out.weight` is missing")?;
        if moments % 2 != 0 {
            return Err(format!(
                "`encoder.conv_out` has {moments} channels; allowed is an even number, mean and logvar"
            ));
        }
        Ok(Self {
            block_out_channels: (0..).map_while(|level| resnet(level, 0)).collect(),
            layers_per_block: (0..).take_while(|&layer| resnet(0, layer).is_some()).count(),
            latent_channels: moments / 2,
            quant_conv: shapes.contains_key("quant_conv.weight"),
            mid_attention: shapes.contains_key("encoder.mid_block.attentions.0.to_q.weight"),
        })
    }

    /// Which of the known networks it is.
    pub fn autoencoder(&self) -> Autoencoder {
        match self.latent_channels {
            4 => Autoencoder::Kl4,
            _ => Autoencoder::Kl16,
        }
    }

    fn ensure_supported(&self) -> Result<(), String> {
        let levels = self.block_out_channels.len();
        if levels != LEVELS {
            return Err(format!(
                "the encoder has {levels} levels, allowed are {LEVELS} (a latent is an eighth of a side)"
            ));
        }
        if let Some(bad) = self.block_out_channels.iter().find(|&&c| c == 0 || !c.is_multiple_of(NORM_GROUPS)) {
            return Err(format!("a level has {bad} channels, allowed are multiples of {NORM_GROUPS} (group norm)"));
        }
        if !matches!(self.latent_channels, 4 | 16) {
            return Err(format!("the latent has {} channels, allowed are 4 or 16", self.latent_channels));
        }
        Ok(())
    }

    /// SD's and SDXL's.
    #[cfg(test)]
    pub(crate) fn sdxl() -> Self {
        Self {
            block_out_channels: vec![128, 256, 512, 512],
            layers_per_block: 2,
            latent_channels: 4,
            quant_conv: true,
            mid_attention: true,
        }
    }

    /// Every tensor of such an encoder: its diffusers name and shape, attention matrices as (C, C).
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut list = List::default();
        let channels = &self.block_out_channels;
        let (Some(&first), Some(&last)) = (channels.first(), channels.last()) else { return list.0 };
        list.conv(LANDMARK.trim_end_matches(".weight"), first, 3, 3);
        let mut width = first;
        for (level, &out) in channels.iter().enumerate() {
            for layer in 0..self.layers_per_block {
                list.resnet(&format!("encoder.down_blocks.{level}.resnets.{layer}"), width, out);
                width = out;
            }
            if level + 1 < channels.len() {
                list.conv(&format!("encoder.down_blocks.{level}.downsamplers.0.conv"), out, out, 3);
            }
        }
        list.resnet("encoder.mid_block.resnets.0", last, last);
        if self.mid_attention {
            list.attention("encoder.mid_block.attentions.0", last);
        }
        list.resnet("encoder.mid_block.resnets.1", last, last);
        list.vector("encoder.conv_norm_out", last);
        list.conv("encoder.conv_out", 2 * self.latent_channels, last, 3);
        if self.quant_conv {
            list.conv("quant_conv", 2 * self.latent_channels, 2 * self.latent_channels, 1);
        }
        list.0
    }
}

#[derive(Default)]
struct List(Vec<(String, Vec<usize>)>);

impl List {
    fn push(&mut self, at: &str, weight: Vec<usize>, bias: usize) {
        self.0.push((format!("{at}.weight"), weight));
        self.0.push((format!("{at}.bias"), vec![bias]));
    }

    fn conv(&mut self, at: &str, out: usize, into: usize, side: usize) {
        self.push(at, vec![out, into, side, side], out);
    }

    fn vector(&mut self, at: &str, channels: usize) {
        self.push(at, vec![channels], channels);
    }

    fn resnet(&mut self, at: &str, into: usize, out: usize) {
        self.vector(&format!("{at}.norm1"), into);
        self.conv(&format!("{at}.conv1"), out, into, 3);
        self.vector(&format!("{at}.norm2"), out);
        self.conv(&format!("{at}.conv2"), out, out, 3);
        if into != out {
            self.conv(&format!("{at}.conv_shortcut"), out, into, 1);
        }
    }

    fn attention(&mut self, at: &str, channels: usize) {
        self.vector(&format!("{at}.group_norm"), channels);
        for part in ["to_q", "to_k", "to_v", "to_out.0"] {
            self.push(&format!("{at}.{part}"), vec![channels, channels], channels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(layout: &EncoderLayout) -> Shapes {
        layout.tensors().into_iter().collect()
    }

    #[test]
    fn parameters_add_up_to_those_of_the_released_encoders() {
        let count = |l: &EncoderLayout| l.tensors().iter().map(|(_, s)| s.iter().product::<usize>()).sum::<usize>();
        // 34,163,592 in diffusers' `Encoder`, 72 in `quant_conv`.
        assert_eq!(count(&EncoderLayout::sdxl()), 34_163_664);
        let flux = EncoderLayout { latent_channels: 16, quant_conv: false, ..EncoderLayout::sdxl() };
        assert_eq!(count(&flux), 34_274_208);
    }

    #[test]
    fn a_layout_is_found_again_from_its_own_tensors() {
        let odd =
            EncoderLayout { layers_per_block: 1, latent_channels: 16, mid_attention: false, ..EncoderLayout::sdxl() };
        for layout in [EncoderLayout::sdxl(), odd] {
            assert_eq!(EncoderLayout::detect(&shapes(&layout)), Ok(layout));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_actual_and_allowed_value() {
        let mut missing = shapes(&EncoderLayout::sdxl());
        missing.remove("encoder.mid_block.resnets.0.norm1.bias");
        let mut wrong = shapes(&EncoderLayout::sdxl());
        wrong.insert("encoder.conv_in.weight".into(), vec![128, 4, 3, 3]);
        let mut extra = shapes(&EncoderLayout::sdxl());
        extra.insert("encoder.down_blocks.3.attentions.0.to_q.weight".into(), vec![512, 512]);
        let narrow = EncoderLayout { block_out_channels: vec![16, 32, 32, 32], ..EncoderLayout::sdxl() };
        let shallow = EncoderLayout { block_out_channels: vec![32, 32, 32], ..EncoderLayout::sdxl() };
        let wide = EncoderLayout { latent_channels: 32, ..EncoderLayout::sdxl() };
        let table = [
            (missing, "tensor `encoder.mid_block.resnets.0.norm1.bias` is missing"),
            (wrong, "tensor `encoder.conv_in.weight` has shape [128, 4, 3, 3], allowed is [128, 3, 3, 3]"),
            (
                extra,
                "tensor `encoder.down_blocks.3.attentions.0.to_q.weight` is not part of a KL encoder as SD and Flux use it",
            ),
            (shapes(&narrow), "a level has 16 channels, allowed are multiples of 32 (group norm)"),
            (shapes(&shallow), "the encoder has 3 levels, allowed are 4 (a latent is an eighth of a side)"),
            (shapes(&wide), "the latent has 32 channels, allowed are 4 or 16"),
        ];
        for (shapes, message) in table {
            assert_eq!(EncoderLayout::detect(&shapes), Err(message.to_owned()));
        }
    }
}
