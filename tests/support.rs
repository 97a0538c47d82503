//! Temporary datasets, the binary under test, and its JSON.

use prebake::bake::{Bake, Encode, Options, Summary};
use prebake::containers::{Array, Container, Dtype};
use prebake::hash::EncoderId;
use prebake::plan::{self, CollectOptions, Request};
use prebake::progress::{Cancel, Silent};
use prebake::recipe::{Family, Recipe, Target, Tile};
use prebake::store::{Index, Locations};
use prebake::trainers::description::describe;
use prebake::units::Size;
use prebake::vae::Budget;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;
use tempfile::TempDir;

/// Data that tests read and never write.
pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

/// A JSON file, parsed.
pub(crate) fn json_file(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// An array of whole numbers.
pub(crate) fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
}

/// The demo VAE: SDXL layout, 4 channels.
pub(crate) fn tiny_vae() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_data/tiny-vae.safetensors")
}

/// A folder that goes with the test.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A copy of a folder under `tests/data`, hidden files too.
    pub(crate) fn copy_of(path: &str) -> Self {
        let folder = Self::new();
        copy_tree(&data(path), folder.path());
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A PNG of a gradient that depends on `seed`, so that no two are alike.
    pub(crate) fn picture(&self, name: &str, width: u32, height: u32, seed: u32) {
        let pixel = |x: u32, y: u32| {
            let shade = |a: u32, b: u32| ((x * a + y * b + seed * 37) % 256) as u8;
            image::Rgb([shade(1, 2), shade(3, 1), shade(2, 5)])
        };
        let path = self.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        image::RgbImage::from_fn(width, height, pixel).save_with_format(path, image::ImageFormat::Png).unwrap();
    }

    /// Like [`Folder::picture`], left half transparent.
    pub(crate) fn transparent_picture(&self, name: &str, width: u32, height: u32, seed: u32) {
        let pixel = |x: u32, y: u32| {
            let shade = |a: u32, b: u32| ((x * a + y * b + seed * 37) % 256) as u8;
            image::Rgba([shade(1, 2), shade(3, 1), shade(2, 5), if x < width / 2 { (y % 200) as u8 } else { 255 }])
        };
        image::RgbaImage::from_fn(width, height, pixel).save(self.join(name)).unwrap();
    }

    /// Runs `prebake COMMAND FOLDER FLAGS…`.
    pub(crate) fn run(&self, command: &str, flags: &[&str]) -> Outcome {
        let mut arguments = vec![command, self.path().to_str().unwrap()];
        arguments.extend(flags);
        prebake(&arguments)
    }

    /// Every file outside `.prebake` and every cache beside images left out: what must never change.
    pub(crate) fn inputs(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(self.path(), &mut files);
        files.retain(|path| path.extension().is_none_or(|e| e != "npz"));
        files.sort();
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    /// Every file of the cache with its bytes.
    pub(crate) fn artefacts(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(self.path(), &mut files);
        files.retain(|path| path.extension().is_some_and(|e| e == "npz"));
        let store = self.join(".prebake/store");
        if store.is_dir() {
            // A bake that still runs makes temporaries there and takes them away.
            let shards = fs::read_dir(store).unwrap().map(|shard| shard.unwrap().path()).filter(|path| path.is_dir());
            let stored = shards.flat_map(|shard| fs::read_dir(shard).unwrap().map(|file| file.unwrap().path()));
            files.extend(stored.filter(|path| path.extension().is_some_and(|e| e == "safetensors")));
        }
        files.sort();
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().unwrap() != ".prebake" {
            collect(&path, files);
        } else if path.is_file() {
            files.push(path);
        }
    }
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// What a run gave.
#[must_use]
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The JSON document on stdout.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON document of a run without findings.
    pub(crate) fn fine(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.json()
    }

    /// Problems of one kind: (path, severity).
    pub(crate) fn problems(&self, kind: &str) -> Vec<(String, String)> {
        let json = self.json();
        let problems = json["problems"].as_array().unwrap().iter().filter(|problem| problem["kind"] == kind);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        problems.map(|problem| (text(&problem["path"]), text(&problem["severity"]))).collect()
    }
}

/// Runs the binary in a bare environment.
pub(crate) fn prebake(arguments: &[&str]) -> Outcome {
    let Output { status, stdout, stderr } = command(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
}

/// The binary with arguments, not started yet.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prebake"));
    command.env_clear().args(arguments);
    command
}

/// The demo VAE in f32 with some of its weights changed.
pub(crate) fn write_changed_vae(path: &Path, change: impl Fn(&str, &mut [f32])) {
    let mut contents = Container::Safetensors.read(&fs::read(tiny_vae()).unwrap()).unwrap();
    for (name, array) in &mut contents.arrays {
        let halves = array.bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32());
        let mut values: Vec<f32> = halves.collect();
        change(name, &mut values);
        *array = Array::from_f32(Dtype::F32, array.shape.clone(), &values);
    }
    fs::write(path, Container::Safetensors.write(&contents).unwrap()).unwrap();
}

/// The tiny encoder's recipe with nothing decided but what a test's bake needs.
fn recipe(tile: Tile) -> Recipe {
    Recipe {
        targets: vec![Target::Store],
        family: Family::Sdxl,
        resolution: Some(Size::new(512, 512)),
        max_area: None,
        bucket_step: None,
        min_bucket: None,
        max_bucket: None,
        buckets: None,
        upscale: None,
        flip: None,
        alpha_mask: None,
        resize: None,
        orientation: None,
        background: None,
        icc: None,
        batch: None,
        grad_accum: 1,
        gpus: 1,
        store_dtype: None,
        precision: None,
        tile,
        posterior: prebake::recipe::Posterior::Mean,
        rebuild_foreign: false,
    }
}

/// What a bake runs with, when a test brings its own encoders.
pub(crate) struct Setting<'a> {
    /// One a device.
    pub(crate) engines: &'a [&'a dyn Encode],
    /// What goes to them at once.
    pub(crate) budget: Budget,
    /// Decode workers.
    pub(crate) threads: usize,
    /// Asks for an early end.
    pub(crate) cancel: Cancel,
}

/// Bakes the folder with encoders of the test's own.
pub(crate) fn bake(folder: &Folder, setting: Setting<'_>) -> Summary {
    let Setting { engines, budget, threads, cancel } = setting;
    let (index, _) = Index::open(folder.path());
    let progress = Silent;
    let options = CollectOptions { caption_ext: None, default_caption_ext: vec![".txt".into()], deep: false };
    let description = describe(folder.path(), folder.path()).unwrap();
    let collected = plan::collect(description, &options, &index, &progress, &Cancel::default()).unwrap();
    let locations = Locations::new(folder.path(), None);
    let recipe = recipe(budget.tile);
    let request = Request {
        collected: &collected,
        recipe: &recipe,
        encoder: Some(EncoderId([1; 32])),
        locations: &locations,
        index: &index,
        progress: &progress,
    };
    let plan = plan::build(&request).unwrap();
    let bake = Bake {
        plan: &plan,
        collected: &collected,
        engines,
        options: &Options { threads, ram: 1 << 30, budget },
        locations: &locations,
        index: &index,
        progress: &progress,
        cancel: &cancel,
        started: Instant::now(),
    };
    bake.run().unwrap()
}

/// Runs a Python script in `folder`; it must succeed. Where Python or `package` is absent the proof is skipped, and
/// says so past the harness that captures output; golden files that Python wrote stand in for it there.
pub(crate) fn python(folder: &Path, package: &str, script: &str) {
    let guarded =
        format!("import importlib.util, sys\nif importlib.util.find_spec({package:?}) is None: sys.exit(77)\n{script}");
    match Command::new("python3").args(["-c", &guarded]).current_dir(folder).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code() != Some(77) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        _ => {
            let _ =
                writeln!(std::io::stderr(), "SKIPPED: no python3 with {package} here, its own reading was not shown");
        }
    }
}
