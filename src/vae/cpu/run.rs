//! One picture's way through the layers.

use super::layers::{Attention, DownBlock, Downsampler, NormLayer, Resnet};
use super::plan::{AttentionPlaces, HalvingPlaces, Place, Plan, ResnetPlaces};
use crate::kernels::{
    Aligned, Cpu, Direct, Moments, Norm, Normed, Panels, Shape, Winograd, add_means, attend, normalise, unshuffle,
};
use crate::units::Size;
use crate::vae::layout::UNSHUFFLED;

/// The buffers of one encode, and what is known of the running activation.
pub(super) struct Run<'a> {
    cpu: Cpu,
    values: &'a mut [f32],
    points: &'a mut Aligned,
    /// Where the running activation lies, its shape and its channels' moments.
    x: Place,
    shape: Shape,
    moments: Vec<Moments>,
}

impl<'a> Run<'a> {
    pub(super) fn new(cpu: Cpu, values: &'a mut [f32], points: &'a mut Aligned) -> Self {
        let shape = Shape { height: 0, width: 0, channels: 0 };
        Self { cpu, values, points, x: 0..0, shape, moments: Vec::new() }
    }

    /// (3, H, W) → (H, W, 3).
    pub(super) fn take_picture(&mut self, pixels: &[f32], size: Size, place: &Place) {
        self.shape = Shape { height: size.height as usize, width: size.width as usize, channels: 3 };
        self.x = place.clone();
        let plane = pixels.len() / 3;
        for (i, pixel) in self.values[place.clone()].chunks_exact_mut(3).take(plane).enumerate() {
            pixel.copy_from_slice(&[pixels[i], pixels[plane + i], pixels[2 * plane + i]]);
        }
    }

    pub(super) fn conv_in(&mut self, conv_in: &Direct, plan: &Plan) {
        self.move_through(conv_in, &plan.conv_in);
    }

    /// (H, W, C) → (H/2, W/2, C'), or (H, W, C') in the last level.
    pub(super) fn down_block(&mut self, block: &DownBlock, at: &(Vec<ResnetPlaces>, Option<HalvingPlaces>)) {
        for (resnet, places) in block.resnets.iter().zip(&at.0) {
            self.resnet(resnet, places);
        }
        if let (Some(downsampler), Some(places)) = (&block.downsampler, &at.1) {
            self.halve(downsampler, places);
        }
    }

    /// (H, W, C) → (H/2, W/2, C').
    fn halve(&mut self, downsampler: &Downsampler, at: &HalvingPlaces) {
        let x = (&self.x.clone(), self.shape);
        match (downsampler, &at.conv) {
            (Downsampler::Unshuffled(conv), Some(narrow)) => {
                self.winograd(conv, x, None, narrow, false);
                let (len, shape) = (conv.shape(self.shape).len(), self.shape);
                let [x, narrow, out] = disjoint(self.values, [x.0, narrow, &at.out]);
                self.moments = unshuffle(self.cpu, &narrow[..len], &x[..shape.len()], shape, &mut out[..len]);
                let channels = UNSHUFFLED * conv.channels_out();
                self.shape = Shape { height: shape.height / 2, width: shape.width / 2, channels };
            }
            (downsampler, _) => {
                self.moments = self.winograd(downsampler.conv(), x, None, &at.out, false);
                self.shape = downsampler.conv().shape(self.shape);
            }
        }
        self.x = at.out.clone();
    }

    /// (H, W, C) → (H, W, C').
    pub(super) fn resnet(&mut self, resnet: &Resnet, at: &ResnetPlaces) {
        let norm = resnet.norm1.of(&self.moments);
        let x = (&self.x.clone(), self.shape);
        let moments = self.winograd(&resnet.conv1, x, Some(&norm), &at.hidden, false);
        if let Some(conv_shortcut) = &resnet.conv_shortcut {
            self.direct(conv_shortcut, x, &at.out, false);
        }
        self.x = at.out.clone();
        self.shape.channels = resnet.conv1.channels_out();
        let norm = resnet.norm2.of(&moments);
        self.moments = self.winograd(&resnet.conv2, (&at.hidden, self.shape), Some(&norm), &at.out, true);
    }

    /// One head over all pixels, its output added to the input.
    pub(super) fn attention(&mut self, attention: &Attention, at: &AttentionPlaces) {
        let (cpu, shape) = (self.cpu, self.shape);
        let (tokens, channels) = (shape.height * shape.width, shape.channels);
        let norm = attention.group_norm.of(&self.moments);
        let [x, normed] = disjoint(self.values, [&self.x, &at.normed]);
        normalise(cpu, &x[..shape.len()], &norm, &mut normed[..shape.len()]);
        self.direct(&attention.to_q, (&at.normed, shape), &at.query, false);
        self.direct(&attention.to_k, (&at.normed, shape), &at.keys, false);
        let [loose, keys] = disjoint(self.values, [&at.keys, &at.packed_keys]);
        Panels::pack_into(cpu, channels, tokens, |k, n| loose[n * channels + k], keys);
        // Packed keys stay; the room of the loose ones takes the values.
        self.direct(&attention.to_v, (&at.normed, shape), &at.keys, false);
        let [loose, values] = disjoint(self.values, [&at.keys, &at.packed_values]);
        Panels::pack_into(cpu, tokens, channels, |k, n| loose[k * channels + n], values);
        let places = [&at.query, &at.packed_keys, &at.packed_values, &at.normed];
        let [query, keys, values, out] = disjoint(self.values, places);
        let keys = Panels::packed(cpu, channels, tokens, keys);
        let values = Panels::packed(cpu, tokens, channels, values);
        attend(cpu, &query[..shape.len()], &keys, &values, &mut out[..shape.len()]);
        self.moments = self.direct(&attention.to_out, (&at.normed, shape), &self.x.clone(), true);
    }

    pub(super) fn conv_out(&mut self, norm: &NormLayer, conv_out: &Winograd, plan: &Plan) {
        let norm = norm.of(&self.moments);
        let x = (&self.x.clone(), self.shape);
        self.winograd(conv_out, x, Some(&norm), &plan.conv_out, false);
        self.x = plan.conv_out.clone();
        self.shape.channels = conv_out.channels_out();
    }

    /// Adds to what [`Run::conv_out`] made the means of what it read.
    pub(super) fn add_means(&mut self, plan: &Plan) {
        let (tokens, groups) = (self.shape.height * self.shape.width, self.shape.channels);
        let [x, out] = disjoint(self.values, [&plan.mid[1].out, &self.x]);
        let channels = plan.channels;
        add_means(&x[..tokens * channels], channels, &mut out[..tokens * groups], groups);
    }

    pub(super) fn quant_conv(&mut self, quant_conv: &Direct, plan: &Plan) {
        self.move_through(quant_conv, &plan.quant_conv);
    }

    /// (H, W, C) → (C, H, W).
    pub(super) fn planes(&self) -> Vec<f32> {
        let (values, channels) = (&self.values[self.x.clone()][..self.shape.len()], self.shape.channels);
        (0..channels).flat_map(|c| values.iter().skip(c).step_by(channels).copied()).collect()
    }

    /// Convolves the running activation to `out`, which is the running one then.
    fn move_through(&mut self, conv: &Direct, out: &Place) {
        self.moments = self.direct(conv, (&self.x.clone(), self.shape), out, false);
        self.shape = conv.shape(self.shape);
        self.x = out.clone();
    }

    fn direct(&mut self, conv: &Direct, (x, shape): (&Place, Shape), out: &Place, add: bool) -> Vec<Moments> {
        let [x, out] = disjoint(self.values, [x, out]);
        conv.forward(self.cpu, &x[..shape.len()], shape, &mut out[..conv.shape(shape).len()], add)
    }

    fn winograd(
        &mut self,
        conv: &Winograd,
        (x, shape): (&Place, Shape),
        norm: Option<&Norm>,
        out: &Place,
        add: bool,
    ) -> Vec<Moments> {
        let points = &mut self.points[..conv.points()];
        conv.transform(self.cpu, points);
        let [x, out] = disjoint(self.values, [x, out]);
        let x = Normed { values: &x[..shape.len()], shape, norm };
        conv.forward(self.cpu, x, points, &mut out[..conv.shape(shape).len()], add)
    }
}

/// The values at `places`, which the plan keeps apart.
fn disjoint<'a, const N: usize>(values: &'a mut [f32], places: [&Place; N]) -> [&'a mut [f32]; N] {
    values.get_disjoint_mut(places.map(Place::clone)).expect("the plan keeps places that live together apart")
}
