//! Names of artefacts. A trainer's own naming lives with the trainer; here is the content-addressed one.

use crate::hash::Key;
use std::path::{Path, PathBuf};

/// The content-addressed store under a dataset.
pub fn store_root(dataset: &Path) -> PathBuf {
    dataset.join(super::FOLDER).join("store")
}

/// The place of a key's artefact in the content-addressed layout, relative to its root: `ab/<64 hex>.safetensors`.
///
/// Two digits spread a million artefacts over 256 folders of four thousand.
pub fn store_path(key: &Key) -> PathBuf {
    let hex = key.to_hex();
    Path::new(&hex[..2]).join(format!("{hex}.safetensors"))
}

/// The key that a path of [`store_path`] names; `None` for any other path.
pub fn store_key(path: &Path) -> Option<Key> {
    let key = Key::try_from(path.file_name()?.to_str()?.strip_suffix(".safetensors")?.to_owned()).ok()?;
    (store_path(&key) == path).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lies_in_the_folder_of_its_first_two_digits() {
        let key = Key([0xab; 32]);
        assert_eq!(store_path(&key), Path::new("ab").join(format!("{}.safetensors", "ab".repeat(32))));
    }

    #[test]
    fn only_a_path_of_the_layout_names_a_key() {
        let key = Key([0xab; 32]);
        let path = store_path(&key);
        assert_eq!(store_key(&path), Some(key));
        let name = path.file_name().unwrap();
        for other in [Path::new("ac").join(name), name.into(), path.with_extension("npz"), "ab/cd.safetensors".into()] {
            assert_eq!(store_key(&other), None, "{}", other.display());
        }
        assert_eq!(store_key(&Path::new("ab").join(format!("{}.safetensors", "AB".repeat(32)))), None);
    }
}
