//! What sd-scripts 0.10.1 takes for a right cache though it is none: the plan names it, a bake leaves none behind.

use crate::support::{Folder, Outcome, data, tiny_vae};
use prebake::containers::{Array, Container, Contents, Dtype};
use serde_json::{Value, json};
use std::fs;

const SD: [&str; 10] =
    ["--for", "sd-scripts", "--resolution", "128", "--min-bucket", "64", "--max-bucket", "256", "--json", "-q"];

fn run(folder: &Folder, command: &str, more: &[&str]) -> Outcome {
    let vae = tiny_vae();
    folder.run(command, &[&SD[..], &["--vae", vae.to_str().unwrap()], more].concat())
}

fn bake(folder: &Folder, more: &[&str]) -> Value {
    run(folder, "bake", more).fine()
}

fn arrays(folder: &Folder, name: &str) -> Contents {
    Container::Npz.read(&fs::read(folder.join(name)).unwrap()).unwrap()
}

fn names(folder: &Folder) -> Vec<String> {
    let names =
        folder.artefacts().into_iter().map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned());
    names.collect()
}

/// Latents of another tool.
fn foreign(channels: usize, height: usize, width: usize) -> Vec<u8> {
    let mut contents = Contents::default();
    let zeros = vec![0.5; channels * height * width];
    contents.arrays.insert("latents".into(), Array::from_f32(Dtype::F32, vec![channels, height, width], &zeros));
    contents.arrays.insert("original_size".into(), Array::from_i64(&[150, 110]));
    contents.arrays.insert("crop_ltrb".into(), Array::from_f64(&[0.0; 4]));
    Container::Npz.write(&contents).unwrap()
}

fn names_of(outcome: &Outcome, kind: &str) -> Vec<String> {
    outcome.problems(kind).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn a_new_picture_finds_its_own_cache_before_that_of_a_longer_name() {
    let folder = Folder::new();
    folder.picture("img10.png", 200, 150, 1);
    let _ = bake(&folder, &[]);
    folder.picture("img1.png", 97, 233, 2);
    assert_eq!(run(&folder, "plan", &[]).fine()["totals"]["missing"], 1);
    let _ = bake(&folder, &[]);
    // Sorted without their sizes, `img1` comes before `img10`, and the trainer takes the first that begins with it.
    assert_eq!(names(&folder), ["img10_0200x0150_sdxl.npz", "img1_0097x0233_sdxl.npz"]);
    let size = |name: &str| arrays(&folder, name).arrays["original_size"].clone();
    assert_eq!(size("img1_0097x0233_sdxl.npz"), Array::from_i64(&[97, 233]));
}

#[test]
fn a_picture_whose_name_goes_on_into_anothers_size_is_an_error_and_not_baked() {
    let folder = Folder::new();
    folder.picture("photo.png", 150, 110, 1);
    folder.picture("photo_0.png", 90, 200, 2);
    let outcome = run(&folder, "plan", &[]);
    assert_eq!((outcome.code, names_of(&outcome, "stem-collision")), (1, vec!["photo_0.png".to_owned()]));
    let baked = run(&folder, "bake", &[]);
    assert_eq!((baked.code, names(&folder)), (1, vec!["photo_0150x0110_sdxl.npz".to_owned()]));
}

#[test]
fn pictures_that_differ_by_extension_share_no_cache_since_they_get_none() {
    let folder = Folder::new();
    folder.picture("x.png", 150, 110, 1);
    folder.picture("x.bmp", 150, 110, 2);
    let outcome = run(&folder, "plan", &[]);
    assert_eq!(outcome.code, 1);
    let errors = outcome.problems("stem-collision").into_iter().filter(|(_, severity)| severity == "error");
    assert_eq!(errors.map(|(path, _)| path).collect::<Vec<_>>(), ["x.bmp", "x.png"]);
    assert_eq!((run(&folder, "bake", &[]).code, names(&folder).len()), (1, 0));
}

#[test]
fn a_cache_of_sd15_left_under_the_older_name_is_not_taken_for_sdxl() {
    let folder = Folder::new();
    folder.picture("a.png", 150, 110, 1);
    // Of the very shape that SDXL needs here, so that nothing but its name could tell it apart.
    let _ = bake(&folder, &[]);
    let shape = arrays(&folder, "a_0150x0110_sdxl.npz").arrays["latents"].shape.clone();
    let leftover = foreign(shape[0], shape[1], shape[2]);
    folder.write("a.npz", &leftover);
    let outcome = run(&folder, "status", &["--check"]);
    assert_eq!((outcome.code, names_of(&outcome, "foreign")), (1, vec!["a.npz".to_owned()]));
    assert_eq!(bake(&folder, &[])["encoded"], 0, "the right cache lies there already");
    assert_eq!(names(&folder), ["a_0150x0110_sdxl.npz"]);
    assert_eq!(fs::read(folder.join(".prebake/quarantine/a.npz")).unwrap(), leftover);
    assert_eq!(run(&folder, "status", &["--check"]).code, 0);
}

#[test]
fn an_older_name_does_no_harm_to_families_that_never_read_it() {
    let vae = data("vae/flux_tiny_f16.safetensors");
    let folder = Folder::new();
    folder.picture("a.png", 150, 110, 1);
    folder.write("a.npz", b"something else");
    let more = ["--family", "flux", "--vae", vae.to_str().unwrap()];
    assert_eq!(folder.run("bake", &[&SD[..], &more].concat()).fine()["encoded"], 1);
    assert_eq!(fs::read(folder.join("a.npz")).unwrap(), b"something else");
}

#[test]
fn a_cache_of_another_resolution_is_replaced_whoever_made_it() {
    let folder = Folder::new();
    folder.picture("a.png", 150, 110, 1);
    folder.picture("b.png", 128, 128, 2);
    let _ = bake(&folder, &[]);
    folder.write("b_0128x0128_sdxl.npz", foreign(4, 64, 64));
    let plan = run(&folder, "plan", &[]).fine();
    assert_eq!(plan["totals"]["stale"], 1);
    let wanted = arrays(&folder, "a_0150x0110_sdxl.npz");
    assert_eq!(bake(&folder, &[])["encoded_paths"], json!(["b.png"]));
    assert_eq!(arrays(&folder, "b_0128x0128_sdxl.npz").arrays["latents"].shape, [4, 16, 16]);
    assert!(arrays(&folder, "a_0150x0110_sdxl.npz").arrays == wanted.arrays);
}

#[test]
fn a_cut_cache_is_made_anew_whoever_made_it() {
    let folder = Folder::new();
    folder.picture("a.png", 150, 110, 1);
    let theirs = foreign(4, 12, 16);
    for cut in [&[][..], &theirs[..theirs.len() / 2], &theirs[..theirs.len() - 1]] {
        folder.write("a_0150x0110_sdxl.npz", cut);
        assert_eq!(run(&folder, "plan", &[]).fine()["totals"]["damaged"], 1);
        assert_eq!(bake(&folder, &[])["encoded"], 1);
        assert_eq!(run(&folder, "status", &["--check"]).code, 0);
    }
}

#[test]
fn a_cut_leftover_under_the_older_name_is_moved_away() {
    let folder = Folder::new();
    folder.picture("a.png", 150, 110, 1);
    folder.write("a.npz", b"PK\x03\x04");
    assert_eq!(bake(&folder, &[])["encoded"], 1);
    assert_eq!(names(&folder), ["a_0150x0110_sdxl.npz"]);
}

#[test]
fn a_mask_that_is_switched_off_is_gone_from_the_file() {
    let folder = Folder::new();
    folder.transparent_picture("a.png", 150, 110, 1);
    let _ = bake(&folder, &["--alpha-mask"]);
    assert!(arrays(&folder, "a_0150x0110_sdxl.npz").arrays.contains_key("alpha_mask"));
    let status = run(&folder, "status", &[]).fine();
    let reasons = status["samples"][0]["reasons"].to_string();
    assert!(reasons.contains("alpha-mask on → off"), "{reasons}");
    let _ = bake(&folder, &[]);
    assert!(!arrays(&folder, "a_0150x0110_sdxl.npz").arrays.contains_key("alpha_mask"));
}

#[test]
fn captions_that_end_the_trainers_run_are_errors_and_blank_ones_are_not() {
    let folder = Folder::new();
    for (name, caption) in [("bad", &b"caf\xe9"[..]), ("none", b""), ("blank", b"\n"), ("good", b"a dog")] {
        folder.picture(&format!("{name}.png"), 150, 110, caption.len() as u32 + 1);
        folder.write(&format!("{name}.txt"), caption);
    }
    let outcome = run(&folder, "bake", &[]);
    assert_eq!(
        (outcome.code, names(&folder)),
        (1, vec!["blank_0150x0110_sdxl.npz".to_owned(), "good_0150x0110_sdxl.npz".to_owned(),])
    );
    let errors = |kind: &str| {
        let errors = outcome.problems(kind).into_iter().filter(|(_, severity)| severity == "error");
        errors.map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(
        (errors("caption-encoding"), errors("caption-empty")),
        (vec!["bad.png".to_owned()], vec!["none.png".to_owned()])
    );
    let store = folder.run("plan", &["--json", "-q"]);
    assert_eq!(store.json()["totals"]["missing"], 4, "the store's own convention reads no caption");
}
