//! Which files lie in a folder, recursively, in one order whatever the file system says.
//!
//! An image is what has an image extension in any case, or no extension and an image's content. Everything else
//! (captions, caches, notes) is listed apart and never taken for an image. Left out and counted: names with a leading
//! dot (`.prebake` among them), `__MACOSX`, `Thumbs.db`, `desktop.ini`, `*.tmp`.
//!
//! Links are followed only to what lies inside the root. A linked folder is walked after all real ones and only if
//! nothing else led there, so no folder is walked twice and loops end. Nothing is opened that is not a regular file.

use super::path::path_bytes;
use super::read;
use crate::error::{Error, IoContext, Result};
use crate::pixels::Format;
use crate::problem::{Kind, Problem};
use crate::store::FOLDER;
use crate::units::display_path;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes by which every format is recognised.
const SNIFFED_BYTES: u64 = 64;
/// How many of the files that were left out are named.
const NAMED_HIDDEN: usize = 5;

/// The files of a folder. All paths are relative to it; all lists are sorted by the bytes of the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Files to take for images.
    pub images: Vec<PathBuf>,
    /// All other files.
    pub others: Vec<PathBuf>,
    /// Files and folders that were left out; what lies inside such a folder is not counted.
    pub hidden: Vec<PathBuf>,
    /// What could not be followed or read.
    pub problems: Vec<Problem>,
}

impl Walk {
    /// The same with `prefix` before every path.
    pub(super) fn below(mut self, prefix: &Path) -> Self {
        if prefix.as_os_str().is_empty() {
            return self;
        }
        for path in [&mut self.images, &mut self.others, &mut self.hidden].into_iter().flatten() {
            *path = prefix.join(&*path);
        }
        for problem in &mut self.problems {
            problem.path = format!("{}/{}", display_path(prefix).trim_end_matches('/'), problem.path);
        }
        self
    }

    /// One note on all that was left out, if anything but our own `.prebake` was.
    pub fn hidden_note(&self) -> Option<Problem> {
        let named: Vec<String> = self.hidden.iter().take(NAMED_HIDDEN).map(|path| display_path(path)).collect();
        let more = if self.hidden.len() > named.len() { ", …" } else { "" };
        let message = format!("{} hidden or temporary left out: {}{more}", self.hidden.len(), named.join(", "));
        let news = self.hidden.iter().any(|path| path.as_path() != Path::new(FOLDER));
        news.then(|| Problem::note(".", Kind::Hidden, message))
    }
}

/// Walks `root`.
///
/// # Errors
/// When `root` itself is not a folder or cannot be listed. A folder inside that cannot be listed is a problem.
pub fn walk(root: &Path) -> Result<Walk> {
    if !fs::metadata(root).at(root)?.is_dir() {
        return Err(Error::input(root, "is not a folder"));
    }
    let canonical = fs::canonicalize(root).at(root)?;
    fs::read_dir(root).at(root)?;
    let mut walker = Walker { root, canonical, seen: HashSet::new(), links: Vec::new(), walk: Walk::default() };
    walker.walk_all();
    Ok(walker.finish())
}

/// A folder to walk: its path from the root, and where it really is.
struct Folder {
    relative: PathBuf,
    canonical: PathBuf,
}

struct Walker<'a> {
    root: &'a Path,
    canonical: PathBuf,
    /// Real places of the folders walked so far.
    seen: HashSet<PathBuf>,
    /// Links to folders, kept until all real folders are walked.
    links: Vec<Folder>,
    walk: Walk,
}

impl Walker<'_> {
    fn walk_all(&mut self) {
        let mut pending = vec![Folder { relative: PathBuf::new(), canonical: self.canonical.clone() }];
        loop {
            while let Some(folder) = pending.pop() {
                if self.seen.insert(folder.canonical.clone()) {
                    self.visit_folder(&folder, &mut pending);
                }
            }
            // The first link by name, so that it does not depend on the order of the listing which one leads in.
            self.links.retain(|link| !self.seen.contains(&link.canonical));
            let first = self.links.iter().enumerate().min_by_key(|(_, link)| path_bytes(&link.relative));
            let Some((index, _)) = first else { return };
            pending.push(self.links.swap_remove(index));
        }
    }

    fn visit_folder(&mut self, folder: &Folder, pending: &mut Vec<Folder>) {
        let listing = fs::read_dir(self.root.join(&folder.relative)).and_then(|entries| {
            entries.map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)))).collect()
        });
        let entries: Vec<(std::ffi::OsString, fs::FileType)> = match listing {
            Ok(entries) => entries,
            Err(error) => return self.name(&folder.relative, format!("this folder cannot be listed: {error}")),
        };
        for (name, kind) in entries {
            let relative = folder.relative.join(&name);
            if is_left_out(&name) {
                self.walk.hidden.push(relative);
            } else if kind.is_symlink() {
                self.visit_link(relative);
            } else if kind.is_dir() {
                if is_named_like_an_image(&relative) {
                    let message = "is a folder, though named like an image; images inside it are taken";
                    let note = Problem::note(display_path(&relative), Kind::Unsupported, message);
                    self.walk.problems.push(note);
                }
                pending.push(Folder { canonical: folder.canonical.join(&name), relative });
            } else {
                self.visit_file(relative, kind);
            }
        }
    }

    fn visit_link(&mut self, relative: PathBuf) {
        let path = self.root.join(&relative);
        let target = fs::canonicalize(&path).and_then(|target| Ok((fs::metadata(&target)?.file_type(), target)));
        match target {
            Err(error) => self.name_image(&relative, format!("is a link that leads nowhere: {error}")),
            Ok((kind, target)) if !target.starts_with(&self.canonical) => {
                let reason = "is a link to outside the dataset, which is not followed".to_owned();
                if kind.is_dir() { self.name(&relative, reason) } else { self.name_image(&relative, reason) }
            }
            Ok((kind, target)) if kind.is_dir() => self.links.push(Folder { relative, canonical: target }),
            Ok((kind, _)) => self.visit_file(relative, kind),
        }
    }

    /// Sorts something that is no folder and no link into images and others.
    fn visit_file(&mut self, relative: PathBuf, kind: fs::FileType) {
        if let Some(what) = read::describe(kind) {
            self.name_image(&relative, format!("is {what}, not a file"));
        } else if is_named_like_an_image(&relative) || self.is_image_without_extension(&relative) {
            self.walk.images.push(relative);
        } else {
            self.walk.others.push(relative);
        }
    }

    fn is_image_without_extension(&self, relative: &Path) -> bool {
        relative.extension().is_none_or(|extension| extension.is_empty())
            && read::read_start(&self.root.join(relative), SNIFFED_BYTES)
                .is_ok_and(|start| Format::sniff(&start).is_some())
    }

    /// Reports what stands in the place of an image; other files of odd kinds are nobody's concern.
    fn name_image(&mut self, relative: &Path, message: String) {
        if is_named_like_an_image(relative) {
            self.name(relative, message);
        }
    }

    fn name(&mut self, relative: &Path, message: String) {
        let problem = Problem::error(display_path(relative), Kind::Unsupported, message);
        self.walk.problems.push(problem.with_hint("copy what is meant into the dataset, or take it out of there"));
    }

    fn finish(self) -> Walk {
        let mut walk = self.walk;
        for list in [&mut walk.images, &mut walk.others, &mut walk.hidden] {
            list.sort_unstable_by(|a, b| path_bytes(a).cmp(path_bytes(b)));
        }
        walk.problems.sort_by(|a, b| a.path.cmp(&b.path));
        walk
    }
}

fn is_named_like_an_image(path: &Path) -> bool {
    path.extension().and_then(|extension| extension.to_str()).is_some_and(|text| Format::from_extension(text).is_some())
}

/// Hidden files, and the litter of operating systems and unfinished downloads.
fn is_left_out(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let is = |litter: &[u8]| name.eq_ignore_ascii_case(litter);
    name.first() == Some(&b'.')
        || is(b"__MACOSX")
        || is(b"Thumbs.db")
        || is(b"desktop.ini")
        || name.last_chunk::<4>().is_some_and(|end| end.eq_ignore_ascii_case(b".tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, PNG).unwrap();
        }
        folder
    }

    fn shown(paths: &[PathBuf]) -> Vec<String> {
        paths.iter().map(|path| display_path(path)).collect()
    }

    #[test]
    fn images_are_told_by_extension_in_any_case_or_by_content_without_one() {
        let folder = folder(&["b.JpG", "a/z.png", "bare", "c.txt", "c.npz", "d.safetensors"]);
        fs::write(folder.path().join("README"), "words").unwrap();
        let walk = walk(folder.path()).unwrap();
        assert_eq!(shown(&walk.images), ["a/z.png", "b.JpG", "bare"]);
        assert_eq!(shown(&walk.others), ["README", "c.npz", "c.txt", "d.safetensors"]);
        assert_eq!(walk.hidden_note(), None);
    }

    #[test]
    fn litter_is_left_out_and_counted_in_one_note() {
        let litter = [".DS_Store", ".git/x.png", "THUMBS.DB", "__MACOSX/a.png", "a.png.tmp", "one/.prebake/x.png"];
        let folder = folder(&[&litter[..], &["one/a.png"]].concat());
        let walk = walk(folder.path()).unwrap();
        assert_eq!(shown(&walk.images), ["one/a.png"]);
        let note = walk.hidden_note().unwrap();
        assert_eq!(note.message, "6 hidden or temporary left out: .DS_Store, .git, THUMBS.DB, __MACOSX, a.png.tmp, …");
    }

    #[test]
    fn a_root_that_is_no_folder_is_an_error() {
        let folder = folder(&["a.png"]);
        assert!(walk(&folder.path().join("a.png")).is_err());
        assert!(walk(&folder.path().join("absent")).is_err());
    }

    #[cfg(unix)]
    mod links {
        use super::*;
        use std::os::unix::fs::symlink;

        #[test]
        fn pipes_folders_and_dangling_links_named_like_images_are_named_and_nothing_hangs() {
            let folder = folder(&["ok.png", "dir.jpg/inside.png"]);
            let root = folder.path();
            let pipe = std::ffi::CString::new(root.join("pipe.jpg").to_str().unwrap()).unwrap();
            // SAFETY: `pipe` is a path ended by a zero byte.
            assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
            let _socket = std::os::unix::net::UnixListener::bind(root.join("socket.png")).unwrap();
            symlink("absent.jpg", root.join("dangling.jpg")).unwrap();
            symlink("loop.jpg", root.join("loop.jpg")).unwrap();
            symlink("absent", root.join("dangling.txt")).unwrap();
            let walk = walk(root).unwrap();
            assert_eq!(shown(&walk.images), ["dir.jpg/inside.png", "ok.png"]);
            let named: Vec<_> = walk.problems.iter().map(|problem| problem.path.as_str()).collect();
            assert_eq!(named, ["dangling.jpg", "dir.jpg", "loop.jpg", "pipe.jpg", "socket.png"]);
            assert!(walk.problems.iter().all(|problem| problem.kind == Kind::Unsupported));
        }

        #[test]
        fn links_are_followed_inside_only_and_no_folder_twice() {
            let outside = folder(&["far.png"]);
            let folder = folder(&["real/a.png", ".shelf/b.png"]);
            let root = folder.path();
            symlink(root.join("real/a.png"), root.join("link.png")).unwrap();
            symlink(outside.path().join("far.png"), root.join("far.png")).unwrap();
            symlink(outside.path(), root.join("away")).unwrap();
            symlink("..", root.join("real/up")).unwrap();
            symlink("real", root.join("again")).unwrap();
            symlink(".shelf", root.join("shelf1")).unwrap();
            symlink(".shelf", root.join("shelf2")).unwrap();
            let walk = walk(root).unwrap();
            assert_eq!(shown(&walk.images), ["link.png", "real/a.png", "shelf1/b.png"]);
            let named: Vec<_> = walk.problems.iter().map(|problem| problem.path.as_str()).collect();
            assert_eq!(named, ["away", "far.png"]);
        }
    }
}
