//! `.npz`: a zip of `.npy` members, as `numpy.savez` writes and `np.load(allow_pickle=False)` reads.
//!
//! Reads stored and deflated members and checks their CRC. Writes stored members in sorted order under one fixed
//! date, so the same contents give the same bytes. The receipt is one more member, `prebake_receipt.npy`: a
//! one-dimensional uint8 array of its JSON, which a trainer that merges files by `np.load` and `np.savez` carries over
//! untouched. numpy has no bf16, so [`write()`] refuses it.

use super::{Array, Contents, Dtype, RECEIPT_NAME, npy};
use std::io::{Cursor, Read, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, System, ZipArchive, ZipWriter};

/// The most that deflate expands (zlib's technical notes give 1032:1); more is a lie in the directory.
const MAX_EXPANSION: u64 = 1032;
/// A zip name's length is 16 bits; `.npy` takes four bytes of it.
const MAX_NAME_BYTES: usize = u16::MAX as usize - 4;

/// The bytes of an npz file that holds `contents`.
///
/// Fails for a bf16 array, more than 64 axes, and a name that is the receipt's, too long, or has a NUL in it.
pub fn write(contents: &Contents) -> Result<Vec<u8>, String> {
    let receipt = contents.receipt.as_ref().map(|text| receipt_array(text));
    let mut members: Vec<(&str, &Array)> = contents.arrays.iter().map(|(name, array)| (name.as_str(), array)).collect();
    if let Some((name, _)) = members.iter().find(|(name, _)| !is_writable_name(name)) {
        return Err(format!("an array of an npz cannot be named `{}`", name.escape_default()));
    }
    members.extend(receipt.as_ref().map(|array| (RECEIPT_NAME, array)));
    members.sort_by_key(|(name, _)| *name);
    let size = members.iter().map(|(_, array)| array.bytes.len() + 512).sum();
    let mut zip = ZipWriter::new(Cursor::new(Vec::with_capacity(size)));
    for (name, array) in members {
        let member = npy::write(array).map_err(|why| format!("`{name}` {why}"))?;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(DateTime::DEFAULT)
            .system(System::Unix)
            .large_file(member.len() >= u32::MAX as usize);
        zip.start_file(format!("{name}.npy"), options).map_err(|e| format!("`{name}`: {e}"))?;
        zip.write_all(&member).map_err(|e| format!("`{name}`: {e}"))?;
    }
    zip.finish().map(Cursor::into_inner).map_err(|e| e.to_string())
}

fn is_writable_name(name: &str) -> bool {
    name != RECEIPT_NAME && name.len() <= MAX_NAME_BYTES && !name.contains('\0')
}

fn receipt_array(text: &str) -> Array {
    Array { dtype: Dtype::U8, shape: vec![text.len()], bytes: text.as_bytes().to_vec() }
}

/// Reads a whole npz file.
///
/// Fails for a damaged zip, a CRC that does not match, a member that is no array of a known dtype, and a receipt
/// that is no text.
pub fn read(bytes: &[u8]) -> Result<Contents, String> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(|e| format!("not a whole npz file: {e}"))?;
    let mut contents = Contents::default();
    // Members of a sound file do not overlap, so together they cannot be longer than it.
    let mut left = bytes.len() as u64;
    for index in 0..zip.len() {
        ensure_one_name(bytes, &mut zip, index)?;
        let (name, member) = read_member(&mut zip, index, &mut left)?;
        let Some(name) = name.strip_suffix(".npy") else {
            return Err(format!("holds `{}`, which is no array", name.escape_default()));
        };
        let array = npy::read(&member).map_err(|why| format!("`{name}` {why}"))?;
        if name == RECEIPT_NAME {
            contents.receipt = Some(receipt_text(array)?);
        } else {
            contents.arrays.insert(name.to_owned(), array);
        }
    }
    Ok(contents)
}

/// Newest zip version that Python's `zipfile` reads.
const MAX_ZIP_VERSION: u8 = 63;
/// Flags of a member that numpy may write: sizes that follow the data, and a name in UTF-8.
const KNOWN_FLAGS: u16 = 1 << 3 | 1 << 11;

/// Holds a member's own header against the directory, as Python's `zipfile` does: a bit that flipped in either would
/// pass here and stop the trainer.
pub(super) fn ensure_one_name(bytes: &[u8], zip: &mut ZipArchive<Cursor<&[u8]>>, index: usize) -> Result<(), String> {
    let member = zip.by_index_raw(index).map_err(|e| format!("member {index} cannot be read: {e}"))?;
    let (local, central) = (member.header_start() as usize, member.central_header_start() as usize);
    let name = member.name_raw().to_vec();
    let short = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let lying = bytes.get(local + 30..).and_then(|rest| rest.get(..name.len()));
    let sound = bytes.get(local..local + 4) == Some(b"PK\x03\x04")
        && short(local + 26) == Some(name.len() as u16)
        && lying == Some(name.as_slice())
        && short(local + 8) == short(central + 10)
        && [local + 6, central + 8].into_iter().all(|at| short(at).is_some_and(|flags| flags & !KNOWN_FLAGS == 0))
        && [local + 4, central + 6].into_iter().all(|at| bytes.get(at).is_some_and(|v| *v <= MAX_ZIP_VERSION));
    sound.then_some(()).ok_or_else(|| format!("member {index} has a header that does not match the directory"))
}

/// One member's name and bytes, CRC checked; takes its stored length off `left`.
pub(super) fn read_member(
    zip: &mut ZipArchive<Cursor<&[u8]>>,
    index: usize,
    left: &mut u64,
) -> Result<(String, Vec<u8>), String> {
    let member = zip.by_index(index).map_err(|e| format!("member {index} cannot be read: {e}"))?;
    let name = member.name().map_err(|e| format!("member {index}: {e}"))?.into_owned();
    let shown = name.strip_suffix(".npy").unwrap_or(&name).escape_default();
    let size = member.size();
    let lies = || format!("`{shown}` declares more bytes than the file can hold");
    *left = left.checked_sub(member.compressed_size()).ok_or_else(lies)?;
    if size > member.compressed_size().saturating_mul(MAX_EXPANSION).saturating_add(MAX_EXPANSION) {
        return Err(lies());
    }
    let mut bytes = Vec::new();
    // One byte more than declared, so that the reader reaches its end and checks the CRC.
    member.take(size + 1).read_to_end(&mut bytes).map_err(|e| format!("`{shown}` is damaged: {e}"))?;
    if bytes.len() as u64 != size {
        return Err(format!("`{shown}` holds {} bytes where {size} are declared", bytes.len()));
    }
    Ok((name, bytes))
}

fn receipt_text(array: Array) -> Result<String, String> {
    match array {
        Array { dtype: Dtype::U8, bytes, .. } => {
            String::from_utf8(bytes).map_err(|_| "its receipt is not UTF-8".to_owned())
        }
        other => Err(format!("its receipt has dtype {}, not u8", other.dtype.name())),
    }
}

/// True for an intact zip directory that names at least one array.
pub fn is_whole(bytes: &[u8]) -> bool {
    ZipArchive::new(Cursor::new(bytes)).is_ok_and(|zip| !zip.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        let latents = Array::from_f32(Dtype::F32, vec![1, 2, 2], &[0.5, -1.0, 2.0, 3.25]);
        let arrays = [
            ("original_size_2x2".to_owned(), Array::from_i64(&[97, 233])),
            ("latents_2x2".to_owned(), latents),
            ("empty".to_owned(), Array { dtype: Dtype::Bool, shape: vec![3, 0], bytes: vec![] }),
            ("scalar".to_owned(), Array { dtype: Dtype::U8, shape: vec![], bytes: vec![9] }),
        ];
        Contents { arrays: arrays.into(), receipt: Some("{\"é\":1}".into()), ..Contents::default() }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let bytes = write(&contents()).unwrap();
        assert_eq!(read(&bytes), Ok(contents()));
        assert!(is_whole(&bytes));
        let plain = Contents { receipt: None, ..contents() };
        let bytes = write(&plain).unwrap();
        assert_eq!(read(&bytes), Ok(plain));
        assert!(is_whole(&bytes));
    }

    #[test]
    fn the_same_contents_give_the_same_bytes_always() {
        let bytes = write(&contents()).unwrap();
        assert_eq!(bytes, write(&contents()).unwrap());
        // Date and time of the first local header: 1 January 1980, midnight.
        assert_eq!(bytes[10..14], [0, 0, 0x21, 0]);
        assert_eq!(blake3::hash(&bytes).to_hex()[..16], *PINNED, "an artefact's bytes moved");
    }

    const PINNED: &str = "72284a9c62c1d93e";

    #[test]
    fn bf16_and_the_receipts_own_name_are_refused() {
        let bf16 = Array::from_f32(Dtype::Bf16, vec![1], &[1.0]);
        let with = |name: &str, array: &Array| Contents {
            arrays: [(name.to_owned(), array.clone())].into(),
            receipt: Some("{}".into()),
            ..Contents::default()
        };
        assert_eq!(write(&with("latents", &bf16)), Err("`latents` has dtype bf16, which numpy lacks".into()));
        assert!(write(&with(RECEIPT_NAME, &Array::from_i64(&[1]))).is_err());
        assert!(write(&with("a\0b", &Array::from_i64(&[1]))).is_err());
    }

    #[test]
    fn a_flipped_bit_in_any_value_is_found() {
        let bytes = write(&contents()).unwrap();
        let value = 0.5f32.to_le_bytes();
        let at = bytes.windows(4).position(|w| w == value).unwrap();
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at + 2] ^= 1 << bit;
            assert!(read(&flipped).unwrap_err().contains("`latents_2x2` is damaged"), "bit {bit}");
        }
    }

    #[test]
    fn deflated_members_are_read_and_a_member_that_is_no_array_is_refused() {
        let zipped = |name: &str, bytes: &[u8]| {
            let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
            let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
            zip.start_file(name, options).unwrap();
            zip.write_all(bytes).unwrap();
            zip.finish().unwrap().into_inner()
        };
        let array = Array::from_f64(&[0.0; 1000]);
        let deflated = zipped("crop_ltrb.npy", &npy::write(&array).unwrap());
        assert!(deflated.len() < 1000);
        assert_eq!(read(&deflated).unwrap().arrays["crop_ltrb"], array);
        assert!(read(&zipped("notes.txt", b"hello")).unwrap_err().contains("`notes.txt`, which is no array"));
        assert!(read(&zipped("latents.npy", b"hello")).unwrap_err().contains("`latents` holds no npy header"));
    }

    /// Python's `zipfile` compares both headers of a member and refuses the file; so must we, or the trainer would die
    /// of a file that was called fresh.
    #[test]
    fn a_bit_that_flipped_in_a_header_is_damage_or_changes_nothing() {
        let (contents, bytes) = (contents(), write(&contents()).unwrap());
        let mut zip = ZipArchive::new(Cursor::new(bytes.as_slice())).unwrap();
        let member = zip.by_index_raw(0).unwrap();
        let (local, central) = (member.header_start() as usize, member.central_header_start() as usize);
        let name_bytes = member.name_raw().len();
        drop(member);
        let fields =
            (local + 26..local + 30 + name_bytes).chain(local + 4..local + 10).chain(central + 6..central + 12);
        for at in fields.chain(central + 46..central + 46 + name_bytes) {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                // Versions up to Python's and flags without meaning here may differ; the arrays may not.
                let harmless =
                    [local + 4..local + 8, central + 6..central + 10].iter().any(|bytes| bytes.contains(&at));
                if let Ok(read) = read(&flipped) {
                    assert!(harmless && read == contents, "byte {at} bit {bit}");
                }
            }
        }
    }
}
