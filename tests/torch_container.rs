//! `.pt` files: those that torch wrote, hostile ones, and ours before torch itself.

use crate::support::{Folder, data, python};
use prebake::containers::torch::{Gzip, TENSOR};
use prebake::containers::{Array, Container, Contents, Dtype};
use proptest::prelude::*;
use std::io::{Read, Write};

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(data("simpletuner").join(name)).unwrap()
}

fn read(bytes: &[u8]) -> Result<Contents, String> {
    Container::Torch(Gzip::Read).read(bytes)
}

/// The golden files' values: 0/7, 1/7 …
fn ramp(dtype: Dtype, shape: &[usize], indices: impl Iterator<Item = usize>) -> Array {
    let values: Vec<f32> = indices.map(|i| i as f32 / 7.0).collect();
    Array::from_f32(dtype, shape.to_vec(), &values)
}

fn ours(receipt: Option<&str>) -> Contents {
    let array = ramp(Dtype::Bf16, &[4, 3, 5], 0..60);
    Contents { arrays: [(TENSOR.to_owned(), array)].into(), receipt: receipt.map(str::to_owned), ..Default::default() }
}

#[test]
fn tensors_that_torch_saved_are_read_with_their_dtype_shape_and_values() {
    for (file, dtype) in [("bf16.pt", Dtype::Bf16), ("f32.pt", Dtype::F32), ("bf16_gzip.pt", Dtype::Bf16)] {
        let contents = read(&golden(file)).unwrap();
        assert_eq!(contents.arrays[TENSOR], ramp(dtype, &[4, 3, 5], 0..60), "{file}");
        assert_eq!((contents.arrays.len(), contents.receipt), (1, None));
    }
    assert_eq!(read(&golden("frame.pt")).unwrap().arrays[TENSOR].shape, [16, 1, 2, 2]);
}

#[test]
fn a_view_with_its_axes_in_another_order_is_read_in_row_major_order() {
    let order = (1..5).flat_map(|c| (0..5).flat_map(move |x| (0..3).map(move |y| c * 15 + y * 5 + x)));
    assert_eq!(read(&golden("view.pt")).unwrap().arrays[TENSOR], ramp(Dtype::F16, &[4, 5, 3], order));
}

#[test]
fn what_is_no_bare_tensor_is_refused_and_not_called_damaged() {
    let bytes = golden("dict.pt");
    assert!(read(&bytes).unwrap_err().contains("no bare tensor needs"));
    assert!(Container::Torch(Gzip::Read).is_whole(&bytes));
    assert!(!Container::Torch(Gzip::Read).is_whole(&bytes[..bytes.len() / 2]));
}

#[test]
fn a_gzipped_file_is_refused_where_the_trainer_would_delete_it() {
    let never = Container::Torch(Gzip::Never);
    assert!(never.read(&golden("bf16_gzip.pt")).unwrap_err().contains("would delete it"));
    assert!(never.read(&golden("bf16.pt")).is_ok());
}

#[test]
fn the_pickle_is_byte_for_byte_that_of_torch() {
    let pickle = |bytes: &[u8]| {
        let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
        let mut pickle = Vec::new();
        zip.by_name("archive/data.pkl").unwrap().read_to_end(&mut pickle).unwrap();
        pickle
    };
    let written = Container::Torch(Gzip::Read).write(&ours(None)).unwrap();
    assert_eq!(pickle(&written), pickle(&golden("bf16.pt")));
}

#[test]
fn the_same_contents_give_the_same_bytes_and_every_record_is_aligned() {
    for gzip in [Gzip::Read, Gzip::Write] {
        let write = || Container::Torch(gzip).write(&ours(Some("{}"))).unwrap();
        let bytes = write();
        assert_eq!(bytes, write());
        assert_eq!(read(&bytes).unwrap(), ours(Some("{}")));
        assert_eq!(bytes.starts_with(&[0x1f, 0x8b]), gzip == Gzip::Write);
    }
    let bytes = Container::Torch(Gzip::Read).write(&ours(Some("{}"))).unwrap();
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes.as_slice())).unwrap();
    for index in 0..zip.len() {
        let record = zip.by_index(index).unwrap();
        assert_eq!(record.data_start().unwrap() % 64, 0, "{}", record.name().unwrap());
    }
}

#[test]
fn only_one_tensor_of_the_one_name_can_be_written() {
    let mut two = ours(None);
    two.arrays.insert("other".into(), Array::from_i64(&[1]));
    assert!(Container::Torch(Gzip::Read).write(&two).is_err());
    let misnamed = Contents { arrays: [("z".to_owned(), Array::from_i64(&[1]))].into(), ..Default::default() };
    assert!(Container::Torch(Gzip::Read).write(&misnamed).is_err());
}

#[test]
fn a_gzip_that_unpacks_without_end_is_refused() {
    let mut gzip = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best());
    let zeros = vec![0u8; 1 << 20];
    for _ in 0..513 {
        gzip.write_all(&zeros).unwrap();
    }
    let bomb = gzip.finish().unwrap();
    assert!(read(&bomb).unwrap_err().contains("unpacks to more than"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_flipped_bit_never_panics_and_never_changes_a_value(at in 0usize..4000, bit in 0u8..8, gzip in any::<bool>()) {
        let contents = ours(Some("{\"a\":1}"));
        let mut bytes = Container::Torch(if gzip { Gzip::Write } else { Gzip::Read }).write(&contents).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(read) = read(&bytes) {
            prop_assert_eq!(&read.arrays[TENSOR], &contents.arrays[TENSOR]);
        }
    }

    #[test]
    fn a_cut_file_is_refused(cut in 1usize..2000) {
        let bytes = Container::Torch(Gzip::Read).write(&ours(Some("{}"))).unwrap();
        prop_assert!(read(&bytes[..bytes.len().saturating_sub(cut)]).is_err());
    }
}

#[test]
fn torch_loads_what_is_written() {
    let folder = Folder::new();
    folder.write("plain.pt", Container::Torch(Gzip::Read).write(&ours(Some("{\"receipt_version\":1}"))).unwrap());
    folder.write("gzip.pt", Container::Torch(Gzip::Write).write(&ours(Some("{}"))).unwrap());
    let script = "
import torch
import gzip, io
want = (torch.arange(60, dtype=torch.float32) / 7).to(torch.bfloat16).reshape(4, 3, 5)
loads = [torch.load('plain.pt', weights_only=only, mmap=mmap) for only in (True, False) for mmap in (False, True)]
loads += [torch.load(io.BytesIO(open('plain.pt', 'rb').read()), map_location='cpu')]
loads += [torch.load(io.BytesIO(gzip.open('gzip.pt').read()), map_location='cpu')]
for got in loads:
    assert got.dtype == want.dtype and got.shape == want.shape and torch.equal(got, want)
";
    python(folder.path(), "torch", script);
}
