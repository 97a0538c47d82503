//! Encoding one picture on the CPU in f32, threads as rayon chooses (`RAYON_NUM_THREADS` limits them).
//!
//! `cargo bench --bench encode` (add `-- tiny` for the quick half). Ids are `encoder/size`; throughput is in pixels,
//! shown as elements. Weights are random: the time does not depend on their values. `full` is laid out as the SDXL
//! encoder, `tiny` has a quarter of its channels and one resnet a level.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use prebake::recipe::Precision;
use prebake::units::Size;
use prebake::vae::device::{self, DeviceRequest};
use prebake::vae::posterior::standard_normal;
use prebake::vae::{Encoder, EncoderLayout, Weights};
use safetensors::tensor::{Dtype, TensorView};

const SIZE: Size = Size::new(256, 256);

fn layout(block_out_channels: [usize; 4], layers_per_block: usize) -> EncoderLayout {
    EncoderLayout {
        block_out_channels: block_out_channels.to_vec(),
        layers_per_block,
        latent_channels: 4,
        quant_conv: true,
        mid_attention: true,
    }
}

/// An encoder whose weights keep activations near one: normal, divided by the root of the inputs that they sum over.
fn random_encoder(layout: &EncoderLayout) -> Encoder {
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = layout
        .tensors()
        .into_iter()
        .map(|(name, shape)| {
            let fan_in: usize = shape[1..].iter().product();
            let noise = standard_normal(blake3::hash(name.as_bytes()).as_bytes(), shape.iter().product());
            let bytes = noise.iter().flat_map(|v| (v / (fan_in as f32).sqrt()).to_le_bytes()).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("bytes fill it")));
    let file = tempfile::Builder::new().suffix(".safetensors").tempfile().expect("a temporary file");
    safetensors::serialize_to_file(views, None, file.path()).expect("room for the weights");
    let weights = Weights::open(file.path()).expect("a layout's own tensors make an encoder");
    let device = device::open(&DeviceRequest::Cpu).expect("the CPU").devices.remove(0).device;
    Encoder::new(&weights, &device, Precision::F32).expect("room for the weights")
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(SIZE.area())).sample_size(10);
    let pixels: Vec<f32> =
        standard_normal(&[0; 32], 3 * SIZE.area() as usize).iter().map(|v| v.clamp(-1.0, 1.0)).collect();
    for (name, layout) in [("tiny", layout([32, 64, 128, 128], 1)), ("full", layout([128, 256, 512, 512], 2))] {
        let encoder = random_encoder(&layout);
        group.bench_function(BenchmarkId::new(name, SIZE), |bencher| {
            bencher.iter(|| encoder.encode(&[&pixels], SIZE).expect("a size that the encoder takes"));
        });
    }
}

criterion_group!(benches, encode);
criterion_main!(benches);
