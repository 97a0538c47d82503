//! The diagonal Gaussian that an encoder answers with, and the one reproducible draw from it.

use std::f64::consts::TAU;

/// Mean and log-variance of a latent, before any scaling or shift of the family.
#[derive(Clone, Debug, PartialEq)]
pub struct Posterior {
    /// Row-major, of `shape`.
    pub mean: Vec<f32>,
    /// Row-major, of `shape`, within [`Posterior::LOGVAR_RANGE`].
    pub logvar: Vec<f32>,
    /// (C, H / stride, W / stride).
    pub shape: [usize; 3],
}

impl Posterior {
    /// Limits of the log-variance, those of diffusers' `DiagonalGaussianDistribution`.
    pub const LOGVAR_RANGE: [f32; 2] = [-30.0, 20.0];

    /// Splits an encoder's output, (2·C, H, W) row-major, into mean and clamped log-variance. NaN stays NaN.
    pub(super) fn from_moments(moments: &[f32], shape: [usize; 3]) -> Self {
        let [low, high] = Self::LOGVAR_RANGE;
        let (mean, logvar) = moments.split_at(moments.len() / 2);
        Self { mean: mean.to_vec(), logvar: logvar.iter().map(|v| v.clamp(low, high)).collect(), shape }
    }

    /// One draw: `mean + exp(logvar / 2) · noise`, in f64, rounded once to f32.
    ///
    /// The noise is [`standard_normal`] of `noise_key`, so a draw depends on nothing but the posterior and the key.
    pub fn sample(&self, noise_key: &[u8; 32]) -> Vec<f32> {
        let noise = standard_normal(noise_key, self.mean.len());
        let moments = self.mean.iter().zip(&self.logvar);
        let draw = |((&mean, &logvar), noise): ((&f32, &f32), f32)| {
            (f64::from(mean) + (0.5 * f64::from(logvar)).exp() * f64::from(noise)) as f32
        };
        moments.zip(noise).map(draw).collect()
    }

    /// False when a mean or log-variance is NaN or infinite, as after an overflow of half precision.
    pub fn is_finite(&self) -> bool {
        self.mean.iter().chain(&self.logvar).all(|v| v.is_finite())
    }
}

/// `count` standard normal numbers from `key`.
///
/// BLAKE3's extendable output of `key` is read as little-endian u64 pairs (a, b); `u = ((a >> 11) + 1) / 2^53` lies
/// in (0, 1], `v = (b >> 11) / 2^53` in [0, 1). Box–Muller in f64 gives `r·cos(2πv)`, then `r·sin(2πv)` with
/// `r = sqrt(-2·ln u)`; both are rounded to f32. A shorter sequence is the beginning of a longer one.
/// Part of every sampled latent's key: bump `ENCODER_REV` when this changes.
pub fn standard_normal(key: &[u8; 32], count: usize) -> Vec<f32> {
    const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
    let mut stream = blake3::Hasher::new().update(key).finalize_xof();
    let mut next = || {
        let mut bytes = [0; 8];
        stream.fill(&mut bytes);
        u64::from_le_bytes(bytes) >> 11
    };
    let mut noise = Vec::with_capacity(count + 1);
    while noise.len() < count {
        let radius = (-2.0 * ((next() + 1) as f64 * UNIT).ln()).sqrt();
        let (sin, cos) = (TAU * (next() as f64 * UNIT)).sin_cos();
        noise.extend([(radius * cos) as f32, (radius * sin) as f32]);
    }
    noise.truncate(count);
    noise
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_standard_normal() {
        let n = 1 << 18;
        let noise = standard_normal(&[7; 32], n);
        let moment = |power: i32| noise.iter().map(|&v| f64::from(v).powi(power)).sum::<f64>() / n as f64;
        // Five standard errors of each moment of a normal sample: sqrt(1/n), sqrt(2/n), sqrt(15/n), sqrt(96/n).
        let bound = |variance: f64| 5.0 * (variance / n as f64).sqrt();
        assert!(moment(1).abs() < bound(1.0));
        assert!((moment(2) - 1.0).abs() < bound(2.0));
        assert!(moment(3).abs() < bound(15.0));
        assert!((moment(4) - 3.0).abs() < bound(96.0));
        let neighbours = noise.windows(2).map(|w| f64::from(w[0]) * f64::from(w[1])).sum::<f64>() / n as f64;
        assert!(neighbours.abs() < bound(1.0), "neighbours are independent");
    }

    #[test]
    fn noise_depends_on_the_key_alone_and_extends() {
        assert_eq!(standard_normal(&[1; 32], 5), standard_normal(&[1; 32], 9)[..5]);
        assert_ne!(standard_normal(&[1; 32], 5), standard_normal(&[2; 32], 5));
        assert!(standard_normal(&[1; 32], 0).is_empty());
    }

    #[test]
    fn a_sample_is_mean_plus_deviation_times_noise() {
        let posterior = Posterior::from_moments(&[1.0, -2.0, 2.0f32.ln() * 2.0, -100.0], [2, 1, 1]);
        let noise = standard_normal(&[3; 32], 2);
        let sample = posterior.sample(&[3; 32]);
        assert!((sample[0] - (1.0 + 2.0 * noise[0])).abs() < 1e-6);
        assert!((sample[1] + 2.0).abs() < 2e-6, "exp(-15) is all the deviation left at the clamp");
        assert_eq!(sample, posterior.sample(&[3; 32]));
    }

    #[test]
    fn logvar_is_clamped_and_nan_is_seen() {
        let posterior = Posterior::from_moments(&[0.0, 0.0, -31.0, 1e9], [2, 1, 1]);
        assert_eq!(posterior.logvar, [-30.0, 20.0]);
        assert!(posterior.is_finite());
        assert!(!Posterior::from_moments(&[0.0, f32::NAN], [1, 1, 1]).is_finite());
        assert!(!Posterior::from_moments(&[f32::INFINITY, 0.0], [1, 1, 1]).is_finite());
    }
}
