//! Images and samples of a described dataset: each subset's folder scanned with its own caption extensions.

use crate::dataset::{self, Dataset, Image, ScanOptions};
use crate::error::{Error, IoContext, Result};
use crate::pixels::Format;
use crate::problem::Problem;
use crate::progress::{Cancel, Progress};
use crate::store::Index;
use crate::trainers::{Description, Subset};
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
    /// Caption files that belong to an image.
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

    fn add(&mut self, subset: usize, found: Dataset) {
        for image in found.images {
            let repeats = self.description.subsets[subset].repeats_of(&image.relative);
            self.samples.push(Sample { image: self.images.len(), subset, repeats });
            self.images.push(image);
        }
        self.captions += found.captions;
        self.bytes += found.bytes;
        self.problems.extend(found.problems);
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
    let mut collected = Collected {
        description,
        images: Vec::new(),
        samples: Vec::new(),
        captions: 0,
        bytes: 0,
        problems: Vec::new(),
        duplicates: Vec::new(),
    };
    for subset in 0..collected.description.subsets.len() {
        let found = {
            let described = &collected.description.subsets[subset];
            let root = &collected.description.root;
            let options =
                ScanOptions { caption_ext: caption_ext(options, described), deep: options.deep, threads: None };
            if described.recursive {
                dataset::scan(root, &options, index, progress, cancel)?
            } else {
                dataset::scan_files(root, &listed(root, described)?, &options, index, progress, cancel)?
            }
        };
        collected.add(subset, found);
    }
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
fn listed(root: &Path, subset: &Subset) -> Result<Vec<PathBuf>> {
    if !subset.folder.is_dir() {
        let message = "is an `image_dir` of the dataset's description, and is no folder";
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
