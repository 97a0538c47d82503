//! Awkward files and folders through the scan: each gets its own word, and the run goes on.

use prebake::dataset::{Dataset, Known, Probed, ScanOptions, Unknown, scan, scan_files};
use prebake::error::Error;
use prebake::hash::ContentHash;
use prebake::problem::{Kind, Problem};
use prebake::progress::{Cancel, Silent};
use prebake::store::{FileStat, Index};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn expected(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(data(path)).unwrap()).unwrap()
}

fn scanned(root: &Path, options: &ScanOptions) -> Dataset {
    scan(root, options, &Unknown, &Silent, &Cancel::default()).unwrap()
}

fn case(name: &str) -> Dataset {
    scanned(&data(&format!("cases/{name}/data")), &ScanOptions::default())
}

/// The kinds of the problems of one file, errors first.
fn kinds(dataset: &Dataset, path: &str) -> Vec<Kind> {
    dataset.problems.iter().filter(|problem| problem.path == path).map(|problem| problem.kind).collect()
}

fn named(dataset: &Dataset, kind: Kind) -> Vec<&str> {
    dataset.problems.iter().filter(|problem| problem.kind == kind).map(|problem| problem.path.as_str()).collect()
}

fn size_of(dataset: &Dataset, path: &str) -> [u32; 2] {
    let image = dataset.images.iter().find(|image| image.path == path).unwrap();
    image.probe.unwrap().upright().into()
}

#[test]
fn every_hazard_file_gets_the_verdict_that_is_expected_of_it() {
    for deep in [false, true] {
        let dataset = scanned(&data("hazards"), &ScanOptions { deep, ..ScanOptions::default() });
        for (name, wanted) in expected("hazards/expected.json").as_object().unwrap() {
            let errors: Vec<Kind> = dataset
                .problems
                .iter()
                .filter(|problem| problem.path == *name && problem.is_error())
                .map(|problem| problem.kind)
                .collect();
            let action = wanted["action"].as_str().unwrap();
            let error = match action {
                "accept" | "warn_first_frame" | "warn_upscale" => None,
                "accept_if_feature" | "reject_unsupported" => Some(Kind::Unsupported),
                "reject_corrupt" => Some(Kind::Damaged),
                "reject_empty" => Some(Kind::Empty),
                "reject_not_image" => Some(Kind::NotImage),
                "reject_too_large" => Some(Kind::TooLarge),
                other => panic!("{name}: unknown action {other}"),
            };
            assert_eq!(errors, Vec::from_iter(error), "{name}, deep: {deep}");
            if !matches!(error, Some(Kind::Unsupported | Kind::Empty | Kind::NotImage)) {
                let size: [u32; 2] = serde_json::from_value(wanted["size"].clone()).unwrap();
                assert_eq!(size_of(&dataset, name), size, "{name}");
            }
        }
    }
}

#[test]
fn the_facts_of_hazard_files_are_warned_of_and_nothing_else_is() {
    let dataset = scanned(&data("hazards"), &ScanOptions::default());
    assert_eq!(named(&dataset, Kind::Alpha), ["palette_trns.png", "rgba_hidden.png"]);
    assert_eq!(named(&dataset, Kind::Oriented), ["orient3.jpg", "orient5.jpg", "orient6.jpg", "orient6.png"]);
    assert_eq!(named(&dataset, Kind::Icc), ["icc_swapped.png"]);
    assert_eq!(named(&dataset, Kind::BitDepth), ["gray16.png"]);
    assert_eq!(named(&dataset, Kind::Animated), ["anim.gif", "anim.webp"]);
    assert_eq!(named(&dataset, Kind::WrongExtension), ["png_named.jpg"]);
    let frames = |path: &str| dataset.images.iter().find(|image| image.path == path).unwrap().probe.unwrap().frames;
    assert_eq!((frames("anim.gif"), frames("anim.webp")), (3, 3));
}

#[test]
fn all_damaged_files_are_named_in_one_run_without_a_deep_scan() {
    let dataset = case("s03-truncated-images");
    let wanted = expected("cases/s03-truncated-images/expected.json");
    for (name, wanted) in wanted["files"].as_object().unwrap() {
        let unusable = dataset.images.iter().any(|image| image.path == *name && !image.usable);
        assert_eq!(unusable, wanted["status"] == "damaged", "{name}: {:?}", kinds(&dataset, name));
    }
    let errors: Vec<&Problem> = dataset.problems.iter().filter(|problem| problem.is_error()).collect();
    assert_eq!(errors.len() as u64, wanted["damaged_count"].as_u64().unwrap());
    assert_eq!(kinds(&dataset, "empty.jpg"), [Kind::Empty]);
    assert_eq!(kinds(&dataset, "text.jpg"), [Kind::NotImage]);
    assert_eq!(kinds(&dataset, "cut60_baseline.jpg"), [Kind::Damaged]);
    assert_eq!(kinds(&dataset, "cut_last_2_bytes.jpg"), []);
}

#[test]
fn names_that_collide_stay_samples_of_their_own() {
    let dataset = case("s04-stem-collision");
    let wanted = expected("cases/s04-stem-collision/expected.json");
    assert_eq!(dataset.images.len() as u64, wanted["images"].as_u64().unwrap());
    for image in &dataset.images {
        let caption = dataset.root.join(image.caption.as_ref().unwrap());
        let text = std::fs::read_to_string(caption).unwrap();
        assert_eq!(text.trim(), wanted["captions"][&image.path], "{}", image.path);
    }
    let contents: std::collections::BTreeSet<_> = dataset.images.iter().map(|image| image.content.unwrap()).collect();
    assert_eq!(contents.len() as u64, wanted["distinct_image_contents"].as_u64().unwrap());
    assert_eq!(dataset.captions, 7, "cat.txt belongs to two images");
    assert_eq!(named(&dataset, Kind::StemCollision), ["cat.jpg", "cat.png"]);
    assert_eq!(named(&dataset, Kind::OrphanCaption), ["a.txt"]);
    assert_eq!(dataset.duplicates, [["dup/copy1.png", "dup/copy2.png"]]);
    assert_eq!(named(&dataset, Kind::Duplicate), ["dup/copy1.png", "dup/copy2.png"]);
}

#[test]
fn hidden_copies_and_litter_are_left_out_without_an_error_and_counted() {
    let dataset = case("s11-hidden-and-checkpoint-files");
    let paths: Vec<&str> = dataset.images.iter().map(|image| image.path.as_str()).collect();
    assert_eq!(paths, ["img_0.png", "img_1.png", "img_2.png"]);
    assert_eq!((dataset.captions, dataset.hidden), (3, 7));
    let [note] = &dataset.problems[..] else { panic!("{:?}", dataset.problems) };
    assert_eq!(note.kind, Kind::Hidden);
    assert!(note.message.starts_with("7 hidden"), "{}", note.message);
}

#[test]
fn content_decides_what_a_file_is_and_each_file_counts_once() {
    let dataset = case("s12-wrong-extension");
    let paths: Vec<&str> = dataset.images.iter().map(|image| image.path.as_str()).collect();
    let all =
        ["Mixed.JpEg", "UPPER.JPG", "jpeg_named.png", "no_ext_image", "photo.heic", "png_named.jpg", "webp_named.jpg"];
    assert_eq!(paths, all);
    for name in all.iter().filter(|name| **name != "photo.heic") {
        assert_eq!(size_of(&dataset, name), [96, 64], "{name}");
    }
    assert_eq!(kinds(&dataset, "photo.heic"), [Kind::Unsupported]);
    assert_eq!(named(&dataset, Kind::WrongExtension), ["jpeg_named.png", "png_named.jpg", "webp_named.jpg"]);
}

#[test]
fn the_report_is_the_same_for_any_number_of_threads() {
    let report = |threads| scanned(&data(""), &ScanOptions { threads: Some(threads), ..ScanOptions::default() });
    let one = report(1);
    assert_eq!(report(2), one);
    assert_eq!(report(7), one);
}

#[test]
fn captions_under_another_extension_are_counted_and_hinted_at() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        std::fs::copy(data("hazards/gray.jpg"), folder.path().join(format!("{name}.jpg"))).unwrap();
    }
    for name in ["a.txt", "b.txt"] {
        std::fs::write(folder.path().join(name), "words").unwrap();
    }
    let options = ScanOptions { caption_ext: vec![".caption".to_owned()], ..ScanOptions::default() };
    let dataset = scanned(folder.path(), &options);
    assert_eq!(named(&dataset, Kind::CaptionMissing), [".", "a.jpg", "b.jpg", "c.jpg"]);
    let summary = dataset.problems.iter().find(|problem| problem.path == ".").unwrap();
    assert_eq!(summary.message, "0 of 3 captions with .caption; 2 .txt files exist");
    assert_eq!(summary.hint.as_deref(), Some("--caption-ext .txt"));
}

/// Remembers in memory and counts what it was asked and told.
#[derive(Default)]
struct Memory {
    files: Mutex<BTreeMap<Vec<u8>, (FileStat, ContentHash, Probed)>>,
    hits: AtomicUsize,
}

impl Known for Memory {
    fn image(&self, path: &[u8], stat: &FileStat) -> Option<(ContentHash, Probed)> {
        let files = self.files.lock().unwrap();
        let (at, content, probed) = files.get(path)?;
        (at == stat).then(|| {
            self.hits.fetch_add(1, Ordering::Relaxed);
            (*content, probed.clone())
        })
    }

    fn remember(&self, path: &[u8], stat: &FileStat, content: ContentHash, probed: &Probed) {
        self.files.lock().unwrap().insert(path.to_vec(), (*stat, content, probed.clone()));
    }
}

/// A folder of one picture, old enough to be remembered.
fn settled_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(data("hazards/truncated.png"), folder.path().join("cut.png")).unwrap();
    std::fs::copy(data("hazards/plain.bmp"), folder.path().join("a.bmp")).unwrap();
    age(&folder.path().join("a.bmp"));
    age(&folder.path().join("cut.png"));
    folder
}

/// Dates a file back, then waits until its change time, which nobody can set, has settled as well.
fn age(path: &Path) {
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    while !FileStat::of(&std::fs::metadata(path).unwrap()).is_settled(SystemTime::now()) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn scan_with(memory: &Memory, folder: &Path, deep: bool) -> Dataset {
    let options = ScanOptions { deep, ..ScanOptions::default() };
    scan(folder, &options, memory, &Silent, &Cancel::default()).unwrap()
}

#[test]
fn a_known_file_is_not_read_again_and_gives_the_same_report() {
    let (folder, memory) = (settled_folder(), Memory::default());
    let first = scan_with(&memory, folder.path(), false);
    assert_eq!(memory.hits.load(Ordering::Relaxed), 0);
    assert_eq!(scan_with(&memory, folder.path(), false), first);
    assert_eq!(memory.hits.load(Ordering::Relaxed), 2);
    assert_eq!(kinds(&first, "cut.png"), [Kind::Damaged, Kind::CaptionMissing]);
}

#[test]
fn the_index_serves_a_second_scan_with_the_same_report() {
    let folder = settled_folder();
    let scan_indexed = || {
        let (index, warning) = Index::open(folder.path());
        assert_eq!(warning, None);
        let options = ScanOptions::default();
        let dataset = scan(folder.path(), &options, &index, &Silent, &Cancel::default()).unwrap();
        let stat = FileStat::of(&std::fs::metadata(folder.path().join("a.bmp")).unwrap());
        assert!(Known::image(&index, b"a.bmp", &stat).is_some());
        dataset
    };
    assert_eq!(scan_indexed(), scan_indexed());
}

#[test]
fn an_edit_that_keeps_size_and_modification_time_is_seen() {
    let (folder, memory) = (settled_folder(), Memory::default());
    let before = scan_with(&memory, folder.path(), false);
    let path = folder.path().join("a.bmp");
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    std::fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    let after = scan_with(&memory, folder.path(), false);
    assert_ne!(after.images[0].content, before.images[0].content);
    assert_eq!(after.images[0].content, Some(ContentHash::of(&bytes)));
}

#[test]
fn a_file_just_written_is_not_remembered() {
    let (folder, memory) = (settled_folder(), Memory::default());
    std::fs::copy(data("hazards/gray.jpg"), folder.path().join("new.jpg")).unwrap();
    scan_with(&memory, folder.path(), false);
    let files = memory.files.lock().unwrap();
    assert!(files.contains_key(&b"a.bmp"[..]) && !files.contains_key(&b"new.jpg"[..]));
}

#[test]
fn what_a_shallow_scan_knows_is_not_enough_for_a_deep_one() {
    let (folder, memory) = (settled_folder(), Memory::default());
    scan_with(&memory, folder.path(), false);
    scan_with(&memory, folder.path(), true);
    assert!(memory.files.lock().unwrap().values().all(|(_, _, probed)| probed.deep));
    scan_with(&memory, folder.path(), false);
    assert!(memory.files.lock().unwrap().values().all(|(_, _, probed)| probed.deep), "deep serves shallow");
}

#[test]
fn a_list_of_files_is_scanned_as_given_and_what_is_absent_is_named() {
    let root = data("hazards");
    let files = ["plain.bmp", "absent.png", "gray.jpg", "plain.bmp"].map(PathBuf::from);
    let dataset = scan_files(&root, &files, &ScanOptions::default(), &Unknown, &Silent, &Cancel::default()).unwrap();
    let usable: Vec<_> = dataset.images.iter().map(|image| (image.path.as_str(), image.usable)).collect();
    assert_eq!(usable, [("absent.png", false), ("gray.jpg", true), ("plain.bmp", true)]);
    assert_eq!(kinds(&dataset, "absent.png")[0], Kind::Unsupported);
}

#[test]
fn a_cancelled_scan_stops() {
    let cancel = Cancel::default();
    cancel.cancel();
    let stopped = scan(&data("hazards"), &ScanOptions::default(), &Unknown, &Silent, &cancel);
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_are_not_utf8_are_scanned_and_shown_in_hexadecimal() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let name = OsStr::from_bytes(b"caf\xe9.jpg");
    std::fs::copy(data("hazards/gray.jpg"), folder.path().join(name)).unwrap();
    std::fs::write(folder.path().join(OsStr::from_bytes(b"caf\xe9.txt")), "words").unwrap();
    let dataset = scanned(folder.path(), &ScanOptions::default());
    assert_eq!(dataset.images[0].path, "caf\\xe9.jpg");
    assert_eq!(dataset.images[0].relative.as_os_str(), name);
    assert!(dataset.images[0].caption.is_some() && dataset.images[0].usable);
}

#[cfg(unix)]
#[test]
fn a_pipe_a_folder_and_a_dangling_link_in_a_list_are_named_and_nothing_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = std::ffi::CString::new(folder.path().join("pipe.jpg").to_str().unwrap()).unwrap();
    // SAFETY: `pipe` is a path ended by a zero byte.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    std::fs::create_dir(folder.path().join("folder.png")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("link.png")).unwrap();
    let files = ["pipe.jpg", "folder.png", "link.png"].map(PathBuf::from);
    let dataset =
        scan_files(folder.path(), &files, &ScanOptions::default(), &Unknown, &Silent, &Cancel::default()).unwrap();
    for image in &dataset.images {
        assert!(!image.usable && image.content.is_none(), "{}", image.path);
        assert_eq!(kinds(&dataset, &image.path)[0], Kind::Unsupported);
    }
}
