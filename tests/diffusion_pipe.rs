//! diffusion-pipe's buckets: its own answers.

use super::support::{Folder, data, json_file, numbers, tiny_vae};
use prebake::bucket::diffusion_pipe::{Ratios, Settings};
use prebake::bucket::{BucketRule, DiffusionPipeBuckets};
use prebake::units::Size;
use serde_json::Value;

fn ratios_of(config: &Value) -> Ratios {
    if config["enable_ar_bucket"] != true {
        return Ratios::Square;
    }
    match config["ar_buckets"].as_array() {
        Some(pairs) => Ratios::Listed(pairs.iter().map(|pair| ratio(&numbers(pair))).collect()),
        None => Ratios::Spaced {
            min: config["min_ar"].as_f64().unwrap(),
            max: config["max_ar"].as_f64().unwrap(),
            count: config["num_ar_buckets"].as_u64().unwrap() as u32,
        },
    }
}

fn ratio(pair: &[u32]) -> f64 {
    f64::from(pair[0]) / f64::from(pair[1])
}

/// One rule for each resolution.
fn rules_of(config: &Value, multiple: u32) -> Vec<DiffusionPipeBuckets> {
    if let Some(sizes) = config["size_buckets"].as_array() {
        let size = |size: &Value| {
            let [width, height, frames] = numbers(size)[..] else { panic!("{size}") };
            (Size::new(width, height), frames)
        };
        let sizes = sizes.iter().map(size).collect();
        return vec![DiffusionPipeBuckets::new(Settings::Sizes { sizes, multiple }).unwrap()];
    }
    let rule = |resolution: &Value| {
        let side = resolution.as_f64().unwrap_or_else(|| {
            let pair = numbers(resolution);
            (f64::from(pair[0]) * f64::from(pair[1])).sqrt()
        });
        let settings = Settings::Ratios { resolution: side, ratios: ratios_of(config), multiple };
        DiffusionPipeBuckets::new(settings).unwrap()
    };
    config["resolutions"].as_array().unwrap().iter().map(rule).collect()
}

#[test]
fn every_size_gets_the_buckets_that_diffusion_pipe_gives() {
    let golden = json_file(&data("buckets/buckets-diffusion-pipe.json"));
    let mut compared = 0;
    for config in golden["configs"].as_array().unwrap() {
        let rules = rules_of(&config["config"], config["round_to_multiple"].as_u64().unwrap() as u32);
        for row in config["rows"].as_array().unwrap() {
            let source = Size::new(row[0].as_u64().unwrap() as u32, row[1].as_u64().unwrap() as u32);
            let pair = |rule: &DiffusionPipeBuckets| <[u32; 2]>::from(rule.assign(source).unwrap().bucket).to_vec();
            let got: Vec<Vec<u32>> = rules.iter().map(pair).collect();
            let expected: Vec<Vec<u32>> = row[3].as_array().unwrap().iter().map(numbers).collect();
            assert_eq!(got, expected, "{} {source}", config["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 1200);
}

#[test]
fn its_buckets_are_planned_and_its_caches_are_not_baked() {
    let folder = Folder::new();
    folder.picture("a.png", 150, 100, 1);
    let flags = ["--for", "diffusion-pipe", "--family", "sdxl", "--resolution", "1024"];
    let plan = folder.run("plan", &[&flags[..], &["--json", "-q"]].concat()).fine();
    assert_eq!(plan["buckets"][0]["reso"], serde_json::json!([1296, 816]));
    let vae = tiny_vae();
    let refused = folder.run("bake", &[&flags[..], &["--vae", vae.to_str().unwrap()]].concat());
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--for diffusion-pipe: its buckets are planned"), "{refused:?}");
}
