//! One file's bytes made into the picture that the encoder gets, exactly as a [`PixelRecipe`] says.

use super::raster::Raster;
use super::refusal::Refusal;
use super::{alpha, colour, decode, orient, resize};
use crate::problem::Kind;
use crate::recipe::{Alpha, Colour, PixelRecipe};
use crate::units::{Rect, Size};

/// The encoder's input in 8 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The bucket.
    pub size: Size,
    /// Interleaved RGB rows, `3 * size.area()` bytes.
    pub rgb: Vec<u8>,
    /// The loss mask of [`Alpha::Keep`], `size.area()` bytes, 255 where the file has no alpha; `None` otherwise.
    pub mask: Option<Vec<u8>>,
}

impl Prepared {
    /// The picture as (3, H, W) in −1 to 1: `v / 255`, less 0.5, by 0.5, each step rounded to f32 as torchvision's
    /// `ToTensor` and `Normalize([0.5], [0.5])` do.
    pub fn to_chw(&self) -> Vec<f32> {
        let table: [f32; 256] = std::array::from_fn(|value| (value as f32 / 255.0 - 0.5) / 0.5);
        let (pixels, _) = self.rgb.as_chunks::<3>();
        let plane = |channel: usize| pixels.iter().map(move |pixel| table[usize::from(pixel[channel])]);
        let mut chw = Vec::with_capacity(self.rgb.len());
        for channel in 0..3 {
            chw.extend(plane(channel));
        }
        chw
    }

    /// Picture and mask mirrored left to right.
    pub fn into_mirrored(self) -> Self {
        let flip = |data: Vec<u8>, channels: usize| orient::mirror(Raster { size: self.size, channels, data }).data;
        Self { size: self.size, rgb: flip(self.rgb, 3), mask: self.mask.map(|mask| flip(mask, 1)) }
    }
}

/// Makes the encoder's input of one image file: decodes, converts colour, turns upright, settles alpha, resizes,
/// crops and mirrors, in this order.
///
/// # Errors
/// What [`decode_as`](super::decode_as()) refuses; `icc` for a profile that was to be applied and cannot be; `damaged`
/// where the file's size does not fit the recipe, which means that it is not the file that was planned.
pub fn prepare(bytes: &[u8], recipe: &PixelRecipe) -> Result<Prepared, Refusal> {
    let mut decoded = decode::decode_as(bytes, recipe.decoder)?;
    let profile = decoded.icc.take().filter(|_| recipe.colour == Colour::IccToSrgb);
    let mut picture = if recipe.clip_gray16 { decoded.into_clipped() } else { decoded.raster };
    if let Some(profile) = profile {
        picture = colour::to_srgb(picture, &profile)?;
    }
    picture = orient::upright(picture, recipe.orientation);
    picture = match recipe.alpha {
        Alpha::Opaque | Alpha::Drop => alpha::drop_alpha(picture),
        Alpha::Composite(background) => alpha::composite(picture, background),
        Alpha::Keep => picture,
    };
    picture = fit(picture, recipe)?;
    if recipe.mirrored {
        picture = orient::mirror(picture);
    }
    let mask = (recipe.alpha == Alpha::Keep).then(|| alpha::alpha_channel(&picture));
    Ok(Prepared { size: picture.size, rgb: into_rgb(picture), mask })
}

/// Scales to the recipe's size and cuts its rectangle out.
fn fit(picture: Raster, recipe: &PixelRecipe) -> Result<Raster, Refusal> {
    let (from, to) = (picture.size, recipe.resized);
    if to.is_empty() || from.is_empty() {
        return Err(Refusal::new(Kind::TooSmall, format!("cannot be scaled from {from} to {to}")));
    }
    let scaled = match recipe.resample {
        Some(filter) => resize::resize(&picture, to, filter),
        None if from == to => picture,
        None => return Err(Refusal::damaged(format!("is {from}, planned as {to}: not the file that was planned"))),
    };
    crop(scaled, recipe.crop)
}

fn crop(picture: Raster, kept: Rect) -> Result<Raster, Refusal> {
    let whole = picture.size;
    let fits = |start: u32, length: u32, all: u32| length > 0 && u64::from(start) + u64::from(length) <= u64::from(all);
    if !fits(kept.left, kept.size.width, whole.width) || !fits(kept.top, kept.size.height, whole.height) {
        let (left, top, size) = (kept.left, kept.top, kept.size);
        return Err(Refusal::damaged(format!("is {whole} after scaling, too small to cut {size} at {left},{top}")));
    }
    if kept == Rect::whole(whole) {
        return Ok(picture);
    }
    let channels = picture.channels;
    let rows = picture.data.chunks_exact(whole.width as usize * channels);
    let columns = kept.left as usize * channels..(kept.left + kept.size.width) as usize * channels;
    let kept_rows = rows.skip(kept.top as usize).take(kept.size.height as usize);
    let data = kept_rows.flat_map(|row| &row[columns.clone()]).copied().collect();
    Ok(Raster { size: kept.size, channels, data })
}

/// RGB rows of any raster: gray is repeated, and only now, since resizing one channel gives what resizing three equal
/// ones gives.
fn into_rgb(picture: Raster) -> Vec<u8> {
    match picture.channels {
        1 => picture.data.into_iter().flat_map(|gray| [gray; 3]).collect(),
        _ => alpha::drop_alpha(picture).data,
    }
}
