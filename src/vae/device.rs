//! The one place that chooses a device.

use crate::error::{Error, Result};
use candle_core::Device;
use candle_core::utils::{cuda_is_available, metal_is_available};
use std::str::FromStr;

/// Where the user wants the encoder to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeviceRequest {
    /// The first CUDA device, else Metal, else the CPU; never fails.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of this ordinal.
    Cuda(usize),
    /// Apple's GPU.
    Metal,
}

impl std::fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::Metal => f.write_str("metal"),
        }
    }
}

impl FromStr for DeviceRequest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "metal" => Ok(Self::Metal),
            other => other.strip_prefix("cuda:").and_then(|n| n.parse().ok()).map(Self::Cuda).ok_or_else(|| {
                Error::usage(
                    format!("--device {other}: auto, cpu, cuda, cuda:N or metal is needed"),
                    "use --device auto",
                )
            }),
        }
    }
}

/// Opens the device asked for, and its name as receipts record it: `cpu`, `cuda:0`, `metal`.
///
/// # Errors
/// [`Error::Device`] if this build has no support for it, or the machine has none; not for [`DeviceRequest::Auto`].
pub fn open(request: DeviceRequest) -> Result<(Device, String)> {
    match request {
        DeviceRequest::Cpu => Ok((Device::Cpu, "cpu".into())),
        // A build with CUDA support on a machine without a GPU gets an error from the driver, hence the fall back.
        DeviceRequest::Auto => {
            open(DeviceRequest::Cuda(0)).or_else(|_| open(DeviceRequest::Metal)).or_else(|_| open(DeviceRequest::Cpu))
        }
        DeviceRequest::Cuda(ordinal) => {
            ensure_built_in(cuda_is_available(), "cuda")?;
            Ok((
                Device::new_cuda(ordinal).map_err(|e| absent(&format!("cuda:{ordinal}"), &e))?,
                format!("cuda:{ordinal}"),
            ))
        }
        DeviceRequest::Metal => {
            ensure_built_in(metal_is_available(), "metal")?;
            Ok((Device::new_metal(0).map_err(|e| absent("metal", &e))?, "metal".into()))
        }
    }
}

fn ensure_built_in(built_in: bool, feature: &str) -> Result<()> {
    if built_in {
        return Ok(());
    }
    Err(Error::Device {
        message: format!("this build has no `{feature}` support"),
        hint: Some(format!("build with `--features {feature}`, or use `--device cpu`")),
    })
}

fn absent(name: &str, error: &candle_core::Error) -> Error {
    // Driver errors may carry a backtrace on further lines.
    let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
    Error::Device { message: format!("`{name}` cannot be opened: {reason}"), hint: Some("use `--device cpu`".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_always_finds_a_device() {
        assert!(open(DeviceRequest::Auto).is_ok());
        assert_eq!(open(DeviceRequest::Cpu).unwrap().1, "cpu");
    }

    #[test]
    fn a_device_that_was_not_built_in_names_its_feature() {
        if cuda_is_available() {
            return;
        }
        let error = open(DeviceRequest::Cuda(0)).unwrap_err();
        assert_eq!(error.to_string(), "this build has no `cuda` support");
        assert_eq!(error.hint(), Some("build with `--features cuda`, or use `--device cpu`"));
    }
}
