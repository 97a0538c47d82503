//! Encoding on the CPU in f32: seconds a picture and peak memory, in the words that the rivals' scripts use.
//!
//! ```text
//! cargo bench --bench encode -- [--vae FILE | --network sdxl|wan|hunyuan-image] [--size 512|1344x704]… [--runs 5]
//!     [--threads 2] [--input X --save OUT]
//! ```
//! Without `--vae` the weights are random, laid out as SDXL's or the other network's: the time does not depend on them. Prints a JSON
//! line for each size: best and median wall seconds, best processor seconds, and the peak of the resident memory while
//! encoding (weights included, what the run before it needed too). `--input` takes the picture from the tensor `x`,
//! (1, 3, H, W), of a safetensors file; `--save` writes the latent mean to one, as `mean`.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use prebake::recipe::Precision;
use prebake::units::Size;
use prebake::vae::device::{self, DeviceRequest};
use prebake::vae::posterior::standard_normal;
use prebake::vae::{Encoder, EncoderLayout, Network, Posterior, Weights};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

struct Options {
    vae: Option<PathBuf>,
    network: String,
    sizes: Vec<Size>,
    runs: usize,
    threads: usize,
    input: Option<PathBuf>,
    save: Option<PathBuf>,
}

impl Options {
    fn parse() -> Self {
        let mut options =
            Self { vae: None, network: "sdxl".into(), sizes: Vec::new(), runs: 5, threads: 2, input: None, save: None };
        let mut args = std::env::args().skip(1);
        while let Some(flag) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{flag} needs a value"));
            match flag.as_str() {
                // cargo adds this one itself.
                "--bench" => {}
                "--vae" => options.vae = Some(value().into()),
                "--network" => options.network = value(),
                "--size" => options.sizes.push(parse_size(&value())),
                "--runs" => options.runs = value().parse().expect("a number of runs"),
                "--threads" => options.threads = value().parse().expect("a number of threads"),
                "--input" => options.input = Some(value().into()),
                "--save" => options.save = Some(value().into()),
                other => panic!("unknown flag {other}"),
            }
        }
        if options.sizes.is_empty() {
            options.sizes = vec![Size::new(256, 256), Size::new(512, 512)];
        }
        options
    }
}

/// `512` or `1344x704`, height first as in the rivals' scripts.
fn parse_size(text: &str) -> Size {
    let (height, width) = text.split_once('x').unwrap_or((text, text));
    Size::new(width.parse().expect("a width"), height.parse().expect("a height"))
}

fn main() {
    let options = Options::parse();
    rayon::ThreadPoolBuilder::new().num_threads(options.threads).build_global().expect("the first pool");
    let weights = match &options.vae {
        Some(path) => Weights::open(path).expect("a VAE"),
        None => random_weights(&layout(&options.network)),
    };
    let device = device::open(&DeviceRequest::Cpu).expect("the CPU").devices.remove(0).device;
    let encoder = Encoder::new(&weights, &device, Precision::F32).expect("room for the weights");
    for &size in &options.sizes {
        let pixels = options.input.as_deref().map_or_else(|| noise(size), read_input);
        let (mut wall, mut cpu) = (Vec::new(), Vec::new());
        // The first encode meets cold memory.
        for _ in 0..=options.runs {
            let (before, start) = (processor_seconds(), Instant::now());
            let posterior = encoder.encode(&[&pixels], size).expect("a size that the encoder takes");
            wall.push(start.elapsed().as_secs_f64());
            cpu.push(processor_seconds() - before);
            if let Some(path) = &options.save {
                save(path, &posterior[0]);
            }
        }
        println!("{}", line(size, &mut wall[1..], &mut cpu[1..]));
    }
}

fn line(size: Size, wall: &mut [f64], cpu: &mut [f64]) -> serde_json::Value {
    wall.sort_by(f64::total_cmp);
    cpu.sort_by(f64::total_cmp);
    let round = |seconds: f64| (seconds * 1e3).round() / 1e3;
    json!({
        "size": [size.height, size.width],
        "best_s": round(wall[0]),
        "median_s": round(wall[wall.len() / 2]),
        "cpu_best_s": round(cpu[0]),
        "peak_rss_mib": status("VmHWM:") / 1024,
    })
}

fn noise(size: Size) -> Vec<f32> {
    let values = 3 * size.area() as usize;
    standard_normal(&[0; 32], values).iter().map(|v| v.clamp(-1.0, 1.0)).collect()
}

fn read_input(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("the input");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let x = file.tensor("x").expect("a tensor `x`");
    x.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn save(path: &Path, posterior: &Posterior) {
    let bytes: Vec<u8> = posterior.mean.iter().flat_map(|v| v.to_le_bytes()).collect();
    let shape = [&[1], &posterior.shape[..]].concat();
    let view = TensorView::new(Dtype::F32, shape, &bytes).expect("bytes fill it");
    safetensors::serialize_to_file([("mean", view)], None, path).expect("room for the latents");
}

/// The released encoder of a name.
fn layout(network: &str) -> EncoderLayout {
    match network {
        "sdxl" => EncoderLayout::kl(&[128, 256, 512, 512], 2, 4, true),
        "wan" => EncoderLayout { network: Network::Wan, ..EncoderLayout::kl(&[96, 192, 384, 384], 2, 16, true) },
        "hunyuan-image" => EncoderLayout {
            network: Network::HunyuanImage,
            ..EncoderLayout::kl(&[128, 256, 512, 512, 1024, 1024], 2, 64, false)
        },
        other => panic!("unknown network {other}"),
    }
}

/// A name by which the file tells its network: HunyuanImage's is known by its shapes, Wan's by one norm.
fn file_name(layout: &EncoderLayout, name: &str) -> String {
    let original = |name: &str| name.replace("down_blocks", "down").replace("resnets", "block");
    match layout.network {
        Network::Kl => name.to_owned(),
        Network::HunyuanImage => original(name).replace("downsamplers.0", "downsample"),
        Network::Wan => wan_name(name, layout.layers_per_block),
    }
}

/// Wan's name in diffusers: all resnets and downsamplers in one row.
fn wan_name(name: &str, layers: usize) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    let index = |text: &str| text.parse::<usize>().expect("an index");
    match parts.as_slice() {
        ["encoder", "down_blocks", level, "resnets", layer, "norm1", _] if *level == "0" => {
            format!("encoder.down_blocks.{layer}.norm1.gamma")
        }
        ["encoder", "down_blocks", level, "resnets", layer, rest @ ..] => {
            format!("encoder.down_blocks.{}.{}", index(level) * (layers + 1) + index(layer), rest.join("."))
        }
        ["encoder", "down_blocks", level, "downsamplers", "0", "conv", rest] => {
            format!("encoder.down_blocks.{}.resample.1.{rest}", index(level) * (layers + 1) + layers)
        }
        _ => name.to_owned(),
    }
}

/// An encoder whose weights keep activations near one: normal, divided by the root of the inputs that they sum over.
fn random_weights(layout: &EncoderLayout) -> Weights {
    let tensors = layout.tensors().into_iter().map(|(name, shape)| {
        let fan_in: usize = shape[1..].iter().product();
        let noise = standard_normal(blake3::hash(name.as_bytes()).as_bytes(), shape.iter().product());
        let bytes: Vec<u8> = noise.iter().flat_map(|v| (v / (fan_in as f32).sqrt()).to_le_bytes()).collect();
        (name, shape, bytes)
    });
    let tensors: Vec<_> = tensors.map(|(name, shape, bytes)| (file_name(layout, &name), shape, bytes)).collect();
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("bytes fill it")));
    let file = tempfile::Builder::new().suffix(".safetensors").tempfile().expect("a temporary file");
    safetensors::serialize_to_file(views, None, file.path()).expect("room for the weights");
    Weights::open(file.path()).expect("a layout's own tensors make an encoder")
}

/// A number of kB or so from this process's status; 0 where the system does not tell.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Processor time of all threads so far; 0 where the system does not tell.
fn processor_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanoseconds.sum::<u64>() as f64 / 1e9
}
