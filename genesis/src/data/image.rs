//! Pictures on the host: decoded from PNG and JPEG, written as PNG.
//!
//! Pixels are floats from 0 to 1, channel by channel, row by row, which is a tensor's order: a picture
//! becomes a tensor without being turned round, and transforms lose nothing to rounding between them.

use std::fs;
use std::io::{BufWriter, Cursor};
use std::path::Path;

use genesis_kernel::runtime::Device;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::error::{Error, Result};
use crate::files::{ReadLimits, can_inflate, read_regular};
use crate::tensor::Tensor;
use crate::tensor::host::reserved;

/// What a byte of a JPEG file can at most be: a bit for each block of 8x8 pixels, which is the shortest code,
/// and of two components that are high and wide one block a half.
const JPEG_PIXELS_PER_BYTE: u64 = 1024;

/// A picture of 1 (gray), 2 (gray, alpha), 3 (RGB) or 4 (RGB, alpha) channels.
#[derive(Clone, PartialEq, Debug)]
pub struct Image {
    channels: usize,
    height: usize,
    width: usize,
    pixels: Vec<f32>,
}

impl Image {
    /// A picture of `pixels` in the order channel, row, column.
    ///
    /// # Errors
    /// If their number does not fit, or there is no channel.
    pub fn new(channels: usize, height: usize, width: usize, pixels: Vec<f32>) -> Result<Image> {
        if channels == 0 || count(channels, height, width) != Some(pixels.len()) {
            let message = format!("{} pixels are no {channels}x{height}x{width}", pixels.len());
            return Err(Error::op("image", message));
        }
        Ok(Image { channels, height, width, pixels })
    }

    /// A picture of bytes in the order row, column, channel; 255 becomes 1.
    ///
    /// # Errors
    /// If their number does not fit, or there is no channel, or memory runs out.
    pub fn from_bytes(channels: usize, height: usize, width: usize, bytes: &[u8]) -> Result<Image> {
        if channels == 0 || count(channels, height, width) != Some(bytes.len()) {
            let message = format!("{} bytes are no {channels}x{height}x{width}", bytes.len());
            return Err(Error::op("image", message));
        }
        let mut pixels = reserved(bytes.len()).map_err(|what| Error::op("image", what))?;
        if !bytes.is_empty() {
            for channel in 0..channels {
                let plane = bytes[channel..].iter().step_by(channels);
                pixels.extend(plane.map(|&byte| f32::from(byte) / 255.0));
            }
        }
        Image::new(channels, height, width, pixels)
    }

    /// Reads a PNG or JPEG file; which of both it is, its first bytes say.
    ///
    /// # Errors
    /// If it can't be read, is cut off, damaged or something else, or would take more memory than
    /// [`ReadLimits::default`] allows.
    pub fn open(path: impl AsRef<Path>) -> Result<Image> {
        Image::open_with(path, &ReadLimits::default())
    }

    /// [`Image::open`] with other limits.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open_with(path: impl AsRef<Path>, limits: &ReadLimits) -> Result<Image> {
        let path = path.as_ref();
        let bytes = read_regular(path)?;
        Image::decode_with(&bytes, limits)
            .map_err(|error| Error::io(format!("{}: {error}", path.display())))
    }

    /// Decodes the bytes of a PNG or JPEG file.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn decode(bytes: &[u8]) -> Result<Image> {
        Image::decode_with(bytes, &ReadLimits::default())
    }

    /// [`Image::decode`] with other limits.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn decode_with(bytes: &[u8], limits: &ReadLimits) -> Result<Image> {
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => decode_png(bytes, limits),
            [0xFF, 0xD8, 0xFF, ..] => decode_jpeg(bytes, limits),
            _ => Err(Error::io("is neither PNG nor JPEG")),
        }
    }

    /// Writes a PNG file of 8 bits a channel. Pixels outside of 0 to 1 are clamped, NaN is 0.
    ///
    /// # Errors
    /// If it can't be written, or has no pixel or more than 4 channels.
    pub fn save_png(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let problem =
            |e: &dyn std::fmt::Display| Error::io(format!("can't write {}: {e}", path.display()));
        let color = match self.channels {
            1 => png::ColorType::Grayscale,
            2 => png::ColorType::GrayscaleAlpha,
            3 => png::ColorType::Rgb,
            4 => png::ColorType::Rgba,
            n => return Err(problem(&format!("a PNG has no {n} channels"))),
        };
        // The format's own limit, 2^31 - 1.
        let extent = |n: usize| u32::try_from(n).ok().filter(|n| (1..1 << 31).contains(n));
        let (Some(width), Some(height)) = (extent(self.width), extent(self.height)) else {
            return Err(problem(&format!("a PNG has no {}x{} pixels", self.width, self.height)));
        };
        let bytes = self.to_bytes()?;
        let file = fs::File::create(path).map_err(|e| problem(&e))?;
        let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
        encoder.set_color(color);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|e| problem(&e))?;
        writer.write_image_data(&bytes).map_err(|e| problem(&e))?;
        writer.finish().map_err(|e| problem(&e))
    }

    /// Pictures of one size side by side, `columns` in a row, as a contact sheet.
    ///
    /// # Errors
    /// If there is no picture, or sizes differ.
    pub fn grid(images: &[Image], columns: usize) -> Result<Image> {
        let Some(first) = images.first() else { return Err(Error::op("grid", "no pictures")) };
        let (channels, height, width) = (first.channels, first.height, first.width);
        if images.iter().any(|i| (i.channels, i.height, i.width) != (channels, height, width)) {
            return Err(Error::op("grid", "pictures of several sizes"));
        }
        let columns = columns.clamp(1, images.len());
        let rows = images.len().div_ceil(columns);
        let extents = rows.checked_mul(height).zip(columns.checked_mul(width));
        let (whole_height, whole_width) =
            extents.ok_or_else(|| Error::op("grid", "more pixels than memory holds"))?;
        Image::from_fn("grid", [channels, whole_height, whole_width], |channel, y, x| {
            let image = images.get(y / height * columns + x / width);
            image.map_or(0.0, |image| image.pixel(channel, y % height, x % width))
        })
    }

    /// The number of channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The pixels in the order channel, row, column.
    pub fn pixels(&self) -> &[f32] {
        &self.pixels
    }

    /// One pixel of one channel; `None` outside of the picture.
    pub fn at(&self, channel: usize, row: usize, column: usize) -> Option<f32> {
        let inside = channel < self.channels && row < self.height && column < self.width;
        inside.then(|| self.pixel(channel, row, column))
    }

    /// One pixel that is inside.
    pub(super) fn pixel(&self, channel: usize, row: usize, column: usize) -> f32 {
        self.pixels[(channel * self.height + row) * self.width + column]
    }

    /// A picture whose pixel at each channel, row and column `f` gives.
    pub(super) fn from_fn(
        op: &str,
        [channels, height, width]: [usize; 3],
        mut f: impl FnMut(usize, usize, usize) -> f32,
    ) -> Result<Image> {
        let too_large = || {
            Error::op(op, format!("{channels}x{height}x{width} pixels are more than memory holds"))
        };
        let total = count(channels, height, width).ok_or_else(too_large)?;
        let mut pixels = reserved(total).map_err(|_| too_large())?;
        // Where one extent is 0 the others may be anything.
        if total > 0 {
            for channel in 0..channels {
                for row in 0..height {
                    pixels.extend((0..width).map(|column| f(channel, row, column)));
                }
            }
        }
        Image::new(channels, height, width, pixels)
    }

    /// The picture as f32 `[C, H, W]` on the CPU.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let shape = [self.channels, self.height, self.width];
        Tensor::from_slice_on(&self.pixels, &shape, Device::Cpu)
    }

    /// A picture of a tensor `[C, H, W]` or `[H, W]`.
    ///
    /// # Errors
    /// If it has another number of axes.
    pub fn from_tensor(tensor: &Tensor) -> Result<Image> {
        let (channels, height, width) = match *tensor.shape() {
            [height, width] => (1, height, width),
            [channels, height, width] => (channels, height, width),
            ref shape => {
                let message = format!("{shape:?} is neither [C, H, W] nor [H, W]");
                return Err(Error::op("image", message));
            }
        };
        let pixels = tensor.to_f64_vec()?.into_iter().map(|pixel| pixel as f32).collect();
        Image::new(channels, height, width, pixels)
    }

    /// The picture with 1 channel (by luma) or 3 (repeated); alpha is dropped.
    ///
    /// # Errors
    /// If another number is asked for.
    pub fn with_channels(&self, channels: usize) -> Result<Image> {
        let gray = self.channels < 3;
        let pixel = |channel: usize, row, column| match (gray, channels) {
            (true, _) => self.pixel(0, row, column),
            (false, 3) => self.pixel(channel, row, column),
            // The weights of ITU-R 601, which PIL and torchvision use.
            (false, _) => {
                let [r, g, b] = [0, 1, 2].map(|channel| self.pixel(channel, row, column));
                0.299 * r + 0.587 * g + 0.114 * b
            }
        };
        match channels {
            1 | 3 => Image::from_fn("image", [channels, self.height, self.width], pixel),
            _ => Err(Error::op("image", format!("can't have {channels} channels, only 1 or 3"))),
        }
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = reserved(self.pixels.len()).map_err(|what| Error::op("image", what))?;
        let plane = self.height * self.width;
        for place in 0..plane {
            let channels = self.pixels[place..].iter().step_by(plane);
            // A cast takes NaN to 0 and saturates.
            bytes.extend(channels.map(|pixel| (pixel * 255.0).round() as u8));
        }
        Ok(bytes)
    }
}

/// The number of a picture's pixels, all channels of them.
fn count(channels: usize, height: usize, width: usize) -> Option<usize> {
    // The largest two together may be no number, and their product with a third that is 0 is.
    if [channels, height, width].contains(&0) {
        return Some(0);
    }
    channels.checked_mul(height)?.checked_mul(width)
}

fn decode_png(bytes: &[u8], limits: &ReadLimits) -> Result<Image> {
    let problem = |error: png::DecodingError| Error::io(format!("is a damaged PNG: {error}"));
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    let mut reader = decoder.read_info().map_err(problem)?;
    let info = reader.info();
    let (width, height) = (u64::from(info.width), u64::from(info.height));
    // Each row has a byte for its filter; interlaced pictures have more rows, which changes no limit.
    let bits = width * (info.color_type.samples() * info.bit_depth as usize) as u64;
    let raw = (1 + bits.div_ceil(8)).saturating_mul(height);
    let holds = can_inflate(bytes.len() as u64, raw);
    let channels = reader.output_color_type().0.samples();
    check_size([channels as u64, height, width], bytes, holds, limits)?;
    let size = reader.output_buffer_size().ok_or_else(|| Error::io("is a PNG too large"))?;
    let mut pixels = reserved(size).map_err(Error::io)?;
    pixels.resize(size, 0);
    let frame = reader.next_frame(&mut pixels).map_err(problem)?;
    pixels.truncate(frame.buffer_size());
    Image::from_bytes(frame.color_type.samples(), height as usize, width as usize, &pixels)
}

fn decode_jpeg(bytes: &[u8], limits: &ReadLimits) -> Result<Image> {
    let problem = |error: &dyn std::fmt::Debug| Error::io(format!("is a damaged JPEG: {error:?}"));
    // Decoders fill with gray what is missing.
    if !has_jpeg_end(bytes) {
        return Err(Error::io("is a JPEG that is cut off: it does not end with an end marker"));
    }
    let most = usize::from(u16::MAX);
    let options = DecoderOptions::default().set_strict_mode(true);
    let options = options.set_max_width(most).set_max_height(most);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| problem(&error))?;
    let info = decoder.info().ok_or_else(|| problem(&"no header"))?;
    let (width, height) = (u64::from(info.width), u64::from(info.height));
    let holds = width * height <= JPEG_PIXELS_PER_BYTE * bytes.len() as u64;
    // Three channels come of four too.
    let channels = u64::from(info.components.clamp(1, 3));
    check_size([channels, height, width], bytes, holds, limits)?;
    let pixels = decoder.decode().map_err(|error| problem(&error))?;
    let channels = pixels.len() / (width * height) as usize;
    Image::from_bytes(channels, height as usize, width as usize, &pixels)
}

/// Whether segments and scans lead to the marker that ends a JPEG file.
fn has_jpeg_end(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        // Between scans this passes over the data, whose bytes of 255 are followed by 0 or a restart.
        let Some(&[first, marker]) = bytes.get(at..at + 2) else { return false };
        at += match (first, marker) {
            (0xFF, 0xD9) => return true,
            (0xFF, 0x00 | 0x01 | 0xD0..=0xD7) => 2,
            (0xFF, 0xC0..=0xFE) => match bytes.get(at + 2..at + 4) {
                Some(&[high, low]) => 2 + usize::from(u16::from_be_bytes([high, low])),
                _ => return false,
            },
            _ => 1,
        };
    }
}

/// Refuses pictures that the file can't hold or whose floats would be over the limits.
fn check_size(
    [channels, height, width]: [u64; 3],
    file: &[u8],
    holds: bool,
    limits: &ReadLimits,
) -> Result<()> {
    if height == 0 || width == 0 || !holds {
        let message =
            format!("says it is {width}x{height} pixels, which {} bytes can't hold", file.len());
        return Err(Error::io(message));
    }
    let floats = height.saturating_mul(width).saturating_mul(4 * channels);
    limits.check(floats, file.len() as u64).map_err(Error::io)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(channels: usize) -> Image {
        let pixel = |c, y, x| (c * 60 + y * 30 + x * 10) as f32 / 255.0;
        Image::from_fn("ramp", [channels, 2, 3], pixel).unwrap()
    }

    #[test]
    fn png_survives_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for channels in 1..=4 {
            let path = folder.path().join(format!("{channels}.png"));
            ramp(channels).save_png(&path).unwrap();
            assert_eq!(Image::open(&path).unwrap(), ramp(channels));
        }
        assert!(ramp(5).save_png(folder.path().join("5.png")).is_err());
    }

    #[test]
    fn damaged_pictures_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.png");
        ramp(3).save_png(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        for len in 0..bytes.len() - 12 {
            assert!(Image::decode(&bytes[..len]).is_err(), "{len}");
        }
        fs::write(&path, b"GIF89a").unwrap();
        let error = Image::open(&path).unwrap_err().to_string();
        assert!(error.ends_with("x.png: is neither PNG nor JPEG"), "{error}");
        assert!(Image::decode(&[0xFF, 0xD8, 0xFF, 0xE0, 0, 0]).is_err());
    }

    #[test]
    fn channels_become_others() {
        let gray = ramp(3).with_channels(1).unwrap();
        let want = (0.587 * 60.0 + 0.114 * 120.0 + 40.0) / 255.0;
        assert!((gray.pixel(0, 1, 1) - want).abs() < 1e-6);
        assert_eq!(gray.with_channels(3).unwrap().at(2, 1, 1), gray.at(0, 1, 1));
        assert_eq!((gray.at(1, 0, 0), gray.at(0, 2, 0), gray.at(0, 0, 3)), (None, None, None));
        assert_eq!(ramp(4).with_channels(3).unwrap(), ramp(3));
        assert!(gray.with_channels(2).is_err());
    }

    #[test]
    fn a_small_png_cannot_ask_for_much_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.png");
        ramp(1).save_png(&path).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        // The extents of the header and their checksum.
        bytes[16..24].copy_from_slice(&[0, 0, 0x40, 0, 0, 0, 0x3F, 0]);
        let mut sum = flate2::Crc::new();
        sum.update(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.sum().to_be_bytes());
        let error = Image::decode(&bytes).unwrap_err().to_string();
        let len = bytes.len();
        assert_eq!(error, format!("says it is 16384x16128 pixels, which {len} bytes can't hold"));
        let limits = ReadLimits { max_alloc: 23, max_ratio: 0 };
        let error = Image::open_with(&path, &limits).unwrap_err().to_string();
        assert!(error.contains("would take 24 bytes of memory"), "{error}");
    }

    #[test]
    fn extents_that_are_no_number_are_refused() {
        assert!(Image::from_bytes(4, 1 << 62, 1, &[]).is_err());
        assert!(Image::new(0, 1, 1, vec![]).is_err() && Image::from_bytes(0, 0, 0, &[]).is_err());
        let line = Image::new(usize::MAX, 0, usize::MAX, vec![]).unwrap();
        assert!(line.with_channels(1).unwrap().pixels().is_empty());
        assert!(Image::grid(&[line.clone(), line.clone()], 1).unwrap().pixels().is_empty());
        assert!(Image::grid(&[line.clone(), line], 2).is_err());
    }

    #[test]
    fn a_grid_places_row_by_row() {
        let plain = |v: f32| Image::new(1, 1, 1, vec![v]).unwrap();
        let sheet = Image::grid(&[plain(1.0), plain(2.0), plain(3.0)], 2).unwrap();
        assert_eq!(
            (sheet.height(), sheet.width(), sheet.pixels()),
            (2, 2, &[1.0, 2.0, 3.0, 0.0][..])
        );
        assert!(Image::grid(&[], 2).is_err());
    }
}
