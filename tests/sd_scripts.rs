//! Artefacts beside those that sd-scripts 0.10.1 wrote itself for the same folder and weights.
//!
//! Its caches are a random draw; the golden encoders' log-variance lies at its floor, so that the draw is the mean to
//! about 1e-6 (the goldens' README).

use crate::support::{Folder, data, prebake};
use prebake::containers::{Array, Container, Contents};
use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &Path) -> Contents {
    Container::Npz.read(&fs::read(path).unwrap()).unwrap()
}

fn floats(array: &Array) -> Vec<f32> {
    array.bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// The golden folder with its caches set aside: (folder, golden caches of `suffix`).
fn golden(suffix: &str) -> (Folder, Vec<PathBuf>) {
    let folder = Folder::copy_of("sd-scripts/dataset");
    for (path, _) in folder.artefacts() {
        fs::remove_file(path).unwrap();
    }
    let mut goldens = Vec::new();
    for subset in ["3_sks dog", "2_masked"] {
        let entries = fs::read_dir(data("sd-scripts/dataset").join(subset)).unwrap();
        goldens.extend(entries.map(|entry| entry.unwrap().path()).filter(|p| p.to_string_lossy().ends_with(suffix)));
    }
    (folder, goldens)
}

fn bake(folder: &Folder, config: &str, family: &str, vae: &str) -> serde_json::Value {
    let (config, vae) = (folder.join(config), data(vae));
    let arguments = [
        "bake",
        config.to_str().unwrap(),
        "--for",
        "sd-scripts",
        "--family",
        family,
        "--vae",
        vae.to_str().unwrap(),
        "--json",
        "-q",
    ];
    prebake(&arguments).fine()
}

/// Every array of the golden is in ours: latents within 1e-4, everything else to the bit.
fn assert_same(ours: &Contents, golden: &Contents, name: &str) {
    assert_eq!(ours.arrays.keys().collect::<Vec<_>>(), golden.arrays.keys().collect::<Vec<_>>(), "{name}");
    assert!(ours.receipt.is_some());
    for (array_name, wanted) in &golden.arrays {
        let got = &ours.arrays[array_name];
        assert_eq!((got.dtype, &got.shape), (wanted.dtype, &wanted.shape), "{name} {array_name}");
        if array_name.starts_with("latents") {
            let worst = floats(got).iter().zip(floats(wanted)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= 1e-4, "{name} {array_name}: {worst}");
        } else {
            assert_eq!(got.bytes, wanted.bytes, "{name} {array_name}");
        }
    }
}

fn assert_equals_the_trainer(family: &str, suffix: &str, vae: &str) {
    let (folder, goldens) = golden(suffix);
    let summary = bake(&folder, "dataset.toml", family, vae);
    if family == "flux" {
        // The goldens hold both resolutions in one file.
        let _ = bake(&folder, "dataset_192.toml", family, vae);
    }
    assert_eq!((summary["encoded"].as_u64(), goldens.len()), (Some(5), 5));
    for golden in goldens {
        let relative = golden.strip_prefix(data("sd-scripts/dataset")).unwrap();
        assert_same(&read(&folder.path().join(relative)), &read(&golden), &relative.to_string_lossy());
    }
}

#[test]
fn sdxl_caches_equal_the_trainers_own() {
    assert_equals_the_trainer("sdxl", "_sdxl.npz", "vae/tiny4_ldm_f16.safetensors");
}

#[test]
fn sd15_caches_equal_the_trainers_own() {
    assert_equals_the_trainer("sd15", "_sd.npz", "vae/tiny4_ldm_f16.safetensors");
}

#[test]
fn sd3_caches_equal_the_trainers_own() {
    assert_equals_the_trainer("sd3", "_sd3.npz", "vae/tiny16_diffusers_f16.safetensors");
}

#[test]
fn flux_caches_of_two_resolutions_in_one_file_equal_the_trainers_own() {
    assert_equals_the_trainer("flux", "_flux.npz", "vae/tiny16_diffusers_f16.safetensors");
}
