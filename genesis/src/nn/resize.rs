//! Layers that give as many elements as are asked for: adaptive pools and resizing.

use super::layer::layers;
use super::{Layer, Module, Sizes, watch};
use crate::error::{Error, Result};
use crate::ops::{Interpolation, Resize};
use crate::tensor::Tensor;

/// The extents a pool gives: `None` keeps that of the input.
fn outputs<const N: usize>(op: &str, sizes: [Option<usize>; N], x: &Tensor) -> Result<[usize; N]> {
    let Some(lead) = x.rank().checked_sub(N) else {
        let message = format!("needs at least {N} dimension(s), got shape {:?}", x.shape());
        return Err(Error::op(op, message));
    };
    Ok(std::array::from_fn(|axis| sizes[axis].unwrap_or(x.shape()[lead + axis])))
}

macro_rules! adaptive_pools {
    ($($(#[$doc:meta])* $name:ident, $one:ident, $two:ident, $three:ident, |$x:ident, $sizes:ident| $pool:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Module)]
        pub struct $name<const N: usize> {
            /// The extents of the output; `None` keeps that of the input.
            pub output_size: [Option<usize>; N],
        }

        #[doc = concat!("[`", stringify!($name), "`] over lines.")]
        pub type $one = $name<1>;
        #[doc = concat!("[`", stringify!($name), "`] over images.")]
        pub type $two = $name<2>;
        #[doc = concat!("[`", stringify!($name), "`] over volumes.")]
        pub type $three = $name<3>;

        impl<const N: usize> $name<N> {
            /// Windows that share out the input to an output of these extents.
            pub fn new(output: impl Into<Sizes<N>>) -> $name<N> {
                $name { output_size: output.into().0.map(Some) }
            }

            /// One element of each window.
            ///
            /// # Errors
            /// If the input has too few axes or an empty one.
            pub fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                watch(self, || {
                    let $sizes = outputs(stringify!($name), self.output_size, $x)?;
                    $pool
                })
            }
        }

        impl<const N: usize> Layer for $name<N> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                $name::forward(self, x)
            }
        }
    )*};
}

adaptive_pools! {
    /// The mean of windows that share out the last `N` axes as evenly as can be.
    AdaptiveAvgPoolNd, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d,
        |x, sizes| x.adaptive_avg_pool(&sizes);
    /// The largest element of windows that share out the last `N` axes as evenly as can be.
    AdaptiveMaxPoolNd, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
        |x, sizes| Ok(x.adaptive_max_pool(&sizes)?.0);
}

/// The axes behind the first two resized.
#[derive(Clone, PartialEq, Debug, Module)]
pub struct Upsample {
    /// The new extents; `scale_factor` counts where absent.
    pub size: Option<Vec<usize>>,
    /// How many times larger; one number for all axes.
    pub scale_factor: f64,
    /// How elements between elements are made.
    #[module(skip)]
    pub mode: Interpolation,
    /// Whether the centers of the first and last elements stay where they are.
    pub align_corners: bool,
}

impl Upsample {
    /// So many times larger, by nearest elements: `Upsample { mode: .., ..Upsample::by(2.0) }`.
    pub fn by(scale_factor: f64) -> Upsample {
        Upsample { size: None, scale_factor, mode: Interpolation::Nearest, align_corners: false }
    }

    /// To these extents, by nearest elements.
    pub fn to(size: &[usize]) -> Upsample {
        Upsample { size: Some(size.to_vec()), ..Upsample::by(1.0) }
    }

    /// The input resized.
    ///
    /// # Errors
    /// As [`Tensor::interpolate`].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let resize = match &self.size {
                Some(size) => Resize::To(size.clone()),
                None => Resize::By(vec![self.scale_factor; x.rank().saturating_sub(2)]),
            };
            x.interpolate(&resize, self.mode, self.align_corners)
        })
    }
}

layers!(Upsample);
