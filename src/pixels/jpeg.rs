//! JPEG through libjpeg's own interface, bit for bit what Pillow's libjpeg-turbo gives; the only unsafe file of `pixels`.
//!
//! The exact integer DCT (ISLOW) and fancy upsampling, as libjpeg sets them by default and the trainers' decoders
//! leave them. libjpeg never prints here: its messages are counted, and the warnings that mean missing or corrupt
//! picture data become a refusal, since the rows behind them are gray or smeared.
//!
//! A fatal error leaves C by unwinding (`mozjpeg-sys` is compiled with `-fexceptions` and declares `C-unwind`), is
//! caught here and nowhere else, and the decompressor is destroyed on every way out. In a program that is built with
//! `panic = "abort"` a fatally broken JPEG would end the process; this crate's profiles unwind.

use super::refusal::Refusal;
use crate::units::Size;
use mozjpeg_sys as ffi;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A decoded JPEG.
#[derive(Debug)]
pub(super) struct Jpeg {
    /// Size in the file, whatever its orientation.
    pub size: Size,
    /// 1 gray, 3 RGB, 4 CMYK as stored: Adobe's way, where 255 is no ink.
    pub channels: usize,
    /// Rows of interleaved samples.
    pub data: Vec<u8>,
}

/// Decodes a whole JPEG file held in memory.
///
/// Bytes after the end marker are ignored, and a file that lacks only that marker is accepted when nothing else is
/// missing.
///
/// # Errors
/// Damaged: cut or corrupt picture data. Unsupported: arithmetic coding, 12 bits, lossless, odd colour spaces.
/// Too large: more declared pixels than [`MAX_PIXELS`](super::MAX_PIXELS), told before anything is decoded.
pub(super) fn decode(bytes: &[u8]) -> Result<Jpeg, Refusal> {
    // The session lives inside the closure: whether it returns or unwinds, `Drop` gives C's memory back.
    match catch_unwind(AssertUnwindSafe(|| Session::new().decode(bytes))) {
        Ok(decoded) => decoded,
        Err(payload) => match payload.downcast::<Fatal>() {
            Ok(fatal) => Err(fatal.into_refusal()),
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// A libjpeg message code that ended decoding, carried out of C by unwinding.
struct Fatal(c_int);

impl Fatal {
    fn into_refusal(self) -> Refusal {
        match self.0 {
            ffi::JERR_ARITH_NOTIMPL => Refusal::unsupported("JPEG with arithmetic coding is not read"),
            ffi::JERR_BAD_PRECISION => Refusal::unsupported("JPEG with more than 8 bits a sample is not read"),
            ffi::JERR_SOF_UNSUPPORTED => {
                Refusal::unsupported("this JPEG process (lossless or hierarchical) is not read")
            }
            ffi::JERR_CONVERSION_NOTIMPL | ffi::JERR_BAD_J_COLORSPACE | ffi::JERR_COMPONENT_COUNT => {
                Refusal::unsupported("JPEG with an unusual number of colour channels is not read")
            }
            ffi::JERR_NO_IMAGE | ffi::JERR_INPUT_EOF | ffi::JERR_SOF_NO_SOS => {
                Refusal::damaged("JPEG ends before its picture data begins")
            }
            ffi::JERR_OUT_OF_MEMORY => Refusal::damaged("JPEG needs more memory than there is"),
            code => Refusal::damaged(format!("JPEG is corrupt: libjpeg refuses it with message {code}")),
        }
    }
}

/// What libjpeg warned of while picture data was read.
#[derive(Default)]
struct Warnings {
    /// Set once the header is read: what was odd before does not touch pixels, or ends in an error anyway.
    in_picture: bool,
    /// The file ended without its end marker.
    end_missing: bool,
    /// The first warning that means wrong pixels.
    damage: Option<c_int>,
}

impl Warnings {
    fn record(&mut self, code: c_int) {
        if !self.in_picture {
            return;
        }
        match code {
            ffi::JWRN_JPEG_EOF => self.end_missing = true,
            ffi::JWRN_HIT_MARKER
            | ffi::JWRN_HUFF_BAD_CODE
            | ffi::JWRN_MUST_RESYNC
            | ffi::JWRN_EXTRANEOUS_DATA
            | ffi::JWRN_BOGUS_PROGRESSION => self.damage = self.damage.or(Some(code)),
            _ => {}
        }
    }

    /// Refuses what was warned of; `complete` tells whether every scan of the picture was seen.
    fn verdict(&self, complete: bool) -> Result<(), Refusal> {
        let what = match self.damage {
            Some(_) if self.end_missing => "is cut: its picture data ends early",
            None if self.end_missing && !complete => "is cut: some of its scans are missing",
            Some(ffi::JWRN_HIT_MARKER) => "is corrupt: its picture data ends before the last row",
            Some(ffi::JWRN_EXTRANEOUS_DATA) => "is corrupt: its picture data goes on after the last row",
            Some(_) => "is corrupt: its picture data cannot be followed",
            None => return Ok(()),
        };
        Err(Refusal::damaged(format!("JPEG {what}")))
    }
}

/// libjpeg's state. C keeps pointers from one part into another, so the parts are reached by raw pointer alone and
/// stay at one address from `new` to `drop`.
struct Session {
    state: *mut State,
}

struct State {
    decompressor: ffi::jpeg_decompress_struct,
    errors: ffi::jpeg_error_mgr,
    warnings: Warnings,
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: `state` came from `Box::into_raw` in `new` and is dropped only here. Destroying is right in every
        // state, one that was zeroed and never created included (libjpeg looks for a null memory manager), and
        // frees without reporting errors.
        unsafe {
            ffi::jpeg_destroy_decompress(&mut (*self.state).decompressor);
            drop(Box::from_raw(self.state));
        }
    }
}

impl Session {
    fn new() -> Self {
        // SAFETY: both C structs are plain data for which all-zero is a value: null pointers, absent callbacks and
        // first variants.
        let (decompressor, errors) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let state = Box::into_raw(Box::new(State { decompressor, errors, warnings: Warnings::default() }));
        let session = Self { state };
        // SAFETY: `state` points to a live State. The error manager is complete before libjpeg can use it, and
        // `client_data` is set before the first message; jpeg_create_decompress keeps both.
        unsafe {
            let errors = &raw mut (*state).errors;
            ffi::jpeg_std_error(&mut *errors);
            (*errors).error_exit = Some(on_error);
            (*errors).emit_message = Some(on_message);
            (*errors).output_message = Some(on_output);
            let decompressor = &raw mut (*state).decompressor;
            (*decompressor).common.err = errors;
            (*decompressor).common.client_data = (&raw mut (*state).warnings).cast();
            ffi::jpeg_create_decompress(decompressor);
        }
        session
    }

    /// The whole way from header to the last row, once a session.
    fn decode(self, bytes: &[u8]) -> Result<Jpeg, Refusal> {
        let size = self.read_header(bytes)?;
        let channels = self.start()?;
        let data = self.read_rows(size, channels)?;
        // Asked before finishing, which frees the table of scans.
        let complete = self.all_scans_seen();
        // SAFETY: `state` is live and decompression was started. This reads on to the end marker, and so finds
        // picture data behind the last row.
        unsafe { ffi::jpeg_finish_decompress(&mut (*self.state).decompressor) };
        // SAFETY: `state` is live and no call into C is running.
        unsafe { (*self.state).warnings.verdict(complete) }?;
        Ok(Jpeg { size, channels, data })
    }

    /// Reads up to the first scan and checks the declared size.
    fn read_header(&self, bytes: &[u8]) -> Result<Size, Refusal> {
        // SAFETY: `state` is live; `bytes` outlives the session, which `decode` consumes. A length of zero is told
        // by libjpeg itself.
        unsafe {
            let decompressor = &raw mut (*self.state).decompressor;
            ffi::jpeg_mem_src(&mut *decompressor, bytes.as_ptr(), bytes.len() as _);
            const REQUIRE_IMAGE: ffi::boolean = 1;
            ffi::jpeg_read_header(&mut *decompressor, REQUIRE_IMAGE);
            (*self.state).warnings.in_picture = true;
            let size = Size::new((*decompressor).image_width, (*decompressor).image_height);
            if size.area() > super::MAX_PIXELS { Err(Refusal::too_large(size)) } else { Ok(size) }
        }
    }

    /// Chooses the output colours and starts decoding; returns the channels of a row.
    fn start(&self) -> Result<usize, Refusal> {
        // SAFETY: `state` is live and the header was read, so its fields are set.
        unsafe {
            let decompressor = &raw mut (*self.state).decompressor;
            let (output, channels) = match (*decompressor).jpeg_color_space {
                ffi::JCS_GRAYSCALE => (ffi::JCS_GRAYSCALE, 1),
                ffi::JCS_YCbCr | ffi::JCS_RGB => (ffi::JCS_RGB, 3),
                ffi::JCS_CMYK | ffi::JCS_YCCK => (ffi::JCS_CMYK, 4),
                _ => {
                    let count = (*decompressor).num_components;
                    return Err(Refusal::unsupported(format!("JPEG with {count} colour channels is not read")));
                }
            };
            (*decompressor).out_color_space = output;
            (*decompressor).dct_method = ffi::J_DCT_METHOD::JDCT_ISLOW;
            (*decompressor).do_fancy_upsampling = 1;
            ffi::jpeg_start_decompress(&mut *decompressor);
            Ok(channels)
        }
    }

    /// Reads all rows into one buffer.
    fn read_rows(&self, size: Size, channels: usize) -> Result<Vec<u8>, Refusal> {
        // libjpeg hands out at most the rows of one sampling group at a time, and factors go up to 4.
        const ROWS: usize = 4;
        let (stride, height) = (size.width as usize * channels, size.height as usize);
        let mut data = vec![0; stride * height];
        let mut done = 0;
        while done < height {
            let mut rows = [std::ptr::null_mut(); ROWS];
            let wanted = ROWS.min(height - done);
            for (pointer, row) in rows.iter_mut().zip(data[done * stride..].chunks_exact_mut(stride)) {
                *pointer = row.as_mut_ptr();
            }
            // SAFETY: `state` is live and decompression was started unscaled with `channels` a pixel, so a row is
            // `stride` bytes; the first `wanted` pointers lead to distinct whole rows of `data`, which nothing else
            // touches during the call.
            let read = unsafe {
                ffi::jpeg_read_scanlines(&mut (*self.state).decompressor, rows.as_mut_ptr(), wanted as ffi::JDIMENSION)
            };
            if read == 0 {
                return Err(Refusal::damaged(format!("JPEG stops at row {done} of {height}")));
            }
            done += read as usize;
        }
        Ok(data)
    }

    /// True when no scan can be missing: asked only of files without an end marker.
    ///
    /// A baseline picture of one scan answers by its warnings. A progressive one must have sent every coefficient
    /// to its last bit. A sequential one of several scans must have had one for each component: scans of two
    /// components would be refused wrongly, and only where the end marker is gone as well.
    fn all_scans_seen(&self) -> bool {
        // SAFETY: `state` is live and between start and finish, when `coef_bits`, if not null, is libjpeg's table
        // of 64 ints for each component (a second half of as many rows follows, which is not read).
        unsafe {
            let decompressor = &raw mut (*self.state).decompressor;
            let components = (*decompressor).num_components as usize;
            let bits = (*decompressor).coef_bits.cast::<[c_int; 64]>();
            if !bits.is_null() {
                return std::slice::from_raw_parts(bits, components).as_flattened().iter().all(|&left| left == 0);
            }
            let several = ffi::jpeg_has_multiple_scans(&*decompressor) != 0;
            !several || (*decompressor).input_scan_number as usize >= components
        }
    }
}

/// libjpeg's way out of a fatal error; it must not return.
///
/// `resume_unwind` rather than a panic: no hook runs and nothing is printed.
unsafe extern "C-unwind" fn on_error(common: &mut ffi::jpeg_common_struct) {
    // SAFETY: libjpeg calls this with the error manager that `Session::new` set.
    let code = unsafe { (*common.err).msg_code };
    resume_unwind(Box::new(Fatal(code)));
}

/// Takes note of warnings (level -1) and ignores traces.
unsafe extern "C-unwind" fn on_message(common: &mut ffi::jpeg_common_struct, level: c_int) {
    if level < 0 {
        // SAFETY: `err` and `client_data` are those that `Session::new` set; no Rust reference to the warnings is
        // held while C runs.
        unsafe {
            let code = (*common.err).msg_code;
            (*common.client_data.cast::<Warnings>()).record(code);
        }
    }
}

/// Prints nothing: a library has no business on stderr.
unsafe extern "C-unwind" fn on_output(_: &mut ffi::jpeg_common_struct) {}
