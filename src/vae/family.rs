//! Which model family a weights file is of, as far as its keys can tell.

use crate::recipe::{Autoencoder, Family};

/// What the keys of a file say about its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectedFamily {
    /// A full checkpoint: its other networks name the family.
    Known(Family),
    /// A bare VAE fits several families, whose encoders are laid out alike.
    Ambiguous {
        /// All that fit.
        candidates: &'static [Family],
        /// The one to take unless the user says otherwise.
        default: Family,
    },
}

impl DetectedFamily {
    /// The family itself, or the default of those that fit.
    pub const fn resolve(self) -> Family {
        match self {
            Self::Known(family) => family,
            Self::Ambiguous { default, .. } => default,
        }
    }

    /// From all keys of a file and the encoder found in it.
    ///
    /// A checkpoint whose family has another encoder than that is no evidence.
    pub(super) fn of<'a>(keys: impl Iterator<Item = &'a str>, autoencoder: Autoencoder) -> Self {
        match keys.filter_map(evidence).min().map(|(_, family)| family) {
            Some(family) if family.autoencoder() == autoencoder => Self::Known(family),
            _ => Self::ambiguous(autoencoder),
        }
    }

    fn ambiguous(autoencoder: Autoencoder) -> Self {
        use Family::{
            Anima, Chroma, Flux, Flux2, Flux2Klein4b, Flux2Klein9b, HunyuanImage, Krea2, Lumina2, QwenImage, Sd3, Sd15,
            Sdxl, Wan21, ZImage,
        };
        let (candidates, default): (&[Family], _) = match autoencoder {
            Autoencoder::Kl4 => (&[Sd15, Sdxl], Sdxl),
            Autoencoder::Kl16 => (&[Sd3, Flux, Chroma, Lumina2, ZImage], Flux),
            Autoencoder::Kl32 => (&[Flux2, Flux2Klein4b, Flux2Klein9b], Flux2),
            Autoencoder::Wan => (&[QwenImage, Krea2, Anima, Wan21], QwenImage),
            Autoencoder::HunyuanImage => return Self::Known(HunyuanImage),
        };
        Self::Ambiguous { candidates, default }
    }
}

/// What one key proves, with its rank: text encoders outrank the U-Net's `label_emb`, which SD 2 unCLIP has as well.
///
/// SD 2 (`cond_stage_model.model`) counts as [`Family::Sd15`]: same encoder, same conventions.
fn evidence(key: &str) -> Option<(u8, Family)> {
    const MARKS: [(&str, u8, Family); 7] = [
        ("cond_stage_model.transformer.", 0, Family::Sd15),
        ("cond_stage_model.model.", 0, Family::Sd15),
        ("conditioner.embedders.1.", 0, Family::Sdxl),
        ("joint_blocks.", 0, Family::Sd3),
        // Chroma has these instead of Flux's modulations, and double blocks too.
        ("distilled_guidance_layer.", 0, Family::Chroma),
        ("double_blocks.", 1, Family::Flux),
        ("label_emb.", 1, Family::Sdxl),
    ];
    let at_a_segment = |mark: &str| key.match_indices(mark).any(|(at, _)| at == 0 || key.as_bytes()[at - 1] == b'.');
    MARKS.iter().find(|(mark, ..)| at_a_segment(mark)).map(|&(_, rank, family)| (rank, family))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Autoencoder::{Kl4, Kl16};

    #[test]
    fn a_full_checkpoint_names_its_family() {
        let table = [
            ("cond_stage_model.transformer.text_model.final_layer_norm.bias", Kl4, Family::Sd15),
            ("cond_stage_model.model.transformer.resblocks.0.ln_1.bias", Kl4, Family::Sd15),
            ("conditioner.embedders.1.model.ln_final.bias", Kl4, Family::Sdxl),
            ("model.diffusion_model.label_emb.0.0.bias", Kl4, Family::Sdxl),
            ("model.diffusion_model.joint_blocks.0.x_block.attn.qkv.bias", Kl16, Family::Sd3),
            ("model.diffusion_model.double_blocks.0.img_attn.qkv.bias", Kl16, Family::Flux),
            ("double_blocks.0.img_attn.qkv.bias", Kl16, Family::Flux),
            ("model.diffusion_model.distilled_guidance_layer.norms.0.scale", Kl16, Family::Chroma),
        ];
        for (key, encoder, family) in table {
            assert_eq!(DetectedFamily::of([key].into_iter(), encoder), DetectedFamily::Known(family), "{key}");
        }
    }

    #[test]
    fn sd2_unclip_is_not_taken_for_sdxl_whatever_the_order_of_its_keys() {
        let keys = ["model.diffusion_model.label_emb.0.0.bias", "cond_stage_model.model.positional_embedding"];
        assert_eq!(DetectedFamily::of(keys.into_iter(), Kl4), DetectedFamily::Known(Family::Sd15));
        assert_eq!(DetectedFamily::of(keys.into_iter().rev(), Kl4), DetectedFamily::Known(Family::Sd15));
    }

    #[test]
    fn a_bare_vae_is_ambiguous_and_defaults_to_the_newer_family() {
        let family = |encoder| DetectedFamily::of(["encoder.conv_in.weight"].into_iter(), encoder).resolve();
        assert_eq!(family(Kl4), Family::Sdxl);
        assert_eq!(family(Kl16), Family::Flux);
    }

    #[test]
    fn a_bare_vae_fits_every_family_that_shares_its_encoder() {
        for encoder in Family::ALL.map(Family::autoencoder) {
            let fit: Vec<_> = Family::ALL.into_iter().filter(|family| family.autoencoder() == encoder).collect();
            match DetectedFamily::of(["encoder.conv_in.weight"].into_iter(), encoder) {
                DetectedFamily::Known(family) => assert_eq!(fit, [family]),
                DetectedFamily::Ambiguous { candidates, .. } => assert_eq!(fit, candidates),
            }
        }
    }

    #[test]
    fn chroma_is_told_from_flux_whatever_the_order_of_its_keys() {
        let keys = ["double_blocks.0.img_attn.qkv.bias", "distilled_guidance_layer.in_proj.weight"];
        assert_eq!(DetectedFamily::of(keys.into_iter(), Kl16), DetectedFamily::Known(Family::Chroma));
        assert_eq!(DetectedFamily::of(keys.into_iter().rev(), Kl16), DetectedFamily::Known(Family::Chroma));
    }

    #[test]
    fn a_family_with_another_encoder_is_no_evidence() {
        let found = DetectedFamily::of(["double_blocks.0.img_attn.qkv.bias"].into_iter(), Kl4);
        assert_eq!(found.resolve(), Family::Sdxl);
    }
}
