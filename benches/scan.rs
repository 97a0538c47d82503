//! Scanning a folder: the walk alone, hash and probe of every file, and the same with everything known.
//!
//! The folder is generated: PNG files of noise, 1.2 MB each, which do not compress, so that bytes are what costs.
//! Throughput is in bytes where files are read, in files where they are not; the page cache is warm.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prebake::dataset::{Known, Probed, ScanOptions, Unknown, probe, scan, walk};
use prebake::hash::ContentHash;
use prebake::progress::{Cancel, Silent};
use prebake::store::FileStat;
use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Mutex;

const FILES: u32 = 64;
const SIDE: u32 = 640;

/// Everything that was remembered, settled or not: what a second scan costs.
#[derive(Default)]
struct Everything(Mutex<HashMap<Vec<u8>, (ContentHash, Probed)>>);

impl Known for Everything {
    fn image(&self, path: &[u8], _stat: &FileStat) -> Option<(ContentHash, Probed)> {
        self.0.lock().unwrap().get(path).cloned()
    }

    fn remember(&self, path: &[u8], _stat: &FileStat, content: ContentHash, probed: &Probed) {
        self.0.lock().unwrap().insert(path.to_vec(), (content, probed.clone()));
    }
}

/// Writes the pictures and a caption each; returns the bytes of the pictures.
fn generate(folder: &Path) -> u64 {
    let mut bytes = 0;
    let mut state = 1_u64;
    for index in 0..FILES {
        let noise = image::RgbImage::from_fn(SIDE, SIDE, |_, _| {
            // A linear congruential generator (Knuth's MMIX constants); its high bytes are noise enough.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [.., a, b, c] = state.to_le_bytes();
            image::Rgb([a, b, c])
        });
        let path = folder.join(format!("{index:03}.png"));
        noise.save(&path).unwrap();
        std::fs::write(path.with_extension("txt"), "a picture of noise").unwrap();
        bytes += std::fs::metadata(&path).unwrap().len();
    }
    bytes
}

fn bench_scan(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = generate(folder.path());
    let mut group = criterion.benchmark_group("scan");
    group.sample_size(10).throughput(Throughput::Elements(u64::from(FILES)));
    group.bench_function("walk", |bencher| bencher.iter(|| walk(black_box(folder.path())).unwrap()));
    for threads in [1, 2] {
        let options = ScanOptions { threads: Some(threads), ..ScanOptions::default() };
        let run = |known: &dyn Known| scan(folder.path(), &options, known, &Silent, &Cancel::default()).unwrap();
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(format!("unknown/threads={threads}"), |bencher| bencher.iter(|| run(&Unknown)));
        let everything = Everything::default();
        let remembered = run(&Unknown);
        for image in &remembered.images {
            let path = folder.path().join(&image.relative);
            let content = image.content.unwrap();
            let probed = probe::probe(&image.path, &std::fs::read(&path).unwrap(), false);
            let stat = FileStat::of(&std::fs::metadata(&path).unwrap());
            everything.remember(image.relative.as_os_str().as_encoded_bytes(), &stat, content, &probed);
        }
        group.throughput(Throughput::Elements(u64::from(FILES)));
        group.bench_function(format!("known/threads={threads}"), |bencher| bencher.iter(|| run(&everything)));
    }
    group.finish();
}

fn bench_probe(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path());
    let bytes = std::fs::read(folder.path().join("000.png")).unwrap();
    let mut group = criterion.benchmark_group("one file");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("hash", |bencher| bencher.iter(|| ContentHash::of(black_box(&bytes))));
    group.bench_function("probe", |bencher| bencher.iter(|| probe::probe("a.png", black_box(&bytes), false)));
    group.bench_function("probe deep", |bencher| bencher.iter(|| probe::probe("a.png", black_box(&bytes), true)));
    group.finish();
}

criterion_group!(benches, bench_scan, bench_probe);
criterion_main!(benches);
