//! Transcripts of the command line: exit code, stdout, stderr.

use crate::made_weights::{self, Style};
use crate::support::{self, Folder, command, prebake, tiny_vae, write_changed_vae};
use std::fs;
use std::process::Stdio;

fn two_pictures() -> Folder {
    let folder = Folder::new();
    folder.picture("a.png", 150, 110, 1);
    folder.picture("b.png", 90, 200, 2);
    folder.write("a.txt", "a");
    folder.write("b.txt", "b");
    folder
}

/// Refused with exit code 2; stderr without the folder's own path.
fn refused(folder: &Folder, command: &str, flags: &[&str]) -> String {
    let outcome = folder.run(command, flags);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""), "{}", outcome.stderr);
    outcome.stderr.replace(folder.path().to_str().unwrap(), "DATASET")
}

#[test]
fn bake_without_weights_says_which_flag_is_missing() {
    let text = refused(&two_pictures(), "bake", &[]);
    assert_eq!(
        text,
        "error: bake needs the VAE's weights\nhint: --vae FILE: a VAE or a full checkpoint in safetensors\n"
    );
}

#[test]
fn a_dataset_that_is_not_there_is_named() {
    let outcome = prebake(&["scan", "no/such/folder"]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.stderr.starts_with("error: `no/such/folder`: No such file"), "{}", outcome.stderr);
}

#[test]
fn flags_that_the_trainer_cannot_follow_are_refused_with_its_own_option() {
    let folder = two_pictures();
    for (flags, hint) in [
        (["--max-area", "65536"], "hint: the trainer's cap is its resolution: use --resolution\n"),
        (["--orientation", "apply"], "hint: rotate the files themselves, or use --for store\n"),
        (["--icc", "apply"], "hint: convert the files to sRGB themselves, or use --for store\n"),
        (["--store-dtype", "bf16"], "hint: use f32 or f16\n"),
    ] {
        let text = refused(&folder, "plan", &[&["--for", "sd-scripts"][..], &flags].concat());
        assert!(text.contains(&format!("error: {}", flags[0])) && text.ends_with(hint), "{text}");
    }
    let text = refused(&folder, "plan", &["--alpha-mask"]);
    assert!(text.contains("error: --alpha-mask: the `store` layout has no loss masks"), "{text}");
    let text = refused(&folder, "plan", &["--bucket-step", "12"]);
    assert!(text.contains("error: --bucket-step 12: latents of sdxl need multiples of 8 pixels"), "{text}");
}

#[test]
fn weights_of_another_family_and_pickles_are_refused() {
    let folder = two_pictures();
    let vae = tiny_vae();
    let text = refused(&folder, "plan", &["--family", "flux", "--vae", vae.to_str().unwrap()]);
    assert!(text.contains("--family flux: needs a KL encoder with 16 latent channels"), "{text}");
    assert!(text.contains("holds a KL encoder with 4 latent channels\nhint: --family sd15, sdxl\n"), "{text}");
    let elsewhere = Folder::new();
    elsewhere.write("model.ckpt", b"PK");
    let text = refused(&folder, "plan", &["--vae", elsewhere.join("model.ckpt").to_str().unwrap()]);
    assert!(text.contains("model.ckpt`:") && text.contains("hint: "), "{text}");
}

#[test]
fn check_exits_with_1_until_all_is_fresh() {
    let folder = two_pictures();
    let vae = tiny_vae();
    let flags = ["--resolution", "128", "--vae", vae.to_str().unwrap(), "-q"];
    let check = |more: &[&str]| folder.run("status", &[&flags[..], &["--check"], more].concat()).code;
    assert_eq!(folder.run("status", &flags).code, 0);
    assert_eq!(check(&[]), 1);
    assert_eq!(folder.run("bake", &flags).code, 0);
    assert_eq!(check(&[]), 0);
    assert_eq!(check(&["--flip"]), 1);
    folder.write("c.png", b"not a picture");
    assert_eq!(check(&[]), 1, "a sample with an error has no artefact");
}

#[test]
fn plan_and_status_work_without_weights_and_say_so() {
    let folder = two_pictures();
    for base in [
        &["--resolution", "128", "--json"][..],
        &["--resolution", "128", "--json", "--for", "sd-scripts", "--min-bucket", "64"],
    ] {
        let plan = folder.run("plan", base);
        assert!(plan.stderr.contains("no --vae given: everything but the weights was compared"), "{}", plan.stderr);
        assert!(plan.stderr.contains("no --vae and no --family: sdxl is assumed"));
        let json = plan.fine();
        assert!(json["samples"].as_array().unwrap().iter().all(|sample| sample["key"].is_null()));
        assert_eq!((json["totals"]["missing"].as_u64(), json["totals"]["fresh"].as_u64()), (Some(2), Some(0)));
        let vae = tiny_vae();
        let bake = [base, &["--vae", vae.to_str().unwrap()]].concat();
        assert_eq!(folder.run("bake", &bake).fine()["encoded"], 2);
        assert_eq!(folder.run("status", base).fine()["totals"]["fresh"], 2);
        let other = [&base[2..], &["--resolution", "192"]].concat();
        let status = folder.run("status", &other).fine();
        let reasons = status["samples"].to_string();
        assert!(reasons.contains("resolution 128 → 192"), "{reasons}");
    }
}

#[test]
fn plan_writes_no_artefact_and_a_dry_run_shows_the_same_plan() {
    let folder = two_pictures();
    let vae = tiny_vae();
    let flags = ["--resolution", "128", "--vae", vae.to_str().unwrap(), "--json", "-q"];
    let plan = folder.run("plan", &flags).fine();
    assert_eq!(
        (&plan["recipe"]["device"], &plan["recipe"]["cache-batch"]),
        (&serde_json::json!("auto"), &serde_json::json!("auto"))
    );
    assert_eq!(plan["recipe"]["vae"], vae.to_str().unwrap());
    let dry = folder.run("bake", &[&flags[..], &["--dry-run"]].concat()).fine();
    assert_eq!(plan, dry);
    assert!(folder.artefacts().is_empty());
    let bake = folder.run("bake", &flags).fine();
    assert_eq!(bake["encoded_paths"], serde_json::json!(["a.png", "b.png"]));
}

#[test]
fn settings_come_from_prebake_toml_beside_the_dataset_and_flags_win() {
    let folder = two_pictures();
    folder
        .write("prebake.toml", "resolution = 192\nflip = true\nfor = [\"sd-scripts\"]\ndeep = true\nmin-bucket = 64\n");
    let recipe = |flags: &[&str]| folder.run("plan", &[&["--json", "-q"], flags].concat()).fine()["recipe"].clone();
    let settings = recipe(&[]);
    assert_eq!((&settings["resolution"], &settings["flip"]), (&serde_json::json!(192), &serde_json::json!(true)));
    assert_eq!(settings["for"], serde_json::json!(["sd-scripts"]));
    let settings = recipe(&["--resolution", "256", "--for", "store", "--flip=false"]);
    assert_eq!((&settings["resolution"], &settings["flip"]), (&serde_json::json!(256), &serde_json::json!(false)));
    folder.write("prebake.toml", "resolutoin = 192\n");
    let text = refused(&folder, "plan", &[]);
    assert_eq!(
        text,
        "error: `DATASET/prebake.toml`: `resolutoin` is no setting\nhint: keys are long flag names: resolution = 768\n"
    );
}

#[test]
fn with_json_stdout_holds_one_document_and_progress_can_be_json_too() {
    let folder = two_pictures();
    let vae = tiny_vae();
    let outcome =
        folder.run("bake", &["--resolution", "128", "--vae", vae.to_str().unwrap(), "--json", "--progress", "json"]);
    let summary = outcome.fine();
    for field in [
        "encoded",
        "encoded_paths",
        "reused",
        "relinked",
        "failed",
        "retried_f32",
        "batch_backoffs",
        "tiled",
        "seconds",
        "encode_seconds",
        "images_per_second",
        "peak_rss_bytes",
        "device",
    ] {
        assert!(!summary[field].is_null(), "{field}");
    }
    let lines: Vec<serde_json::Value> =
        outcome.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(lines.contains(&serde_json::json!({"stage": "bake", "done": 2, "total": 2})), "{}", outcome.stderr);
}

#[test]
fn a_toml_dataset_is_baked_with_its_own_settings() {
    let folder = two_pictures();
    folder.picture("sub/c.png", 70, 70, 3);
    let text = "[general]\nenable_bucket = true\nmin_bucket_reso = 64\nshuffle_caption = true\n[[datasets]]\nresolution = 128\nmax_bucket_reso = 256\n\
                [[datasets.subsets]]\nimage_dir = \".\"\nflip_aug = true\nnum_repeats = 3\ncaption_extension = \".txt\"\n";
    folder.write("set.toml", text);
    let (config, vae) = (folder.join("set.toml"), tiny_vae());
    let outcome =
        prebake(&["bake", config.to_str().unwrap(), "--for", "sd-scripts", "--vae", vae.to_str().unwrap(), "--json"]);
    assert!(
        outcome.stderr.contains("these keys shape no latent and are left to the trainer: shuffle_caption"),
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.fine()["encoded"], 2, "the trainer does not look into sub-folders");
    let bytes = fs::read(folder.join("a_0150x0110_sdxl.npz")).unwrap();
    assert!(prebake::containers::Container::Npz.read(&bytes).unwrap().arrays.contains_key("latents_flipped"));
    let contradicting = ["plan", config.to_str().unwrap(), "--for", "sd-scripts", "--resolution", "192"];
    let outcome = prebake(&contradicting);
    assert_eq!(outcome.code, 2);
    let wanted = "error: --resolution contradicts `resolution` of the dataset's description, which the trainer follows\n\
                  hint: leave it out, or change `resolution` there\n";
    assert!(outcome.stderr.ends_with(wanted), "{}", outcome.stderr);
    let plan = prebake(&["plan", config.to_str().unwrap(), "--for", "sd-scripts", "--json", "-q"]).fine();
    let repeats: u64 = plan["buckets"].as_array().unwrap().iter().map(|row| row["repeats"].as_u64().unwrap()).sum();
    assert_eq!(repeats, 6);
}

#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_is_finished_and_the_next_run_goes_on() {
    let folder = Folder::new();
    for i in 0..40 {
        folder.picture(&format!("{i:02}.png"), 256, 256, i);
    }
    let vae = tiny_vae();
    let flags = ["--resolution", "256", "--vae", vae.to_str().unwrap(), "--json"];
    let mut arguments = vec!["bake", folder.path().to_str().unwrap()];
    arguments.extend(flags);
    let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while folder.artefacts().len() < 3 {
        assert!(child.try_wait().unwrap().is_none(), "the bake ended before it could be interrupted");
        std::thread::yield_now();
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let kept = folder.artefacts().len();
    assert!((3..40).contains(&kept), "{kept} artefacts");
    let summary = folder.run("bake", &flags).fine();
    assert_eq!((summary["encoded"].as_u64(), summary["reused"].as_u64()), (Some(40 - kept as u64), Some(kept as u64)));
}

#[test]
fn what_overflows_in_half_precision_is_repeated_in_f32_and_nan_is_never_stored() {
    let folder = two_pictures();
    let elsewhere = Folder::new();
    let vae = elsewhere.join("overflows.safetensors");
    // The first convolution's output leaves the range of f16, not of f32; its weights stay within both.
    write_changed_vae(&vae, |name, values| {
        if name == "encoder.conv_in.weight" {
            let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
            values.iter_mut().for_each(|value| *value *= 3e4 / largest);
        }
    });
    let flags = ["--resolution", "128", "--vae", vae.to_str().unwrap(), "--dtype", "f16", "--json", "-q"];
    let summary = folder.run("bake", &flags).fine();
    assert_eq!((summary["encoded"].as_u64(), summary["retried_f32"].as_u64()), (Some(2), Some(2)));
    for (path, bytes) in folder.artefacts() {
        let contents = prebake::containers::Container::Safetensors.read(&bytes).unwrap();
        assert!(contents.arrays.values().all(|array| !array.has_non_finite()), "{}", path.display());
    }
    let vae = elsewhere.join("nan.safetensors");
    write_changed_vae(&vae, |name, values| {
        if name == "encoder.conv_out.bias" {
            values[0] = f32::NAN;
        }
    });
    let flags = ["--resolution", "128", "--vae", vae.to_str().unwrap(), "--json", "-q"];
    let outcome = folder.run("bake", &flags);
    assert_eq!((outcome.code, outcome.json()["encoded"].as_u64()), (1, Some(0)));
    assert_eq!(outcome.problems("nan").len(), 2);
}

/// Commands of the README that start with `prebake`, in order.
fn readme_commands() -> Vec<Vec<String>> {
    let readme = include_str!("../README.md");
    let shell = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = shell.flat_map(str::lines).filter(|line| line.starts_with("prebake "));
    lines.map(|line| line.split_whitespace().skip(1).map(str::to_owned).collect()).collect()
}

/// The descriptions that the README's commands name, one for each trainer, of the folder `photos`.
fn write_descriptions(folder: &Folder) {
    let subset = "[[datasets.subsets]]\nimage_dir = \"photos\"\ncaption_extension = \".txt\"\n";
    folder.write(
        "dataset.toml",
        format!("[[datasets]]\nresolution = 128\nenable_bucket = true\nmin_bucket_reso = 64\n{subset}"),
    );
    folder.write(
        "musubi.toml",
        "[[datasets]]\nimage_directory = \"photos\"\ncaption_extension = \".txt\"\nresolution = 128\n\
         enable_bucket = true\ncache_directory = \"musubi\"\n",
    );
    folder.write(
        "multidatabackend.json",
        r#"[{"id": "photos", "type": "local", "instance_data_dir": "photos", "cache_dir_vae": "vae", "resolution": 128,
            "resolution_type": "pixel_area", "caption_strategy": "textfile"}]"#,
    );
    folder.write(
        "job.yaml",
        "job: extension\nconfig:\n  name: photos\n  process:\n    - type: sd_trainer\n      datasets:\n        \
         - folder_path: photos\n          caption_ext: txt\n          resolution: 128\n          \
         cache_latents_to_disk: true\n      model:\n        name_or_path: x\n        arch: sdxl\n",
    );
}

#[test]
fn every_prebake_command_of_the_readme_runs_as_written() {
    let folder = Folder::new();
    folder.picture("photos/a.png", 150, 110, 1);
    folder.picture("photos/cats/b.png", 90, 200, 2);
    folder.write("photos/a.txt", "a");
    folder.write("photos/cats/b.txt", "b");
    fs::copy(tiny_vae(), folder.join("sdxl_vae.safetensors")).unwrap();
    fs::copy(support::data("vae/flux_tiny_f16.safetensors"), folder.join("ae.safetensors")).unwrap();
    let wan = made_weights::write(folder.path(), &made_weights::tensors("wan", Style::Original));
    fs::rename(wan, folder.join("qwen_image_vae.safetensors")).unwrap();
    write_descriptions(&folder);
    fs::create_dir(folder.join("model")).unwrap();
    fs::copy(support::data("tokens/bpe.json"), folder.join("model/tokenizer.json")).unwrap();
    folder.write("model/chat_template.jinja", "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}");
    folder.write(
        "train.jsonl",
        r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}"#,
    );
    let commands = readme_commands();
    assert!(commands.len() >= 15, "{commands:?}");
    for arguments in commands {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = command(&arguments).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn pixels_are_not_written_into_the_dataset() {
    let folder = two_pictures();
    let text = refused(&folder, "pixels", &["-o", folder.join("out").to_str().unwrap()]);
    assert!(text.contains("error: --output lies in the dataset: its pictures would become samples"), "{text}");
}

#[test]
fn a_place_that_cannot_be_written_ends_the_run_before_anything_is_encoded() {
    let folder = two_pictures();
    folder.write(".prebake", "in the way");
    let vae = tiny_vae();
    let outcome = folder.run("bake", &["--resolution", "128", "--vae", vae.to_str().unwrap(), "--progress", "json"]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.stderr.contains(".prebake") && !outcome.stderr.contains("\"bake\""), "{}", outcome.stderr);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_cache_file_is_named_and_hangs_nothing() {
    let folder = two_pictures();
    let pipe = folder.join("a_0150x0110_sdxl.npz");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let vae = tiny_vae();
    let flags = [
        "--for",
        "sd-scripts",
        "--resolution",
        "128",
        "--min-bucket",
        "64",
        "--vae",
        vae.to_str().unwrap(),
        "--json",
        "-q",
    ];
    let outcome = folder.run("bake", &flags);
    assert_eq!((outcome.code, outcome.json()["encoded"].as_u64()), (1, Some(1)));
    assert_eq!(outcome.problems("unsupported"), [("a.png".to_owned(), "error".to_owned())]);
}

#[test]
fn two_bakes_at_once_encode_each_picture_once() {
    let folder = Folder::new();
    for i in 0..6 {
        folder.picture(&format!("{i}.png"), 128, 128, i);
    }
    let vae = tiny_vae();
    let arguments = [
        "bake",
        folder.path().to_str().unwrap(),
        "--resolution",
        "128",
        "--vae",
        vae.to_str().unwrap(),
        "--json",
        "-q",
    ];
    let start = || command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let encoded: u64 = [start(), start()]
        .map(|child| serde_json::from_slice::<serde_json::Value>(&child.wait_with_output().unwrap().stdout).unwrap())
        .iter()
        .map(|summary| summary["encoded"].as_u64().unwrap())
        .sum();
    assert_eq!(encoded, 6);
}
