//! Transforms of pictures. What is random in them comes from the sample's own numbers, so that
//! neither the order of samples nor the number of workers changes a picture.

use super::image::Image;
use super::rng::SampleRng;
use crate::error::{Error, Result};
use crate::tensor::host::reserved;

/// A change of a picture.
pub trait Transform: Send + Sync {
    /// The changed picture.
    ///
    /// # Errors
    /// If the picture does not fit.
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image>;
}

/// Transforms one after another.
///
/// # Examples
/// ```
/// use genesis::data::{Compose, Image, Normalize, RandomCrop, RandomHorizontalFlip};
/// use genesis::data::{SampleRng, Transform};
///
/// let train = Compose::new()
///     .with(RandomCrop { height: 28, width: 28, padding: 2 })
///     .with(RandomHorizontalFlip { p: 0.5 })
///     .with(Normalize { mean: vec![0.286], std: vec![0.353] });
/// let image = Image::new(1, 28, 28, vec![0.5; 784])?;
/// let x = train.apply(image, &mut SampleRng::of_sample(0, 0, 7))?.to_tensor()?;
/// assert_eq!(x.shape(), [1, 28, 28]);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Default)]
pub struct Compose {
    steps: Vec<Box<dyn Transform>>,
}

impl Compose {
    /// No transform yet.
    pub fn new() -> Compose {
        Compose::default()
    }

    /// With one more at the end.
    pub fn with(mut self, step: impl Transform + 'static) -> Compose {
        self.steps.push(Box::new(step));
        self
    }
}

impl Transform for Compose {
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image> {
        self.steps.iter().try_fold(image, |image, step| step.apply(image, rng))
    }
}

/// `(x - mean) / std`, a number for each channel or one for all.
#[derive(Clone, Debug)]
pub struct Normalize {
    /// What becomes 0.
    pub mean: Vec<f32>,
    /// What becomes 1, measured from the mean.
    pub std: Vec<f32>,
}

impl Transform for Normalize {
    fn apply(&self, image: Image, _: &mut SampleRng) -> Result<Image> {
        let fits = |values: &[f32]| values.len() == 1 || values.len() == image.channels();
        if !fits(&self.mean) || !fits(&self.std) || self.std.contains(&0.0) {
            let message = format!(
                "{} means and {} deviations do not fit {} channels, or one is 0",
                self.mean.len(),
                self.std.len(),
                image.channels()
            );
            return Err(Error::op("normalize", message));
        }
        let of = |values: &[f32], channel: usize| values[channel.min(values.len() - 1)];
        let shape = [image.channels(), image.height(), image.width()];
        Image::from_fn("normalize", shape, |c, y, x| {
            (image.pixel(c, y, x) - of(&self.mean, c)) / of(&self.std, c)
        })
    }
}

/// Another size, bilinear, with a wider filter where it shrinks.
///
/// # Source
/// The same weights as `torch.nn.functional.interpolate(mode="bilinear", antialias=True)`.
#[derive(Clone, Copy, Debug)]
pub enum Resize {
    /// Exactly this height and width.
    To(usize, usize),
    /// The shorter edge becomes this long, the other keeps the ratio.
    Shorter(usize),
}

impl Transform for Resize {
    fn apply(&self, image: Image, _: &mut SampleRng) -> Result<Image> {
        let (height, width) = match *self {
            Resize::To(height, width) => (height, width),
            Resize::Shorter(edge) => {
                let (short, long) =
                    (image.height().min(image.width()), image.height().max(image.width()));
                let other = edge as u128 * long as u128 / short.max(1) as u128;
                let other = usize::try_from(other).unwrap_or(usize::MAX);
                if image.height() <= image.width() { (edge, other) } else { (other, edge) }
            }
        };
        if height == 0 || width == 0 || image.pixels().is_empty() {
            let message =
                format!("no way from {}x{} to {height}x{width}", image.height(), image.width());
            return Err(Error::op(RESIZE, message));
        }
        // Rows first, but where that makes much more than what comes in and goes out.
        let [rows_first, columns_first] = [(image.height(), width), (height, image.width())]
            .map(|(height, width)| height.saturating_mul(width));
        let both = (image.height() * image.width()).max(height.saturating_mul(width));
        if rows_first > both.saturating_mul(2) && columns_first < rows_first {
            return along_columns(&along_rows(&image, height)?, width);
        }
        along_rows(&along_columns(&image, width)?, height)
    }
}

const RESIZE: &str = "resize";

fn along_columns(image: &Image, width: usize) -> Result<Image> {
    let shape = [image.channels(), image.height(), width];
    let columns = Weights::new(image.width(), width)?;
    Image::from_fn(RESIZE, shape, |c, y, x| {
        let (start, weights) = columns.of(x);
        weights.iter().enumerate().map(|(i, w)| w * image.pixel(c, y, start + i)).sum()
    })
}

fn along_rows(image: &Image, height: usize) -> Result<Image> {
    let shape = [image.channels(), height, image.width()];
    let rows = Weights::new(image.height(), height)?;
    Image::from_fn(RESIZE, shape, |c, y, x| {
        let (start, weights) = rows.of(y);
        weights.iter().enumerate().map(|(i, w)| w * image.pixel(c, start + i, x)).sum()
    })
}

/// For each new place the first old place that it takes from, and the weights from there on.
struct Weights {
    /// The first old place, and where its weights begin.
    starts: Vec<(usize, usize)>,
    weights: Vec<f32>,
}

impl Weights {
    fn new(from: usize, to: usize) -> Result<Weights> {
        let refuse = |what| Error::op(RESIZE, what);
        let scale = from as f64 / to as f64;
        let radius = scale.max(1.0);
        let mut starts = reserved(to).map_err(refuse)?;
        let mut weights: Vec<f32> = Vec::new();
        for place in 0..to {
            let center = scale * (place as f64 + 0.5);
            let start = ((center - radius + 0.5).floor().max(0.0) as usize).min(from - 1);
            let end = ((center + radius + 0.5).floor() as usize).clamp(start + 1, from);
            let weight = |at: usize| (1.0 - ((at as f64 - center + 0.5) / radius).abs()).max(0.0);
            let sum: f64 = (start..end).map(weight).sum();
            let more = |_| refuse("its weights are more than memory holds".to_owned());
            weights.try_reserve(end - start).map_err(more)?;
            starts.push((start, weights.len()));
            weights.extend((start..end).map(|at| (weight(at) / sum) as f32));
        }
        Ok(Weights { starts, weights })
    }

    fn of(&self, place: usize) -> (usize, &[f32]) {
        let (start, first) = self.starts[place];
        let end = self.starts.get(place + 1).map_or(self.weights.len(), |&(_, next)| next);
        (start, &self.weights[first..end])
    }
}

/// The middle of a picture; zeros around it where it is too small.
#[derive(Clone, Copy, Debug)]
pub struct CenterCrop {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Transform for CenterCrop {
    fn apply(&self, image: Image, _: &mut SampleRng) -> Result<Image> {
        // Python's round, which torchvision uses here, takes halves to even.
        let middle = |whole: usize, part: usize| {
            let difference = whole as i128 - part as i128;
            let half = difference.div_euclid(2);
            // A half goes down below zero, above it to the even of both.
            let is_up = difference > 0 && difference % 2 == 1 && half % 2 == 1;
            half + i128::from(is_up)
        };
        let (top, left) = (middle(image.height(), self.height), middle(image.width(), self.width));
        window("center_crop", &image, [top, left], [self.height, self.width])
    }
}

/// A part of a picture at a random place, after zeros are put around it.
#[derive(Clone, Copy, Debug)]
pub struct RandomCrop {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Zeros on each side.
    pub padding: usize,
}

impl Transform for RandomCrop {
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image> {
        let mut place = |whole: usize, part: usize| {
            let padding = self.padding;
            let padded = padding.checked_mul(2).and_then(|both| both.checked_add(whole));
            let free = padded.and_then(|padded| padded.checked_sub(part)).ok_or_else(|| {
                let message = format!("{part} pixels of {whole} and {padding} on each side");
                Error::op("random_crop", message)
            })?;
            Ok::<i128, Error>(rng.below(free.saturating_add(1)) as i128 - padding as i128)
        };
        let (top, left) = (place(image.height(), self.height)?, place(image.width(), self.width)?);
        window("random_crop", &image, [top, left], [self.height, self.width])
    }
}

/// A part of a picture; what is outside of it is 0.
fn window(
    op: &str,
    image: &Image,
    [top, left]: [i128; 2],
    [height, width]: [usize; 2],
) -> Result<Image> {
    let inside = |at: i128, extent: usize| usize::try_from(at).ok().filter(|&at| at < extent);
    Image::from_fn(op, [image.channels(), height, width], |c, y, x| {
        let row = inside(top + y as i128, image.height());
        let column = inside(left + x as i128, image.width());
        row.zip(column).map_or(0.0, |(row, column)| image.pixel(c, row, column))
    })
}

/// Left and right exchanged, with probability `p`.
#[derive(Clone, Copy, Debug)]
pub struct RandomHorizontalFlip {
    /// The probability.
    pub p: f64,
}

impl Transform for RandomHorizontalFlip {
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image> {
        if !rng.happens(self.p) {
            return Ok(image);
        }
        let shape = [image.channels(), image.height(), image.width()];
        Image::from_fn("flip", shape, |c, y, x| image.pixel(c, y, image.width() - 1 - x))
    }
}

/// Top and bottom exchanged, with probability `p`.
#[derive(Clone, Copy, Debug)]
pub struct RandomVerticalFlip {
    /// The probability.
    pub p: f64,
}

impl Transform for RandomVerticalFlip {
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image> {
        if !rng.happens(self.p) {
            return Ok(image);
        }
        let shape = [image.channels(), image.height(), image.width()];
        Image::from_fn("flip", shape, |c, y, x| image.pixel(c, image.height() - 1 - y, x))
    }
}

/// Turned about the middle by an angle between `-degrees` and `degrees`, bilinear, zeros around it.
#[derive(Clone, Copy, Debug)]
pub struct RandomRotation {
    /// The largest angle, in degrees.
    pub degrees: f64,
}

impl Transform for RandomRotation {
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image> {
        let angle = (2.0 * rng.uniform() - 1.0) * self.degrees;
        rotated(&image, angle)
    }
}

/// Turned against the clock by an angle in degrees.
fn rotated(image: &Image, degrees: f64) -> Result<Image> {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let middle = ((image.height() as f64 - 1.0) / 2.0, (image.width() as f64 - 1.0) / 2.0);
    let value = |c: usize, row: f64, column: f64| {
        let there = row >= 0.0 && column >= 0.0;
        let there = there && row < image.height() as f64 && column < image.width() as f64;
        if there { image.pixel(c, row as usize, column as usize) } else { 0.0 }
    };
    let shape = [image.channels(), image.height(), image.width()];
    Image::from_fn("rotation", shape, |c, y, x| {
        let (dy, dx) = (y as f64 - middle.0, x as f64 - middle.1);
        let (row, column) = (middle.0 + cos * dy + sin * dx, middle.1 + cos * dx - sin * dy);
        let (top, left) = (row.floor(), column.floor());
        let (down, right) = ((row - top) as f32, (column - left) as f32);
        let upper = value(c, top, left) * (1.0 - right) + value(c, top, left + 1.0) * right;
        let lower =
            value(c, top + 1.0, left) * (1.0 - right) + value(c, top + 1.0, left + 1.0) * right;
        upper * (1.0 - down) + lower * down
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(height: usize, width: usize) -> Image {
        Image::from_fn("ramp", [1, height, width], |_, y, x| (y * y * 10 + x * x) as f32).unwrap()
    }

    fn apply(transform: impl Transform, image: &Image) -> Image {
        transform.apply(image.clone(), &mut SampleRng::new(1)).unwrap()
    }

    #[test]
    fn resizing_is_as_pytorch_does_it() {
        // interpolate(x, (3, 4), mode="bilinear", antialias=True) of the same 5x7 ramp.
        let down = apply(Resize::To(3, 4), &ramp(5, 7));
        let want = RESIZED;
        for (got, want) in down.pixels().iter().zip(want) {
            assert!((got - want).abs() < 1e-4, "{got} is not {want}");
        }
        let up = apply(Resize::To(1, 4), &Image::new(1, 1, 2, vec![0.0, 1.0]).unwrap());
        assert_eq!(up.pixels(), [0.0, 0.25, 0.75, 1.0]);
        let shorter = apply(Resize::Shorter(2), &ramp(4, 8));
        assert_eq!((shorter.height(), shorter.width()), (2, 4));
        assert!(Resize::To(0, 1).apply(ramp(2, 2), &mut SampleRng::new(0)).is_err());
    }

    const RESIZED: [f32; 12] = [
        4.90476, 9.08572, 20.12571, 34.61905, 45.06349, 49.24445, 60.28444, 74.77778, 130.61903,
        134.79999, 145.83998, 160.33331,
    ];

    #[test]
    fn crops_take_the_middle_or_any_place() {
        let middle = apply(CenterCrop { height: 1, width: 2 }, &ramp(3, 4));
        assert_eq!(middle.pixels(), [11.0, 14.0]);
        let larger = apply(CenterCrop { height: 1, width: 4 }, &ramp(1, 2));
        assert_eq!(larger.pixels(), [0.0, 0.0, 1.0, 0.0]);
        let crop = RandomCrop { height: 2, width: 2, padding: 1 };
        let mut seen = std::collections::BTreeSet::new();
        for sample in 0..200 {
            let mut rng = SampleRng::of_sample(0, 0, sample);
            let image = crop.apply(ramp(2, 2), &mut rng).unwrap();
            seen.insert(format!("{:?}", image.pixels()));
        }
        assert_eq!(seen.len(), 9);
        let large = RandomCrop { height: 5, width: 2, padding: 1 };
        assert!(large.apply(ramp(2, 2), &mut SampleRng::new(0)).is_err());
    }

    #[test]
    fn more_pixels_than_memory_holds_are_refused() {
        let (image, most) = (ramp(3, 4), usize::MAX);
        let refused = |transform: &dyn Transform, what: &str| {
            let error = transform.apply(image.clone(), &mut SampleRng::new(1)).unwrap_err();
            assert!(error.to_string().starts_with(what), "{error}");
        };
        for (height, width) in [(most, most), (1 << 62, 1), (1, most), (1 << 40, 1 << 40)] {
            refused(&CenterCrop { height, width }, "center_crop: 1x");
            refused(&RandomCrop { height, width, padding: most / 4 }, "random_crop: ");
            refused(&RandomCrop { height, width, padding: most }, "random_crop: ");
            refused(&Resize::To(height, width), "resize: ");
            refused(&Resize::Shorter(height.max(width)), "resize: ");
        }
        let none = CenterCrop { height: most, width: 0 };
        assert!(apply(none, &image).pixels().is_empty());
        let thin = apply(Resize::To(1, 20_000), &ramp(20_000, 1));
        assert_eq!((thin.height(), thin.width()), (1, 20_000));
    }

    #[test]
    fn flips_and_turns() {
        let image = Image::new(1, 2, 2, vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(apply(RandomHorizontalFlip { p: 1.0 }, &image).pixels(), [2.0, 1.0, 4.0, 3.0]);
        assert_eq!(apply(RandomVerticalFlip { p: 1.0 }, &image).pixels(), [3.0, 4.0, 1.0, 2.0]);
        assert_eq!(apply(RandomHorizontalFlip { p: 0.0 }, &image), image);
        let turned = rotated(&image, 90.0).unwrap();
        for (got, want) in turned.pixels().iter().zip([2.0, 4.0, 1.0, 3.0]) {
            assert!((got - want).abs() < 1e-5, "{:?}", turned.pixels());
        }
        assert_eq!(apply(RandomRotation { degrees: 0.0 }, &image), image);
    }

    #[test]
    fn normalizing_is_by_channel() {
        let image = Image::new(2, 1, 1, vec![3.0, 8.0]).unwrap();
        let each = Normalize { mean: vec![1.0, 2.0], std: vec![2.0, 3.0] };
        assert_eq!(apply(each, &image).pixels(), [1.0, 2.0]);
        let wrong = Normalize { mean: vec![1.0; 3], std: vec![1.0] };
        assert!(wrong.apply(image, &mut SampleRng::new(0)).is_err());
    }
}
