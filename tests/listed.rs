//! Datasets whose description names images one by one, or a folder with all that lies below it.

use crate::support::Folder;
use prebake::plan::{CollectOptions, Collected, collect};
use prebake::problem::Kind;
use prebake::progress::{Cancel, Silent};
use prebake::store::Index;
use prebake::trainers::{Description, Listed, Subset};

fn look(folder: &Folder, subset: Subset) -> Collected {
    let (index, _) = Index::open(folder.path());
    let options = CollectOptions { caption_ext: None, default_caption_ext: vec![".txt".into()], deep: false };
    let description =
        Description { root: folder.path().to_path_buf(), subsets: vec![subset], ..Description::default() };
    collect(description, &options, &index, &Silent, &Cancel::default()).unwrap()
}

fn listed(folder: &Folder, files: Vec<Listed>) -> Collected {
    look(folder, Subset { listed: Some(files), repeats: Some(2), ..Subset::plain(folder.path()) })
}

fn problems(collected: &Collected, kind: Kind) -> Vec<(&str, &str)> {
    let of_kind = collected.problems.iter().filter(|problem| problem.kind == kind);
    of_kind.map(|problem| (problem.path.as_str(), problem.message.as_str())).collect()
}

#[test]
fn exactly_the_listed_files_are_scanned_in_whatever_folder_they_lie() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    for name in ["a.png", "sub/b.png", "unlisted.png"] {
        folder.picture(name, 64, 48, 1);
    }
    elsewhere.picture("far.png", 32, 48, 2);
    folder.write("orphan.txt", "belongs to nothing");
    let far = elsewhere.join("far.png");
    let found = listed(&folder, vec![Listed::new("sub/b.png"), Listed::new("a.png"), Listed::new(&far)]);
    let paths: Vec<_> = found.images.iter().map(|image| image.path.as_str()).collect();
    assert_eq!(paths, [far.to_str().unwrap(), "a.png", "sub/b.png"]);
    assert!(found.images.iter().all(|image| image.usable));
    assert_eq!(problems(&found, Kind::OrphanCaption), []);
}

#[test]
fn a_caption_in_the_description_stands_for_a_sidecar_and_is_checked_like_one() {
    let folder = Folder::new();
    for name in ["a.png", "b.png", "c.png"] {
        folder.picture(name, 64, 48, 1);
    }
    folder.write("a.txt", b"\xff\xfe not looked at");
    let caption = |path: &str, text: &str| Listed { caption: Some(text.to_owned()), ..Listed::new(path) };
    let found = listed(&folder, vec![caption("a.png", "a dog"), caption("b.png", " "), Listed::new("c.png")]);
    assert_eq!((found.captions, found.images[0].inline.as_deref()), (2, Some("a dog")));
    assert_eq!(problems(&found, Kind::CaptionEncoding), []);
    assert_eq!(problems(&found, Kind::CaptionEmpty), [("b.png", "its caption holds no word")]);
    assert_eq!(problems(&found, Kind::CaptionMissing), [("c.png", "has no caption with .txt")]);
}

#[test]
fn a_file_listed_twice_is_one_sample_that_counts_twice() {
    let folder = Folder::new();
    folder.picture("a.png", 64, 48, 1);
    let found = listed(&folder, vec![Listed::new("a.png"), Listed::new(folder.join("a.png"))]);
    assert_eq!((found.samples.len(), found.samples[0].repeats), (1, 4));
    let message = "is listed 2 times by the dataset's description, and counts as often";
    assert_eq!(problems(&found, Kind::Duplicate), [("a.png", message)]);
}

#[test]
fn a_listed_file_that_is_not_there_is_named_with_its_line_and_the_rest_goes_on() {
    let folder = Folder::new();
    folder.picture("a.png", 64, 48, 1);
    let absent = Listed { line: Some(7), ..Listed::new("absent.png") };
    let found = listed(&folder, vec![absent, Listed::new("a.png")]);
    let [(path, message)] = problems(&found, Kind::Unsupported)[..] else { panic!("{:?}", found.problems) };
    assert_eq!(path, "absent.png");
    assert!(message.contains("No such file") && message.contains("line 7 of the dataset's description"), "{message}");
    assert!(found.images[0].usable && !found.images[1].usable);
}

#[test]
fn a_folder_below_the_root_is_walked_alone() {
    let folder = Folder::new();
    for name in ["a.png", "sub/b.png", "sub/deep/c.png"] {
        folder.picture(name, 64, 48, 1);
    }
    folder.write("sub/deep/c.txt", "c");
    folder.write("sub/x.txt", "x");
    let found = look(&folder, Subset { folder: folder.join("sub"), ..Subset::plain(folder.path()) });
    let paths: Vec<_> = found.images.iter().map(|image| image.path.as_str()).collect();
    assert_eq!((paths, found.captions), (vec!["sub/b.png", "sub/deep/c.png"], 1));
    let orphan = ("sub/x.txt", "has no image of the same name beside it");
    assert_eq!(problems(&found, Kind::OrphanCaption), [orphan]);
}
