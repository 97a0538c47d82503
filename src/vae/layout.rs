//! The layout of an encoder, read off names and shapes.
//!
//! All known encoders are one pyramid: a convolution in, levels of resnets with a halving between each two, a middle that
//! attends, a norm and a convolution out, and maybe a 1×1 convolution behind. [`Network`] says in what they differ.

use crate::recipe::Autoencoder;
use crate::vae::tensors;
use serde::Serialize;
use std::collections::BTreeMap;

/// Groups of every group norm: diffusers' default and the only value in released VAEs. It leaves no trace in shapes.
pub(super) const NORM_GROUPS: usize = 32;

/// Pixels of an unshuffled block: two by two.
pub(super) const UNSHUFFLED: usize = 4;

/// Shapes by canonical name: attention matrices as (C, C), norms as (C), convolutions over time as their last frame.
pub(super) type Shapes = BTreeMap<String, Vec<usize>>;

/// Which pyramid it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Network {
    /// Stable Diffusion's and Flux's (diffusers `AutoencoderKL`, `AutoencoderKLFlux2`): group norms, halved by strided
    /// convolutions.
    Kl,
    /// Wan 2.1's and Qwen-Image's (diffusers `AutoencoderKLWan`, `AutoencoderKLQwenImage`) on one frame: RMS norms without
    /// a bias, each pixel by itself. Its convolutions over time pad with zeros before the first frame, so that of each
    /// kernel only the last frame meets a picture; those between chunks of frames (`time_conv`) meet none.
    Wan,
    /// HunyuanImage 2.1's (diffusers `AutoencoderKLHunyuanImage`): group norms; a halving turns blocks of 2×2 pixels into
    /// channels, and has a shortcut over means of channels, as the convolution out has.
    HunyuanImage,
}

impl Network {
    /// Levels of the released encoders; a halving lies between each two.
    const fn levels(self) -> usize {
        match self {
            Self::Kl | Self::Wan => 4,
            Self::HunyuanImage => 6,
        }
    }

    const fn latent_channels(self) -> &'static [usize] {
        match self {
            Self::Kl => &[4, 16, 32],
            Self::Wan => &[16],
            Self::HunyuanImage => &[64],
        }
    }

    /// What people call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kl => "a KL encoder as SD and Flux use it",
            Self::Wan => "Wan 2.1's encoder",
            Self::HunyuanImage => "HunyuanImage 2.1's encoder",
        }
    }

    /// True where norms go pixel by pixel instead of by groups of channels over the whole picture.
    pub(super) const fn norms_by_pixel(self) -> bool {
        matches!(self, Self::Wan)
    }

    /// True where a halving turns pixels into channels instead of skipping them.
    pub(super) const fn unshuffles(self) -> bool {
        matches!(self, Self::HunyuanImage)
    }
}

/// What an encoder looks like; everything but the weights' values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EncoderLayout {
    /// Which pyramid it is.
    pub network: Network,
    /// Channels of each level; SD and Flux: 128, 256, 512, 512. Multiples of 32 where there are group norms.
    pub block_out_channels: Vec<usize>,
    /// Resnets in each level; 2 in all released VAEs.
    pub layers_per_block: usize,
    /// Channels of the latent: 4 (SD 1, 2, XL), 16 (SD 3, Flux, Wan), 32 (Flux.2) or 64 (HunyuanImage).
    pub latent_channels: usize,
    /// True when a 1×1 convolution follows the encoder.
    pub quant_conv: bool,
    /// True when the middle block attends; so in all released VAEs of these families.
    pub mid_attention: bool,
    /// True when the statistics of Flux.2's batch norm come with it.
    pub statistics: bool,
}

impl EncoderLayout {
    /// A KL encoder with attention in its middle and without batch norm statistics.
    pub fn kl(block_out_channels: &[usize], layers_per_block: usize, latent_channels: usize, quant_conv: bool) -> Self {
        Self {
            network: Network::Kl,
            block_out_channels: block_out_channels.to_vec(),
            layers_per_block,
            latent_channels,
            quant_conv,
            mid_attention: true,
            statistics: false,
        }
    }

    /// Reads the layout of a `network` off `shapes` and holds every tensor against it.
    ///
    /// The error says which tensor is missing, of the wrong shape (with the allowed one), or not part of such an
    /// encoder; a tensor too many means another network, whose latents would be wrong.
    pub(super) fn detect(network: Network, shapes: &Shapes) -> Result<Self, String> {
        let layout = Self::read_off(network, shapes)?;
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
            Some(name) => Err(format!("tensor `{name}` is not part of {}", network.name())),
        }
    }

    fn read_off(network: Network, shapes: &Shapes) -> Result<Self, String> {
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
            network,
            block_out_channels: (0..).map_while(|level| resnet(level, 0)).collect(),
            layers_per_block: (0..).take_while(|&layer| resnet(0, layer).is_some()).count(),
            latent_channels: moments / 2,
            quant_conv: shapes.contains_key("quant_conv.weight"),
            mid_attention: shapes.contains_key("encoder.mid_block.attentions.0.to_q.weight"),
            statistics: shapes.keys().any(|name| name.starts_with("bn.")),
        })
    }

    /// Which of the known networks it is.
    pub fn autoencoder(&self) -> Autoencoder {
        match (self.network, self.latent_channels) {
            (Network::Kl, 4) => Autoencoder::Kl4,
            (Network::Kl, 32) => Autoencoder::Kl32,
            (Network::Kl, _) => Autoencoder::Kl16,
            (Network::Wan, _) => Autoencoder::Wan,
            (Network::HunyuanImage, _) => Autoencoder::HunyuanImage,
        }
    }

    /// Pixels that a latent element spans in each direction: a halving lies between each two levels.
    pub fn stride(&self) -> u32 {
        1 << self.block_out_channels.len().saturating_sub(1)
    }

    /// Channels that a level's first resnet reads.
    pub(super) fn into(&self, level: usize) -> usize {
        // What unshuffles has made the next level's channels already.
        let from = if self.network.unshuffles() { level } else { level.saturating_sub(1) };
        self.block_out_channels.get(from).copied().unwrap_or(0)
    }

    /// Channels that the convolution behind a level makes; none behind the last.
    pub(super) fn halved(&self, level: usize) -> Option<usize> {
        let next = *self.block_out_channels.get(level + 1)?;
        Some(if self.network.unshuffles() { next / UNSHUFFLED } else { self.block_out_channels[level] })
    }

    /// Every tensor of such an encoder: its canonical name, diffusers' of `AutoencoderKL`, and its shape, attention
    /// matrices as (C, C), kernels over time as their last frame.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        tensors::of(self)
    }

    fn ensure_supported(&self) -> Result<(), String> {
        let (levels, allowed) = (self.block_out_channels.len(), self.network.levels());
        if levels != allowed {
            let share = if allowed == 4 { "an eighth" } else { "a 32nd" };
            return Err(format!(
                "the encoder has {levels} levels, allowed are {allowed} (a latent is {share} of a side)"
            ));
        }
        let odd = |c: &&usize| **c == 0 || !self.network.norms_by_pixel() && !c.is_multiple_of(NORM_GROUPS);
        if let Some(bad) = self.block_out_channels.iter().find(odd) {
            return Err(format!("a level has {bad} channels, allowed are multiples of {NORM_GROUPS} (group norm)"));
        }
        let allowed = self.network.latent_channels();
        if !allowed.contains(&self.latent_channels) {
            let allowed: Vec<_> = allowed.iter().map(usize::to_string).collect();
            return Err(format!(
                "the latent has {} channels, allowed are {}",
                self.latent_channels,
                allowed.join(", ")
            ));
        }
        if self.network.unshuffles() { self.ensure_means() } else { Ok(()) }
    }

    /// Shortcuts over means need channels that divide each other.
    fn ensure_means(&self) -> Result<(), String> {
        let uneven = |pair: &&[usize]| !(UNSHUFFLED * pair[0]).is_multiple_of(pair[1]);
        if let Some(pair) = self.block_out_channels.windows(2).find(uneven) {
            return Err(format!(
                "levels have {} and {} channels; allowed is a divisor of 4 times the first",
                pair[0], pair[1]
            ));
        }
        match self.block_out_channels.last() {
            Some(last) if last.is_multiple_of(2 * self.latent_channels) => Ok(()),
            last => Err(format!(
                "the last level has {} channels, allowed are multiples of {}",
                last.copied().unwrap_or(0),
                2 * self.latent_channels
            )),
        }
    }
}

#[cfg(test)]
impl EncoderLayout {
    /// SD's and SDXL's.
    pub(crate) fn sdxl() -> Self {
        Self::kl(&[128, 256, 512, 512], 2, 4, true)
    }

    /// Wan 2.1's and Qwen-Image's.
    pub(crate) fn wan() -> Self {
        Self { network: Network::Wan, ..Self::kl(&[96, 192, 384, 384], 2, 16, true) }
    }

    /// HunyuanImage 2.1's.
    pub(crate) fn hunyuan_image() -> Self {
        Self { network: Network::HunyuanImage, ..Self::kl(&[128, 256, 512, 512, 1024, 1024], 2, 64, false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(layout: &EncoderLayout) -> Shapes {
        layout.tensors().into_iter().collect()
    }

    #[test]
    fn a_layout_is_found_again_from_its_own_tensors() {
        let odd =
            EncoderLayout { layers_per_block: 1, latent_channels: 16, mid_attention: false, ..EncoderLayout::sdxl() };
        let flux2 = EncoderLayout { latent_channels: 32, statistics: true, ..EncoderLayout::sdxl() };
        for layout in [EncoderLayout::sdxl(), odd, flux2, EncoderLayout::wan(), EncoderLayout::hunyuan_image()] {
            assert_eq!(EncoderLayout::detect(layout.network, &shapes(&layout)), Ok(layout));
        }
    }

    #[test]
    fn the_stride_of_a_layout_is_that_of_its_autoencoder() {
        for layout in [EncoderLayout::sdxl(), EncoderLayout::wan(), EncoderLayout::hunyuan_image()] {
            assert_eq!(layout.stride(), layout.autoencoder().stride());
            assert_eq!(layout.latent_channels, layout.autoencoder().channels());
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
        let mut halved = shapes(&EncoderLayout { statistics: true, latent_channels: 32, ..EncoderLayout::sdxl() });
        halved.remove("bn.running_var");
        let narrow = EncoderLayout { block_out_channels: vec![16, 32, 32, 32], ..EncoderLayout::sdxl() };
        let shallow = EncoderLayout { block_out_channels: vec![32, 32, 32], ..EncoderLayout::sdxl() };
        let wide = EncoderLayout { latent_channels: 8, ..EncoderLayout::sdxl() };
        let wider = EncoderLayout { latent_channels: 48, ..EncoderLayout::wan() };
        let hunyuan = |channels: [usize; 6]| EncoderLayout {
            block_out_channels: channels.to_vec(),
            ..EncoderLayout::hunyuan_image()
        };
        let table = [
            (Network::Kl, missing, "tensor `encoder.mid_block.resnets.0.norm1.bias` is missing"),
            (Network::Kl, wrong, "tensor `encoder.conv_in.weight` has shape [128, 4, 3, 3], allowed is [128, 3, 3, 3]"),
            (
                Network::Kl,
                extra,
                "tensor `encoder.down_blocks.3.attentions.0.to_q.weight` is not part of a KL encoder as SD and Flux use it",
            ),
            (Network::Kl, halved, "tensor `bn.running_var` is missing"),
            (Network::Kl, shapes(&narrow), "a level has 16 channels, allowed are multiples of 32 (group norm)"),
            (
                Network::Kl,
                shapes(&shallow),
                "the encoder has 3 levels, allowed are 4 (a latent is an eighth of a side)",
            ),
            (Network::Kl, shapes(&wide), "the latent has 8 channels, allowed are 4, 16, 32"),
            (Network::Wan, shapes(&wider), "the latent has 48 channels, allowed are 16"),
            (
                Network::HunyuanImage,
                shapes(&hunyuan([32, 32, 64, 96, 128, 128])),
                "levels have 64 and 96 channels; allowed is a divisor of 4 times the first",
            ),
            (
                Network::HunyuanImage,
                shapes(&hunyuan([32, 32, 64, 64, 64, 64])),
                "the last level has 64 channels, allowed are multiples of 128",
            ),
        ];
        for (network, shapes, message) in table {
            assert_eq!(EncoderLayout::detect(network, &shapes), Err(message.to_owned()));
        }
    }
}
