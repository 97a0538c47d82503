//! SimpleTuner: its pixels beside what its own code made, names, datasets lists, and what a bake leaves for it.

use crate::support::{Folder, Outcome, copy_tree, data, prebake, tiny_vae};
use prebake::containers::{Container, Contents, Dtype, torch};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// SHA-256 of `a`.
const A: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb.pt";
/// SHA-256 of `b`.
const B: &str = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d.pt";

/// An entry for the local folder `set` with its caches in `cache`.
fn entry(more: Value) -> Value {
    let mut entry = json!({
        "id": "photos", "type": "local", "instance_data_dir": "set", "cache_dir_vae": "cache",
        "resolution": 128, "resolution_type": "pixel_area", "crop": false, "crop_style": "center",
    });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

/// A dataset of two pictures in different folders, described by `entries`.
fn dataset(entries: Value) -> Folder {
    let folder = Folder::new();
    folder.picture("set/a.png", 200, 130, 1);
    folder.picture("set/sub/b.png", 100, 150, 2);
    folder.write("list.json", entries.to_string());
    folder
}

fn run(folder: &Folder, command: &str, flags: &[&str]) -> Outcome {
    let list = folder.join("list.json");
    let vae = tiny_vae();
    let arguments =
        [command, list.to_str().unwrap(), "--for", "simpletuner", "--vae", vae.to_str().unwrap(), "--json", "-q"];
    prebake(&[&arguments, flags].concat())
}

fn bake(folder: &Folder) -> Value {
    run(folder, "bake", &[]).fine()
}

fn read(path: &Path) -> Contents {
    Container::Torch(torch::Gzip::Read).read(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn pixels_equal_those_that_the_trainers_own_code_gives_level_for_level() {
    let folder = Folder::new();
    copy_tree(&data("simpletuner/pixels"), folder.path());
    let mut compared = 0;
    for name in ["stepped", "square", "corner"] {
        let (list, out) = (folder.join(&format!("{name}.json")), Folder::new());
        let arguments =
            ["pixels", list.to_str().unwrap(), "--for", "simpletuner", "--family", "sd15", "--bucket-step", "16"];
        let written = prebake(&[&arguments[..], &["--json", "-q", "-o", out.path().to_str().unwrap()]].concat()).fine();
        for file in written["files"].as_array().unwrap() {
            let path = file["path"].as_str().unwrap().strip_prefix("set/").unwrap();
            let ours = image::open(out.join(file["png"].as_str().unwrap())).unwrap().into_rgb8();
            let golden = image::open(folder.join(&format!("{name}/{path}.png"))).unwrap().into_rgb8();
            assert_eq!(ours.dimensions(), golden.dimensions(), "{name} {path}");
            assert!(ours == golden, "{name} {path}: levels differ");
            compared += 1;
        }
    }
    assert_eq!(compared, 27);
}

#[test]
fn alignments_below_64_are_warned_of_and_records_settle_them() {
    let folder = dataset(json!([entry(json!({}))]));
    let warned = |flags: &[&str]| {
        let plan = run(&folder, "plan", flags).json();
        let told = "below 64, SimpleTuner's may hang on the order in which it first sees the files";
        plan["problems"].as_array().unwrap().iter().any(|p| p["message"].as_str().unwrap().ends_with(told))
    };
    assert!(!warned(&["--family", "sd15"]));
    assert!(warned(&["--family", "sd15", "--bucket-step", "16"]));
    let record = |name: &str| {
        let path = folder.join(name).canonicalize().unwrap();
        let sizes = json!({"original_size": [200, 130], "target_size": [64, 64], "intermediary_size": [96, 64],
            "crop_coordinates": [0, 16], "aspect_ratio": 1.0});
        (path.to_str().unwrap().to_owned(), sizes)
    };
    let records: serde_json::Map<_, _> = ["set/a.png", "set/sub/b.png"].into_iter().map(record).collect();
    folder.write("set/aspect_ratio_bucket_metadata_photos.json", serde_json::Value::Object(records).to_string());
    assert!(!warned(&["--family", "sd15", "--bucket-step", "16"]));
}

#[test]
fn a_bake_puts_a_bare_bf16_tensor_under_the_hash_of_the_stem_and_a_second_one_does_nothing() {
    let folder = dataset(json!([entry(json!({})), {"id": "text", "type": "local", "dataset_type": "text_embeds"}]));
    let planned = run(&folder, "plan", &[]).fine();
    assert_eq!(planned["totals"]["missing"], 2);
    assert_eq!(bake(&folder)["encoded"], 2);
    for name in [format!("cache/{A}"), format!("cache/sub/{B}")] {
        let contents = read(&folder.join(&name));
        let tensor = &contents.arrays[torch::TENSOR];
        assert_eq!((tensor.dtype, &tensor.shape[..]), (Dtype::Bf16, &[4, 16, 16][..]), "{name}");
        assert!(contents.receipt.is_some(), "{name}");
    }
    assert_eq!(bake(&folder)["encoded"], 0);
}

#[test]
fn an_edited_picture_is_encoded_again_and_a_damaged_file_replaced() {
    let folder = dataset(json!([entry(json!({}))]));
    let _ = bake(&folder);
    let sound = fs::read(folder.join(&format!("cache/{A}"))).unwrap();
    folder.picture("set/sub/b.png", 100, 150, 9);
    fs::write(folder.join(&format!("cache/{A}")), &sound[..sound.len() / 2]).unwrap();
    let summary = bake(&folder);
    assert_eq!(summary["encoded_paths"], json!(["set/a.png", "set/sub/b.png"]));
    assert_eq!(fs::read(folder.join(&format!("cache/{A}"))).unwrap(), sound);
}

#[test]
fn what_lies_there_of_another_resolution_is_replaced() {
    let folder = dataset(json!([entry(json!({}))]));
    let _ = bake(&folder);
    folder.write("list.json", json!([entry(json!({"resolution": 192}))]).to_string());
    assert_eq!(bake(&folder)["encoded"], 2);
    assert!(read(&folder.join(&format!("cache/{A}"))).arrays[torch::TENSOR].shape[2] > 16);
}

#[test]
fn gzip_is_written_only_where_the_dataset_asks_for_it() {
    let folder = dataset(json!([entry(json!({"compress_cache": true}))]));
    let _ = bake(&folder);
    assert_eq!(fs::read(folder.join(&format!("cache/{A}"))).unwrap()[..2], [0x1f, 0x8b]);
    let folder = dataset(json!([entry(json!({}))]));
    let _ = bake(&folder);
    assert_eq!(fs::read(folder.join(&format!("cache/{A}"))).unwrap()[..2], *b"PK");
}

#[test]
fn two_pictures_of_one_stem_would_share_a_file_and_are_named() {
    let folder = dataset(json!([entry(json!({}))]));
    folder.picture("set/a.bmp", 64, 64, 3);
    let outcome = run(&folder, "bake", &[]);
    let named = outcome.problems("stem-collision");
    let left_out = named.iter().filter(|(_, severity)| severity == "error").map(|(path, _)| path.as_str());
    assert_eq!(left_out.collect::<Vec<_>>(), ["set/a.bmp", "set/a.png"]);
    assert!(!folder.join(&format!("cache/{A}")).exists());
}

#[test]
fn repeats_count_beyond_the_first_and_disabled_datasets_are_left_out() {
    let folder = dataset(json!([entry(json!({"repeats": 2})), {"id": "off", "type": "aws", "disabled": true}]));
    let summary = run(&folder, "plan", &[]).fine();
    // Once and two times more, for each of two pictures.
    assert_eq!(summary["buckets"][0]["repeats"], 6);
}

#[test]
fn what_cannot_be_cached_soundly_is_named_and_the_others_are_baked() {
    for (bad, word) in [
        (json!({"id": "cloud", "type": "aws"}), "aws"),
        (json!({"id": "cloud", "type": "huggingface"}), "huggingface"),
        (json!({"id": "cloud", "type": "csv"}), "csv"),
        (json!({"id": "film", "type": "local", "dataset_type": "video"}), "video"),
        (entry(json!({"id": "drawn", "crop": true, "crop_style": "random"})), "random"),
        (entry(json!({"id": "drawn", "crop": true, "crop_style": "face"})), "face"),
        (entry(json!({"id": "odd", "resolution_type": "miles"})), "miles"),
    ] {
        let folder = dataset(json!([bad, entry(json!({}))]));
        let outcome = run(&folder, "plan", &[]);
        let json = outcome.json();
        let problems = json["problems"].as_array().unwrap();
        let named = problems.iter().any(|p| p["severity"] == "error" && p["message"].as_str().unwrap().contains(word));
        assert!(named && outcome.code == 1, "{word}: {outcome:?}");
        let alone = dataset(json!([bad]));
        assert_eq!(run(&alone, "plan", &[]).code, 2, "{word}");
    }
}

#[test]
fn keys_that_are_not_known_are_named_in_one_warning() {
    let folder = dataset(json!([entry(json!({"resolutoin": 3, "probability": 0.5}))]));
    let list = folder.join("list.json");
    let outcome = prebake(&["plan", list.to_str().unwrap(), "--for", "simpletuner", "--family", "sd15"]);
    assert!(outcome.stderr.contains("these keys are not honoured: resolutoin"), "{outcome:?}");
}

#[test]
fn the_trainers_own_record_of_sizes_is_followed() {
    let folder = dataset(json!([entry(json!({}))]));
    let a = fs::canonicalize(folder.join("set/a.png")).unwrap();
    let record = json!({a.to_str().unwrap(): {
        "original_size": [200, 130], "target_size": [192, 128], "intermediary_size": [196, 128],
        "crop_coordinates": [0, 3], "aspect_ratio": 1.5,
    }});
    folder.write("set/aspect_ratio_bucket_metadata_photos.json", record.to_string());
    let _ = bake(&folder);
    assert_eq!(read(&folder.join(&format!("cache/{A}"))).arrays[torch::TENSOR].shape, [4, 16, 24]);
}

#[test]
fn flags_that_the_trainer_has_no_equal_for_are_refused() {
    let folder = dataset(json!([entry(json!({}))]));
    for flags in [&["--flip"][..], &["--max-area", "65536"], &["--icc", "apply"], &["--resolution", "512"]] {
        let outcome = run(&folder, "plan", flags);
        assert_eq!(outcome.code, 2, "{flags:?}: {outcome:?}");
    }
}

#[test]
fn a_plain_folder_gets_its_caches_below_itself_and_is_told_how_to_use_them() {
    let folder = Folder::new();
    folder.picture("a.png", 128, 128, 1);
    let vae = tiny_vae();
    let flags = ["--for", "simpletuner", "--resolution", "128", "--vae", vae.to_str().unwrap()];
    let outcome = folder.run("bake", &flags);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(folder.join(&format!("simpletuner-vae/{A}")).is_file());
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(said.contains("cache_dir_vae") && said.contains("--vae_dtype bf16"), "{said}");
}
