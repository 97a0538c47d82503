//! Facts about a sound image that harm training, in words. What happens to each depends on the trainer.

use super::probe::{Probe, Profile};
use crate::pixels::Format;
use crate::problem::{Kind, Problem};

/// The warnings that a probe gives reason for; `name` is the path as shown.
pub fn hazards(name: &str, probe: &Probe) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut warn = |kind, message: String| found.push(Problem::warning(name, kind, message));
    if probe.transparent {
        warn(Kind::Alpha, "has transparency; trainers drop it, fill it or mask by it".to_owned());
    }
    if probe.orientation != 1 {
        let (stored, upright) = (probe.size, probe.upright());
        let tag = probe.orientation;
        warn(
            Kind::Oriented,
            format!("has EXIF orientation {tag}: stored {stored}, upright {upright}; some trainers ignore it"),
        );
    }
    if probe.profile == Profile::Other {
        warn(Kind::Icc, "has a colour profile other than sRGB; most trainers ignore it".to_owned());
    }
    if probe.profile == Profile::Unusable {
        warn(
            Kind::Icc,
            "has a colour profile that cannot be applied to it; its values are taken as they are".to_owned(),
        );
    }
    if probe.bits > 8 {
        warn(Kind::BitDepth, format!("has {} bits a channel; 8 are kept, and some trainers clip", probe.bits));
    }
    if probe.frames > 1 {
        let what = if probe.format == Format::Tiff { "pages" } else { "frames" };
        warn(Kind::Animated, format!("has {} {what}; only the first is used", probe.frames));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;

    const PLAIN: Probe = Probe {
        format: Format::Png,
        size: Size::new(64, 48),
        orientation: 1,
        bits: 8,
        gray: false,
        alpha_channel: true,
        keyed_alpha: false,
        transparent: false,
        profile: Profile::Srgb,
        frames: 1,
        extended_webp: false,
    };

    #[test]
    fn a_plain_picture_is_no_hazard_even_with_an_opaque_alpha_channel() {
        assert_eq!(hazards("a.png", &PLAIN), []);
    }

    #[test]
    fn each_fact_gives_its_own_warning() {
        let worst = Probe { orientation: 6, bits: 16, transparent: true, profile: Profile::Other, frames: 3, ..PLAIN };
        let found = hazards("a.png", &worst);
        let kinds: Vec<_> = found.iter().map(|problem| problem.kind).collect();
        assert_eq!(kinds, [Kind::Alpha, Kind::Oriented, Kind::Icc, Kind::BitDepth, Kind::Animated]);
        assert!(found[1].message.contains("stored 64x48, upright 48x64"), "{}", found[1].message);
        assert!(found.iter().all(|problem| !problem.is_error()));
    }
}
