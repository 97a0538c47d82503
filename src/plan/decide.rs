//! Puts the plan together: what every sample wants, what lies there, and the cheapest way from one to the other.

use super::buckets::{self, Step};
use super::divergence::divergences;
use super::drafts::Drafts;
use super::judge::judge;
use super::place::{Conventions, Placed, place_all};
use super::shelf::{Holder, Shelf};
use super::summary::sample_status;
use super::{Action, Collected, Plan, PlannedArtefact, PlannedEntry, PlannedSample, Status};
use crate::containers::Container;
use crate::error::Result;
use crate::hash::{EncoderId, Key};
use crate::problem::{Kind, Problem};
use crate::progress::Progress;
use crate::recipe::staleness::{self, Reason};
use crate::recipe::{EntryKind, Recipe, Target};
use crate::store::lookup::{Found, inspect};
use crate::store::{Index, Locations};
use crate::trainers::Search;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What a plan is made from.
pub struct Request<'a> {
    /// Samples and images.
    pub collected: &'a Collected,
    /// What is asked for.
    pub recipe: &'a Recipe,
    /// The encoder's identity; without it keys are unknown and weights are not compared.
    pub encoder: Option<EncoderId>,
    /// Where artefacts live.
    pub locations: &'a Locations,
    /// What is known of files already looked at.
    pub index: &'a Index,
    /// Told about each artefact looked at.
    pub progress: &'a dyn Progress,
}

impl Request<'_> {
    pub(super) fn inspect(&self, path: &Path, container: Container) -> Found {
        inspect(path, container, self.index, &self.locations.index_key(path))
    }
}

/// Builds the plan.
///
/// # Errors
/// Usage errors where flags contradict a target. Trouble with single files of the cache is in the plan.
pub fn build(request: &Request<'_>) -> Result<Plan> {
    let conventions = Conventions::resolve(request.collected, request.recipe)?;
    let (placed, mut problems) = place_all(request.collected, &conventions);
    let candidates = candidates(request, &conventions);
    let Drafts { mut artefacts, of_sample, collided, problems: collisions, shadowing, .. } =
        Drafts::gather(request, &conventions, &placed, &candidates);
    problems.extend(collisions);
    let shelf = Mutex::new(Shelf::new(request.recipe.precision, request.recipe.tile));
    look(request, &conventions, &mut artefacts, &shelf);
    let wanted: BTreeSet<&PathBuf> = artefacts.iter().filter_map(|artefact| artefact.path.as_ref()).collect();
    let mut others = candidates;
    others.retain(|path| !wanted.contains(path));
    let mut orphans = ours_among(request, &others, &shelf);
    let shelf = shelf.into_inner().unwrap_or_else(PoisonError::into_inner);
    settle_blind(request, &conventions, &mut artefacts, &mut orphans, &shelf);
    assign_actions(&mut artefacts, &shelf);
    let mut superseded = superseded(request, &conventions, &placed, &others);
    problems.extend(foreign_notes(request, &artefacts, &superseded, &orphans));
    problems.extend(shadowing.iter().map(|path| shadow_note(request, path)));
    superseded.extend(shadowing);
    problems.extend(unasked(request, &conventions, &others, &superseded));
    let samples = summarise(request, &placed, &conventions, &of_sample, &collided, &artefacts);
    let step = Step { grad_accum: request.recipe.grad_accum, gpus: request.recipe.gpus };
    let (buckets, underfilled) = buckets::table(&samples, request.collected, &conventions, step);
    problems.extend(underfilled);
    Ok(Plan {
        divergences: divergences(&samples, &request.recipe.targets),
        samples,
        artefacts,
        orphans: orphans.into_iter().map(|orphan| orphan.path).collect(),
        superseded,
        problems,
        buckets,
        settings: settings(&conventions),
        setup: setup(&conventions),
        weights_known: request.encoder.is_some(),
        nominal_area: conventions.iter().map(|c| c.nominal_area()).max().unwrap_or(0),
    })
}

/// Looks at every wanted file, in parallel, and judges it; its valid entries go on the shelf.
fn look(request: &Request<'_>, conventions: &Conventions, artefacts: &mut [PlannedArtefact], shelf: &Mutex<Shelf>) {
    request.progress.stage("look", Some(artefacts.len() as u64));
    artefacts.par_iter_mut().for_each(|artefact| {
        if let Some(path) = artefact.path.clone() {
            let found = match request.inspect(&path, artefact.container) {
                // Nobody else writes under these names: the receipt was damaged.
                Found::Foreign(_) if artefact.target == Target::Store => Found::Damaged("has no receipt".to_owned()),
                found => found,
            };
            if let Found::Ours { receipt, damaged, .. } = &found {
                let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
                shelf.add(&path, artefact.container, receipt, damaged);
            }
            let convention = conventions.get(artefact.convention);
            judge(artefact, &found, request.recipe, convention, &request.collected.images);
            if artefact.target == Target::Store {
                recall(artefact, request.index);
            }
        }
        request.progress.advance(1);
    });
}

/// In the store a changed input is another file name, so why an entry is stale is recalled from the index: what was
/// last baked for this sample.
fn recall(artefact: &mut PlannedArtefact, index: &Index) {
    for entry in artefact.entries.iter_mut().filter(|entry| entry.status == Status::Missing) {
        let path = entry.context.get("path").map(String::as_bytes).unwrap_or_default();
        let Some(last) = index.last_baked(Target::Store, path, entry.wanted.kind.name()) else { continue };
        entry.reasons = staleness::explain(&last.inputs, &last.context, &entry.wanted.inputs, &entry.context);
        entry.status = if entry.reasons.is_empty() { Status::Missing } else { Status::Stale };
    }
}

/// Files that could be artefacts of the layouts at hand, sorted.
fn candidates(request: &Request<'_>, conventions: &Conventions) -> Vec<PathBuf> {
    let mut paths = BTreeSet::new();
    let targets: BTreeSet<Target> = request.recipe.targets.iter().copied().collect();
    for target in targets {
        if target == Target::Store {
            paths.extend(request.locations.store_files());
            continue;
        }
        let folders = conventions.cache_folders(target, &request.collected.description.subsets);
        let of_layout = |name: &str| conventions.iter().any(|c| c.target() == target && c.names(name));
        paths.extend(request.locations.files_beside(&folders, of_layout));
    }
    paths.into_iter().collect()
}

/// An artefact of ours that nothing wants, with its entries' keys but for the weights.
struct Orphan {
    path: PathBuf,
    partial_keys: Vec<Key>,
}

/// Artefacts of ours among `paths`, in their order; their valid entries go on the shelf.
fn ours_among(request: &Request<'_>, paths: &[PathBuf], shelf: &Mutex<Shelf>) -> Vec<Orphan> {
    let ours = |path: &PathBuf| {
        let container = Container::of_path(path)?;
        let Found::Ours { receipt, damaged, .. } = request.inspect(path, container) else { return None };
        shelf.lock().unwrap_or_else(PoisonError::into_inner).add(path, container, &receipt, &damaged);
        let partial_keys = receipt.entries.values().map(|entry| entry.inputs.key_without_weights()).collect();
        Some(Orphan { path: path.clone(), partial_keys })
    };
    paths.par_iter().filter_map(ours).collect()
}

/// Without weights the store's file names are unknown: an entry with the same inputs but for the weights will do, and
/// no file that holds one is an orphan.
fn settle_blind(
    request: &Request<'_>,
    conventions: &Conventions,
    artefacts: &mut [PlannedArtefact],
    orphans: &mut Vec<Orphan>,
    shelf: &Shelf,
) {
    let mut wanted = BTreeSet::new();
    for artefact in artefacts.iter_mut().filter(|artefact| artefact.path.is_none() && !artefact.entries.is_empty()) {
        let inputs = &artefact.entries[0].wanted.inputs;
        wanted.insert(inputs.key_without_weights());
        match shelf.holder(None, inputs).cloned() {
            None => recall(artefact, request.index),
            Some(holder) => {
                let found = request.inspect(&holder.path, holder.container);
                artefact.path = Some(holder.path);
                let convention = conventions.get(artefact.convention);
                judge(artefact, &found, request.recipe, convention, &request.collected.images);
            }
        }
    }
    orphans.retain(|orphan| !orphan.partial_keys.iter().any(|key| wanted.contains(key)));
}

/// The cheapest way to each entry that is not there: another artefact's payload, this run's, or the encoder.
fn assign_actions(artefacts: &mut [PlannedArtefact], shelf: &Shelf) {
    let mut leaders: HashMap<Key, (usize, usize)> = HashMap::new();
    for (a, artefact) in artefacts.iter_mut().enumerate() {
        for (e, entry) in artefact.entries.iter_mut().enumerate() {
            if matches!(entry.status, Status::Fresh | Status::Foreign) {
                continue;
            }
            if let Some((key, holder)) = source(entry, shelf) {
                entry.reasons.push(moved(&holder.path, Some(key) == entry.key));
                let (from, container, tensor) = (holder.path.clone(), holder.container, holder.tensor.clone());
                entry.action = Action::Relink { from, container, tensor, key };
                continue;
            }
            entry.action = match entry.key.map(|key| *leaders.entry(key).or_insert((a, e))) {
                Some((artefact, leader)) if (artefact, leader) != (a, e) => Action::Follow { artefact, entry: leader },
                _ => Action::Build,
            };
        }
    }
}

/// Where an entry's payload lies, or the raw mean that it follows from; with the key there.
fn source<'s>(entry: &PlannedEntry, shelf: &'s Shelf) -> Option<(Key, &'s Holder)> {
    let held = |key: Key| Some((key, shelf.holder(Some(key), &entry.wanted.inputs)?));
    held(entry.key?).or_else(|| held(entry.wanted.inputs.raw()?.key()?))
}

fn moved(from: &Path, same: bool) -> Reason {
    let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = if same { "the same latents lie in" } else { "follows from the raw latents in" };
    let text = format!("{text} `{name}`");
    Reason { field: "artefact".into(), was: name, now: String::new(), text }
}

/// Files that the trainer would take for the cache of a sample here, though their name gives it another size: the
/// trainer believes the name and trains the picture at that size.
fn superseded(
    request: &Request<'_>,
    conventions: &Conventions,
    placed: &[Placed],
    others: &[PathBuf],
) -> BTreeSet<PathBuf> {
    let mut by_folder: HashMap<&Path, Vec<&PathBuf>> = HashMap::new();
    for path in others {
        by_folder.entry(path.parent().unwrap_or(Path::new(""))).or_default().push(path);
    }
    let mut superseded = BTreeSet::new();
    for one in placed {
        let image = &request.collected.images[request.collected.samples[one.sample].image];
        let convention = conventions.get(one.convention);
        if convention.search(image) == Search::None {
            continue;
        }
        let folder = request.locations.beside(&convention.folder(image));
        let Some(stem) = image.relative.file_stem() else { continue };
        for path in by_folder.get(folder.as_path()).into_iter().flatten() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let claimed = conventions.get(one.convention).claims(&stem.to_string_lossy(), &name);
            if claimed.is_some_and(|size| size != one.placement.source) {
                superseded.insert((*path).clone());
            }
        }
    }
    superseded
}

/// Files that no image wants and that the trainer uses all the same. They stay: they may be another run's.
fn unasked(
    request: &Request<'_>,
    conventions: &Conventions,
    others: &[PathBuf],
    superseded: &BTreeSet<PathBuf>,
) -> Vec<Problem> {
    let use_of = |path: &PathBuf| {
        let name = path.file_name()?.to_string_lossy();
        let message = conventions.iter().find_map(|convention| convention.uses_unasked(&name))?;
        let problem = Problem::warning(request.locations.display(path), Kind::Foreign, message);
        Some(problem.with_hint("move it out of the folder"))
    };
    others.iter().filter(|path| !superseded.contains(*path)).filter_map(use_of).collect()
}

fn foreign_notes(
    request: &Request<'_>,
    artefacts: &[PlannedArtefact],
    superseded: &BTreeSet<PathBuf>,
    orphans: &[Orphan],
) -> Vec<Problem> {
    let kept = artefacts.iter().filter(|a| a.entries.iter().any(|entry| entry.status == Status::Foreign));
    let kept = kept.filter_map(|artefact| artefact.path.as_ref()).map(|path| {
        let message = "was made by another tool: it is kept, and nothing is known of what it was made from";
        Problem::note(request.locations.display(path), Kind::Foreign, message)
            .with_hint("--foreign rebuild encodes it anew")
    });
    let ours: BTreeSet<&PathBuf> = orphans.iter().map(|orphan| &orphan.path).collect();
    let moved = superseded.iter().filter(|path| !ours.contains(path)).map(|path| {
        let message = "names another size than its image has: the trainer would believe it; bake moves it away";
        Problem::note(request.locations.display(path), Kind::Foreign, message)
            .with_hint("it goes to .prebake/quarantine and is not lost")
    });
    kept.chain(moved).collect()
}

fn shadow_note(request: &Request<'_>, path: &Path) -> Problem {
    let message = "would be taken for the cache, whatever model it was made for: bake moves it away";
    Problem::note(request.locations.display(path), Kind::Foreign, message)
        .with_hint("it goes to .prebake/quarantine and is not lost")
}

fn summarise(
    request: &Request<'_>,
    placed: &[Placed],
    conventions: &Conventions,
    of_sample: &[Vec<(usize, usize)>],
    collided: &BTreeSet<usize>,
    artefacts: &[PlannedArtefact],
) -> Vec<PlannedSample> {
    let summary = |(one, own): (&Placed, &Vec<(usize, usize)>)| {
        let image = request.collected.samples[one.sample].image;
        let mut entries = own.iter().map(|&(artefact, entry)| &artefacts[artefact].entries[entry]);
        let key = entries.find(|entry| entry.wanted.kind == EntryKind::Latents).and_then(|entry| entry.key);
        let path = own.first().and_then(|&(artefact, _)| artefacts[artefact].path.as_ref());
        let (status, reasons) = sample_status(own, artefacts);
        PlannedSample {
            sample: one.sample,
            convention: one.convention,
            path: request.collected.images[image].path.clone(),
            target: conventions.get(one.convention).target(),
            placement: one.placement.clone(),
            key,
            artefact: path.map(|path| request.locations.display(path)),
            status,
            reasons,
            entries: own.clone(),
        }
    };
    let in_order = placed.iter().zip(of_sample).enumerate();
    in_order.filter(|(index, _)| !collided.contains(index)).map(|(_, pair)| summary(pair)).collect()
}

fn settings(conventions: &Conventions) -> BTreeMap<Target, BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    for convention in conventions.iter() {
        settings.entry(convention.target()).or_insert_with(|| convention.settings());
    }
    settings
}

fn setup(conventions: &Conventions) -> BTreeMap<Target, Vec<String>> {
    let mut setup: BTreeMap<Target, Vec<String>> = BTreeMap::new();
    for convention in conventions.iter() {
        let lines = setup.entry(convention.target()).or_default();
        let new: Vec<_> = convention.setup().into_iter().filter(|line| !lines.contains(line)).collect();
        lines.extend(new);
    }
    setup
}
