//! Several encoders at one queue: nothing twice, nothing lost, the same files.

use crate::support::{Folder, Setting, bake, tiny_vae};
use prebake::bake::{Encode, Engine};
use prebake::containers::Container;
use prebake::error::{Error, Result};
use prebake::progress::Cancel;
use prebake::recipe::{Precision, Receipt, Tile};
use prebake::units::Size;
use prebake::vae::{Budget, Posterior, Weights};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Waits until a number of devices work at the same time.
#[derive(Default)]
struct Meeting {
    arrived: Mutex<usize>,
    changed: Condvar,
}

impl Meeting {
    fn wait_for(&self, devices: usize) {
        let mut arrived = self.arrived.lock().unwrap();
        *arrived += 1;
        self.changed.notify_all();
        let deadline = Duration::from_secs(20);
        let (arrived, _) = self.changed.wait_timeout_while(arrived, deadline, |arrived| *arrived < devices).unwrap();
        assert!(*arrived >= devices, "{devices} devices never worked at the same time");
    }
}

/// An encoder that answers with the mean of the picture, and does as the test says before.
struct Double<'a> {
    name: &'static str,
    /// Called with the number of the call, from 0, and the first value of each picture.
    before: &'a (dyn Fn(usize, &[f32]) -> Result<()> + Sync),
    /// First values of the pictures of each call.
    calls: Mutex<Vec<Vec<f32>>>,
}

impl<'a> Double<'a> {
    fn new(name: &'static str, before: &'a (dyn Fn(usize, &[f32]) -> Result<()> + Sync)) -> Self {
        Self { name, before, calls: Mutex::default() }
    }

    fn pictures(&self) -> usize {
        self.calls.lock().unwrap().iter().map(Vec::len).sum()
    }
}

impl Encode for Double<'_> {
    fn encode(&self, pixels: &[&[f32]], size: Size) -> Result<Vec<Posterior>> {
        let firsts: Vec<f32> = pixels.iter().map(|picture| picture[0]).collect();
        let call = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(firsts.clone());
            calls.len() - 1
        };
        (self.before)(call, &firsts)?;
        let shape = [4, size.height as usize / 8, size.width as usize / 8];
        let posterior = |picture: &&[f32]| {
            let mean = vec![picture.iter().sum::<f32>() / picture.len() as f32; shape.iter().product()];
            Posterior { logvar: vec![-10.0; mean.len()], mean, shape }
        };
        Ok(pixels.iter().map(posterior).collect())
    }

    fn encode_f32(&self, pixels: &[f32], size: Size) -> Result<Posterior> {
        Ok(self.encode(&[pixels], size)?.remove(0))
    }

    fn precision(&self) -> Precision {
        Precision::F32
    }

    fn device_name(&self) -> &str {
        self.name
    }
}

fn broken() -> Error {
    Error::Tensor(candle_core::Error::Msg("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS)".into()))
}

/// Batches of two on a device that does not tell its memory.
fn setting<'a>(engines: &'a [&'a dyn Encode], cancel: &Cancel) -> Setting<'a> {
    let layout = Weights::open(&tiny_vae()).unwrap().layout().clone();
    let (precision, cache_batch, tile) = (Precision::F32, Some(2), Tile::Auto);
    let budget = Budget { layout, precision, one_by_one: false, available: None, cache_batch, tile };
    Setting { engines, budget, threads: 2, cancel: cancel.clone() }
}

/// Small pictures of three shapes.
fn pictures(count: u32) -> Folder {
    let folder = Folder::new();
    for i in 0..count {
        let (width, height) = [(128, 128), (192, 128), (128, 192)][i as usize % 3];
        folder.picture(&format!("{i:03}.png"), width, height, i);
        folder.write(&format!("{i:03}.txt"), "a");
    }
    folder
}

/// How many artefacts each device made.
fn made_by(folder: &Folder) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for (_, bytes) in folder.artefacts() {
        let receipt = Container::Safetensors.read(&bytes).unwrap().receipt.unwrap();
        for entry in Receipt::from_json(&receipt).unwrap().entries.into_values() {
            *made.entry(entry.ran.unwrap().device).or_default() += 1;
        }
    }
    made
}

#[test]
fn every_picture_is_encoded_once_and_no_device_idles() {
    let (folder, meeting) = (pictures(24), Meeting::default());
    let meet = |call, _: &[f32]| {
        if call == 0 {
            meeting.wait_for(2);
        }
        Ok(())
    };
    let (a, b) = (Double::new("a", &meet), Double::new("b", &meet));
    let summary = bake(&folder, setting(&[&a, &b], &Cancel::default()));
    assert_eq!((summary.encoded, summary.failed.len(), summary.written), (24, 0, 24));
    assert_eq!(a.pictures() + b.pictures(), 24);
    let made = made_by(&folder);
    assert_eq!((made["a"], made["b"]), (a.pictures(), b.pictures()));
}

#[test]
fn two_devices_give_the_very_files_that_one_gives() {
    let weights = Arc::new(Weights::open(&tiny_vae()).unwrap());
    let engine = || Engine::new(Arc::clone(&weights), candle_core::Device::Cpu, "cpu".into(), Precision::F32).unwrap();
    let (a, b) = (engine(), engine());
    let (one, two) = (pictures(9), pictures(9));
    assert_eq!(bake(&one, setting(&[&a], &Cancel::default())).encoded, 9);
    assert_eq!(bake(&two, setting(&[&a, &b], &Cancel::default())).encoded, 9);
    let files = |folder: &Folder| -> Vec<_> {
        let name = |path: &std::path::Path| path.strip_prefix(folder.path()).unwrap().to_owned();
        folder.artefacts().into_iter().map(|(path, bytes)| (name(&path), bytes)).collect()
    };
    assert!(files(&one) == files(&two));
}

#[test]
fn a_device_that_breaks_leaves_its_pictures_to_the_other() {
    let folder = pictures(12);
    let (fails, works) = (|_: usize, _: &[f32]| Err(broken()), |_: usize, _: &[f32]| Ok(()));
    let (a, b) = (Double::new("a", &fails), Double::new("b", &works));
    let summary = bake(&folder, setting(&[&a, &b], &Cancel::default()));
    assert_eq!((summary.encoded, summary.failed.len()), (12, 0));
    assert_eq!(b.pictures(), 12);
    assert_eq!(made_by(&folder), BTreeMap::from([("b".to_owned(), 12)]));
}

#[test]
fn a_picture_that_no_device_takes_costs_only_itself() {
    let folder = pictures(12);
    let poison = Mutex::new(None);
    // Whichever picture comes first is the one that breaks every kernel.
    let refuses = |_: usize, firsts: &[f32]| {
        let poison = *poison.lock().unwrap().get_or_insert(firsts[0]);
        if firsts.contains(&poison) { Err(broken()) } else { Ok(()) }
    };
    let (a, b) = (Double::new("a", &refuses), Double::new("b", &refuses));
    let summary = bake(&folder, setting(&[&a, &b], &Cancel::default()));
    assert_eq!((summary.encoded, summary.failed.len()), (11, 1));
    assert!(summary.failed[0].message.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{:?}", summary.failed);
}

#[test]
fn an_interrupt_ends_all_devices_and_keeps_what_is_finished() {
    let (folder, cancel) = (pictures(24), Cancel::default());
    let interrupts = |call, _: &[f32]| {
        if call == 1 {
            cancel.cancel();
        }
        Ok(())
    };
    let (a, b) = (Double::new("a", &interrupts), Double::new("b", &interrupts));
    let summary = bake(&folder, setting(&[&a, &b], &cancel));
    assert!(summary.interrupted && summary.failed.is_empty());
    let first = a.pictures() + b.pictures();
    assert!(first < 24 && summary.written == first, "{} of {first}", summary.written);
    let rest = Double::new("rest", &|_, _| Ok(()));
    assert_eq!(bake(&folder, setting(&[&rest], &Cancel::default())).encoded, 24 - first);
}

/// `copies` of each sample photo, no two with the same bytes.
fn photos(copies: u8) -> Folder {
    let folder = Folder::new();
    let samples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_data/photos");
    for file in std::fs::read_dir(samples).unwrap().map(|file| file.unwrap().path()) {
        // What follows the end of a JPEG is not part of the picture.
        for copy in (0..copies).filter(|_| file.extension().is_some_and(|e| e == "jpg")) {
            let name = format!("{}-{copy}", file.file_stem().unwrap().to_str().unwrap());
            folder.write(&format!("{name}.jpg"), [std::fs::read(&file).unwrap(), vec![copy]].concat());
            folder.write(&format!("{name}.txt"), "a");
        }
    }
    folder
}

/// Seconds of processor time of this process so far.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    // utime and stime, in hundredths.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[test]
#[ignore = "a measure, not a claim: cargo test --release two_stages -- --ignored --nocapture"]
#[expect(clippy::print_stdout, reason = "a measure is there to print")]
fn two_stages_take_little_more_than_the_slower_one() {
    const COPIES: u8 = 64;
    // The run alone, without scan and plan.
    let seconds = |folder: &Folder, engine: &dyn Encode| {
        let summary = bake(folder, setting(&[engine], &Cancel::default()));
        (summary.seconds, summary.encode_seconds)
    };
    let (decoding, _) = seconds(&photos(COPIES), &Double::new("d", &|_, _| Ok(())));
    println!("decode, resize and store alone, 2 workers: {decoding:.2} s");
    for share in [0.5, 1.0, 2.0] {
        // A device that takes no processor time, as a GPU.
        let folder = photos(COPIES);
        let pictures = folder.inputs().len() / 2;
        let each = Duration::from_secs_f64(decoding * share / pictures as f64);
        let sleeps = |_: usize, firsts: &[f32]| {
            std::thread::sleep(each * firsts.len() as u32);
            Ok(())
        };
        let (wall, encoding) = seconds(&folder, &Double::new("d", &sleeps));
        println!("device {encoding:.2} s: wall {wall:.2} s, {:.3} of the slower", wall / decoding.max(encoding));
    }
    let weights = Weights::open(&tiny_vae()).unwrap();
    let engine = Engine::new(weights, candle_core::Device::Cpu, "cpu".into(), Precision::F32).unwrap();
    let (folder, before) = (photos(1), processor_seconds());
    let (wall, encoding) = seconds(&folder, &engine);
    let processor = processor_seconds() - before;
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    println!("on the CPU: wall {wall:.2} s, in the encoder {encoding:.2} s, processor {processor:.2} s");
    println!("{:.3} of the encoder, {:.3} of processor / {cores} cores", wall / encoding, wall / (processor / cores));
}
