//! Images and samples of a described dataset: each subset's folder, or the files it names, scanned with its own caption
//! extensions.

use super::regularization;
use crate::dataset::listed::distinct;
use crate::dataset::{self, Dataset, Image, ScanOptions};
use crate::error::{Error, IoContext, Result};
use crate::pixels::Format;
use crate::problem::{Kind, Problem};
use crate::progress::{Cancel, Progress};
use crate::store::Index;
use crate::trainers::{Description, Subset};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A dataset as found.
#[derive(Debug)]
pub struct Collected {
    /// What was described.
    pub description: Description,
    /// Images, by subset in the description's order; one that two subsets share is listed twice.
    pub images: Vec<Image>,
    /// Samples, by image.
    pub samples: Vec<Sample>,
    /// Captions that belong to an image: files, and texts in the description.
    pub captions: usize,
    /// Bytes of all image files.
    pub bytes: u64,
    /// Problems found while scanning.
    pub problems: Vec<Problem>,
    /// Groups of images with the same content, by path.
    pub duplicates: Vec<Vec<String>>,
}

/// One image in one subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Index into [`Collected::images`].
    pub image: usize,
    /// Index into the description's subsets.
    pub subset: usize,
    /// Times it counts in an epoch.
    pub repeats: u32,
}

/// How a dataset is scanned.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// Caption extensions that win over the description's.
    pub caption_ext: Option<Vec<String>>,
    /// Caption extensions where neither says any.
    pub default_caption_ext: Vec<String>,
    /// Decode every image.
    pub deep: bool,
}

impl Collected {
    /// The image's file.
    pub fn file(&self, image: &Image) -> PathBuf {
        self.description.root.join(&image.relative)
    }

    /// Takes over what was found in a subset; `mentions` are the times that a description names an image, where not once.
    fn add(&mut self, subset: usize, found: Dataset, mentions: &HashMap<PathBuf, u32>) {
        for image in found.images {
            let times = mentions.get(&image.relative).copied().unwrap_or(1);
            let repeats = self.description.subsets[subset].repeats_of(&image.relative).saturating_mul(times);
            if times > 1 {
                let message = format!("is listed {times} times by the dataset's description, and counts as often");
                self.problems.push(Problem::warning(image.path.clone(), Kind::Duplicate, message));
            }
            self.samples.push(Sample { image: self.images.len(), subset, repeats });
            self.images.push(image);
        }
        self.captions += found.captions;
        self.bytes += found.bytes;
        // Class tokens stand for a caption that is absent, but not for one that is overlooked.
        let has_tokens = self.description.subsets[subset].settings.class_tokens.is_some();
        let stands_in =
            |problem: &Problem| has_tokens && problem.kind == Kind::CaptionMissing && problem.hint.is_none();
        self.problems.extend(found.problems.into_iter().filter(|problem| !stands_in(problem)));
        self.duplicates.extend(found.duplicates);
    }
}

/// Scans every subset of a description; what the index knows of unchanged files is not read again.
///
/// # Errors
/// A folder that cannot be listed, a description without images, an interrupt.
pub fn collect(
    description: Description,
    options: &CollectOptions,
    index: &Index,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Collected> {
    let problems = description.problems.clone();
    let mut collected = Collected {
        description,
        images: Vec::new(),
        samples: Vec::new(),
        captions: 0,
        bytes: 0,
        problems,
        duplicates: Vec::new(),
    };
    for subset in 0..collected.description.subsets.len() {
        let (root, described) = (&collected.description.root, &collected.description.subsets[subset]);
        let options = ScanOptions { caption_ext: caption_ext(options, described), deep: options.deep, threads: None };
        let mut mentions = HashMap::new();
        let found = if let Some(listed) = &described.listed {
            let files = distinct(root, listed);
            mentions.extend(files.iter().filter(|(_, n)| *n > 1).map(|(file, n)| (file.path.clone(), *n)));
            let files: Vec<_> = files.into_iter().map(|(file, _)| file).collect();
            dataset::scan_listed(root, &files, &options, index, progress, cancel)?
        } else if described.recursive {
            dataset::scan_folder(root, &described.folder, &options, index, progress, cancel)?
        } else {
            dataset::scan_files(root, &files_in(root, described)?, &options, index, progress, cancel)?
        };
        collected.add(subset, found, &mentions);
    }
    regularization::balance(&mut collected);
    if collected.images.is_empty() {
        let message = "holds no image that prebake knows";
        let hint = "images are png, jpg, jpeg, webp, bmp, tif, tiff and gif; hidden folders are left out";
        return Err(Error::input(&collected.description.root, message).with_hint(hint));
    }
    Ok(collected)
}

fn caption_ext(options: &CollectOptions, subset: &Subset) -> Vec<String> {
    let described = (!subset.caption_ext.is_empty()).then(|| subset.caption_ext.clone());
    options.caption_ext.clone().or(described).unwrap_or_else(|| options.default_caption_ext.clone())
}

/// Files named like images directly in a subset's folder, relative to `root` where they lie in it.
fn files_in(root: &Path, subset: &Subset) -> Result<Vec<PathBuf>> {
    if !subset.folder.is_dir() {
        let message = "is a folder of images in the dataset's description, and is no folder";
        let hint = "folders are looked for beside the description, then in the working directory";
        return Err(Error::input(&subset.folder, message).with_hint(hint));
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&subset.folder).at(&subset.folder)? {
        let entry = entry.at(&subset.folder)?;
        let path = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let named = path.extension().and_then(|e| e.to_str()).and_then(Format::from_extension).is_some();
        if !hidden && named && !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.push(path.strip_prefix(root).map(Path::to_path_buf).unwrap_or(path));
        }
    }
    Ok(files)
}
