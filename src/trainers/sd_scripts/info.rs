//! `metadata_cache.json`, which sd-scripts writes with `cache_info` and believes ever after (`tu:1990-2010`): paths,
//! captions and sizes as they once were.

use crate::dataset::captions::CaptionExt;
use crate::dataset::{Listed, Stated};
use crate::error::{Error, IoContext, Result};
use crate::pixels::Format;
use crate::problem::{Kind, Problem};
use crate::store::read_regular;
use crate::trainers::description::Subset;
use crate::units::{Size, display_path};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FILE: &str = "metadata_cache.json";
const HINT: &str = "delete metadata_cache.json, and the trainer makes it anew";

/// The subset that asks for it.
pub(super) struct Asked<'a> {
    pub(super) subset: &'a Subset,
    /// `image_dir` as the description has it: the keys begin with it.
    pub(super) place: &'a str,
    pub(super) root: &'a Path,
    /// Captions keep all their lines.
    pub(super) wildcard: bool,
}

/// What the trainer believes of a folder.
pub(super) struct Believed {
    pub(super) listed: Vec<Listed>,
    /// What is no longer so.
    pub(super) problems: Vec<Problem>,
}

/// Reads the file in the subset's folder; none where there is none.
///
/// # Errors
/// A file that the trainer cannot read either.
pub(super) fn read(asked: &Asked<'_>, working_dir: &Path) -> Result<Option<Believed>> {
    let path = asked.subset.folder.join(FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = read_regular(&path).at(&path)?;
    let entries: Map<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|error| Error::input(&path, format!("is no JSON object: {error}")).with_hint(HINT))?;
    let mut believed = Believed { listed: Vec::new(), problems: Vec::new() };
    for (key, value) in &entries {
        let size = size(value).ok_or_else(|| {
            Error::input(&path, format!("`{key}` has no `resolution: [width, height]`")).with_hint(HINT)
        })?;
        let caption = value.get("caption").and_then(Value::as_str).unwrap_or("").to_owned();
        let file = locate(asked, key, working_dir);
        believed.problems.extend(other_caption(asked, &file, &caption));
        let stated = Some(Stated { size: Some(size), by_full_path: false });
        believed.listed.push(Listed { caption: Some(caption), stated, ..Listed::new(file) });
    }
    let unlisted = unlisted(asked, &believed.listed);
    believed.problems.extend(unlisted);
    Ok(Some(believed))
}

fn size(entry: &Value) -> Option<Size> {
    let sides = entry.get("resolution")?.as_array().filter(|sides| sides.len() == 2)?;
    let side = |value: &Value| value.as_u64().and_then(|side| u32::try_from(side).ok()).filter(|&side| side >= 1);
    Some(Size::new(side(&sides[0])?, side(&sides[1])?))
}

/// Keys are paths as the trainer listed them: `image_dir` and a name.
fn locate(asked: &Asked<'_>, key: &str, working_dir: &Path) -> PathBuf {
    match Path::new(key).strip_prefix(asked.place) {
        Ok(name) => asked.subset.folder.join(name),
        Err(_) => working_dir.join(key),
    }
}

/// A caption file whose words are no longer those that the trainer believes.
fn other_caption(asked: &Asked<'_>, file: &Path, believed: &str) -> Option<Problem> {
    let path = CaptionExt::new(&asked.subset.caption_ext).caption_of(Path::new(""), file)?;
    let text = String::from_utf8(read_regular(&path).ok()?).ok()?;
    let now = if asked.wildcard {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    } else {
        text.lines().next().unwrap_or("").trim().to_owned()
    };
    let message = "is not read: the trainer takes other words for this image from metadata_cache.json";
    let problem = || Problem::warning(shown(asked, &path), Kind::OrphanCaption, message).with_hint(HINT);
    (now != believed).then(problem)
}

/// Images of the folder that the trainer does not see.
fn unlisted(asked: &Asked<'_>, listed: &[Listed]) -> Vec<Problem> {
    let known: BTreeSet<&Path> = listed.iter().map(|listed| listed.path.as_path()).collect();
    let entries = std::fs::read_dir(&asked.subset.folder).into_iter().flatten().flatten();
    let is_image = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && path.extension().and_then(|e| e.to_str()).and_then(Format::from_extension).is_some()
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).filter(is_image).collect();
    paths.retain(|path| !known.contains(path.as_path()));
    paths.sort();
    let message = "is not in metadata_cache.json, which the trainer believes: it never sees this file";
    let problem = |path: &PathBuf| Problem::error(shown(asked, path), Kind::Unsupported, message).with_hint(HINT);
    paths.iter().map(problem).collect()
}

fn shown(asked: &Asked<'_>, path: &Path) -> String {
    display_path(path.strip_prefix(asked.root).unwrap_or(path))
}
