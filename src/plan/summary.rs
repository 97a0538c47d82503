//! The plan seen from a sample: the worst status of its entries, and the reasons in words.

use super::{PlannedArtefact, Status};
use crate::recipe::EntryKind;
use crate::recipe::staleness::Reason;
use std::collections::BTreeSet;

/// The status of a sample whose entries are `own`, and why.
///
/// Some entries fresh and some missing is stale: a wish was switched on. A tensor that has to go is stale too.
pub(super) fn sample_status(own: &[(usize, usize)], artefacts: &[PlannedArtefact]) -> (Status, Vec<Reason>) {
    let entries = || own.iter().map(|&(artefact, entry)| &artefacts[artefact].entries[entry]);
    let mut status = entries().map(|entry| entry.status).max().unwrap_or(Status::Missing);
    let mut reasons: Vec<Reason> = Vec::new();
    for reason in entries().flat_map(|entry| &entry.reasons) {
        if !reasons.contains(reason) {
            reasons.push(reason.clone());
        }
    }
    if status == Status::Missing && entries().any(|entry| entry.status == Status::Fresh) {
        status = Status::Stale;
        let missing = entries().filter(|entry| entry.status == Status::Missing);
        reasons.extend(missing.filter_map(|entry| switched(entry.wanted.kind, true)));
    }
    let suffixes: BTreeSet<&str> = entries().map(|entry| entry.wanted.sized_suffix()).collect();
    let files: BTreeSet<usize> = own.iter().map(|&(artefact, _)| artefact).collect();
    for tensor in files.into_iter().flat_map(|artefact| &artefacts[artefact].drops) {
        status = status.max(Status::Stale);
        reasons.push(dropped(tensor, &suffixes));
    }
    (status, reasons)
}

/// The reason for an entry that was switched on or off; latents are never switched.
fn switched(kind: EntryKind, on: bool) -> Option<Reason> {
    let field = match kind {
        EntryKind::Latents => return None,
        EntryKind::LatentsFlipped => "flip",
        EntryKind::AlphaMask => "alpha-mask",
    };
    let (was, now) = if on { ("off", "on") } else { ("on", "off") };
    Some(Reason { field: field.into(), was: was.into(), now: now.into(), text: format!("{field} {was} → {now}") })
}

fn dropped(tensor: &str, suffixes: &BTreeSet<&str>) -> Reason {
    let is = |kind: &EntryKind| suffixes.iter().any(|suffix| tensor == format!("{}{suffix}", kind.name()));
    let kind = [EntryKind::LatentsFlipped, EntryKind::AlphaMask].into_iter().find(is);
    kind.and_then(|kind| switched(kind, false)).unwrap_or_else(|| {
        let text = format!("`{tensor}` in its artefact is outdated and is dropped");
        Reason { field: "artefact".into(), was: tensor.to_owned(), now: String::new(), text }
    })
}
