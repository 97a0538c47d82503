//! Hash newtypes, and the one encoding by which typed fields are hashed.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! hash_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// All 64 hexadecimal digits.
            pub fn to_hex(self) -> String {
                blake3::Hash::from_bytes(self.0).to_hex().to_string()
            }
        }

        impl From<$name> for String {
            fn from(hash: $name) -> String {
                hash.to_hex()
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                let hash = blake3::Hash::from_hex(&text).map_err(|_| format!("`{text}` is not 64 hexadecimal digits"))?;
                Ok(Self(*hash.as_bytes()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex()[..8])
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

hash_newtype!(
    /// BLAKE3 of an image file's bytes.
    ContentHash
);
hash_newtype!(
    /// BLAKE3 of everything that shapes one entry; see [`crate::recipe`].
    Key
);
hash_newtype!(
    /// BLAKE3 of an encoder's layout and weights; see [`crate::vae`].
    EncoderId
);
hash_newtype!(
    /// BLAKE3 of a stored array: its dtype, shape and bytes.
    Checksum
);

hash_newtype!(
    /// BLAKE3 of a text: a tokenizer's configuration, a template, captions or rows.
    TextHash
);

impl TextHash {
    /// Hashes a text's bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl ContentHash {
    /// Hashes a file's bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

/// Hashes named, typed fields so that no two sequences of fields share an encoding.
///
/// Each field is: its name, then its value. A text or byte string is its length as u64 little-endian, then its
/// bytes; an integer is 8 bytes little-endian; a float is the 8 bytes of its f64 bits, little-endian. One type tag
/// byte stands before each value.
#[derive(Clone)]
pub struct FieldHasher(blake3::Hasher);

impl FieldHasher {
    /// A hasher for one `domain`; hashes of different domains never meet.
    pub fn new(domain: &str) -> Self {
        let mut hasher = Self(blake3::Hasher::new());
        hasher.raw(domain.as_bytes());
        hasher
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds a text.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.bytes_tagged(b't', name, value.as_bytes())
    }

    /// Adds a byte string.
    pub fn bytes(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.bytes_tagged(b'b', name, value)
    }

    fn bytes_tagged(&mut self, tag: u8, name: &str, value: &[u8]) -> &mut Self {
        self.raw(name.as_bytes());
        self.0.update(&[tag]);
        self.raw(value);
        self
    }

    /// Adds an unsigned integer.
    pub fn int(&mut self, name: &str, value: u64) -> &mut Self {
        self.raw(name.as_bytes());
        self.0.update(b"i");
        self.0.update(&value.to_le_bytes());
        self
    }

    /// Adds a float by its bits.
    pub fn float(&mut self, name: &str, value: f64) -> &mut Self {
        self.raw(name.as_bytes());
        self.0.update(b"f");
        self.0.update(&value.to_bits().to_le_bytes());
        self
    }

    /// The hash of all fields so far.
    pub fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_field_boundary_changes_the_hash() {
        let hash = |a: &str, b: &str| FieldHasher::new("test").text("a", a).text("b", b).finish();
        assert_ne!(hash("xy", "z"), hash("x", "yz"));
        assert_ne!(hash("", "xyz"), hash("xyz", ""));
    }

    #[test]
    fn a_type_a_name_and_a_domain_each_change_the_hash() {
        let text = FieldHasher::new("test").text("a", "1").finish();
        assert_ne!(text, FieldHasher::new("test").bytes("a", b"1").finish());
        assert_ne!(text, FieldHasher::new("test").text("b", "1").finish());
        assert_ne!(text, FieldHasher::new("other").text("a", "1").finish());
    }

    #[test]
    fn hex_goes_there_and_back_and_display_is_short() {
        let hash = ContentHash::of(b"abc");
        assert_eq!(ContentHash::try_from(hash.to_hex()), Ok(hash));
        assert_eq!(hash.to_string().len(), 8);
        assert!(ContentHash::try_from("12".to_owned()).is_err());
    }
}
