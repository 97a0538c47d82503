//! The encoders of Flux.2, Wan 2.1 and HunyuanImage 2.1 against diffusers, under both names that their files use.

use crate::made_weights::{self, Style};
use prebake::recipe::{Precision, Space};
use prebake::units::Size;
use prebake::vae::device::{self, DeviceRequest};
use prebake::vae::{Encoder, Weights, space};
use tempfile::TempDir;

/// The stated tolerance: greatest absolute difference of an f32 mean from diffusers'.
const TOLERANCE: f32 = 2e-4;

const NETWORKS: [&str; 3] = ["flux2", "wan", "hunyuan"];

fn open(net: &str, style: Style) -> Weights {
    let dir = TempDir::new().unwrap();
    Weights::open(&made_weights::write(dir.path(), &made_weights::tensors(net, style))).unwrap()
}

fn encoder(weights: &Weights) -> Encoder {
    let device = device::open(&DeviceRequest::Cpu).unwrap().devices.remove(0).device;
    Encoder::new(weights, &device, Precision::F32).unwrap()
}

#[test]
fn latents_equal_those_of_diffusers_in_both_key_styles() {
    for (net, style) in NETWORKS.into_iter().flat_map(|net| [(net, Style::Diffusers), (net, Style::Original)]) {
        let weights = open(net, style);
        let encoder = encoder(&weights);
        let goldens = made_weights::goldens(net);
        assert!(!goldens.is_empty(), "{net}");
        for golden in goldens {
            let size = Size::new(golden.width as u32, golden.height as u32);
            let posterior = encoder.encode(&[&golden.pixels], size).unwrap().remove(0);
            let mean = made_weights::difference(&posterior.mean, &golden.mean);
            let logvar = made_weights::difference(&posterior.logvar, &golden.logvar);
            assert!(mean <= TOLERANCE && logvar <= TOLERANCE, "{net} {style:?} {size}: {mean:e}, {logvar:e}");
        }
    }
}

#[test]
fn latents_of_flux2_are_patched_and_normed_as_by_diffusers() {
    for style in [Style::Diffusers, Style::Original] {
        let weights = open("flux2", style);
        let (encoder, norm) = (encoder(&weights), weights.batch_norm());
        for golden in made_weights::goldens("flux2") {
            let size = Size::new(golden.width as u32, golden.height as u32);
            let posterior = encoder.encode(&[&golden.pixels], size).unwrap().remove(0);
            let stored = space::put(Space::BatchNormed, posterior.mean, posterior.shape, norm.as_ref()).unwrap();
            let off = made_weights::difference(&stored, &golden.normed.unwrap());
            assert!(off <= TOLERANCE, "{style:?} {size}: {off:e}");
        }
    }
}

#[test]
fn the_identity_is_that_of_the_weights_whatever_their_names() {
    for net in NETWORKS {
        let identity = |style| open(net, style).identity().unwrap();
        assert_eq!(identity(Style::Diffusers), identity(Style::Original), "{net}");
    }
}
