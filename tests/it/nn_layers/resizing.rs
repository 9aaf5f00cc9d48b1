//! The rows of transposed convolutions, adaptive pools and resizing.

use super::*;
use genesis::nn::{
    AdaptiveAvgPoolNd, AdaptiveMaxPoolNd, ConvTransposeNd, ConvTransposeOptions, Upsample,
};
use genesis::ops::Interpolation;

fn transposed<const N: usize>() -> genesis::Result<Subject> {
    let options = ConvTransposeOptions {
        stride: [2; N],
        padding: [1; N],
        output_padding: [1; N],
        ..ConvTransposeOptions::default()
    };
    layer(ConvTransposeNd::<N>::with([2, 4], 3, options, CPU))
}

fn grouped<const N: usize>() -> genesis::Result<Subject> {
    let options =
        ConvTransposeOptions { groups: 2, bias: false, ..ConvTransposeOptions::default() };
    layer(ConvTransposeNd::<N>::with([4, 4], 2, options, CPU))
}

pub(super) const RESIZING: &[Row] = &[
    ("convtranspose1d", transposed::<1>),
    ("convtranspose2d", transposed::<2>),
    ("convtranspose3d", transposed::<3>),
    ("convtranspose1d.groups", grouped::<1>),
    ("convtranspose2d.groups", grouped::<2>),
    ("convtranspose3d.groups", grouped::<3>),
    ("adaptiveavgpool1d", || layer(Ok(AdaptiveAvgPoolNd::<1>::new(2)))),
    ("adaptiveavgpool2d", || layer(Ok(AdaptiveAvgPoolNd::<2>::new(2)))),
    ("adaptiveavgpool3d", || layer(Ok(AdaptiveAvgPoolNd::<3>::new(2)))),
    ("adaptivemaxpool1d", || layer(Ok(AdaptiveMaxPoolNd::<1>::new(2)))),
    ("adaptivemaxpool2d", || layer(Ok(AdaptiveMaxPoolNd::<2>::new(2)))),
    ("adaptivemaxpool3d", || layer(Ok(AdaptiveMaxPoolNd::<3>::new(2)))),
    ("upsample.nearest", || layer(Ok(Upsample::by(2.0)))),
    ("upsample.bilinear", || {
        layer(Ok(Upsample { mode: Interpolation::Linear, ..Upsample::to(&[5, 3]) }))
    }),
    ("upsample.corners", || {
        let mode = Interpolation::Linear;
        layer(Ok(Upsample { mode, align_corners: true, ..Upsample::by(2.0) }))
    }),
    ("upsample.bicubic", || {
        layer(Ok(Upsample { mode: Interpolation::Cubic, ..Upsample::by(2.0) }))
    }),
];
