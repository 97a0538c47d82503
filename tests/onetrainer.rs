//! OneTrainer's buckets: mgds' own answers.

use super::support::{Folder, data, json_file, numbers, tiny_vae};
use prebake::bucket::onetrainer::Settings;
use prebake::bucket::{Assignment, BucketRule, OneTrainerBuckets};
use prebake::units::Size;
use serde_json::Value;

fn settings_of(config: &Value) -> Settings {
    let quantization = config["quantization"].as_u64().unwrap_or(1) as u32;
    let resolution = config["resolution"].as_str().unwrap();
    match (config["kind"].as_str().unwrap(), resolution.split_once('x')) {
        ("single", _) => Settings::Square { resolution: resolution.parse().unwrap() },
        (_, None) => Settings::Buckets { resolution: resolution.parse().unwrap(), quantization },
        (_, Some((width, height))) => {
            let resolution = Size::new(width.parse().unwrap(), height.parse().unwrap());
            Settings::Fixed { resolution, quantization }
        }
    }
}

#[test]
fn every_size_gets_the_bucket_and_the_scale_that_onetrainer_gives() {
    let golden = json_file(&data("buckets/buckets-onetrainer-mgds.json"));
    let mut compared = 0;
    for config in golden["configs"].as_array().unwrap() {
        let rule = OneTrainerBuckets::new(settings_of(config)).unwrap();
        for row in config["rows"].as_array().unwrap() {
            let row = numbers(row);
            let Assignment { bucket, resized, .. } = rule.assign(Size::new(row[0], row[1])).unwrap();
            let got = [bucket.width, bucket.height, resized.width, resized.height];
            assert_eq!(got, row[2..], "{} {row:?}", config["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 1000);
}

#[test]
fn its_buckets_are_planned_and_its_caches_are_not_baked() {
    let folder = Folder::new();
    folder.picture("a.png", 150, 100, 1);
    let flags = ["--for", "onetrainer", "--family", "sdxl", "--resolution", "1024"];
    let plan = folder.run("plan", &[&flags[..], &["--json", "-q"]].concat()).fine();
    assert_eq!(plan["buckets"][0]["reso"], serde_json::json!([1280, 832]));
    let vae = tiny_vae();
    let refused = folder.run("bake", &[&flags[..], &["--vae", vae.to_str().unwrap()]].concat());
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--for onetrainer: its buckets are planned"), "{refused:?}");
}
