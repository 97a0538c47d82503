//! What happens to transparency: dropped, laid over a colour, or kept.

use super::raster::Raster;

/// True when any pixel is not fully opaque; an alpha channel of 255 throughout is no transparency.
pub fn is_transparent(picture: &Raster) -> bool {
    picture.channels == 4 && picture.data.as_chunks::<4>().0.iter().any(|pixel| pixel[3] != 255)
}

/// Cuts the alpha channel off; colours hidden under it show. Pictures without one pass.
pub(super) fn drop_alpha(picture: Raster) -> Raster {
    map_to_rgb(picture, |[r, g, b, _]| [r, g, b])
}

/// Lays the picture over one colour; pictures without an alpha channel pass.
pub(super) fn composite(picture: Raster, background: [u8; 3]) -> Raster {
    map_to_rgb(picture, |[r, g, b, a]| {
        let [below_r, below_g, below_b] = background;
        [over(r, below_r, a), over(g, below_g, a), over(b, below_b, a)]
    })
}

/// The alpha channel alone; 255 throughout for a picture without one.
pub(super) fn alpha_channel(picture: &Raster) -> Vec<u8> {
    match picture.channels {
        4 => picture.data.as_chunks::<4>().0.iter().map(|pixel| pixel[3]).collect(),
        _ => vec![255; picture.size.area() as usize],
    }
}

fn map_to_rgb(picture: Raster, to_rgb: impl Fn([u8; 4]) -> [u8; 3]) -> Raster {
    if picture.channels != 4 {
        return picture;
    }
    let pixels: Vec<[u8; 3]> = picture.data.as_chunks::<4>().0.iter().map(|&pixel| to_rgb(pixel)).collect();
    Raster { size: picture.size, channels: 3, data: pixels.into_flattened() }
}

/// One channel of `above` with `alpha` over an opaque `below`, rounded as Pillow's `alpha_composite` does:
/// 7 further bits of the weighted sum are kept, and both divisions by 255 and by 128 round half up together.
fn over(above: u8, below: u8, alpha: u8) -> u8 {
    let (above, below, alpha) = (u32::from(above), u32::from(below), u32::from(alpha));
    let sum = (above * alpha + below * (255 - alpha)) * 128 + (128 << 7);
    ((((sum >> 8) + sum) >> 8) >> 7) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;

    fn pixel(rgba: [u8; 4]) -> Raster {
        Raster { size: Size::new(1, 1), channels: 4, data: rgba.to_vec() }
    }

    #[test]
    fn compositing_is_the_rounded_weighted_mean_and_exact_at_both_ends() {
        for above in 0..=255 {
            for below in [0, 1, 127, 254, 255] {
                assert_eq!(over(above, below, 255), above);
                assert_eq!(over(above, below, 0), below);
                for alpha in 1..255_u8 {
                    let weight = f64::from(alpha) / 255.0;
                    let exact = f64::from(above) * weight + f64::from(below) * (1.0 - weight);
                    let got = f64::from(over(above, below, alpha));
                    assert!((got - exact).abs() <= 0.51, "{above} over {below} at {alpha}: {got}, not {exact}");
                }
            }
        }
    }

    #[test]
    fn hidden_colours_show_when_dropped_and_never_when_composited() {
        let hidden = pixel([220, 30, 30, 0]);
        assert_eq!(drop_alpha(hidden.clone()).data, [220, 30, 30]);
        assert_eq!(composite(hidden, [255, 255, 255]).data, [255, 255, 255]);
    }

    #[test]
    fn an_opaque_alpha_channel_is_no_transparency() {
        assert!(!is_transparent(&pixel([1, 2, 3, 255])));
        assert!(is_transparent(&pixel([1, 2, 3, 254])));
    }
}
