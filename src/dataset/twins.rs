//! Images that share what should be their own: content, or the name that their caption and cache go by.

use super::path::stem;
use super::scan::Image;
use crate::hash::ContentHash;
use crate::problem::{Kind, Problem};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How many of the others a warning names.
const NAMED: usize = 3;

/// Groups of at least two images with the same bytes, each sorted, in the order of their first paths; and a warning
/// for each image in one. Files that cannot be used do not count.
pub(super) fn duplicates(images: &[Image]) -> (Vec<Vec<String>>, Vec<Problem>) {
    let mut by_content: BTreeMap<ContentHash, Vec<&str>> = BTreeMap::new();
    for image in images.iter().filter(|image| image.usable) {
        if let Some(content) = image.content {
            by_content.entry(content).or_default().push(&image.path);
        }
    }
    let mut groups: Vec<Vec<&str>> = by_content.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_unstable();
    let problems = warnings(&groups, Kind::Duplicate, "is byte for byte the same as");
    (groups.into_iter().map(|group| group.into_iter().map(str::to_owned).collect()).collect(), problems)
}

/// Warnings for images that differ in nothing but their extension: they share one caption, and one cache file wherever
/// a trainer names it by the stem.
pub(super) fn stem_collisions(images: &[Image]) -> Vec<Problem> {
    let mut by_stem: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
    for image in images.iter().filter(|image| image.inline.is_none()) {
        by_stem.entry(stem(&image.relative)).or_default().push(&image.path);
    }
    let groups: Vec<Vec<&str>> = by_stem.into_values().filter(|group| group.len() > 1).collect();
    warnings(&groups, Kind::StemCollision, "shares its name without extension, and so its caption, with")
}

fn warnings(groups: &[Vec<&str>], kind: Kind, what: &str) -> Vec<Problem> {
    let warning = |group: &[&str], path: &str| {
        let others: Vec<&str> = group.iter().copied().filter(|other| *other != path).collect();
        let named: Vec<String> = others.iter().take(NAMED).map(|other| format!("`{other}`")).collect();
        let more = others.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Problem::warning(path, kind, format!("{what} {}{more}", named.join(", ")))
    };
    groups.iter().flat_map(|group| group.iter().map(|path| warning(group, path))).collect()
}
