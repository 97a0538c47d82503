//! The marker segments of a JPEG that libjpeg's core does not interpret: the ICC profile.

/// Joins the ICC profile out of the APP2 segments before the first scan (ICC.1:2022, annex B.4).
///
/// `None` where there is none, or where a part is missing, doubled or out of range: such a profile is no profile.
pub(super) fn icc_profile(jpeg: &[u8]) -> Option<Vec<u8>> {
    const TAG: &[u8] = b"ICC_PROFILE\0";
    let mut parts: Vec<Option<&[u8]>> = Vec::new();
    for (marker, payload) in Segments::new(jpeg) {
        let Some([number, count, data @ ..]) = payload.strip_prefix(TAG).filter(|_| marker == APP2) else { continue };
        let (number, count) = (usize::from(*number), usize::from(*count));
        if parts.is_empty() {
            parts = vec![None; count];
        }
        let slot = parts.get_mut(number.checked_sub(1)?)?;
        if count == 0 || slot.replace(data).is_some() {
            return None;
        }
    }
    let parts = parts.into_iter().collect::<Option<Vec<&[u8]>>>()?;
    (!parts.is_empty()).then(|| parts.concat())
}

const APP2: u8 = 0xe2;
const START_OF_SCAN: u8 = 0xda;
const END_OF_IMAGE: u8 = 0xd9;

/// Walks the header's segments as (marker, payload); ends at the first scan or at anything out of order.
struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    fn new(jpeg: &'a [u8]) -> Self {
        Self { rest: jpeg.get(2..).unwrap_or_default() }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // Any number of 0xff may fill the space before a marker.
        let filled = self.rest.iter().take_while(|&&byte| byte == 0xff).count();
        let (&marker, after) = self.rest.get(filled..)?.split_first()?;
        if filled == 0 || matches!(marker, START_OF_SCAN | END_OF_IMAGE) {
            return None;
        }
        // The length counts its own two bytes.
        let length = usize::from(u16::from_be_bytes(*after.first_chunk()?));
        let payload = after.get(2..length)?;
        self.rest = &after[length..];
        Some((marker, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of APP2 segments with these (number, count, data).
    fn header(parts: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let mut jpeg = vec![0xff, 0xd8];
        for (number, count, data) in parts {
            jpeg.extend([0xff, 0xff, APP2]);
            jpeg.extend((2 + 12 + 2 + data.len() as u16).to_be_bytes());
            jpeg.extend(b"ICC_PROFILE\0");
            jpeg.extend([*number, *count]);
            jpeg.extend(*data);
        }
        jpeg.extend([0xff, START_OF_SCAN, 0, 2]);
        jpeg
    }

    #[test]
    fn parts_are_joined_by_number_not_by_place() {
        let jpeg = header(&[(2, 3, b"bb"), (1, 3, b"aaa"), (3, 3, b"c")]);
        assert_eq!(icc_profile(&jpeg).unwrap(), b"aaabbc");
    }

    #[test]
    fn an_incomplete_profile_is_none() {
        for parts in [&[(1, 2, &b"a"[..])][..], &[(0, 1, b"a")], &[(2, 1, b"a")], &[(1, 1, b"a"), (1, 1, b"a")], &[]] {
            assert_eq!(icc_profile(&header(parts)), None, "{parts:?}");
        }
    }

    #[test]
    fn no_cut_header_panics() {
        let jpeg = header(&[(1, 1, b"profile")]);
        for length in 0..jpeg.len() {
            let _ = icc_profile(&jpeg[..length]);
        }
    }
}
