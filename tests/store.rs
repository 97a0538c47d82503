//! The door, the index, and lookups under damage.

use prebake::containers::{Array, Container, Contents, Dtype};
use prebake::hash::{ContentHash, EncoderId, Key};
use prebake::recipe::pixels::{Alpha, Colour, Decoder, PixelRecipe};
use prebake::recipe::{EntryReceipt, KeyInputs, Receipt, Stored, Target};
use prebake::store::door::{TEMPORARY_PREFIX, sweep_temporaries};
use prebake::store::index::{Baked, Known};
use prebake::store::lookup::{fault_of, judge, verify};
use prebake::store::merge::{Change, merge};
use prebake::store::{FileStat, Found, Index, Locations, inspect, layout, publish};
use prebake::units::{Rect, Size};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn stat(path: &Path) -> FileStat {
    FileStat::of(&fs::metadata(path).unwrap())
}

/// Waits until a change of the file would show in its stat.
fn settle(path: &Path) {
    while !stat(path).is_settled(SystemTime::now()) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn receipt(content: &[u8]) -> EntryReceipt {
    let size = Size::new(16, 16);
    let pixels = PixelRecipe {
        decoder: Decoder::Pillow,
        orientation: 1,
        colour: Colour::AsStored,
        clip_gray16: false,
        alpha: Alpha::Opaque,
        resample: None,
        resized: size,
        crop: Rect::whole(size),
        mirrored: false,
    };
    let inputs = KeyInputs::mask(ContentHash::of(content), pixels, Stored::raw(Dtype::F32));
    EntryReceipt {
        key: inputs.key().unwrap(),
        inputs,
        ran: None,
        arrays: BTreeMap::new(),
        dtype: Dtype::F32,
        shape: vec![],
        context: BTreeMap::from([("path".to_owned(), "a.png".to_owned())]),
    }
}

fn put(entry: &str, values: &[f32]) -> Change {
    let tensor = Array::from_f32(Dtype::F32, vec![1, 1, values.len()], values);
    Change::Put {
        entry: entry.to_owned(),
        arrays: BTreeMap::from([(entry.to_owned(), tensor)]),
        receipt: Box::new(receipt(entry.as_bytes())),
    }
}

fn ours() -> Contents {
    merge(None, vec![put("latents_1x2", &[0.5, 1.5]), put("latents_1x3", &[1.0, 2.0, 3.0])]).unwrap()
}

mod door {
    use super::*;

    #[test]
    fn bytes_appear_whole_in_folders_that_did_not_exist_and_no_temporary_stays() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("a/b/latents.npz");
        let published = publish(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(published, stat(&path));
        assert_eq!(names(path.parent().unwrap()), ["latents.npz"]);
    }

    #[test]
    fn the_same_bytes_twice_leave_the_same_file() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("x");
        publish(&path, b"longer than the next").unwrap();
        publish(&path, b"bytes").unwrap();
        publish(&path, b"bytes").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
        assert_eq!(names(root.path()), ["x"]);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let root = TempDir::new().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        publish(&root.path().join("ours"), b"x").unwrap();
        fs::write(root.path().join("plain"), b"x").unwrap();
        assert_eq!(mode(&root.path().join("ours")), mode(&root.path().join("plain")));
    }

    #[test]
    fn a_failure_leaves_the_old_and_no_temporary() {
        let root = TempDir::new().unwrap();
        let taken = root.path().join("taken");
        fs::create_dir_all(taken.join("inside")).unwrap();
        let error = publish(&taken, b"x").unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{}`: ", taken.display())), "{error}");
        fs::write(root.path().join("file"), b"old").unwrap();
        assert!(publish(&root.path().join("file/below"), b"x").is_err());
        assert_eq!(fs::read(root.path().join("file")).unwrap(), b"old");
        assert_eq!(names(root.path()), ["file", "taken"]);
        assert_eq!(names(&taken), ["inside"]);
    }

    #[test]
    fn a_reader_sees_the_old_or_the_new_and_nothing_between() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("x");
        let versions = [vec![b'a'; 200_000], vec![b'b'; 100_000]];
        publish(&path, &versions[0]).unwrap();
        std::thread::scope(|scope| {
            let writers: Vec<_> =
                versions.iter().map(|bytes| scope.spawn(|| (0..20).all(|_| publish(&path, bytes).is_ok()))).collect();
            while !writers.iter().all(|writer| writer.is_finished()) {
                assert!(versions.contains(&fs::read(&path).unwrap()));
            }
            assert!(writers.into_iter().all(|writer| writer.join().unwrap()));
        });
        assert_eq!(names(root.path()), ["x"]);
    }

    #[test]
    fn only_our_old_temporaries_are_swept() {
        let root = TempDir::new().unwrap();
        let make = |name: &str, age: u64| {
            let file = fs::File::create(root.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        make(&format!("{TEMPORARY_PREFIX}old"), 7200);
        make(&format!("{TEMPORARY_PREFIX}young"), 60);
        make("theirs.tmp", 7200);
        fs::create_dir(root.path().join(format!("{TEMPORARY_PREFIX}folder"))).unwrap();
        assert_eq!(sweep_temporaries(root.path()), 1);
        let young = format!("{TEMPORARY_PREFIX}young");
        assert_eq!(names(root.path()), [format!("{TEMPORARY_PREFIX}folder"), young, "theirs.tmp".to_owned()]);
        assert_eq!(sweep_temporaries(&root.path().join("missing")), 0);
    }
}

mod index {
    use super::*;

    const STAT: FileStat = FileStat { size: u64::MAX, mtime_ns: -5, ctime_ns: 7, inode: u64::MAX - 1 };

    fn open(root: &Path) -> Index {
        let (index, warning) = Index::open(root);
        assert_eq!(warning, None);
        index
    }

    fn database(root: &Path) -> PathBuf {
        root.join(".prebake/index.sqlite")
    }

    #[test]
    fn what_is_remembered_is_known_at_that_stat_alone_before_and_after_reopening() {
        let root = TempDir::new().unwrap();
        let content = ContentHash::of(b"a");
        let known = judge(&ours()).known().unwrap();
        let identity = EncoderId([3; 32]);
        let baked = Baked {
            inputs: receipt(b"a").inputs,
            context: BTreeMap::from([("resolution".to_owned(), "512".to_owned())]),
            artefact: b"ab/key".to_vec(),
        };
        let check = |index: &Index| {
            assert_eq!(index.image(b"\xff.png", &STAT), Some((content, "{}".to_owned())));
            assert_eq!(index.artefact(b"a.npz", &STAT), Some(known.clone()));
            assert_eq!(index.weights_identity(b"/vae", &STAT), Some(identity));
            assert_eq!(index.last_baked(Target::Store, b"a.png", "latents"), Some(baked.clone()));
            assert_eq!(index.last_baked(Target::SdScripts, b"a.png", "latents"), None);
            for other in [
                FileStat { size: 1, ..STAT },
                FileStat { mtime_ns: 1, ..STAT },
                FileStat { ctime_ns: 1, ..STAT },
                FileStat { inode: 1, ..STAT },
            ] {
                assert_eq!(index.image(b"\xff.png", &other), None);
                assert_eq!(index.artefact(b"a.npz", &other), None);
                assert_eq!(index.weights_identity(b"/vae", &other), None);
            }
        };
        {
            let index = open(root.path());
            index.remember_image(b"\xff.png", &STAT, content, "{}");
            index.remember_artefact(b"a.npz", &STAT, &known);
            index.remember_weights(b"/vae", &STAT, identity);
            index.remember_baked(Target::Store, b"a.png", "latents", &baked);
            check(&index);
        }
        check(&open(root.path()));
    }

    #[test]
    fn the_folder_is_marked_for_backup_tools_and_git() {
        let root = TempDir::new().unwrap();
        drop(open(root.path()));
        let read = |name: &str| fs::read_to_string(root.path().join(".prebake").join(name)).unwrap();
        assert!(read("CACHEDIR.TAG").starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"));
        assert_eq!(read(".gitignore"), "*\n");
    }

    #[test]
    fn a_damaged_database_is_moved_aside_with_a_warning() {
        type Damage = (&'static str, fn(Vec<u8>) -> Vec<u8>);
        let damages: [Damage; 3] = [
            ("NULs", |bytes| vec![0; bytes.len()]),
            ("cut in half", |bytes| bytes[..bytes.len() / 2].to_vec()),
            ("text", |_| b"not a database, and longer than a header".repeat(10)),
        ];
        for (name, damage) in damages {
            let root = TempDir::new().unwrap();
            open(root.path()).remember_image(b"a", &STAT, ContentHash::of(b"a"), "");
            let path = database(root.path());
            let damaged = damage(fs::read(&path).unwrap());
            fs::write(&path, &damaged).unwrap();
            let (index, warning) = Index::open(root.path());
            let warning = warning.unwrap_or_else(|| panic!("{name}: no warning"));
            assert!(warning.ends_with("; moved aside and begun afresh"), "{name}: {warning}");
            assert_eq!(fs::read(path.with_extension("sqlite.old")).unwrap(), damaged, "{name}");
            index.remember_image(b"b", &STAT, ContentHash::of(b"b"), "");
            assert_eq!(index.flush(), None);
            drop(index);
            let index = open(root.path());
            assert_eq!((index.image(b"a", &STAT), index.image(b"b", &STAT).is_some()), (None, true), "{name}");
        }
    }

    #[test]
    fn a_database_of_another_version_is_moved_aside() {
        let root = TempDir::new().unwrap();
        drop(open(root.path()));
        let other = rusqlite::Connection::open(database(root.path())).unwrap();
        other.pragma_update(None, "user_version", 999).unwrap();
        drop(other);
        let warning = Index::open(root.path()).1.unwrap();
        assert!(warning.contains("has version 999, this build reads 1"), "{warning}");
        drop(open(root.path()));
    }

    #[test]
    fn a_root_that_cannot_be_written_gives_an_index_in_memory_and_a_warning() {
        let root = TempDir::new().unwrap();
        fs::write(root.path().join(".prebake"), b"a file, no folder").unwrap();
        let (index, warning) = Index::open(root.path());
        assert!(warning.unwrap().ends_with("; nothing is remembered after this run"));
        index.remember_image(b"a", &STAT, ContentHash::of(b"a"), "p");
        assert_eq!(index.flush(), None);
        assert_eq!(index.image(b"a", &STAT), Some((ContentHash::of(b"a"), "p".to_owned())));
        assert_eq!(fs::read(root.path().join(".prebake")).unwrap(), b"a file, no folder");
    }

    #[test]
    fn a_row_that_rotted_on_the_disk_is_absent_not_wrong() {
        let root = TempDir::new().unwrap();
        {
            let index = open(root.path());
            index.remember_image(b"a", &STAT, ContentHash::of(b"a"), "p");
            index.remember_weights(b"w", &STAT, EncoderId([3; 32]));
            index.remember_artefact(b"n", &STAT, &judge(&ours()).known().unwrap());
        }
        let rot = rusqlite::Connection::open(database(root.path())).unwrap();
        rot.execute("UPDATE images SET content = ?1", [&[1u8; 32][..]]).unwrap();
        rot.execute("UPDATE weights SET identity = ?1", [&[1u8; 32][..]]).unwrap();
        rot.execute("UPDATE artefacts SET receipt = replace(receipt, 'a.png', 'b.png')", []).unwrap();
        drop(rot);
        let index = open(root.path());
        assert_eq!(index.image(b"a", &STAT), None);
        assert_eq!(index.weights_identity(b"w", &STAT), None);
        assert_eq!(index.artefact(b"n", &STAT), None);
    }

    #[test]
    fn many_writers_on_two_connections_lose_nothing() {
        let root = TempDir::new().unwrap();
        let (one, two) = (open(root.path()), open(root.path()));
        let count = 6000u32;
        std::thread::scope(|scope| {
            for (worker, index) in [(0u8, &one), (1, &one), (2, &two), (3, &two)] {
                scope.spawn(move || {
                    for number in 0..count {
                        let path = format!("{worker}/{number}");
                        index.remember_image(path.as_bytes(), &STAT, ContentHash::of(path.as_bytes()), "");
                    }
                });
            }
        });
        assert_eq!((one.flush(), two.flush()), (None, None));
        for worker in 0..4 {
            for number in 0..count {
                let path = format!("{worker}/{number}");
                let wanted = Some((ContentHash::of(path.as_bytes()), String::new()));
                assert_eq!(one.image(path.as_bytes(), &STAT), wanted);
            }
        }
    }
}

mod lookup {
    use super::*;

    /// A settled file of `contents`, its path and an index.
    fn on_disk(container: Container, contents: &Contents) -> (TempDir, PathBuf, Index) {
        let root = TempDir::new().unwrap();
        let path = root.path().join("artefact");
        fs::write(&path, container.write(contents).unwrap()).unwrap();
        settle(&path);
        (root, path, Index::in_memory())
    }

    fn damaged(found: Found) -> Vec<(String, String)> {
        match found {
            Found::Ours { damaged, .. } => damaged,
            other => panic!("not ours: {other:?}"),
        }
    }

    #[test]
    fn what_we_wrote_is_ours_in_both_containers_and_then_known_without_reading() {
        for container in [Container::Npz, Container::Safetensors] {
            let (_root, path, index) = on_disk(container, &ours());
            let found = inspect(&path, container, &index, b"artefact");
            assert_eq!(found, judge(&ours()));
            assert_eq!(damaged(found.clone()), []);
            assert_eq!(index.artefact(b"artefact", &stat(&path)), found.known());
            // A planted fact shows that the file is not read again, and that verify always reads.
            let planted = Known { receipt: None, foreign: BTreeMap::new() };
            index.remember_artefact(b"artefact", &stat(&path), &planted);
            assert_eq!(inspect(&path, container, &index, b"artefact"), Found::Foreign(BTreeMap::new()));
            assert_eq!(verify(&path, container), found);
        }
    }

    #[test]
    fn an_edit_that_keeps_size_and_modification_time_is_seen() {
        let (_root, path, index) = on_disk(Container::Safetensors, &ours());
        assert_eq!(damaged(inspect(&path, Container::Safetensors, &index, b"a")), []);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        let why = "`latents_1x3` does not match its checksum".to_owned();
        let wanted = [("latents_1x3".to_owned(), why)];
        assert_eq!(damaged(inspect(&path, Container::Safetensors, &index, b"a")), wanted);
        assert_eq!(damaged(inspect(&path, Container::Safetensors, &index, b"a")), wanted, "damage is not remembered");
    }

    #[test]
    fn a_file_that_is_too_young_is_judged_but_not_remembered() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("artefact");
        let bytes = Container::Npz.write(&ours()).unwrap();
        // A machine may stall between writing and reading, so until a pair was quick enough to count.
        loop {
            let index = Index::in_memory();
            let written = SystemTime::now();
            publish(&path, &bytes).unwrap();
            assert_eq!(inspect(&path, Container::Npz, &index, b"a"), judge(&ours()));
            if written.elapsed().is_ok_and(|elapsed| elapsed < Duration::from_millis(40)) {
                assert_eq!(index.artefact(b"a", &stat(&path)), None);
                return;
            }
        }
    }

    #[test]
    fn nothing_a_folder_and_an_unreadable_receipt_are_told_apart() {
        let root = TempDir::new().unwrap();
        let index = Index::in_memory();
        let look = |path: &Path| inspect(path, Container::Npz, &index, b"x");
        assert_eq!(look(&root.path().join("none")), Found::Missing);
        assert_eq!(look(&root.path().join("none/below")), Found::Missing);
        assert_eq!(look(root.path()), Found::Damaged("not a regular file".into()));
        let text = ours().receipt.unwrap().replace("\"receipt_version\":1", "\"receipt_version\":2");
        let newer = Contents { receipt: Some(text), ..ours() };
        let Found::Damaged(why) = judge(&newer) else { panic!() };
        assert_eq!(why, "its receipt has version 2, this build reads up to 1");
        assert!(matches!(judge(&Contents { receipt: Some("{".into()), ..ours() }), Found::Damaged(_)));
    }

    #[test]
    fn a_receipt_survives_a_trainer_that_merges_its_own_arrays_in() {
        // sd-scripts rewrites the npz with all keys when it adds a resolution, ours among them.
        let mut contents = ours();
        let theirs = Container::Npz
            .read(&fs::read(data("sd-scripts/dataset/3_sks dog/rgb_97x233_0097x0233_flux.npz")).unwrap())
            .unwrap();
        contents.arrays.extend(theirs.arrays.clone());
        let Found::Ours { receipt, damaged, foreign } = judge(&contents) else { panic!() };
        assert_eq!((receipt.entries.len(), damaged), (2, vec![]));
        assert_eq!(foreign.keys().collect::<Vec<_>>(), theirs.arrays.keys().collect::<Vec<_>>());
        assert_eq!(foreign["latents_32x16"], (Dtype::F32, vec![16, 32, 16]));
    }

    #[test]
    fn an_array_that_a_trainer_replaced_damages_its_entry_alone() {
        let mut contents = ours();
        let theirs = Array::from_f32(Dtype::F32, vec![1, 1, 2], &[0.5, 1.25]);
        contents.arrays.insert("latents_1x2".into(), theirs);
        let found = judge(&contents);
        let why = "`latents_1x2` does not match its checksum".to_owned();
        assert_eq!(damaged(found.clone()), [("latents_1x2".to_owned(), why)]);
        assert_eq!(found.known(), None);
        contents.arrays.remove("latents_1x2");
        assert_eq!(damaged(judge(&contents)), [("latents_1x2".to_owned(), "`latents_1x2` is missing".to_owned())]);
    }

    #[test]
    fn a_receipt_that_lies_about_dtype_shape_or_cover_is_found_out() {
        let contents = ours();
        let entry = Receipt::from_json(contents.receipt.as_ref().unwrap()).unwrap().entries["latents_1x2"].clone();
        let fault = |change: fn(&mut EntryReceipt)| {
            let mut entry = entry.clone();
            change(&mut entry);
            fault_of("latents_1x2", &entry, &contents.arrays)
        };
        assert_eq!(fault(|_| ()), None);
        let shape = "`latents_1x2` is f32 [1, 1, 2], its receipt says f32 [2, 1, 1]";
        assert_eq!(fault(|e| e.shape = vec![2, 1, 1]).unwrap(), shape);
        let dtype = "`latents_1x2` is f32 [1, 1, 2], its receipt says f16 [1, 1, 2]";
        assert_eq!(fault(|e| e.dtype = Dtype::F16).unwrap(), dtype);
        assert!(fault(|e| e.arrays.clear()).unwrap().contains("does not cover its tensor"));
    }

    /// Why a cache file is no use for latents of `shape`; the shape is what a plan knows, the rest is ours to find.
    fn refusal(path: &Path, shape: &[usize]) -> Option<String> {
        match verify(path, Container::of_path(path).unwrap()) {
            Found::Foreign(shapes) => match &shapes["latents"] {
                (Dtype::F32 | Dtype::F16, found) if found == shape => None,
                other => Some(format!("{other:?}")),
            },
            Found::Damaged(why) => Some(why),
            other => panic!("{}: {other:?}", path.display()),
        }
    }

    #[test]
    fn of_the_interrupted_caches_each_reject_is_refused_and_each_valid_read() {
        let case = data("cases/s09-interrupted-cache");
        let expected: serde_json::Value =
            serde_json::from_slice(&fs::read(case.join("expected.json")).unwrap()).unwrap();
        let files = expected["files"].as_object().unwrap();
        assert_eq!(files.len(), 15);
        for (name, verdict) in files {
            // Made by another tool, it has no checksum that could tell; the next test gives it one.
            if name == "bitflip.safetensors" {
                continue;
            }
            let refused = refusal(&case.join("cache").join(name), &[4, 64, 64]).is_some();
            assert_eq!(refused, verdict["status"] == "reject", "{name}");
        }
    }

    #[test]
    fn a_flipped_bit_is_refused_where_a_checksum_is_stored() {
        let read = |name: &str| {
            let path = data("cases/s09-interrupted-cache/cache").join(name);
            Container::Safetensors.read(&fs::read(path).unwrap()).unwrap()
        };
        let arrays = read("ok.safetensors").arrays;
        let change = Change::Put { entry: "latents".into(), arrays, receipt: Box::new(receipt(b"x")) };
        let sound = merge(None, vec![change]).unwrap();
        assert_eq!(damaged(judge(&sound)), []);
        let flipped = Contents { arrays: read("bitflip.safetensors").arrays, ..sound };
        assert_eq!(damaged(judge(&flipped)).len(), 1);
    }

    #[test]
    fn our_own_cache_file_cut_nulled_or_flipped_anywhere_is_never_wholly_sound() {
        for container in [Container::Npz, Container::Safetensors] {
            let bytes = container.write(&ours()).unwrap();
            let sound = judge(&ours());
            let is_sound = |bytes: &[u8]| container.read(bytes).is_ok_and(|contents| judge(&contents) == sound);
            assert!(is_sound(&bytes));
            for end in [0, bytes.len() / 20, bytes.len() / 2, bytes.len() - 1] {
                assert!(!is_sound(&bytes[..end]), "{container:?} cut to {end}");
            }
            assert!(!is_sound(&vec![0; bytes.len()]));
            for value in [0.5f32, 1.5, 2.0, 3.0] {
                let at = bytes.windows(4).rposition(|w| w == value.to_le_bytes()).unwrap();
                let mut flipped = bytes.clone();
                flipped[at] ^= 1;
                assert!(!is_sound(&flipped), "{container:?}, a bit of {value}");
            }
        }
    }
}

mod orphan {
    use super::*;

    fn file(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn in_the_store_only_names_of_the_layout_are_ours() {
        let root = TempDir::new().unwrap();
        let paths = [Key([0xab; 32]), Key([1; 32])].map(|key| layout::store_path(&key));
        for path in &paths {
            file(&root.path().join(path), b"");
        }
        let name = paths[0].file_name().unwrap();
        file(&root.path().join(name), b"");
        file(&root.path().join("zz").join(name), b"");
        file(&root.path().join("ab/notes.txt"), b"");
        file(&root.path().join("ab/.prebake-tmp-1"), b"");
        let store = |path: &Path| Locations::new("dataset", Some(path.to_path_buf()));
        assert_eq!(store(root.path()).store_files(), [root.path().join(&paths[1]), root.path().join(&paths[0])]);
        assert_eq!(store(&root.path().join("missing")).store_files(), [] as [PathBuf; 0]);
    }
}
