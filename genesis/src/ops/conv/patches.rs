//! Patches as columns and back, and channels as pixels.

use super::window::Window;
use crate::error::{Error, Result};
use crate::launch::axis::Axis;
use crate::ops::PadMode;
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
        check_places(NAME, window)?;
        let x = padded(self, window)?;
        let views: Vec<Tensor> =
            places(&window.kernel).iter().map(|p| at(&x, &moves, p)).collect::<Result<_>>()?;
        let all = Tensor::stack(&views.iter().collect::<Vec<_>>(), 2)?; // [N, C, K, ..]
        let (n, c) = (self.shape()[0], self.shape()[1]);
        let windows = shape::product(moves.iter().map(|axis| axis.output));
        all.reshape(&[n, c * views.len(), windows])
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
        check_places(NAME, window)?;
        if shape::count(&windows) != Some(self.shape()[2]) {
            return Err(refuse());
        }
        let columns = self.reshape(&[&[n, c, elements], &windows[..]].concat())?;
        let mut sum: Option<Tensor> = None;
        for (k, place) in places(&window.kernel).iter().enumerate() {
            let put = put_back(&columns.select(2, k)?, &moves, place)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&put)?,
                None => put,
            });
        }
        sum.ok_or_else(refuse)
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

/// The most elements of a window: each is a view of the whole.
const MOST: usize = 1 << 16;

fn check_places(op: &str, window: &Window) -> Result<()> {
    if shape::count(&window.kernel).is_some_and(|n| n <= MOST) {
        return Ok(());
    }
    Err(Error::op(op, format!("windows of {:?} have more than {MOST} elements", window.kernel)))
}

/// `x` with zeros before and after its last axes.
fn padded(x: &Tensor, window: &Window) -> Result<Tensor> {
    let pads: Vec<i64> = window.padding.iter().rev().flat_map(|&p| [p as i64; 2]).collect();
    x.pad(&pads, PadMode::Constant(0.0))
}

/// The places of a window, the last axis fastest.
fn places(kernel: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in kernel {
        all = all
            .into_iter()
            .flat_map(|place| (0..extent).map(move |k| [&place[..], &[k]].concat()))
            .collect();
    }
    all
}

/// What one place of every window sees.
fn at(x: &Tensor, axes: &[Axis], place: &[usize]) -> Result<Tensor> {
    x.strided_view("im2col", |layout| {
        axes.iter().zip(place).enumerate().try_fold(layout.clone(), |layout, (at, (axis, &k))| {
            layout.slice(2 + at, k * axis.dilation, axis.stride as i64, axis.output)
        })
    })
}

/// What one place of every window sees, back where it was: zeros between and around, along one axis after
/// the other.
fn put_back(column: &Tensor, axes: &[Axis], place: &[usize]) -> Result<Tensor> {
    let mut x = column.clone();
    for (at, (axis, &k)) in axes.iter().zip(place).enumerate() {
        let dim = at + 2;
        let mut shape = x.shape().to_vec();
        let behind = x.rank() - dim - 1;
        // [.., windows] -> [.., windows, stride] -> [.., windows * stride]
        let spread = x.unsqueeze(dim as i64 + 1)?;
        let zeros = [vec![0; 2 * behind], vec![0, axis.stride as i64 - 1]].concat();
        shape[dim] = axis.output * axis.stride;
        let spread = spread.pad(&zeros, PadMode::Constant(0.0))?.reshape(&shape)?;
        let before = (k * axis.dilation) as i64 - axis.before as i64;
        let after = axis.input as i64 - before - shape[dim] as i64;
        let around = [vec![0; 2 * behind], vec![before, after]].concat();
        x = spread.pad(&around, PadMode::Constant(0.0))?;
    }
    Ok(x)
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
