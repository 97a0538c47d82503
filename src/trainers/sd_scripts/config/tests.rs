use super::*;
use crate::recipe::Filter;
use crate::units::Size;
use tempfile::TempDir;

/// A folder with `a` and `b` in it.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    home
}

fn read(home: &TempDir, text: &str) -> Result<Description> {
    parse(Path::new("data/set.toml"), text, home.path()).expect("a dataset config")
}

#[test]
fn a_subset_falls_back_to_its_dataset_then_to_general() {
    let home = home();
    let text = r#"
        [general]
        enable_bucket = true
        flip_aug = true
        caption_extension = "txt"
        bucket_no_upscale = true
        [[datasets]]
        resolution = [768, 512]
        batch_size = 4
        [[datasets.subsets]]
        image_dir = "a"
        flip_aug = false
        alpha_mask = true
        num_repeats = 3
        [[datasets.subsets]]
        image_dir = "b"
        resize_interpolation = "cubic"
        [[datasets]]
        resolution = 512
        enable_bucket = false
        [[datasets.subsets]]
        image_dir = "a"
    "#;
    let subsets = read(&home, text).unwrap().subsets;
    let [first, second, third] = &subsets[..] else { panic!("{subsets:?}") };
    assert_eq!(first.folder, home.path().join("a"));
    assert_eq!((first.repeats, first.recursive), (Some(3), false));
    assert_eq!(first.caption_ext, [".txt"]);
    assert_eq!(first.settings.resolution, Some(Size::new(768, 512)));
    assert_eq!((first.settings.flip, first.settings.alpha_mask), (Some(false), Some(true)));
    let of_dataset = (first.settings.buckets, first.settings.upscale, first.settings.batch);
    assert_eq!(of_dataset, (Some(true), Some(false), Some(4)));
    assert_eq!((second.settings.flip, second.settings.alpha_mask), (Some(true), None));
    assert_eq!(second.settings.resize, Some(Filter::Bicubic));
    assert_eq!(third.settings.buckets, Some(false));
    assert_eq!(third.settings.resolution, Some(Size::new(512, 512)));
}

#[test]
fn the_trainers_own_defaults_hold_where_the_file_is_silent() {
    let subset = &read(&home(), "[[datasets]]\n[[datasets.subsets]]\nimage_dir = \"a\"").unwrap().subsets[0];
    assert_eq!(subset.caption_ext, [".caption"]);
    assert_eq!((subset.settings.buckets, subset.described_by), (None, Some(Target::SdScripts)));
    assert_eq!(subset.repeats, Some(1));
}

#[test]
fn keys_that_the_trainer_refuses_and_those_that_shape_no_latent_are_named_apart() {
    let text = "[general]\nshuffle_caption = true\nskip_image_resolution = 1\n[[datasets]]\nis_reg = true\n\
                [[datasets.subsets]]\nimage_dir = \"a\"\nresolution = 5\n[extra]";
    assert_eq!(
        read(&home(), text).unwrap().warnings,
        [
            "`data/set.toml`: sd-scripts refuses these keys, and ends with an error: [extra], is_reg in [[datasets]], \
             resolution in [[datasets.subsets]], skip_image_resolution in [general]",
            "`data/set.toml`: these keys shape no latent and are left to the trainer: shuffle_caption",
        ]
    );
}

#[test]
fn what_cannot_be_cached_is_refused_by_name() {
    for key in ["random_crop", "color_aug"] {
        for text in [
            format!("[general]\n{key} = true\n[[datasets]]\n[[datasets.subsets]]\nimage_dir = \"a\""),
            format!("[[datasets]]\n[[datasets.subsets]]\nimage_dir = \"a\"\n{key} = true"),
        ] {
            assert!(read(&home(), &text).unwrap_err().to_string().contains(key), "{text}");
        }
        let off =
            format!("[general]\n{key} = true\n[[datasets]]\n[[datasets.subsets]]\nimage_dir = \"a\"\n{key} = false");
        assert!(read(&home(), &off).is_ok(), "a `false` in the subset wins");
    }
}

#[test]
fn subsets_that_the_trainer_leaves_out_are_left_out_and_named() {
    let text = "[[datasets]]\n[[datasets.subsets]]\nimage_dir = \"a\"\nnum_repeats = 2\n\
                [[datasets.subsets]]\nimage_dir = \"a\"\nnum_repeats = 9\n\
                [[datasets.subsets]]\nimage_dir = \"b\"\nnum_repeats = 0\n\
                [[datasets.subsets]]\nimage_dir = \"absent\"";
    let described = read(&home(), text).unwrap();
    assert_eq!(described.subsets.iter().map(|subset| subset.repeats).collect::<Vec<_>>(), [Some(2)]);
    assert!(described.warnings[0].contains("`b` is left out, as the trainer does: num_repeats is 0"));
    assert!(described.problems[0].message.contains("is no folder: the trainer leaves it out"));
}

#[test]
fn kinds_of_dataset_that_do_not_mix_or_are_not_read_are_refused_by_name() {
    let subset = |keys: &str| format!("[[datasets.subsets]]\n{keys}\n");
    let mixed = subset("image_dir = \"a\"") + &subset("metadata_file = \"m.json\"");
    let control = subset("image_dir = \"a\"\nconditioning_data_dir = \"b\"");
    for (subsets, wanted) in [(mixed, "metadata_file"), (control, "conditioning_data_dir")] {
        let error = read(&home(), &format!("[[datasets]]\n{subsets}")).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_fine_tuning_subset_lists_what_its_metadata_names() {
    let home = home();
    std::fs::write(home.path().join("m.json"), r#"{"x.png": {"caption": "c", "tags": "t", "image_size": [20, 10]}}"#)
        .unwrap();
    let text = "[general]\ncaption_separator = \"; \"\n[[datasets]]\nresolution = 512\n[[datasets.subsets]]\n\
                metadata_file = \"m.json\"\nimage_dir = \"a\"\nnum_repeats = 4\nflip_aug = true";
    let described = read(&home, text).unwrap();
    let [subset] = &described.subsets[..] else { panic!("{described:?}") };
    let [listed] = &subset.listed.as_ref().unwrap()[..] else { panic!("{subset:?}") };
    assert_eq!((listed.path.clone(), listed.caption.as_deref()), (home.path().join("a/x.png"), Some("c; t")));
    assert_eq!(listed.stated.unwrap().size, Some(Size::new(20, 10)));
    assert_eq!((subset.repeats, subset.settings.flip), (Some(4), Some(true)));
    let without_folder = text.replace("image_dir = \"a\"\n", "");
    let problems = read(&home, &without_folder).unwrap().problems;
    assert!(problems[0].message.contains("the subset has no `image_dir`"), "{problems:?}");
}

#[test]
fn a_wrong_value_names_the_key_the_value_and_what_is_allowed() {
    let text = "[[datasets]]\nresolution = \"big\"\n[[datasets.subsets]]\nimage_dir = \"a\"";
    let message = read(&home(), text).unwrap_err().to_string();
    assert_eq!(message, "`data/set.toml`: `resolution = \"big\"`: a number or [width, height] is needed");
}

#[test]
fn json_says_the_same_as_toml() {
    let text = r#"{"datasets": [{"resolution": [640, 512], "subsets": [{"image_dir": "a", "num_repeats": 2}]}]}"#;
    let home = home();
    let subset = &parse(Path::new("set.json"), text, home.path()).unwrap().unwrap().subsets[0];
    assert_eq!((subset.settings.resolution, subset.repeats), (Some(Size::new(640, 512)), Some(2)));
}

#[test]
fn other_texts_are_no_dataset_config() {
    assert!(parse(Path::new("a.json"), "{}", Path::new("")).is_none());
    assert!(parse(Path::new("a.toml"), "x = 1", Path::new("")).is_none());
    assert!(parse(Path::new("a.toml"), "x = ", Path::new("")).is_some_and(|r| r.is_err()));
    let musubi = "[general]\nresolution = 512\n[[datasets]]\nimage_directory = \"a\"";
    assert!(parse(Path::new("a.toml"), musubi, Path::new("")).is_none());
}
