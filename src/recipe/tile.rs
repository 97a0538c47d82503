//! Whether a picture may be cut up for the encoder, and how finely.

use std::str::FromStr;

/// What is asked for of tiling. Like a precision it names the least exact result that is accepted: an untiled latent
/// satisfies every request, a tiled one `auto`, and a request for tiles no larger than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tile {
    /// Tiles where a picture would not fit in memory; accepts whatever lies in the cache.
    #[default]
    Auto,
    /// Never tiles.
    Off,
    /// Tiles of this side, in pixels, for every picture that is larger in a direction. A multiple of
    /// [`Tile::STEP`], at least [`Tile::LEAST`].
    Side(u32),
}

impl Tile {
    /// The smallest tile side, in pixels: below it the overlap is a few latents wide, and the group norms see too
    /// little of the picture.
    pub const LEAST: u32 = 256;

    /// Tile sides are multiples of this many pixels, one latent.
    pub const STEP: u32 = 8;

    /// True when what was encoded in tiles of side `ran` satisfies this request; `None` is a side that is unknown.
    pub fn accepts(self, ran: Option<u32>) -> bool {
        match self {
            Self::Auto => true,
            Self::Off => false,
            Self::Side(least) => ran.is_some_and(|side| side >= least),
        }
    }
}

impl std::fmt::Display for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Side(side) => write!(f, "{side}"),
        }
    }
}

impl FromStr for Tile {
    type Err = String;

    /// Reads `auto`, `off` or a side; the error names what is allowed, and for a number the nearest that is.
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse::<u32>()) {
            ("auto", _) => Ok(Self::Auto),
            ("off", _) => Ok(Self::Off),
            (_, Ok(side)) if side < Self::LEAST => {
                Err(format!("a tile has at least {} pixels a side; off switches tiling off", Self::LEAST))
            }
            (_, Ok(side)) if !side.is_multiple_of(Self::STEP) => {
                let below = side - side % Self::STEP;
                Err(format!("a multiple of {} is needed: {below} or {}", Self::STEP, u64::from(below) + 8))
            }
            (_, Ok(side)) => Ok(Self::Side(side)),
            _ => Err(format!("auto, off or a side in pixels is needed, from {} in steps of 8", Self::LEAST)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_back_as_written() {
        for (text, tile) in
            [("auto", Tile::Auto), ("off", Tile::Off), ("256", Tile::Side(256)), ("1032", Tile::Side(1032))]
        {
            assert_eq!((text.parse(), tile.to_string().as_str()), (Ok(tile), text));
        }
    }

    #[test]
    fn a_side_that_makes_no_sense_is_refused_with_what_is_allowed() {
        let refused = |text: &str| text.parse::<Tile>().unwrap_err();
        assert!(refused("248").contains("at least 256"));
        assert!(refused("0").contains("at least 256"));
        assert_eq!(refused("300"), "a multiple of 8 is needed: 296 or 304");
        for text in ["", "on", "-256", "512x512", "99999999999"] {
            assert!(refused(text).starts_with("auto, off or a side"), "{text}");
        }
    }

    #[test]
    fn a_tiled_latent_satisfies_requests_for_tiles_no_larger_than_its_own() {
        assert!(Tile::Auto.accepts(Some(256)) && Tile::Auto.accepts(None));
        assert!(!Tile::Off.accepts(Some(2048)));
        assert!(Tile::Side(512).accepts(Some(512)) && Tile::Side(512).accepts(Some(768)));
        assert!(!Tile::Side(512).accepts(Some(504)) && !Tile::Side(512).accepts(None));
    }
}
