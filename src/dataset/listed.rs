//! Images that a description names one by one, with what it says of each.

use crate::units::Size;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An image that a description names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The file; absolute, or relative to the root.
    pub path: PathBuf,
    /// Its caption where the description holds it; none to look for a sidecar.
    pub caption: Option<String>,
    /// The line of the description that names it, from 1, where lines are known.
    pub line: Option<usize>,
    /// What the trainer takes from the description instead of from the file.
    pub stated: Option<Stated>,
}

/// What a trainer believes of an image because its metadata says so: sd-scripts' fine-tuning metadata and its
/// `metadata_cache.json`. Whoever has this takes the file whatever its extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// Width and height, believed over the file's own.
    pub size: Option<Size>,
    /// Named by its full path: then, without a size, the trainer looks for one among the names of cache files.
    pub by_full_path: bool,
}

impl Listed {
    /// A file of which nothing else is said.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }
}

/// The files as they are scanned: each once, relative to `root` where it lies in it, with the number of times it is
/// listed. Of several mentions the first counts.
pub fn distinct(root: &Path, files: &[Listed]) -> Vec<(Listed, u32)> {
    let bases = bases(root);
    let mut order: Vec<(Listed, u32)> = Vec::new();
    let mut seen: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for file in files {
        let path = below(&bases, &file.path);
        match seen.get(&path) {
            Some(&index) => order[index].1 += 1,
            None => {
                seen.insert(path.clone(), order.len());
                order.push((Listed { path, ..file.clone() }, 1));
            }
        }
    }
    order
}

/// Ways to write the root.
fn bases(root: &Path) -> Vec<PathBuf> {
    let others = [std::path::absolute(root), root.canonicalize()];
    [Some(root.to_path_buf())].into_iter().flatten().chain(others.into_iter().flatten()).collect()
}

fn below(bases: &[PathBuf], path: &Path) -> PathBuf {
    let inside = bases.iter().filter(|base| !base.as_os_str().is_empty()).find_map(|base| path.strip_prefix(base).ok());
    let path = inside.unwrap_or(path);
    path.strip_prefix(".").unwrap_or(path).components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_named_in_several_ways_is_listed_once_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let full = folder.path().join("sub/a.png");
        let first = Listed { caption: Some("first".into()), ..Listed::new("sub/a.png") };
        let files = [first, Listed::new(&full), Listed::new("./sub/./a.png"), Listed::new("/elsewhere/b.png")];
        let found = distinct(folder.path(), &files);
        let shown: Vec<_> = found.iter().map(|(listed, n)| (listed.path.to_str().unwrap(), *n)).collect();
        assert_eq!(shown, [("sub/a.png", 3), ("/elsewhere/b.png", 1)]);
        assert_eq!(found[0].0.caption.as_deref(), Some("first"));
    }
}
