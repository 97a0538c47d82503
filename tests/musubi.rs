//! musubi-tuner: its buckets, and the folders that a bake leaves for it.

use crate::support::data;
use prebake::bucket::{BucketRule, MusubiBuckets, musubi};
use prebake::units::Size;
use serde_json::Value;

fn size(value: &Value) -> Size {
    let side = |at: usize| value[at].as_u64().unwrap() as u32;
    Size::new(side(0), side(1))
}

fn settings(config: &Value) -> musubi::Settings {
    musubi::Settings {
        resolution: size(&config["resolution"]),
        step: config["step"].as_u64().unwrap() as u32,
        enabled: config["enable_bucket"].as_bool().unwrap(),
        upscale: !config["bucket_no_upscale"].as_bool().unwrap(),
    }
}

#[test]
fn every_size_gets_the_bucket_and_the_scaled_size_that_musubi_gives() {
    let golden: Value = serde_json::from_slice(&std::fs::read(data("musubi/buckets.json")).unwrap()).unwrap();
    let (mut assigned, mut refused) = (0, 0);
    for config in golden["configs"].as_array().unwrap() {
        let rule = MusubiBuckets::new(settings(config)).unwrap();
        let sizes = golden["sizes"].as_array().unwrap().iter().map(size);
        for (source, row) in sizes.zip(config["rows"].as_array().unwrap()) {
            let answer = rule.assign(source);
            let what = format!("{} {source} {row}", config["resolution"]);
            if row.is_null() {
                assert!(answer.is_err(), "{what}: {answer:?}");
                refused += 1;
                continue;
            }
            let assignment = answer.expect(&what);
            assert_eq!(assignment.bucket, size(row), "{what}");
            assert_eq!(assignment.resized, Size::new(row[2].as_u64().unwrap() as u32, row[3].as_u64().unwrap() as u32));
            assigned += 1;
        }
    }
    assert_eq!((assigned, refused), (2370, 30));
}

#[test]
fn a_resolution_without_room_for_two_steps_is_refused_where_musubi_divides_by_zero() {
    let settings = musubi::Settings { resolution: Size::new(33, 31), step: 16, enabled: true, upscale: true };
    let refused = MusubiBuckets::new(settings).unwrap_err();
    assert_eq!(refused, "resolution has 1023 pixels, at least 32x32 are needed for buckets");
    assert!(MusubiBuckets::new(musubi::Settings { enabled: false, ..settings }).is_ok());
}
