//! EXIF orientation and mirroring: the same samples in another order, nothing computed.

use super::raster::Raster;
use crate::units::Size;

/// The size that a stored picture has once its EXIF orientation is undone: sides swapped for 5–8.
pub const fn upright_size(stored: Size, orientation: u8) -> Size {
    if matches!(orientation, 5..=8) { stored.transposed() } else { stored }
}

/// Turns a stored picture upright by its EXIF orientation (TIFF 6.0 tag 274).
///
/// 1 as stored, 2 mirrored, 3 turned by 180°, 4 upside down, 5 transposed, 6 a quarter turn clockwise, 7 transposed
/// along the other diagonal, 8 a quarter turn counter-clockwise. Any other value leaves the stored order, as viewers
/// do with illegal tags.
pub fn upright(stored: Raster, orientation: u8) -> Raster {
    // Whether the picture's columns and rows run backwards in the stored order, before a transposition.
    let (columns_backwards, rows_backwards) = match orientation {
        2 => (true, false),
        3 => (true, true),
        4 => (false, true),
        5 => (false, false),
        6 => (false, true),
        7 => (true, true),
        8 => (true, false),
        _ => return stored,
    };
    let size = upright_size(stored.size, orientation);
    let transposed = matches!(orientation, 5..=8);
    let data = match stored.channels {
        1 => reorder::<1>(&stored, columns_backwards, rows_backwards, transposed),
        3 => reorder::<3>(&stored, columns_backwards, rows_backwards, transposed),
        _ => reorder::<4>(&stored, columns_backwards, rows_backwards, transposed),
    };
    Raster { size, channels: stored.channels, data }
}

/// Mirrors a picture left to right.
pub fn mirror(picture: Raster) -> Raster {
    upright(picture, 2)
}

/// The orientation that turns a picture upright as `orientation` does, and mirrors it left to right after that.
pub const fn then_mirrored(orientation: u8) -> u8 {
    match orientation {
        1 => 2,
        2 => 1,
        3 => 4,
        4 => 3,
        5 => 6,
        6 => 5,
        7 => 8,
        8 => 7,
        // An illegal tag is no turn.
        _ => 2,
    }
}

/// As [`then_mirrored`], top to bottom.
pub const fn then_upside_down(orientation: u8) -> u8 {
    // Half a turn and a mirroring.
    match then_mirrored(orientation) {
        1 => 3,
        2 => 4,
        3 => 1,
        4 => 2,
        5 => 7,
        6 => 8,
        7 => 5,
        _ => 6,
    }
}

/// Copies the samples with columns and rows reversed as asked, then rows for columns.
fn reorder<const C: usize>(stored: &Raster, columns_back: bool, rows_back: bool, transposed: bool) -> Vec<u8> {
    let (width, height) = (stored.size.width as usize, stored.size.height as usize);
    let (pixels, _) = stored.data.as_chunks::<C>();
    let mut out = vec![[0; C]; width * height];
    // Square tiles: a transposition walks one side across cache lines, this keeps those lines warm.
    const TILE: usize = 32;
    for top in (0..height).step_by(TILE) {
        for left in (0..width).step_by(TILE) {
            for y in top..(top + TILE).min(height) {
                let to_y = if rows_back { height - 1 - y } else { y };
                for x in left..(left + TILE).min(width) {
                    let to_x = if columns_back { width - 1 - x } else { x };
                    let to = if transposed { to_x * height + to_y } else { to_y * width + to_x };
                    out[to] = pixels[y * width + x];
                }
            }
        }
    }
    out.into_flattened()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters of a 3x2 picture, whose rows are `abc` and `def`.
    fn letters(channels: usize) -> Raster {
        let data = b"abcdef".iter().flat_map(|&letter| vec![letter; channels]).collect();
        Raster { size: Size::new(3, 2), channels, data }
    }

    #[test]
    fn each_orientation_reads_as_the_standard_says() {
        let upright_rows = [
            (1, "abc def"),
            (2, "cba fed"),
            (3, "fed cba"),
            (4, "def abc"),
            (5, "ad be cf"),
            (6, "da eb fc"),
            (7, "fc eb da"),
            (8, "cf be ad"),
        ];
        for (orientation, rows) in upright_rows {
            for channels in [1, 3, 4] {
                let turned = upright(letters(channels), orientation);
                assert_eq!(turned.size, upright_size(Size::new(3, 2), orientation));
                let first: Vec<u8> = turned.data.chunks(channels).map(|pixel| pixel[0]).collect();
                let got: Vec<&[u8]> = first.chunks(turned.size.width as usize).collect();
                assert_eq!(String::from_utf8(got.join(&b' ')).unwrap(), rows, "orientation {orientation}");
            }
        }
    }

    #[test]
    fn illegal_tags_change_nothing() {
        for orientation in [0, 9, 255] {
            assert_eq!(upright(letters(3), orientation), letters(3));
        }
    }

    #[test]
    fn mirroring_twice_gives_the_picture_back() {
        assert_eq!(mirror(mirror(letters(4))), letters(4));
    }

    #[test]
    fn tiles_join_without_a_seam() {
        let size = Size::new(70, 45);
        let data: Vec<u8> = (0..size.area()).map(|i| (i % 251) as u8).collect();
        let turned = upright(Raster { size, channels: 1, data: data.clone() }, 6);
        for y in 0..45 {
            for x in 0..70 {
                assert_eq!(turned.data[x * 45 + (44 - y)], data[y * 70 + x]);
            }
        }
    }

    #[test]
    fn an_orientation_with_a_mirroring_is_the_two_in_turn() {
        let flipped = |picture: Raster| {
            let (width, channels) = (picture.size.width as usize, picture.channels);
            let data = picture.data.chunks(width * channels).rev().flatten().copied().collect();
            Raster { data, ..picture }
        };
        for orientation in 0..=9 {
            let turned = upright(letters(3), orientation);
            assert_eq!(upright(letters(3), then_mirrored(orientation)), mirror(turned.clone()), "{orientation}");
            assert_eq!(upright(letters(3), then_upside_down(orientation)), flipped(turned), "{orientation}");
        }
    }
}
