//! What tests know of arithmetic made of other ops.

use genesis_kernel::ir::DType;

use crate::ops::info::{FLOATS, Family, NUMBERS, OpInfo, WIDE, cpu, map, zip};
use crate::ops::{RoundingMode, Tolerance};

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
        "div_rounded/floor",
        Family::Exact,
        |x| x[0].div_rounded(&x[1], RoundingMode::Floor),
        |x| zip(&x[0], &x[1], |a, b| (a / b).floor()),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("torch.div(x[0], x[1], rounding_mode='floor')")
    .of(&[DType::F32, DType::F64, DType::I32, DType::I64])
    .within(1.0, 9.0)
    .flat(),
    OpInfo::new(
        "div_rounded/trunc",
        Family::Exact,
        |x| x[0].neg()?.div_rounded(&x[1], RoundingMode::Trunc),
        |x| zip(&x[0], &x[1], |a, b| (-a / b).trunc()),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("torch.div(-x[0], x[1], rounding_mode='trunc')")
    .of(&[DType::F32, DType::F64, DType::I32, DType::I64])
    .within(1.0, 9.0)
    .flat(),
    OpInfo::new(
        "rsub_scalar",
        Family::Arithmetic,
        |x| x[0].rsub_scalar(2.0),
        |x| map(&x[0], |v| 2.0 - v),
        &[&[&[3, 5]]],
    )
    .peer("2.0 - x[0]"),
    OpInfo::new(
        "rpow_scalar",
        Family::Transcendental,
        |x| x[0].rpow_scalar(2.0),
        |x| map(&x[0], |v| 2f64.powf(v)),
        &[&[&[3, 5]]],
    )
    .peer("2.0 ** x[0]")
    .of(WIDE),
    OpInfo::new(
        "fmax",
        Family::Exact,
        |x| x[0].fmax(&x[1]),
        |x| zip(&x[0], &x[1], f64::max),
        &[&[&[3, 5], &[3, 5]]],
    )
    .of(WIDE),
    OpInfo::new(
        "bitwise_left_shift",
        Family::Exact,
        |x| x[0].bitwise_left_shift(&x[1])?.bitwise_right_shift(&x[1]),
        |x| x[0].clone(),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("(x[0] << x[1]) >> x[1]")
    .of(&[DType::I64, DType::I32, DType::U8])
    .flat()
    .refusing(&[(
        || cpu(&[2], DType::F32)?.bitwise_left_shift(&cpu(&[2], DType::F32)?),
        "bitwise_left_shift: does not take f32",
    )]),
    OpInfo::new(
        "heaviside",
        Family::Exact,
        |x| x[0].sub_scalar(2.0)?.floor()?.heaviside(&x[1]),
        |x| {
            zip(&x[0], &x[1], |a, b| match (a - 2.0).floor() {
                v if v < 0.0 => 0.0,
                v if v > 0.0 => 1.0,
                _ => b,
            })
        },
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("torch.heaviside((x[0] - 2.0).floor(), x[1])")
    .of(WIDE)
    .flat(),
    OpInfo::new(
        "signbit",
        Family::Exact,
        |x| x[0].sub_scalar(2.0)?.signbit(),
        |x| map(&x[0], |v| f64::from(u8::from(v - 2.0 < 0.0))),
        &[&[&[3, 5]]],
    )
    .peer("torch.signbit(x[0] - 2.0)")
    .of(&[DType::F32, DType::F64, DType::I32, DType::I64])
    .flat(),
    OpInfo::new(
        "deg2rad",
        Family::Transcendental,
        |x| x[0].deg2rad(),
        |x| map(&x[0], f64::to_radians),
        &[&[&[3, 5]]],
    ),
    OpInfo::new(
        "rad2deg",
        Family::Transcendental,
        |x| x[0].rad2deg(),
        |x| map(&x[0], f64::to_degrees),
        &[&[&[3, 5]]],
    ),
    OpInfo::new(
        "logit",
        Family::Softmax,
        |x| x[0].logit(None),
        |x| map(&x[0], |v| (v / (1.0 - v)).ln()),
        &[&[&[3, 5]]],
    )
    .within(0.1, 0.4)
    .of(WIDE),
    OpInfo::new(
        "isclose",
        Family::Exact,
        |x| x[0].isclose(&x[1], &Tolerance { absolute: 1.0, ..Tolerance::default() }),
        |x| zip(&x[0], &x[1], |a, b| f64::from(u8::from((a - b).abs() <= 1.0 + 1e-5 * b))),
        &[&[&[7, 5], &[7, 5]]],
    )
    .peer("torch.isclose(x[0], x[1], atol=1.0)")
    .flat()
    .refusing(&[(
        || cpu(&[2], DType::F32)?.isclose(&cpu(&[2], DType::F64)?, &Tolerance::default()),
        "isclose: dtypes differ, f32 and f64; convert one with to_dtype",
    )]),
    OpInfo::new(
        "isin",
        Family::Exact,
        |x| x[0].isin(&x[1]),
        |x| map(&x[0], |v| f64::from(u8::from(x[1].data.contains(&v)))),
        &[&[&[3, 5], &[3]]],
    )
    .of(&[DType::F32, DType::I64, DType::U8])
    .flat(),
    OpInfo::new(
        "promotion/u8 and f32",
        Family::Arithmetic,
        |x| x[0].to_dtype(DType::U8)?.mul(&x[1])?.add_scalar(0.5),
        |x| zip(&x[0], &x[1], |a, b| a.trunc() * b + 0.5),
        &[&[&[7], &[7]]],
    )
    .peer("x[0].to(torch.uint8) * x[1] + 0.5")
    .of(&[DType::F64])
    .flat(),
    OpInfo::new(
        "float_power",
        Family::Softmax,
        |x| x[0].float_power(&x[1]),
        |x| zip(&x[0], &x[1], f64::powf),
        &[&[&[3, 5], &[3, 5]]],
    )
    .of(&[DType::F64]),
    OpInfo::new(
        "fmin",
        Family::Exact,
        |x| x[0].fmin(&x[1]),
        |x| zip(&x[0], &x[1], f64::min),
        &[&[&[3, 5], &[3, 5]]],
    )
    .of(WIDE),
    OpInfo::new(
        "bitwise_right_shift",
        Family::Exact,
        |x| x[0].bitwise_right_shift(&x[1]),
        |x| zip(&x[0], &x[1], |a, b| (a as i64 >> b as i64) as f64),
        &[&[&[3, 5], &[3, 5]]],
    )
    .within(0.0, 7.0)
    .of(&[DType::I64, DType::I32, DType::U8])
    .flat(),
    OpInfo::new("sgn", Family::Exact, |x| x[0].sgn(), |x| map(&x[0], f64::signum), &[&[&[3, 5]]])
        .within(-3.0, -0.1)
        .of(WIDE)
        .flat(),
    OpInfo::new(
        "isposinf",
        Family::Exact,
        |x| x[0].floor()?.rdiv_scalar(1.0)?.isposinf(),
        |x| map(&x[0], |v| f64::from(u8::from(v < 1.0))),
        &[&[&[3, 5]]],
    )
    .peer("torch.isposinf(1.0 / x[0].floor())")
    .within(0.1, 2.0)
    .of(FLOATS)
    .flat(),
    OpInfo::new(
        "isneginf",
        Family::Exact,
        |x| x[0].floor()?.log()?.isneginf(),
        |x| map(&x[0], |v| f64::from(u8::from(v < 1.0))),
        &[&[&[3, 5]]],
    )
    .peer("torch.isneginf(x[0].floor().log())")
    .within(0.1, 2.0)
    .of(FLOATS)
    .flat(),
    OpInfo::new(
        "sub_scalar",
        Family::Arithmetic,
        |x| x[0].sub_scalar(2.0),
        |x| map(&x[0], |v| v - 2.0),
        &[&[&[3, 5]]],
    )
    .peer("x[0] - 2.0"),
    OpInfo::new(
        "clamp",
        Family::Exact,
        |x| x[0].clamp(1.0, 3.0),
        |x| map(&x[0], |v| v.clamp(1.0, 3.0)),
        &[&[&[3, 5]]],
    )
    .peer("torch.clamp(x[0], 1.0, 3.0)"),
    OpInfo::new(
        "square",
        Family::Arithmetic,
        |x| x[0].square(),
        |x| map(&x[0], |v| v * v),
        &[&[&[2, 3, 4]]],
    )
    .within(0.0, 9.0)
    .of(NUMBERS),
    OpInfo::new("sign", Family::Exact, |x| x[0].sign(), |x| map(&x[0], f64::signum), &[&[&[3, 5]]])
        .within(-3.0, -0.5)
        .of(WIDE)
        .flat(),
];
