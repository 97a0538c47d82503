//! ai-toolkit: its own buckets and cache names, jobs as datasets, and what is stale when something changes.

use super::support::{data, json_file, numbers};
use prebake::bucket::ai_toolkit::Settings;
use prebake::bucket::{AiToolkitBuckets, Assignment, BucketRule};
use prebake::units::{Rect, Size};

#[test]
fn every_size_gets_the_bucket_the_scale_and_the_crop_that_ai_toolkit_gives() {
    let golden = json_file(&data("buckets/buckets-ai-toolkit.json"));
    let mut compared = 0;
    for config in golden["configs"].as_array().unwrap() {
        let number = |key: &str| config[key].as_u64().unwrap() as u32;
        let square_crop = config["square_crop"] == true;
        let settings =
            Settings { resolution: number("resolution"), step: number("divisibility"), scale: 1.0, square_crop };
        let rule = AiToolkitBuckets::new(settings).unwrap();
        for row in config["rows"].as_array().unwrap() {
            let row = numbers(row);
            let bucket = Size::new(row[2], row[3]);
            let expected =
                Assignment { bucket, resized: Size::new(row[4], row[5]), crop: Rect::new(row[6], row[7], bucket) };
            assert_eq!(rule.assign(Size::new(row[0], row[1])), Ok(expected), "{} {row:?}", config["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 1000);
}
