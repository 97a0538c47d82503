//! Containers against files that numpy and safetensors wrote, and against damaged ones.

use crate::support::{Folder, python};
use prebake::containers::{Array, Container, Contents, Dtype};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(data("sd-scripts/dataset/3_sks dog").join(name)).unwrap()
}

fn f64s(array: &Array) -> Vec<f64> {
    array.bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
}

fn i64s(array: &Array) -> Vec<i64> {
    array.bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn an_npz_that_sd_scripts_wrote_is_read_with_its_names_shapes_and_values() {
    let contents = Container::Npz.read(&golden("rgb_97x233_0097x0233_flux.npz")).unwrap();
    let shapes: Vec<_> = contents.arrays.iter().map(|(n, a)| (n.as_str(), a.dtype, a.shape.clone())).collect();
    assert_eq!(
        shapes,
        [
            ("crop_ltrb_24x8", Dtype::F64, vec![4]),
            ("crop_ltrb_32x16", Dtype::F64, vec![4]),
            ("latents_24x8", Dtype::F32, vec![16, 24, 8]),
            ("latents_32x16", Dtype::F32, vec![16, 32, 16]),
            ("latents_flipped_24x8", Dtype::F32, vec![16, 24, 8]),
            ("latents_flipped_32x16", Dtype::F32, vec![16, 32, 16]),
            ("original_size_24x8", Dtype::I64, vec![2]),
            ("original_size_32x16", Dtype::I64, vec![2]),
        ]
    );
    assert_eq!(f64s(&contents.arrays["crop_ltrb_24x8"]), [0.0, 19.0, 64.0, 172.73195876288662]);
    assert_eq!(i64s(&contents.arrays["original_size_32x16"]), [97, 233]);
    assert_eq!(contents.receipt, None);
}

#[test]
fn each_member_is_written_byte_for_byte_as_numpy_wrote_it() {
    let theirs = golden("rgb_97x233_0097x0233_sdxl.npz");
    let ours = Container::Npz.write(&Container::Npz.read(&theirs).unwrap()).unwrap();
    let members = |bytes: &[u8]| {
        let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        let mut members = BTreeMap::new();
        for index in 0..zip.len() {
            let mut member = zip.by_index(index).unwrap();
            let mut bytes = Vec::new();
            member.read_to_end(&mut bytes).unwrap();
            members.insert(member.name().unwrap().into_owned(), bytes);
        }
        members
    };
    assert_eq!(members(&ours), members(&theirs));
}

#[test]
fn what_we_write_the_safetensors_crate_reads() {
    let contents = Contents {
        arrays: BTreeMap::from([
            ("latents".to_owned(), Array::from_f32(Dtype::F16, vec![2, 1, 1], &[1.0, -2.0])),
            ("odd".to_owned(), Array { dtype: Dtype::Bool, shape: vec![1], bytes: vec![1] }),
            ("original_size".to_owned(), Array::from_i64(&[97, 233])),
        ]),
        receipt: Some("{\"quoted\":\"\\\"\"}".to_owned()),
        metadata: BTreeMap::from([("width".to_owned(), "97".to_owned())]),
    };
    let bytes = Container::Safetensors.write(&contents).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.len(), 3);
    for (name, view) in theirs.iter() {
        assert_eq!(view.data(), contents.arrays[name].bytes);
        assert_eq!(view.shape(), contents.arrays[name].shape);
    }
    assert_eq!(theirs.tensor("latents").unwrap().dtype(), safetensors::Dtype::F16);
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let texts: BTreeMap<_, _> = metadata.metadata().clone().unwrap().into_iter().collect();
    let written = [("prebake_receipt".to_owned(), contents.receipt.unwrap()), ("width".to_owned(), "97".to_owned())];
    assert_eq!(texts, written.into());
}

#[test]
fn bf16_lives_in_safetensors_and_is_refused_by_npz() {
    let array = Array::from_f32(Dtype::Bf16, vec![2], &[1.0, f32::MIN_POSITIVE]);
    let contents = Contents { arrays: BTreeMap::from([("latents".to_owned(), array)]), ..Contents::default() };
    let bytes = Container::Safetensors.write(&contents).unwrap();
    assert_eq!(Container::Safetensors.read(&bytes), Ok(contents.clone()));
    assert_eq!(Container::Npz.write(&contents), Err("`latents` has dtype bf16, which numpy lacks".to_owned()));
}

#[test]
fn every_prefix_of_a_file_is_refused() {
    let npz = golden("rgb_97x233_0097x0233_sdxl.npz");
    let contents = Container::Npz.read(&npz).unwrap();
    let tensors = Container::Safetensors.write(&contents).unwrap();
    for (container, bytes) in [(Container::Npz, npz), (Container::Safetensors, tensors)] {
        for end in (0..bytes.len()).step_by(37).chain([bytes.len() - 1]) {
            assert!(container.read(&bytes[..end]).is_err(), "{container:?} cut to {end} bytes");
        }
        assert!(container.read(&vec![0; bytes.len()]).is_err(), "{container:?} of NULs");
    }
}

fn any_array() -> impl Strategy<Value = Array> {
    let dtypes = [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I64, Dtype::I32, Dtype::U8, Dtype::Bool];
    (prop::sample::select(dtypes.to_vec()), prop::collection::vec(0usize..4, 0..4)).prop_flat_map(|(dtype, shape)| {
        let bytes = dtype.size() * shape.iter().product::<usize>();
        prop::collection::vec(any::<u8>(), bytes).prop_map(move |bytes| Array { dtype, shape: shape.clone(), bytes })
    })
}

fn any_contents() -> impl Strategy<Value = Contents> {
    let arrays = prop::collection::btree_map("[a-zA-Zé_/. \"0-9]{0,12}", any_array(), 0..5);
    (arrays, prop::option::of("\\PC{0,40}")).prop_map(|(arrays, receipt)| Contents {
        arrays,
        receipt,
        ..Contents::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn safetensors_come_back_as_they_went(contents in any_contents()) {
        let bytes = Container::Safetensors.write(&contents).unwrap();
        prop_assert_eq!(Container::Safetensors.read(&bytes), Ok(contents));
        prop_assert!(safetensors::SafeTensors::deserialize(&bytes).is_ok());
    }

    #[test]
    fn npz_come_back_as_they_went(contents in any_contents()) {
        match Container::Npz.write(&contents) {
            Ok(bytes) => prop_assert_eq!(Container::Npz.read(&bytes), Ok(contents)),
            Err(_) => prop_assert!(contents.arrays.values().any(|array| array.dtype == Dtype::Bf16)),
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Container::Npz.read(&bytes);
        let _ = Container::Safetensors.read(&bytes);
    }

    #[test]
    fn no_damage_makes_a_reader_panic(
        contents in any_contents(),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        for container in [Container::Npz, Container::Safetensors] {
            let Ok(mut bytes) = container.write(&contents) else { continue };
            for (at, value) in &hits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            let _ = container.read(&bytes);
            container.is_whole(&bytes);
        }
    }
}

#[test]
fn every_dtype_that_numpy_wrote_and_deflated_is_read() {
    let contents = Container::Npz.read(&std::fs::read(data("containers/dtypes.npz")).unwrap()).unwrap();
    let array = |dtype, shape: &[usize], bytes: Vec<u8>| Array { dtype, shape: shape.to_vec(), bytes };
    let halves = [half::f16::from_f32(0.5), half::f16::from_f32(-1.25)];
    let wanted = [
        ("bool", array(Dtype::Bool, &[2], vec![1, 0])),
        ("empty", array(Dtype::F32, &[0, 4], vec![])),
        ("f16", array(Dtype::F16, &[1, 2], halves.iter().flat_map(|v| v.to_le_bytes()).collect())),
        ("f32", array(Dtype::F32, &[1, 2], [0.5f32, -1.25].iter().flat_map(|v| v.to_le_bytes()).collect())),
        ("f64", array(Dtype::F64, &[1, 2], [0.5f64, -1.25].iter().flat_map(|v| v.to_le_bytes()).collect())),
        ("i32", array(Dtype::I32, &[2], [-70_000i32, 3].iter().flat_map(|v| v.to_le_bytes()).collect())),
        ("i64", array(Dtype::I64, &[2], [-(1i64 << 40), 3].iter().flat_map(|v| v.to_le_bytes()).collect())),
        ("scalar", array(Dtype::F32, &[], 0.5f32.to_le_bytes().to_vec())),
        ("u8", array(Dtype::U8, &[2], vec![0, 255])),
    ];
    assert_eq!(contents.arrays, wanted.into_iter().map(|(name, array)| (name.to_owned(), array)).collect());
}

/// Tensors of each dtype that a cache may hold, and a receipt.
fn of_each_dtype(dtypes: &[Dtype]) -> Contents {
    let ramp: Vec<f32> = (0..12).map(|i| i as f32 / 7.0).collect();
    let arrays = dtypes.iter().map(|&dtype| (dtype.name().to_owned(), Array::from_f32(dtype, vec![2, 3, 2], &ramp)));
    Contents { arrays: arrays.collect(), receipt: Some("{\"ü\":1}".to_owned()), ..Contents::default() }
}

#[test]
fn numpy_loads_what_is_written() {
    let folder = Folder::new();
    folder.write("a.npz", Container::Npz.write(&of_each_dtype(&[Dtype::F32, Dtype::F16])).unwrap());
    let script = "
import numpy, os, zipfile
assert zipfile.ZipFile('a.npz').testzip() is None
got = numpy.load('a.npz', allow_pickle=False)
ramp = (numpy.arange(12, dtype='float32') / numpy.float32(7)).reshape(2, 3, 2)
assert numpy.array_equal(got['f32'], ramp) and got['f32'].dtype == 'float32'
assert numpy.array_equal(got['f16'], ramp.astype('float16')) and got['f16'].dtype == 'float16'
assert bytes(got['prebake_receipt']).decode() == '{\"ü\":1}'
";
    python(folder.path(), "numpy", script);
}

#[test]
fn the_safetensors_package_loads_what_is_written() {
    let folder = Folder::new();
    let contents = of_each_dtype(&[Dtype::F32, Dtype::F16]);
    folder.write("a.safetensors", Container::Safetensors.write(&contents).unwrap());
    let script = "
import numpy
from safetensors import safe_open
with safe_open('a.safetensors', framework='np') as got:
    ramp = (numpy.arange(12, dtype='float32') / numpy.float32(7)).reshape(2, 3, 2)
    assert sorted(got.keys()) == ['f16', 'f32']
    assert numpy.array_equal(got.get_tensor('f32'), ramp)
    assert numpy.array_equal(got.get_tensor('f16'), ramp.astype('float16'))
    assert got.metadata() == {'prebake_receipt': '{\"ü\":1}'}
";
    python(folder.path(), "safetensors", script);
}
