//! Decoding and the whole pixel chain, by format, in pixels of the file a second.
//!
//! `cargo bench --bench decode_resize`. PNG and BMP of 4032x3024 are made here; JPEGs are taken from `sample_data`
//! where there are any, since the crate has no JPEG encoder.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use image::{ImageFormat, RgbImage};
use prebake::pixels::{Format, decode, prepare};
use prebake::recipe::{Alpha, Colour, Decoder, PixelRecipe, Resample};
use prebake::units::{Rect, Size};
use std::io::Cursor;
use std::path::Path;

const CAMERA: Size = Size::new(4032, 3024);

/// A smooth picture with a little noise: deflate and filters get something to do, as with a photograph.
fn photograph_like() -> RgbImage {
    let mut noise = 1_u32;
    RgbImage::from_fn(CAMERA.width, CAMERA.height, |x, y| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let grain = (noise >> 29) as u8;
        let wave = |phase: f32| (127.0 + 110.0 * ((x as f32 * 0.003 + y as f32 * 0.002 + phase).sin())) as u8;
        image::Rgb([wave(0.0) + grain, wave(2.0) + grain, wave(4.0) + grain])
    })
}

fn encoded(picture: &RgbImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).expect("both encoders are built in and write to memory");
    bytes.into_inner()
}

/// Name and bytes of each JPEG directly in `sample_data` or one folder below.
fn sample_jpegs() -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_data");
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<_> =
        entries(&root).flat_map(|path| entries(&path).chain([path.clone()]).collect::<Vec<_>>()).collect();
    paths.sort();
    let files = paths.into_iter().filter(|path| path.is_file());
    let read = files.filter_map(|path| {
        let bytes = std::fs::read(&path).ok().filter(|bytes| Format::sniff(bytes) == Some(Format::Jpeg))?;
        Some((path.file_name()?.to_string_lossy().into_owned(), bytes))
    });
    read.collect()
}

/// The recipe of a picture shrunk to about one megapixel and cut to a multiple of 64.
fn to_one_megapixel(from: Size) -> PixelRecipe {
    let scale = (1024.0 * 1024.0 / from.area() as f64).sqrt().min(1.0);
    let side = |length: u32| ((f64::from(length) * scale) as u32).max(64);
    let resized = Size::new(side(from.width), side(from.height));
    let crop = Rect::new(0, 0, Size::new(resized.width / 64 * 64, resized.height / 64 * 64));
    PixelRecipe {
        decoder: Decoder::Pillow,
        orientation: 1,
        colour: Colour::AsStored,
        clip_gray16: false,
        alpha: Alpha::Drop,
        resample: (resized != from).then_some(Resample::Cv2Area),
        resized,
        crop,
        mirrored: false,
    }
}

fn bench(criterion: &mut Criterion) {
    let picture = photograph_like();
    let mut files = vec![
        ("png".to_owned(), encoded(&picture, ImageFormat::Png)),
        ("bmp".to_owned(), encoded(&picture, ImageFormat::Bmp)),
    ];
    files.extend(sample_jpegs());
    let mut group = criterion.benchmark_group("decode_resize");
    group.sample_size(10);
    for (name, bytes) in &files {
        let Ok(decoded) = decode(bytes) else { continue };
        let size = decoded.raster.size;
        group.throughput(Throughput::Elements(size.area()));
        group.bench_with_input(BenchmarkId::new(format!("decode/{name}"), size), bytes, |b, bytes| {
            b.iter(|| decode(bytes));
        });
        let recipe = to_one_megapixel(size);
        group.bench_with_input(BenchmarkId::new(format!("prepare/{name}"), size), bytes, |b, bytes| {
            b.iter(|| prepare(bytes, &recipe));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
