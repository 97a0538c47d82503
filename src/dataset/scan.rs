//! A whole folder or a list of files, in parallel: each file is read once, hashed and probed on the same bytes.
//!
//! A file whose stat is [`Known`] is not read at all. What was read is remembered only where a later change of the
//! file is bound to show in its stat.

use super::captions::{self, CaptionExt, Flaw};
use super::hazards::hazards;
use super::known::Known;
use super::listed::{Listed, Stated};
use super::path::path_bytes;
use super::probe::{PROBE_REV, Probe, Probed, probe};
use super::read::{self, Failure};
use super::twins;
use super::walk::walk;
use crate::error::{Error, Result};
use crate::hash::ContentHash;
use crate::problem::{Kind, Problem};
use crate::progress::{Cancel, Progress};
use crate::store::FileStat;
use crate::units::display_path;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// What a scan is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanOptions {
    /// Extensions of captions in order of preference, with or without their dot.
    pub caption_ext: Vec<String>,
    /// Decode every pixel.
    pub deep: bool,
    /// Files in work at a time; `None` for as many as rayon's global pool has threads.
    pub threads: Option<usize>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { caption_ext: vec![".txt".to_owned(), ".caption".to_owned()], deep: false, threads: None }
    }
}

/// What is in a dataset. All lists are sorted by path and independent of the number of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// The folder to which all paths are relative.
    pub root: PathBuf,
    /// Every file taken for an image, unusable ones included.
    pub images: Vec<Image>,
    /// Captions: files that belong to an image, one that two images share once, and those that a description holds.
    pub captions: usize,
    /// Bytes of all image files.
    pub bytes: u64,
    /// Hidden and temporary files and folders that were left out.
    pub hidden: usize,
    /// Everything that is wrong, by file; `.` is the dataset as a whole.
    pub problems: Vec<Problem>,
    /// Groups of at least two usable images with the same bytes.
    pub duplicates: Vec<Vec<String>>,
}

/// One file taken for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// As shown in reports.
    pub path: String,
    /// As the system knows it, relative to the root.
    pub relative: PathBuf,
    /// BLAKE3 of its bytes; `None` where it could not be read.
    pub content: Option<ContentHash>,
    /// What its header says; `None` where that gave no size.
    pub probe: Option<Probe>,
    /// Its caption file, relative to the root.
    pub caption: Option<PathBuf>,
    /// Its caption where a description holds it.
    pub inline: Option<String>,
    /// What a strict reader of its caption file trips over.
    pub flaw: Option<Flaw>,
    /// What a trainer believes of it because a description says so.
    pub stated: Option<Stated>,
    /// No problem of it is an error.
    pub usable: bool,
}

/// Scans every image under `root`.
///
/// # Errors
/// When `root` cannot be listed, when `cancel` was set, or when no threads can be had.
pub fn scan(
    root: &Path,
    options: &ScanOptions,
    known: &dyn Known,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Dataset> {
    scan_folder(root, root, options, known, progress, cancel)
}

/// Scans every image under `folder`; paths are relative to `root` where the folder lies in it, else they begin with the
/// folder's own.
///
/// # Errors
/// When `folder` cannot be listed, when `cancel` was set, or when no threads can be had.
pub fn scan_folder(
    root: &Path,
    folder: &Path,
    options: &ScanOptions,
    known: &dyn Known,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Dataset> {
    let walk = walk(folder)?.below(folder.strip_prefix(root).unwrap_or(folder));
    let mut dataset = scan_files(root, &walk.images, options, known, progress, cancel)?;
    dataset.hidden = walk.hidden.len();
    dataset.problems.extend(walk.hidden_note());
    dataset.problems.extend(CaptionExt::new(&options.caption_ext).orphans(&walk.images, &walk.others));
    dataset.problems.extend(walk.problems);
    sort(&mut dataset.problems);
    Ok(dataset)
}

/// Scans the files of a list, each once; paths are relative to `root` or absolute.
///
/// Every one is taken for an image, and links are followed wherever they lead: someone named them. A file that is
/// not there is a problem like any other.
///
/// # Errors
/// When `cancel` was set, or when no threads can be had.
pub fn scan_files(
    root: &Path,
    files: &[PathBuf],
    options: &ScanOptions,
    known: &dyn Known,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Dataset> {
    let files: Vec<Listed> = files.iter().map(Listed::new).collect();
    scan_listed(root, &files, options, known, progress, cancel)
}

/// As [`scan_files`], with what a description says of each file; of several mentions of one path the first counts.
///
/// A caption in the description stands for a sidecar, and none is looked for.
///
/// # Errors
/// When `cancel` was set, or when no threads can be had.
pub fn scan_listed(
    root: &Path,
    files: &[Listed],
    options: &ScanOptions,
    known: &dyn Known,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Dataset> {
    let mut files: Vec<&Listed> = files.iter().collect();
    files.sort_by(|a, b| path_bytes(&a.path).cmp(path_bytes(&b.path)));
    files.dedup_by(|a, b| a.path == b.path);
    progress.stage("scan", Some(files.len() as u64));
    let scanner = Scanner { root, captions: CaptionExt::new(&options.caption_ext), deep: options.deep, known };
    let work = || -> Result<Vec<Scanned>> {
        let one = |file: &&Listed| {
            if cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let scanned = scanner.scan(file);
            progress.advance(1);
            Ok(scanned)
        };
        files.par_iter().map(one).collect()
    };
    let scanned = match options.threads {
        None => work(),
        Some(threads) => pool(threads)?.install(work),
    }?;
    Ok(gather(root, &scanner.captions, scanned))
}

fn pool(threads: usize) -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build().map_err(|error| Error::Usage {
        message: format!("cannot start {threads} threads: {error}"),
        hint: Some("--threads 1".to_owned()),
    })
}

/// What one file gave.
struct Scanned {
    image: Image,
    bytes: u64,
    problems: Vec<Problem>,
    /// The usual extension of a caption that was not asked for, where the image has none.
    unasked: Option<&'static str>,
}

struct Scanner<'a> {
    root: &'a Path,
    captions: CaptionExt,
    deep: bool,
    known: &'a dyn Known,
}

impl Scanner<'_> {
    fn scan(&self, file: &Listed) -> Scanned {
        let (relative, name) = (file.path.as_path(), display_path(&file.path));
        let (bytes, content, probed) = match self.content(file, &name) {
            Ok((bytes, content, probed)) => (bytes, Some(content), probed),
            Err((bytes, problem)) => (bytes, None, unread(problem)),
        };
        let mut problems = probed.problems;
        let usable = !problems.iter().any(Problem::is_error);
        if let Some(probe) = probed.probe.as_ref().filter(|_| usable) {
            problems.extend(hazards(&name, probe));
        }
        let mut image = Image {
            path: name,
            relative: relative.to_path_buf(),
            content,
            probe: probed.probe,
            caption: None,
            inline: file.caption.clone(),
            flaw: None,
            stated: file.stated,
            usable,
        };
        let unasked = self.find_caption(&mut image, &mut problems);
        Scanned { image, bytes, problems, unasked }
    }

    /// Looks for a caption file unless the description holds the caption, and checks either. Gives the usual extension of
    /// one that was not asked for.
    fn find_caption(&self, image: &mut Image, problems: &mut Vec<Problem>) -> Option<&'static str> {
        if let Some(text) = &image.inline {
            problems.extend(captions::check_inline(&image.path, text));
            return None;
        }
        image.caption = self.captions.caption_of(self.root, &image.relative);
        let Some(caption) = &image.caption else {
            let (problem, unasked) = self.captions.missing(self.root, &image.relative);
            problems.push(problem);
            return unasked;
        };
        let (problem, flaw) = captions::check(self.root, caption);
        problems.extend(problem);
        image.flaw = flaw;
        None
    }

    /// Size, hash and probe of one file, from memory where its stat is known; on failure the size and the reason.
    fn content(&self, file: &Listed, name: &str) -> Result<(u64, ContentHash, Probed), (u64, Problem)> {
        let relative = file.path.as_path();
        let path = self.root.join(relative);
        let stat = std::fs::metadata(&path).ok().filter(|metadata| metadata.is_file());
        let stat = stat.map(|metadata| FileStat::of(&metadata));
        let size = stat.map_or(0, |stat| stat.size);
        if let Some((content, probed)) = stat.and_then(|stat| self.remembered(relative, &stat)) {
            return Ok((size, content, probed));
        }
        let _turn = read::file_turn(size);
        let read::Contents { bytes, stat, read_at } =
            read::read(&path).map_err(|failure| (size, named(name, failure, file.line)))?;
        let content = ContentHash::of(&bytes);
        let probed = probe(name, &bytes, self.deep);
        if stat.is_settled(read_at) {
            self.known.remember(path_bytes(relative), &stat, content, &probed);
        }
        Ok((stat.size, content, probed))
    }

    /// What is known at this stat, if this version found it out and looked as deep as is asked for.
    fn remembered(&self, relative: &Path, stat: &FileStat) -> Option<(ContentHash, Probed)> {
        let known = self.known.image(path_bytes(relative), stat);
        known.filter(|(_, probed)| probed.rev == PROBE_REV && probed.deep >= self.deep)
    }
}

/// The problem that stands for a file without bytes; `line` is the one of the description that names it.
fn named(name: &str, failure: Failure, line: Option<usize>) -> Problem {
    match failure {
        Failure::Unreadable(why) => {
            let named = line.map(|line| format!("; line {line} of the dataset's description names it"));
            Problem::error(name, Kind::Unsupported, why + &named.unwrap_or_default())
        }
        Failure::Changing => Problem::error(name, Kind::Damaged, "changes while it is read")
            .with_hint("scan again once nothing writes to it"),
        Failure::TooLarge(bytes) => {
            Problem::error(name, Kind::TooLarge, format!("holds {bytes} bytes, too many to read"))
        }
    }
}

fn unread(problem: Problem) -> Probed {
    Probed { rev: PROBE_REV, deep: false, probe: None, problems: vec![problem] }
}

/// Joins the files' results and finds what shows only between them.
fn gather(root: &Path, extensions: &CaptionExt, scanned: Vec<Scanned>) -> Dataset {
    let bytes = scanned.iter().map(|one| one.bytes).sum();
    let mut unasked: BTreeMap<&str, usize> = BTreeMap::new();
    for extension in scanned.iter().filter_map(|one| one.unasked) {
        *unasked.entry(extension).or_default() += 1;
    }
    let (images, problems): (Vec<Image>, Vec<Vec<Problem>>) =
        scanned.into_iter().map(|one| (one.image, one.problems)).unzip();
    let mut problems = problems.concat();
    let sidecars = images.iter().filter_map(|image| image.caption.as_ref()).collect::<HashSet<_>>().len();
    let captions = sidecars + images.iter().filter(|image| image.inline.is_some()).count();
    if captions == 0 {
        let unasked: Vec<(&str, usize)> = unasked.into_iter().collect();
        problems.extend(extensions.none_found(images.len(), &unasked));
    }
    let (duplicates, duplicate_warnings) = twins::duplicates(&images);
    problems.extend(duplicate_warnings);
    problems.extend(twins::stem_collisions(&images));
    sort(&mut problems);
    Dataset { root: root.to_path_buf(), images, captions, bytes, hidden: 0, problems, duplicates }
}

/// Sorts by path, worst first; a caption that two images share is named once.
fn sort(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| (&a.path, a.severity, a.kind, &a.message).cmp(&(&b.path, b.severity, b.kind, &b.message)));
    problems.dedup();
}
