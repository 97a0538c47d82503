//! The small input folders with expected results, through the built binary. Each names the reports it comes from in
//! its README under `tests/data/cases`.

use crate::support::{Folder, Outcome, data, tiny_vae};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn expected(case: &str) -> Value {
    serde_json::from_slice(&fs::read(data(&format!("cases/{case}/expected.json"))).unwrap()).unwrap()
}

fn case(name: &str) -> Folder {
    Folder::copy_of(&format!("cases/{name}/data"))
}

fn bake(folder: &Folder, flags: &[&str]) -> Outcome {
    let vae = tiny_vae();
    folder.run("bake", &[&["--vae", vae.to_str().unwrap(), "--json", "-q"], flags].concat())
}

fn named(outcome: &Outcome, kinds: &[&str]) -> BTreeSet<String> {
    kinds.iter().flat_map(|kind| outcome.problems(kind)).map(|(path, _)| path).collect()
}

/// The picture as the encoder would get it.
fn pixels(folder: &Folder, flags: &[&str]) -> (Folder, Outcome) {
    let out = Folder::new();
    let flags = [flags, &["-o", out.path().to_str().unwrap(), "--json", "-q"]].concat();
    let outcome = folder.run("pixels", &flags);
    (out, outcome)
}

fn open(out: &Folder, path: &str) -> image::RgbImage {
    image::open(out.join(&format!("{}.png", path.replace('/', "__")))).unwrap().into_rgb8()
}

/// Holds probe pixels of a case against the picture that the encoder gets at full size.
fn assert_probes(out: &Folder, path: &str, probes: &Value) {
    let picture = open(out, path);
    for probe in probes.as_array().unwrap() {
        let number = |value: &Value| value.as_u64().unwrap() as u32;
        let (x, y) = (number(&probe["at"][0]), number(&probe["at"][1]));
        let tolerance = number(&probe["tol"]);
        for (channel, &got) in picture.get_pixel(x, y).0.iter().enumerate() {
            let wanted = number(&probe["rgb"][channel]);
            assert!(wanted.abs_diff(u32::from(got)) <= tolerance, "{path} at {x},{y}: {got} for {wanted}");
        }
    }
}

#[test]
fn s01_all_orientations_of_one_poster_land_upright_in_one_portrait_bucket() {
    let folder = case("s01-exif-orientation");
    let (out, outcome) = pixels(&folder, &[]);
    let files = outcome.fine()["files"].as_array().unwrap().clone();
    assert_eq!(files.len(), 8);
    assert!(files.iter().all(|file| file["bucket"] == json!([384, 576])));
    for (name, file) in expected("s01-exif-orientation")["files"].as_object().unwrap() {
        assert_probes(&out, name, &file["pixels"]);
    }
    let scan = folder.run("scan", &["--json", "-q"]).fine();
    for sample in scan["samples"].as_array().unwrap() {
        assert_eq!(sample["upright"], json!([384, 576]));
        let stored = &expected("s01-exif-orientation")["files"][sample["path"].as_str().unwrap()]["stored_size"];
        assert_eq!(json!([sample["width"], sample["height"]]), *stored);
    }
    assert_eq!(bake(&folder, &[]).fine()["encoded"], 8);
}

#[test]
fn s01_for_sd_scripts_the_stored_pixels_stay_and_the_files_are_named() {
    let outcome = case("s01-exif-orientation").run("plan", &["--for", "sd-scripts", "--json", "-q"]);
    let turned: BTreeSet<String> = (2..=8).map(|n| format!("o{n}.jpg")).collect();
    assert_eq!(named(&outcome, &["oriented"]), turned);
    assert_eq!(outcome.code, 0);
}

#[test]
fn s02_transparency_becomes_one_declared_colour() {
    let folder = case("s02-transparent-png");
    let wanted = expected("s02-transparent-png");
    let (out, outcome) = pixels(&folder, &[]);
    let transparent: BTreeSet<String> =
        wanted["has_transparency"].as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect();
    assert_eq!(named(&outcome, &["alpha"]), transparent);
    for (name, file) in wanted["files_if_background_white"].as_object().unwrap() {
        assert_probes(&out, name, &file["pixels"]);
    }
    let (black, _) = pixels(&folder, &["--background", "000000"]);
    assert_eq!(open(&black, "hidden_garbage.png").get_pixel(10, 10).0, [0, 0, 0]);
    assert_eq!(bake(&folder, &[]).fine()["encoded"], 4);
    let again = bake(&folder, &["--background", "000000"]).fine();
    assert_eq!(again["encoded"], 3, "the opaque picture has no background");
}

#[test]
fn s03_damaged_files_are_all_named_in_one_run_and_the_rest_is_baked() {
    let folder = case("s03-truncated-images");
    for flags in [&["--json", "-q"][..], &["--json", "-q", "--deep"]] {
        let scan = folder.run("scan", flags);
        assert_eq!(scan.code, 1);
        let bad: BTreeSet<String> = named(&scan, &["damaged", "empty", "not-image"]);
        let wanted = expected("s03-truncated-images");
        let files = wanted["files"].as_object().unwrap();
        let damaged: BTreeSet<String> =
            files.iter().filter(|(_, f)| f["status"] == "damaged").map(|(n, _)| n.clone()).collect();
        assert_eq!(bad.difference(&damaged).collect::<Vec<_>>(), Vec::<&String>::new());
        assert_eq!(damaged.difference(&bad).collect::<Vec<_>>(), Vec::<&String>::new());
    }
    let outcome = bake(&folder, &[]);
    assert_eq!((outcome.code, outcome.json()["encoded"].as_u64()), (1, Some(3)));
    assert_eq!(outcome.json()["failed"].as_array().unwrap().len(), 7);
}

#[test]
fn s04_names_that_collide_keep_their_own_latents_and_captions() {
    let folder = case("s04-stem-collision");
    let wanted = expected("s04-stem-collision");
    let scan = folder.run("scan", &["--json", "-q"]);
    assert_eq!(scan.json()["images"], 8);
    for sample in scan.json()["samples"].as_array().unwrap() {
        let caption = fs::read_to_string(folder.join(sample["caption_path"].as_str().unwrap())).unwrap();
        assert_eq!(wanted["captions"][sample["path"].as_str().unwrap()], caption.trim());
    }
    assert_eq!(named(&scan, &["stem-collision"]), ["cat.jpg", "cat.png"].map(str::to_owned).into());
    assert_eq!(named(&scan, &["orphan-caption"]), ["a.txt".to_owned()].into());
    assert_eq!(scan.json()["duplicates"], json!([["dup/copy1.png", "dup/copy2.png"]]));
    let summary = bake(&folder, &[]).fine();
    assert_eq!((summary["encoded"].as_u64(), summary["reused"].as_u64()), (Some(7), Some(1)));
    assert_eq!(folder.artefacts().len(), 7);
    let plan = folder.run("plan", &["--json", "-q"]).fine();
    let artefacts: BTreeSet<&str> =
        plan["samples"].as_array().unwrap().iter().map(|s| s["artefact"].as_str().unwrap()).collect();
    assert_eq!(artefacts.len(), 7);
}

#[test]
fn s04_for_sd_scripts_pictures_that_would_share_a_cache_get_none() {
    let folder = case("s04-stem-collision");
    let outcome = bake(&folder, &["--for", "sd-scripts", "--resolution", "128", "--min-bucket", "64"]);
    assert_eq!(outcome.code, 1);
    assert_eq!(named(&outcome, &["stem-collision"]), ["cat.jpg", "cat.png"].map(str::to_owned).into());
    assert_eq!((outcome.json()["encoded"].as_u64(), outcome.json()["relinked"].as_u64()), (Some(5), Some(1)));
    assert!(folder.artefacts().iter().all(|(path, _)| !path.file_name().unwrap().to_string_lossy().starts_with("cat")));
}

/// What `apply.sh` of the case does: files of one version, with one fixed time.
fn apply(folder: &Folder, version: &str) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_704_067_200);
    for entry in fs::read_dir(data(&format!("cases/s06-edit-same-size-same-mtime/{version}"))).unwrap() {
        let entry = entry.unwrap();
        folder.write(entry.file_name().to_str().unwrap(), fs::read(entry.path()).unwrap());
    }
    for entry in fs::read_dir(folder.path()).unwrap().map(Result::unwrap).filter(|e| e.path().is_file()) {
        fs::File::options().write(true).open(entry.path()).unwrap().set_modified(time).unwrap();
    }
}

#[test]
fn s06_an_edit_that_keeps_size_and_time_is_noticed() {
    let folder = Folder::new();
    apply(&folder, "v1");
    assert_eq!(bake(&folder, &[]).fine()["encoded"], 3);
    let second = bake(&folder, &[]).fine();
    assert_eq!((second["encoded"].as_u64(), second["reused"].as_u64()), (Some(0), Some(3)));
    apply(&folder, "v2");
    let third = bake(&folder, &[]).fine();
    assert_eq!(third["encoded_paths"], json!(["edited.bmp", "edited.png"]));
    assert_eq!(third["reused"], 1);
}

/// The plan's samples and every problem, for a case about sizes.
fn plan(folder: &Folder, flags: &[&str]) -> (Outcome, Vec<Value>) {
    let outcome =
        folder.run("plan", &[&["--json", "-q", "--resolution", "1024", "--bucket-step", "64"], flags].concat());
    let samples = outcome.json()["samples"].as_array().unwrap().clone();
    (outcome, samples)
}

#[test]
fn s07_extreme_ratios_get_a_legal_bucket_or_are_named() {
    let folder = case("s07-extreme-aspect");
    let (outcome, samples) = plan(&folder, &[]);
    let mut buckets = std::collections::BTreeMap::new();
    for sample in &samples {
        let side = |i: usize| sample["bucket"][i].as_u64().unwrap();
        assert!(side(0) * side(1) <= 1_048_576 && side(0) % 64 == 0 && side(1) % 64 == 0 && side(0) * side(1) > 0);
        assert!(sample["upscale"].as_f64().unwrap() <= 1.0);
        buckets.insert(sample["path"].as_str().unwrap().to_owned(), (side(0), side(1)));
    }
    assert_eq!(buckets["normal_1024x1024.png"], (1024, 1024));
    let (pano, tall) = (buckets["pano_8000x200.jpg"], buckets["tall_200x8000.jpg"]);
    assert_eq!(pano, (tall.1, tall.0));
    let named: BTreeSet<String> = named(&outcome, &["crop-loss", "extreme-aspect", "too-small"]);
    assert_eq!(named, ["pano_8000x200.jpg", "strip_4096x16.png", "tall_200x8000.jpg"].map(str::to_owned).into());
}

#[test]
fn s08_tiny_images_are_named_and_never_enlarged_in_silence() {
    let folder = case("s08-tiny-images");
    let (outcome, samples) = plan(&folder, &[]);
    assert_eq!(samples.len(), 1);
    assert_eq!((&samples[0]["path"], &samples[0]["bucket"]), (&json!("t_64x64.png"), &json!([64, 64])));
    assert_eq!(named(&outcome, &["too-small", "extreme-aspect"]).len(), 6);
    let (outcome, samples) = plan(&folder, &["--upscale"]);
    let enlarged: BTreeSet<String> = samples
        .iter()
        .filter(|s| s["upscale"].as_f64().unwrap() > 1.0)
        .map(|s| s["path"].as_str().unwrap().to_owned())
        .collect();
    assert!(enlarged.contains("t_64x64.png"));
    assert_eq!(named(&outcome, &["enlarged"]), enlarged, "each enlarged file is listed");
}

#[test]
fn s11_hidden_copies_and_litter_are_left_out_and_counted() {
    let folder = case("s11-hidden-and-checkpoint-files");
    let outcome = folder.run("scan", &["--json", "-q"]);
    let scan = outcome.fine();
    assert_eq!((scan["images"].as_u64(), scan["captions"].as_u64()), (Some(3), Some(3)));
    for (name, caption) in expected("s11-hidden-and-checkpoint-files")["captions"].as_object().unwrap() {
        let sample = scan["samples"].as_array().unwrap().iter().find(|s| s["path"] == json!(name)).unwrap();
        assert_eq!(fs::read_to_string(folder.join(sample["caption_path"].as_str().unwrap())).unwrap().trim(), caption);
    }
    assert!(!outcome.problems("hidden").is_empty(), "what was left out is counted");
}

#[test]
fn s12_content_decides_the_format_and_unsupported_ones_are_named() {
    let folder = case("s12-wrong-extension");
    let scan = folder.run("scan", &["--json", "-q"]);
    assert_eq!(scan.code, 1);
    assert_eq!(named(&scan, &["unsupported"]), ["photo.heic".to_owned()].into());
    assert_eq!(
        named(&scan, &["wrong-extension"]),
        ["jpeg_named.png", "png_named.jpg", "webp_named.jpg"].map(str::to_owned).into()
    );
    let (out, _) = pixels(&folder, &["--bucket-step", "32"]);
    for (name, file) in expected("s12-wrong-extension")["files"].as_object().unwrap() {
        if file["status"] == "ok" {
            assert_probes(&out, name, &file["pixels"]);
        }
    }
    assert!(out.join("no_ext_image.png").exists(), "a file without extension is an image if its content is one");
}

#[test]
fn s14_files_in_under_filled_buckets_are_named() {
    let folder = case("s14-underfilled-buckets");
    let flags = ["--resolution", "768", "--bucket-step", "64", "--batch", "4", "--json", "-q"];
    let outcome = folder.run("plan", &flags);
    let rows = outcome.fine()["buckets"].as_array().unwrap().clone();
    let row = |reso: Value| rows.iter().find(|row| row["reso"] == reso).unwrap();
    assert_eq!(
        (row(json!([512, 512]))["images"].as_u64(), row(json!([512, 512]))["lost"].as_u64()),
        (Some(5), Some(1))
    );
    assert_eq!(row(json!([512, 768]))["paths"], json!(["05_512x768.png"]));
    assert_eq!(
        (row(json!([768, 512]))["images"].as_u64(), row(json!([768, 512]))["lost"].as_u64()),
        (Some(3), Some(3))
    );
    assert_eq!(rows.iter().map(|row| row["batches"].as_u64().unwrap()).sum::<u64>(), 4);
    assert_eq!(named(&outcome, &["underfilled"]).len(), 4);
    for sample in outcome.json()["samples"].as_array().unwrap() {
        assert_eq!((sample["upscale"].as_f64(), sample["crop_loss"].as_f64()), (Some(1.0), Some(0.0)));
    }
}

/// One hazard file through `pixels`; its first pixel if it was written.
fn hazard(name: &str, flags: &[&str]) -> (Outcome, Option<[u8; 3]>) {
    let folder = Folder::new();
    folder.write(name, fs::read(data(&format!("hazards/{name}"))).unwrap());
    let (out, outcome) = pixels(&folder, flags);
    let png = out.join(&format!("{name}.png"));
    let first = png.exists().then(|| image::open(png).unwrap().into_rgb8().get_pixel(0, 0).0);
    (outcome, first)
}

#[test]
fn hazards_are_accepted_or_refused_as_expected() {
    let expected: Value = serde_json::from_slice(&fs::read(data("hazards/expected.json")).unwrap()).unwrap();
    for (name, wanted) in expected.as_object().unwrap() {
        let (store, first) = hazard(name, &["--bucket-step", "8"]);
        let refused = |kinds: &[&str]| {
            assert!(first.is_none(), "{name} is refused");
            assert_eq!(named(&store, kinds).into_iter().collect::<Vec<_>>(), [name.as_str()], "{name}");
        };
        match wanted["action"].as_str().unwrap() {
            "accept" | "warn_upscale" => assert!(first.is_some(), "{name}: {}", store.stdout),
            "warn_first_frame" => {
                assert!(first.is_some(), "{name}");
                assert_eq!(store.problems("animated").len(), 1, "{name}");
            }
            // No decoder for these two is built in: named, with the way out.
            "accept_if_feature" | "reject_unsupported" => refused(&["unsupported"]),
            "reject_corrupt" => refused(&["damaged"]),
            "reject_empty" => refused(&["empty"]),
            "reject_not_image" => refused(&["not-image"]),
            "reject_too_large" => refused(&["too-large"]),
            other => panic!("{name}: unknown action {other}"),
        }
        let key = if wanted.get("px00_on_white").is_some() {
            "px00_on_white"
        } else if wanted.get("px00_if_icc_applied").is_some() {
            "px00_if_icc_applied"
        } else {
            "px00"
        };
        if let (Some(first), Some(pixel)) = (first, wanted.get(key)) {
            assert_near(name, first, pixel, wanted["tol"].as_u64().unwrap_or(3));
        }
    }
}

fn assert_near(name: &str, got: [u8; 3], wanted: &Value, tolerance: u64) {
    for (channel, &value) in got.iter().enumerate() {
        let wanted = wanted[channel].as_u64().unwrap();
        assert!(wanted.abs_diff(u64::from(value)) <= tolerance, "{name}: {got:?}");
    }
}

#[test]
fn hazards_under_the_trainers_own_convention_keep_what_it_keeps() {
    let flags = ["--for", "sd-scripts", "--resolution", "64x48", "--no-bucket"];
    for (name, wanted) in [
        ("icc_swapped.png", json!([220, 30, 30])),
        ("rgba_hidden.png", json!([220, 30, 30])),
        ("palette_trns.png", json!([0, 0, 0])),
        ("gray16.png", json!([255, 255, 255])),
    ] {
        let (_, first) = hazard(name, &flags);
        assert_near(name, first.unwrap(), &wanted, 0);
    }
}

#[test]
fn a_run_over_all_hazards_goes_on_to_the_end() {
    let folder = Folder::copy_of("hazards");
    fs::remove_file(folder.join("expected.json")).unwrap();
    let before = folder.inputs();
    let outcome = bake(&folder, &["--bucket-step", "8"]);
    assert_eq!(outcome.code, 1);
    let summary = outcome.json();
    let refused = [
        "zero.jpg",
        "html_named.png",
        "bomb_25000.png",
        "truncated.jpg",
        "truncated.png",
        "photo.heic",
        "photo.jxl",
        "photo.avif",
    ];
    let failed: BTreeSet<&str> =
        summary["failed"].as_array().unwrap().iter().map(|p| p["path"].as_str().unwrap()).collect();
    assert_eq!(failed, refused.into_iter().collect());
    assert_eq!(folder.inputs(), before);
    assert!(Path::new(&folder.join(".prebake/store")).is_dir());
}
