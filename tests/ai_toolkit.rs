//! ai-toolkit: its own buckets and cache names, jobs as datasets, and what is stale when something changes.

use super::support::{Folder, Outcome, copy_tree, data, json_file, numbers, prebake, tiny_vae};
use prebake::bucket::ai_toolkit::Settings;
use prebake::bucket::{AiToolkitBuckets, Assignment, BucketRule};
use prebake::containers::{Array, Container};
use prebake::units::{Rect, Size};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;

#[test]
fn every_size_gets_the_bucket_the_scale_and_the_crop_that_ai_toolkit_gives() {
    let golden = json_file(&data("buckets/buckets-ai-toolkit.json"));
    let mut compared = 0;
    for config in golden["configs"].as_array().unwrap() {
        let number = |key: &str| config[key].as_u64().unwrap() as u32;
        let square_crop = config["square_crop"] == true;
        let settings =
            Settings { resolution: number("resolution"), step: number("divisibility"), scale: 1.0, square_crop };
        let rule = AiToolkitBuckets::new(settings).unwrap();
        for row in config["rows"].as_array().unwrap() {
            let row = numbers(row);
            let bucket = Size::new(row[2], row[3]);
            let expected =
                Assignment { bucket, resized: Size::new(row[4], row[5]), crop: Rect::new(row[6], row[7], bucket) };
            assert_eq!(rule.assign(Size::new(row[0], row[1])), Ok(expected), "{} {row:?}", config["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 1000);
}

#[test]
fn pixels_equal_those_that_the_trainers_own_code_gives_level_for_level() {
    let (folder, out) = (Folder::new(), Folder::new());
    copy_tree(&data("ai-toolkit/pixels/images"), folder.path());
    copy_tree(&data("musubi/pixels/images"), folder.path());
    let dataset = folder.path().to_str().unwrap();
    let arguments =
        ["pixels", dataset, "--for", "ai-toolkit", "--family", "sd15", "--resolution", "64", "--json", "-q"];
    let written = prebake(&[&arguments[..], &["-o", out.path().to_str().unwrap()]].concat()).json();
    let mut compared = 0;
    for file in written["files"].as_array().unwrap() {
        let name = file["path"].as_str().unwrap();
        let ours = image::open(out.join(file["png"].as_str().unwrap())).unwrap().into_rgb8();
        let golden = image::open(data(&format!("ai-toolkit/pixels/expected/{name}.png"))).unwrap().into_rgb8();
        assert_eq!(ours.dimensions(), golden.dimensions(), "{name}");
        assert!(ours == golden, "{name}: levels differ");
        compared += 1;
    }
    assert_eq!(compared, 33);
}

/// Every file of the trainer's cache folders below `folder`, by name.
fn caches(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let of = |sub: &str| match fs::read_dir(folder.join(sub)) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    let files = of("set/_latent_cache").into_iter().chain(of("set/sub/_latent_cache"));
    files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect()
}

/// A folder of two pictures with a job that names it.
fn with_job(lines: &str) -> Folder {
    let folder = Folder::new();
    folder.picture("set/a.png", 150, 100, 1);
    folder.picture("set/sub/b.png", 64, 96, 2);
    let head = "job: extension\nconfig:\n  name: dog\n  process:\n  - type: sd_trainer\n    model: {arch: sdxl}\n";
    folder.write("job.yaml", format!("{head}    datasets:\n    - folder_path: set\n{lines}"));
    folder
}

fn run(folder: &Folder, command: &str, flags: &[&str]) -> Outcome {
    let (job, vae) = (folder.join("job.yaml"), tiny_vae());
    let common = ["--for", "ai-toolkit", "--family", "sdxl", "--vae", vae.to_str().unwrap(), "--json", "-q"];
    prebake(&[&[command, job.to_str().unwrap()], &common[..], flags].concat())
}

/// The latents in a cache.
fn latent_of(bytes: &[u8]) -> Array {
    Container::Safetensors.read(bytes).unwrap().arrays.remove("latent").expect("a tensor `latent`")
}

const TWO_SIZES: &str = "      resolution: [64, 96]\n      cache_latents_to_disk: true\n";

#[test]
fn a_list_of_resolutions_bakes_as_many_caches_beside_each_other_once() {
    let folder = with_job(TWO_SIZES);
    let before = folder.inputs();
    assert_eq!(run(&folder, "plan", &[]).fine()["totals"]["missing"], 4);
    assert_eq!(run(&folder, "bake", &[]).fine()["encoded"], 4);
    let baked = caches(&folder);
    assert_eq!(baked.len(), 4);
    let mut shapes: Vec<_> = baked.values().map(|bytes| latent_of(bytes).shape).collect();
    shapes.sort();
    // Both pictures are closest to 64x64 at 64; at 96 they have 112x80 and 64x96.
    assert_eq!(shapes, [[4, 8, 8], [4, 8, 8], [4, 10, 14], [4, 12, 8]]);
    let again = run(&folder, "bake", &[]).fine();
    assert_eq!((again["encoded"].as_u64(), again["relinked"].as_u64()), (Some(0), Some(0)));
    assert_eq!(caches(&folder), baked);
    for (path, bytes) in before {
        assert_eq!(fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

#[test]
fn an_edited_picture_of_the_same_size_is_encoded_anew_under_the_same_name() {
    let folder = with_job("      resolution: 64\n");
    let first = run(&folder, "bake", &[]).fine();
    assert_eq!(first["encoded"], 2);
    let before = caches(&folder);
    folder.picture("set/a.png", 150, 100, 9);
    assert_eq!(run(&folder, "bake", &[]).fine()["encoded_paths"], json!(["set/a.png"]));
    let after = caches(&folder);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (name, bytes) in &after {
        assert_eq!(name.starts_with("a_"), *bytes != before[name], "{name}");
    }
}

#[test]
fn a_damaged_cache_is_replaced() {
    let folder = with_job("      resolution: 64\n");
    assert_eq!(run(&folder, "bake", &[]).fine()["encoded"], 2);
    let good = caches(&folder);
    let name = good.keys().find(|name| name.starts_with("a_")).unwrap();
    folder.write(&format!("set/_latent_cache/{name}"), &good[name][..100]);
    assert_eq!(run(&folder, "bake", &[]).fine()["encoded_paths"], json!(["set/a.png"]));
    assert_eq!(latent_of(&caches(&folder)[name]), latent_of(&good[name]));
}

#[test]
fn mirrored_copies_lie_in_files_of_their_own() {
    let folder = with_job("      resolution: 64\n      flip_x: true\n      flip_y: true\n");
    assert_eq!(run(&folder, "bake", &[]).fine()["encoded"], 2);
    let latents: Vec<_> = caches(&folder).values().map(|bytes| latent_of(bytes)).collect();
    assert_eq!(latents.len(), 8);
    for (index, latent) in latents.iter().enumerate() {
        assert!(!latents[..index].contains(latent), "two copies hold the same latents");
    }
}

#[test]
fn what_the_trainer_would_not_do_is_refused() {
    let folder = with_job("      random_crop: true\n");
    let outcome = run(&folder, "plan", &[]);
    assert!(outcome.code == 2 && outcome.stderr.contains("`random_crop` cannot be cached for"), "{outcome:?}");
    let folder = with_job("      resolution: 64\n");
    let outcome = run(&folder, "plan", &["--resolution", "96"]);
    assert!(outcome.code == 2 && outcome.stderr.contains("--resolution contradicts `resolution`"), "{outcome:?}");
    let outcome = run(&folder, "plan", &["--resize", "area"]);
    assert!(outcome.code == 2 && outcome.stderr.contains("--resize: ai-toolkit itself would get"), "{outcome:?}");
}
