//! Entries whose payload lies elsewhere, and files that only lose something: no encoder is needed.

use super::Bake;
use super::deliver::stored_array;
use super::tally::{Made, Outcome};
use super::work::EntryId;
use super::write::{Finished, MadeEntry, write};
use crate::containers::{Array, Container};
use crate::error::Result;
use crate::hash::Key;
use crate::plan::{Action, PlannedEntry};
use crate::problem::{Kind, Problem};
use crate::recipe::{Ran, Receipt};
use crate::store::read_regular;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

type Payload = (Array, Option<Ran>);

/// Writes relinked entries and drops, and returns the entries whose source turned out to be unusable: they are built
/// like any other.
///
/// Two pictures that swap names each hold what the other needs: before a file is written, what others still need from
/// it is read. In a chain of renames that is one payload at a time.
pub(super) fn relink(bake: &Bake<'_>, outcome: &Outcome) -> Result<BTreeSet<EntryId>> {
    let mut waiting: HashMap<&Path, Vec<EntryId>> = HashMap::new();
    for (id, from) in relinks(bake) {
        waiting.entry(from).or_default().push(id);
    }
    let mut early: HashMap<EntryId, Option<Payload>> = HashMap::new();
    let mut fallen = BTreeSet::new();
    for (index, artefact) in bake.plan.artefacts.iter().enumerate() {
        let has_relinks = artefact.entries.iter().any(|entry| matches!(entry.action, Action::Relink { .. }));
        if bake.cancel.is_cancelled() || (artefact.drops.is_empty() && !has_relinks) {
            continue;
        }
        let mut finished = Finished::new(index);
        for (entry, planned) in artefact.entries.iter().enumerate() {
            let Action::Relink { from, container, tensor, key } = &planned.action else { continue };
            let id = EntryId { artefact: index, entry };
            let found = early.remove(&id).unwrap_or_else(|| payload(from, *container, tensor, *key));
            waiting.get_mut(from.as_path()).into_iter().for_each(|ids| ids.retain(|other| *other != id));
            match found {
                Some((array, ran)) => {
                    let array = taken(array, *key, planned);
                    finished.made.push(MadeEntry { entry, array, ran, how: Made::Relinked });
                }
                None => drop(fallen.insert(id)),
            }
        }
        for id in artefact.path.as_ref().and_then(|path| waiting.remove(path.as_path())).into_iter().flatten() {
            let planned = &bake.plan.artefacts[id.artefact].entries[id.entry];
            if let Action::Relink { from, container, tensor, key } = &planned.action {
                early.insert(id, payload(from, *container, tensor, *key));
            }
        }
        if !finished.made.is_empty() || !artefact.drops.is_empty() {
            write(bake, &finished, outcome)?;
        }
    }
    Ok(fallen)
}

/// What an entry makes of the payload of `key`: that itself, or, of a raw mean, what it stores of it.
fn taken(array: Array, key: Key, planned: &PlannedEntry) -> Array {
    if planned.key == Some(key) {
        return array.reshaped(&planned.wanted.shape);
    }
    stored_array(&planned.wanted, array.to_f32())
}

fn relinks<'a>(bake: &'a Bake<'_>) -> impl Iterator<Item = (EntryId, &'a Path)> {
    bake.plan.artefacts.iter().enumerate().flat_map(|(artefact, planned)| {
        planned.entries.iter().enumerate().filter_map(move |(entry, planned)| match &planned.action {
            Action::Relink { from, .. } => Some((EntryId { artefact, entry }, from.as_path())),
            _ => None,
        })
    })
}

/// The tensor of an entry whose receipt has `key`, read anew and held against its checksum.
fn payload(from: &Path, container: Container, tensor: &str, key: Key) -> Option<Payload> {
    let contents = container.read(&read_regular(from).ok()?).ok()?;
    let receipt = Receipt::from_json(contents.receipt.as_deref()?).ok()?;
    let entry = receipt.entries.get(tensor).filter(|entry| entry.key == key)?;
    let array = contents.arrays.get(tensor)?;
    let intact = entry.arrays.get(tensor) == Some(&array.checksum());
    intact.then(|| (array.clone(), entry.ran.clone()))
}

/// Writes the artefacts whose payload this run built for an entry with the same key.
pub(super) fn follow(bake: &Bake<'_>, outcome: &Outcome) -> Result<()> {
    for (index, artefact) in bake.plan.artefacts.iter().enumerate() {
        let mut finished = Finished::new(index);
        for (entry, planned) in artefact.entries.iter().enumerate() {
            let Action::Follow { artefact: leader, entry: leading } = planned.action else { continue };
            let source = &bake.plan.artefacts[leader];
            let tensor = &source.entries[leading].wanted.tensor;
            let made = source.path.as_ref().zip(planned.key);
            let made = made.and_then(|(path, key)| payload(path, source.container, tensor, key));
            match made {
                Some((array, ran)) => {
                    let array = array.reshaped(&planned.wanted.shape);
                    finished.made.push(MadeEntry { entry, array, ran, how: Made::Relinked });
                }
                None if bake.cancel.is_cancelled() => {}
                None => {
                    let path = bake.collected.images[planned.image].path.clone();
                    let leader = &bake.collected.images[source.entries[leading].image].path;
                    let message = format!("has the same content as `{leader}`, for which nothing could be cached");
                    outcome.fail(EntryId { artefact: index, entry }, Problem::error(path, Kind::Damaged, message));
                }
            }
        }
        if !finished.made.is_empty() {
            write(bake, &finished, outcome)?;
        }
    }
    Ok(())
}
