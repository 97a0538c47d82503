//! Samples for which a trainer would take another image's cache file, because it goes by the beginning of names.

use super::drafts::Drafts;
use super::place::{Conventions, Placed};
use super::{PlannedArtefact, Request};
use crate::dataset::Image;
use crate::trainers::Search;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The samples, each with the name of the file that it would take.
pub(super) fn mistaken(
    request: &Request<'_>,
    conventions: &Conventions,
    placed: &[Placed],
    drafts: &Drafts,
    lying: &[PathBuf],
) -> Vec<(usize, String)> {
    let wanted = drafts.artefacts.iter().filter_map(|artefact| artefact.path.as_ref());
    let files: BTreeSet<String> = wanted.chain(lying).map(|path| path.to_string_lossy().into_owned()).collect();
    let look = Look { request, conventions, drafts, files, keys: keys(request, conventions, placed, drafts) };
    let of_sample = |(sample, one): (usize, &Placed)| {
        let image = image(request, one);
        let taken = match conventions.get(one.convention).search(image) {
            Search::None => None,
            Search::OwnFirst => look.own_first(one, image),
            Search::LongestFirst => look.longest_first(sample, one, image),
        };
        taken.map(|taken| (sample, taken))
    };
    placed.iter().enumerate().filter_map(of_sample).collect()
}

/// Characters of the path of the image that wants a file, by convention, where it is found longest name first.
type Keys = HashMap<(usize, PathBuf), usize>;

fn keys(request: &Request<'_>, conventions: &Conventions, placed: &[Placed], drafts: &Drafts) -> Keys {
    let mut keys = Keys::new();
    for (sample, one) in placed.iter().enumerate() {
        let image = image(request, one);
        if conventions.get(one.convention).search(image) != Search::LongestFirst {
            continue;
        }
        let length = key_of(request, image).chars().count();
        for path in own(drafts, sample).filter_map(|artefact| artefact.path.clone()) {
            keys.insert((one.convention, path), length);
        }
    }
    keys
}

fn image<'r>(request: &Request<'r>, one: &Placed) -> &'r Image {
    &request.collected.images[request.collected.samples[one.sample].image]
}

fn key_of(request: &Request<'_>, image: &Image) -> String {
    request.locations.beside(&image.relative).to_string_lossy().into_owned()
}

fn own(drafts: &Drafts, sample: usize) -> impl Iterator<Item = &PlannedArtefact> {
    drafts.of_sample[sample].iter().map(|&(artefact, _)| &drafts.artefacts[artefact])
}

struct Look<'a, 'r> {
    request: &'a Request<'r>,
    conventions: &'a Conventions,
    drafts: &'a Drafts,
    files: BTreeSet<String>,
    keys: Keys,
}

impl Look<'_, '_> {
    /// Files whose path begins with `start`, as (folder, name).
    fn beginning<'s>(&'s self, start: &'s str) -> impl Iterator<Item = (&'s Path, String)> + 's {
        let near = self.files.range(start.to_owned()..).take_while(move |path| path.starts_with(start));
        near.filter_map(|path| {
            let path = Path::new(path);
            Some((path.parent()?, path.file_name()?.to_string_lossy().into_owned()))
        })
    }

    /// In the image's folder the convention knows by the names alone.
    fn own_first(&self, one: &Placed, image: &Image) -> Option<String> {
        let convention = self.conventions.get(one.convention);
        let folder = self.request.locations.beside(&convention.folder(image));
        let stem = image.relative.file_stem()?.to_string_lossy();
        let start = folder.join(stem.as_ref()).to_string_lossy().into_owned();
        let found = self.beginning(&start).find(|(at, name)| *at == folder && convention.mistakes(&stem, name));
        found.map(|(_, name)| name)
    }

    /// The first file in the trainer's order that no image of a longer name has taken, unless it is the image's own.
    /// Among names of one length the order is the file system's, so any of them may be the first.
    fn longest_first(&self, sample: usize, one: &Placed, image: &Image) -> Option<String> {
        let convention = self.conventions.get(one.convention);
        let key = key_of(self.request, image);
        let own: Vec<&PathBuf> = own(self.drafts, sample).filter_map(|artefact| artefact.path.as_ref()).collect();
        let length = |path: &Path| path.file_name().map_or(0, |name| name.to_string_lossy().chars().count());
        let is_named = |path: &Path| path.file_name().is_some_and(|name| convention.names(&name.to_string_lossy()));
        let own_length = own.iter().filter(|path| is_named(path)).map(|path| length(path)).max().unwrap_or(0);
        let is_taken_before = |path: &PathBuf| {
            let by = self.keys.get(&(one.convention, path.clone()));
            by.is_some_and(|&length| length > key.chars().count())
        };
        let start = Path::new(&key).with_extension("").to_string_lossy().into_owned();
        let others = self.beginning(&start).map(|(folder, name)| folder.join(name));
        let mut others = others.filter(|path| !own.contains(&path) && is_named(path) && length(path) >= own_length);
        let taken = others.find(|path| !is_taken_before(path))?;
        taken.file_name().map(|name| name.to_string_lossy().into_owned())
    }
}
