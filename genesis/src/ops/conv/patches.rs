//! Patches as columns and back, and channels as pixels.

use super::window::Window;
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch::axis::{Axis, three};
use crate::launch::columns as device;
use crate::ops::{Op, Saves, apply, wrong_dtype};
use crate::shape;
use crate::tensor::Tensor;

impl Tensor {
    /// The elements of each window over the last two axes as a column, as `torch.nn.Unfold` gives them.
    ///
    /// # Shapes
    /// `[N, C, H, W]` or `[C, H, W]` gives `[N, C * elements of a window, windows]`.
    /// # Errors
    /// If the windows do not fit.
    /// # Source
    /// `torch.nn.functional.unfold`.
    #[track_caller]
    pub fn im2col(&self, window: &Window) -> Result<Tensor> {
        const NAME: &str = "im2col";
        let axes = window.kernel.len();
        window.check(NAME, self)?;
        if self.rank() == axes + 1 {
            return self.unsqueeze(0)?.im2col(window)?.squeeze(0);
        }
        let moves = window.axes(NAME, &self.shape()[2..])?;
        let elements = count_elements(NAME, window)?;
        let (n, c) = (self.shape()[0], self.shape()[1]);
        let op = Columns { outer: n * c, axes: moved(&moves), adds: false };
        let x = self.reshape(&op.shapes()[0])?;
        let columns = apply(op, &[&x])?;
        let windows = shape::product(moves.iter().map(|axis| axis.output));
        columns.reshape(&[n, c * elements, windows])
    }

    /// Columns of windows added where [`im2col`](Tensor::im2col) of a tensor whose last axes are `size` read
    /// them, as `torch.nn.Fold` does.
    ///
    /// # Shapes
    /// `[N, C * elements of a window, windows]` or without `N` gives `[N, C, ..size]`.
    /// # Errors
    /// If the columns are not those of such windows.
    /// # Source
    /// `torch.nn.functional.fold`.
    #[track_caller]
    pub fn col2im(&self, window: &Window, size: &[usize]) -> Result<Tensor> {
        const NAME: &str = "col2im";
        if self.rank() == 2 {
            return self.unsqueeze(0)?.col2im(window, size)?.squeeze(0);
        }
        let elements = shape::numel(NAME, &window.kernel)?;
        let refuse = || {
            let message = format!("columns {:?} do not make {size:?}", self.shape());
            Error::op(NAME, message)
        };
        let fits = self.rank() == 3 && elements > 0 && size.len() == window.kernel.len();
        if !fits || !self.shape()[1].is_multiple_of(elements) {
            return Err(refuse());
        }
        let (n, c) = (self.shape()[0], self.shape()[1] / elements);
        // An input of no images has the windows that are asked for.
        let like = Tensor::zeros(&[&[0, c], size].concat(), (self.dtype(), self.device()))?;
        window.check(NAME, &like)?;
        let moves = window.axes(NAME, size)?;
        let windows: Vec<usize> = moves.iter().map(|axis| axis.output).collect();
        count_elements(NAME, window)?;
        if shape::count(&windows) != Some(self.shape()[2]) {
            return Err(refuse());
        }
        if !self.dtype().is_number() {
            return Err(wrong_dtype(NAME, "a number", self.dtype()));
        }
        let op = Columns { outer: n * c, axes: moved(&moves), adds: true };
        let columns = self.reshape(&op.shapes()[1])?;
        apply(op, &[&columns])?.reshape(&[&[n, c], size].concat())
    }

    /// Channels as pixels: `[.., C * r * r, H, W]` to `[.., C, H * r, W * r]`.
    ///
    /// # Errors
    /// If the channels are not a multiple of `factor` squared.
    /// # Source
    /// arXiv:1609.05158; `torch.nn.functional.pixel_shuffle`.
    #[track_caller]
    pub fn pixel_shuffle(&self, factor: usize) -> Result<Tensor> {
        let [lead @ .., c, h, w] = self.shape() else {
            return Err(self.no_planes("pixel_shuffle"));
        };
        let (r, h, w) = (factor, *h, *w);
        let square = r.checked_mul(r).filter(|&square| square > 0 && c.is_multiple_of(square));
        let Some(square) = square else {
            let message = format!("{c} channels are no multiple of {r} squared");
            return Err(Error::op("pixel_shuffle", message));
        };
        let (Some(high), Some(wide)) = (h.checked_mul(r), w.checked_mul(r)) else {
            let message = format!("{h} by {w} elements times {r} can't be counted");
            return Err(Error::op("pixel_shuffle", message));
        };
        let n = shape::product(lead);
        let x = self.reshape(&[n, c / square, r, r, h, w])?.permute(&[0, 1, 4, 2, 5, 3])?;
        x.reshape(&[lead, &[c / square, high, wide]].concat())
    }

    /// Pixels as channels: `[.., C, H * r, W * r]` to `[.., C * r * r, H, W]`.
    ///
    /// # Errors
    /// If the last two extents are not multiples of `factor`.
    /// # Source
    /// `torch.nn.functional.pixel_unshuffle`.
    #[track_caller]
    pub fn pixel_unshuffle(&self, factor: usize) -> Result<Tensor> {
        let [lead @ .., c, h, w] = self.shape() else {
            return Err(self.no_planes("pixel_unshuffle"));
        };
        let (r, c, h, w) = (factor, *c, *h, *w);
        if r == 0 || !h.is_multiple_of(r) || !w.is_multiple_of(r) {
            let message = format!("{h} by {w} elements are no multiple of {r}");
            return Err(Error::op("pixel_unshuffle", message));
        }
        let Some(channels) = r.checked_mul(r).and_then(|square| square.checked_mul(c)) else {
            let message = format!("{c} channels times {r} squared can't be counted");
            return Err(Error::op("pixel_unshuffle", message));
        };
        let n = shape::product(lead);
        let x = self.reshape(&[n, c, h / r, r, w / r, r])?.permute(&[0, 1, 3, 5, 2, 4])?;
        x.reshape(&[lead, &[channels, h / r, w / r]].concat())
    }

    /// Channels of `[N, C, ..]` in the order in which `groups` groups take turns.
    ///
    /// # Errors
    /// If the channels are not a multiple of `groups`.
    /// # Source
    /// arXiv:1707.01083; `torch.nn.functional.channel_shuffle`.
    #[track_caller]
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        let [n, c, ..] = *self.shape() else { return Err(self.no_planes("channel_shuffle")) };
        if groups == 0 || !c.is_multiple_of(groups) {
            let message = format!("{c} channels are no multiple of {groups}");
            return Err(Error::op("channel_shuffle", message));
        }
        let inner = shape::product(&self.shape()[2..]);
        let x = self.reshape(&[n, groups, c / groups, inner])?.transpose(1, 2)?;
        x.reshape(self.shape())
    }

    fn no_planes(&self, op: &str) -> Error {
        Error::op(op, format!("needs channels and positions, got shape {:?}", self.shape()))
    }
}

/// The most elements of a window.
const MOST: usize = 1 << 16;

fn count_elements(op: &str, window: &Window) -> Result<usize> {
    shape::count(&window.kernel).filter(|&n| n <= MOST).ok_or_else(|| {
        let message = format!("windows of {:?} have more than {MOST} elements", window.kernel);
        Error::op(op, message)
    })
}

/// Three axes, the missing ones of one element.
fn moved(axes: &[Axis]) -> [Axis; 3] {
    three(axes, Axis::UNIT)
}

/// Columns of the windows of images, or their sums: each is the gradient of the other.
struct Columns {
    /// Channels of all images.
    outer: usize,
    axes: [Axis; 3],
    adds: bool,
}

impl Columns {
    /// The shapes of images and of columns.
    fn shapes(&self) -> [Vec<usize>; 2] {
        let taps = shape::product(self.axes.iter().map(|axis| axis.kernel));
        let images = [self.outer].into_iter().chain(self.axes.map(|axis| axis.input));
        let columns = [self.outer, taps].into_iter().chain(self.axes.map(|axis| axis.output));
        [images.collect(), columns.collect()]
    }
}

impl Op for Columns {
    fn name(&self) -> &'static str {
        if self.adds { "col2im" } else { "im2col" }
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [images, columns] = self.shapes();
        let x = inputs[0].contiguous()?;
        let shape = if self.adds { &images } else { &columns };
        let on = (x.dtype(), x.device());
        if x.numel() == 0 {
            return Tensor::zeros(shape, on);
        }
        let out = Tensor::uninitialized(shape, on)?;
        if out.numel() > 0 {
            let (images, columns) = if self.adds { (&out, &x) } else { (&x, &out) };
            device::run(&self.axes, images, columns, self.adds)?;
        }
        Ok(out)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(0)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let turned = Columns { outer: self.outer, axes: self.axes, adds: !self.adds };
        Ok(vec![Some(apply(turned, &[dy])?)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::Window;
    use crate::ops::info::{Dense, Family, OpInfo, cpu};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "im2col",
            Family::Exact,
            |x| x[0].im2col(&Window { stride: vec![1, 2], ..Window::new(&[2, 2]) }),
            |x| {
                Dense::from_fn(&[1, 8, 4], |at| {
                    let (c, k, l) = (at[1] / 4, at[1] / 2 % 2, at[1] % 2);
                    x[0].at(&[0, c, at[2] / 2 + k, at[2] % 2 * 2 + l])
                })
            },
            &[&[&[1, 2, 3, 4]]],
        )
        .peer("F.unfold(x[0], 2, stride=(1, 2))"),
        OpInfo::new(
            "col2im",
            Family::Softmax,
            |x| x[0].col2im(&Window { stride: vec![1, 2], ..Window::new(&[2, 2]) }, &[3, 4]),
            |x| {
                Dense::from_fn(&[1, 2, 3, 4], |at| {
                    let column = |k: usize| {
                        let row = at[2].checked_sub(k).filter(|&row| row < 2)?;
                        Some(x[0].at(&[0, at[1] * 4 + k * 2 + at[3] % 2, row * 2 + at[3] / 2]))
                    };
                    (0..2).filter_map(column).sum()
                })
            },
            &[&[&[1, 8, 4]]],
        )
        .peer("F.fold(x[0], (3, 4), 2, stride=(1, 2))"),
        OpInfo::new(
            "pixel_shuffle",
            Family::Exact,
            |x| x[0].pixel_shuffle(2),
            |x| {
                Dense::from_fn(&[1, 2, 6, 4], |at| {
                    let channel = at[1] * 4 + at[2] % 2 * 2 + at[3] % 2;
                    x[0].at(&[0, channel, at[2] / 2, at[3] / 2])
                })
            },
            &[&[&[1, 8, 3, 2]]],
        )
        .peer("F.pixel_shuffle(x[0], 2)")
        .refusing(&[(
            || cpu(&[3, 2, 2], DType::F32)?.pixel_shuffle(2),
            "pixel_shuffle: 3 channels are no multiple of 2 squared",
        )]),
        OpInfo::new(
            "pixel_unshuffle",
            Family::Exact,
            |x| x[0].pixel_unshuffle(2),
            |x| {
                Dense::from_fn(&[1, 8, 3, 2], |at| {
                    let (c, k, l) = (at[1] / 4, at[1] / 2 % 2, at[1] % 2);
                    x[0].at(&[0, c, at[2] * 2 + k, at[3] * 2 + l])
                })
            },
            &[&[&[1, 2, 6, 4]]],
        )
        .peer("F.pixel_unshuffle(x[0], 2)"),
        OpInfo::new(
            "channel_shuffle",
            Family::Exact,
            |x| x[0].channel_shuffle(2),
            |x| Dense::from_fn(&[1, 6, 2], |at| x[0].at(&[0, at[1] % 2 * 3 + at[1] / 2, at[2]])),
            &[&[&[1, 6, 2]]],
        )
        .peer("torch.channel_shuffle(x[0], 2)"),
    ];
}
