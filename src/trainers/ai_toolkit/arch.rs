//! What ai-toolkit calls a model, and what follows from it for buckets and caches.
//!
//! Read in ai-toolkit 0.12.26: steps in each model's `get_bucket_divisibility` (`stable_diffusion_model.py:224` for those
//! without a class of their own), the names of latent spaces in `data_loader.py:503-520`. `extensions_built_in/` holds
//! the classes of single models.

use crate::error::{Error, Result};
use crate::recipe::{Family, Target};

/// One `model.arch` of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arch {
    /// As the job has it.
    pub(super) name: &'static str,
    /// Whose autoencoder and scaling it has.
    pub(super) family: Family,
    /// Bucket divisibility, in pixels.
    pub(super) step: u32,
    /// What the cache's name has for the latent space.
    pub(super) latent_space: &'static str,
    /// True where latents keep the axis of frames: (C, 1, H, W).
    pub(super) frames: bool,
}

const fn arch(name: &'static str, family: Family, step: u32, latent_space: &'static str) -> Arch {
    Arch { name, family, step, latent_space, frames: false }
}

const fn video(name: &'static str, family: Family, step: u32) -> Arch {
    Arch { name, family, step, latent_space: name, frames: true }
}

/// Archs whose latents can be made; of a family's the first is taken where no job says more.
///
/// An editing model's caches of target images are those of its family under another name.
const ARCHS: [Arch; 24] = [
    arch("sd1", Family::Sd15, 16, "sd1"),
    arch("sd2", Family::Sd15, 16, "sd2"),
    arch("sdxl", Family::Sdxl, 16, "sdxl"),
    arch("ssd", Family::Sdxl, 16, "ssd"),
    arch("vega", Family::Sdxl, 16, "vega"),
    arch("sd3", Family::Sd3, 32, "sd3"),
    arch("flux", Family::Flux, 32, "flux1"),
    arch("flux_kontext", Family::Flux, 16, "flux_kontext"),
    arch("flex2", Family::Flux, 16, "flex2"),
    arch("chroma", Family::Chroma, 32, "chroma"),
    arch("lumina2", Family::Lumina2, 16, "lumina2"),
    arch("zimage", Family::ZImage, 16, "zimage"),
    arch("flux2", Family::Flux2, 16, "flux2"),
    arch("flux2_klein_4b", Family::Flux2Klein4b, 16, "flux2_klein_4b"),
    arch("flux2_klein_9b", Family::Flux2Klein9b, 16, "flux2_klein_9b"),
    arch("qwen_image", Family::QwenImage, 32, "qwen_image"),
    arch("qwen_image_edit", Family::QwenImage, 32, "qwen_image_edit"),
    arch("qwen_image_edit_plus", Family::QwenImage, 32, "qwen_image_edit_plus"),
    arch("krea2", Family::Krea2, 16, "krea2"),
    arch("anima", Family::Anima, 32, "anima"),
    video("wan21", Family::Wan21, 16),
    video("wan21_i2v", Family::Wan21, 16),
    video("wan22_14b", Family::Wan21, 16),
    video("wan22_14b_i2v", Family::Wan21, 16),
];

/// The arch of a run: the job's, held against the family, else the family's own.
///
/// # Errors
/// A family that ai-toolkit does not train, an arch whose latents cannot be made, and one of another family.
pub(super) fn resolve(family: Family, told: Option<&str>) -> Result<&'static Arch> {
    let Some(told) = told else {
        let own = ARCHS.iter().find(|arch| arch.family == family);
        let mut known: Vec<Family> = ARCHS.iter().map(|arch| arch.family).collect();
        known.dedup();
        super::super::ensure_known(Target::AiToolkit, family, &known)?;
        return Ok(own.expect("a known family has an arch"));
    };
    let Some(arch) = ARCHS.iter().find(|arch| arch.name == told) else {
        let names: Vec<_> = ARCHS.iter().map(|arch| arch.name).collect();
        let message = format!("the job's model is `{told}`, whose caches are not written");
        return Err(Error::usage(message, format!("archs that are: {}", names.join(", "))));
    };
    if arch.family != family {
        let message = format!("the job's model is `{told}`, the family here is {}", family.name());
        return Err(Error::usage(message, format!("--family {}", arch.family.name())));
    }
    Ok(arch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_that_ai_toolkit_trains_has_its_own_arch() {
        let name = |family| resolve(family, None).map(|arch| arch.name);
        assert_eq!(name(Family::Sd15).unwrap(), "sd1");
        assert_eq!(name(Family::Flux).unwrap(), "flux");
        assert_eq!(name(Family::ZImage).unwrap(), "zimage");
        let refused = name(Family::HunyuanImage).unwrap_err().to_string();
        assert!(refused.starts_with("--family hunyuan-image: no caches of it are written for ai-toolkit"), "{refused}");
    }

    #[test]
    fn a_jobs_arch_is_held_against_the_family() {
        assert_eq!(resolve(Family::Flux, Some("flux_kontext")).unwrap().latent_space, "flux_kontext");
        let other = resolve(Family::Sdxl, Some("flux")).unwrap_err();
        assert_eq!(other.to_string(), "the job's model is `flux`, the family here is sdxl");
        let unknown = resolve(Family::Flux, Some("hidream")).unwrap_err().to_string();
        assert_eq!(unknown, "the job's model is `hidream`, whose caches are not written");
    }
}
