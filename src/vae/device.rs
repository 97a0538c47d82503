//! The one place that chooses devices.
//!
//! [`DeviceRequest`] is what `--device` says, [`open`] what the machine makes of it. A build with a GPU feature on a
//! machine without that GPU falls back to the CPU under `auto`, and says why.

use crate::error::{Error, Result};
use candle_core::utils::{cuda_is_available, metal_is_available};
use candle_core::{Device, Tensor};
use std::collections::BTreeSet;
use std::str::FromStr;

/// Where the user wants the encoder to run.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum DeviceRequest {
    /// The first CUDA device, else Metal, else the CPU; never fails.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA devices of these ordinals, at least one, none twice.
    Cuda(Vec<usize>),
    /// Apple's GPU.
    Metal,
}

impl std::fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinals) => {
                let ordinals: Vec<_> = ordinals.iter().map(usize::to_string).collect();
                write!(f, "cuda:{}", ordinals.join(","))
            }
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
            "cuda" => Ok(Self::Cuda(vec![0])),
            "metal" => Ok(Self::Metal),
            other => match other.strip_prefix("cuda:") {
                Some(list) => ordinals(list).map(Self::Cuda).map_err(|what| malformed(&what)),
                None => Err(malformed(&format!("`{other}` is no device"))),
            },
        }
    }
}

/// `0` or `0,1`: plain numbers, none twice.
fn ordinals(list: &str) -> Result<Vec<usize>, String> {
    let mut seen = BTreeSet::new();
    let ordinal = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let ordinal = text.parse::<usize>().ok().filter(|_| digits);
        let ordinal = ordinal.ok_or_else(|| format!("`{text}` is not a device's number"))?;
        if seen.insert(ordinal) { Ok(ordinal) } else { Err(format!("device {ordinal} is named twice")) }
    };
    list.split(',').map(ordinal).collect()
}

fn malformed(what: &str) -> Error {
    Error::usage(format!("{what}; auto, cpu, cuda, cuda:N, cuda:N,M,… or metal is needed"), "use --device auto")
}

/// A device that answers.
#[derive(Clone, Debug)]
pub struct Opened {
    /// candle's handle.
    pub device: Device,
    /// Its name as receipts record it: `cpu`, `cuda:0`, `metal`.
    pub name: String,
}

/// The devices that a request comes to.
#[derive(Clone, Debug)]
pub struct Selection {
    /// At least one; several only of CUDA.
    pub devices: Vec<Opened>,
    /// Why `auto` passed a GPU over that this build could use, in one line for people.
    pub fallback: Option<String>,
}

/// Opens the devices asked for.
///
/// # Errors
/// [`Error::Device`] if this build has no support for one, or the machine has none; not for [`DeviceRequest::Auto`].
pub fn open(request: &DeviceRequest) -> Result<Selection> {
    open_with(request, &open_gpu)
}

/// A device that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gpu {
    Cuda(usize),
    Metal,
}

impl Gpu {
    fn name(self) -> String {
        match self {
            Self::Cuda(ordinal) => format!("cuda:{ordinal}"),
            Self::Metal => "metal".to_owned(),
        }
    }
}

/// Why a GPU was not opened.
enum Refusal {
    /// This build lacks the feature of this name.
    NotBuilt(&'static str),
    /// The build has it, the machine does not; the reason in one line.
    Absent(String),
}

type Opener<'a> = &'a dyn Fn(Gpu) -> Result<Device, Refusal>;

fn open_with(request: &DeviceRequest, opener: Opener<'_>) -> Result<Selection> {
    let one = |gpu: Gpu| match opener(gpu) {
        Ok(device) => Ok(Opened { device, name: gpu.name() }),
        Err(refusal) => Err(refused(gpu, refusal)),
    };
    let devices = match request {
        DeviceRequest::Auto => return Ok(open_any(opener)),
        DeviceRequest::Cpu => vec![cpu()],
        DeviceRequest::Cuda(ordinals) => {
            ordinals.iter().map(|&ordinal| one(Gpu::Cuda(ordinal))).collect::<Result<_>>()?
        }
        DeviceRequest::Metal => vec![one(Gpu::Metal)?],
    };
    Ok(Selection { devices, fallback: None })
}

/// The first device that answers. A feature that is not built in is no news; a GPU that this build was made for is.
fn open_any(opener: Opener<'_>) -> Selection {
    let mut reasons = Vec::new();
    for gpu in [Gpu::Cuda(0), Gpu::Metal] {
        match opener(gpu) {
            Ok(device) => return selection(Opened { device, name: gpu.name() }, &reasons),
            Err(Refusal::NotBuilt(_)) => {}
            Err(Refusal::Absent(reason)) => reasons.push(format!("`{}` cannot be used: {reason}", gpu.name())),
        }
    }
    selection(cpu(), &reasons)
}

fn selection(opened: Opened, reasons: &[String]) -> Selection {
    let fallback = (!reasons.is_empty()).then(|| format!("encoding on {}: {}", opened.name, reasons.join("; ")));
    Selection { devices: vec![opened], fallback }
}

fn cpu() -> Opened {
    Opened { device: Device::Cpu, name: "cpu".to_owned() }
}

fn refused(gpu: Gpu, refusal: Refusal) -> Error {
    match refusal {
        Refusal::NotBuilt(feature) => Error::Device {
            message: format!("this build has no `{feature}` support"),
            hint: Some(format!("build with `--features {feature}`, or use `--device cpu`")),
        },
        Refusal::Absent(reason) => Error::Device {
            message: format!("`{}` cannot be used: {reason}", gpu.name()),
            hint: Some(match gpu {
                Gpu::Cuda(_) => "`nvidia-smi -L` lists this machine's devices; or use `--device cpu`".to_owned(),
                Gpu::Metal => "use `--device cpu`".to_owned(),
            }),
        },
    }
}

fn open_gpu(gpu: Gpu) -> Result<Device, Refusal> {
    let opened = match gpu {
        Gpu::Cuda(_) if !cuda_is_available() => return Err(Refusal::NotBuilt("cuda")),
        Gpu::Metal if !metal_is_available() => return Err(Refusal::NotBuilt("metal")),
        // A stream of its own: candle's default is one stream a thread, and the encoder is loaded by another thread
        // than the one that runs it.
        Gpu::Cuda(ordinal) => Device::new_cuda_with_stream(ordinal),
        Gpu::Metal => Device::new_metal(0),
    };
    let working = opened.and_then(|device| probe(&device).map(|()| device));
    working.map_err(|error| Refusal::Absent(first_line(&error)))
}

/// Runs one kernel: a driver too old for this build, or a chip that it was not built for, shows only there.
fn probe(device: &Device) -> candle_core::Result<()> {
    let doubled = (Tensor::new(&[1f32], device)? * 2.0)?.to_vec1::<f32>()?;
    if doubled == [2.0] { Ok(()) } else { Err(candle_core::Error::Msg("it does not compute".to_owned())) }
}

/// Driver errors may carry a backtrace on further lines.
fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(_: Gpu) -> Result<Device, Refusal> {
        Err(Refusal::Absent("no CUDA-capable device is detected".to_owned()))
    }

    fn not_built(gpu: Gpu) -> Result<Device, Refusal> {
        Err(Refusal::NotBuilt(if gpu == Gpu::Metal { "metal" } else { "cuda" }))
    }

    /// Every GPU answers; the CPU stands in for each.
    fn present(_: Gpu) -> Result<Device, Refusal> {
        Ok(Device::Cpu)
    }

    #[test]
    fn requests_read_and_write_the_same() {
        let cuda = |ordinals: &[usize]| DeviceRequest::Cuda(ordinals.to_vec());
        let written = [
            ("auto", DeviceRequest::Auto, "auto"),
            ("cpu", DeviceRequest::Cpu, "cpu"),
            ("metal", DeviceRequest::Metal, "metal"),
            ("cuda", cuda(&[0]), "cuda:0"),
            ("cuda:3", cuda(&[3]), "cuda:3"),
            ("cuda:1,0", cuda(&[1, 0]), "cuda:1,0"),
        ];
        for (text, request, shown) in written {
            assert_eq!(text.parse::<DeviceRequest>().unwrap(), request);
            assert_eq!(request.to_string(), shown);
        }
    }

    #[test]
    fn a_malformed_request_names_the_allowed_forms() {
        for text in
            ["gpu", "", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:0,", "cuda:0;1", "cuda0", "CUDA", "cuda: 1"]
        {
            let error = text.parse::<DeviceRequest>().unwrap_err().to_string();
            assert!(error.ends_with("auto, cpu, cuda, cuda:N, cuda:N,M,… or metal is needed"), "{text}: {error}");
        }
        let twice = "cuda:0,1,0".parse::<DeviceRequest>().unwrap_err().to_string();
        assert!(twice.starts_with("device 0 is named twice; "), "{twice}");
        assert!("cuda:99999999999999999999999".parse::<DeviceRequest>().is_err());
    }

    #[test]
    fn auto_says_why_a_gpu_that_was_built_in_is_not_used() {
        let selection = open_with(&DeviceRequest::Auto, &absent_cuda_without_metal).unwrap();
        assert_eq!(selection.devices[0].name, "cpu");
        let line = "encoding on cpu: `cuda:0` cannot be used: no CUDA-capable device is detected";
        assert_eq!(selection.fallback.as_deref(), Some(line));
    }

    fn absent_cuda_without_metal(gpu: Gpu) -> Result<Device, Refusal> {
        if gpu == Gpu::Metal { not_built(gpu) } else { absent(gpu) }
    }

    #[test]
    fn auto_is_silent_where_it_uses_the_gpu_or_none_was_built_in() {
        let used = open_with(&DeviceRequest::Auto, &present).unwrap();
        assert_eq!((used.devices[0].name.as_str(), used.fallback), ("cuda:0", None));
        let plain = open_with(&DeviceRequest::Auto, &not_built).unwrap();
        assert_eq!((plain.devices[0].name.as_str(), plain.fallback), ("cpu", None));
    }

    #[test]
    fn every_device_of_a_list_is_opened_or_the_missing_one_named() {
        let both = DeviceRequest::Cuda(vec![0, 1]);
        let names: Vec<_> = open_with(&both, &present).unwrap().devices.into_iter().map(|opened| opened.name).collect();
        assert_eq!(names, ["cuda:0", "cuda:1"]);
        let only_first = |gpu| if gpu == Gpu::Cuda(0) { present(gpu) } else { absent(gpu) };
        let error = open_with(&both, &only_first).unwrap_err();
        assert_eq!(error.to_string(), "`cuda:1` cannot be used: no CUDA-capable device is detected");
        assert!(error.hint().unwrap().contains("--device cpu"));
    }

    #[test]
    fn a_device_that_was_not_built_in_names_its_feature() {
        let error = open_with(&DeviceRequest::Cuda(vec![0]), &not_built).unwrap_err();
        assert_eq!(error.to_string(), "this build has no `cuda` support");
        assert_eq!(error.hint(), Some("build with `--features cuda`, or use `--device cpu`"));
    }

    #[test]
    fn this_machine_has_a_device_for_auto_and_the_cpu() {
        assert!(!open(&DeviceRequest::Auto).unwrap().devices.is_empty());
        assert_eq!(open(&DeviceRequest::Cpu).unwrap().devices[0].name, "cpu");
        probe(&Device::Cpu).unwrap();
    }
}
