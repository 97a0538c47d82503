//! What DATASET is: a folder, DreamBooth folders, or a trainer's own description; as subsets that share settings.

pub use crate::dataset::Listed;

use crate::error::{Error, IoContext, Result};
use crate::problem::Problem;
use crate::recipe::{Filter, Target};
use crate::store::read_regular;
use crate::units::Size;
use std::path::{Path, PathBuf};

/// A dataset as described: where it is rooted and which folders it takes images from.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Reported paths are relative to it; `.prebake` lies in it.
    pub root: PathBuf,
    /// Folders with their settings, in the description's order.
    pub subsets: Vec<Subset>,
    /// Keys that are not honoured, and the like; one line each.
    pub warnings: Vec<String>,
    /// Entries that cannot be read: the run goes on without them.
    pub problems: Vec<Problem>,
}

/// One folder whose images share settings.
#[derive(Clone, Debug)]
pub struct Subset {
    /// The folder.
    pub folder: PathBuf,
    /// True to walk it with all its sub-folders.
    pub recursive: bool,
    /// Times an image counts in an epoch; none takes `N` from a DreamBooth folder `N_name` below the root, else 1.
    pub repeats: Option<u32>,
    /// Caption extensions looked for, in order, each with its dot; empty for the caller's.
    pub caption_ext: Vec<String>,
    /// Whose own description lists it: then that trainer's defaults hold where it is silent, and a flag that
    /// contradicts it is refused. None for a plain folder and for what belongs to no trainer.
    pub described_by: Option<Target>,
    /// Its images where the description names them one by one; none to take those in `folder`.
    pub listed: Option<Vec<Listed>>,
    /// What the description says about pixels and batches.
    pub settings: SubsetSettings,
}

/// A description's settings; `None` where it is silent.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct SubsetSettings {
    pub resolution: Option<Size>,
    pub buckets: Option<bool>,
    pub min_bucket: Option<u32>,
    pub max_bucket: Option<u32>,
    pub bucket_step: Option<u32>,
    pub upscale: Option<bool>,
    pub batch: Option<u32>,
    pub flip: Option<bool>,
    pub alpha_mask: Option<bool>,
    pub resize: Option<Filter>,
    /// The caption of images that have none.
    pub class_tokens: Option<String>,
    /// True for images that only balance those of the other subsets in their group.
    pub regularization: Option<bool>,
    /// Which dataset of the description a subset belongs to.
    pub group: Option<u32>,
    /// What only one trainer has.
    pub own: Own,
}

/// What only one trainer's description says.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Own {
    /// Nothing.
    #[default]
    None,
    /// musubi-tuner.
    Musubi {
        /// Folder of the caches; relative to the root where it lies in it.
        cache_directory: PathBuf,
    },
    /// SimpleTuner.
    SimpleTuner(Box<super::simpletuner::Options>),
    /// ai-toolkit.
    AiToolkit(super::ai_toolkit::JobSettings),
}

impl Subset {
    /// A plain folder, with everything left to the flags.
    pub fn plain(folder: &Path) -> Self {
        let (folder, settings) = (folder.to_path_buf(), SubsetSettings::default());
        Self {
            folder,
            recursive: true,
            repeats: None,
            caption_ext: Vec::new(),
            described_by: None,
            listed: None,
            settings,
        }
    }

    /// Repeats of an image at `relative` to the root.
    pub fn repeats_of(&self, relative: &Path) -> u32 {
        self.repeats.unwrap_or_else(|| {
            let folder = relative.parent().and_then(|p| p.components().next());
            folder.and_then(|f| dreambooth_repeats(&f.as_os_str().to_string_lossy())).unwrap_or(1)
        })
    }
}

/// `N` of a DreamBooth folder name `N_name` or `N`, as sd-scripts splits it (`config_util.py:607`); none where that is no
/// number of at least 1.
pub fn dreambooth_repeats(name: &str) -> Option<u32> {
    let number = name.split('_').next()?;
    number.trim().parse().ok().filter(|&repeats| repeats >= 1)
}

/// Reads what DATASET describes; `working_dir` resolves what a description leaves relative.
///
/// # Errors
/// A path that does not exist, or a file that is no dataset description.
pub fn describe(dataset: &Path, working_dir: &Path) -> Result<Description> {
    let metadata = std::fs::metadata(dataset).at(dataset)?;
    if metadata.is_dir() {
        if let Some(described) = super::imagefolder::of_folder(dataset, working_dir)? {
            return Ok(described);
        }
        let subsets = vec![Subset::plain(dataset)];
        return Ok(Description { root: dataset.to_path_buf(), subsets, ..Description::default() });
    }
    let text = String::from_utf8(read_regular(dataset).at(dataset)?).ok();
    let described = text.and_then(|text| READERS.iter().find_map(|read| read(dataset, &text, working_dir)));
    described.unwrap_or_else(|| {
        let hint = "give a folder, a trainer's dataset file, or metadata.jsonl with `file_name` and `text`";
        Err(Error::input(dataset, "is neither a folder nor a dataset description that is known").with_hint(hint))
    })
}

/// Reads one kind of description (path, text, working directory), told by its content; `None` for other kinds.
type Reader = fn(&Path, &str, &Path) -> Option<Result<Description>>;

/// All kinds, in the order in which they are tried.
const READERS: &[Reader] = &[
    super::musubi::config::parse,
    super::sd_scripts::config::parse,
    super::imagefolder::parse,
    super::sd_scripts::metadata::parse,
    super::simpletuner::config::parse,
    super::ai_toolkit::job::parse,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_come_from_the_folder_directly_below_the_root() {
        let subset = Subset::plain(Path::new("data"));
        assert_eq!(subset.repeats_of(Path::new("3_sks dog/a.png")), 3);
        assert_eq!(subset.repeats_of(Path::new("x/3_sks dog/a.png")), 1);
        assert_eq!(subset.repeats_of(Path::new("a.png")), 1);
        assert_eq!(subset.repeats_of(Path::new("0_none/a.png")), 1);
        assert_eq!(subset.repeats_of(Path::new("dog_3/a.png")), 1);
        assert_eq!(subset.repeats_of(Path::new("4/a.png")), 4);
    }
}
