//! An ai-toolkit job in YAML or JSON: its first process' model, batch and datasets.
//!
//! Source: `toolkit/config_modules.py:911` (a dataset's keys and defaults) and `:1095` (a list of resolutions is as many
//! datasets), `toolkit/config.py:45` (`[name]`). Keys that shape pixels and are not followed are refused; keys that shape
//! neither a latent nor a caption are passed over; all others are named in one warning.

use super::yaml;
use crate::error::{Error, IoContext, Result};
use crate::recipe::Target;
use crate::store::read_regular;
use crate::trainers::description::{Description, Listed, Own, Subset, SubsetSettings};
use crate::units::Size;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

type Table = Map<String, Value>;

/// What only ai-toolkit's jobs say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobSettings {
    /// `model.arch`, without what follows a colon.
    pub arch: Option<String>,
    /// `model.latent_space_version`: stands in the caches' names for the model's own.
    pub latent_space: Option<String>,
    /// `scale`: pictures are taken to be that much larger.
    pub scale: Option<f64>,
    /// `square_crop`: one square bucket.
    pub square_crop: bool,
    /// `flip_y`: copies upside down.
    pub flip_y: bool,
    /// `cache_latents` or `cache_latents_to_disk` is on, so that caches are looked for.
    pub caching: bool,
}

/// Keys of a dataset that are followed.
const HONOURED: [&str; 15] = [
    "folder_path",
    "dataset_path",
    "resolution",
    "caption_ext",
    "caption_type",
    "use_short_captions",
    "num_repeats",
    "batch_size",
    "flip_x",
    "flip_y",
    "scale",
    "square_crop",
    "cache_latents",
    "cache_latents_to_disk",
    "buckets",
];

/// Keys that shape neither a latent nor the text of a caption.
const PASSED_OVER: [&str; 19] = [
    "type",
    "is_reg",
    "prior_reg",
    "network_weight",
    "loss_multiplier",
    "caption_dropout_rate",
    "token_dropout_rate",
    "shuffle_tokens",
    "keep_tokens",
    "bucket_tolerance",
    "alpha_mask",
    "mask_path",
    "mask_min_value",
    "invert_mask",
    "num_workers",
    "prefetch_factor",
    "cache_latents_num_workers",
    "cache_text_embeddings",
    "guidance_type",
];

/// Keys that give the trainer other pixels or other caches when they are on, with the reason.
const REFUSED: [(&str, &str); 10] = [
    ("random_crop", "every start sees other pixels"),
    ("random_scale", "every start sees other pixels"),
    ("augments", "the trainer switches caching off with it"),
    ("augmentations", "the trainer switches caching off with it"),
    ("standardize_images", "its pixels are not made"),
    ("fast_image_size", "the trainer then takes sizes without EXIF orientation from its own header reader"),
    ("auto_frame_count", "videos are not read"),
    ("cache_tensors_to_disk", "pixels are then wanted beside the latents, which are not written"),
    ("do_i2v", "latents of first frames are not written"),
    ("do_audio", "sound is not read"),
];

/// Parses a job; `None` when the text is no YAML or JSON table with `config` and `job`.
pub fn parse(path: &Path, text: &str, working_dir: &Path) -> Option<Result<Description>> {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let named = extension == "yaml" || extension == "yml";
    let document = match yaml::read(text) {
        Ok(document) => document,
        Err(error) if named => return Some(Err(Error::input(path, format!("is no valid YAML: {error}")))),
        Err(_) => return None,
    };
    let config = document.get("config")?.as_object()?;
    document.get("job")?;
    let name = config.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
    Some(Reader { path, working_dir, name, unhonoured: BTreeSet::new(), warnings: Vec::new() }.read(config))
}

struct Reader<'a> {
    path: &'a Path,
    working_dir: &'a Path,
    name: String,
    unhonoured: BTreeSet<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn read(mut self, config: &Table) -> Result<Description> {
        let processes = config.get("process").and_then(Value::as_array);
        let Some(process) = processes.and_then(|all| all.first()).and_then(Value::as_object) else {
            return Err(self.wrong("`config.process` is no list with a table in it"));
        };
        if processes.is_some_and(|all| all.len() > 1) {
            self.warnings.push(format!("`{}`: only the first `config.process` is read", self.path.display()));
        }
        let Some(datasets) = process.get("datasets").and_then(Value::as_array) else {
            return Err(self.wrong("`config.process[0].datasets` is no list"));
        };
        let empty = Table::new();
        let table = |key: &str| process.get(key).and_then(Value::as_object).unwrap_or(&empty);
        let mut subsets = Vec::new();
        for dataset in datasets {
            let Some(dataset) = dataset.as_object() else { return Err(self.wrong("a dataset is no table")) };
            self.note_keys(dataset);
            subsets.extend(self.subsets(dataset, table("model"), table("train"))?);
        }
        let root = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
        let mut warnings = self.warnings;
        if !self.unhonoured.is_empty() {
            let keys: Vec<_> = self.unhonoured.into_iter().collect();
            warnings.push(format!("`{}`: these keys are not honoured: {}", self.path.display(), keys.join(", ")));
        }
        Ok(Description { root, subsets, warnings, problems: Vec::new() })
    }

    /// One dataset: a subset for each resolution.
    fn subsets(&self, dataset: &Table, model: &Table, train: &Table) -> Result<Vec<Subset>> {
        self.refuse(dataset)?;
        let (folder, listed) = self.images(dataset)?;
        let settings = self.settings(dataset, model, train)?;
        let repeats = whole(dataset, "num_repeats").map_err(|text| self.wrong(&text))?.unwrap_or(1);
        let subset = |resolution| Subset {
            folder: folder.clone(),
            recursive: true,
            repeats: Some(repeats),
            caption_ext: vec![caption_ext(dataset)],
            described_by: Some(Target::AiToolkit),
            listed: listed.clone(),
            settings: SubsetSettings { resolution: Some(Size::new(resolution, resolution)), ..settings.clone() },
        };
        Ok(self.resolutions(dataset)?.into_iter().map(subset).collect())
    }

    fn refuse(&self, dataset: &Table) -> Result<()> {
        let on = |key: &str| match dataset.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        if let Some((key, why)) = REFUSED.iter().find(|(key, _)| on(key)) {
            return Err(self.wrong(&format!("`{key}` cannot be cached for: {why}")));
        }
        if dataset.get("buckets") == Some(&Value::Bool(false)) {
            return Err(self
                .wrong("`buckets: false` is not read: the trainer then scales twice")
                .with_hint("leave it out, or use square_crop: true for one square bucket"));
        }
        let frames = dataset.get("num_frames").and_then(Value::as_u64).unwrap_or(1);
        if frames > 1 {
            return Err(self.wrong(&format!("`num_frames: {frames}`: videos are not read")));
        }
        Ok(())
    }

    fn settings(&self, dataset: &Table, model: &Table, train: &Table) -> Result<SubsetSettings> {
        let flag = |key: &str| self.boolean(dataset, key);
        let batch = |table: &Table| whole(table, "batch_size").map_err(|text| self.wrong(&text));
        let scale = match dataset.get("scale") {
            None => None,
            Some(value) => {
                Some(value.as_f64().ok_or_else(|| self.wrong(&format!("`scale: {value}`: a number is needed")))?)
            }
        };
        let own = JobSettings {
            arch: arch(model),
            latent_space: model.get("latent_space_version").and_then(Value::as_str).map(str::to_owned),
            scale,
            square_crop: flag("square_crop")?.unwrap_or(false),
            flip_y: flag("flip_y")?.unwrap_or(false),
            caching: flag("cache_latents")? == Some(true) || flag("cache_latents_to_disk")? == Some(true),
        };
        Ok(SubsetSettings {
            batch: batch(dataset)?.or(batch(train)?),
            flip: Some(flag("flip_x")?.unwrap_or(false)),
            own: Own::AiToolkit(own),
            ..SubsetSettings::default()
        })
    }

    /// A number or a list of numbers, 512 where it is left out.
    fn resolutions(&self, dataset: &Table) -> Result<Vec<u32>> {
        let Some(value) = dataset.get("resolution") else { return Ok(vec![512]) };
        let list = value.as_array().map_or_else(|| vec![value], |list| list.iter().collect());
        let side = |value: &Value| value.as_u64().and_then(|side| u32::try_from(side).ok()).filter(|&side| side > 0);
        let sides: Option<Vec<u32>> = list.into_iter().map(side).collect();
        let wrong = || self.wrong(&format!("`resolution: {value}`: a number from 1 or a list of them is needed"));
        sides.filter(|sides| !sides.is_empty()).ok_or_else(wrong)
    }

    /// The folder, and the images where `dataset_path` is a JSON file that lists them.
    fn images(&self, dataset: &Table) -> Result<(PathBuf, Option<Vec<Listed>>)> {
        let named = ["dataset_path", "folder_path"].iter().find_map(|key| dataset.get(*key)?.as_str());
        let Some(named) = named else { return Err(self.wrong("a dataset has no `folder_path` (a text)")) };
        let at = self.resolve(&named.replace("[name]", &self.name));
        if !at.is_file() {
            return Ok((at, None));
        }
        let bytes = read_regular(&at).at(&at)?;
        let Ok(Value::Object(images)) = serde_json::from_slice(&bytes) else {
            return Err(Error::input(&at, "is the job's `dataset_path`, and no JSON table of images"));
        };
        let short = self.boolean(dataset, "use_short_captions")? == Some(true);
        let listed = |(file, said): (&String, &Value)| Listed {
            caption: said
                .get(if short { "caption_short" } else { "caption" })
                .and_then(Value::as_str)
                .map(str::to_owned),
            ..Listed::new(self.working_dir.join(file))
        };
        let folder = at.parent().unwrap_or(Path::new(".")).to_path_buf();
        Ok((folder, Some(images.iter().map(listed).collect())))
    }

    /// The trainer takes relative folders from its working directory; people keep them beside the file.
    fn resolve(&self, folder: &str) -> PathBuf {
        let beside = self.path.parent().unwrap_or(Path::new("")).join(folder);
        if beside.exists() { beside } else { self.working_dir.join(folder) }
    }

    fn note_keys(&mut self, dataset: &Table) {
        let refused = |key: &str| key == "num_frames" || REFUSED.iter().any(|(name, _)| *name == key);
        let other = dataset.iter().filter(|(key, value)| {
            let key = key.as_str();
            let idle = value.is_null() || *value == &Value::String(String::new());
            !idle && !HONOURED.contains(&key) && !PASSED_OVER.contains(&key) && !refused(key)
        });
        self.unhonoured.extend(other.map(|(key, _)| key.clone()));
    }

    fn boolean(&self, table: &Table, key: &str) -> Result<Option<bool>> {
        match table.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(*on)),
            Some(other) => Err(self.wrong(&format!("`{key}: {other}`: true or false is needed"))),
        }
    }

    fn wrong(&self, message: &str) -> Error {
        Error::input(self.path, message)
    }
}

/// The older `caption_type` wins (`config_modules.py:1028`).
fn caption_ext(dataset: &Table) -> String {
    let text = |key: &str| dataset.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let extension = text("caption_type").or(text("caption_ext")).unwrap_or(".txt");
    if extension.starts_with('.') { extension.to_owned() } else { format!(".{extension}") }
}

/// `model.arch`, or the one that the older switches name (`config_modules.py:766-821`).
fn arch(model: &Table) -> Option<String> {
    if let Some(arch) = model.get("arch").and_then(Value::as_str) {
        let arch = arch.split(':').next().unwrap_or(arch);
        return Some(if arch == "flex1" { "flux" } else { arch }.to_owned());
    }
    let switches = [
        ("is_v2", "sd2"),
        ("is_v3", "sd3"),
        ("is_xl", "sdxl"),
        ("is_flux", "flux"),
        ("is_lumina2", "lumina2"),
        ("is_vega", "sdxl"),
        ("is_ssd", "sdxl"),
    ];
    let on = switches.iter().find(|(key, _)| model.get(*key) == Some(&Value::Bool(true)));
    on.map(|(_, arch)| (*arch).to_owned()).or_else(|| (!model.is_empty()).then(|| "sd1".to_owned()))
}

fn whole(table: &Table, key: &str) -> Result<Option<u32>, String> {
    let Some(value) = table.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|&number| number > 0);
    number.map(Some).ok_or_else(|| format!("`{key}: {value}`: a number from 1 is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(datasets: &str) -> Result<Description> {
        let head = "job: extension\nconfig:\n  name: dog\n  process:\n  - model:\n      arch: flux\n    train:\n      batch_size: 2\n    datasets:\n";
        let text = format!("{head}{datasets}");
        parse(Path::new("jobs/dog.yaml"), &text, Path::new("/home/me")).expect("a job")
    }

    fn own(subset: &Subset) -> &JobSettings {
        let Own::AiToolkit(own) = &subset.settings.own else { panic!("{:?}", subset.settings) };
        own
    }

    #[test]
    fn a_list_of_resolutions_is_a_subset_each() {
        let described = read(
            "    - folder_path: data/[name]\n      resolution: [512, 768]\n      caption_ext: caption\n      num_repeats: 3\n      flip_x: true\n      cache_latents_to_disk: true\n    - folder_path: b\n      batch_size: 4\n",
        )
        .unwrap();
        let sizes: Vec<_> = described.subsets.iter().map(|s| s.settings.resolution.unwrap().width).collect();
        assert_eq!(sizes, [512, 768, 512]);
        let [first, _, last] = &described.subsets[..] else { panic!() };
        assert_eq!(first.folder, Path::new("/home/me/data/dog"));
        assert_eq!((first.repeats, &first.caption_ext[0][..]), (Some(3), ".caption"));
        assert_eq!((first.settings.flip, last.settings.flip), (Some(true), Some(false)));
        assert_eq!((first.settings.batch, last.settings.batch), (Some(2), Some(4)));
        assert_eq!(own(first).arch.as_deref(), Some("flux"));
        assert_eq!((own(first).caching, own(last).caching), (true, false));
        assert_eq!(last.caption_ext, [".txt"]);
        assert!(described.warnings.is_empty(), "{:?}", described.warnings);
    }

    #[test]
    fn keys_that_are_not_followed_are_named_and_uncacheable_ones_refused() {
        let warned =
            read("    - folder_path: a\n      trigger_word: sks\n      control_path: c\n      is_reg: true\n").unwrap();
        assert_eq!(warned.warnings, ["`jobs/dog.yaml`: these keys are not honoured: control_path, trigger_word"]);
        let refused = |key: &str| read(&format!("    - folder_path: a\n      {key}\n")).unwrap_err().to_string();
        assert!(refused("random_crop: true").contains("`random_crop` cannot be cached for: every start sees"));
        assert!(refused("num_frames: 33").contains("`num_frames: 33`: videos are not read"));
        assert!(refused("buckets: false").contains("`buckets: false` is not read"));
        assert!(refused("resolution: big").contains("`resolution: \"big\"`: a number from 1 or a list"));
        assert!(read("    - folder_path: a\n      random_crop: false\n      augments: []\n").is_ok());
    }

    #[test]
    fn older_switches_name_the_arch() {
        let named = |text: &str| arch(yaml::read(text).unwrap().as_object().unwrap());
        assert_eq!(named("{is_xl: true}").as_deref(), Some("sdxl"));
        assert_eq!(named("{name_or_path: x}").as_deref(), Some("sd1"));
        assert_eq!(named("{arch: 'wan22_14b:t2v'}").as_deref(), Some("wan22_14b"));
        assert_eq!(named("{}"), None);
    }

    #[test]
    fn other_texts_are_no_job() {
        assert!(parse(Path::new("a.json"), "{}", Path::new("")).is_none());
        assert!(parse(Path::new("a.toml"), "[x]\ny = 1", Path::new("")).is_none());
        assert!(parse(Path::new("a.yaml"), "a: [", Path::new("")).is_some_and(|r| r.is_err()));
    }
}
