//! Encoding on the CPU in f32: seconds a picture and peak memory, in the words that the rivals' scripts use.
//!
//! ```text
//! cargo bench --bench encode -- [--vae FILE] [--size 512|1344x704]… [--runs 5] [--threads 2] [--input X --save OUT]
//! ```
//! Without `--vae` the weights are random, laid out as SDXL's: the time does not depend on their values. Prints a JSON
//! line for each size: best and median wall seconds, best processor seconds, and the peak of the resident memory while
//! encoding (weights included, what the run before it needed too). `--input` takes the picture from the tensor `x`,
//! (1, 3, H, W), of a safetensors file; `--save` writes the latent mean to one, as `mean`.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use prebake::recipe::Precision;
use prebake::units::Size;
use prebake::vae::device::{self, DeviceRequest};
use prebake::vae::posterior::standard_normal;
use prebake::vae::{Encoder, EncoderLayout, Weights};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

struct Options {
    vae: Option<PathBuf>,
    sizes: Vec<Size>,
    runs: usize,
    threads: usize,
    input: Option<PathBuf>,
    save: Option<PathBuf>,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self { vae: None, sizes: Vec::new(), runs: 5, threads: 2, input: None, save: None };
        let mut args = std::env::args().skip(1);
        while let Some(flag) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{flag} needs a value"));
            match flag.as_str() {
                // cargo adds this one itself.
                "--bench" => {}
                "--vae" => options.vae = Some(value().into()),
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
    let weights = options.vae.as_deref().map_or_else(random_weights, |path| Weights::open(path).expect("a VAE"));
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
                save(path, &posterior[0].mean, size);
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

fn save(path: &Path, mean: &[f32], size: Size) {
    let bytes: Vec<u8> = mean.iter().flat_map(|v| v.to_le_bytes()).collect();
    let (height, width) = (size.height as usize / 8, size.width as usize / 8);
    let shape = vec![1, mean.len() / (height * width), height, width];
    let view = TensorView::new(Dtype::F32, shape, &bytes).expect("bytes fill it");
    safetensors::serialize_to_file([("mean", view)], None, path).expect("room for the latents");
}

/// An encoder whose weights keep activations near one: normal, divided by the root of the inputs that they sum over.
fn random_weights() -> Weights {
    let layout = EncoderLayout {
        block_out_channels: vec![128, 256, 512, 512],
        layers_per_block: 2,
        latent_channels: 4,
        quant_conv: true,
        mid_attention: true,
    };
    let tensors = layout.tensors().into_iter().map(|(name, shape)| {
        let fan_in: usize = shape[1..].iter().product();
        let noise = standard_normal(blake3::hash(name.as_bytes()).as_bytes(), shape.iter().product());
        let bytes: Vec<u8> = noise.iter().flat_map(|v| (v / (fan_in as f32).sqrt()).to_le_bytes()).collect();
        (name, shape, bytes)
    });
    let tensors: Vec<_> = tensors.collect();
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
