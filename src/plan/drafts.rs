//! What all samples want, grouped by the file it goes into; two wishes that one file cannot hold are a collision.

use super::mistakes::mistaken;
use super::place::{Conventions, Placed};
use super::{Action, PlannedArtefact, PlannedEntry, Request, Status};
use crate::hash::Key;
use crate::problem::{Kind, Problem};
use crate::recipe::EntryKind;
use crate::store::lookup::Found;
use crate::store::store_path;
use crate::trainers::{Convention, Place, WantedArtefact, WantedEntry};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// Longest file name of the file systems in use.
const MAX_NAME_BYTES: usize = 255;

/// The files wanted, and which entries of them each placed sample wants.
#[derive(Default)]
pub(super) struct Drafts {
    pub(super) artefacts: Vec<PlannedArtefact>,
    /// For each placed sample, in its order: indices of artefacts and of their entries.
    pub(super) of_sample: Vec<Vec<(usize, usize)>>,
    /// Placed samples that get no artefact: their wishes collide with another's, or cannot be fulfilled.
    pub(super) collided: BTreeSet<usize>,
    pub(super) problems: Vec<Problem>,
    /// Files of another tool that the trainer would take before any wanted one, and whose name tells no model.
    pub(super) shadowing: BTreeSet<PathBuf>,
    by_place: HashMap<DraftKey, usize>,
}

/// Two wishes with the same draft key go into one file.
#[derive(PartialEq, Eq, Hash)]
enum DraftKey {
    Path(PathBuf),
    Blind(Key),
}

impl Drafts {
    /// Gathers the wishes of all placed samples; `lying` are the files of these layouts that lie there already.
    pub(super) fn gather(
        request: &Request<'_>,
        conventions: &Conventions,
        placed: &[Placed],
        lying: &[PathBuf],
    ) -> Self {
        let mut drafts = Self::default();
        for one in placed {
            let image = request.collected.samples[one.sample].image;
            let convention = conventions.get(one.convention);
            let picture = &request.collected.images[image];
            let mut context = convention.settings();
            // The training batch shapes no latent; two batches must give the same bytes.
            context.remove("batch");
            context.insert("path".to_owned(), picture.path.clone());
            context.insert("for".to_owned(), convention.target().name().to_owned());
            context.insert("family".to_owned(), request.recipe.family.name().to_owned());
            let context = Arc::new(context);
            let mut own = Vec::new();
            for wanted in convention.wanted(picture, &one.placement, request.encoder) {
                let artefact = drafts.artefact(request, &wanted, one, convention);
                let entries = wanted.entries.into_iter();
                own.extend(entries.map(|entry| (artefact, drafts.entry(artefact, entry, image, &context))));
            }
            drafts.of_sample.push(own);
        }
        drafts.find_collisions(request, placed);
        drafts.find_mistakes(request, conventions, placed, lying);
        drafts.find_blocked(request, placed);
        drafts
    }

    fn artefact(
        &mut self,
        request: &Request<'_>,
        wanted: &WantedArtefact,
        one: &Placed,
        convention: &dyn Convention,
    ) -> usize {
        let (key, path) = place(request, wanted);
        if let Place::Beside { older: Some(older), .. } = &wanted.place {
            let older = request.locations.beside(older);
            self.shadowing.extend(Some(older).filter(|older| older.is_file() && path.as_ref() != Some(older)));
        }
        *self.by_place.entry(key).or_insert_with(|| {
            let (container, entries, drops) = (wanted.container, Vec::new(), Vec::new());
            let (target, metadata) = (convention.target(), convention.metadata(&one.placement));
            let convention = one.convention;
            self.artefacts.push(PlannedArtefact { target, convention, path, container, metadata, entries, drops });
            self.artefacts.len() - 1
        })
    }

    /// The entry's index; the same wish twice is one entry, two that differ stay two and collide.
    fn entry(
        &mut self,
        artefact: usize,
        wanted: WantedEntry,
        image: usize,
        context: &Arc<BTreeMap<String, String>>,
    ) -> usize {
        let entries = &mut self.artefacts[artefact].entries;
        let same = |entry: &PlannedEntry| entry.wanted.tensor == wanted.tensor && entry.wanted.inputs == wanted.inputs;
        if let Some(index) = entries.iter().position(same) {
            return index;
        }
        let (key, status, reasons, action) = (wanted.inputs.key(), Status::Missing, Vec::new(), Action::Keep);
        entries.push(PlannedEntry { key, wanted, image, status, reasons, action, context: Arc::clone(context) });
        entries.len() - 1
    }

    /// A file holds one tensor of a name, and a trainer applies a mask that lies in it to every sample that reads it.
    fn find_collisions(&mut self, request: &Request<'_>, placed: &[Placed]) {
        let mut readers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (sample, own) in self.of_sample.iter().enumerate() {
            for artefact in own.iter().map(|(artefact, _)| artefact).collect::<BTreeSet<_>>() {
                readers.entry(*artefact).or_default().push(sample);
            }
        }
        for (artefact, samples) in readers.into_iter().filter(|(_, samples)| samples.len() > 1) {
            if self.collides(artefact, &samples) {
                for &sample in &samples {
                    let image = request.collected.samples[placed[sample].sample].image;
                    let path = request.collected.images[image].path.clone();
                    let message = "is wanted twice in one cache file, with settings that differ";
                    let hint =
                        "this layout keeps one resolution and one alpha mask of an image: give each its own folder";
                    self.problems.push(Problem::error(path, Kind::StemCollision, message).with_hint(hint));
                    self.collided.insert(sample);
                }
                self.artefacts[artefact].entries.clear();
            }
        }
    }

    /// Samples for which the trainer would take another image's cache file, wanted or lying there, by its name.
    fn find_mistakes(
        &mut self,
        request: &Request<'_>,
        conventions: &Conventions,
        placed: &[Placed],
        lying: &[PathBuf],
    ) {
        for (sample, taken) in mistaken(request, conventions, placed, self, lying) {
            let image = &request.collected.images[request.collected.samples[placed[sample].sample].image];
            let message =
                format!("would be given the size of `{taken}` by the trainer, which goes by the beginning of the name");
            let problem = Problem::error(image.path.clone(), Kind::StemCollision, message);
            self.problems.push(problem.with_hint("rename the image"));
            self.collided.insert(sample);
            for &(artefact, _) in &self.of_sample[sample] {
                self.artefacts[artefact].entries.clear();
            }
        }
    }

    /// Samples whose artefact can never be written: its name is too long, or something that is no file has it.
    fn find_blocked(&mut self, request: &Request<'_>, placed: &[Placed]) {
        let why = |path: &PathBuf| {
            let bytes = path.file_name().map_or(0, |name| name.as_encoded_bytes().len());
            if bytes > MAX_NAME_BYTES {
                return Some(format!(
                    "would have a cache file with a name of {bytes} bytes, at most {MAX_NAME_BYTES} are allowed"
                ));
            }
            let taken = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
            taken.then(|| format!("cannot be cached: `{}` is there and is no file", request.locations.display(path)))
        };
        let blocked: HashMap<usize, String> = self
            .artefacts
            .iter()
            .enumerate()
            .filter_map(|(index, artefact)| Some((index, why(artefact.path.as_ref()?)?)))
            .collect();
        for (sample, own) in self.of_sample.iter().enumerate() {
            let Some(why) = own.iter().find_map(|(artefact, _)| blocked.get(artefact)) else { continue };
            let path = request.collected.images[request.collected.samples[placed[sample].sample].image].path.clone();
            self.problems.push(Problem::error(path, Kind::Unsupported, why.clone()).with_hint("rename it"));
            self.collided.insert(sample);
        }
        for index in blocked.into_keys() {
            self.artefacts[index].entries.clear();
        }
    }

    fn collides(&self, artefact: usize, samples: &[usize]) -> bool {
        let entries = &self.artefacts[artefact].entries;
        let tensors: BTreeSet<&str> = entries.iter().map(|entry| entry.wanted.tensor.as_str()).collect();
        if tensors.len() < entries.len() {
            return true;
        }
        let wishes = |sample: usize, kind: EntryKind| -> BTreeSet<&str> {
            let own = self.of_sample[sample].iter().filter(|(a, _)| *a == artefact).map(|(_, e)| &entries[*e].wanted);
            own.filter(|wanted| wanted.kind == kind).map(|wanted| wanted.sized_suffix()).collect()
        };
        samples.iter().any(|&one| {
            samples.iter().any(|&other| {
                let shared = wishes(one, EntryKind::Latents);
                let mut shared = shared.intersection(&wishes(other, EntryKind::Latents)).copied().collect::<Vec<_>>();
                shared.retain(|size| {
                    wishes(one, EntryKind::AlphaMask).contains(size)
                        != wishes(other, EntryKind::AlphaMask).contains(size)
                });
                !shared.is_empty()
            })
        })
    }
}

fn place(request: &Request<'_>, wanted: &WantedArtefact) -> (DraftKey, Option<PathBuf>) {
    match &wanted.place {
        Place::Beside { path, older } => {
            // Another tool's is never taken: the latents of one model would be trained by another.
            let is_ours = |path: &PathBuf| matches!(request.inspect(path, wanted.container), Found::Ours { .. });
            let older = older.as_ref().map(|older| request.locations.beside(older)).filter(is_ours);
            let path = older.unwrap_or_else(|| request.locations.beside(path));
            (DraftKey::Path(path.clone()), Some(path))
        }
        Place::Store => match wanted.entries[0].inputs.key() {
            Some(key) => {
                let path = request.locations.store().join(store_path(&key));
                (DraftKey::Path(path.clone()), Some(path))
            }
            None => (DraftKey::Blind(wanted.entries[0].inputs.key_without_weights()), None),
        },
    }
}
