//! Which keys the trainer's `dataset_config` knows where (`config_util.py:163-260`), and which of them are read here.

use std::collections::BTreeSet;
use toml::Table;

/// Where a key stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    General,
    Dataset(Style),
    Subset(Style),
}

/// The kinds of dataset that are read; each has its own schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    DreamBooth,
    FineTuning,
}

const OF_DATASETS: [&str; 11] = [
    "batch_size",
    "bucket_no_upscale",
    "bucket_reso_steps",
    "enable_bucket",
    "max_bucket_reso",
    "min_bucket_reso",
    "network_multiplier",
    "resize_interpolation",
    "resolution",
    "validation_seed",
    "validation_split",
];

const OF_SUBSETS: [&str; 20] = [
    "caption_dropout_every_n_epochs",
    "caption_dropout_rate",
    "caption_prefix",
    "caption_separator",
    "caption_suffix",
    "caption_tag_dropout_rate",
    "color_aug",
    "custom_attributes",
    "enable_wildcard",
    "face_crop_aug_range",
    "flip_aug",
    "keep_tokens",
    "keep_tokens_separator",
    "num_repeats",
    "random_crop",
    "resize_interpolation",
    "secondary_separator",
    "shuffle_caption",
    "token_warmup_min",
    "token_warmup_step",
];

const OF_DREAMBOOTH: [&str; 3] = ["cache_info", "caption_extension", "class_tokens"];

/// Keys that shape a latent, its place, a caption or a count.
const READ: [&str; 22] = [
    "alpha_mask",
    "batch_size",
    "bucket_no_upscale",
    "bucket_reso_steps",
    "cache_info",
    "caption_extension",
    "caption_separator",
    "class_tokens",
    "color_aug",
    "enable_bucket",
    "enable_wildcard",
    "flip_aug",
    "image_dir",
    "is_reg",
    "max_bucket_reso",
    "metadata_file",
    "min_bucket_reso",
    "num_repeats",
    "random_crop",
    "resize_interpolation",
    "resolution",
    "subsets",
];

/// True for the keys that the trainer's schema has at `level`; it ends with an error at any other.
fn is_known(level: Level, key: &str) -> bool {
    let common = OF_SUBSETS.contains(&key);
    let of_datasets = OF_DATASETS.contains(&key);
    let of_dreambooth = OF_DREAMBOOTH.contains(&key);
    common
        || match level {
            Level::General => of_datasets || of_dreambooth,
            Level::Dataset(style) => of_datasets || key == "subsets" || (style == Style::DreamBooth && of_dreambooth),
            Level::Subset(Style::DreamBooth) => of_dreambooth || ["image_dir", "is_reg", "alpha_mask"].contains(&key),
            Level::Subset(Style::FineTuning) => ["metadata_file", "image_dir", "alpha_mask"].contains(&key),
        }
}

/// Keys that are not read here.
#[derive(Default)]
pub(super) struct Unread {
    /// Those that the trainer itself refuses, with their place.
    unknown: BTreeSet<String>,
    /// Those that the trainer knows, and that shape no latent.
    irrelevant: BTreeSet<String>,
}

impl Unread {
    /// Notes the keys of one table.
    pub(super) fn note(&mut self, level: Level, table: &Table) {
        for key in table.keys() {
            if !is_known(level, key) {
                let place = match level {
                    Level::General => "[general]",
                    Level::Dataset(_) => "[[datasets]]",
                    Level::Subset(_) => "[[datasets.subsets]]",
                };
                self.unknown.insert(format!("{key} in {place}"));
            } else if !READ.contains(&key.as_str()) {
                self.irrelevant.insert(key.clone());
            }
        }
    }

    /// Notes a table beside `general` and `datasets`.
    pub(super) fn note_table(&mut self, name: &str) {
        self.unknown.insert(format!("[{name}]"));
    }

    /// A line for each kind; `file` as shown.
    pub(super) fn warnings(self, file: &str) -> Vec<String> {
        let line = |keys: BTreeSet<String>, what: &str| {
            let list = keys.into_iter().collect::<Vec<_>>().join(", ");
            (!list.is_empty()).then(|| format!("`{file}`: {what}: {list}"))
        };
        let unknown = line(self.unknown, "sd-scripts refuses these keys, and ends with an error");
        let irrelevant = line(self.irrelevant, "these keys shape no latent and are left to the trainer");
        unknown.into_iter().chain(irrelevant).collect()
    }
}
