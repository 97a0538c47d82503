//! One name for each encoder tensor, that of diffusers' `AutoencoderKL`, whatever the file calls it and whichever
//! [`Network`] it is of.

mod levels;
mod row;

use crate::vae::layout::Network;

/// Where a VAE lies in a file: bare, in an original full checkpoint, in an all-in-one file of other tools.
pub(super) const PREFIXES: [&str; 3] = ["", "first_stage_model.", "vae."];

/// Tensors of which every known encoder has one, in all styles.
pub(super) const LANDMARKS: [&str; 2] = ["encoder.conv_in.weight", WAN_LANDMARK];

/// Of Wan 2.1 as its makers saved it.
const WAN_LANDMARK: &str = "encoder.conv1.weight";

/// Tensors of encoders that are known not to be any of ours, and what they are.
const STRANGERS: [(&str, &str); 5] = [
    ("quantize.embedding.weight", "a VQ autoencoder (`quantize.embedding.weight`); allowed is a KL autoencoder"),
    // Before Wan 2.2's: HunyuanImage's refiner has norms of that name as well.
    ("encoder.conv_in.conv.weight", VIDEO),
    ("encoder.conv_in.conv.conv.weight", VIDEO),
    ("encoder.downsamples.0.downsamples.0.residual.0.gamma", WAN_2_2),
    ("encoder.down_blocks.0.resnets.0.norm1.gamma", WAN_2_2),
];
const WAN_2_2: &str = "Wan 2.2's encoder, with 48 latent channels; allowed is Wan 2.1's, with 16";
const VIDEO: &str =
    "a video encoder as HunyuanVideo's, whose frames are padded with copies; allowed of those over time is Wan 2.1's";

/// Channels of the convolution out, mean and logvar, of the one encoder behind which a batch norm stands: Flux.2's.
const BATCH_NORMED: usize = 2 * 32;

/// What a file holds that cannot be taken for one of the known encoders; `has` tells names without prefix.
pub(super) fn stranger(has: &dyn Fn(&str) -> bool) -> Option<&'static str> {
    STRANGERS.iter().find(|(mark, _)| has(mark)).map(|(_, what)| *what)
}

/// How a file names its encoder's tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    pub(super) network: Network,
    style: Style,
    statistics: bool,
}

#[derive(Clone, Copy, Debug)]
enum Style {
    /// A name says level and layer.
    Levels,
    /// A row of resnets and downsamplers, so many a level.
    Row { per_level: usize },
}

impl Naming {
    /// Tells it by the shapes of tensors, `shape` by their names without prefix.
    pub(super) fn of<'a>(shape: &dyn Fn(&str) -> Option<&'a [usize]>) -> Self {
        let has = |name: &str| shape(name).is_some();
        let over_time = shape(LANDMARKS[0]).is_some_and(|shape| shape.len() == 5);
        let wan = has(WAN_LANDMARK) || over_time || has("encoder.down_blocks.0.norm1.gamma");
        let row = wan || has("encoder.down_blocks.0.norm1.weight");
        // What unshuffles makes a quarter of the next level's channels; what skips pixels keeps its own.
        let narrows = |level: usize| {
            let shape = shape(&format!("encoder.down.{level}.downsample.conv.weight"));
            shape.is_some_and(|shape| shape.len() > 1 && shape[0] != shape[1])
        };
        let network = match () {
            () if wan => Network::Wan,
            () if row || (0..8).any(narrows) => Network::HunyuanImage,
            () => Network::Kl,
        };
        let downsampler = |index: &usize| {
            let ends = ["resample.1.weight", "conv.weight"];
            let at = |part: &str, end: &str| has(&format!("encoder.{part}.{index}.{end}"));
            ends.iter().any(|end| at("down_blocks", end) || at("downsamples", end))
        };
        let per_level = (0..64).find(downsampler).map_or(usize::MAX, |index| index + 1);
        let moments = shape("encoder.conv_out.weight").and_then(|shape| shape.first().copied());
        let statistics = network == Network::Kl && moments == Some(BATCH_NORMED);
        Self { network, style: if row { Style::Row { per_level } } else { Style::Levels }, statistics }
    }

    /// The canonical name of a tensor; `None` for what shapes no picture's latent: the decoder, other networks, and the
    /// convolutions between chunks of frames. A name of no known style is returned as it is.
    pub(super) fn canonical(&self, name: &str) -> Option<String> {
        let statistics = self.statistics && name.starts_with("bn.running_");
        let wan = self.network == Network::Wan && name.starts_with("conv1.");
        if !(name.starts_with("encoder.") || name.starts_with("quant_conv.") || statistics || wan) {
            return None;
        }
        match self.style {
            Style::Levels => Some(levels::canonical(name)),
            Style::Row { per_level } => row::canonical(name, per_level),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kl() -> Naming {
        Naming { network: Network::Kl, style: Style::Levels, statistics: false }
    }

    #[test]
    fn the_decoder_and_its_convolution_do_not_belong() {
        assert!(kl().canonical("quant_conv.weight").is_some());
        for name in ["post_quant_conv.weight", "decoder.conv_in.weight", "conv1.weight", "conv2.weight"] {
            assert_eq!(kl().canonical(name), None, "{name}");
        }
        let wan = Naming { network: Network::Wan, ..kl() };
        assert_eq!((wan.canonical("conv1.bias").is_some(), wan.canonical("conv2.bias")), (true, None));
    }

    #[test]
    fn statistics_count_only_where_a_batch_norm_stands() {
        for (moments, counts) in [(64, true), (32, false), (8, false)] {
            let shape = [moments, 512, 3, 3];
            let naming = Naming::of(&|name| (name == "encoder.conv_out.weight").then_some(&shape[..]));
            assert_eq!(naming.canonical("bn.running_mean").is_some(), counts, "{moments}");
            assert_eq!(naming.canonical("bn.num_batches_tracked"), None);
        }
    }
}
