//! The bucket rules: sd-scripts' own answers, and the properties of ours.

use prebake::bucket::{Assignment, BucketRule, NoBucket, SdScriptsBuckets, StoreBuckets, sd_scripts, store};
use prebake::units::{Rect, Size};
use proptest::prelude::*;
use serde_json::Value;

fn golden_text() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sd-scripts/buckets.json");
    std::fs::read_to_string(path).unwrap()
}

fn golden() -> Value {
    serde_json::from_str(&golden_text()).unwrap()
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
}

fn size(value: &Value) -> Size {
    let sides = numbers(value);
    Size::new(sides[0], sides[1])
}

fn number_or(value: &Value, otherwise: u32) -> u32 {
    value.as_u64().map_or(otherwise, |n| n as u32)
}

fn rule_of(config: &Value) -> SdScriptsBuckets {
    SdScriptsBuckets::new(sd_scripts::Settings {
        resolution: size(&config["resolution"]),
        min_bucket: number_or(&config["min_bucket_reso"], 0),
        max_bucket: number_or(&config["max_bucket_reso"], 0),
        step: number_or(&config["bucket_reso_steps"], 0),
        upscale: !config["bucket_no_upscale"].as_bool().unwrap(),
        enabled: config["enable_bucket"].as_bool().unwrap(),
    })
    .unwrap()
}

#[test]
fn every_size_gets_the_bucket_the_scale_and_the_crop_that_sd_scripts_gives() {
    let golden = golden();
    let sizes: Vec<Size> = golden["sizes"].as_array().unwrap().iter().map(size).collect();
    let (mut assigned, mut refused) = (0, 0);
    for config in golden["configs"].as_array().unwrap() {
        let rule = rule_of(config);
        for (&source, row) in sizes.iter().zip(config["rows"].as_array().unwrap()) {
            let answer = rule.assign(source);
            let what = format!("{} {source} {row}", config["name"]);
            if row.is_string() || row[0].is_string() {
                assert!(answer.is_err(), "{what}: {answer:?}");
                refused += 1;
                continue;
            }
            let row = numbers(row);
            let bucket = Size::new(row[0], row[1]);
            let expected =
                Assignment { bucket, resized: Size::new(row[2], row[3]), crop: Rect::new(row[4], row[5], bucket) };
            assert_eq!(answer, Ok(expected), "{what}");
            assigned += 1;
        }
    }
    assert_eq!((assigned, refused), (4276, 124));
}

/// The `crop_ltrb` lists of all configurations, from the text itself: serde_json's fast path may miss the last bit.
fn exact_crop_ltrb() -> Vec<Vec<Option<[f64; 4]>>> {
    let row = |text: &str| {
        let floats = text.trim_matches(['[', ']']).split(',').map(|f| f.parse::<f64>());
        floats.collect::<Result<Vec<_>, _>>().ok()?.try_into().ok()
    };
    let lists = golden_text();
    let lists = lists.split("\"crop_ltrb\":[").skip(1).filter(|list| list.starts_with(['[', 'n']));
    lists.map(|list| list[..list.find("]]").unwrap()].replace("null", "[]").split("],").map(row).collect()).collect()
}

#[test]
fn crop_ltrb_equals_the_floats_that_sd_scripts_stores() {
    let golden = golden();
    let sizes: Vec<Size> = golden["sizes"].as_array().unwrap().iter().map(size).collect();
    let mut compared = 0;
    for (config, rows) in golden["configs"].as_array().unwrap().iter().zip(exact_crop_ltrb()) {
        assert_eq!(rows.len(), sizes.len());
        let rule = rule_of(config);
        for (&source, floats) in sizes.iter().zip(rows) {
            let (Ok(assignment), Some(floats)) = (rule.assign(source), floats) else { continue };
            assert_eq!(sd_scripts::crop_ltrb(assignment.bucket, source), floats, "{source}");
            compared += 1;
        }
    }
    assert_eq!(compared, 4276);
}

#[test]
fn predefined_buckets_and_adjusted_limits_are_those_of_sd_scripts() {
    let golden = golden();
    let mut lists = 0;
    for config in golden["configs"].as_array().unwrap() {
        let rule = rule_of(config);
        if let Some(predefined) = config["predefined"].as_array() {
            assert_eq!(rule.predefined(), predefined.iter().map(size).collect::<Vec<_>>());
            lists += 1;
        }
        if !config["adjusted_min_max"].is_null() {
            assert_eq!(vec![rule.min_bucket(), rule.max_bucket()], numbers(&config["adjusted_min_max"]));
        }
    }
    assert_eq!(lists, 7);
}

fn sd_settings() -> sd_scripts::Settings {
    sd_scripts::Settings {
        resolution: Size::new(1024, 1024),
        min_bucket: 256,
        max_bucket: 2048,
        step: 64,
        upscale: true,
        enabled: true,
    }
}

#[test]
fn settings_on_which_sd_scripts_asserts_are_usage_texts() {
    let refused = |settings| SdScriptsBuckets::new(settings).unwrap_err();
    assert_eq!(
        refused(sd_scripts::Settings { min_bucket: 1088, ..sd_settings() }),
        "smallest bucket side 1088 is over the resolution 1024x1024, at most 1024 is allowed"
    );
    assert_eq!(
        refused(sd_scripts::Settings { max_bucket: 900, ..sd_settings() }),
        "largest bucket side 960 is under the resolution 1024x1024, at least 1024 is needed"
    );
    assert_eq!(
        refused(sd_scripts::Settings { step: 0, ..sd_settings() }),
        "bucket step has a side of 0 pixels, allowed are 1 to 65535"
    );
    assert_eq!(
        refused(sd_scripts::Settings { min_bucket: 63, ..sd_settings() }),
        "smallest bucket side is under the bucket step, at least 64 is needed"
    );
}

fn capped(side: u64, step: u32) -> store::Settings {
    store::Settings { max_area: side * side, step, min_bucket: None, max_bucket: None, upscale: false, fixed: None }
}

fn assign(settings: store::Settings, width: u32, height: u32) -> Result<Assignment, NoBucket> {
    StoreBuckets::new(settings).unwrap().assign(Size::new(width, height))
}

#[test]
fn a_picture_on_the_step_under_the_cap_is_neither_scaled_nor_cut() {
    for (width, height) in [(512, 768), (768, 512), (512, 512), (64, 64)] {
        let whole = Size::new(width, height);
        let expected = Assignment { bucket: whole, resized: whole, crop: Rect::whole(whole) };
        assert_eq!(assign(capped(768, 64), width, height), Ok(expected));
    }
}

#[test]
fn a_side_under_one_step_is_too_small_and_says_what_is_needed() {
    for (width, height) in [(1, 1), (7, 7), (8, 8), (1, 512), (512, 1), (63, 64), (4096, 16)] {
        let Err(NoBucket::TooSmall(message)) = assign(capped(1024, 64), width, height) else {
            panic!("{width}x{height} is not too small");
        };
        let needed = "at least 64x64 is needed where nothing is enlarged";
        assert_eq!(message, format!("{width}x{height} pixels, {needed}"));
    }
}

#[test]
fn panorama_and_tower_get_long_mirrored_buckets() {
    let pano = assign(capped(1024, 64), 8000, 200).unwrap();
    assert_eq!((pano.bucket, pano.resized), (Size::new(6464, 128), Size::new(6464, 162)));
    assert_eq!(pano.crop, Rect::new(0, 17, Size::new(6464, 128)));
    let tower = assign(capped(1024, 64), 200, 8000).unwrap();
    assert_eq!((tower.bucket, tower.resized), (Size::new(128, 6464), Size::new(162, 6464)));
}

#[test]
fn a_photo_over_the_cap_is_scaled_to_cover_the_bucket_that_keeps_most_of_it() {
    // 4032x3024: the ideal is 1182.4x886.8. 1152x832, 1152x896 and 1216x832 are under the cap, 1216x896 is not;
    // they keep 0.963, 0.964 and 0.912 of the picture.
    let photo = assign(capped(1024, 64), 4032, 3024).unwrap();
    assert_eq!((photo.bucket, photo.resized), (Size::new(1152, 896), Size::new(1195, 896)));
    assert_eq!(photo.crop, Rect::new(21, 0, Size::new(1152, 896)));
    assert!((photo.crop_loss() - (1.0 - 1152.0 / 1195.0)).abs() < 1e-12);
    assert!((photo.upscale(Size::new(4032, 3024)) - 1195.0 / 4032.0).abs() < 1e-12);
}

#[test]
fn upscaling_fills_the_cap_and_tells_the_factor() {
    let settings = store::Settings { upscale: true, ..capped(1024, 64) };
    let source = Size::new(100, 50);
    let enlarged = StoreBuckets::new(settings).unwrap().assign(source).unwrap();
    assert_eq!((enlarged.bucket, enlarged.resized), (Size::new(1408, 704), Size::new(1408, 704)));
    assert_eq!(enlarged.upscale(source), 14.08);
    let dot = assign(settings, 1, 1).unwrap();
    assert_eq!(dot.bucket, Size::new(1024, 1024));
}

#[test]
fn the_longest_side_scales_the_picture_rather_than_cutting_it() {
    let settings = store::Settings { max_bucket: Some(1100), ..capped(1024, 64) };
    assert_eq!(assign(settings, 4000, 2000).unwrap().bucket, Size::new(1088, 576));
    let settings = store::Settings { min_bucket: Some(256), ..capped(1024, 64) };
    assert_eq!(assign(settings, 8000, 400).unwrap().bucket, Size::new(4096, 256));
}

#[test]
fn one_fixed_size_takes_every_picture_that_is_not_smaller() {
    let settings = store::Settings { fixed: Some(Size::new(512, 256)), ..capped(512, 64) };
    let fitted = assign(settings, 600, 600).unwrap();
    assert_eq!((fitted.bucket, fitted.resized), (Size::new(512, 256), Size::new(512, 512)));
    assert_eq!(fitted.crop.top, 128);
    assert!(matches!(assign(settings, 511, 600), Err(NoBucket::TooSmall(_))));
    let upscaled = store::Settings { upscale: true, ..settings };
    assert_eq!(assign(upscaled, 256, 256).unwrap().resized, Size::new(512, 512));
}

#[test]
fn contradicting_settings_are_refused_with_both_values() {
    let refused = |settings| StoreBuckets::new(settings).unwrap_err();
    assert_eq!(refused(store::Settings { step: 0, ..capped(64, 64) }), "bucket step is 0 pixels, at least 1 is needed");
    assert_eq!(refused(capped(32, 64)), "the cap of 1024 pixels is under the smallest bucket 64x64");
    let narrow = store::Settings { min_bucket: Some(512), max_bucket: Some(500), ..capped(1024, 64) };
    assert_eq!(refused(narrow), "largest bucket side 448 is under the smallest 512");
    let odd = store::Settings { fixed: Some(Size::new(100, 128)), ..capped(1024, 64) };
    assert_eq!(refused(odd), "the one bucket 100x128 has a side that is no multiple of the step 64");
}

prop_compose! {
    fn store_settings()(
        side in 64u64..3000, step in prop::sample::select(vec![8u32, 16, 32, 64]), upscale: bool,
        min in prop::option::of(1u32..60), max in prop::option::of(64u32..5000),
    ) -> store::Settings {
        store::Settings { min_bucket: min, max_bucket: max, upscale, ..capped(side, step) }
    }
}

fn source() -> impl Strategy<Value = Size> {
    let side = || prop_oneof![0u32..300, 0u32..4000, 0u32..=70000];
    (side(), side()).prop_map(|(width, height)| Size::new(width, height))
}

fn holds_its_crop(assignment: &Assignment) -> bool {
    let [left, top, right, bottom] = assignment.crop.into();
    assignment.crop.size == assignment.bucket
        && !assignment.bucket.is_empty()
        && left < right
        && top < bottom
        && right <= assignment.resized.width
        && bottom <= assignment.resized.height
}

proptest! {
    #[test]
    fn our_buckets_keep_cap_step_limits_and_crop(settings in store_settings(), source in source()) {
        let rule = StoreBuckets::new(settings).unwrap();
        if let Ok(assignment) = rule.assign(source) {
            let bucket = assignment.bucket;
            prop_assert!(bucket.area() <= settings.max_area);
            prop_assert!(bucket.width.is_multiple_of(settings.step) && bucket.height.is_multiple_of(settings.step));
            prop_assert!(bucket.width.min(bucket.height) >= rule.min_bucket());
            prop_assert!(bucket.width.max(bucket.height) <= rule.max_bucket());
            prop_assert!(holds_its_crop(&assignment));
            prop_assert!(settings.upscale || assignment.upscale(source) <= 1.0);
        }
    }

    #[test]
    fn every_picture_no_smaller_than_the_shortest_side_has_a_bucket(
        settings in store_settings(), source in source(),
    ) {
        let rule = StoreBuckets::new(settings).unwrap();
        let fits = source.width.min(source.height) >= rule.min_bucket();
        let expected = fits || (settings.upscale && !source.is_empty());
        prop_assert_eq!(rule.assign(source).is_ok(), expected);
    }

    #[test]
    fn no_size_at_all_panics(settings in store_settings(), width: u32, height: u32, upscale: bool) {
        for source in [Size::new(width, height), Size::new(width, 1), Size::new(u32::MAX, height)] {
            let ours = StoreBuckets::new(settings).unwrap().assign(source);
            let theirs = SdScriptsBuckets::new(sd_scripts::Settings { upscale, ..sd_settings() }).unwrap().assign(source);
            for assignment in [ours, theirs].into_iter().flatten() {
                prop_assert!(holds_its_crop(&assignment));
            }
        }
    }

    #[test]
    fn mirrored_pictures_get_mirrored_buckets(settings in store_settings(), source in source()) {
        let rule = StoreBuckets::new(settings).unwrap();
        let mirrored = rule.assign(source.transposed()).ok();
        let expected = rule.assign(source).ok().map(|a| (a.bucket.transposed(), a.resized.transposed()));
        prop_assert_eq!(mirrored.map(|a| (a.bucket, a.resized)), expected);
    }

    #[test]
    fn sd_scripts_rules_keep_the_crop_inside_and_never_enlarge_unasked(
        step in prop::sample::select(vec![8u32, 16, 32, 64]), upscale: bool, enabled: bool, source in source(),
    ) {
        let rule = SdScriptsBuckets::new(sd_scripts::Settings { step, upscale, enabled, ..sd_settings() }).unwrap();
        if let Ok(assignment) = rule.assign(source) {
            prop_assert!(holds_its_crop(&assignment));
            prop_assert!(upscale || !enabled || assignment.upscale(source) <= 1.0);
        }
    }
}
