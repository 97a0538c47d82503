//! What sd-scripts does to single images that its user would not expect, and what it ends with an error at.

use super::layout::is_multi_resolution;
use crate::dataset::captions::Flaw;
use crate::dataset::{Image, Probe, Profile, Stated};
use crate::problem::{Kind, Problem};
use crate::recipe::Family;
use crate::trainers::Subset;
use crate::trainers::description::dreambooth_repeats;
use crate::units::display_path;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Extensions that the trainer lists, all lower or all upper case only (`tu:104`).
const EXTENSIONS: [&str; 5] = ["png", "jpg", "jpeg", "webp", "bmp"];

/// Refuses an image that the trainer never sees, or that ends its run.
pub(super) fn ensure_trainable(image: &Image, family: Family) -> Result<(), Problem> {
    match image.stated {
        None => ensure_listed(image)?,
        Some(stated) => ensure_size_is_found(image, stated, family)?,
    }
    match &image.caption {
        Some(caption) => ensure_caption_is_read(image, caption),
        None => Ok(()),
    }
}

/// The trainer lists files by extension (`tu:2847`).
fn ensure_listed(image: &Image) -> Result<(), Problem> {
    let extension = image.relative.extension().and_then(|e| e.to_str()).unwrap_or("");
    let listed = EXTENSIONS.iter().any(|&e| extension == e || extension == e.to_uppercase());
    if listed {
        return Ok(());
    }
    let message = format!("sd-scripts does not list the extension `.{extension}`: it never sees this file");
    let hint = "rename it to .png .jpg .jpeg .webp or .bmp, all lower or all upper case";
    Err(Problem::error(image.path.clone(), Kind::Unsupported, message).with_hint(hint))
}

/// Named by its full path without a size, an image is looked for among cache files, and what is found is then opened in
/// its place (`tu:2307-2317`). SD and SDXL find the cache again by its own name; the others derive a name from it at
/// which nothing lies, and end with an error as soon as there is a cache.
fn ensure_size_is_found(image: &Image, stated: Stated, family: Family) -> Result<(), Problem> {
    if stated.size.is_some() || !stated.by_full_path || !is_multi_resolution(family) {
        return Ok(());
    }
    let message = format!(
        "is named by its full path without `image_size`: sd-scripts ends with an error once a {} cache lies there",
        family.name()
    );
    let hint = "add `image_size` to the metadata, or name it relative to image_dir";
    Err(Problem::error(image.path.clone(), Kind::Unsupported, message).with_hint(hint))
}

/// The trainer reads captions as strict UTF-8 and asserts that there is a line (`tu:1946-1968`).
fn ensure_caption_is_read(image: &Image, caption: &Path) -> Result<(), Problem> {
    let (kind, what) = match image.flaw {
        None => return Ok(()),
        Some(Flaw::NotUtf8) => (Kind::CaptionEncoding, "is not UTF-8"),
        Some(Flaw::Unreadable) => (Kind::CaptionEncoding, "cannot be read"),
        Some(Flaw::NoByte) => (Kind::CaptionEmpty, "is empty"),
    };
    let message = format!("its caption `{}` {what}: sd-scripts ends with an error at it", display_path(caption));
    Err(Problem::error(image.path.clone(), kind, message).with_hint("save it as UTF-8 with at least one line"))
}

/// Warnings for an image that is trained, but not as its user would expect.
pub(super) fn of_image(image: &Image, alpha_mask: bool) -> Vec<Problem> {
    let Some(probe) = &image.probe else { return Vec::new() };
    let mut harms = Vec::new();
    let mut warn = |kind, message: String, hint: &str| {
        harms.push(Problem::warning(image.path.clone(), kind, message).with_hint(hint));
    };
    if probe.transparent && !alpha_mask {
        let message = "has transparency, which sd-scripts cuts off: colours hidden under it are trained";
        warn(Kind::Alpha, message.to_owned(), "flatten the image, or train with alpha_mask");
    }
    if probe.orientation != 1 {
        let message =
            format!("has EXIF orientation {}, which sd-scripts ignores: it is trained as stored", probe.orientation);
        warn(Kind::Oriented, message, "rotate the pixels and remove the tag");
    }
    if probe.profile == Profile::Other {
        let message = "has a colour profile that is not sRGB, which sd-scripts ignores";
        warn(Kind::Icc, message.to_owned(), "convert the image to sRGB");
    }
    if probe.bits > 8 {
        let gray = "is 16-bit gray, which the trainer's loader clips at 255: it is nearly white";
        let rgb = format!("has {} bits a channel; the high 8 are used", probe.bits);
        let message = if probe.gray { gray.to_owned() } else { rgb };
        warn(Kind::BitDepth, message, "convert the image to 8 bits a channel");
    }
    if let Some(message) = squeezed(image, probe) {
        warn(Kind::CropLoss, message, "correct the size there, or leave it out");
    }
    harms
}

/// A size that the metadata states and the picture does not have: its bucket is chosen by it, and the picture is pressed
/// into the size that follows.
fn squeezed(image: &Image, probe: &Probe) -> Option<String> {
    let stated = image.stated?.size.filter(|&size| size != probe.size)?;
    Some(format!("is {} pixels, its metadata says {stated}, which sd-scripts believes: it is squeezed", probe.size))
}

/// Folders of a root of `N_name` folders that `--train_data_dir` passes over: it takes what lies directly in those with
/// a number, and nothing else (`config_util.py:607-638`).
pub(super) fn unseen_folders(subset: &Subset, images: &[&Image]) -> Vec<Problem> {
    let is_plain = subset.described_by.is_none() && images.iter().all(|image| image.stated.is_none());
    let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for image in images {
        *counts.entry(image.relative.parent().map(Path::to_path_buf).unwrap_or_default()).or_default() += 1;
    }
    let seen = |folder: &Path| {
        folder.components().count() == 1 && dreambooth_repeats(&folder.as_os_str().to_string_lossy()).is_some()
    };
    if !is_plain || !counts.keys().any(|folder| seen(folder)) {
        return Vec::new();
    }
    let problem = |(folder, count): (&PathBuf, &usize)| {
        let message =
            format!("holds {count} images that sd-scripts does not see: --train_data_dir takes `N_name` folders");
        let path = if folder.as_os_str().is_empty() { ".".to_owned() } else { display_path(folder) };
        let hint = "move them into a folder such as `1_name` directly below the dataset";
        Problem::warning(path, Kind::Unsupported, message).with_hint(hint)
    };
    counts.iter().filter(|(folder, _)| !seen(folder)).map(problem).collect()
}
