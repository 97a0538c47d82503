//! A histogram of lengths as a picture: SVG, or PNG without words.

use super::bins;
use crate::lengths::Histogram;
use crate::units::thousands;
use image::{Rgb, RgbImage};
use std::fmt::Write;

const WIDTH: u32 = 800;
const HEIGHT: u32 = 360;
const MARGIN: u32 = 48;

/// A line across the bars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Tokens.
    pub length: u32,
    /// What it stands for.
    pub label: String,
}

/// A bar: left, top, width and height in pixels.
type Bar = (u32, u32, u32, u32);

fn bars(lengths: &Histogram) -> Vec<Bar> {
    let bins = bins(lengths);
    let most = bins.iter().map(|&(.., count)| count).max().unwrap_or(0).max(1);
    let step = (WIDTH - 2 * MARGIN) / (bins.len() as u32).max(1);
    let room = u64::from(HEIGHT - 2 * MARGIN);
    bins.iter()
        .zip(0..)
        .map(|(&(.., count), i)| {
            let height = (count * room).div_ceil(most) as u32;
            (MARGIN + i * step, HEIGHT - MARGIN - height, step.saturating_sub(2).max(1), height)
        })
        .collect()
}

/// Where a length lies across; what is longer than all bins lies behind them.
fn across(lengths: &Histogram, length: u32) -> u32 {
    let bins = bins(lengths);
    let step = (WIDTH - 2 * MARGIN) / (bins.len() as u32).max(1);
    let holds = |&(start, end, _): &(u32, Option<u32>, u64)| length >= start && end.is_none_or(|end| length <= end);
    let Some(place) = bins.iter().position(holds) else { return MARGIN + bins.len() as u32 * step };
    let (start, end, _) = bins[place];
    let width = end.map_or(1, |end| end - start + 1);
    let inside = if end.is_none() { step / 2 } else { (length - start) * step / width };
    MARGIN + place as u32 * step + inside
}

/// The histogram as SVG, with marks and their words.
pub fn svg(title: &str, lengths: &Histogram, marks: &[Mark]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    for ((x, y, width, height), (start, _, count)) in bars(lengths).into_iter().zip(bins(lengths)) {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"#4878a8\"><title>{} from {}</title></rect>\n\
             <text x=\"{x}\" y=\"{}\">{}</text>",
            thousands(count),
            thousands(start.into()),
            HEIGHT - MARGIN + 16,
            thousands(start.into())
        );
    }
    for (mark, line) in marks.iter().zip(0..) {
        let x = across(lengths, mark.length);
        let (top, bottom) = (MARGIN - 8, HEIGHT - MARGIN);
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#b03030\" stroke-dasharray=\"4 3\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"#b03030\">{} {}</text>",
            x + 4,
            top + 12 + 14 * line,
            escaped(&mark.label),
            thousands(mark.length.into())
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The histogram as pixels, with marks but without words.
pub fn pixels(lengths: &Histogram, marks: &[Mark]) -> RgbImage {
    let mut image = RgbImage::from_pixel(WIDTH, HEIGHT, Rgb([255; 3]));
    for (left, top, width, height) in bars(lengths) {
        for (x, y) in (left..left + width).flat_map(|x| (top..top + height).map(move |y| (x, y))) {
            image.put_pixel(x, y, Rgb([0x48, 0x78, 0xa8]));
        }
    }
    (MARGIN..WIDTH - MARGIN).for_each(|x| image.put_pixel(x, HEIGHT - MARGIN, Rgb([0; 3])));
    for x in marks.iter().map(|mark| across(lengths, mark.length)) {
        (MARGIN - 8..HEIGHT - MARGIN)
            .filter(|y| y % 7 < 4)
            .for_each(|y| image.put_pixel(x, y, Rgb([0xb0, 0x30, 0x30])));
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_counts_and_marks_lie_in_their_bin() {
        let lengths: Histogram = (0..160).map(|i| if i < 120 { 5 } else { 155 }).collect();
        let drawn = bars(&lengths);
        let heights: Vec<u32> = drawn.iter().map(|bar| bar.3).filter(|&height| height > 0).collect();
        assert_eq!(heights, [264, 88]);
        let mark = Mark { length: 155, label: "p95 <".into() };
        let svg = svg("a & b", &lengths, std::slice::from_ref(&mark));
        assert!(svg.contains("a &amp; b") && svg.contains("p95 &lt; 155"));
        let x = across(&lengths, 155);
        let last = drawn.iter().rfind(|bar| bar.3 > 0).unwrap();
        assert!((last.0..last.0 + last.2 + 2).contains(&x));
        assert_eq!(*pixels(&lengths, &[mark]).get_pixel(x, 45), Rgb([0xb0, 0x30, 0x30]));
    }
}
