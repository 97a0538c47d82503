//! One `.npy` member: a magic, a Python dict literal that names dtype, order and shape, then the values.
//!
//! Reads versions 1 to 3 of numpy's format, little-endian, row-major; refuses pickles, structured dtypes, big-endian
//! and column-major arrays. The length of the values must be exactly what the header declares, so a lying header
//! costs no memory. Format: numpy's `numpy/lib/format.py`.

use super::{Array, Dtype, byte_len};

const MAGIC: &[u8] = b"\x93NUMPY";
/// numpy aligns the values to this many bytes.
const ALIGNMENT: usize = 64;
/// The most axes that numpy (2.x) holds.
const MAX_AXES: usize = 64;

/// Reads one member.
pub(super) fn read(bytes: &[u8]) -> Result<Array, String> {
    let (text, values) = split(bytes).ok_or("holds no npy header")?;
    let header = Header::parse(text).ok_or("has an npy header that cannot be read")?;
    let dtype = dtype_of(&header.descr).ok_or_else(|| format!("has dtype `{}`, which is not read", header.descr))?;
    if header.fortran_order && header.shape.len() > 1 {
        return Err("is stored in column-major order, which is not read".into());
    }
    match byte_len(dtype, &header.shape) {
        Some(wanted) if wanted == values.len() => Ok(Array { dtype, shape: header.shape, bytes: values.to_vec() }),
        _ => Err(format!("declares shape {:?} of {} but holds {} bytes", header.shape, dtype.name(), values.len())),
    }
}

/// Writes one member as numpy does: version 1.0, values aligned to 64 bytes.
pub(super) fn write(array: &Array) -> Result<Vec<u8>, String> {
    let descr = descr_of(array.dtype).ok_or_else(|| format!("has dtype {}, which numpy lacks", array.dtype.name()))?;
    if array.shape.len() > MAX_AXES {
        return Err(format!("has {} axes, numpy holds {MAX_AXES}", array.shape.len()));
    }
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {}, }}", tuple(&array.shape));
    let prefix = MAGIC.len() + 4;
    let padded = (prefix + header.len() + 1).next_multiple_of(ALIGNMENT) - prefix;
    header.extend(std::iter::repeat_n(' ', padded - 1 - header.len()));
    header.push('\n');
    let mut bytes = Vec::with_capacity(prefix + padded + array.bytes.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    // 64 axes of at most 20 digits stay far below 65,536.
    bytes.extend_from_slice(&(padded as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&array.bytes);
    Ok(bytes)
}

/// A shape as Python writes a tuple: `()`, `(2,)`, `(16, 24, 8)`.
fn tuple(shape: &[usize]) -> String {
    match shape {
        [only] => format!("({only},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// The header's text and the values behind it.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_at_checked(2)?;
    let (length, rest) = match version[0] {
        1 => rest.split_first_chunk::<2>().map(|(n, rest)| (u16::from_le_bytes(*n) as usize, rest))?,
        2 | 3 => rest.split_first_chunk::<4>().map(|(n, rest)| (u32::from_le_bytes(*n) as usize, rest))?,
        _ => return None,
    };
    let (header, values) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(header).ok()?, values))
}

fn dtype_of(descr: &str) -> Option<Dtype> {
    Some(match descr {
        "<f8" => Dtype::F64,
        "<f4" => Dtype::F32,
        "<f2" => Dtype::F16,
        "<i8" => Dtype::I64,
        "<i4" => Dtype::I32,
        "|u1" => Dtype::U8,
        "|b1" => Dtype::Bool,
        _ => return None,
    })
}

fn descr_of(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F64 => "<f8",
        Dtype::F32 => "<f4",
        Dtype::F16 => "<f2",
        Dtype::I64 => "<i8",
        Dtype::I32 => "<i4",
        Dtype::U8 => "|u1",
        Dtype::Bool => "|b1",
        Dtype::Bf16 => return None,
    })
}

#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads the dict literal; its three keys may come in any order, and nothing else may be in it.
    fn parse(text: &str) -> Option<Self> {
        let mut scan = Scan(text);
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        scan.eat('{').then_some(())?;
        while !scan.eat('}') {
            let key = scan.quoted()?;
            scan.eat(':').then_some(())?;
            match key {
                "descr" => descr = Some(scan.quoted()?.to_owned()),
                "fortran_order" => fortran_order = Some(scan.boolean()?),
                "shape" => shape = Some(scan.tuple()?),
                _ => return None,
            }
            if !scan.eat(',') {
                scan.eat('}').then_some(())?;
                break;
            }
        }
        scan.0.trim().is_empty().then_some(())?;
        Some(Self { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }
}

/// What is left of a Python literal.
struct Scan<'a>(&'a str);

impl<'a> Scan<'a> {
    fn eat(&mut self, wanted: char) -> bool {
        let rest = self.0.trim_start().strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn quoted(&mut self) -> Option<&'a str> {
        let quote = if self.eat('\'') { '\'' } else { self.eat('"').then_some('"')? };
        let (text, rest) = self.0.split_once(quote)?;
        self.0 = rest;
        Some(text)
    }

    fn word(&mut self) -> &'a str {
        let text = self.0.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        self.0 = &text[end..];
        &text[..end]
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.word() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }
    }

    fn tuple(&mut self) -> Option<Vec<usize>> {
        let mut sides = Vec::new();
        self.eat('(').then_some(())?;
        while !self.eat(')') {
            // numpy under Python 2 wrote long integers with their `L`.
            sides.push(self.word().trim_end_matches('L').parse().ok()?);
            if !self.eat(',') {
                self.eat(')').then_some(())?;
                break;
            }
        }
        Some(sides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, bool, Vec<usize>)> {
        Header::parse(text).map(|h| (h.descr, h.fortran_order, h.shape))
    }

    #[test]
    fn a_header_is_read_in_any_key_order_and_quoting() {
        let wanted = Some(("<f4".to_owned(), false, vec![4, 3]));
        assert_eq!(parsed("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }   \n"), wanted);
        assert_eq!(parsed("{\"shape\":(4L,3L),\"fortran_order\":False,\"descr\":\"<f4\"}"), wanted);
        assert_eq!(parsed("{'descr': '|u1', 'fortran_order': True, 'shape': ()}").unwrap().2, Vec::<usize>::new());
        assert_eq!(parsed("{'descr': '|u1', 'fortran_order': True, 'shape': (7,)}").unwrap().2, vec![7]);
    }

    #[test]
    fn a_header_with_anything_else_in_it_is_refused() {
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3)",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4, -3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4 3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'x': 1}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (4,)}",
            "{'descr': '<f4', 'shape': (4,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)} rest",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn all_three_versions_are_read_and_a_fourth_is_not() {
        let array = Array::from_i64(&[5, -6]);
        let first = write(&array).unwrap();
        assert_eq!(read(&first), Ok(array.clone()));
        for version in [2u8, 3] {
            let mut long = b"\x93NUMPY".to_vec();
            long.extend_from_slice(&[version, 0]);
            long.extend_from_slice(&u32::from(u16::from_le_bytes([first[8], first[9]])).to_le_bytes());
            long.extend_from_slice(&first[10..]);
            assert_eq!(read(&long), Ok(array.clone()));
        }
        let mut fourth = first;
        fourth[6] = 4;
        assert!(read(&fourth).is_err());
    }

    #[test]
    fn a_shape_that_is_not_the_length_of_the_values_is_refused() {
        let swap = |from: &str, to: &str| {
            let text = write(&Array::from_i64(&[5, -6])).unwrap();
            let at = text.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            let mut text = text;
            text.splice(at..at + from.len(), to.bytes());
            read(&text)
        };
        assert!(swap("(2,)", "(3,)").unwrap_err().contains("holds 16 bytes"));
        assert!(swap("<i8", "<i4").unwrap_err().contains("holds 16 bytes"));
        assert!(swap("<i8", ">i8").unwrap_err().contains("dtype `>i8`"));
        // 2^61 elements of 8 bytes overflow the product; 2^40 would be a terabyte.
        for lie in ["(2305843009213693952,)  ", "(1099511627776,)  "] {
            let spaces = " ".repeat(lie.len() - 4);
            assert!(swap(&format!("(2,), }}{spaces}"), &format!("{}, }}", lie.trim_end())).is_err());
        }
    }

    #[test]
    fn column_major_order_is_refused_beyond_one_axis() {
        let header = |shape: &str| {
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            let text = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': {shape}, }}");
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(&[1, 2, 3, 4]);
            read(&bytes)
        };
        assert_eq!(header("(4,)").unwrap().bytes, [1, 2, 3, 4]);
        assert!(header("(2, 2)").unwrap_err().contains("column-major"));
    }
}
