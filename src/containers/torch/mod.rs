//! `.pt`: the zip that `torch.save` makes of one bare tensor, and that `torch.load(weights_only=True)` reads.
//!
//! Written stored, every record at a multiple of 64 bytes as torch aligns them, under one fixed date, so the same
//! contents give the same bytes. The receipt is one more record, `archive/prebake_receipt`, which torch never asks
//! for. No `.format_version` is written: with one, a reader may compute where records lie instead of looking.
//!
//! Read without running anything: of the pickle only what `torch.save` writes for a tensor is understood (`pickle`),
//! all else is refused. SimpleTuner may gzip the whole file (`data_backend/base.py:143`), see [`Gzip`].

mod pickle;

use super::{Array, Contents, Dtype, RECEIPT_NAME, byte_len, npz};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use pickle::Tensor;
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, System, ZipArchive, ZipWriter};

/// The name that the one tensor of a file has in [`Contents`]; the file itself has none for it.
pub const TENSOR: &str = "latents";

/// Records start at multiples of this many bytes (PyTorch, `caffe2/serialize/inline_container.h`, `kFieldAlignment`).
const ALIGNMENT: u16 = 64;
/// Most bytes that are unpacked of a gzipped file: over what the largest picture's latents take, 128 channels in f32.
const MAX_UNPACKED: u64 = 512 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Whether the whole file is gzipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gzip {
    /// Neither written nor read: a trainer that does not expect it deletes such a file (`data_backend/local.py:327`).
    Never,
    /// Read, not written: a trainer that expects it takes a plain file as well.
    Read,
    /// Written and read; a plain file is read, too.
    Write,
}

/// The bytes of a file that holds `contents`.
///
/// Fails unless there is exactly one array and it is named [`TENSOR`].
pub fn write(contents: &Contents, gzip: Gzip) -> Result<Vec<u8>, String> {
    let array = match contents.arrays.iter().collect::<Vec<_>>()[..] {
        [(name, array)] if name == TENSOR => array,
        _ => return Err(format!("a .pt file holds one tensor, `{TENSOR}`, not {} arrays", contents.arrays.len())),
    };
    let pickle = pickle::write(array);
    let mut records: Vec<(&str, &[u8])> =
        vec![("data.pkl", &pickle), ("byteorder", b"little"), ("data/0", &array.bytes), ("version", b"3\n")];
    records.extend(contents.receipt.as_ref().map(|text| (RECEIPT_NAME, text.as_bytes())));
    let zipped = zipped(&records).map_err(|e| e.to_string())?;
    if gzip == Gzip::Write { gzipped(&zipped).map_err(|e| e.to_string()) } else { Ok(zipped) }
}

fn zipped(records: &[(&str, &[u8])]) -> zip::result::ZipResult<Vec<u8>> {
    let size = records.iter().map(|(_, bytes)| bytes.len() + 256).sum();
    let mut zip = ZipWriter::new(Cursor::new(Vec::with_capacity(size)));
    for (name, bytes) in records {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(DateTime::DEFAULT)
            .system(System::Unix)
            .large_file(bytes.len() >= u32::MAX as usize)
            .with_alignment(ALIGNMENT);
        zip.start_file(format!("archive/{name}"), options)?;
        zip.write_all(bytes)?;
    }
    zip.finish().map(Cursor::into_inner)
}

/// Without a file name or a time in its header, so the same bytes give the same bytes.
fn gzipped(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::with_capacity(bytes.len()), Compression::default());
    gzip.write_all(bytes)?;
    gzip.finish()
}

/// Reads a whole file, gzipped where `gzip` allows it.
///
/// Fails for a damaged zip or gzip stream, a CRC that does not match, and a pickle of anything but one dense tensor of
/// a known dtype.
pub fn read(bytes: &[u8], gzip: Gzip) -> Result<Contents, String> {
    let Some(unpacked) = unpacked(bytes)? else { return read_zip(bytes) };
    if gzip == Gzip::Never {
        return Err("is gzipped, and the trainer that expects a plain file would delete it".into());
    }
    read_zip(&unpacked)
}

/// The bytes under the gzip, or `None` where there is none.
fn unpacked(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if !bytes.starts_with(&GZIP_MAGIC) {
        return Ok(None);
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes).take(MAX_UNPACKED + 1).read_to_end(&mut unpacked).map_err(|e| format!("is damaged: {e}"))?;
    if unpacked.len() as u64 > MAX_UNPACKED {
        return Err(format!("unpacks to more than {MAX_UNPACKED} bytes"));
    }
    Ok(Some(unpacked))
}

fn read_zip(bytes: &[u8]) -> Result<Contents, String> {
    let mut records = records(bytes)?;
    let receipt = records.remove(RECEIPT_NAME);
    let receipt = receipt.map(String::from_utf8).transpose().map_err(|_| "its receipt is not UTF-8".to_owned())?;
    if records.get("byteorder").is_some_and(|order| order != b"little") {
        return Err("holds big-endian numbers".into());
    }
    let tensor = pickle::read(records.get("data.pkl").ok_or("holds no `data.pkl`")?)?;
    let storage = format!("data/{}", tensor.storage);
    let storage = records.get(&storage).ok_or_else(|| format!("holds no `{}`", storage.escape_default()))?;
    let array = gathered(&tensor, storage)?;
    Ok(Contents { arrays: [(TENSOR.to_owned(), array)].into(), receipt, metadata: Default::default() })
}

/// The records by their names without the archive's.
fn records(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(|e| format!("not a whole .pt file: {e}"))?;
    let mut records = BTreeMap::new();
    let mut left = bytes.len() as u64;
    for index in 0..zip.len() {
        npz::ensure_one_name(bytes, &mut zip, index)?;
        let (name, record) = npz::read_member(&mut zip, index, &mut left)?;
        let (_, name) =
            name.split_once('/').ok_or_else(|| format!("holds `{}`, which is no record", name.escape_default()))?;
        records.insert(name.to_owned(), record);
    }
    Ok(records)
}

/// The tensor's values out of its storage, in row-major order whatever its strides. They are no more than the storage
/// holds, so a lie about sizes allocates nothing.
fn gathered(tensor: &Tensor, storage: &[u8]) -> Result<Array, String> {
    let Tensor { dtype, shape, strides, offset, .. } = tensor;
    let size = dtype.size();
    let held = storage.len() / size;
    let elements = byte_len(*dtype, shape).map(|bytes| bytes / size).filter(|&elements| elements <= held);
    let reach = shape
        .iter()
        .zip(strides)
        .try_fold(*offset, |end, (&side, &stride)| end.checked_add(side.saturating_sub(1).checked_mul(stride)?));
    let (Some(elements), Some(_)) = (elements, reach.filter(|&last| last < held || elements == Some(0))) else {
        return Err(format!("its tensor of shape {shape:?} does not fit into a storage of {held} elements"));
    };
    let mut bytes = Vec::with_capacity(elements * size);
    let mut index = vec![0usize; shape.len()];
    for _ in 0..elements {
        let at = offset + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
        bytes.extend_from_slice(&storage[at * size..(at + 1) * size]);
        advance(&mut index, shape);
    }
    Ok(Array { dtype: *dtype, shape: shape.clone(), bytes })
}

/// The next index in row-major order.
fn advance(index: &mut [usize], shape: &[usize]) {
    for (i, side) in index.iter_mut().zip(shape).rev() {
        *i += 1;
        if *i < *side {
            return;
        }
        *i = 0;
    }
}

/// True for an intact zip directory that names a record, under an intact gzip where there is one.
pub fn is_whole(bytes: &[u8]) -> bool {
    match unpacked(bytes) {
        Ok(None) => npz::is_whole(bytes),
        Ok(Some(unpacked)) => npz::is_whole(&unpacked),
        Err(_) => false,
    }
}

/// Storage classes of the dtypes that are known.
const STORAGES: [(Dtype, &str); 8] = [
    (Dtype::F64, "DoubleStorage"),
    (Dtype::F32, "FloatStorage"),
    (Dtype::F16, "HalfStorage"),
    (Dtype::Bf16, "BFloat16Storage"),
    (Dtype::I64, "LongStorage"),
    (Dtype::I32, "IntStorage"),
    (Dtype::U8, "ByteStorage"),
    (Dtype::Bool, "BoolStorage"),
];
