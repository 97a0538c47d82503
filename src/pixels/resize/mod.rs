//! Resampling as the trainers' libraries do it, level for level.
//!
//! Owns the filters of OpenCV 4.10 and Pillow 13 that trainers use, on 8-bit pictures; every rounding of theirs is
//! part of the contract, since a level more or less is another latent. Refuses nothing: an empty side, on either
//! end, gives a picture of zeros. How large a target may be is the caller's to bound.
//!
//! | module | filters |
//! |---|---|
//! | `area` | OpenCV `INTER_AREA` where neither side grows |
//! | `cubic` | OpenCV `INTER_CUBIC` |
//! | `taps` | OpenCV `INTER_LINEAR`, `INTER_AREA` where a side grows, `INTER_CUBIC` of the smallest pictures |
//! | `nearest` | OpenCV `INTER_NEAREST_EXACT` |
//! | `pillow` | Pillow `LANCZOS`, `BICUBIC`, `BILINEAR`, `BOX` |
//! | `alpha` | Pillow's way from straight to multiplied alpha and back |
//!
//! Rows are shared out to threads; the bytes do not depend on their number. `plain` holds a slow, obvious twin of
//! each filter for the tests.

mod alpha;
mod area;
mod cubic;
mod nearest;
mod pillow;
#[cfg(test)]
mod plain;
mod taps;

use crate::pixels::Raster;
use crate::recipe::Resample;
use crate::units::Size;

/// Scales `source` to `to` with `filter`; a picture that already has this size is copied.
///
/// With 4 channels Pillow's filters multiply colour by alpha before and divide after; OpenCV's treat the four alike.
pub fn resize(source: &Raster, to: Size, filter: Resample) -> Raster {
    if source.size == to {
        return source.clone();
    }
    if source.size.is_empty() || to.is_empty() {
        return Raster::zeroed(to, source.channels);
    }
    match filter {
        Resample::Cv2Area => area::resize(source, to),
        Resample::Cv2Linear => taps::linear(source, to),
        Resample::Cv2Cubic => cubic::resize(source, to),
        Resample::Cv2NearestExact => nearest::resize(source, to),
        Resample::PillowLanczos => pillow_resize(source, to, &pillow::LANCZOS),
        Resample::PillowBicubic => pillow_resize(source, to, &pillow::BICUBIC),
        Resample::PillowBilinear => pillow_resize(source, to, &pillow::BILINEAR),
        Resample::PillowBox => pillow_resize(source, to, &pillow::BOX),
    }
}

fn pillow_resize(source: &Raster, to: Size, kernel: &pillow::Kernel) -> Raster {
    if source.channels != 4 {
        return pillow::resize(source, to, kernel);
    }
    let mut resized = pillow::resize(&alpha::multiplied(source), to, kernel);
    alpha::divide(&mut resized);
    resized
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn picture()(
            width in 1u32..60, height in 1u32..90, channels in prop::sample::select(vec![1usize, 3, 4]),
        )(
            data in prop::collection::vec(prop_oneof![Just(0u8), Just(255u8), any::<u8>()],
                (width * height) as usize * channels),
            width in Just(width), height in Just(height), channels in Just(channels),
        ) -> Raster {
            Raster { size: Size::new(width, height), channels, data }
        }
    }

    /// Any size, or one that the source is a whole multiple of where it can be.
    fn target(source: Size) -> impl Strategy<Value = Size> {
        let whole =
            (1u32..5, 1u32..5).prop_map(move |(x, y)| Size::new((source.width / x).max(1), (source.height / y).max(1)));
        prop_oneof![(1u32..90, 1u32..90).prop_map(|(width, height)| Size::new(width, height)), whole]
    }

    fn picture_and_target() -> impl Strategy<Value = (Raster, Size)> {
        picture().prop_flat_map(|picture| {
            let size = picture.size;
            (Just(picture), target(size))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_fast_filter_equals_its_plain_twin((source, to) in picture_and_target()) {
            prop_assert_eq!(nearest::resize(&source, to), plain::nearest(&source, to));
            prop_assert_eq!(area::resize(&source, to), plain::area(&source, to));
            prop_assert_eq!(taps::linear(&source, to), plain::linear(&source, to));
            prop_assert_eq!(cubic::resize(&source, to), plain::cubic(&source, to));
            for kernel in [&pillow::LANCZOS, &pillow::BICUBIC, &pillow::BILINEAR, &pillow::BOX] {
                prop_assert_eq!(pillow::resize(&source, to, kernel), plain::pillow(&source, to, kernel));
            }
        }
    }

    #[test]
    fn one_thread_and_many_give_the_same_bytes() {
        let size = Size::new(301, 407);
        let data = (0..size.area() * 3).map(|i| (i * i % 251) as u8).collect();
        let source = Raster { size, channels: 3, data };
        let with_threads = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let filters = [Resample::Cv2Area, Resample::Cv2Linear, Resample::Cv2Cubic, Resample::PillowLanczos];
            pool.install(|| filters.map(|filter| resize(&source, Size::new(211, 283), filter)))
        };
        assert_eq!(with_threads(1), with_threads(5));
    }

    #[test]
    fn multiplying_by_alpha_rounds_to_nearest_and_dividing_rounds_down() {
        let source =
            Raster { size: Size::new(3, 1), channels: 4, data: vec![255, 100, 1, 128, 9, 9, 9, 0, 7, 8, 9, 255] };
        let mut picture = alpha::multiplied(&source);
        assert_eq!(picture.data, [128, 50, 1, 128, 0, 0, 0, 0, 7, 8, 9, 255]);
        alpha::divide(&mut picture);
        assert_eq!(picture.data, [255, 99, 1, 128, 0, 0, 0, 0, 7, 8, 9, 255]);
    }
}
