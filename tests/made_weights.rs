//! The weights that `tests/data/vae/networks.py` makes out of names, made here again.
//!
//! Both the tests of the crate's face and those inside of it read this file, so it names nothing of the crate.

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How a file names its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Diffusers,
    Original,
}

/// Name, dtype, shape and bytes of a tensor.
pub(crate) type Made = (String, Dtype, Vec<usize>, Vec<u8>);

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/vae").join(name)
}

/// `count` numbers in [-1, 1): splitmix64 from the FNV-1a hash of `name`, 24 bits each.
fn uniform(name: &str, count: usize) -> impl Iterator<Item = f64> {
    let hash = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let seed = name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
    (1..=count as u64).map(move |i| {
        let mut state = seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((state ^ (state >> 31)) >> 40) as f64 / f64::from(1 << 23) - 1.0
    })
}

/// The f16 bytes of the tensor that diffusers calls `name`.
fn weight(name: &str, shape: &[usize]) -> Vec<u8> {
    let (offset, slope) = if name.ends_with("running_mean") {
        (0.0, 0.5)
    } else if name.ends_with("running_var") {
        (1.0, 0.5)
    } else if name.ends_with(".bias") {
        (0.0, 0.05)
    } else if name.ends_with("gamma") || shape.len() == 1 {
        (1.0, 0.1)
    } else {
        let taps = if shape.len() > 2 { shape[shape.len() - 2..].iter().product() } else { 1 };
        (0.0, (3.0 / (shape[1] * taps) as f64).sqrt())
    };
    let values = uniform(name, shape.iter().product()).map(|v| half::f16::from_f64(offset + slope * v));
    values.flat_map(half::f16::to_le_bytes).collect()
}

/// All encoder tensors of the tiny network `net`: `flux2`, `wan` or `hunyuan`.
pub(crate) fn tensors(net: &str, style: Style) -> Vec<Made> {
    type Row = (String, Vec<usize>, String, Vec<usize>);
    let text = std::fs::read_to_string(data("networks.json")).unwrap();
    let mut nets: BTreeMap<String, Vec<Row>> = serde_json::from_str(&text).unwrap();
    let made = |(name, shape, original, original_shape): Row| {
        let bytes = weight(&name, &shape);
        match style {
            Style::Diffusers => (name, Dtype::F16, shape, bytes),
            Style::Original => (original, Dtype::F16, original_shape, bytes),
        }
    };
    nets.remove(net).unwrap().into_iter().map(made).collect()
}

/// Writes `tensors` to a safetensors file in `dir`.
pub(crate) fn write(dir: &Path, tensors: &[Made]) -> PathBuf {
    let path = dir.join("made.safetensors");
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, &path).unwrap();
    path
}

/// What diffusers makes of one picture.
pub(crate) struct Golden {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// (3, H, W)
    pub(crate) pixels: Vec<f32>,
    pub(crate) mean: Vec<f32>,
    pub(crate) logvar: Vec<f32>,
    /// The mean patched and batch-normed; Flux.2 only.
    pub(crate) normed: Option<Vec<f32>>,
}

/// All goldens of `net`.
pub(crate) fn goldens(net: &str) -> Vec<Golden> {
    let bytes = std::fs::read(data("networks_io.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let floats = |name: String| {
        let tensor = file.tensor(&name).ok()?;
        Some(tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>())
    };
    let prefix = format!("{net}/mean_");
    let golden = |size: &str| {
        let (height, width) = size.split_once('x').unwrap();
        let (height, width): (usize, usize) = (height.parse().unwrap(), width.parse().unwrap());
        Golden {
            height,
            width,
            pixels: uniform(&format!("input_{size}"), 3 * height * width).map(|v| v as f32).collect(),
            mean: floats(format!("{net}/mean_{size}")).unwrap(),
            logvar: floats(format!("{net}/logvar_{size}")).unwrap(),
            normed: floats(format!("{net}/normed_{size}")),
        }
    };
    let mut sizes: Vec<&str> = file.names().into_iter().filter_map(|name| name.strip_prefix(&prefix)).collect();
    sizes.sort_unstable();
    sizes.into_iter().map(golden).collect()
}

/// Greatest absolute difference; NaN where either has one.
pub(crate) fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let larger = |worst: f32, d: f32| if d > worst || d.is_nan() { d } else { worst };
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, larger)
}
