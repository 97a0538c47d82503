//! The library's one error type, and the only way from an I/O error to it.
//!
//! A bad sample is not an error: it is a [`Problem`](crate::problem::Problem) in the report, and the run goes on.

use std::io;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What stopped a whole run. Every text is one lower-case line; [`Error::hint`] gives the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// The file or folder concerned.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Settings that contradict each other or the trainer.
    #[error("{message}")]
    Usage {
        /// Actual and allowed value.
        message: String,
        /// A flag or command that helps.
        hint: Option<String>,
    },
    /// A dataset description or folder that cannot be used at all.
    #[error("`{}`: {message}", path.display())]
    Input {
        /// The file or folder concerned.
        path: PathBuf,
        /// Actual and allowed value.
        message: String,
        /// A flag or command that helps.
        hint: Option<String>,
    },
    /// A weights file that holds no usable VAE encoder.
    #[error("`{}`: {message}", path.display())]
    Weights {
        /// The weights file.
        path: PathBuf,
        /// What is missing or of the wrong shape.
        message: String,
        /// A flag or command that helps.
        hint: Option<String>,
    },
    /// A cache file that cannot be read or does not hold what its receipt says.
    #[error("`{}`: {message}", path.display())]
    Cache {
        /// The artefact.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A device that is absent or cannot do what was asked.
    #[error("{message}")]
    Device {
        /// What is missing.
        message: String,
        /// A flag or command that helps.
        hint: Option<String>,
    },
    /// A device without room for what was asked of it, or whose kernels cannot address that much.
    #[error("{message}")]
    OutOfMemory {
        /// What did not fit.
        message: String,
    },
    /// The tensor library failed.
    #[error("tensor computation failed: {0}")]
    Tensor(#[from] candle_core::Error),
    /// The run was interrupted; what was finished is kept.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// A [`Error::Usage`] with a hint.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// A [`Error::Input`] without a hint.
    pub fn input(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Input { path: path.into(), message: message.into(), hint: None }
    }

    /// A [`Error::Weights`] without a hint.
    pub fn weights(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Weights { path: path.into(), message: message.into(), hint: None }
    }

    /// A [`Error::Cache`].
    pub fn cache(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Cache { path: path.into(), message: message.into() }
    }

    /// The same error with `hint` as its way out, where its kind has room for one.
    pub fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Usage { hint, .. }
        | Self::Input { hint, .. }
        | Self::Weights { hint, .. }
        | Self::Device { hint, .. } = &mut self
        {
            *hint = Some(text.into());
        }
        self
    }

    /// True when less at once could succeed: a device or an allocator ran out of memory.
    ///
    /// Drivers and libraries report that as text only, through several layers: `CUDA_ERROR_OUT_OF_MEMORY`,
    /// `CUBLAS_STATUS_ALLOC_FAILED`, `CUDNN_STATUS_ALLOC_FAILED`, Metal's `failed to allocate`.
    pub fn is_out_of_memory(&self) -> bool {
        const SIGNS: [&str; 6] = [
            "out of memory",
            "out_of_memory",
            "alloc_failed",
            "failed to allocate",
            "memory allocation",
            "cannot allocate memory",
        ];
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Tensor(error) => {
                let text = error.to_string().to_lowercase();
                SIGNS.iter().any(|sign| text.contains(sign))
            }
            _ => false,
        }
    }

    /// What the user can do about it, if anything is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Usage { hint, .. }
            | Self::Input { hint, .. }
            | Self::Weights { hint, .. }
            | Self::Device { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }
}

/// Names the path in an I/O error; no other way leads from [`io::Error`] to [`Error`].
pub trait IoContext<T> {
    /// Attaches `path` to a failure.
    fn at(self, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.as_ref().to_path_buf(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drivers_say_of_memory_is_told_from_other_failures() {
        let tensor = |text: &str| Error::Tensor(candle_core::Error::Msg(text.to_owned()));
        for text in [
            "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")",
            "CublasError(CUBLAS_STATUS_ALLOC_FAILED)",
            "CudnnError(CUDNN_STATUS_ALLOC_FAILED)",
            "Failed to allocate a buffer of 12 bytes",
        ] {
            assert!(tensor(text).is_out_of_memory(), "{text}");
        }
        for text in
            ["DriverError(CUDA_ERROR_ILLEGAL_ADDRESS)", "CudnnError(CUDNN_STATUS_EXECUTION_FAILED)", "shape mismatch"]
        {
            assert!(!tensor(text).is_out_of_memory(), "{text}");
        }
        assert!(!Error::usage("out of memory", "a setting's text is no sign").is_out_of_memory());
    }
}
