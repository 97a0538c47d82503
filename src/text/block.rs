//! Runs of rows: what one thread counts at a time, and what is remembered between runs.
//!
//! A block ends where the bytes of a row say so, not where a counter does. So a row that was put in, changed or taken out
//! changes its own block and at most its neighbour; all others are found again, wherever they have moved to.

use super::rows::{Row, Rows};
use crate::error::Result;
use crate::hash::{FieldHasher, TextHash};

/// A block is at least this long, in bytes, unless the rows end.
const LEAST: usize = 1 << 19;
/// A block ends behind the first row that passes it.
const MOST: usize = 1 << 22;
/// One row in so many ends a block that is long enough.
const ONE_IN: u32 = 64;

/// Rows that are counted together.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Index of the file that they are from.
    pub(super) file: usize,
    /// In the file's order.
    pub(super) rows: Vec<Row>,
    bytes: usize,
}

impl Block {
    /// The key of its counts, under `settings`: what else the counts depend on.
    pub(super) fn key(&self, settings: &TextHash) -> TextHash {
        let mut hasher = FieldHasher::new("prebake token counts");
        hasher.bytes("settings", &settings.0);
        for row in &self.rows {
            hasher.bytes("row", &row.json);
        }
        TextHash(hasher.finish())
    }

    fn push(&mut self, row: Row) -> bool {
        self.bytes += row.json.len();
        let may_end = self.bytes >= LEAST && crc32fast::hash(&row.json).is_multiple_of(ONE_IN);
        self.rows.push(row);
        may_end || self.bytes >= MOST
    }
}

/// The blocks of a file's rows.
pub(super) struct Blocks {
    pub(super) file: usize,
    pub(super) rows: Rows,
}

impl Iterator for Blocks {
    type Item = Result<Block>;

    fn next(&mut self) -> Option<Result<Block>> {
        let mut block = Block { file: self.file, ..Block::default() };
        for row in self.rows.by_ref() {
            match row {
                Err(error) => return Some(Err(error)),
                Ok(row) => {
                    if block.push(row) {
                        return Some(Ok(block));
                    }
                }
            }
        }
        (!block.rows.is_empty()).then_some(Ok(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn keys(rows: impl Iterator<Item = String>) -> Vec<TextHash> {
        let rows = rows.zip(1..).map(|(text, line)| Ok(Row { line, json: text.into_bytes() }));
        let blocks = Blocks { file: 0, rows: Box::new(rows.collect::<Vec<_>>().into_iter()) };
        let settings = TextHash::of(b"settings");
        blocks.map(|block| block.unwrap().key(&settings)).collect()
    }

    #[test]
    fn a_row_put_in_changes_its_block_and_its_neighbour_at_most() {
        let row = |n: u32| format!("{n:04} {}", "word ".repeat(100 + n as usize % 50));
        let before = keys((0..9000).map(row));
        let after =
            keys((0..9000).flat_map(|n| (n == 4000).then(|| "a new row".to_owned()).into_iter().chain([row(n)])));
        let known: HashSet<_> = before.iter().collect();
        let new = after.iter().filter(|key| !known.contains(key)).count();
        assert!(before.len() >= 6 && new <= 2, "{} blocks, {new} new", before.len());
    }
}
