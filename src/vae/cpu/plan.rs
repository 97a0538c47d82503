//! Where each activation of an encode lies in one buffer, decided before the first multiplication.
//!
//! A convolution cannot write over what it reads, so two activations of a level live at a time: a resnet's input, and
//! what lies between its two convolutions. The second convolution adds its output to the input, in place.

use crate::units::Size;
use crate::vae::layout::{EncoderLayout, UNSHUFFLED};
use std::ops::Range;

/// Room for one activation, in values.
pub(super) type Place = Range<usize>;

/// The places of one picture's activations.
pub(super) struct Plan {
    /// The picture, (H, W, 3).
    pub(super) pixels: Place,
    pub(super) conv_in: Place,
    /// Each level's resnets, and its halving.
    pub(super) levels: Vec<(Vec<ResnetPlaces>, Option<HalvingPlaces>)>,
    pub(super) mid: [ResnetPlaces; 2],
    pub(super) attention: AttentionPlaces,
    pub(super) conv_out: Place,
    pub(super) quant_conv: Place,
    /// Channels of the last level.
    pub(super) channels: usize,
    /// Values of the whole buffer.
    pub(super) len: usize,
}

/// Places of a resnet; `out` is that of its input where the channels stay.
pub(super) struct ResnetPlaces {
    /// Between the two convolutions.
    pub(super) hidden: Place,
    pub(super) out: Place,
}

/// Places of a halving.
pub(super) struct HalvingPlaces {
    /// What the convolution makes before its pixels become channels; none where it skips pixels.
    pub(super) conv: Option<Place>,
    pub(super) out: Place,
}

/// Places of the attention, each (T, C); of packed ones T or C is filled up to [`PACKED_MULTIPLE`].
pub(super) struct AttentionPlaces {
    /// The normalised input; in the end what was attended to.
    pub(super) normed: Place,
    pub(super) query: Place,
    /// Keys, then values, before they are packed.
    pub(super) keys: Place,
    pub(super) packed_keys: Place,
    pub(super) packed_values: Place,
}

impl AttentionPlaces {
    fn all(&self) -> [&Place; 5] {
        [&self.normed, &self.query, &self.keys, &self.packed_keys, &self.packed_values]
    }
}

/// No panel of packed columns is wider.
pub(super) const PACKED_MULTIPLE: usize = 32;

impl Plan {
    /// Plans for pictures of `size`, sides being multiples of the layout's stride. `None` where a count overflows.
    pub(super) fn new(layout: &EncoderLayout, size: Size) -> Option<Self> {
        let area = |level: usize| usize::try_from(size.area() >> (2 * level)).ok();
        let channels = &layout.block_out_channels;
        let (first, last) = (*channels.first()?, *channels.last()?);
        let mut room = Room::default();
        let mut x = room.take(area(0)?.checked_mul(first)?)?;
        let conv_in = x.clone();
        let pixels = room.take(area(0)?.checked_mul(3)?)?;
        room.give(&pixels);
        let mut levels = Vec::new();
        for (level, &out) in channels.iter().enumerate() {
            let mut resnets = Vec::new();
            for layer in 0..layout.layers_per_block {
                let into = if layer == 0 { layout.into(level) } else { out };
                resnets.push(room.resnet(x, area(level)?, into, out)?);
                x = resnets.last()?.out.clone();
            }
            let halving = match layout.halved(level) {
                None => None,
                Some(halved) => {
                    let unshuffles = layout.network.unshuffles();
                    let halving = room.halving(&x, [area(level)?, area(level + 1)?], halved, unshuffles)?;
                    x = halving.out.clone();
                    Some(halving)
                }
            };
            levels.push((resnets, halving));
        }
        let tokens = area(channels.len() - 1)?;
        let before = room.resnet(x, tokens, last, last)?;
        let attention = room.attention(tokens, last)?;
        let after = room.resnet(before.out.clone(), tokens, last, last)?;
        let conv_out = room.take(tokens.checked_mul(2 * layout.latent_channels)?)?;
        let quant_conv = room.take(conv_out.len())?;
        let mid = [before, after];
        Some(Self { pixels, conv_in, levels, mid, attention, conv_out, quant_conv, channels: last, len: room.len })
    }
}

/// First-fit room in one buffer.
#[derive(Default)]
struct Room {
    /// In order, apart from each other.
    taken: Vec<Place>,
    len: usize,
}

impl Room {
    fn take(&mut self, len: usize) -> Option<Place> {
        // Whole cache lines, so that every activation starts at one.
        let len = len.checked_next_multiple_of(16)?;
        let ends = || std::iter::once(0).chain(self.taken.iter().map(|place| place.end));
        let starts = self.taken.iter().map(|place| place.start).chain([usize::MAX]);
        let (index, start) = ends().zip(starts).enumerate().find_map(|(i, (a, b))| (b - a >= len).then_some((i, a)))?;
        let place = start..start.checked_add(len)?;
        self.taken.insert(index, place.clone());
        self.len = self.len.max(place.end);
        Some(place)
    }

    fn give(&mut self, place: &Place) {
        self.taken.retain(|taken| taken != place);
    }

    /// Takes a resnet's places; of these only `out` stays taken.
    fn resnet(&mut self, x: Place, area: usize, into: usize, out: usize) -> Option<ResnetPlaces> {
        let hidden = self.take(area.checked_mul(out)?)?;
        if into == out {
            self.give(&hidden);
            return Some(ResnetPlaces { hidden, out: x });
        }
        let out = self.take(area.checked_mul(out)?)?;
        self.give(&hidden);
        self.give(&x);
        Some(ResnetPlaces { hidden, out })
    }

    /// Takes a halving's places, from the first of `areas` to the second; of these only `out` stays taken.
    fn halving(&mut self, x: &Place, areas: [usize; 2], out: usize, unshuffles: bool) -> Option<HalvingPlaces> {
        let conv = if unshuffles { Some(self.take(areas[0].checked_mul(out)?)?) } else { None };
        let channels = if unshuffles { UNSHUFFLED.checked_mul(out)? } else { out };
        let out = self.take(areas[1].checked_mul(channels)?)?;
        conv.iter().chain([x]).for_each(|place| self.give(place));
        Some(HalvingPlaces { conv, out })
    }

    fn attention(&mut self, tokens: usize, channels: usize) -> Option<AttentionPlaces> {
        let len = tokens.checked_mul(channels)?;
        let packed = |fixed: usize, filled: usize| fixed.checked_mul(filled.checked_next_multiple_of(PACKED_MULTIPLE)?);
        let places = AttentionPlaces {
            normed: self.take(len)?,
            query: self.take(len)?,
            keys: self.take(len)?,
            packed_keys: self.take(packed(channels, tokens)?)?,
            packed_values: self.take(packed(tokens, channels)?)?,
        };
        places.all().into_iter().for_each(|place| self.give(place));
        Some(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(channels: [usize; 4]) -> EncoderLayout {
        EncoderLayout { block_out_channels: channels.to_vec(), ..EncoderLayout::sdxl() }
    }

    #[test]
    fn the_sdxl_encoder_holds_two_activations_of_its_first_level() {
        let plan = Plan::new(&layout([128, 256, 512, 512]), Size::new(1024, 1024)).unwrap();
        assert_eq!(plan.len, 2 * 128 * 1024 * 1024);
    }

    #[test]
    fn the_other_encoders_hold_no_more() {
        let size = Size::new(1024, 1024);
        assert_eq!(Plan::new(&EncoderLayout::wan(), size).unwrap().len, 2 * 96 * 1024 * 1024);
        assert_eq!(Plan::new(&EncoderLayout::hunyuan_image(), size).unwrap().len, 2 * 128 * 1024 * 1024);
    }

    #[test]
    fn what_lives_at_the_same_time_never_overlaps() {
        let unshuffled = [[32, 32, 64, 64, 128, 128], [32, 128, 512, 128, 128, 128]];
        let unshuffled = unshuffled
            .map(|channels| EncoderLayout { block_out_channels: channels.to_vec(), ..EncoderLayout::hunyuan_image() });
        let strided = [[128, 256, 512, 512], [32, 512, 64, 512], [96, 96, 96, 96]].map(layout);
        for layout in strided.into_iter().chain(unshuffled).chain([EncoderLayout::wan()]) {
            for (width, height) in [(1, 1), (1, 125), (168, 88)] {
                check_apart(&Plan::new(&layout, Size::new(width * layout.stride(), height * layout.stride())).unwrap());
            }
        }
    }

    fn check_apart(plan: &Plan) {
        let apart = |a: &Place, b: &Place| assert!(a.end <= b.start || b.end <= a.start, "{a:?} {b:?}");
        apart(&plan.pixels, &plan.conv_in);
        let mut x = &plan.conv_in;
        for (resnets, halving) in &plan.levels {
            for ResnetPlaces { hidden, out } in resnets {
                apart(x, hidden);
                apart(hidden, out);
                assert!(x == out || x.end <= out.start || out.end <= x.start);
                x = out;
            }
            if let Some(HalvingPlaces { conv, out }) = halving {
                apart(x, out);
                conv.iter().for_each(|conv| {
                    apart(x, conv);
                    apart(conv, out);
                });
                x = out;
            }
        }
        let together = plan.attention.all();
        for (i, a) in together.iter().enumerate() {
            apart(a, &plan.mid[0].out);
            together[..i].iter().for_each(|b| apart(a, b));
        }
        apart(&plan.conv_out, &plan.mid[1].out);
        apart(&plan.conv_out, &plan.quant_conv);
    }

    #[test]
    fn a_picture_beyond_all_memory_has_no_plan() {
        assert!(Plan::new(&layout([128, 256, 512, 512]), Size::new(u32::MAX - 7, u32::MAX - 7)).is_none());
    }
}
