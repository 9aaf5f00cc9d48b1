//! Pictures on the host: decoded from PNG and JPEG, written as PNG.
//!
//! Pixels are floats from 0 to 1, channel by channel, row by row, which is a tensor's order: a picture
//! becomes a tensor without being turned round, and transforms lose nothing to rounding between them.

use std::fs;
use std::io::{BufWriter, Cursor};
use std::path::Path;

use genesis_kernel::runtime::Device;
use zune_jpeg::zune_core::bytestream::ZCursor;

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The most pixels of a picture that is read: what a header claims is not believed beyond.
const MOST_PIXELS: usize = 1 << 28;

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
    /// If their number does not fit.
    pub fn new(channels: usize, height: usize, width: usize, pixels: Vec<f32>) -> Result<Image> {
        if channels.checked_mul(height).and_then(|n| n.checked_mul(width)) != Some(pixels.len()) {
            let message = format!("{} pixels are no {channels}x{height}x{width}", pixels.len());
            return Err(Error::op("image", message));
        }
        Ok(Image { channels, height, width, pixels })
    }

    /// A picture of bytes in the order row, column, channel; 255 becomes 1.
    ///
    /// # Errors
    /// If their number does not fit.
    pub fn from_bytes(channels: usize, height: usize, width: usize, bytes: &[u8]) -> Result<Image> {
        if channels == 0 || height * width * channels != bytes.len() {
            let message = format!("{} bytes are no {channels}x{height}x{width}", bytes.len());
            return Err(Error::op("image", message));
        }
        let mut pixels = Vec::with_capacity(bytes.len());
        for channel in 0..channels {
            let plane = bytes[channel..].iter().step_by(channels);
            pixels.extend(plane.map(|&byte| f32::from(byte) / 255.0));
        }
        Image::new(channels, height, width, pixels)
    }

    /// Reads a PNG or JPEG file; which of both it is, its first bytes say.
    ///
    /// # Errors
    /// If it can't be read, is damaged, or is something else.
    pub fn open(path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        let problem = |what: String| Error::io(format!("{}: {what}", path.display()));
        let bytes = fs::read(path).map_err(|error| problem(error.to_string()))?;
        Image::decode(&bytes).map_err(|error| problem(error.to_string()))
    }

    /// Decodes the bytes of a PNG or JPEG file.
    ///
    /// # Errors
    /// If they are damaged or something else.
    pub fn decode(bytes: &[u8]) -> Result<Image> {
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => decode_png(bytes),
            [0xFF, 0xD8, 0xFF, ..] => decode_jpeg(bytes),
            _ => Err(Error::io("is neither PNG nor JPEG")),
        }
    }

    /// Writes a PNG file of 8 bits a channel. Pixels outside of 0 to 1 are clamped, NaN is 0.
    ///
    /// # Errors
    /// If it can't be written.
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
        let file = fs::File::create(path).map_err(|e| problem(&e))?;
        let mut encoder =
            png::Encoder::new(BufWriter::new(file), self.width as u32, self.height as u32);
        encoder.set_color(color);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|e| problem(&e))?;
        writer.write_image_data(&self.to_bytes()).map_err(|e| problem(&e))?;
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
        let whole = vec![0.0; channels * rows * height * columns * width];
        let mut sheet = Image::new(channels, rows * height, columns * width, whole)?;
        for (number, image) in images.iter().enumerate() {
            let (top, left) = (number / columns * height, number % columns * width);
            for channel in 0..channels {
                for row in 0..height {
                    let to = (channel * sheet.height + top + row) * sheet.width + left;
                    let from = (channel * height + row) * width;
                    sheet.pixels[to..to + width].copy_from_slice(&image.pixels[from..from + width]);
                }
            }
        }
        Ok(sheet)
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

    /// One pixel of one channel; nothing is outside.
    pub fn at(&self, channel: usize, row: usize, column: usize) -> f32 {
        self.pixels[(channel * self.height + row) * self.width + column]
    }

    /// A picture of another size whose pixel at each channel, row and column `f` gives.
    pub(super) fn from_fn(
        channels: usize,
        height: usize,
        width: usize,
        mut f: impl FnMut(usize, usize, usize) -> f32,
    ) -> Image {
        let mut pixels = Vec::with_capacity(channels * height * width);
        for channel in 0..channels {
            for row in 0..height {
                pixels.extend((0..width).map(|column| f(channel, row, column)));
            }
        }
        Image { channels, height, width, pixels }
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
            (true, _) => self.at(0, row, column),
            (false, 3) => self.at(channel, row, column),
            // The weights of ITU-R 601, which PIL and torchvision use.
            (false, _) => {
                let [r, g, b] = [0, 1, 2].map(|channel| self.at(channel, row, column));
                0.299 * r + 0.587 * g + 0.114 * b
            }
        };
        match channels {
            1 | 3 => Ok(Image::from_fn(channels, self.height, self.width, pixel)),
            _ => Err(Error::op("image", format!("can't have {channels} channels, only 1 or 3"))),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.pixels.len()];
        for channel in 0..self.channels {
            let plane = self.pixels[channel * self.height * self.width..].iter();
            for (byte, pixel) in bytes[channel..].iter_mut().step_by(self.channels).zip(plane) {
                // A cast takes NaN to 0 and saturates.
                *byte = (pixel * 255.0).round() as u8;
            }
        }
        bytes
    }
}

fn decode_png(bytes: &[u8]) -> Result<Image> {
    let problem = |error: png::DecodingError| Error::io(format!("is a damaged PNG: {error}"));
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(problem)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    check_size(height, width)?;
    let size = reader.output_buffer_size().ok_or_else(|| Error::io("is a PNG too large"))?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(problem)?;
    pixels.truncate(frame.buffer_size());
    Image::from_bytes(frame.color_type.samples(), height, width, &pixels)
}

fn decode_jpeg(bytes: &[u8]) -> Result<Image> {
    let problem = |error: &dyn std::fmt::Debug| Error::io(format!("is a damaged JPEG: {error:?}"));
    let mut decoder = zune_jpeg::JpegDecoder::new(ZCursor::new(bytes));
    decoder.decode_headers().map_err(|error| problem(&error))?;
    let info = decoder.info().ok_or_else(|| problem(&"no header"))?;
    let (width, height) = (usize::from(info.width), usize::from(info.height));
    check_size(height, width)?;
    let pixels = decoder.decode().map_err(|error| problem(&error))?;
    let channels = pixels.len() / (width * height).max(1);
    Image::from_bytes(channels, height, width, &pixels)
}

fn check_size(height: usize, width: usize) -> Result<()> {
    match height.checked_mul(width) {
        Some(pixels) if (1..=MOST_PIXELS).contains(&pixels) => Ok(()),
        _ => Err(Error::io(format!("says it is {width}x{height} pixels, which is not read"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(channels: usize) -> Image {
        Image::from_fn(channels, 2, 3, |c, y, x| (c * 60 + y * 30 + x * 10) as f32 / 255.0)
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
        assert!((gray.at(0, 1, 1) - want).abs() < 1e-6);
        assert_eq!(gray.with_channels(3).unwrap().at(2, 1, 1), gray.at(0, 1, 1));
        assert_eq!(ramp(4).with_channels(3).unwrap(), ramp(3));
        assert!(gray.with_channels(2).is_err());
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
