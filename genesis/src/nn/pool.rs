//! Pools over one, two or three axes.

use super::{Layer, Module, Sizes, watch};
use crate::error::Result;
use crate::ops::Window;
use crate::tensor::Tensor;

/// The largest element of each window over the last `N` axes.
#[derive(Clone, Debug, Module)]
pub struct MaxPoolNd<const N: usize> {
    /// Size, stride, padding, dilation, and whether a last window may leave the input.
    #[module(skip)]
    pub window: Window,
}

/// [`MaxPoolNd`] over lines.
pub type MaxPool1d = MaxPoolNd<1>;
/// [`MaxPoolNd`] over images.
pub type MaxPool2d = MaxPoolNd<2>;
/// [`MaxPoolNd`] over volumes.
pub type MaxPool3d = MaxPoolNd<3>;

impl<const N: usize> MaxPoolNd<N> {
    /// Windows that lie side by side.
    pub fn new(kernel: impl Into<Sizes<N>>) -> MaxPoolNd<N> {
        MaxPoolNd { window: Window::new(&kernel.into().0) }
    }

    /// Windows with this stride and padding.
    pub fn with(
        kernel: impl Into<Sizes<N>>,
        stride: impl Into<Sizes<N>>,
        padding: impl Into<Sizes<N>>,
    ) -> MaxPoolNd<N> {
        let (stride, padding) = (stride.into().0.to_vec(), padding.into().0.to_vec());
        MaxPoolNd { window: Window { stride, padding, ..Window::new(&kernel.into().0) } }
    }

    /// The largest elements.
    ///
    /// # Errors
    /// If windows do not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || Ok(x.max_pool(&self.window)?.0))
    }

    /// The largest elements, and where they stand: PyTorch's `return_indices`.
    ///
    /// # Errors
    /// If windows do not fit.
    pub fn forward_with_indices(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        x.max_pool(&self.window)
    }
}

impl<const N: usize> Layer for MaxPoolNd<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        MaxPoolNd::forward(self, x)
    }
}

/// The mean of each window over the last `N` axes.
#[derive(Clone, Debug, Module)]
pub struct AvgPoolNd<const N: usize> {
    /// Size, stride, padding, and whether a last window may leave the input.
    #[module(skip)]
    pub window: Window,
    /// Whether padding counts as zeros.
    pub count_include_pad: bool,
    /// What sums are divided by in the place of the number of elements.
    pub divisor_override: Option<i64>,
}

/// [`AvgPoolNd`] over lines.
pub type AvgPool1d = AvgPoolNd<1>;
/// [`AvgPoolNd`] over images.
pub type AvgPool2d = AvgPoolNd<2>;
/// [`AvgPoolNd`] over volumes.
pub type AvgPool3d = AvgPoolNd<3>;

impl<const N: usize> AvgPoolNd<N> {
    /// Windows that lie side by side.
    pub fn new(kernel: impl Into<Sizes<N>>) -> AvgPoolNd<N> {
        let window = Window::new(&kernel.into().0);
        AvgPoolNd { window, count_include_pad: true, divisor_override: None }
    }

    /// Windows with this stride and padding.
    pub fn with(
        kernel: impl Into<Sizes<N>>,
        stride: impl Into<Sizes<N>>,
        padding: impl Into<Sizes<N>>,
    ) -> AvgPoolNd<N> {
        let (stride, padding) = (stride.into().0.to_vec(), padding.into().0.to_vec());
        let pool = AvgPoolNd::new(kernel);
        AvgPoolNd { window: Window { stride, padding, ..pool.window }, ..pool }
    }

    /// The means.
    ///
    /// # Errors
    /// If windows do not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.avg_pool(&self.window, self.count_include_pad, self.divisor_override))
    }
}

impl<const N: usize> Layer for AvgPoolNd<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        AvgPoolNd::forward(self, x)
    }
}
