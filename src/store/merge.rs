//! An artefact's new contents, from what lies there and a set of changes. Pure.
//!
//! One rule decides what stays: an entry survives if every array that its receipt names is what the receipt says,
//! after the changes. Arrays that no receipt names belong to another tool and stay untouched.

use crate::containers::{Array, Contents};
use crate::recipe::receipt::{EntryReceipt, RECEIPT_VERSION, Receipt};
use crate::store::lookup::fault_of;
use std::collections::{BTreeMap, BTreeSet};

/// One change to an artefact.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Adds an entry, or replaces the one of that name with all its arrays.
    Put {
        /// The entry's name, which is the name of its tensor in the container.
        entry: String,
        /// All arrays that belong to it, its tensor among them.
        arrays: BTreeMap<String, Array>,
        /// What is remembered of it; `arrays`, `dtype` and `shape` are filled in from the arrays themselves.
        receipt: Box<EntryReceipt>,
    },
    /// Removes an entry with all its arrays; nothing happens where there is no such entry.
    Drop {
        /// The entry's name.
        entry: String,
    },
}

/// The contents after `changes`, in their order, with a canonical receipt; without one when no entry is left.
///
/// Entries of `old` that are damaged are removed with all their arrays, as is an entry that shared an array with one
/// that a change replaced. An array shared by several entries goes with the last of them. Fails for an old receipt
/// that cannot be read (pass `None` to begin afresh), for an entry without its own tensor, and for one with NaN or
/// infinity in it.
pub fn merge(old: Option<Contents>, changes: Vec<Change>) -> Result<Contents, String> {
    let old = old.unwrap_or_default();
    let mut arrays = old.arrays;
    let mut entries = match &old.receipt {
        Some(text) => Receipt::from_json(text)?.entries,
        None => BTreeMap::new(),
    };
    drop_faulty(&mut entries, &mut arrays);
    for change in changes {
        match change {
            Change::Drop { entry } => drop_entry(&mut entries, &mut arrays, &entry),
            Change::Put { entry, arrays: new, receipt } => {
                let receipt = sealed(&entry, &new, *receipt)?;
                drop_entry(&mut entries, &mut arrays, &entry);
                arrays.extend(new);
                entries.insert(entry, receipt);
                drop_faulty(&mut entries, &mut arrays);
            }
        }
    }
    let receipt = Receipt { receipt_version: RECEIPT_VERSION, entries };
    let receipt = (!receipt.entries.is_empty()).then(|| receipt.to_json());
    Ok(Contents { arrays, receipt, metadata: old.metadata })
}

/// The receipt with checksums, dtype and shape of the arrays themselves.
fn sealed(entry: &str, arrays: &BTreeMap<String, Array>, receipt: EntryReceipt) -> Result<EntryReceipt, String> {
    let tensor = arrays.get(entry).ok_or_else(|| format!("entry `{entry}` comes without its tensor"))?;
    if let Some((name, _)) = arrays.iter().find(|(_, array)| array.has_non_finite()) {
        return Err(format!("`{name}` holds NaN or infinity"));
    }
    let checksums = arrays.iter().map(|(name, array)| (name.clone(), array.checksum())).collect();
    Ok(EntryReceipt { arrays: checksums, dtype: tensor.dtype, shape: tensor.shape.clone(), ..receipt })
}

/// Removes every entry whose arrays are not what its receipt says.
fn drop_faulty(entries: &mut BTreeMap<String, EntryReceipt>, arrays: &mut BTreeMap<String, Array>) {
    let faulty: Vec<String> = entries
        .iter()
        .filter(|(name, receipt)| fault_of(name, receipt, arrays).is_some())
        .map(|(name, _)| name.clone())
        .collect();
    for name in faulty {
        drop_entry(entries, arrays, &name);
    }
}

/// Removes an entry and those of its arrays that no other entry names.
fn drop_entry(entries: &mut BTreeMap<String, EntryReceipt>, arrays: &mut BTreeMap<String, Array>, name: &str) {
    let Some(receipt) = entries.remove(name) else { return };
    let shared: BTreeSet<&String> = entries.values().flat_map(|other| other.arrays.keys()).collect();
    arrays.retain(|array, _| !receipt.arrays.contains_key(array) || shared.contains(array));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::Dtype;
    use crate::hash::ContentHash;
    use crate::recipe::key::{KeyInputs, Stored};
    use crate::recipe::pixels::{Alpha, Colour, Decoder, PixelRecipe};
    use crate::units::{Rect, Size};

    fn receipt(content: &[u8]) -> EntryReceipt {
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: 1,
            colour: Colour::AsStored,
            clip_gray16: false,
            alpha: Alpha::Opaque,
            resample: None,
            resized: Size::new(16, 16),
            crop: Rect::whole(Size::new(16, 16)),
            mirrored: false,
        };
        let inputs = KeyInputs::mask(ContentHash::of(content), pixels, Stored::raw(Dtype::F32));
        let key = inputs.key().unwrap();
        let (arrays, context) = (BTreeMap::new(), BTreeMap::new());
        EntryReceipt { key, inputs, ran: None, arrays, dtype: Dtype::U8, shape: vec![], context }
    }

    fn put(entry: &str, value: f32, shared: &str, crop: f64) -> Change {
        let tensor = Array::from_f32(Dtype::F32, vec![1, 2, 2], &[value; 4]);
        let arrays = [(entry.to_owned(), tensor), (shared.to_owned(), Array::from_f64(&[crop]))].into();
        Change::Put { entry: entry.to_owned(), arrays, receipt: Box::new(receipt(entry.as_bytes())) }
    }

    fn names(contents: &Contents) -> (Vec<&str>, Vec<String>) {
        let entries = contents.receipt.as_ref().map(|text| Receipt::from_json(text).unwrap().entries);
        let arrays = contents.arrays.keys().map(String::as_str).collect();
        (arrays, entries.unwrap_or_default().into_keys().collect())
    }

    /// A file of two resolutions, the first with a mirrored entry that shares the crop, and a foreign array.
    fn two_resolutions() -> Contents {
        let foreign = Contents { arrays: [("theirs".to_owned(), Array::from_i64(&[1]))].into(), ..Contents::default() };
        let changes = vec![
            put("latents_2x2", 1.0, "crop_2x2", 0.0),
            put("latents_flipped_2x2", 2.0, "crop_2x2", 0.0),
            put("latents_4x4", 3.0, "crop_4x4", 5.0),
        ];
        merge(Some(foreign), changes).unwrap()
    }

    #[test]
    fn dtype_shape_and_checksums_of_a_new_entry_are_those_of_its_arrays() {
        let contents = two_resolutions();
        let receipt = Receipt::from_json(contents.receipt.as_ref().unwrap()).unwrap();
        let entry = &receipt.entries["latents_2x2"];
        assert_eq!((entry.dtype, entry.shape.as_slice()), (Dtype::F32, [1, 2, 2].as_slice()));
        assert_eq!(entry.arrays["latents_2x2"], contents.arrays["latents_2x2"].checksum());
        assert_eq!(entry.arrays.keys().collect::<Vec<_>>(), ["crop_2x2", "latents_2x2"]);
    }

    #[test]
    fn a_dropped_entry_takes_its_arrays_but_not_shared_other_or_foreign_ones() {
        let drop = |entry: &str| Change::Drop { entry: entry.to_owned() };
        let merged = merge(Some(two_resolutions()), vec![drop("latents_2x2"), drop("no such")]).unwrap();
        let (arrays, entries) = names(&merged);
        assert_eq!(arrays, ["crop_2x2", "crop_4x4", "latents_4x4", "latents_flipped_2x2", "theirs"]);
        assert_eq!(entries, ["latents_4x4", "latents_flipped_2x2"]);
        let all = vec![drop("latents_2x2"), drop("latents_flipped_2x2"), drop("latents_4x4")];
        let merged = merge(Some(two_resolutions()), all).unwrap();
        assert_eq!(names(&merged), (vec!["theirs"], vec![]));
        assert_eq!(merged.receipt, None);
    }

    #[test]
    fn a_replaced_entry_leaves_other_resolutions_byte_for_byte() {
        let old = two_resolutions();
        let merged = merge(Some(old.clone()), vec![put("latents_2x2", 9.0, "crop_2x2", 0.0)]).unwrap();
        let nine = Array::from_f32(Dtype::F32, vec![1, 2, 2], &[9.0; 4]);
        assert_eq!(merged.arrays["latents_2x2"], nine);
        for name in ["latents_4x4", "crop_4x4", "latents_flipped_2x2", "theirs"] {
            assert_eq!(merged.arrays[name], old.arrays[name]);
        }
        assert_eq!(names(&merged).1, ["latents_2x2", "latents_4x4", "latents_flipped_2x2"]);
    }

    #[test]
    fn a_shared_array_that_changes_takes_the_entries_with_it_that_relied_on_the_old_one() {
        let merged = merge(Some(two_resolutions()), vec![put("latents_2x2", 9.0, "crop_2x2", 7.0)]).unwrap();
        let (arrays, entries) = names(&merged);
        assert_eq!(arrays, ["crop_2x2", "crop_4x4", "latents_2x2", "latents_4x4", "theirs"]);
        assert_eq!(entries, ["latents_2x2", "latents_4x4"]);
        assert_eq!(merged.arrays["crop_2x2"], Array::from_f64(&[7.0]));
    }

    #[test]
    fn a_damaged_entry_does_not_survive_a_merge() {
        let mut old = two_resolutions();
        old.arrays.get_mut("latents_4x4").unwrap().bytes[0] ^= 1;
        let (_, entries) = names(&old);
        assert_eq!(entries.len(), 3);
        let merged = merge(Some(old), vec![]).unwrap();
        let (arrays, entries) = names(&merged);
        assert_eq!(entries, ["latents_2x2", "latents_flipped_2x2"]);
        assert!(!arrays.contains(&"latents_4x4") && !arrays.contains(&"crop_4x4"));
    }

    #[test]
    fn the_order_of_independent_changes_does_not_show() {
        let (one, two) = (put("a", 1.0, "crop_a", 0.0), put("b", 2.0, "crop_b", 0.0));
        let forth = merge(None, vec![one.clone(), two.clone()]).unwrap();
        assert_eq!(forth, merge(None, vec![two, one]).unwrap());
    }

    #[test]
    fn an_entry_that_could_not_be_read_back_is_refused() {
        let Change::Put { entry, mut arrays, receipt } = put("a", f32::NAN, "crop", 0.0) else { unreachable!() };
        let change = Change::Put { entry: entry.clone(), arrays: arrays.clone(), receipt: receipt.clone() };
        assert_eq!(merge(None, vec![change]), Err("`a` holds NaN or infinity".into()));
        arrays.remove("a");
        assert!(merge(None, vec![Change::Put { entry, arrays, receipt }]).unwrap_err().contains("without its tensor"));
        let broken = Contents { receipt: Some("{".into()), ..Contents::default() };
        assert!(merge(Some(broken), vec![]).is_err());
    }
}
