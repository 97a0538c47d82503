//! Several trainers at once: encoded once where their pixels agree, and said where they do not.

use crate::support::{Folder, tiny_vae};
use prebake::containers::{Array, Container};
use serde_json::json;

const BOTH: [&str; 8] = ["--for", "store,sd-scripts", "--resolution", "192x128", "--min-bucket", "64", "--json", "-q"];

fn bake(folder: &Folder, flags: &[&str]) -> serde_json::Value {
    let vae = tiny_vae();
    folder.run("bake", &[flags, &["--vae", vae.to_str().unwrap()]].concat()).fine()
}

fn latents(folder: &Folder) -> Vec<Array> {
    let read = |(path, bytes): &(std::path::PathBuf, Vec<u8>)| {
        Container::of_path(path).unwrap().read(bytes).unwrap().arrays["latents"].clone()
    };
    folder.artefacts().iter().map(read).collect()
}

#[test]
fn two_targets_at_once_encode_each_picture_once_where_their_pixels_agree() {
    let folder = Folder::new();
    folder.picture("a.png", 192, 128, 1);
    let summary = bake(&folder, &BOTH);
    assert_eq!((&summary["encoded_paths"], &summary["divergences"]), (&json!(["a.png"]), &json!([])));
    assert_eq!((&summary["encoded"], &summary["relinked"]), (&json!(1), &json!(1)));
    let latents = latents(&folder);
    assert_eq!(latents.len(), 2);
    assert_eq!(latents[0], latents[1]);
}

#[test]
fn where_their_pixels_differ_it_is_said_which_pictures_and_why() {
    let folder = Folder::new();
    folder.picture("a.png", 192, 128, 1);
    folder.transparent_picture("cut.png", 192, 128, 2);
    let plan = folder.run("plan", &BOTH).fine();
    let expected = json!([
        {"for": ["store", "sd-scripts"], "shared": 2, "paths": ["cut.png"], "settings": {"alpha": 1}}
    ]);
    assert_eq!(plan["divergences"], expected);
    let text = folder.run("plan", &BOTH[..6]).stdout;
    let line = "store and sd-scripts prepare 1 of 2 images differently, which are encoded for each: alpha of 1\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_phone_photo_is_encoded_for_the_trainer_that_turns_it_and_for_the_one_that_does_not() {
    let folder = Folder::new();
    folder.picture("a.png", 256, 256, 1);
    let photo = "rocket-phone.jpg";
    std::fs::copy(crate::support::data("../../sample_data/photos").join(photo), folder.join(photo)).unwrap();
    let both = ["--for", "sd-scripts,ai-toolkit", "--family", "sdxl", "--resolution", "256", "--json", "-q"];
    let summary = bake(&folder, &both);
    assert_eq!((&summary["encoded"], &summary["relinked"]), (&json!(3), &json!(1)));
    let settings = json!({"bucket": 1, "orientation": 1, "resize": 1});
    let expected = json!([{"for": ["sd-scripts", "ai-toolkit"], "shared": 2, "paths": [photo], "settings": settings}]);
    assert_eq!(summary["divergences"], expected);
    assert_eq!(folder.run("status", &[&both[..], &["--check"]].concat()).code, 0);
}

#[test]
fn captions_in_metadata_that_a_trainer_does_not_read_are_told_for_each_of_them() {
    let folder = Folder::new();
    folder.picture("a.png", 256, 256, 1);
    folder.write("metadata.jsonl", r#"{"file_name": "a.png", "text": "a wave"}"#);
    for target in ["sd-scripts", "musubi", "simpletuner", "ai-toolkit", "onetrainer", "diffusion-pipe"] {
        let family = if target == "musubi" { "z-image" } else { "flux" };
        let plan = folder.run("plan", &["--for", target, "--family", family, "--json", "-q"]).json();
        let told = "1 captions lie in metadata that";
        let is_told = |problem: &serde_json::Value| problem["message"].as_str().unwrap().starts_with(told);
        assert_eq!(plan["problems"].as_array().unwrap().iter().filter(|p| is_told(p)).count(), 1, "{target}");
    }
}

#[test]
fn what_follows_from_raw_latents_that_lie_there_is_not_encoded_again() {
    let folder = Folder::new();
    folder.picture("a.png", 192, 128, 1);
    assert_eq!(bake(&folder, &["--resolution", "192x128", "--json", "-q"])["encoded"], 1);
    let half = ["--resolution", "192x128", "--store-dtype", "f16", "--json", "-q"];
    let summary = bake(&folder, &half);
    assert_eq!((summary["encoded"].as_u64(), summary["relinked"].as_u64()), (Some(0), Some(1)));
    let derived = latents(&folder);
    let anew = Folder::new();
    anew.picture("a.png", 192, 128, 1);
    assert_eq!(bake(&anew, &half)["encoded"], 1);
    assert!(derived.contains(&latents(&anew)[0]), "the same values as if encoded");
    assert_eq!(folder.run("status", &[&half[..], &["--check"]].concat()).code, 0);
}
