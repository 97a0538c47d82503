//! The key: one hash over everything that shapes an entry, and nothing else.
//!
//! Not in the key, on purpose: paths, times, captions, batch sizes, threads, device, the name of a filter where
//! nothing is resized. A missing input would be a silent wrong hit, a superfluous one a needless encode; the tests
//! below hold one case for each input that must change the key.

use crate::containers::Dtype;
use crate::hash::{ContentHash, EncoderId, FieldHasher, Key};
use crate::recipe::pixels::{Alpha, PIXELS_REV, PixelRecipe};
use serde::{Deserialize, Serialize};

/// Raised when the encoding of the key itself changes. Part of every key.
pub const KEY_VERSION: u32 = 1;

/// Raised in the commit that moves a latent by more than the stated tolerance. Part of every latent's key.
pub const ENCODER_REV: u32 = 1;

/// What kind of tensor an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// The latent of the picture.
    Latents,
    /// The latent of the mirrored picture.
    LatentsFlipped,
    /// The loss mask from the alpha channel, in pixels.
    AlphaMask,
}

impl EntryKind {
    /// Its name in reports; trainers' tensor names start with it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latents => "latents",
            Self::LatentsFlipped => "latents_flipped",
            Self::AlphaMask => "alpha_mask",
        }
    }
}

/// What is cached of the posterior.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Posterior {
    /// Its mean: deterministic.
    Mean,
    /// One draw, seeded per entry from its key, so that order and batch don't matter.
    Sample {
        /// The user's seed.
        seed: u64,
    },
}

impl std::fmt::Display for Posterior {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::Sample { seed } => write!(f, "sample (seed {seed})"),
        }
    }
}

/// What turns pixels into a latent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EncodeRecipe {
    /// The encoder's layout and weights; absent where no weights were given, and then there is no key.
    pub encoder: Option<EncoderId>,
    /// Mean or sample.
    pub posterior: Posterior,
    /// [`ENCODER_REV`] when the key was derived.
    pub encoder_rev: u32,
}

/// What becomes of a posterior's mean or sample before `shift` and `scale`, which only [`Space::Affine`] has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Space {
    /// Nothing.
    #[default]
    Affine,
    /// (C, H, W) → (4·C, H/2, W/2) by patches of 2x2, then the batch norm that comes with Flux.2's VAE.
    BatchNormed,
    /// Each of 16 channels by Wan 2.1's published mean and deviation.
    Wan,
}

impl Space {
    /// Shape of what an encoder's latent of `shape`, (C, H, W), becomes.
    pub const fn shape(self, [c, h, w]: [usize; 3]) -> [usize; 3] {
        match self {
            Self::BatchNormed => [4 * c, h / 2, w / 2],
            Self::Affine | Self::Wan => [c, h, w],
        }
    }

    /// Latents that an element of it spans in each direction.
    pub const fn patch(self) -> u32 {
        match self {
            Self::BatchNormed => 2,
            Self::Affine | Self::Wan => 1,
        }
    }

    fn is_affine(&self) -> bool {
        *self == Self::Affine
    }
}

/// How values are stored: put into a space, `(z - shift) * scale`, then the dtype.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Element type in the artefact.
    pub dtype: Dtype,
    /// Subtracted first; 0 for raw latents.
    pub shift: f64,
    /// Multiplied second; 1 for raw latents.
    pub scale: f64,
    /// What comes before both.
    #[serde(default, skip_serializing_if = "Space::is_affine")]
    pub space: Space,
}

impl Stored {
    /// Raw latents in `dtype`.
    pub const fn raw(dtype: Dtype) -> Self {
        Self { dtype, shift: 0.0, scale: 1.0, space: Space::Affine }
    }
}

/// Everything that shapes one entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyInputs {
    /// [`KEY_VERSION`] when the key was derived.
    pub key_version: u32,
    /// [`PIXELS_REV`] when the key was derived.
    pub pixels_rev: u32,
    /// The image file's bytes.
    pub content: ContentHash,
    /// The resolved pixel recipe.
    pub pixels: PixelRecipe,
    /// The encoder's part; none for an alpha mask.
    pub encode: Option<EncodeRecipe>,
    /// How the values are stored.
    pub stored: Stored,
}

impl KeyInputs {
    /// The inputs of a latent under this build's revisions.
    pub fn latent(
        content: ContentHash,
        pixels: PixelRecipe,
        encoder: Option<EncoderId>,
        posterior: Posterior,
        stored: Stored,
    ) -> Self {
        let encode = Some(EncodeRecipe { encoder, posterior, encoder_rev: ENCODER_REV });
        Self { key_version: KEY_VERSION, pixels_rev: PIXELS_REV, content, pixels, encode, stored }
    }

    /// The inputs of an alpha mask under this build's revisions.
    pub fn mask(content: ContentHash, pixels: PixelRecipe, stored: Stored) -> Self {
        Self { key_version: KEY_VERSION, pixels_rev: PIXELS_REV, content, pixels, encode: None, stored }
    }

    /// The key, or `None` while the encoder's weights are unknown.
    pub fn key(&self) -> Option<Key> {
        let known = self.encode.as_ref().is_none_or(|encode| encode.encoder.is_some());
        known.then(|| self.hash("prebake key"))
    }

    /// A hash of everything in the key but the weights: finds an entry while they are unknown.
    pub fn key_without_weights(&self) -> Key {
        let mut blind = self.clone();
        if let Some(encode) = &mut blind.encode {
            encode.encoder = None;
        }
        blind.hash("prebake key without weights")
    }

    /// The inputs of the raw f32 mean from which this entry follows by arithmetic alone; none where it is that itself,
    /// holds a sample (whose noise hangs on the key), or needs more than `shift` and `scale`.
    pub fn raw(&self) -> Option<Self> {
        let mean = self.encode.as_ref().is_some_and(|encode| encode.posterior == Posterior::Mean);
        let raw = Stored::raw(Dtype::F32);
        (mean && self.stored != raw && self.stored.space.is_affine()).then(|| Self { stored: raw, ..self.clone() })
    }

    fn hash(&self, domain: &str) -> Key {
        let mut hasher = FieldHasher::new(domain);
        hasher.int("key_version", self.key_version.into()).int("pixels_rev", self.pixels_rev.into());
        hasher.bytes("content", &self.content.0);
        hash_pixels(&mut hasher, &self.pixels);
        match &self.encode {
            None => hasher.text("entry", "mask"),
            Some(encode) => {
                let encoder = encode.encoder.map_or([0; 32], |id| id.0);
                hasher.text("entry", "latent").bytes("encoder", &encoder).int("encoder_rev", encode.encoder_rev.into());
                match encode.posterior {
                    Posterior::Mean => hasher.text("posterior", "mean"),
                    Posterior::Sample { seed } => hasher.text("posterior", "sample").int("seed", seed),
                }
            }
        };
        hasher
            .text("dtype", self.stored.dtype.name())
            .float("shift", self.stored.shift)
            .float("scale", self.stored.scale);
        if !self.stored.space.is_affine() {
            hasher.text("space", &variant_name(&self.stored.space));
        }
        Key(hasher.finish())
    }
}

fn hash_pixels(hasher: &mut FieldHasher, pixels: &PixelRecipe) {
    if !pixels.decoder.is_pillow() {
        hasher.text("decoder", &variant_name(&pixels.decoder));
    }
    hasher.int("orientation", pixels.orientation.into());
    hasher.text("colour", &variant_name(&pixels.colour));
    hasher.int("clip_gray16", pixels.clip_gray16.into());
    match pixels.alpha {
        Alpha::Opaque => hasher.text("alpha", "opaque"),
        Alpha::Drop => hasher.text("alpha", "drop"),
        Alpha::Composite(rgb) => hasher.text("alpha", "composite").bytes("background", &rgb),
        Alpha::Keep => hasher.text("alpha", "keep"),
    };
    match pixels.resample {
        None => hasher.text("resample", "none"),
        Some(filter) => hasher.text("resample", &variant_name(&filter)),
    };
    for side in <[u32; 2]>::from(pixels.resized).into_iter().chain(<[u32; 4]>::from(pixels.crop)) {
        hasher.int("px", side.into());
    }
    hasher.int("mirrored", pixels.mirrored.into());
}

/// The serialised name of a unit variant: stable across renames of the Rust item.
fn variant_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a unit variant serialises as a string, not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::pixels::{Colour, Decoder, Resample};
    use crate::units::{Rect, Size};

    fn inputs() -> KeyInputs {
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: 1,
            colour: Colour::AsStored,
            clip_gray16: false,
            alpha: Alpha::Opaque,
            resample: Some(Resample::Cv2Area),
            resized: Size::new(96, 64),
            crop: Rect::new(16, 0, Size::new(64, 64)),
            mirrored: false,
        };
        let encoder = Some(EncoderId([7; 32]));
        KeyInputs::latent(ContentHash::of(b"a"), pixels, encoder, Posterior::Mean, Stored::raw(Dtype::F32))
    }

    #[test]
    fn each_input_changes_the_key() {
        type Change = (&'static str, fn(&mut KeyInputs));
        let changes: &[Change] = &[
            ("key version", |i| i.key_version += 1),
            ("pixels rev", |i| i.pixels_rev += 1),
            ("content", |i| i.content = ContentHash::of(b"b")),
            ("decoder", |i| i.pixels.decoder = Decoder::ImageCrate),
            ("orientation", |i| i.pixels.orientation = 6),
            ("colour", |i| i.pixels.colour = Colour::IccToSrgb),
            ("gray16", |i| i.pixels.clip_gray16 = true),
            ("alpha drop", |i| i.pixels.alpha = Alpha::Drop),
            ("alpha keep", |i| i.pixels.alpha = Alpha::Keep),
            ("alpha white", |i| i.pixels.alpha = Alpha::Composite([255; 3])),
            ("alpha black", |i| i.pixels.alpha = Alpha::Composite([0; 3])),
            ("no filter", |i| i.pixels.resample = None),
            ("filter", |i| i.pixels.resample = Some(Resample::PillowLanczos)),
            ("resized", |i| i.pixels.resized.width += 1),
            ("crop left", |i| i.pixels.crop.left += 1),
            ("crop top", |i| i.pixels.crop.top += 1),
            ("crop size", |i| i.pixels.crop.size.width += 8),
            ("mirrored", |i| i.pixels.mirrored = true),
            ("mask", |i| i.encode = None),
            ("weights", |i| i.encode.as_mut().unwrap().encoder = Some(EncoderId([8; 32]))),
            ("encoder rev", |i| i.encode.as_mut().unwrap().encoder_rev += 1),
            ("sample", |i| i.encode.as_mut().unwrap().posterior = Posterior::Sample { seed: 0 }),
            ("seed", |i| i.encode.as_mut().unwrap().posterior = Posterior::Sample { seed: 1 }),
            ("dtype", |i| i.stored.dtype = Dtype::Bf16),
            ("shift", |i| i.stored.shift = 0.1159),
            ("scale", |i| i.stored.scale = 0.3611),
            ("batch norm", |i| i.stored.space = Space::BatchNormed),
            ("channel statistics", |i| i.stored.space = Space::Wan),
        ];
        let mut seen = vec![("unchanged", inputs().key().unwrap())];
        for (name, change) in changes {
            let mut changed = inputs();
            change(&mut changed);
            let key = changed.key().unwrap();
            for (other, earlier) in &seen {
                assert_ne!(key, *earlier, "`{name}` must not share a key with `{other}`");
            }
            seen.push((name, key));
        }
    }

    #[test]
    fn the_key_of_fixed_inputs_never_moves() {
        let key = inputs().key().unwrap().to_hex();
        assert_eq!(key, PINNED, "bump KEY_VERSION when the encoding of the key changes");
    }

    const PINNED: &str = "0c00acafc46a01e925e6dbccb77b05548bf22b8067e3a98135e1eaa40f88f801";

    #[test]
    fn without_weights_there_is_no_key() {
        let mut unknown = inputs();
        unknown.encode.as_mut().unwrap().encoder = None;
        assert_eq!(unknown.key(), None);
    }

    #[test]
    fn the_key_without_weights_ignores_them_and_nothing_else() {
        let mut other = inputs();
        other.encode.as_mut().unwrap().encoder = Some(EncoderId([9; 32]));
        assert_eq!(other.key_without_weights(), inputs().key_without_weights());
        other.content = ContentHash::of(b"b");
        assert_ne!(other.key_without_weights(), inputs().key_without_weights());
        assert_ne!(inputs().key_without_weights(), inputs().key().unwrap());
    }

    #[test]
    fn inputs_survive_a_round_trip_through_a_receipt() {
        let text = serde_json::to_string(&inputs()).unwrap();
        assert!(!text.contains("decoder"), "receipts of the default decoder read as ever");
        assert_eq!(serde_json::from_str::<KeyInputs>(&text).unwrap(), inputs());
        let mut other = inputs();
        other.pixels.decoder = Decoder::ImageCrate;
        let text = serde_json::to_string(&other).unwrap();
        assert_eq!(serde_json::from_str::<KeyInputs>(&text).unwrap(), other);
    }
}
