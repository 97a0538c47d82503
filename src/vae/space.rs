//! Putting a latent into the space that it is stored in.

use crate::recipe::Space;

/// Added to a variance before its root (`batch_norm_eps` of Flux.2's VAE config, and of its makers' code).
const BATCH_NORM_EPS: f64 = 1e-4;

/// Wan 2.1's published means of the 16 channels (`latents_mean` of its VAE config); Qwen-Image's are the same.
const WAN_MEAN: [f32; 16] = [
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922,
    -0.9497, 0.2503, -0.2921,
];

/// Their deviations (`latents_std`).
const WAN_DEVIATION: [f32; 16] = [
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253,
    2.8251, 1.916,
];

/// The batch norm that stands behind Flux.2's encoder, of patched latents.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorm {
    mean: Vec<f32>,
    deviation: Vec<f32>,
}

impl BatchNorm {
    /// From the running statistics of its channels.
    pub fn new(mean: &[f32], variance: &[f32]) -> Self {
        let deviation = |variance: &f32| (f64::from(*variance) + BATCH_NORM_EPS).sqrt() as f32;
        Self { mean: mean.to_vec(), deviation: variance.iter().map(deviation).collect() }
    }
}

/// Puts a latent of `shape`, (C, H, W) row-major, into `space`: row-major of [`Space::shape`], in f32.
///
/// # Errors
/// In words: a batch norm without statistics, a latent that cannot be patched, another number of channels than the space
/// has.
pub fn put(space: Space, values: Vec<f32>, shape: [usize; 3], norm: Option<&BatchNorm>) -> Result<Vec<f32>, String> {
    let (values, mean, deviation) = match space {
        Space::Affine => return Ok(values),
        Space::Wan => (values, &WAN_MEAN[..], &WAN_DEVIATION[..]),
        Space::BatchNormed => {
            let norm = norm.ok_or("the VAE file has no batch norm statistics (`bn.running_mean`)")?;
            (patched(&values, shape)?, &norm.mean[..], &norm.deviation[..])
        }
    };
    let [channels, height, width] = space.shape(shape);
    if mean.len() != channels {
        return Err(format!("the latent has {channels} channels, allowed are {}", mean.len()));
    }
    let channel = |(values, (mean, deviation)): (&[f32], (&f32, &f32))| {
        values.iter().map(|value| (value - mean) / deviation).collect::<Vec<_>>()
    };
    Ok(values.chunks_exact(height * width).zip(mean.iter().zip(deviation)).flat_map(channel).collect())
}

/// (C, H, W) → (4·C, H/2, W/2): channel `4c + 2i + j` is what lies in row `i` and column `j` of each 2×2 patch of `c`.
fn patched(values: &[f32], [channels, height, width]: [usize; 3]) -> Result<Vec<f32>, String> {
    if !height.is_multiple_of(2) || !width.is_multiple_of(2) {
        return Err(format!("a latent of {width}x{height} has no whole patches of 2x2"));
    }
    let plane = |k: usize| {
        let rows = (k / 2 % 2..height).step_by(2).map(move |row| (k / 4 * height + row) * width + k % 2);
        rows.flat_map(|from| (0..width / 2).map(move |column| values[from + 2 * column]))
    };
    Ok((0..4 * channels).flat_map(plane).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_become_channels_in_reading_order_and_are_normed() {
        let values: Vec<f32> = (0..2 * 2 * 4).map(|i| i as f32).collect();
        let norm = BatchNorm::new(&[1.0; 8], &[4.0 - 1e-4; 8]);
        let put = put(Space::BatchNormed, values, [2, 2, 4], Some(&norm)).unwrap();
        let expected = [[0.0, 2.0], [1.0, 3.0], [4.0, 6.0], [5.0, 7.0], [8.0, 10.0], [9.0, 11.0], [12.0, 14.0]];
        for (got, expected) in put.chunks_exact(2).zip(expected) {
            assert_eq!(got, expected.map(|v: f32| (v - 1.0) / 2.0));
        }
    }

    #[test]
    fn wan_s_channels_have_their_own_mean_and_deviation() {
        let put = put(Space::Wan, vec![1.0; 32], [16, 1, 2], None).unwrap();
        assert_eq!((put[0], put[1]), ((1.0 + 0.7571) / 2.8184, (1.0 + 0.7571) / 2.8184));
        assert_eq!(put[31], (1.0 + 0.2921) / 1.916);
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_no_panic() {
        let norm = BatchNorm::new(&[0.0; 4], &[1.0; 4]);
        let failed =
            |space, shape: [usize; 3], norm| put(space, vec![0.0; shape.iter().product()], shape, norm).unwrap_err();
        assert_eq!(failed(Space::BatchNormed, [1, 3, 2], Some(&norm)), "a latent of 2x3 has no whole patches of 2x2");
        assert!(failed(Space::BatchNormed, [1, 2, 2], None).contains("no batch norm statistics"));
        assert_eq!(failed(Space::BatchNormed, [2, 2, 2], Some(&norm)), "the latent has 8 channels, allowed are 4");
        assert_eq!(failed(Space::Wan, [4, 1, 1], None), "the latent has 4 channels, allowed are 16");
    }
}
