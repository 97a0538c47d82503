//! `.safetensors`: read through the crate's validated header, written by ourselves.
//!
//! Written here because the crate keeps metadata in a hash map of random order; our bytes depend on the contents
//! alone. `__metadata__` comes first, its texts by name and the receipt among them; then the tensors by name. Their data
//! is laid out by element size, largest first, so that every tensor starts at a multiple of its element size, as torch's
//! `view(dtype)` needs. Format: <https://huggingface.co/docs/safetensors>.

use super::{Array, Contents, Dtype, RECEIPT_NAME};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype as Stored;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The header's key for metadata; no tensor can have this name.
const METADATA: &str = "__metadata__";
/// The longest header that readers accept, in bytes (safetensors 0.8, `MAX_HEADER_SIZE`).
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The header is padded so that the data starts at a multiple of this.
const ALIGNMENT: usize = 8;

/// The bytes of a safetensors file that holds `contents`.
///
/// Fails for an array named `__metadata__` and for a header beyond 100 MB, which no reader accepts.
pub fn write(contents: &Contents) -> Result<Vec<u8>, String> {
    if contents.arrays.contains_key(METADATA) {
        return Err(format!("an array of a safetensors file cannot be named `{METADATA}`"));
    }
    let mut order: Vec<(&String, &Array)> = contents.arrays.iter().collect();
    order.sort_by_key(|(name, array)| (std::cmp::Reverse(array.dtype.size()), *name));
    let header = header(contents, &order);
    if header.len() as u64 > MAX_HEADER_BYTES {
        return Err(format!("a header of {} bytes is longer than {MAX_HEADER_BYTES}", header.len()));
    }
    let data: usize = order.iter().map(|(_, array)| array.bytes.len()).sum();
    let mut bytes = Vec::with_capacity(8 + header.len() + data);
    bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    for (_, array) in order {
        bytes.extend_from_slice(&array.bytes);
    }
    Ok(bytes)
}

fn header(contents: &Contents, order: &[(&String, &Array)]) -> String {
    let mut fields = Vec::with_capacity(order.len() + 1);
    let mut texts: BTreeMap<&str, &String> =
        contents.metadata.iter().map(|(name, text)| (name.as_str(), text)).collect();
    texts.extend(contents.receipt.as_ref().map(|receipt| (RECEIPT_NAME, receipt)));
    if !texts.is_empty() {
        let texts: Vec<String> = texts.iter().map(|(name, text)| format!("{}:{}", json(name), json(text))).collect();
        fields.push(format!("{}:{{{}}}", json(METADATA), texts.join(",")));
    }
    let mut offsets = BTreeMap::new();
    let mut start = 0;
    for (name, array) in order {
        offsets.insert(*name, (start, start + array.bytes.len()));
        start += array.bytes.len();
    }
    for (name, array) in &contents.arrays {
        let (start, end) = offsets[name];
        let (name, dtype, shape) = (json(name), stored_name(array.dtype), &array.shape);
        let mut field = format!("{name}:{{\"data_offsets\":[{start},{end}],\"dtype\":\"{dtype}\",\"shape\":[");
        for (axis, side) in shape.iter().enumerate() {
            let comma = if axis == 0 { "" } else { "," };
            write!(field, "{comma}{side}").expect("a String takes all that is written");
        }
        fields.push(field + "]}");
    }
    let mut header = format!("{{{}}}", fields.join(","));
    let padded = header.len().next_multiple_of(ALIGNMENT);
    header.extend(std::iter::repeat_n(' ', padded - header.len()));
    header
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Reads a whole safetensors file.
///
/// Fails for a header that is cut, too long, or whose offsets do not tile the file, and for dtypes that prebake does
/// not store.
pub fn read(bytes: &[u8]) -> Result<Contents, String> {
    let (header_len, metadata) =
        SafeTensors::read_metadata(bytes).map_err(|e| format!("not a whole safetensors file: {e}"))?;
    // The header was checked against the length of the file: every range lies inside it.
    let data = &bytes[8 + header_len..];
    let mut arrays = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        let dtype =
            dtype_of(info.dtype).ok_or_else(|| format!("`{name}` has dtype {:?}, which is not read", info.dtype))?;
        let (start, end) = info.data_offsets;
        arrays.insert(name, Array { dtype, shape: info.shape.clone(), bytes: data[start..end].to_vec() });
    }
    let texts = metadata.metadata().iter().flatten().map(|(name, text)| (name.clone(), text.clone()));
    let mut texts: BTreeMap<String, String> = texts.collect();
    Ok(Contents { arrays, receipt: texts.remove(RECEIPT_NAME), metadata: texts })
}

fn dtype_of(stored: Stored) -> Option<Dtype> {
    Some(match stored {
        Stored::F64 => Dtype::F64,
        Stored::F32 => Dtype::F32,
        Stored::F16 => Dtype::F16,
        Stored::BF16 => Dtype::Bf16,
        Stored::I64 => Dtype::I64,
        Stored::I32 => Dtype::I32,
        Stored::U8 => Dtype::U8,
        Stored::BOOL => Dtype::Bool,
        _ => return None,
    })
}

fn stored_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F64 => "F64",
        Dtype::F32 => "F32",
        Dtype::F16 => "F16",
        Dtype::Bf16 => "BF16",
        Dtype::I64 => "I64",
        Dtype::I32 => "I32",
        Dtype::U8 => "U8",
        Dtype::Bool => "BOOL",
    }
}

/// True for a header that the format allows and a file as long as it says.
pub fn is_whole(bytes: &[u8]) -> bool {
    SafeTensors::deserialize(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        let arrays = [
            ("mask".to_owned(), Array { dtype: Dtype::U8, shape: vec![3], bytes: vec![1, 2, 3] }),
            ("latents".to_owned(), Array::from_f32(Dtype::Bf16, vec![1, 1, 2], &[0.5, -1.0])),
            ("size".to_owned(), Array::from_i64(&[7])),
        ];
        Contents { arrays: arrays.into(), receipt: Some("{\"a\":1}".into()), ..Contents::default() }
    }

    #[test]
    fn the_bytes_are_pinned_header_and_all() {
        let bytes = write(&contents()).unwrap();
        let header = concat!(
            r#"{"__metadata__":{"prebake_receipt":"{\"a\":1}"},"#,
            r#""latents":{"data_offsets":[8,12],"dtype":"BF16","shape":[1,1,2]},"#,
            r#""mask":{"data_offsets":[12,15],"dtype":"U8","shape":[3]},"#,
            r#""size":{"data_offsets":[0,8],"dtype":"I64","shape":[1]}}"#,
        );
        let padded = header.len().next_multiple_of(8);
        assert_eq!(bytes[..8], (padded as u64).to_le_bytes());
        assert_eq!(std::str::from_utf8(&bytes[8..8 + padded]).unwrap(), format!("{header:<padded$}"));
        assert_eq!(bytes[8 + padded..], [7, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x3f, 0x80, 0xbf, 1, 2, 3]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let bytes = write(&contents()).unwrap();
        assert_eq!(read(&bytes), Ok(contents()));
        assert!(is_whole(&bytes));
        let metadata = [("width".to_owned(), "100".to_owned()), ("a \"b\"".to_owned(), "ü".to_owned())].into();
        let described = Contents { metadata, ..contents() };
        assert_eq!(read(&write(&described).unwrap()), Ok(described));
        let plain = Contents { receipt: None, ..contents() };
        let bytes = write(&plain).unwrap();
        assert_eq!(read(&bytes), Ok(plain));
        assert!(is_whole(&bytes));
        assert!(!is_whole(&bytes[..5]));
    }

    #[test]
    fn the_name_of_the_metadata_is_refused_for_a_tensor() {
        let arrays = [(METADATA.to_owned(), Array::from_i64(&[1]))].into();
        assert!(write(&Contents { arrays, ..Contents::default() }).is_err());
    }
}
