//! Golden and hazard files through the decoders and the whole pixel chain.
//!
//! `data/sd-scripts/pixels/decoded` holds what Pillow's `convert("RGB")` gave for each picture of `images`.

use prebake::pixels::{Decoded, Format, Prepared, Raster, Refusal, decode, is_transparent, prepare};
use prebake::problem::Kind;
use prebake::recipe::{Alpha, Colour, Decoder, PixelRecipe, Resample};
use prebake::units::{Rect, Size};
use serde_json::Value;
use std::path::PathBuf;

fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn read(path: &str) -> Vec<u8> {
    std::fs::read(data(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn expected(path: &str) -> Value {
    serde_json::from_slice(&read(path)).unwrap()
}

/// A recipe that changes nothing of a stored picture of `size`.
fn as_stored(size: Size) -> PixelRecipe {
    PixelRecipe {
        decoder: Decoder::Pillow,
        orientation: 1,
        colour: Colour::AsStored,
        clip_gray16: false,
        alpha: Alpha::Drop,
        resample: None,
        resized: size,
        crop: Rect::whole(size),
        mirrored: false,
    }
}

fn decoded(path: &str) -> Decoded {
    decode(&read(path)).unwrap_or_else(|refusal| panic!("{path}: {refusal}"))
}

fn prepared(path: &str, recipe: &PixelRecipe) -> Prepared {
    prepare(&read(path), recipe).unwrap_or_else(|refusal| panic!("{path}: {refusal}"))
}

fn refusal(path: &str) -> Refusal {
    decode(&read(path)).expect_err(path)
}

fn pixel(picture: &Prepared, x: usize, y: usize) -> [u8; 3] {
    let at = 3 * (y * picture.size.width as usize + x);
    picture.rgb[at..at + 3].try_into().unwrap()
}

fn assert_close(got: [u8; 3], wanted: &Value, tolerance: u64, what: &str) {
    for (channel, wanted) in wanted.as_array().unwrap().iter().enumerate() {
        let off = u64::from(got[channel]).abs_diff(wanted.as_u64().unwrap());
        assert!(off <= tolerance, "{what}: {got:?}, not {wanted}, in channel {channel}");
    }
}

/// Holds the `pixels` probes of a case's file against a prepared picture.
fn assert_probes(picture: &Prepared, file: &Value, what: &str) {
    for probe in file["pixels"].as_array().unwrap() {
        let at = |i: usize| probe["at"][i].as_u64().unwrap() as usize;
        assert_close(pixel(picture, at(0), at(1)), &probe["rgb"], probe["tol"].as_u64().unwrap(), what);
    }
}

#[test]
fn every_golden_picture_decodes_to_pillows_values() {
    let mut compared = 0;
    for entry in std::fs::read_dir(data("sd-scripts/pixels/images")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let golden = data(&format!("sd-scripts/pixels/decoded/{}.png", name.replace('.', "_")));
        if !golden.exists() {
            continue;
        }
        let golden = image::open(golden).unwrap().into_rgb8();
        let size = Size::new(golden.width(), golden.height());
        let recipe = PixelRecipe { clip_gray16: true, ..as_stored(size) };
        let got = prepared(&format!("sd-scripts/pixels/images/{name}"), &recipe);
        let differ = got.rgb.iter().zip(golden.as_raw()).filter(|(a, b)| a != b).count();
        assert_eq!((got.size, differ), (size, 0), "{name}: samples that differ");
        compared += 1;
    }
    assert_eq!(compared, 19);
}

#[test]
fn bitmaps_decode_as_they_are() {
    let raster = decoded("hazards/plain.bmp").raster;
    assert_eq!((raster.size, raster.channels, &raster.data[..3]), (Size::new(64, 48), 3, &[220, 30, 30][..]));
}

#[test]
fn the_encoders_input_has_torchvisions_very_floats() {
    let npy = read("sd-scripts/pixels/normalise_lut_f32.npy");
    let header = u16::from_le_bytes([npy[8], npy[9]]) as usize;
    let table: Vec<f32> =
        npy[10 + header..].as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    assert_eq!(table.len(), 256);
    let ramp: Vec<u8> = (0..=255).flat_map(|value: u8| [value, 255 - value, value ^ 0x55]).collect();
    let chw = Prepared { size: Size::new(32, 8), rgb: ramp.clone(), mask: None }.to_chw();
    for channel in 0..3 {
        for index in 0..256 {
            let wanted = table[usize::from(ramp[3 * index + channel])];
            assert_eq!(chw[256 * channel + index].to_bits(), wanted.to_bits(), "channel {channel}, pixel {index}");
        }
    }
}

/// The upright size and orientation of the hazard files that carry a tag.
fn hazard_orientation(name: &str) -> u8 {
    match name {
        "orient3.jpg" => 3,
        "orient5.jpg" => 5,
        "orient6.jpg" | "orient6.png" => 6,
        _ => 1,
    }
}

#[test]
fn hazard_files_give_their_expected_first_pixel_or_a_refusal_of_the_right_kind() {
    for (name, wanted) in expected("hazards/expected.json").as_object().unwrap() {
        let path = format!("hazards/{name}");
        let kind = match wanted["action"].as_str().unwrap() {
            "reject_corrupt" => Some(Kind::Damaged),
            "reject_empty" => Some(Kind::Empty),
            "reject_not_image" => Some(Kind::NotImage),
            "reject_too_large" => Some(Kind::TooLarge),
            // No decoder for these is built in.
            "reject_unsupported" | "accept_if_feature" => Some(Kind::Unsupported),
            _ => None,
        };
        if let Some(kind) = kind {
            assert_eq!(refusal(&path).kind, kind, "{name}: {}", refusal(&path));
            continue;
        }
        let size: [u32; 2] = serde_json::from_value(wanted["size"].clone()).unwrap();
        let recipe = PixelRecipe { orientation: hazard_orientation(name), ..as_stored(size.into()) };
        let tolerance = wanted["tol"].as_u64().unwrap_or(0);
        let probe = |recipe: &PixelRecipe, field: &str| {
            if wanted[field].is_array() {
                assert_close(
                    pixel(&prepared(&path, recipe), 0, 0),
                    &wanted[field],
                    tolerance,
                    &format!("{name} {field}"),
                );
            }
        };
        probe(&recipe, "px00");
        probe(&PixelRecipe { alpha: Alpha::Composite([255; 3]), ..recipe.clone() }, "px00_on_white");
        probe(&PixelRecipe { colour: Colour::IccToSrgb, ..recipe }, "px00_if_icc_applied");
    }
}

#[test]
fn a_picture_over_the_limit_is_refused_with_both_numbers() {
    assert_eq!(
        refusal("hazards/bomb_25000.png").message,
        "declares 25000x25000 = 625000000 pixels, at most 178956970 are decoded"
    );
}

#[test]
fn a_jpeg_over_the_limit_is_refused_by_its_header() {
    let mut jpeg = read("hazards/gray.jpg");
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    // Height and width follow marker, length and precision.
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xf0, 0, 0xf0, 0]);
    let refusal = decode(&jpeg).unwrap_err();
    assert_eq!((refusal.kind, &refusal.message[..29]), (Kind::TooLarge, "declares 61440x61440 = 377487"));
}

#[test]
fn sixteen_bit_gray_keeps_its_high_byte_unless_the_trainer_clips() {
    let path = "hazards/gray16.png";
    let recipe = as_stored(Size::new(64, 48));
    assert_eq!(pixel(&prepared(path, &recipe), 0, 0), [128; 3]);
    assert_eq!(pixel(&prepared(path, &PixelRecipe { clip_gray16: true, ..recipe }), 0, 0), [255; 3]);
}

#[test]
fn all_orientations_end_upright() {
    let case = expected("cases/s01-exif-orientation/expected.json");
    for (name, file) in case["files"].as_object().unwrap() {
        let orientation = name.as_bytes()[1] - b'0';
        let recipe = PixelRecipe { orientation, ..as_stored(Size::new(384, 576)) };
        let picture = prepared(&format!("cases/s01-exif-orientation/data/{name}"), &recipe);
        assert_probes(&picture, file, name);
    }
}

#[test]
fn transparency_becomes_the_background_and_never_the_hidden_colour() {
    let case = expected("cases/s02-transparent-png/expected.json");
    let transparent = case["has_transparency"].as_array().unwrap();
    for (name, file) in case["files_if_background_white"].as_object().unwrap() {
        let path = format!("cases/s02-transparent-png/data/{name}");
        let recipe = PixelRecipe { alpha: Alpha::Composite([255; 3]), ..as_stored(Size::new(256, 256)) };
        assert_probes(&prepared(&path, &recipe), file, name);
        assert_eq!(is_transparent(&decoded(&path).raster), transparent.contains(&name.as_str().into()), "{name}");
    }
}

#[test]
fn cut_files_are_damaged_and_whole_ones_with_a_ragged_end_are_not() {
    let case = expected("cases/s03-truncated-images/expected.json");
    let whole = decoded("cases/s03-truncated-images/data/good.jpg").raster;
    for (name, file) in case["files"].as_object().unwrap() {
        let path = format!("cases/s03-truncated-images/data/{name}");
        match file["status"].as_str().unwrap() {
            "damaged" => {
                let kind = refusal(&path).kind;
                assert!(matches!(kind, Kind::Damaged | Kind::Empty | Kind::NotImage), "{name}: {kind:?}");
            }
            _ => assert!(decoded(&path).raster == whole, "{name} differs from the whole picture"),
        }
    }
}

#[test]
fn content_decides_the_format_not_the_name() {
    let case = expected("cases/s12-wrong-extension/expected.json");
    for (name, file) in case["files"].as_object().unwrap().iter().filter(|(_, file)| file["status"] == "ok") {
        let path = format!("cases/s12-wrong-extension/data/{name}");
        assert_probes(&prepared(&path, &as_stored(Size::new(96, 64))), file, name);
    }
    assert_eq!(decoded("cases/s12-wrong-extension/data/no_ext_image").format, Format::Png);
    assert_eq!(decoded("cases/s12-wrong-extension/data/webp_named.jpg").format, Format::WebP);
    let heic = refusal("cases/s12-wrong-extension/data/photo.heic");
    assert_eq!(heic.to_string(), "HEIC is not read: convert it to PNG or JPEG");
}

/// Cuts a JPEG at each of its `0xff 0xda` markers, the starts of its scans.
fn scan_starts(jpeg: &[u8]) -> Vec<usize> {
    jpeg.windows(2).enumerate().filter(|(_, pair)| *pair == [0xff, 0xda]).map(|(at, _)| at).collect()
}

#[test]
fn a_progressive_jpeg_cut_between_two_scans_is_damaged() {
    let jpeg = read("sd-scripts/pixels/images/jpegprog_200x150.jpeg");
    let starts = scan_starts(&jpeg);
    assert!(starts.len() > 2);
    for &start in &starts {
        assert_eq!(decode(&jpeg[..start]).unwrap_err().kind, Kind::Damaged, "cut at {start}");
    }
    let whole = decode(&jpeg).unwrap();
    assert_eq!(decode(&jpeg[..jpeg.len() - 2]).unwrap(), whole, "only the end marker is missing");
}

#[test]
fn a_jpeg_cut_anywhere_in_its_picture_data_is_damaged() {
    for name in ["jpeg420_200x150.jpg", "l_140x100.jpg", "cmyk_200x150.jpg"] {
        let jpeg = read(&format!("sd-scripts/pixels/images/{name}"));
        let first = scan_starts(&jpeg)[0];
        for length in (first..jpeg.len() - 8).step_by(97) {
            assert_eq!(decode(&jpeg[..length]).map(|_| ()).unwrap_err().kind, Kind::Damaged, "{name} cut at {length}");
        }
    }
}

#[test]
fn picture_data_that_was_overwritten_is_damaged() {
    let mut jpeg = read("sd-scripts/pixels/images/jpeg420_200x150.jpg");
    let middle = jpeg.len() / 2;
    jpeg[middle..middle + 400].fill(0xaa);
    assert_eq!(decode(&jpeg).unwrap_err().kind, Kind::Damaged);
}

#[test]
fn no_flipped_byte_in_a_header_panics() {
    for name in
        ["hazards/gray.jpg", "hazards/cmyk.jpg", "hazards/rgba_hidden.png", "hazards/anim.gif", "hazards/anim.webp"]
    {
        let whole = read(name);
        for at in 0..whole.len().min(200) {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                let _ = decode(&bytes);
            }
        }
    }
}

#[test]
fn decoding_is_the_same_on_many_threads_errors_included() {
    let paths = [
        "hazards/gray.jpg",
        "hazards/truncated.jpg",
        "hazards/cmyk.jpg",
        "sd-scripts/pixels/images/jpeg420_200x150.jpg",
    ];
    let files: Vec<Vec<u8>> = paths.iter().map(|path| read(path)).collect();
    let alone: Vec<_> = files.iter().map(|bytes| decode(bytes)).collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let again: Vec<_> = files.iter().map(|bytes| decode(bytes)).collect();
                    assert!(again == alone);
                }
            });
        }
    });
}

#[test]
fn the_crop_keeps_its_rectangle_and_the_mirror_comes_after_it() {
    let bytes = read("sd-scripts/pixels/images/webp_lossless_200x150.webp");
    let size = Size::new(200, 150);
    let whole = prepare(&bytes, &as_stored(size)).unwrap();
    let crop = Rect::new(30, 20, Size::new(64, 96));
    let cut = prepare(&bytes, &PixelRecipe { crop, ..as_stored(size) }).unwrap();
    let mirrored = prepare(&bytes, &PixelRecipe { crop, mirrored: true, ..as_stored(size) }).unwrap();
    assert_eq!((cut.size, cut.mask), (Size::new(64, 96), None));
    for (x, y) in [(0, 0), (63, 0), (17, 95), (63, 95)] {
        let at = 3 * (y * 64 + x);
        assert_eq!(cut.rgb[at..at + 3], pixel(&whole, 30 + x, 20 + y));
        assert_eq!(pixel(&mirrored, 63 - x, y), pixel(&whole, 30 + x, 20 + y));
    }
}

#[test]
fn a_file_that_does_not_fit_its_recipe_is_refused_not_a_panic() {
    let bytes = read("hazards/plain.bmp");
    let other = prepare(&bytes, &as_stored(Size::new(96, 64))).unwrap_err();
    assert_eq!(other.to_string(), "is 64x48, planned as 96x64: not the file that was planned");
    let size = Size::new(64, 48);
    for crop in [Rect::new(1, 0, size), Rect::new(u32::MAX, 0, size), Rect::new(0, 0, Size::new(0, 48))] {
        assert!(prepare(&bytes, &PixelRecipe { crop, ..as_stored(size) }).is_err(), "{crop:?}");
    }
    let nothing = PixelRecipe { resized: Size::new(0, 0), resample: Some(Resample::Cv2Area), ..as_stored(size) };
    assert_eq!(prepare(&bytes, &nothing).unwrap_err().kind, Kind::TooSmall);
}

#[test]
fn keeping_alpha_gives_a_mask_and_255_where_the_file_has_none() {
    let keep = |size: Size| PixelRecipe { alpha: Alpha::Keep, ..as_stored(size) };
    let hidden = prepared("hazards/rgba_hidden.png", &keep(Size::new(64, 48)));
    assert_eq!(hidden.mask.as_ref().map(|mask| (mask.len(), mask[0])), Some((64 * 48, 0)));
    assert_eq!(pixel(&hidden, 0, 0), [220, 30, 30]);
    let opaque = prepared("hazards/plain.bmp", &keep(Size::new(64, 48)));
    assert!(opaque.mask.unwrap().iter().all(|&alpha| alpha == 255));
}

#[test]
fn gray_is_resized_to_the_same_values_as_its_rgb_twin() {
    let gray = decoded("sd-scripts/pixels/images/l_140x100.png").raster;
    let rgb = Raster { channels: 3, data: gray.data.iter().flat_map(|&v| [v; 3]).collect(), ..gray.clone() };
    for filter in [Resample::Cv2Area, Resample::PillowLanczos] {
        let to = Size::new(90, 64);
        let one = prebake::pixels::resize::resize(&gray, to, filter);
        let three = prebake::pixels::resize::resize(&rgb, to, filter);
        assert!(three.data.as_chunks::<3>().0.iter().zip(&one.data).all(|(rgb, v)| rgb == &[*v; 3]), "{filter:?}");
    }
}

#[test]
fn a_jpeg_whose_header_promises_more_rows_than_it_holds_is_damaged() {
    let mut jpeg = read("sd-scripts/pixels/images/jpeg420_200x150.jpg");
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 7].copy_from_slice(&6000_u16.to_be_bytes());
    assert_eq!(decode(&jpeg).unwrap_err().message, "JPEG is corrupt: its picture data ends before the last row");
}

#[test]
fn a_file_of_any_format_cut_within_its_picture_is_damaged() {
    let cuts = [
        ("hazards/plain.bmp", 9269),
        ("hazards/rgba_hidden.png", 203),
        // Within the first of three frames.
        ("hazards/anim.gif", 312),
        ("sd-scripts/pixels/images/webp_lossy_200x150.webp", 5097),
        ("sd-scripts/pixels/images/webp_lossless_200x150.webp", 15000),
    ];
    for (path, length) in cuts {
        assert!(decode(&read(path)).is_ok(), "{path}");
        assert_eq!(decode(&read(path)[..length]).unwrap_err().kind, Kind::Damaged, "{path} cut at {length}");
    }
}
