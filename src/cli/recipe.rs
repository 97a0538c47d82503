//! Recipe flags, resolved: weights opened, family decided, everything the library needs in its own types.

use super::args::{DtypeChoice, ForeignChoice, Policy, PosteriorChoice, RecipeArgs, StoreDtype};
use super::ui::Ui;
use prebake::containers::Dtype;
use prebake::error::{Error, IoContext, Result};
use prebake::hash::EncoderId;
use prebake::recipe::{Family, Posterior, Precision, Recipe};
use prebake::store::{FileStat, Index};
use prebake::vae::device::{self, Opened, Selection};
use prebake::vae::{Budget, DetectedFamily, Weights, available};
use std::time::SystemTime;

/// A resolved recipe and what was found out on the way.
pub(crate) struct Resolved {
    pub(crate) recipe: Recipe,
    /// The opened weights, if any were given.
    pub(crate) weights: Option<Weights>,
    /// Their identity.
    pub(crate) encoder: Option<EncoderId>,
    /// What was assumed, for the first line of the output.
    pub(crate) assumption: Option<String>,
}

/// Resolves the flags.
///
/// # Errors
/// Weights that hold no encoder, or one of another layout than `--family` has.
pub(crate) fn resolve(args: &RecipeArgs, index: &Index) -> Result<Resolved> {
    let weights = args.vae.as_deref().map(Weights::open).transpose()?;
    let (family, assumption) = decide_family(args, weights.as_ref())?;
    let encoder = weights.as_ref().map(|weights| identity(weights, index)).transpose()?;
    let mut targets = args.targets.clone();
    targets.sort_unstable();
    targets.dedup();
    let policy = |policy: Option<Policy>| policy.map(|policy| policy == Policy::Apply);
    let recipe = Recipe {
        targets,
        family,
        resolution: args.resolution,
        max_area: args.max_area,
        bucket_step: args.bucket_step,
        min_bucket: args.min_bucket,
        max_bucket: args.max_bucket,
        buckets: args.no_bucket.map(|fixed| !fixed),
        upscale: (args.upscale || args.no_upscale).then_some(args.upscale),
        flip: args.flip,
        alpha_mask: args.alpha_mask,
        resize: args.resize,
        orientation: policy(args.orientation),
        background: args.background.map(|rgb| rgb.0),
        icc: policy(args.icc),
        batch: args.batch,
        grad_accum: args.grad_accum,
        gpus: args.gpus,
        store_dtype: args.store_dtype.map(|dtype| match dtype {
            StoreDtype::F32 => Dtype::F32,
            StoreDtype::Bf16 => Dtype::Bf16,
            StoreDtype::F16 => Dtype::F16,
        }),
        precision: precision(args.dtype),
        tile: args.tile,
        posterior: match args.posterior {
            PosteriorChoice::Mean => Posterior::Mean,
            PosteriorChoice::Sample => Posterior::Sample { seed: args.seed },
        },
        rebuild_foreign: args.foreign == ForeignChoice::Rebuild,
    };
    Ok(Resolved { recipe, weights, encoder, assumption })
}

/// The encoder's identity; hashing the weights takes a moment, so it is remembered by the file's stat.
fn identity(weights: &Weights, index: &Index) -> Result<EncoderId> {
    let path = std::fs::canonicalize(weights.path()).at(weights.path())?;
    let name = path.as_os_str().as_encoded_bytes();
    let read_at = SystemTime::now();
    let stat = FileStat::of(&std::fs::metadata(&path).at(&path)?);
    if let Some(identity) = index.weights_identity(name, &stat) {
        return Ok(identity);
    }
    let identity = weights.identity()?;
    if stat.is_settled(read_at) {
        index.remember_weights(name, &stat, identity);
    }
    Ok(identity)
}

/// The least precision that `--dtype` asks for; none for `auto`.
fn precision(choice: DtypeChoice) -> Option<Precision> {
    match choice {
        DtypeChoice::Auto => None,
        DtypeChoice::F32 => Some(Precision::F32),
        DtypeChoice::Bf16 => Some(Precision::Bf16),
        DtypeChoice::F16 => Some(Precision::F16),
    }
}

fn decide_family(args: &RecipeArgs, weights: Option<&Weights>) -> Result<(Family, Option<String>)> {
    let Some(weights) = weights else {
        let assumed = (args.family.is_none()).then(|| "no --vae and no --family: sdxl is assumed".to_owned());
        return Ok((args.family.unwrap_or(Family::Sdxl), assumed));
    };
    let found = weights.layout().autoencoder();
    if let Some(family) = args.family {
        if family.autoencoder() != found {
            let (needed, path) = (family.autoencoder().name(), weights.path().display());
            let message = format!("--family {}: needs {needed}, `{path}` holds {}", family.name(), found.name());
            let fit = Family::ALL.into_iter().filter(|family| family.autoencoder() == found);
            let names: Vec<_> = fit.map(Family::name).collect();
            return Err(Error::usage(message, format!("--family {}", names.join(", "))));
        }
        return Ok((family, None));
    }
    match weights.family() {
        DetectedFamily::Known(family) => Ok((family, None)),
        DetectedFamily::Ambiguous { candidates, default } => {
            let names: Vec<_> = candidates.iter().map(|family| family.name()).collect();
            let assumed = format!(
                "`{}` could be of {}: {} is assumed (--family says otherwise)",
                weights.path().display(),
                names.join(" or "),
                default.name()
            );
            Ok((default, Some(assumed)))
        }
    }
}

/// Opens the devices that `--device` names, and the precision that the encoder runs in there. Says so where `auto` had
/// to pass a GPU over.
///
/// # Errors
/// A device that this build or machine does not have.
pub(crate) fn open_devices(args: &RecipeArgs, ui: &Ui) -> Result<(Vec<Opened>, Precision)> {
    let Selection { devices, fallback } = device::open(&args.device)?;
    if let Some(line) = fallback {
        ui.remark(&line);
    }
    let cuda = devices.iter().any(|opened| opened.device.is_cuda());
    let auto = if cuda { Precision::Bf16 } else { Precision::F32 };
    Ok((devices, precision(args.dtype).unwrap_or(auto)))
}

/// What may go to the encoder at once on each of `devices`, by the flags and the memory that there is now; the smallest
/// device decides.
pub(crate) fn budget(args: &RecipeArgs, weights: &Weights, devices: &[Opened], precision: Precision) -> Budget {
    Budget {
        layout: weights.layout().clone(),
        precision,
        one_by_one: devices.iter().all(|opened| opened.device.is_cpu()),
        available: devices.iter().filter_map(|opened| available::memory(&opened.device)).min(),
        cache_batch: args.cache_batch.0,
        tile: args.tile,
    }
}
