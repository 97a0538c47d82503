//! Where two targets want different pixels of the same image, so that it is encoded for each.

use super::PlannedSample;
use crate::recipe::{Target, staleness};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Two targets that prepare images differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The two, in the recipe's order.
    #[serde(rename = "for")]
    pub targets: [Target; 2],
    /// Images that both take.
    pub shared: usize,
    /// Those of them whose pixels differ, by path.
    pub paths: Vec<String>,
    /// How many differ in a setting, by its long flag name: one image counts under each.
    pub settings: BTreeMap<String, usize>,
}

/// Compares every two of `targets`; those that agree on all images are left out.
///
/// A subset's sample is compared with the same subset's: several resolutions of one folder are several samples.
pub(super) fn divergences(samples: &[PlannedSample], targets: &[Target]) -> Vec<Divergence> {
    let mut by_target: BTreeMap<Target, HashMap<usize, &PlannedSample>> = BTreeMap::new();
    for sample in samples {
        by_target.entry(sample.target).or_default().insert(sample.sample, sample);
    }
    let pairs = targets.iter().enumerate().flat_map(|(at, &one)| targets[at + 1..].iter().map(move |&two| [one, two]));
    let compared = pairs.filter_map(|pair| {
        let [one, two] = pair.map(|target| by_target.get(&target));
        Some(compare(pair, one?, two?))
    });
    compared.filter(|divergence| !divergence.paths.is_empty()).collect()
}

fn compare(
    targets: [Target; 2],
    one: &HashMap<usize, &PlannedSample>,
    two: &HashMap<usize, &PlannedSample>,
) -> Divergence {
    let mut divergence = Divergence { targets, shared: 0, paths: Vec::new(), settings: BTreeMap::new() };
    let mut paths = BTreeSet::new();
    for (sample, one) in one {
        let Some(two) = two.get(sample) else { continue };
        divergence.shared += 1;
        let differences = staleness::explain_pixels(&one.placement.pixels, &two.placement.pixels);
        for field in differences.iter().map(|reason| reason.field.clone()).collect::<BTreeSet<_>>() {
            *divergence.settings.entry(field).or_default() += 1;
        }
        if one.placement.pixels != two.placement.pixels {
            paths.insert(one.path.clone());
        }
    }
    divergence.paths = paths.into_iter().collect();
    divergence
}

impl Divergence {
    /// One line for people.
    pub fn text(&self) -> String {
        let [one, two] = self.targets.map(Target::name);
        let settings: Vec<_> = self.settings.iter().map(|(name, images)| format!("{name} of {images}")).collect();
        format!(
            "{one} and {two} prepare {} of {} images differently, which are encoded for each: {}",
            self.paths.len(),
            self.shared,
            settings.join(", ")
        )
    }
}
