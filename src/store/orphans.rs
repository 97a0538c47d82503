//! Every artefact under a root that is ours; the caller subtracts what is wanted, the rest are orphans.
//!
//! Refuses to follow links and to claim a file without our receipt, so `prune` can never remove another's file.

use crate::containers::Container;
use crate::store::index::Index;
use crate::store::layout;
use crate::store::stat::FileStat;
use std::fs::{self, DirEntry, File};
use std::path::{Path, PathBuf};

/// Artefacts of the content-addressed layout under its root, relative to it and sorted.
///
/// Told by their names alone: `ab/<64 hex>.safetensors`. Anything else in the folder is not ours.
pub fn in_store(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in entries(root).into_iter().filter(is_folder) {
        let names = entries(&folder.path()).into_iter().filter(is_file);
        let paths = names.map(|entry| Path::new(&folder.file_name()).join(entry.file_name()));
        found.extend(paths.filter(|path| layout::store_key(path).is_some()));
    }
    found.sort();
    found
}

/// Artefacts beside the images of a dataset that carry our receipt, relative to `root` and sorted.
///
/// Hidden files and folders are left out, links are not followed. The index answers for files it knows (by their
/// relative path's bytes); of others only the zip directory or the header is read, so a checkpoint among the images
/// costs nothing. Folders that cannot be listed are passed over.
pub fn beside_images(root: &Path, index: &Index) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in entries(&root.join(&folder)) {
            let path = folder.join(entry.file_name());
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if is_folder(&entry) {
                folders.push(path);
            } else if is_file(&entry) && is_ours(root, &path, index) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn is_ours(root: &Path, path: &Path, index: &Index) -> bool {
    let Some(container) = Container::of_path(path) else { return false };
    let Ok(file) = File::open(root.join(path)) else { return false };
    let Ok(metadata) = file.metadata() else { return false };
    match index.artefact(path.as_os_str().as_encoded_bytes(), &FileStat::of(&metadata)) {
        Some(known) => known.receipt.is_some(),
        None => container.has_receipt(file),
    }
}

fn entries(folder: &Path) -> Vec<DirEntry> {
    fs::read_dir(folder).map(|entries| entries.flatten().collect()).unwrap_or_default()
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

fn is_file(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file())
}
