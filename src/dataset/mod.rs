//! stub
#![allow(missing_docs)]
use crate::hash::ContentHash;
use crate::problem::Problem;
use crate::progress::{Cancel, Progress};
use crate::units::Size;
use crate::store::FileStat;
use std::path::PathBuf;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile { None, Srgb, Other }
#[derive(Clone, Debug)]
pub struct Probe { pub size: Size, pub orientation: u8, pub bits: u8, pub gray: bool, pub transparent: bool, pub profile: Profile, pub extended_webp: bool }
impl Probe { pub fn upright(&self) -> Size { self.size } }
#[derive(Clone, Debug)]
pub struct Image { pub path: String, pub relative: PathBuf, pub content: Option<ContentHash>, pub probe: Option<Probe>, pub caption: Option<PathBuf>, pub usable: bool }
