//! File and tensor names, shapes, dtypes and scaling of musubi-tuner's latent caches (`dataset/cache_io.py:120-324`,
//! `dataset/architectures.py`, and each model's `*_cache_latents.py`).

use super::Musubi;
use crate::containers::{Container, Dtype};
use crate::dataset::Image;
use crate::error::{Error, Result};
use crate::hash::{ContentHash, EncoderId};
use crate::recipe::{EntryKind, Family, KeyInputs, Stored};
use crate::trainers::{Place, Placement, WantedArtefact, WantedEntry};
use crate::units::Size;
use std::collections::BTreeMap;

/// What musubi-tuner's caches of one model look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Architecture {
    pub(super) family: Family,
    /// The end of the file name; without `_`.
    pub(super) short: &'static str,
    /// In the file's metadata.
    full: &'static str,
    axes: Axes,
    /// What its script stores by default.
    pub(super) dtype: Dtype,
    /// Bucket step, in pixels (`dataset/bucket.py:37-72`).
    pub(super) step: u32,
    /// Sides that the encoder takes are multiples of this many pixels.
    pub(super) multiple: u32,
    /// The shortest side at which its script does not stop, in pixels.
    pub(super) least: u32,
    /// Beginning of its scripts' names, and what they need to be told.
    scripts: (&'static str, &'static str),
}

/// How a picture's latent is shaped and named; F is its one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axes {
    /// (C, H, W), named by HxW.
    Plain,
    /// (C, H, W), named by FxHxW.
    FrameNamed,
    /// (C, F, H, W), named by FxHxW.
    Framed,
}

impl Architecture {
    /// The caches of `family`.
    pub(super) fn of(family: Family) -> Result<Self> {
        let new = |short, full, axes, dtype, scripts| {
            // Flux.2's latents are patches of 2x2 (`flux_2/flux2_models.py:379`).
            let multiple = if axes == Axes::Plain { 16 } else { 8 };
            let least = if family == Family::ZImage { 16 } else { multiple };
            Self { family, short, full, axes, dtype, step: 16, multiple, least, scripts }
        };
        Ok(match family {
            Family::ZImage => new("zi", "z_image", Axes::FrameNamed, Dtype::F32, ("zimage", "")),
            Family::Flux2 => new("f2d", "flux_2_dev", Axes::Plain, Dtype::F32, ("flux_2", " --model_version dev")),
            Family::Flux2Klein4b => {
                new("f2k4b", "flux_2_klein_4b", Axes::Plain, Dtype::F32, ("flux_2", " --model_version klein-4b"))
            }
            Family::Flux2Klein9b => {
                new("f2k9b", "flux_2_klein_9b", Axes::Plain, Dtype::F32, ("flux_2", " --model_version klein-9b"))
            }
            // Their script takes the dtype of the weights that it is given.
            Family::QwenImage => new("qi", "qwen_image", Axes::Framed, Dtype::F32, ("qwen_image", "")),
            Family::Krea2 => new("kr2", "krea2", Axes::Framed, Dtype::F32, ("krea2", "")),
            Family::Wan21 => new("wan", "wan", Axes::Framed, Dtype::Bf16, ("wan", "")),
            other => return Err(unknown(other)),
        })
    }

    /// How latents are stored: Z-Image's raw, since its training scales them (`zimage_train_network.py:257-262`), all
    /// others as the diffusion model takes them.
    fn stored(&self, dtype: Dtype) -> Stored {
        if self.family == Family::ZImage { Stored::raw(dtype) } else { self.family.scaled(dtype) }
    }

    /// Name and shape of the latent of a picture of `bucket` pixels.
    fn tensor(&self, stored: Stored, bucket: Size) -> (String, Vec<usize>) {
        let [channels, h, w] = self.family.latent_shape(stored, bucket);
        let frame = if self.axes == Axes::Plain { "" } else { "1x" };
        let shape = if self.axes == Axes::Framed { vec![channels, 1, h, w] } else { vec![channels, h, w] };
        (format!("latents_{frame}{h}x{w}_{}", torch_name(stored.dtype)), shape)
    }

    /// What the trainer writes beside the latent (`cache_io.py:305-311`).
    pub(super) fn metadata(&self, original: Size) -> BTreeMap<String, String> {
        let texts = [
            ("architecture", self.full.to_owned()),
            ("width", original.width.to_string()),
            ("height", original.height.to_string()),
            ("format_version", "1.0.1".to_owned()),
        ];
        texts.map(|(name, text)| (name.to_owned(), text)).into()
    }

    /// True for the file names that the trainer takes for latents; its text caches end in `_te.safetensors`.
    pub(super) fn names(&self, file_name: &str) -> bool {
        !file_name.starts_with('.') && self.without_tail(file_name).is_some()
    }

    /// `STEM_<W>x<H>` of a file name.
    fn without_tail<'a>(&self, file_name: &'a str) -> Option<&'a str> {
        file_name.strip_suffix(".safetensors")?.strip_suffix(self.short)?.strip_suffix('_')
    }

    /// Stem and size, which are all before the last `_` and all behind it (`ivd:500-506`).
    fn parsed<'a>(&self, file_name: &'a str) -> Option<(&'a str, Size)> {
        let (stem, size) = self.without_tail(file_name)?.rsplit_once('_')?;
        let (width, height) = size.split_once('x')?;
        let side = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        Some((stem, Size::new(side(width)?, side(height)?)))
    }

    /// The size in the name of a cache of this very stem.
    pub(super) fn claimed_size(&self, stem: &str, file_name: &str) -> Option<Size> {
        self.parsed(file_name).filter(|(owner, _)| *owner == stem).map(|(_, size)| size)
    }

    /// What the trainer does with a file in its folder that no image wants.
    pub(super) fn uses_unasked(&self, file_name: &str) -> Option<&'static str> {
        if !self.names(file_name) {
            return None;
        }
        Some(match self.parsed(file_name) {
            None => "is named like a cache without an image's size, at which musubi-tuner stops",
            // `STEM_<frame>-<frames>_<W>x<H>`: a video's, which no image dataset makes.
            Some((stem, _)) if self.short == "wan" && is_video(stem) => return None,
            Some(_) => "is the cache of no image here, and musubi-tuner trains on every cache in its folder",
        })
    }

    /// What else the user has to do.
    pub(super) fn setup(&self) -> Vec<String> {
        let (script, told) = self.scripts;
        let mut lines = vec![
            format!(
                "run {script}_cache_text_encoder_outputs.py{told} once: an image without its text cache is left out of training"
            ),
            format!(
                "{script}_cache_latents.py{told} need not run; if it does, with --skip_existing --keep_cache: else it encodes everything anew and deletes what it does not know"
            ),
        ];
        if self.family == Family::Wan21 {
            lines.push("train text-to-video: caches for image-to-video (--i2v, --one_frame) hold more".to_owned());
        }
        if self.family == Family::QwenImage {
            lines.push("train plain Qwen-Image: caches for edit and layered models hold more".to_owned());
        }
        lines
    }
}

/// Why there are no caches of a family.
fn unknown(family: Family) -> Error {
    let why = match family {
        Family::Flux => "musubi-tuner trains FLUX.1 Kontext, whose caches hold a control image's latents too",
        _ => "musubi-tuner does not train it",
    };
    let hint = "--family z-image, flux2, flux2-klein-4b, flux2-klein-9b, qwen-image, krea2 or wan21";
    Error::usage(format!("--for musubi --family {}: {why}", family.name()), hint)
}

fn is_video(stem: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let range = stem.rsplit_once('_').and_then(|(_, range)| range.split_once('-'));
    range.is_some_and(|(first, count)| digits(first) && digits(count))
}

/// torch's name of a dtype, which the loader cuts off the tensor's name (`utils/model_utils.py:176`).
fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
        _ => "float32",
    }
}

/// True for the name of a picture's own latent, `latents_<sizes>_<dtype>`: what the loader takes for `latents`
/// (`dataset/bucket.py:253-270`), and not `latents_control_…` and the like.
pub(super) fn is_target(tensor: &str) -> bool {
    let Some(rest) = tensor.strip_prefix("latents_") else { return false };
    rest.split('_').next().is_some_and(|sizes| sizes.bytes().all(|b| b.is_ascii_digit() || b == b'x'))
}

/// The one artefact of an image.
pub(super) fn artefact(
    settings: &Musubi,
    image: &Image,
    content: ContentHash,
    placement: &Placement,
    encoder: Option<EncoderId>,
) -> WantedArtefact {
    use crate::trainers::Convention as _;
    let architecture = &settings.architecture;
    let stored = architecture.stored(settings.dtype);
    let (tensor, shape) = architecture.tensor(stored, placement.assignment.bucket);
    let entry = WantedEntry {
        kind: EntryKind::Latents,
        tensor,
        shape,
        inputs: KeyInputs::latent(content, placement.pixels.clone(), encoder, settings.posterior, stored),
        companions: BTreeMap::new(),
    };
    let Size { width, height } = placement.source;
    let mut name = image.relative.file_stem().unwrap_or_default().to_owned();
    name.push(format!("_{width:04}x{height:04}_{}.safetensors", architecture.short));
    let path = settings.folder(image).join(name);
    let place = Place::Beside { path, older: None };
    WantedArtefact { place, container: Container::Safetensors, entries: vec![entry] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn architecture(family: Family) -> Architecture {
        Architecture::of(family).unwrap()
    }

    #[test]
    fn each_model_names_and_shapes_its_latent_as_its_script_does() {
        let of = |family: Family| {
            let architecture = architecture(family);
            let stored = architecture.stored(architecture.dtype);
            let (tensor, shape) = architecture.tensor(stored, Size::new(96, 64));
            (architecture.short, tensor, shape)
        };
        let plain = |short, shape: [usize; 3]| (short, "latents_4x6_float32".to_owned(), shape.to_vec());
        assert_eq!(of(Family::ZImage), ("zi", "latents_1x8x12_float32".to_owned(), vec![16, 8, 12]));
        assert_eq!(of(Family::Flux2), plain("f2d", [128, 4, 6]));
        assert_eq!(of(Family::Flux2Klein4b), plain("f2k4b", [128, 4, 6]));
        assert_eq!(of(Family::Flux2Klein9b), plain("f2k9b", [128, 4, 6]));
        assert_eq!(of(Family::QwenImage), ("qi", "latents_1x8x12_float32".to_owned(), vec![16, 1, 8, 12]));
        assert_eq!(of(Family::Krea2), ("kr2", "latents_1x8x12_float32".to_owned(), vec![16, 1, 8, 12]));
        assert_eq!(of(Family::Wan21), ("wan", "latents_1x8x12_bfloat16".to_owned(), vec![16, 1, 8, 12]));
    }

    #[test]
    fn only_z_image_is_stored_raw() {
        let stored = |family| architecture(family).stored(Dtype::F32);
        assert_eq!(stored(Family::ZImage), Stored::raw(Dtype::F32));
        assert_eq!(stored(Family::Flux2), Family::Flux2.scaled(Dtype::F32));
        assert_eq!(stored(Family::QwenImage), Family::QwenImage.scaled(Dtype::F32));
    }

    #[test]
    fn metadata_holds_the_models_full_name_and_the_original_size() {
        let metadata = architecture(Family::Flux2Klein4b).metadata(Size::new(100, 67));
        let texts: Vec<_> = metadata.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let expected =
            [("architecture", "flux_2_klein_4b"), ("format_version", "1.0.1"), ("height", "67"), ("width", "100")];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_cache_belongs_to_the_whole_stem_before_its_size() {
        let claimed = |stem, name| architecture(Family::ZImage).claimed_size(stem, name);
        assert_eq!(claimed("a", "a_0100x0067_zi.safetensors"), Some(Size::new(100, 67)));
        assert_eq!(claimed("a_1", "a_1_10240x0067_zi.safetensors"), Some(Size::new(10240, 67)));
        assert_eq!(claimed("a", "a_1_0100x0067_zi.safetensors"), None);
        assert_eq!(claimed("a", "a_0100x0067_qi.safetensors"), None);
        assert_eq!(claimed("a", "a_zi_te.safetensors"), None);
    }

    #[test]
    fn what_the_trainer_does_with_a_file_that_no_image_wants_is_known() {
        let says = |name| architecture(Family::ZImage).uses_unasked(name);
        assert!(says("gone_0100x0067_zi.safetensors").unwrap().contains("trains on every cache"));
        assert!(says("z_image_vae_zi.safetensors").unwrap().contains("stops"));
        assert_eq!(says("gone_zi_te.safetensors"), None);
        assert_eq!(says(".hidden_zi.safetensors"), None);
        let video = "clip_00000-081_0832x0480_wan.safetensors";
        assert_eq!(architecture(Family::Wan21).uses_unasked(video), None);
    }

    #[test]
    fn only_a_pictures_own_latent_is_taken_for_latents() {
        assert!(is_target("latents_1x8x12_float32"));
        assert!(is_target("latents_8x12_bfloat16"));
        assert!(!is_target("latents_control_0_1x8x12_float32"));
        assert!(!is_target("latents_image_1x8x12_float32"));
        assert!(!is_target("varlen_llm_embed_float32"));
    }

    #[test]
    fn a_family_without_caches_there_is_refused_with_those_that_have_some() {
        let refused = Architecture::of(Family::Sdxl).unwrap_err().to_string();
        assert!(refused.contains("--for musubi --family sdxl: musubi-tuner does not train it"), "{refused}");
        assert!(Architecture::of(Family::Flux).unwrap_err().to_string().contains("Kontext"));
    }
}
