//! An opened weights file: where its encoder's tensors lie, under canonical names and shapes.
//!
//! The file is mapped; only the header and the encoder's own tensors are ever read, so a full checkpoint costs no
//! more than a bare VAE. Pickled files are refused unread: loading one runs code. NaN weights are not looked for.

use crate::error::{Error, IoContext, Result};
use crate::hash::{EncoderId, FieldHasher};
use crate::vae::family::DetectedFamily;
use crate::vae::layout::{EncoderLayout, Network, Shapes};
use crate::vae::names::{LANDMARKS, Naming, PREFIXES, stranger};
use crate::vae::place::{Place, pieces};
use crate::vae::space::BatchNorm;
use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Bytes before a safetensors header: its length as u64.
const HEADER_LENGTH_BYTES: usize = 8;

/// Endings of files that hold Python pickles.
const PICKLED: [&str; 5] = ["ckpt", "pt", "pth", "bin", "pkl"];

const CONVERT_HINT: &str = "convert it once, where you trust it: load with `torch.load(file, weights_only=True)`, \
                            write with `safetensors.torch.save_file`";

/// A mapped safetensors file and the canonical view of its encoder.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    map: Mmap,
    layout: EncoderLayout,
    family: DetectedFamily,
    tensors: BTreeMap<String, Place>,
}

impl Weights {
    /// Opens the safetensors file at `path` and finds the encoder in it.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened; [`Error::Weights`] for a pickled file (with a way to convert it), a
    /// damaged one, one without an encoder (naming what was looked for), one with two, and one whose encoder has a
    /// tensor missing, too many, of the wrong shape, or of a dtype other than F32, F16 and BF16.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |message: String| Error::weights(path, message);
        ensure_not_pickled(path)?;
        let map = map_file(path)?;
        if map.starts_with(b"PK\x03\x04") || map.starts_with(b"\x80\x02") {
            return Err(fail("holds Python pickles, which are never executed".into()).with_hint(CONVERT_HINT));
        }
        let (header, metadata) = SafeTensors::read_metadata(&map)
            .map_err(|error| fail(format!("is not a whole safetensors file: {error}")))?;
        let infos = metadata.tensors();
        let prefix = find_prefix(&metadata).map_err(fail)?;
        let shape = |name: &str| metadata.info(&format!("{prefix}{name}")).map(|info| info.shape.as_slice());
        let naming = Naming::of(&shape);
        let tensors = collect(&infos, prefix, &naming, HEADER_LENGTH_BYTES + header).map_err(fail)?;
        let shapes: Shapes = tensors.iter().map(|(name, place)| (name.clone(), place.shape.clone())).collect();
        let layout = EncoderLayout::detect(naming.network, &shapes).map_err(fail)?;
        let family = DetectedFamily::of(infos.keys().map(String::as_str), layout.autoencoder());
        Ok(Self { path: path.to_path_buf(), map, layout, family, tensors })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the encoder looks like.
    pub fn layout(&self) -> &EncoderLayout {
        &self.layout
    }

    /// The model family, as far as the file can tell.
    pub fn family(&self) -> DetectedFamily {
        self.family
    }

    /// BLAKE3 of the layout and of every encoder tensor: canonical name, canonical shape, values as little-endian f32.
    ///
    /// A copy, another file name, another key style, a full checkpoint, and the f32 copy of a half file all have the
    /// same identity; one changed weight gives another. What shapes no picture's latent does not count: the decoder, and
    /// of kernels over time all but the last frame. Flux.2's batch norm counts where the file has it. Reads all encoder
    /// weights once (137 MB as f32 for SD and Flux), so callers keep the result.
    ///
    /// # Errors
    /// None today; the signature leaves room for stores that read lazily.
    pub fn identity(&self) -> Result<EncoderId> {
        let mut hasher = FieldHasher::new("prebake encoder");
        match self.layout.network {
            // Their identities are older than the others.
            Network::Kl => {}
            Network::Wan => drop(hasher.text("network", "wan")),
            Network::HunyuanImage => drop(hasher.text("network", "hunyuan-image")),
        }
        for &channels in &self.layout.block_out_channels {
            hasher.int("block_out_channels", channels as u64);
        }
        hasher.int("layers_per_block", self.layout.layers_per_block as u64);
        hasher.int("latent_channels", self.layout.latent_channels as u64);
        hasher.int("quant_conv", self.layout.quant_conv.into());
        hasher.int("mid_attention", self.layout.mid_attention.into());
        for (name, place) in &self.tensors {
            hasher.text("tensor", name);
            for &side in &place.shape {
                hasher.int("side", side as u64);
            }
            hasher.bytes("values", &place.f32_bytes(&self.map));
        }
        Ok(EncoderId(hasher.finish()))
    }

    /// The statistics of the batch norm that stands behind Flux.2's encoder, where the file has them.
    pub fn batch_norm(&self) -> Option<BatchNorm> {
        let held = self.layout.statistics;
        held.then(|| BatchNorm::new(&self.values("bn.running_mean"), &self.values("bn.running_var")))
    }

    /// Lets the system drop the file's pages from this process; they come back when read.
    ///
    /// Loaded weights are copies, and both would count as resident.
    pub(super) fn release_pages(&self) {
        #[cfg(unix)]
        // SAFETY: a private mapping that is only read holds nothing that the file does not.
        let _ = unsafe { self.map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }

    /// True if the encoder has a tensor of this canonical name.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The values of the tensor of this canonical name, widened to f32; none if there is no such tensor.
    pub(super) fn values(&self, name: &str) -> Vec<f32> {
        let Some(place) = self.tensors.get(name) else { return Vec::new() };
        let bytes = place.f32_bytes(&self.map);
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// The encoder's tensors by canonical name, on `device`, rounded to nearest even where `dtype` is narrower.
    pub(super) fn load(&self, device: &Device, dtype: DType) -> Result<HashMap<String, Tensor>> {
        let one = |(name, place): (&String, &Place)| {
            let tensor = Tensor::from_raw_buffer(&place.raw_bytes(&self.map), place.dtype, &place.shape, device)?;
            Ok((name.clone(), tensor.to_dtype(dtype)?))
        };
        self.tensors.iter().map(one).collect()
    }
}

fn ensure_not_pickled(path: &Path) -> Result<()> {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    if PICKLED.contains(&ending.as_str()) {
        let message =
            format!("`.{ending}` files hold Python pickles, which are never executed; allowed is `.safetensors`");
        return Err(Error::weights(path, message).with_hint(CONVERT_HINT));
    }
    Ok(())
}

fn map_file(path: &Path) -> Result<Mmap> {
    // Asked before opening, since opening a pipe would wait for its writer.
    if !std::fs::metadata(path).at(path)?.is_file() {
        return Err(Error::weights(path, "is not a regular file; allowed is a `.safetensors` file"));
    }
    let file = File::open(path).at(path)?;
    // SAFETY: the mapping is private and read only. Nobody may shorten the file while it is mapped; that is the
    // assumption of every program that maps weights, and weights are written once.
    unsafe { Mmap::map(&file) }.at(path)
}

fn find_prefix(metadata: &Metadata) -> Result<&'static str, String> {
    let has = |prefix: &str, name: &str| metadata.info(&format!("{prefix}{name}")).is_some();
    if let Some(what) = PREFIXES.iter().find_map(|prefix| stranger(&|name| has(prefix, name))) {
        return Err(format!("holds {what}"));
    }
    let holds = |prefix: &&&str| LANDMARKS.iter().any(|name| has(prefix, name));
    let found: Vec<&'static str> = PREFIXES.iter().filter(holds).copied().collect();
    match found.as_slice() {
        [prefix] => Ok(prefix),
        [] => {
            let tried = PREFIXES.map(|prefix| format!("`{prefix}{}`", LANDMARKS[0])).join(", ");
            Err(format!("holds no VAE encoder: looked for {tried}, and Wan's `{}`", LANDMARKS[1]))
        }
        several => Err(format!("holds {} VAE encoders, under {several:?}; allowed is one", several.len())),
    }
}

fn collect(
    infos: &HashMap<String, &TensorInfo>,
    prefix: &str,
    naming: &Naming,
    base: usize,
) -> Result<BTreeMap<String, Place>, String> {
    let mut tensors = BTreeMap::new();
    for (key, info) in infos {
        let Some(name) = key.strip_prefix(prefix).and_then(|name| naming.canonical(name)) else { continue };
        let dtype = float_dtype(info.dtype)
            .ok_or_else(|| format!("tensor `{key}` has dtype {:?}, allowed are F32, F16 and BF16", info.dtype))?;
        let bytes = base + info.data_offsets.0..base + info.data_offsets.1;
        for (name, place) in pieces(name, dtype, &info.shape, bytes) {
            if tensors.insert(name.clone(), place).is_some() {
                return Err(format!("two tensors stand for `{name}`, one of them `{key}`; allowed is one"));
            }
        }
    }
    Ok(tensors)
}

fn float_dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}
