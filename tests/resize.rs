//! Golden pictures of OpenCV and Pillow: what sd-scripts hands to the VAE, and random shapes.

use image::RgbaImage;
use prebake::bucket::{Assignment, BucketRule, SdScriptsBuckets, sd_scripts};
use prebake::pixels::Raster;
use prebake::pixels::resize::resize;
use prebake::recipe::Resample;
use prebake::units::{Rect, Size};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn data(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(path)
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(data(path)).unwrap()).unwrap()
}

fn size(value: &Value) -> Size {
    serde_json::from_value(value.clone()).unwrap()
}

fn read(path: &str, channels: usize) -> Raster {
    let image = image::open(data(path)).unwrap();
    let size = Size::new(image.width(), image.height());
    let data = match channels {
        1 => image.into_luma8().into_raw(),
        3 => image.into_rgb8().into_raw(),
        _ => RgbaImage::into_raw(image.into_rgba8()),
    };
    Raster { size, channels, data }
}

fn crop(source: &Raster, rect: Rect) -> Raster {
    let [left, top, right, bottom] = <[u32; 4]>::from(rect).map(|edge| edge as usize);
    let columns = left * source.channels..right * source.channels;
    let data = (top..bottom).flat_map(|y| source.row(y)[columns.clone()].iter().copied()).collect();
    Raster { size: rect.size, channels: source.channels, data }
}

/// sd-scripts' choice of library and filter.
fn filter_of(case: &Value, source: Size, to: Size) -> Resample {
    match case["interp"].as_str() {
        None if source.width >= to.width && source.height >= to.height => Resample::Cv2Area,
        None | Some("lanczos") => Resample::PillowLanczos,
        Some("box") => Resample::PillowBox,
        Some("area") => Resample::Cv2Area,
        Some("linear" | "bilinear") => Resample::Cv2Linear,
        Some("cubic" | "bicubic") => Resample::Cv2Cubic,
        Some("nearest") => Resample::Cv2NearestExact,
        Some(other) => panic!("interpolation {other}"),
    }
}

fn assignment_of(case: &Value) -> Assignment {
    let number = |name: &str| case[name].as_u64().map_or(0, |n| n as u32);
    let settings = sd_scripts::Settings {
        resolution: size(&case["resolution"]),
        min_bucket: number("min"),
        max_bucket: number("max"),
        step: number("steps"),
        upscale: !case["noup"].as_bool().unwrap(),
        enabled: case["case"] != "nobucket128",
    };
    let assignment = SdScriptsBuckets::new(settings).unwrap().assign(size(&case["image_size_reported"])).unwrap();
    assert_eq!((assignment.bucket, assignment.resized), (size(&case["bucket"]), size(&case["resized"])), "{case}");
    assignment
}

#[test]
fn decoded_pictures_become_what_sd_scripts_hands_to_the_vae() {
    let golden = json("sd-scripts/pixels/pixels.json");
    let cases = golden["cases"].as_array().unwrap();
    let mut compared = 0;
    for case in cases {
        // `lanczos4` is a name that sd-scripts itself refuses.
        let Some(expected) = case["expected"].as_str() else { continue };
        let alpha = case["alpha"].as_bool().unwrap();
        let name = case["image"].as_str().unwrap();
        let source = match golden["decoded"][name].as_str() {
            Some(decoded) if !alpha => read(&format!("sd-scripts/pixels/decoded/{decoded}"), 3),
            _ => read(&format!("sd-scripts/pixels/images/{name}"), if alpha { 4 } else { 3 }),
        };
        let assignment = assignment_of(case);
        let resized = resize(&source, assignment.resized, filter_of(case, source.size, assignment.resized));
        let actual = crop(&resized, assignment.crop);

        let colours = read(&format!("sd-scripts/pixels/expected/{expected}"), 3);
        let kept = actual.data.chunks_exact(actual.channels).flat_map(|pixel| &pixel[..3]).copied();
        assert!(kept.eq(colours.data), "{expected} differs");
        if alpha {
            let mask = case["expected_mask"].as_str().unwrap();
            let levels = read(&format!("sd-scripts/pixels/expected/{mask}"), 1).data;
            assert!(actual.data.iter().skip(3).step_by(4).eq(&levels), "{mask} differs");
        }
        compared += 1;
    }
    assert_eq!((compared, cases.len()), (50, 51));
}

fn filter_named(name: &str) -> Resample {
    serde_json::from_value(Value::from(name)).unwrap()
}

#[test]
fn every_filter_equals_its_library_on_shapes_of_all_kinds() {
    let mut compared = 0;
    for entry in std::fs::read_dir(data("resize")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let parts: Vec<&str> = name.split('.').collect();
        let [source, filter, _, "png"] = parts[..] else { continue };
        let channels = source.rsplit_once('x').unwrap().1.parse().unwrap();
        let source = read(&format!("resize/{source}.png"), channels);
        let expected = read(&format!("resize/{name}"), channels);
        assert_eq!(resize(&source, expected.size, filter_named(filter)), expected, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 26 * 8);
}

#[test]
fn the_same_size_and_empty_sides_are_answered_without_a_filter() {
    let source = read("resize/source_3x5x4.png", 4);
    for filter in ["cv2-area", "cv2-cubic", "pillow-lanczos"].map(filter_named) {
        assert_eq!(resize(&source, source.size, filter), source);
        assert_eq!(resize(&source, Size::new(0, 7), filter), Raster::zeroed(Size::new(0, 7), 4));
        let empty = Raster::zeroed(Size::new(0, 3), 3);
        assert_eq!(resize(&empty, Size::new(2, 2), filter), Raster::zeroed(Size::new(2, 2), 3));
    }
}
