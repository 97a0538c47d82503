//! Change one thing, count what is encoded: nothing that is still right, everything that is not.

use crate::support::{Folder, data, tiny_vae};
use prebake::containers::{Array, Container, Contents, Dtype};
use serde_json::Value;
use std::fs;

const SD: [&str; 10] =
    ["--for", "sd-scripts", "--resolution", "128", "--min-bucket", "64", "--max-bucket", "256", "--json", "-q"];
const STORE: [&str; 4] = ["--resolution", "128", "--json", "-q"];

/// Three pictures of different shapes with captions.
fn dataset() -> Folder {
    let folder = Folder::new();
    folder.picture("a.png", 150, 110, 1);
    folder.picture("b.png", 90, 200, 2);
    folder.picture("sub/c.png", 64, 64, 3);
    folder.write("a.txt", "a");
    folder.write("b.txt", "b");
    folder.write("sub/c.txt", "c");
    folder
}

fn bake(folder: &Folder, base: &[&str], more: &[&str]) -> Value {
    let vae = tiny_vae();
    let mut flags: Vec<&str> = base.to_vec();
    if !more.contains(&"--vae") {
        flags.extend(["--vae", vae.to_str().unwrap()]);
    }
    flags.extend(more);
    let before = folder.inputs();
    let summary = folder.run("bake", &flags).fine();
    assert_eq!(folder.inputs(), before, "a bake changes no image and no caption");
    summary
}

fn counts(summary: &Value) -> (u64, u64, u64) {
    let count = |name: &str| summary[name].as_u64().unwrap();
    (count("encoded"), count("reused"), count("relinked"))
}

fn reasons(folder: &Folder, base: &[&str], more: &[&str]) -> Vec<String> {
    let vae = tiny_vae();
    let flags = [base, &["--vae", vae.to_str().unwrap()], more].concat();
    let json = folder.run("status", &flags).json();
    let samples = json["samples"].as_array().unwrap().iter();
    let mut texts: Vec<String> = samples
        .flat_map(|sample| sample["reasons"].as_array().unwrap())
        .map(|reason| reason["text"].as_str().unwrap().to_owned())
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

#[test]
fn a_second_run_encodes_nothing_and_leaves_the_bytes() {
    for base in [&SD[..], &STORE[..]] {
        let folder = dataset();
        assert_eq!(counts(&bake(&folder, base, &[])), (3, 0, 0));
        let artefacts = folder.artefacts();
        assert_eq!(counts(&bake(&folder, base, &[])), (0, 3, 0));
        assert_eq!(folder.artefacts(), artefacts);
    }
}

#[test]
fn an_edited_picture_is_rebuilt_and_the_reason_given() {
    for base in [&SD[..], &STORE[..]] {
        let folder = dataset();
        let _ = bake(&folder, base, &[]);
        folder.picture("a.png", 150, 110, 9);
        assert_eq!(reasons(&folder, base, &[]), ["image content changed"]);
        let summary = bake(&folder, base, &[]);
        assert_eq!(counts(&summary), (1, 2, 0));
        assert_eq!(summary["encoded_paths"], serde_json::json!(["a.png"]));
    }
}

#[test]
fn touch_and_a_caption_edit_and_a_lost_index_encode_nothing() {
    for base in [&SD[..], &STORE[..]] {
        let folder = dataset();
        let _ = bake(&folder, base, &[]);
        let touched = fs::read(folder.join("a.png")).unwrap();
        folder.write("a.png", touched);
        folder.write("b.txt", "another caption");
        assert_eq!(counts(&bake(&folder, base, &[])), (0, 3, 0));
        fs::remove_file(folder.join(".prebake/index.sqlite")).unwrap();
        assert_eq!(counts(&bake(&folder, base, &[])), (0, 3, 0));
    }
}

#[test]
fn batch_and_threads_change_neither_what_is_fresh_nor_a_byte() {
    for base in [&SD[..], &STORE[..]] {
        let one = dataset();
        let _ = bake(&one, base, &["--threads", "1", "--cache-batch", "1"]);
        let four = dataset();
        let _ = bake(&four, base, &["--threads", "2", "--cache-batch", "4"]);
        let bytes = |folder: &Folder| folder.artefacts().into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
        assert!(bytes(&one) == bytes(&four), "batch and thread count must not show in an artefact");
        assert_eq!(counts(&bake(&one, base, &["--threads", "2", "--cache-batch", "4"])), (0, 3, 0));
    }
}

#[test]
fn a_renamed_picture_is_relinked_or_simply_found() {
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    fs::rename(folder.join("a.png"), folder.join("z.png")).unwrap();
    let summary = bake(&folder, &SD, &[]);
    assert_eq!(counts(&summary), (0, 2, 1));
    let status = folder.run("status", &SD).json();
    assert_eq!(status["totals"]["orphans"], 1);
    let folder = dataset();
    let _ = bake(&folder, &STORE, &[]);
    fs::rename(folder.join("a.png"), folder.join("z.png")).unwrap();
    assert_eq!(counts(&bake(&folder, &STORE, &[])), (0, 3, 0));
}

#[test]
fn a_rename_is_found_without_the_index() {
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    fs::remove_dir_all(folder.join(".prebake")).unwrap();
    fs::rename(folder.join("a.png"), folder.join("z.png")).unwrap();
    assert_eq!(counts(&bake(&folder, &SD, &[])), (0, 2, 1));
}

#[test]
fn two_pictures_that_swap_names_encode_nothing() {
    let folder = Folder::new();
    folder.picture("a.png", 150, 110, 1);
    folder.picture("b.png", 150, 110, 2);
    let _ = bake(&folder, &SD, &[]);
    let latents =
        |name: &str| Container::Npz.read(&fs::read(folder.join(name)).unwrap()).unwrap().arrays["latents"].clone();
    let (a, b) = (latents("a_0150x0110_sdxl.npz"), latents("b_0150x0110_sdxl.npz"));
    fs::rename(folder.join("a.png"), folder.join("t")).unwrap();
    fs::rename(folder.join("b.png"), folder.join("a.png")).unwrap();
    fs::rename(folder.join("t"), folder.join("b.png")).unwrap();
    assert_eq!(counts(&bake(&folder, &SD, &[])), (0, 0, 2));
    assert_eq!((latents("a_0150x0110_sdxl.npz"), latents("b_0150x0110_sdxl.npz")), (b, a));
}

#[test]
fn copies_of_one_picture_are_encoded_once() {
    for (base, wanted) in [(&SD[..], (3, 0, 1)), (&STORE[..], (3, 1, 0))] {
        let folder = dataset();
        fs::copy(folder.join("a.png"), folder.join("sub/copy.png")).unwrap();
        assert_eq!(counts(&bake(&folder, base, &[])), wanted);
    }
}

#[test]
fn another_resolution_rebuilds_what_it_moves_and_says_so() {
    for base in [&SD[..], &STORE[..]] {
        let folder = dataset();
        let _ = bake(&folder, base, &[]);
        let more = ["--resolution", "192"];
        let texts = reasons(&folder, base, &more);
        assert!(texts.contains(&"resolution 128 → 192".to_owned()), "{texts:?}");
        let summary = bake(&folder, base, &more);
        // Without enlarging, only the tall picture has more pixels to give: the others keep bucket, size and crop.
        let (encoded, reused) = if base == SD { (3, 0) } else { (1, 2) };
        assert_eq!(counts(&summary), (encoded, reused, 0));
    }
}

#[test]
fn another_filter_rebuilds_only_what_is_resized() {
    let folder = dataset();
    folder.picture("d.png", 128, 128, 4);
    let _ = bake(&folder, &STORE, &[]);
    assert_eq!(counts(&bake(&folder, &STORE, &["--resize", "lanczos"])), (2, 2, 0));
    assert_eq!(counts(&bake(&folder, &STORE, &[])), (0, 4, 0), "the store keeps both");
    let folder = dataset();
    folder.picture("d.png", 128, 128, 4);
    let _ = bake(&folder, &SD, &[]);
    assert_eq!(reasons(&folder, &SD, &["--resize", "bicubic"]).len(), 2);
    assert_eq!(counts(&bake(&folder, &SD, &["--resize", "bicubic"])), (3, 1, 0));
}

#[test]
fn naming_the_filter_that_runs_anyway_redoes_nothing() {
    let folder = Folder::new();
    folder.picture("a.png", 300, 220, 1);
    let _ = bake(&folder, &SD, &[]);
    assert_eq!(counts(&bake(&folder, &SD, &["--resize", "area"])), (0, 1, 0));
}

#[test]
fn flip_on_encodes_the_mirrored_picture_alone_and_off_encodes_nothing() {
    let npz = |folder: &Folder| {
        let bytes = fs::read(folder.join("a_0150x0110_sdxl.npz")).unwrap();
        Container::Npz.read(&bytes).unwrap().arrays
    };
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    let plain = npz(&folder)["latents"].clone();
    assert_eq!(reasons(&folder, &SD, &["--flip"]), ["flip off → on"]);
    assert_eq!(counts(&bake(&folder, &SD, &["--flip"])), (3, 0, 0));
    assert_eq!(npz(&folder)["latents"], plain);
    assert!(npz(&folder).contains_key("latents_flipped"));
    assert_eq!(reasons(&folder, &SD, &[]), ["flip on → off"]);
    assert_eq!(counts(&bake(&folder, &SD, &[])), (0, 3, 0));
    assert!(!npz(&folder).contains_key("latents_flipped"), "switched off, the entry is dropped");
    assert_eq!(npz(&folder)["latents"], plain);
}

#[test]
fn an_alpha_mask_encodes_only_where_pillow_mixes_alpha_into_colour() {
    let folder = Folder::new();
    folder.picture("opaque.png", 100, 80, 1);
    folder.transparent_picture("shrunk.png", 200, 180, 2);
    folder.transparent_picture("enlarged.png", 100, 80, 3);
    let _ = bake(&folder, &SD, &[]);
    let summary = bake(&folder, &SD, &["--alpha-mask"]);
    assert_eq!(summary["encoded_paths"], serde_json::json!(["enlarged.png"]));
    let arrays = |name: &str| Container::Npz.read(&fs::read(folder.join(name)).unwrap()).unwrap().arrays;
    let mask = &arrays("opaque_0100x0080_sdxl.npz")["alpha_mask"];
    assert_eq!(mask.shape, [128, 128]);
    assert!(mask.bytes.chunks_exact(4).all(|b| b == 1f32.to_le_bytes()), "without alpha the mask is all ones");
    assert_eq!(bake(&folder, &SD, &[])["encoded_paths"], serde_json::json!(["enlarged.png"]));
    assert!(!arrays("opaque_0100x0080_sdxl.npz").contains_key("alpha_mask"), "a mask left behind would be applied");
}

#[test]
fn other_weights_rebuild_all_and_a_copy_of_the_same_weights_nothing() {
    for base in [&SD[..], &STORE[..]] {
        let folder = dataset();
        let _ = bake(&folder, base, &[]);
        let elsewhere = Folder::new();
        fs::copy(tiny_vae(), elsewhere.join("renamed.safetensors")).unwrap();
        let copy = elsewhere.join("renamed.safetensors");
        assert_eq!(counts(&bake(&folder, base, &["--vae", copy.to_str().unwrap()])), (0, 3, 0));
        let other = data("vae/sdxl_tiny_f16.safetensors");
        let flags = [base, &["--vae", other.to_str().unwrap()]].concat();
        let json = folder.run("status", &flags).json();
        assert_eq!(json["samples"][0]["reasons"][0]["text"], "VAE weights changed");
        assert_eq!(counts(&bake(&folder, base, &["--vae", other.to_str().unwrap()])), (3, 0, 0));
    }
}

#[test]
fn posterior_seed_and_stored_dtype_are_in_the_key() {
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    assert_eq!(reasons(&folder, &SD, &["--posterior", "sample"]), ["posterior mean → sample (seed 0)"]);
    assert_eq!(counts(&bake(&folder, &SD, &["--posterior", "sample"])), (3, 0, 0));
    let drawn = folder.artefacts();
    assert_eq!(counts(&bake(&folder, &SD, &["--posterior", "sample", "--cache-batch", "3"])), (0, 3, 0));
    assert_eq!(counts(&bake(&folder, &SD, &["--posterior", "sample", "--seed", "1"])), (3, 0, 0));
    assert_ne!(folder.artefacts(), drawn);
    assert_eq!(counts(&bake(&folder, &SD, &["--posterior", "sample"])), (3, 0, 0));
    assert!(folder.artefacts() == drawn, "one seed always draws the same");
    let _ = bake(&folder, &SD, &[]);
    let why = reasons(&folder, &SD, &["--store-dtype", "f16"]);
    assert_eq!(why[0], "follows from the raw latents in `a_0150x0110_sdxl.npz`");
    assert_eq!((why.len(), why[3].as_str()), (4, "stored dtype f32 → f16"));
    assert_eq!(counts(&bake(&folder, &SD, &["--store-dtype", "f16"])), (0, 0, 3));
    assert_eq!(reasons(&folder, &SD, &[]), ["stored dtype f16 → f32"]);
    assert_eq!(counts(&bake(&folder, &SD, &[])), (3, 0, 0), "what f16 has rounded away must be made anew");
}

#[test]
fn a_coarser_run_satisfies_a_finer_request_never_and_a_finer_one_always() {
    let folder = dataset();
    assert_eq!(counts(&bake(&folder, &STORE, &["--dtype", "f16"])), (3, 0, 0));
    assert_eq!(counts(&bake(&folder, &STORE, &[])), (0, 3, 0), "auto takes what lies there");
    assert_eq!(reasons(&folder, &STORE, &["--dtype", "f32"]), ["encoder precision f16 → f32"]);
    assert_eq!(counts(&bake(&folder, &STORE, &["--dtype", "f32"])), (3, 0, 0));
    assert_eq!(counts(&bake(&folder, &STORE, &["--dtype", "f16"])), (0, 3, 0));
}

#[test]
fn each_damaged_artefact_is_rebuilt_to_the_same_bytes() {
    for base in [&SD[..], &STORE[..]] {
        let folder = dataset();
        let _ = bake(&folder, base, &[]);
        let artefacts = folder.artefacts();
        let (path, good) = &artefacts[1];
        let mut flipped = good.clone();
        let at = flipped.len() * 2 / 3;
        flipped[at] ^= 1;
        for bad in
            [&b""[..], &good[..5], &good[..good.len() / 2], &good[..good.len() - 1], &vec![0; good.len()], &flipped]
        {
            fs::write(path, bad).unwrap();
            let summary = bake(&folder, base, &[]);
            assert_eq!(counts(&summary), (1, 2, 0), "{} bytes of {}", bad.len(), good.len());
            assert!(folder.artefacts() == artefacts);
        }
        fs::remove_file(path).unwrap();
        assert_eq!(counts(&bake(&folder, base, &[])), (1, 2, 0));
        assert!(folder.artefacts() == artefacts);
    }
}

#[test]
fn a_picture_replaced_by_one_of_another_size_leaves_no_cache_under_the_old_size() {
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    folder.picture("a.png", 120, 130, 8);
    assert_eq!(counts(&bake(&folder, &SD, &[])), (1, 2, 0));
    assert!(folder.join("a_0120x0130_sdxl.npz").exists());
    assert!(!folder.join("a_0150x0110_sdxl.npz").exists(), "the trainer would take the picture's size from it");
}

#[test]
fn flux_keeps_other_resolutions_in_one_file_and_drops_them_with_the_picture() {
    let vae = data("vae/flux_tiny_f16.safetensors");
    let more = ["--vae", vae.to_str().unwrap(), "--family", "flux"];
    let folder = dataset();
    let _ = bake(&folder, &SD, &more);
    let _ = bake(&folder, &SD, &[&more[..], &["--resolution", "192"]].concat());
    let names = || {
        let bytes = fs::read(folder.join("sub/c_0064x0064_flux.npz")).unwrap();
        let contents = Container::Npz.read(&bytes).unwrap();
        contents.arrays.into_keys().filter(|name| name.starts_with("latents")).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["latents_16x16", "latents_24x24"]);
    assert_eq!(counts(&bake(&folder, &SD, &more)), (0, 3, 0), "going back encodes nothing");
    folder.picture("sub/c.png", 64, 64, 7);
    assert_eq!(counts(&bake(&folder, &SD, &more)), (1, 2, 0));
    assert_eq!(names(), ["latents_16x16"], "the other resolution was of the earlier picture");
}

#[test]
fn foreign_caches_are_kept_and_named_unless_told_to_rebuild() {
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    let path = folder.join("a_0150x0110_sdxl.npz");
    let mut contents = Container::Npz.read(&fs::read(&path).unwrap()).unwrap();
    contents.receipt = None;
    fs::write(&path, Container::Npz.write(&contents).unwrap()).unwrap();
    let outcome = folder.run("status", &SD);
    assert_eq!(outcome.problems("foreign"), [("a_0150x0110_sdxl.npz".to_owned(), "note".to_owned())]);
    assert_eq!(counts(&bake(&folder, &SD, &[])), (0, 3, 0));
    assert_eq!(counts(&bake(&folder, &SD, &["--foreign", "rebuild"])), (1, 2, 0));
    // Of another shape, it can be held against nothing but is certainly wrong.
    fs::write(&path, Container::Npz.write(&contents).unwrap()).unwrap();
    assert_eq!(counts(&bake(&folder, &SD, &["--resolution", "192"])), (3, 0, 0));
}

#[test]
fn a_rename_together_with_flip_keeps_the_latents_and_adds_the_mirrored_ones() {
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    fs::rename(folder.join("a.png"), folder.join("z.png")).unwrap();
    assert_eq!(counts(&bake(&folder, &SD, &["--flip"])), (3, 0, 0));
    let arrays = Container::Npz.read(&fs::read(folder.join("z_0150x0110_sdxl.npz")).unwrap()).unwrap().arrays;
    assert_eq!(arrays.keys().collect::<Vec<_>>(), ["crop_ltrb", "latents", "latents_flipped", "original_size"]);
    assert_eq!(counts(&bake(&folder, &SD, &["--flip"])), (0, 3, 0));
}

#[test]
fn a_mask_alone_needs_no_encoder() {
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    assert_eq!(counts(&bake(&folder, &SD, &["--alpha-mask"])), (0, 3, 0));
    let path = folder.join("a_0150x0110_sdxl.npz");
    assert!(Container::Npz.read(&fs::read(path).unwrap()).unwrap().arrays.contains_key("alpha_mask"));
    assert_eq!(reasons(&folder, &SD, &["--alpha-mask"]), Vec::<String>::new());
}

#[test]
fn what_another_tool_left_beside_latents_that_are_rebuilt_goes_and_the_rest_stays() {
    let folder = dataset();
    let _ = bake(&folder, &SD, &[]);
    let path = folder.join("a_0150x0110_sdxl.npz");
    let mut contents = Container::Npz.read(&fs::read(&path).unwrap()).unwrap();
    contents.receipt = None;
    contents.arrays.insert("alpha_mask".into(), Array::from_f32(Dtype::F32, vec![2, 2], &[0.0; 4]));
    contents.arrays.insert("notes".into(), Array::from_i64(&[7]));
    fs::write(&path, Container::Npz.write(&contents).unwrap()).unwrap();
    assert_eq!(counts(&bake(&folder, &SD, &["--foreign", "rebuild"])), (1, 2, 0));
    let arrays = Container::Npz.read(&fs::read(&path).unwrap()).unwrap().arrays;
    assert!(!arrays.contains_key("alpha_mask"), "the trainer would apply it");
    assert!(arrays.contains_key("notes"));
}

#[test]
fn a_cache_of_another_tool_under_a_wrong_size_is_moved_away_not_lost() {
    let folder = dataset();
    let mut stray = Contents::default();
    stray.arrays.insert("latents".into(), Array::from_f32(Dtype::F32, vec![4, 2, 2], &[0.5; 16]));
    let bytes = Container::Npz.write(&stray).unwrap();
    folder.write("a_0100x0100_sdxl.npz", &bytes);
    assert_eq!(folder.run("status", &SD).problems("foreign").len(), 1);
    let _ = bake(&folder, &SD, &[]);
    assert!(!folder.join("a_0100x0100_sdxl.npz").exists(), "the trainer would take the picture's size from it");
    assert_eq!(fs::read(folder.join(".prebake/quarantine/a_0100x0100_sdxl.npz")).unwrap(), bytes);
}

#[test]
fn without_weights_the_stores_own_files_are_no_orphans() {
    let folder = dataset();
    let _ = bake(&folder, &STORE, &[]);
    let totals = folder.run("status", &STORE).fine()["totals"].clone();
    assert_eq!((totals["fresh"].as_u64(), totals["orphans"].as_u64()), (Some(3), Some(0)));
}

#[test]
fn one_folder_at_two_resolutions_collides_for_sdxl_and_shares_a_file_for_flux() {
    let folder = Folder::new();
    folder.picture("imgs/a.png", 192, 128, 1);
    let dataset = |resolution: u32| {
        format!(
            "[[datasets]]\nresolution = {resolution}\nenable_bucket = true\nmin_bucket_reso = 64\n[[datasets.subsets]]\nimage_dir = \"imgs\"\n"
        )
    };
    folder.write("set.toml", dataset(128) + &dataset(192));
    let config = folder.join("set.toml");
    let run = |family: &str, vae: &std::path::Path| {
        let flags = [
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
        crate::support::prebake(&flags)
    };
    let sdxl = run("sdxl", &tiny_vae());
    assert_eq!((sdxl.code, sdxl.json()["encoded"].as_u64(), folder.artefacts().len()), (1, Some(0), 0));
    assert!(!sdxl.problems("stem-collision").is_empty());
    let flux = run("flux", &data("vae/flux_tiny_f16.safetensors")).fine();
    assert_eq!(flux["encoded"], 2);
    let arrays = Container::Npz.read(&folder.artefacts()[0].1).unwrap().arrays;
    assert_eq!(arrays.keys().filter(|name| name.starts_with("latents")).count(), 2);
}

#[test]
fn a_picture_that_would_be_given_anothers_size_by_the_trainer_is_named_and_not_baked() {
    let folder = Folder::new();
    folder.picture("img1.png", 150, 110, 1);
    folder.picture("img1_0.png", 90, 200, 2);
    folder.picture("img10.png", 70, 90, 3);
    let vae = tiny_vae();
    let flags = [&SD[..], &["--vae", vae.to_str().unwrap()]].concat();
    let outcome = folder.run("bake", &flags);
    assert_eq!((outcome.code, outcome.json()["encoded"].as_u64()), (1, Some(2)));
    assert_eq!(outcome.problems("stem-collision"), [("img1_0.png".to_owned(), "error".to_owned())]);
    assert_eq!(folder.run("status", &[&flags[..], &["--check"]].concat()).code, 1);
}

#[test]
fn what_a_trainer_added_of_an_earlier_picture_goes_with_it() {
    let vae = data("vae/flux_tiny_f16.safetensors");
    let more = ["--vae", vae.to_str().unwrap(), "--family", "flux"];
    let folder = dataset();
    let _ = bake(&folder, &SD, &more);
    let path = folder.join("a_0150x0110_flux.npz");
    let mut contents = Container::Npz.read(&fs::read(&path).unwrap()).unwrap();
    contents.arrays.insert("latents_20x20".into(), Array::from_f32(Dtype::F32, vec![1, 2, 2], &[0.5; 4]));
    fs::write(&path, Container::Npz.write(&contents).unwrap()).unwrap();
    let names = || Container::Npz.read(&fs::read(&path).unwrap()).unwrap().arrays.into_keys().collect::<Vec<_>>();
    let _ = bake(&folder, &SD, &more);
    assert!(names().contains(&"latents_20x20".to_owned()), "another resolution of the same picture stays");
    folder.picture("a.png", 150, 110, 9);
    assert_eq!(counts(&bake(&folder, &SD, &more)), (1, 2, 0));
    assert!(!names().contains(&"latents_20x20".to_owned()));
}

#[test]
fn a_store_file_whose_receipt_was_damaged_is_rebuilt_not_taken_for_another_tools() {
    let folder = dataset();
    let _ = bake(&folder, &STORE, &[]);
    let (path, good) = folder.artefacts().remove(0);
    let mut bad = good.clone();
    let at = bad.windows(7).position(|window| window == b"receipt").unwrap();
    bad[at] ^= 1;
    fs::write(&path, bad).unwrap();
    assert_eq!(counts(&bake(&folder, &STORE, &[])), (1, 2, 0));
    assert!(fs::read(&path).unwrap() == good);
}
