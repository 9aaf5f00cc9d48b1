//! The rows of convolutions, pools and resizing.

use super::*;
use genesis::nn::{
    AvgPool1d, AvgPool2d, AvgPool3d, Conv2d, ConvNd, ConvOptions, ConvPadding, ConvPaddingMode,
    MaxPool1d, MaxPool2d, MaxPool3d,
};
use genesis::ops::Window;

fn conv<const N: usize>() -> genesis::Result<Subject> {
    let padding = ConvPadding::Both([1; N]);
    layer(ConvNd::<N>::with(
        [2, 4],
        3,
        ConvOptions { stride: [2; N], padding, ..Default::default() },
        CPU,
    ))
}

fn grouped<const N: usize>() -> genesis::Result<Subject> {
    let options =
        ConvOptions { groups: 2, dilation: [2; N], bias: false, ..ConvOptions::default() };
    layer(ConvNd::<N>::with([4, 4], 2, options, CPU))
}

fn padded(padding: [usize; 2], padding_mode: ConvPaddingMode) -> genesis::Result<Subject> {
    let padding = ConvPadding::Both(padding);
    layer(Conv2d::with([2, 3], 3, ConvOptions { padding, padding_mode, ..Default::default() }, CPU))
}

pub(super) const WINDOWS: &[Row] = &[
    ("conv1d", conv::<1>),
    ("conv2d", conv::<2>),
    ("conv3d", conv::<3>),
    ("conv1d.groups", grouped::<1>),
    ("conv2d.groups", grouped::<2>),
    ("conv3d.groups", grouped::<3>),
    ("conv2d.same", || {
        let options = ConvOptions { padding: ConvPadding::Same, ..ConvOptions::default() };
        layer(Conv2d::with([2, 3], [3, 2], options, CPU))
    }),
    ("conv2d.reflect", || padded([1, 1], ConvPaddingMode::Reflect)),
    ("conv2d.replicate", || padded([1, 1], ConvPaddingMode::Replicate)),
    ("conv2d.circular", || padded([1, 0], ConvPaddingMode::Circular)),
    ("maxpool1d", || layer(Ok(MaxPool1d::new(2)))),
    ("maxpool2d", || layer(Ok(MaxPool2d::new(2)))),
    ("maxpool3d", || layer(Ok(MaxPool3d::new(2)))),
    ("maxpool2d.options", || {
        let pool = MaxPool2d::with(3, 2, 1);
        layer(Ok(MaxPool2d { window: Window { ceil: true, ..pool.window } }))
    }),
    ("avgpool1d", || layer(Ok(AvgPool1d::with(2, 1, 0)))),
    ("avgpool2d", || layer(Ok(AvgPool2d::with(2, 1, 0)))),
    ("avgpool3d", || layer(Ok(AvgPool3d::with(2, 1, 0)))),
    ("avgpool2d.options", || {
        let pool = AvgPool2d::with(3, 2, 1);
        let window = Window { ceil: true, ..pool.window };
        layer(Ok(AvgPool2d { window, count_include_pad: false, divisor_override: None }))
    }),
];
