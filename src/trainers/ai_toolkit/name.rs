//! The name of a cache file: the image's own, and a hash of what the trainer knows of the latent
//! (`dataloader_mixins.py:1779-1842`). Neither pixels nor weights are in it.

use crate::bucket::Assignment;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use md5::{Digest, Md5};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Beside the images.
pub(super) const FOLDER: &str = "_latent_cache";

const EXTENSION: &str = ".safetensors";

/// Characters of an MD5 in base64 without padding.
const HASH_CHARS: usize = 22;

/// A mirrored copy that the trainer adds to its list of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flips {
    /// Left to right.
    pub(super) x: bool,
    /// Top to bottom.
    pub(super) y: bool,
}

/// Where the cache of the image at `image` lies, relative like that.
pub(super) fn cache_path(image: &Path, assignment: &Assignment, latent_space: &str, flips: Flips) -> PathBuf {
    let file_name = image.file_name().unwrap_or_default();
    let hash = Md5::digest(described(file_name, assignment, latent_space, flips));
    let mut name: OsString = image.file_stem().unwrap_or_default().to_owned();
    name.push("_");
    name.push(URL_SAFE_NO_PAD.encode(hash));
    name.push(EXTENSION);
    image.with_file_name(FOLDER).join(name)
}

/// True for names of the trainer's caches, of texts too.
pub(super) fn is_cache_name(file_name: &str) -> bool {
    let hash = file_name.strip_suffix(EXTENSION).and_then(|name| name.get(name.len().checked_sub(HASH_CHARS + 1)?..));
    hash.and_then(|hash| hash.strip_prefix('_'))
        .is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')))
}

/// The JSON that is hashed, as Python's `json.dumps(…, sort_keys=True)` writes it.
fn described(file_name: &OsStr, assignment: &Assignment, latent_space: &str, flips: Flips) -> String {
    let Assignment { bucket, resized, crop } = assignment;
    let mut json = format!(
        "{{\"crop_height\": {}, \"crop_width\": {}, \"crop_x\": {}, \"crop_y\": {}, \"filename\": {}, ",
        bucket.height,
        bucket.width,
        crop.left,
        crop.top,
        python_string(file_name)
    );
    for (flipped, key) in [(flips.x, "flip_x"), (flips.y, "flip_y")] {
        if flipped {
            let _ = write!(json, "\"{key}\": true, ");
        }
    }
    let space = python_string(OsStr::new(latent_space));
    let _ = write!(
        json,
        "\"latent_space_version\": {space}, \"latent_version\": 1, \"scale_to_height\": {}, \"scale_to_width\": {}}}",
        resized.height, resized.width
    );
    json
}

/// A string literal of `json.dumps`: ASCII only, what lies beyond the basic plane as two surrogates. A byte of a file
/// name that is no UTF-8 is the surrogate by which Python stands in for it.
fn python_string(text: &OsStr) -> String {
    let mut literal = String::from("\"");
    for chunk in text.as_encoded_bytes().utf8_chunks() {
        for unit in chunk.valid().encode_utf16() {
            push_unit(&mut literal, unit);
        }
        for &byte in chunk.invalid() {
            push_unit(&mut literal, 0xdc00 + u16::from(byte));
        }
    }
    literal.push('"');
    literal
}

fn push_unit(literal: &mut String, unit: u16) {
    match u8::try_from(unit) {
        Ok(b'"') => literal.push_str("\\\""),
        Ok(b'\\') => literal.push_str("\\\\"),
        Ok(b'\n') => literal.push_str("\\n"),
        Ok(b'\r') => literal.push_str("\\r"),
        Ok(b'\t') => literal.push_str("\\t"),
        Ok(0x08) => literal.push_str("\\b"),
        Ok(0x0c) => literal.push_str("\\f"),
        Ok(byte @ b' '..=b'~') => literal.push(char::from(byte)),
        _ => {
            let _ = write!(literal, "\\u{unit:04x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Rect, Size};

    fn assignment() -> Assignment {
        let bucket = Size::new(96, 64);
        Assignment { bucket, resized: Size::new(96, 67), crop: Rect::new(0, 1, bucket) }
    }

    fn named(image: &str, flips: Flips) -> String {
        cache_path(Path::new(image), &assignment(), "flux1", flips).to_str().unwrap().to_owned()
    }

    #[test]
    fn the_hashed_text_and_the_name_are_the_trainers_own() {
        let json = described(OsStr::new("a.png"), &assignment(), "flux1", Flips::default());
        assert_eq!(
            json,
            "{\"crop_height\": 64, \"crop_width\": 96, \"crop_x\": 0, \"crop_y\": 1, \"filename\": \"a.png\", \
             \"latent_space_version\": \"flux1\", \"latent_version\": 1, \"scale_to_height\": 67, \
             \"scale_to_width\": 96}"
        );
        assert_eq!(named("a.png", Flips::default()), "_latent_cache/a_gsLMuGTn0qGrjtl8RSo0ew.safetensors");
        assert_eq!(named("sub/a.png", Flips::default()), "sub/_latent_cache/a_gsLMuGTn0qGrjtl8RSo0ew.safetensors");
    }

    #[test]
    fn mirrored_copies_have_names_of_their_own() {
        assert_eq!(named("a.png", Flips { x: true, y: false }), "_latent_cache/a_9USLryFbo4dGGPhwrzn_Yw.safetensors");
        assert_eq!(named("a.png", Flips { x: false, y: true }), "_latent_cache/a_E7TmxsrgGrPZtFR18OOfew.safetensors");
        assert_eq!(named("a.png", Flips { x: true, y: true }), "_latent_cache/a_LDLhvxWT7U9LiW2vHlVwJQ.safetensors");
    }

    #[test]
    fn names_are_escaped_as_json_dumps_escapes_them() {
        let escaped = |name: &str| python_string(OsStr::new(name));
        assert_eq!(escaped("ä 日.png"), r#""\u00e4 \u65e5.png""#);
        assert_eq!(escaped("😀.png"), r#""\ud83d\ude00.png""#);
        assert_eq!(escaped("a\"b\\c\n\t\u{7f}\u{1}"), r#""a\"b\\c\n\t\u007f\u0001""#);
        assert_eq!(named("日本 😀.jpg", Flips::default()), "_latent_cache/日本 😀_EwGmUjiJGpj4Jl6YQmiiiw.safetensors");
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_no_utf8_are_escaped_as_python_stands_in_for_them() {
        use std::os::unix::ffi::OsStrExt;
        assert_eq!(python_string(OsStr::from_bytes(b"a\xff\xe4b.png")), r#""a\udcff\udce4b.png""#);
        assert_eq!(python_string(OsStr::from_bytes(b"\xe6\x97")), r#""\udce6\udc97""#);
    }

    #[test]
    fn cache_names_are_told_by_their_hash() {
        assert!(is_cache_name("a_gsLMuGTn0qGrjtl8RSo0ew.safetensors"));
        assert!(is_cache_name("_gsLMuGTn0qGrjtl8RSo0ew.safetensors"));
        assert!(!is_cache_name("gsLMuGTn0qGrjtl8RSo0ew.safetensors"));
        assert!(!is_cache_name("a_gsLMuGTn0qGrjtl8RSo0e.safetensors"));
        assert!(!is_cache_name("lora.safetensors"));
        assert!(!is_cache_name("a_gsLMuGTn0qGrjtl8RSo0ew.npz"));
        assert!(!is_cache_name("日本日本日本日本.safetensors"));
    }
}
