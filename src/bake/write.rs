//! The writers: merge what was made into the artefact that lies there, publish it, remember it.

use super::Bake;
use super::tally::{Made, Outcome};
use super::work::EntryId;
use crate::containers::{Array, Container, Contents};
use crate::error::{Error, IoContext, Result};
use crate::plan::{PlannedArtefact, PlannedEntry};
use crate::problem::{Kind, Problem};
use crate::recipe::{EntryKind, EntryReceipt, Ran, Receipt, Target};
use crate::store::index::Baked;
use crate::store::lookup::{self, Found};
use crate::store::merge::{self, Change};
use crate::store::{FileStat, publish, read_regular};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Writer threads: one syncs while the other serialises.
const WRITERS: usize = 2;

/// Finished artefacts that may wait for a writer.
const QUEUE: usize = 8;

/// New entries of one artefact.
pub(super) struct Finished {
    pub(super) artefact: usize,
    pub(super) made: Vec<MadeEntry>,
}

/// One new entry.
pub(super) struct MadeEntry {
    /// Index among the artefact's entries.
    pub(super) entry: usize,
    /// Its tensor.
    pub(super) array: Array,
    /// How it was computed.
    pub(super) ran: Option<Ran>,
    /// How it came about in this run.
    pub(super) how: Made,
}

impl Finished {
    pub(super) fn new(artefact: usize) -> Self {
        Self { artefact, made: Vec::new() }
    }
}

/// Runs `produce` with a way to hand artefacts to writer threads, and waits for these.
///
/// The first write that fails cancels the run and is returned; what was written before stays.
pub(super) fn with_writers(
    bake: &Bake<'_>,
    outcome: &Outcome,
    produce: impl FnOnce(&(dyn Fn(Finished) + Sync)),
) -> Result<()> {
    let (sender, receiver) = sync_channel::<Finished>(QUEUE);
    let receiver = Arc::new(Mutex::new(receiver));
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            let (receiver, failure) = (Arc::clone(&receiver), &failure);
            scope.spawn(move || {
                while let Some(finished) = next(&receiver) {
                    if let Err(error) = write(bake, &finished, outcome) {
                        bake.cancel.cancel();
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
        drop(receiver);
        // Sending fails only when both writers are gone, which the scope reports as their panic.
        produce(&|finished| drop(sender.send(finished)));
        drop(sender);
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn next(receiver: &Mutex<Receiver<Finished>>) -> Option<Finished> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Writes one artefact: valid entries that are kept, the new ones, and nothing that is outdated; a file in which
/// nothing is left is removed.
///
/// # Errors
/// The file cannot be written. One that cannot be read is a problem of its entries, and the run goes on.
pub(super) fn write(bake: &Bake<'_>, finished: &Finished, outcome: &Outcome) -> Result<()> {
    let planned = &bake.plan.artefacts[finished.artefact];
    let Some(path) = &planned.path else { return Ok(()) };
    let changed = kept(bake, planned, path).and_then(|before| {
        let merged =
            merge::merge(Some(without_left_behind(before.clone(), planned)), changes(planned, finished, &before));
        let mut contents = merged.map_err(|message| Error::cache(path, message))?;
        contents.metadata.extend(planned.metadata.clone());
        let bytes = planned.container.write(&contents).map_err(|message| Error::cache(path, message))?;
        Ok((contents, bytes))
    });
    let (contents, bytes) = match changed {
        Ok(changed) => changed,
        Err(error) => {
            fail(bake, finished, outcome, &error);
            return Ok(());
        }
    };
    if contents.arrays.is_empty() {
        return remove(bake, path);
    }
    let stat = publish(path, &bytes)?;
    remember(bake, path, finished, &contents, &stat);
    outcome.with(|tally| {
        tally.written_artefacts.insert(finished.artefact);
        let ids =
            finished.made.iter().map(|made| (EntryId { artefact: finished.artefact, entry: made.entry }, made.how));
        tally.written.extend(ids);
    });
    Ok(())
}

fn fail(bake: &Bake<'_>, finished: &Finished, outcome: &Outcome, error: &Error) {
    for (index, entry) in bake.plan.artefacts[finished.artefact].entries.iter().enumerate() {
        if entry.is_to_be_made() {
            let path = bake.collected.images[entry.image].path.clone();
            let problem = Problem::error(path, Kind::Damaged, format!("its artefact cannot be rewritten: {error}"));
            outcome.fail(EntryId { artefact: finished.artefact, entry: index }, problem);
        }
    }
}

/// What lies at `path`, as far as a new file can hold it. Another tool's file that holds more than can be carried over
/// is copied to the quarantine first; of a file cut or overwritten with noise nothing can be kept. A store file holds one
/// entry and nothing of anyone else, so it is written afresh.
fn kept(bake: &Bake<'_>, planned: &PlannedArtefact, path: &Path) -> Result<Contents> {
    if planned.target == Target::Store {
        return Ok(Contents::default());
    }
    let bytes = match read_regular(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Contents::default()),
        Err(error) => return Err(error).at(path),
    };
    match planned.container.read(&bytes) {
        Ok(contents) if contents.receipt.as_deref().is_none_or(|text| Receipt::from_json(text).is_ok()) => Ok(contents),
        Ok(_) => set_aside(bake, path, &bytes),
        Err(_) if planned.container.is_whole(&bytes) => set_aside(bake, path, &bytes),
        Err(_) => Ok(Contents::default()),
    }
}

fn set_aside(bake: &Bake<'_>, path: &Path, bytes: &[u8]) -> Result<Contents> {
    let aside = bake.locations.quarantine(path);
    publish(&aside, bytes)?;
    bake.progress.say(&format!(
        "`{}` holds what cannot be kept in it: copied to `{}`",
        path.display(),
        aside.display()
    ));
    Ok(Contents::default())
}

/// The contents less arrays without a receipt that the plan drops.
fn without_left_behind(mut before: Contents, planned: &PlannedArtefact) -> Contents {
    let receipt = before.receipt.as_deref().and_then(|text| Receipt::from_json(text).ok());
    let named: BTreeSet<String> =
        receipt.iter().flat_map(|r| r.entries.values()).flat_map(|entry| entry.arrays.keys().cloned()).collect();
    before.arrays.retain(|name, _| named.contains(name) || !planned.drops.contains(name));
    before
}

/// Drops first, of what the plan drops and of wanted entries that are not what is wanted, whether they are replaced now
/// or later in this run; then the new entries.
fn changes(planned: &PlannedArtefact, finished: &Finished, before: &Contents) -> Vec<Change> {
    let receipt =
        before.receipt.as_deref().and_then(|text| Receipt::from_json(text).ok()).unwrap_or_else(Receipt::empty);
    let outdated = |entry: &&PlannedEntry| {
        let lying = receipt.entries.get(&entry.wanted.tensor);
        entry.is_to_be_made() && lying.is_some_and(|lying| Some(lying.key) != entry.key)
    };
    let replaced = planned.entries.iter().filter(outdated).map(|entry| &entry.wanted.tensor);
    let drops = planned.drops.iter().chain(replaced).map(|name| Change::Drop { entry: name.clone() });
    drops.chain(finished.made.iter().map(|made| put(planned, made))).collect()
}

fn put(planned: &PlannedArtefact, made: &MadeEntry) -> Change {
    let entry = &planned.entries[made.entry];
    let mut arrays: BTreeMap<String, Array> = entry.wanted.companions.clone();
    arrays.insert(entry.wanted.tensor.clone(), made.array.clone());
    let receipt = EntryReceipt {
        key: entry.key.expect("an entry without a key is never made: bake asks for weights first"),
        inputs: entry.wanted.inputs.clone(),
        ran: made.ran.clone(),
        arrays: BTreeMap::new(),
        dtype: made.array.dtype,
        shape: made.array.shape.clone(),
        context: BTreeMap::clone(&entry.context),
    };
    Change::Put { entry: entry.wanted.tensor.clone(), arrays, receipt: Box::new(receipt) }
}

fn remember(bake: &Bake<'_>, path: &Path, finished: &Finished, contents: &Contents, stat: &FileStat) {
    let artefact = bake.locations.index_key(path);
    match lookup::judge(contents).known() {
        Some(known) => bake.index.remember_artefact(&artefact, stat, &known),
        None => bake.index.forget_artefact(&artefact),
    }
    let planned = &bake.plan.artefacts[finished.artefact];
    for made in &finished.made {
        let PlannedEntry { wanted, context, .. } = &planned.entries[made.entry];
        let baked =
            Baked { inputs: wanted.inputs.clone(), context: BTreeMap::clone(context), artefact: artefact.clone() };
        let sample = context.get("path").map(String::as_bytes).unwrap_or_default();
        bake.index.remember_baked(planned.target, sample, wanted.kind.name(), &baked);
    }
}

fn remove(bake: &Bake<'_>, path: &Path) -> Result<()> {
    bake.index.forget_artefact(&bake.locations.index_key(path));
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).at(path),
        _ => Ok(()),
    }
}

/// Takes files out of the trainer's sight that it would take for a sample's cache by their name alone: ours are removed,
/// others moved to the quarantine.
pub(super) fn remove_superseded(bake: &Bake<'_>) -> Result<()> {
    for path in &bake.plan.superseded {
        let Some(container) = Container::of_path(path) else { continue };
        let found = lookup::inspect(path, container, bake.index, &bake.locations.index_key(path));
        match found {
            Found::Missing => continue,
            Found::Ours { foreign, .. } if foreign.is_empty() => {}
            _ => drop(publish(&bake.locations.quarantine(path), &read_regular(path).at(path)?)?),
        }
        remove(bake, path)?;
    }
    Ok(())
}

/// True for the kinds that an encoder makes.
pub(super) fn needs_encoder(kind: EntryKind) -> bool {
    kind != EntryKind::AlphaMask
}
