//! Everything a file of kernels needs: `use genesis_kernel::prelude::*;`.

pub use crate::diag::Error;
pub use crate::front::Hints;
pub use crate::lang::fast;
pub use crate::lang::functions::*;
pub use crate::lang::{
    Col, Dim, Element, Float, Float8, Int, Int8, Number, One, Ptr, PtrMut, Row, Shape, Tile, Tile1,
    Tile2, Tile3, View, ViewMut, Views, ViewsMut, bf16, f8e4m3, f8e5m2, f16,
};
pub use crate::runtime::{Absent, Array, Device, Grid, Stream};
pub use crate::{KernelParam, autotune, device, kernel};
pub use std::f32::consts::{
    FRAC_1_SQRT_2, FRAC_2_SQRT_PI, FRAC_PI_2, LN_2, LN_10, LOG2_E, LOG10_E, PI, SQRT_2, TAU,
};
