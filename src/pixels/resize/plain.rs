//! The filters once more, one sample at a time and without a thought for speed: what the fast ones must equal.
//!
//! They share the tables of weights, whose right values the golden pictures prove.

use super::{area, cubic, nearest, pillow, taps};
use crate::pixels::Raster;
use crate::units::Size;

/// A picture whose sample at column, row and channel is what `level` says.
fn picture(size: Size, channels: usize, level: impl Fn(usize, usize, usize) -> u8) -> Raster {
    let (width, height) = (size.width as usize, size.height as usize);
    let mut out = Raster::zeroed(size, channels);
    for y in 0..height {
        for x in 0..width {
            for c in 0..channels {
                out.data[(y * width + x) * channels + c] = level(x, y, c);
            }
        }
    }
    out
}

fn at(source: &Raster, x: usize, y: usize, c: usize) -> u8 {
    source.row(y)[x * source.channels + c]
}

pub(super) fn nearest(source: &Raster, to: Size) -> Raster {
    let columns = nearest::positions(source.size.width, to.width);
    let rows = nearest::positions(source.size.height, to.height);
    picture(to, source.channels, |x, y, c| at(source, columns[x], rows[y], c))
}

pub(super) fn area(source: &Raster, to: Size) -> Raster {
    if to.width > source.size.width || to.height > source.size.height {
        let columns = taps::area_taps(source.size.width, to.width, true);
        let rows = taps::area_taps(source.size.height, to.height, false);
        return tapped(source, &columns, &rows, taps::blend_linear);
    }
    if let Some(ratio) = area::whole_ratio(source.size, to) {
        return blocks(source, to, ratio);
    }
    let columns = area::covers(source.size.width, to.width);
    let rows = area::covers(source.size.height, to.height);
    picture(to, source.channels, |x, y, c| {
        let mut sum = 0f32;
        for (j, weight) in rows[y].weights.iter().enumerate() {
            let mut line = 0f32;
            for (i, weight) in columns[x].weights.iter().enumerate() {
                line += f32::from(at(source, columns[x].first + i, rows[y].first + j, c)) * weight;
            }
            sum += weight * line;
        }
        sum.round_ties_even() as u8
    })
}

fn blocks(source: &Raster, to: Size, (across, down): (usize, usize)) -> Raster {
    let share = 1.0 / (across * down) as f32;
    picture(to, source.channels, |x, y, c| {
        let mut sum = 0;
        for j in 0..down {
            for i in 0..across {
                sum += u32::from(at(source, x * across + i, y * down + j, c));
            }
        }
        if (across, down) == (2, 2) { ((sum + 2) / 4) as u8 } else { (sum as f32 * share).round_ties_even() as u8 }
    })
}

pub(super) fn linear(source: &Raster, to: Size) -> Raster {
    if area::whole_ratio(source.size, to) == Some((2, 2)) {
        return blocks(source, to, (2, 2));
    }
    let columns = taps::linear_taps(source.size.width, to.width, true);
    let rows = taps::linear_taps(source.size.height, to.height, false);
    tapped(source, &columns, &rows, taps::blend_linear)
}

pub(super) fn cubic(source: &Raster, to: Size) -> Raster {
    if source.size.width < 4 || source.size.height < 4 {
        let columns = taps::cubic_taps(source.size.width, to.width);
        let rows = taps::cubic_taps(source.size.height, to.height);
        return tapped(source, &columns, &rows, taps::blend_cubic);
    }
    let columns = cubic::neighbours(source.size.width, to.width);
    let rows = cubic::neighbours(source.size.height, to.height);
    picture(to, source.channels, |x, y, c| {
        let mut sum = 0f32;
        for i in 0..4 {
            let mut line = 0f32;
            for j in 0..4 {
                line += f32::from(at(source, columns[x].positions[i], rows[y].positions[j], c)) * rows[y].weights[j];
            }
            sum += line * columns[x].weights[i];
        }
        sum.round_ties_even() as u8
    })
}

/// Sums every row of the source, then brings together those that a target row needs.
fn tapped<const K: usize>(
    source: &Raster,
    columns: &[taps::Taps<K>],
    rows: &[taps::Taps<K>],
    blend: taps::Blend<K>,
) -> Raster {
    let line = |y: usize| {
        let sample = |i: usize| {
            let taps = &columns[i / source.channels];
            let product = |k: usize| i32::from(at(source, taps.positions[k], y, i % source.channels)) * taps.weights[k];
            (0..K).map(product).sum()
        };
        (0..columns.len() * source.channels).map(sample).collect::<Vec<i32>>()
    };
    let lines: Vec<Vec<i32>> = (0..source.size.height as usize).map(line).collect();
    let mut out = Raster::zeroed(Size::new(columns.len() as u32, rows.len() as u32), source.channels);
    let stride = out.stride();
    for (target, taps) in out.data.chunks_exact_mut(stride).zip(rows) {
        blend(&taps.positions.map(|y| lines[y].as_slice()), &taps.weights, target);
    }
    out
}

pub(super) fn pillow(source: &Raster, to: Size, kernel: &pillow::Kernel) -> Raster {
    if pillow::rows_first(source.size, to) {
        pillow_columns(&pillow_rows(source, to.height, kernel), to.width, kernel)
    } else {
        pillow_rows(&pillow_columns(source, to.width, kernel), to.height, kernel)
    }
}

fn pillow_columns(source: &Raster, width: u32, kernel: &pillow::Kernel) -> Raster {
    if width == source.size.width {
        return source.clone();
    }
    let windows = pillow::windows(source.size.width, width, kernel);
    picture(Size::new(width, source.size.height), source.channels, |x, y, c| {
        weighted(&windows[x], |i| at(source, i, y, c))
    })
}

fn pillow_rows(source: &Raster, height: u32, kernel: &pillow::Kernel) -> Raster {
    if height == source.size.height {
        return source.clone();
    }
    let windows = pillow::windows(source.size.height, height, kernel);
    picture(Size::new(source.size.width, height), source.channels, |x, y, c| {
        weighted(&windows[y], |i| at(source, x, i, c))
    })
}

fn weighted(window: &pillow::Window, level: impl Fn(usize) -> u8) -> u8 {
    let products = window.weights.iter().enumerate().map(|(i, weight)| i32::from(level(window.first + i)) * weight);
    pillow::to_level(pillow::HALF + products.sum::<i32>())
}
