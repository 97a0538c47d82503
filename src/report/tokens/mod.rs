//! The outcome of `tokens`: captions against their encoders, or a text dataset and its sequence length.

mod captions;
pub mod plot;
mod text;

pub use captions::CaptionReport;
pub use text::{Current, TextReport};

use crate::lengths::{Histogram, Share};
use crate::units::thousands;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Percentiles that are shown, with their names.
const PERCENTILES: [(&str, Share); 6] = [
    ("p50", Share::permille(500)),
    ("p75", Share::permille(750)),
    ("p90", Share::permille(900)),
    ("p95", Share::permille(950)),
    ("p99", Share::permille(990)),
    ("p99_9", Share::permille(999)),
];

/// Rows of a histogram in the terminal.
const BINS: u32 = 16;

/// Characters of its longest bar.
const BAR: u64 = 48;

/// The statistics of lengths, for a JSON document.
fn statistics(lengths: &Histogram) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("n".into(), json!(lengths.n()));
    members.insert("min".into(), json!(lengths.min()));
    for (name, share) in PERCENTILES {
        members.insert(name.into(), json!(lengths.percentile(share)));
    }
    members.insert("max".into(), json!(lengths.max()));
    members.insert("mean".into(), json!(lengths.mean()));
    members.insert("total".into(), json!(lengths.total()));
    members
}

/// The statistics of lengths, in two lines under each other.
fn table(lengths: &Histogram) -> String {
    let number = |length: Option<u32>| length.map_or("-".to_owned(), |length| thousands(length.into()));
    let mut cells = vec![("n".to_owned(), thousands(lengths.n())), ("min".to_owned(), number(lengths.min()))];
    cells.extend(PERCENTILES.map(|(name, share)| (name.replace('_', "."), number(lengths.percentile(share)))));
    cells.push(("max".to_owned(), number(lengths.max())));
    cells.push(("mean".to_owned(), format!("{:.1}", lengths.mean())));
    columns(&[cells.iter().map(|(name, _)| name.clone()).collect(), cells.into_iter().map(|(_, cell)| cell).collect()])
}

/// Rows of cells, right-aligned under each other.
fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  "))
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Bins of equal width from 0, with their counts; the last one, without an end, holds what is far beyond the rest.
fn bins(lengths: &Histogram) -> Vec<(u32, Option<u32>, u64)> {
    let (Some(max), Some(most)) = (lengths.max(), lengths.percentile(Share::permille(950))) else { return Vec::new() };
    // A few long ones must not squeeze all others into the first bin.
    let end = if max / 3 > most { most + most / 2 } else { max.min(u32::MAX / 2) };
    let width = round_up(end / BINS + 1);
    let mut bins: Vec<(u32, Option<u32>, u64)> = Vec::new();
    let mut start = 0;
    while start <= end {
        let within = lengths.within(start + width - 1) - start.checked_sub(1).map_or(0, |last| lengths.within(last));
        bins.push((start, Some(start + width - 1), within));
        start += width;
    }
    let beyond = lengths.n() - lengths.within(start - 1);
    if beyond > 0 {
        bins.push((start, None, beyond));
    }
    bins
}

/// The next of 1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, … that people read easily.
fn round_up(width: u32) -> u32 {
    let steps = [1_u32, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000, 1024, 2000, 2048, 4096];
    steps.into_iter().find(|&step| step >= width).unwrap_or_else(|| width.next_multiple_of(4096))
}

/// A histogram in text.
fn histogram(lengths: &Histogram) -> String {
    let bins = bins(lengths);
    let most = bins.iter().map(|&(.., count)| count).max().unwrap_or(0).max(1);
    let label = |&(start, end, _): &(u32, Option<u32>, u64)| match end {
        Some(end) if end == start => thousands(start.into()),
        Some(end) => format!("{}–{}", thousands(start.into()), thousands(end.into())),
        None => format!("{} and more", thousands(start.into())),
    };
    let width = bins.iter().map(|bin| label(bin).chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for bin in &bins {
        let count = bin.2;
        let bar = "█".repeat((count * BAR).div_ceil(most) as usize);
        let _ = writeln!(text, "  {:>width$}  {bar} {}", label(bin), thousands(count));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_has_a_bin_of_its_own() {
        let lengths: Histogram = (0..200).map(|i| 10 + i % 40).chain([30_000]).collect();
        let bins = bins(&lengths);
        assert_eq!(bins.iter().map(|&(.., count)| count).sum::<u64>(), 201);
        assert_eq!(bins.last(), Some(&(75, None, 1)));
        assert!(histogram(&lengths).ends_with("75 and more  ██ 1"));
        assert_eq!(histogram(&Histogram::default()), "");
    }
}
