//! Why a file gave no pixels, as data for the report.

use crate::problem::Kind;
use crate::units::Size;

/// The reason why no pixels could be had from a file: one lower-case line, and the kind of problem it counts as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind under which the report lists the file.
    pub kind: Kind,
    /// Actual and allowed value, without the path.
    pub message: String,
}

impl Refusal {
    /// A refusal of `kind`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A cut or corrupt file.
    pub(super) fn damaged(message: impl Into<String>) -> Self {
        Self::new(Kind::Damaged, message)
    }

    /// A kind of image that is not read.
    pub(super) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, message)
    }

    /// More declared pixels than are decoded.
    pub(super) fn too_large(size: Size) -> Self {
        let (pixels, allowed) = (size.area(), super::MAX_PIXELS);
        Self::new(Kind::TooLarge, format!("declares {size} = {pixels} pixels, at most {allowed} are decoded"))
    }
}
