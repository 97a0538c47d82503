//! The exact list of tensors that a layout implies.

use crate::vae::layout::{EncoderLayout, UNSHUFFLED};

/// Names and shapes of `layout`'s tensors.
pub(super) fn of(layout: &EncoderLayout) -> Vec<(String, Vec<usize>)> {
    let mut list = List { tensors: Vec::new(), biased_norms: !layout.network.norms_by_pixel() };
    let channels = &layout.block_out_channels;
    let (Some(&first), Some(&last)) = (channels.first(), channels.last()) else { return list.tensors };
    let moments = 2 * layout.latent_channels;
    list.conv("encoder.conv_in", first, 3, 3);
    for (level, &out) in channels.iter().enumerate() {
        for layer in 0..layout.layers_per_block {
            let into = if layer == 0 { layout.into(level) } else { out };
            list.resnet(&format!("encoder.down_blocks.{level}.resnets.{layer}"), into, out);
        }
        if let Some(halved) = layout.halved(level) {
            list.conv(&format!("encoder.down_blocks.{level}.downsamplers.0.conv"), halved, out, 3);
        }
    }
    list.resnet("encoder.mid_block.resnets.0", last, last);
    if layout.mid_attention {
        list.attention("encoder.mid_block.attentions.0", last);
    }
    list.resnet("encoder.mid_block.resnets.1", last, last);
    list.norm("encoder.conv_norm_out", last);
    list.conv("encoder.conv_out", moments, last, 3);
    if layout.quant_conv {
        list.conv("quant_conv", moments, moments, 1);
    }
    if layout.statistics {
        for name in ["bn.running_mean", "bn.running_var"] {
            list.tensors.push((name.to_owned(), vec![UNSHUFFLED * layout.latent_channels]));
        }
    }
    list.tensors
}

struct List {
    tensors: Vec<(String, Vec<usize>)>,
    biased_norms: bool,
}

impl List {
    fn push(&mut self, at: &str, weight: Vec<usize>, bias: usize) {
        self.tensors.push((format!("{at}.weight"), weight));
        self.tensors.push((format!("{at}.bias"), vec![bias]));
    }

    fn conv(&mut self, at: &str, out: usize, into: usize, side: usize) {
        self.push(at, vec![out, into, side, side], out);
    }

    fn norm(&mut self, at: &str, channels: usize) {
        if self.biased_norms {
            self.push(at, vec![channels], channels);
        } else {
            self.tensors.push((format!("{at}.weight"), vec![channels]));
        }
    }

    fn resnet(&mut self, at: &str, into: usize, out: usize) {
        self.norm(&format!("{at}.norm1"), into);
        self.conv(&format!("{at}.conv1"), out, into, 3);
        self.norm(&format!("{at}.norm2"), out);
        self.conv(&format!("{at}.conv2"), out, out, 3);
        if into != out {
            self.conv(&format!("{at}.conv_shortcut"), out, into, 1);
        }
    }

    fn attention(&mut self, at: &str, channels: usize) {
        self.norm(&format!("{at}.group_norm"), channels);
        for part in ["to_q", "to_k", "to_v", "to_out.0"] {
            self.push(&format!("{at}.{part}"), vec![channels, channels], channels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_add_up_to_those_of_the_released_encoders() {
        let count = |l: &EncoderLayout| of(l).iter().map(|(_, s)| s.iter().product::<usize>()).sum::<usize>();
        // 34,163,592 in diffusers' `Encoder`, 72 in `quant_conv`.
        assert_eq!(count(&EncoderLayout::sdxl()), 34_163_664);
        let flux = EncoderLayout { latent_channels: 16, quant_conv: false, ..EncoderLayout::sdxl() };
        assert_eq!(count(&flux), 34_274_208);
        let flux2 = EncoderLayout { latent_channels: 32, statistics: true, ..EncoderLayout::sdxl() };
        // Counted in diffusers 0.42's `AutoencoderKLFlux2`, `AutoencoderKLWan` (last frames only, without `time_conv`) and
        // `AutoencoderKLHunyuanImage`.
        assert_eq!(count(&flux2), 34_426_112);
        assert_eq!(count(&EncoderLayout::wan()), 19_307_648);
        assert_eq!(count(&EncoderLayout::hunyuan_image()), 145_007_552);
    }
}
