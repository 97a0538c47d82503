//! The kernels' twins: the definitions, in f64, without tricks.

use super::Shape;

/// A convolution of `x` to (H / stride, W / stride, out); zeros beyond the edges.
pub(super) fn convolve(
    x: &[f64],
    shape: Shape,
    weight: &[f32],
    bias: &[f32],
    (side, stride, pad): (usize, usize, usize),
) -> Vec<f64> {
    let (height, width, out) = (shape.height / stride, shape.width / stride, bias.len());
    let at = |row: isize, column: isize, channel: usize| {
        let inside = (0..shape.height as isize).contains(&row) && (0..shape.width as isize).contains(&column);
        if inside { x[(row as usize * shape.width + column as usize) * shape.channels + channel] } else { 0.0 }
    };
    let mut result = Vec::new();
    for place in 0..height * width {
        let top = (place / width * stride) as isize - pad as isize;
        let left = (place % width * stride) as isize - pad as isize;
        for n in 0..out {
            let mut sum = f64::from(bias[n]);
            for c in 0..shape.channels {
                for tap in 0..side * side {
                    let value = at(top + (tap / side) as isize, left + (tap % side) as isize, c);
                    sum += value * f64::from(weight[(n * shape.channels + c) * side * side + tap]);
                }
            }
            result.push(sum);
        }
    }
    result
}

/// Mean and variance of each channel.
pub(super) fn moments(x: &[f64], channels: usize) -> Vec<(f64, f64)> {
    let count = (x.len() / channels) as f64;
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count;
    (0..channels)
        .map(|c| {
            let channel = || x.iter().skip(c).step_by(channels).copied();
            let middle = mean(&mut channel());
            (middle, mean(&mut channel().map(|value| (value - middle).powi(2))))
        })
        .collect()
}

/// The group norm of diffusers: biased variance, `epsilon` under the root.
pub(super) fn group_norm(x: &[f64], groups: usize, weight: &[f32], bias: &[f32], epsilon: f64) -> Vec<f64> {
    let (channels, each) = (weight.len(), weight.len() / groups);
    let mut out = x.to_vec();
    for group in 0..groups {
        let members = |index: usize| (index % channels) / each == group;
        let values: Vec<f64> = x.iter().enumerate().filter(|(i, _)| members(*i)).map(|(_, v)| *v).collect();
        let (mean, variance) = moments(&values, 1)[0];
        for (index, value) in out.iter_mut().enumerate().filter(|(i, _)| members(*i)) {
            let c = index % channels;
            *value = (*value - mean) / (variance + epsilon).sqrt() * f64::from(weight[c]) + f64::from(bias[c]);
        }
    }
    out
}

/// Each pixel over its own root mean square, times `gamma`; 0 where a pixel is 0.
pub(super) fn rms_norm(x: &[f64], gamma: &[f32]) -> Vec<f64> {
    let channels = gamma.len();
    let pixel = |pixel: &[f64]| {
        let root = pixel.iter().map(|value| value * value).sum::<f64>().sqrt().max(1e-12) / (channels as f64).sqrt();
        pixel.iter().zip(gamma).map(|(value, gamma)| value / root * f64::from(*gamma)).collect::<Vec<_>>()
    };
    x.chunks_exact(channels).flat_map(pixel).collect()
}

pub(super) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// softmax(query · keysᵀ) · values, all (T, C).
pub(super) fn attend(query: &[f32], keys: &[f32], values: &[f32], channels: usize) -> Vec<f64> {
    let row =
        |x: &[f32], t: usize| x[t * channels..(t + 1) * channels].iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
    let tokens = keys.len() / channels;
    let mut out = Vec::new();
    for q in 0..query.len() / channels {
        let query = row(query, q);
        let score = |t| row(keys, t).iter().zip(&query).map(|(k, q)| k * q).sum::<f64>();
        let scores: Vec<f64> = (0..tokens).map(score).collect();
        let maximum = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - maximum).exp()).collect();
        let total: f64 = weights.iter().sum();
        let weighed = |c| weights.iter().enumerate().map(|(t, w)| w * f64::from(values[t * channels + c])).sum::<f64>();
        out.extend((0..channels).map(|c| weighed(c) / total));
    }
    out
}
