//! The encoder against diffusers and sd-scripts: all families, all key styles, and files that must be refused.

use prebake::error::Error;
use prebake::recipe::{Family, Precision};
use prebake::units::Size;
use prebake::vae::device::{self, DeviceRequest};
use prebake::vae::{DetectedFamily, Encoder, Posterior, Weights};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The stated tolerance: greatest absolute difference of an f32 mean from diffusers'.
const TOLERANCE: f32 = 2e-4;

/// Name → dtype, shape, bytes.
type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/vae").join(format!("{name}.safetensors"))
}

fn read(path: &Path) -> Tensors {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.iter().map(|(name, t)| (name.into(), (t.dtype(), t.shape().to_vec(), t.data().to_vec()))).collect()
}

fn write(path: &Path, tensors: &Tensors) {
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn encoder(weights: &Weights, precision: Precision) -> Encoder {
    let device = device::open(&DeviceRequest::Cpu).unwrap().devices.remove(0).device;
    Encoder::new(weights, &device, precision).unwrap()
}

/// Renames every tensor; `None` leaves it out. Attention matrices become 1×1 convolutions where the name says `attn_1`.
fn renamed(tensors: &Tensors, rename: impl Fn(&str) -> Option<String>) -> Tensors {
    let one = |(name, (dtype, shape, bytes)): (&String, &(Dtype, Vec<usize>, Vec<u8>))| {
        let name = rename(name)?;
        let as_conv = name.contains("attn_1") && shape.len() == 2;
        let shape = if as_conv { [shape.as_slice(), &[1, 1]].concat() } else { shape.clone() };
        Some((name, (*dtype, shape, bytes.clone())))
    };
    tensors.iter().filter_map(one).collect()
}

/// diffusers → original names, by plain replacement.
fn original_name(name: &str) -> String {
    let mut name = name.to_owned();
    for (from, to) in [
        ("down_blocks", "down"),
        ("resnets", "block"),
        ("downsamplers.0", "downsample"),
        ("conv_shortcut", "nin_shortcut"),
        ("mid_block.block.0", "mid.block_1"),
        ("mid_block.block.1", "mid.block_2"),
        ("mid_block.attentions.0.group_norm", "mid.attn_1.norm"),
        ("mid_block.attentions.0.to_out.0", "mid.attn_1.proj_out"),
        ("mid_block.attentions.0.to_", "mid.attn_1."),
        ("conv_norm_out", "norm_out"),
    ] {
        name = name.replace(from, to);
    }
    name
}

fn old_diffusers_name(name: &str) -> String {
    let pairs = [("to_q", "query"), ("to_k", "key"), ("to_v", "value"), ("to_out.0", "proj_attn")];
    pairs.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

fn as_f32(tensors: &Tensors) -> Tensors {
    let widen = |bytes: &[u8]| {
        bytes.chunks_exact(2).flat_map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32().to_le_bytes()).collect()
    };
    tensors.iter().map(|(name, (_, shape, bytes))| (name.clone(), (Dtype::F32, shape.clone(), widen(bytes)))).collect()
}

/// The tiny SDXL encoder in every way that a file may hold it.
fn key_styles(dir: &Path) -> Vec<(&'static str, PathBuf)> {
    let diffusers = read(&data("sdxl_tiny_f16"));
    let original = renamed(&diffusers, |name| Some(original_name(name)));
    let prefixed = |prefix: &str, tensors: &Tensors, marks: &[&str]| {
        let mut full = renamed(tensors, |name| Some(format!("{prefix}{name}")));
        for mark in marks.iter().chain(&["model_ema.decay"]) {
            full.insert((*mark).into(), (Dtype::I64, vec![1], vec![0; 8]));
        }
        full.insert(format!("{prefix}decoder.conv_in.bias"), (Dtype::F16, vec![2], vec![1; 4]));
        full
    };
    let sd1 = "cond_stage_model.transformer.text_model.embeddings.position_ids";
    let variants = [
        ("original", original.clone()),
        ("old diffusers", renamed(&diffusers, |name| Some(old_diffusers_name(name)))),
        ("f32", as_f32(&diffusers)),
        ("full checkpoint", prefixed("first_stage_model.", &original, &[sd1])),
        ("all in one", prefixed("vae.", &diffusers, &["conditioner.embedders.1.model.positional_embedding"])),
    ];
    let mut files = vec![("diffusers", data("sdxl_tiny_f16"))];
    for (name, tensors) in variants {
        let path = dir.join(format!("{name}.safetensors"));
        write(&path, &tensors);
        files.push((name, path));
    }
    files
}

/// Greatest absolute differences of mean and logvar over all golden inputs of `io`.
fn worst(encoder: &Encoder, io: &Tensors) -> (f32, f32) {
    let mut worst = (0.0f32, 0.0f32);
    for (name, (_, shape, bytes)) in io.iter().filter(|(name, _)| name.starts_with("input_")) {
        let (height, width) = (shape[2], shape[3]);
        let pixels = floats(bytes);
        let images: Vec<&[f32]> = pixels.chunks_exact(3 * height * width).collect();
        let posteriors = encoder.encode(&images, Size::new(width as u32, height as u32)).unwrap();
        let all = |part: fn(&Posterior) -> &[f32]| posteriors.iter().flat_map(|p| part(p).to_vec()).collect::<Vec<_>>();
        let golden = |part: &str| floats(&io[&name.replace("input", part)].2);
        worst.0 = worst.0.max(difference(&all(|p| &p.mean), &golden("mean")));
        worst.1 = worst.1.max(difference(&all(|p| &p.logvar), &golden("logvar")));
        assert_eq!(posteriors[0].shape[1..], [height / 8, width / 8]);
    }
    worst
}

fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    // Not `max`, which would swallow NaN.
    ours.iter()
        .zip(theirs)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |worst, d| if d > worst || d.is_nan() { d } else { worst })
}

#[test]
fn latents_equal_those_of_diffusers_in_all_key_styles() {
    let dir = TempDir::new().unwrap();
    let io = read(&data("sdxl_tiny_io"));
    for (style, path) in key_styles(dir.path()) {
        let (mean, logvar) = worst(&encoder(&Weights::open(&path).unwrap(), Precision::F32), &io);
        assert!(mean <= TOLERANCE && logvar <= TOLERANCE, "{style}: mean off by {mean:e}, logvar by {logvar:e}");
    }
}

#[test]
fn sixteen_channel_latents_without_quant_conv_equal_those_of_diffusers() {
    let weights = Weights::open(&data("flux_tiny_f16")).unwrap();
    assert_eq!((weights.layout().latent_channels, weights.layout().quant_conv), (16, false));
    let (mean, logvar) = worst(&encoder(&weights, Precision::F32), &read(&data("flux_tiny_io")));
    assert!(mean <= TOLERANCE && logvar <= TOLERANCE, "mean off by {mean:e}, logvar by {logvar:e}");
}

#[test]
fn latents_equal_those_that_sd_scripts_cached_for_four_families() {
    let golden = read(&data("sd_scripts_latents"));
    let pixels: Vec<f32> = golden["pixels"].2.iter().map(|&v| (f32::from(v) / 255.0 - 0.5) / 0.5).collect();
    for (family, weights) in [
        ("sd", "tiny4_ldm_f16"),
        ("sdxl", "tiny4_diffusers_f16"),
        ("sd3", "tiny16_diffusers_f16"),
        ("flux", "tiny16_ldm_f16"),
    ] {
        let encoder = encoder(&Weights::open(&data(weights)).unwrap(), Precision::F32);
        let posterior = encoder.encode(&[&pixels], Size::new(64, 192)).unwrap().remove(0);
        let scaled = |z: &f32| if family == "flux" { 0.3611 * (z - 0.1159) } else { *z };
        let ours: Vec<f32> = posterior.mean.iter().map(scaled).collect();
        let off = difference(&ours, &floats(&golden[family].2));
        assert!(off <= TOLERANCE, "{family} is off by {off:e}");
        assert!(posterior.logvar.iter().all(|&v| v == -30.0), "{family}: the log-variance is at its lower limit");
    }
}

#[test]
fn the_identity_is_that_of_the_weights_whatever_the_file() {
    let dir = TempDir::new().unwrap();
    let identities: Vec<_> = key_styles(dir.path())
        .into_iter()
        .map(|(style, path)| (style, Weights::open(&path).unwrap().identity().unwrap()))
        .collect();
    for (style, identity) in &identities {
        assert_eq!(*identity, identities[0].1, "{style}");
        assert_eq!(identity.to_hex(), SDXL_TINY, "part of every key: bump KEY_VERSION when the identity changes");
    }
    for (tiny, pinned) in [("tiny4", TINY4), ("tiny16", TINY16)] {
        let identity = |style| Weights::open(&data(&format!("{tiny}_{style}_f16"))).unwrap().identity().unwrap();
        assert_eq!(identity("ldm"), identity("diffusers"), "{tiny} as sd-scripts converted it");
        assert_eq!(identity("ldm").to_hex(), pinned);
    }
}

const TINY4: &str = "e2281158093b0ba7e571bc4693b25543e9074c2524dcb956194bbc608d584b0d";
const TINY16: &str = "85e22225303815af50bd362096131714bda0bcab9ee8d78410bcfe0fa9e33b7c";
const SDXL_TINY: &str = "9a3d281239cd1a8c24f47790f0dfeedfcd549c94366fb061a921658910a2aeb4";

#[test]
fn one_changed_weight_gives_another_identity_and_a_changed_decoder_does_not() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed.safetensors");
    let unchanged = read(&data("sdxl_tiny_f16"));
    for name in ["encoder.conv_in.bias", "encoder.mid_block.attentions.0.to_k.weight", "quant_conv.weight"] {
        let mut tensors = unchanged.clone();
        tensors.get_mut(name).unwrap().2[0] ^= 1;
        write(&path, &tensors);
        assert_ne!(Weights::open(&path).unwrap().identity().unwrap().to_hex(), SDXL_TINY, "{name}");
    }
    let mut tensors = unchanged;
    tensors.insert("decoder.conv_in.bias".into(), (Dtype::F16, vec![1], vec![3; 2]));
    tensors.insert("post_quant_conv.bias".into(), (Dtype::F16, vec![1], vec![3; 2]));
    write(&path, &tensors);
    assert_eq!(Weights::open(&path).unwrap().identity().unwrap().to_hex(), SDXL_TINY);
}

#[test]
fn full_checkpoints_name_their_family_and_bare_ones_do_not() {
    let dir = TempDir::new().unwrap();
    for (style, path) in key_styles(dir.path()) {
        let expected = match style {
            "full checkpoint" => DetectedFamily::Known(Family::Sd15),
            "all in one" => DetectedFamily::Known(Family::Sdxl),
            _ => DetectedFamily::Ambiguous { candidates: &[Family::Sd15, Family::Sdxl], default: Family::Sdxl },
        };
        assert_eq!(Weights::open(&path).unwrap().family(), expected, "{style}");
    }
    let flux = Weights::open(&data("flux_tiny_f16")).unwrap().family();
    let candidates = &[Family::Sd3, Family::Flux, Family::Chroma, Family::Lumina2, Family::ZImage];
    assert_eq!(flux, DetectedFamily::Ambiguous { candidates, default: Family::Flux });
}

/// Two different pictures of 64×64, and the encoder of the tiny SDXL VAE.
fn two_pictures() -> (Encoder, Vec<f32>) {
    let weights = Weights::open(&data("sdxl_tiny_f16")).unwrap();
    (encoder(&weights, Precision::F32), floats(&read(&data("sdxl_tiny_io"))["input_64x64"].2))
}

#[test]
fn a_batch_gives_the_same_bits_as_its_pictures_one_by_one() {
    let (encoder, pixels) = two_pictures();
    let images: Vec<&[f32]> = pixels.chunks_exact(3 * 64 * 64).collect();
    let size = Size::new(64, 64);
    let batch = encoder.encode(&images, size).unwrap();
    let single: Vec<_> = images.iter().flat_map(|image| encoder.encode(&[image], size).unwrap()).collect();
    assert_eq!(batch, single);
    assert_ne!(batch[0].mean, batch[1].mean);
    assert_eq!(encoder.encode(&[], size).unwrap(), []);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let (encoder, pixels) = two_pictures();
    let encode = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| encoder.encode(&[&pixels[..3 * 64 * 64]], Size::new(64, 64)).unwrap())
    };
    let one = encode(1);
    assert_eq!(one, encode(2));
    assert_eq!(one, encode(5));
}

#[test]
fn half_precisions_round_and_stay_near() {
    let weights = Weights::open(&data("sdxl_tiny_f16")).unwrap();
    let io = read(&data("sdxl_tiny_io"));
    // A rounding is 2^-11 (f16) or 2^-8 (bf16) of a value; about twenty layers add up to some tens of them.
    for (precision, least, most) in [(Precision::F16, 1e-4, 2e-2), (Precision::Bf16, 1e-3, 1e-1)] {
        let (mean, _) = worst(&encoder(&weights, precision), &io);
        assert!(mean > least && mean < most, "{} is off by {mean:e}", precision.name());
    }
}

#[test]
fn a_sample_is_reproducible_and_differs_by_key() {
    let (encoder, pixels) = two_pictures();
    let posterior = encoder.encode(&[&pixels[..3 * 64 * 64]], Size::new(64, 64)).unwrap().remove(0);
    let sample = posterior.sample(&[5; 32]);
    assert_eq!(sample, posterior.sample(&[5; 32]));
    assert_ne!(sample, posterior.sample(&[6; 32]));
    let first: Vec<f32> = prebake::vae::posterior::standard_normal(&[5; 32], 4);
    assert_eq!(first, NOISE_OF_KEY_5, "part of every sampled latent's key: bump ENCODER_REV when the noise changes");
}

const NOISE_OF_KEY_5: [f32; 4] = [-1.5817064, 0.3175791, -0.8099155, 0.9587646];

#[test]
fn a_side_that_is_no_multiple_of_eight_is_refused() {
    let (encoder, _) = two_pictures();
    let message = |size: Size, values: usize| encoder.encode(&[&vec![0.0; values]], size).unwrap_err().to_string();
    let allowed = "cannot be encoded, allowed are sides that are multiples of 8";
    assert_eq!(message(Size::new(64, 60), 3 * 64 * 60), format!("a picture of 64x60 {allowed}"));
    assert_eq!(message(Size::new(0, 64), 0), format!("a picture of 0x64 {allowed}"));
    assert_eq!(message(Size::new(8, 8), 64), "a picture of 8x8 has 64 values, allowed are 192");
    assert_eq!(encoder.encode(&[&[0.0; 192]], Size::new(8, 8)).unwrap()[0].shape, [4, 1, 1]);
}

fn refusal(path: &Path) -> (String, Option<String>) {
    let error = Weights::open(path).unwrap_err();
    let Error::Weights { message, hint, .. } = error else { panic!("not a weights error: {error}") };
    (message, hint)
}

#[test]
fn pickled_files_are_refused_unread_with_a_way_to_convert_them() {
    let dir = TempDir::new().unwrap();
    for name in ["model.ckpt", "model.pt", "model.BIN", "model.pth"] {
        let path = dir.path().join(name);
        std::fs::write(&path, b"\x80\x02ccodes\nexec\n").unwrap();
        let (message, hint) = refusal(&path);
        assert!(message.contains("pickles, which are never executed"), "{message}");
        assert!(hint.unwrap().contains("safetensors.torch.save_file"));
    }
    let disguised = dir.path().join("model.safetensors");
    std::fs::write(&disguised, b"PK\x03\x04 and so on").unwrap();
    assert_eq!(refusal(&disguised).0, "holds Python pickles, which are never executed");
}

#[test]
fn files_without_a_usable_encoder_say_what_is_wrong() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("weights.safetensors");
    let whole = read(&data("sdxl_tiny_f16"));
    let refused = |change: &dyn Fn(&mut Tensors)| {
        let mut tensors = whole.clone();
        change(&mut tensors);
        write(&path, &tensors);
        refusal(&path).0
    };
    let key = "encoder.conv_in.bias";
    assert_eq!(
        refused(&|t| t.retain(|name, _| name == "quant_conv.bias")),
        "holds no VAE encoder: looked for `encoder.conv_in.weight`, `first_stage_model.encoder.conv_in.weight`, \
         `vae.encoder.conv_in.weight`, and Wan's `encoder.conv1.weight`"
    );
    assert_eq!(refused(&|t| drop(t.remove(key))), "tensor `encoder.conv_in.bias` is missing");
    assert_eq!(
        refused(&|t| drop(t.insert(key.into(), (Dtype::F16, vec![16], vec![0; 32])))),
        "tensor `encoder.conv_in.bias` has shape [16], allowed is [32]"
    );
    assert_eq!(
        refused(&|t| drop(t.insert(key.into(), (Dtype::I8, vec![32], vec![0; 32])))),
        "tensor `encoder.conv_in.bias` has dtype I8, allowed are F32, F16 and BF16"
    );
    let landmark = "encoder.conv_in.weight";
    assert_eq!(
        refused(&|t| drop(t.insert(format!("vae.{landmark}"), t[landmark].clone()))),
        "holds 2 VAE encoders, under [\"\", \"vae.\"]; allowed is one"
    );
    assert!(
        refused(&|t| drop(t.insert("encoder.norm_out.bias".into(), (Dtype::F16, vec![1], vec![0; 2]))))
            .starts_with("two tensors stand for `encoder.conv_norm_out.bias`")
    );
}

#[test]
fn damaged_files_and_folders_are_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("weights.safetensors");
    let bytes = std::fs::read(data("sdxl_tiny_f16")).unwrap();
    for kept in [0, 4, 1000, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..kept]).unwrap();
        assert!(refusal(&path).0.starts_with("is not a whole safetensors file: "), "cut at {kept}");
    }
    assert_eq!(refusal(dir.path()).0, "is not a regular file; allowed is a `.safetensors` file");
    assert!(matches!(Weights::open(&dir.path().join("absent")), Err(Error::Io { .. })));
}
