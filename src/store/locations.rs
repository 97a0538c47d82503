//! Where artefacts of a dataset live, and how their paths are shown and indexed.

use super::layout::store_key;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The roots of one run.
#[derive(Clone, Debug)]
pub struct Locations {
    root: PathBuf,
    out: Option<PathBuf>,
}

impl Locations {
    /// Artefacts of the dataset at `root`, in the layouts' own places or below `out`.
    pub fn new(root: impl Into<PathBuf>, out: Option<PathBuf>) -> Self {
        Self { root: root.into(), out }
    }

    /// The content-addressed store: `ROOT/.prebake/store`, or `--out` itself.
    pub fn store(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| super::layout::store_root(&self.root))
    }

    /// The place of an artefact that lies beside its image; below `--out` the dataset's folders are kept.
    pub fn beside(&self, relative: &Path) -> PathBuf {
        match &self.out {
            None => self.root.join(relative),
            Some(out) => out.join(without_root(relative)),
        }
    }

    /// Where a file goes that must leave its place and must not be lost: flat, under `.prebake/quarantine`.
    pub fn quarantine(&self, path: &Path) -> PathBuf {
        let name = self.display(path).replace(['/', '\\'], "__");
        self.root.join(super::FOLDER).join("quarantine").join(name)
    }

    /// A path as reports show it: relative to the dataset where it lies in it.
    pub fn display(&self, path: &Path) -> String {
        crate::units::display_path(path.strip_prefix(&self.root).unwrap_or(path))
    }

    /// The bytes by which the index knows a file: relative to the dataset where it lies in it.
    pub fn index_key(&self, path: &Path) -> Vec<u8> {
        path.strip_prefix(&self.root).unwrap_or(path).as_os_str().as_encoded_bytes().to_vec()
    }

    /// Files of the store, sorted. Told by their names alone, `ab/<64 hex>.safetensors`; anything else is not ours.
    pub fn store_files(&self) -> Vec<PathBuf> {
        let store = self.store();
        let folders = entries(&store).into_iter().filter(|path| path.is_dir());
        let files = folders.flat_map(|folder| entries(&folder));
        let is_artefact = |path: &PathBuf| path.strip_prefix(&store).is_ok_and(|name| store_key(name).is_some());
        let mut files: Vec<PathBuf> = files.filter(is_artefact).collect();
        files.sort();
        files
    }

    /// Files with a name that `of_layout` knows in these folders of the dataset (with all their visible sub-folders
    /// where the flag says so), sorted.
    pub fn files_beside(&self, folders: &BTreeSet<(PathBuf, bool)>, of_layout: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut stack: Vec<(PathBuf, bool)> = folders
            .iter()
            .map(|(folder, deep)| (self.beside(folder.strip_prefix(&self.root).unwrap_or(folder)), *deep))
            .collect();
        while let Some((folder, deep)) = stack.pop() {
            for path in entries(&folder) {
                let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
                let Ok(kind) = fs::symlink_metadata(&path).map(|metadata| metadata.file_type()) else { continue };
                if kind.is_dir() && deep && !name.starts_with('.') {
                    stack.push((path, true));
                } else if kind.is_file() && of_layout(&name) {
                    files.push(path);
                }
            }
        }
        files.sort();
        files.dedup();
        files
    }
}

/// A folder's entries; one that cannot be read has none, and the scan has named it.
fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}

fn without_root(path: &Path) -> PathBuf {
    path.components().filter(|c| matches!(c, std::path::Component::Normal(_))).collect()
}
