//! What an encode keeps resident, measured in a process of its own, against the formula that `plan` prints.
#![cfg(target_os = "linux")]

use prebake::recipe::Precision;
use prebake::units::Size;
use prebake::vae::device::{self, DeviceRequest};
use prebake::vae::memory::peak_bytes;
use prebake::vae::{Encoder, Weights};
use std::path::Path;
use std::process::Command;

/// Says to a test that it runs alone in its process.
const ALONE: &str = "PREBAKE_TEST_ALONE";

/// Runs `work` in a fresh process: other tests of this one share its memory.
fn alone(test: &str, work: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        // Working memory is counted by thread: on a large machine some would not have had their turn.
        rayon::ThreadPoolBuilder::new().num_threads(2).build_global().unwrap();
        return work();
    }
    let name = format!("{}::{test}", module_path!().split_once("::").map_or("memory", |(_, rest)| rest));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn encoder() -> (Encoder, Weights) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/vae/tiny4_diffusers_f16.safetensors");
    let weights = Weights::open(&path).unwrap();
    let device = device::open(&DeviceRequest::Cpu).unwrap().devices.remove(0).device;
    (Encoder::new(&weights, &device, Precision::F32).unwrap(), weights)
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn pixels(size: Size) -> Vec<f32> {
    (0..3 * size.area()).map(|i| (i % 255) as f32 / 127.5 - 1.0).collect()
}

#[test]
fn the_peak_is_what_the_formula_says() {
    alone("the_peak_is_what_the_formula_says", || {
        let (_, layout) = encoder();
        for size in [Size::new(512, 512), Size::new(1344, 704), Size::new(2048, 1024)] {
            let before = status("VmRSS:");
            let (encoder, pixels) = (encoder().0, pixels(size));
            encoder.encode(&[&pixels], size).unwrap();
            let picture = pixels.len() as u64 * 4;
            let grown = status("VmHWM:") - before - picture;
            let formula = peak_bytes(layout.layout(), size, 1, Precision::F32);
            assert!(grown <= formula, "{size}: {grown} bytes, the formula says {formula}");
            assert!(grown * 10 >= formula * 7, "{size}: only {grown} bytes, the formula says {formula}");
        }
    });
}

#[test]
fn two_hundred_encodes_leave_nothing_behind() {
    alone("two_hundred_encodes_leave_nothing_behind", || {
        let encoder = encoder().0;
        let sizes = [Size::new(64, 64), Size::new(96, 40)];
        let pictures = sizes.map(pixels);
        let encode = |round: usize| drop(encoder.encode(&[&pictures[round % 2]], sizes[round % 2]).unwrap());
        // Pictures so small may pass before the second thread wakes; its working memory comes with its first turn.
        (0..100).for_each(encode);
        let before = status("VmRSS:");
        (0..200).for_each(encode);
        let grown = status("VmRSS:").saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes more than before");
    });
}
