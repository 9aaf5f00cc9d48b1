//! Kernels: every one of `kernels::all()` launched from safe code with hostile views and numbers, and looked at
//! with hostile requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use genesis::{DType, Device, Result, Tensor};
use genesis_kernel::front::ast::{DTypeAst, TypeAst};
use genesis_kernel::inspect::{Emit, InspectRequest, inspect};
use genesis_kernel::runtime::CheckedArg;
use genesis_kernel::{Buffer, Grid, Hints, KernelDef, ParamHint, Scalar, Target};

use super::calls::Row;
use super::generate::{Gen, Value, structures, values};

structures! {
    ParamHint {
        multiple_of, equals_one, unit_stride, unit_axis, zero_stride, zero_row_stride, stride_multiple_of, narrow,
    }
    Hints { params, num_warps, num_stages, persistent, cluster, constant }
}

values! {
    Emit: |g| g.one(&Emit::ALL).0;
    Target: |g| g.one(&[Target::host(), Target::sm_80(), Target::sm_90a()]);
    u8: |g| g.v::<i64>() as u8;
}

/// Each kernel has many dtypes, views and numbers, and so several rows.
const SHARE: usize = 24;

pub(super) fn launches(rows: &mut Vec<Row>) {
    rows.extend((0..SHARE).map(|_| Row::new("launch", launch)));
    rows.push(Row::new("inspect", look));
    rows.push(Row::new("Buffer", |g| {
        let _ = bytes(g);
        Ok(Vec::new())
    }));
}

fn any_kernel(g: &mut Gen) -> &'static KernelDef {
    static ALL: OnceLock<Vec<&'static KernelDef>> = OnceLock::new();
    g.one(ALL.get_or_init(kernels::all))
}

/// The dtypes and constants of a kernel: mostly such as it takes.
fn chosen(g: &mut Gen, kernel: &KernelDef) -> (Vec<DType>, Vec<i64>) {
    let first: DType = g.v();
    let dtypes = kernel.ast.dtypes.iter().map(|_| if g.below(4) == 0 { g.v() } else { first });
    let dtypes: Vec<DType> = dtypes.collect();
    let consts = kernel.ast.consts.iter().map(|_| match g.below(12) {
        0 => g.one(&[0, -1, 3, 100, i64::MAX, i64::MIN, 1 << 40]),
        _ => 1 << g.below(7),
    });
    let consts: Vec<i64> = consts.collect();
    g.tell(format_args!("{:?}", (kernel.name(), &dtypes, &consts)));
    (dtypes, consts)
}

/// What a kernel is known to be: made once for each kernel and its constants, on which its code depends.
fn has_loops(kernel: &KernelDef, dtypes: &[DType], consts: &[i64]) -> bool {
    static KNOWN: Mutex<BTreeMap<(&str, Vec<i64>), bool>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (kernel.name(), consts.to_vec());
    if let Some(&known) = known.get(&key) {
        return known;
    }
    // One that is not made for these is not launched either.
    let Ok(made) = kernel.specialize(dtypes, consts, &Hints::default()) else { return true };
    let text = made.tir();
    let loops = text.contains(" for ") || text.contains("while");
    known.insert(key, loops);
    loops
}

fn launch(g: &mut Gen) -> Result<Vec<Tensor>> {
    let kernel = any_kernel(g);
    let (dtypes, consts) = chosen(g, kernel);
    // A loop to the largest number ends when it ends, and so does a grid; neither is a fault of the launch.
    let most = if has_loops(kernel, &dtypes, &consts) { 1000 } else { i64::MAX };
    if consts.iter().any(|&value| value > most || most < i64::MAX && value < -most) {
        return Ok(Vec::new());
    }
    let extent = |g: &mut Gen| match g.below(8) {
        0 => g.one(&[0, -1, i64::MIN]),
        _ => 1 + g.below(4) as i64,
    };
    let grid = Grid { x: extent(g), y: extent(g), z: extent(g) };
    g.tell(format_args!("{:?}", grid));
    let stream = Device::Cpu.stream();
    let count = kernel.ast.params.len();
    let buffers = (0..count).map(|_| Buffer::zeroed(&stream, 8 * g.below(100)));
    let buffers: Vec<Buffer> = buffers.collect::<std::result::Result<_, _>>()?;
    let mut args = Vec::new();
    for (param, own) in kernel.ast.params.iter().zip(&buffers) {
        let buffer = if g.below(10) == 0 { &buffers[g.below(count)] } else { own };
        args.push(argument(g, kernel, (&param.ty, &dtypes), buffer, most)?);
    }
    let outcome = by_count(kernel, grid, (&dtypes, &consts), &args);
    g.tell(format_args!("{:?}", outcome.as_ref().err().map(ToString::to_string)));
    Ok(outcome.map(|()| Vec::new())?)
}

fn argument<'b>(
    g: &mut Gen,
    kernel: &KernelDef,
    (ty, dtypes): (&TypeAst, &[DType]),
    buffer: &'b Buffer,
    most: i64,
) -> Result<CheckedArg<'b>> {
    let dtype_of = |dtype: &DTypeAst| {
        let known = dtype.resolve(|name| {
            let at = kernel.ast.dtypes.iter().position(|param| param.name == name);
            at.and_then(|at| dtypes.get(at)).copied()
        });
        known.unwrap_or(DType::F32)
    };
    let other: DType = g.v();
    let wrong = g.below(40) == 0;
    let (dtype, rank, mutable) = match ty {
        TypeAst::View { dtype, rank, mutable } => {
            let rank = if g.below(40) == 0 { g.below(9) } else { usize::from(*rank) };
            (dtype_of(dtype), rank, *mutable)
        }
        TypeAst::Ptr { dtype, mutable } => {
            let dtype = dtype_of(dtype);
            return Ok(CheckedArg::ptr(buffer, g.below(4), dtype, *mutable)?);
        }
        TypeAst::Scalar(dtype) => {
            let dtype = if wrong { other } else { dtype_of(dtype) };
            return Ok(CheckedArg::scalar(number(g, dtype, most)));
        }
        _ => return Ok(CheckedArg::scalar(number(g, other, most))),
    };
    let dtype = if wrong { other } else { dtype };
    // Dense, unless another number gets in.
    let mut dims: Vec<i64> = (0..rank).map(|_| g.below(6) as i64).collect();
    let mut strides = vec![1; rank];
    for axis in (1..rank).rev() {
        strides[axis - 1] = strides[axis] * dims[axis].max(1);
    }
    let mut offset = g.below(3);
    for _ in 0..g.below(3) {
        match g.below(4) {
            // Loops run along axes too, and one of stride 0 may be of any length.
            0 if rank > 0 => dims[g.below(rank)] = g.v::<i64>().min(most),
            1 if rank > 0 => strides[g.below(rank)] = g.v(),
            2 => offset = g.v(),
            _ if rank > 0 => strides[g.below(rank)] = 0,
            _ => {}
        }
    }
    g.tell(format_args!("{:?}", (dtype, &dims, &strides, offset, mutable, buffer.bytes())));
    Ok(CheckedArg::view(buffer, offset, dtype, (&dims, &strides), mutable)?)
}

fn number(g: &mut Gen, dtype: DType, most: i64) -> Scalar {
    let number = if dtype.is_float() {
        Scalar::float(dtype, g.v())
    } else {
        Scalar::int(dtype, g.v::<i64>().clamp(most.saturating_neg(), most))
    };
    g.tell(format_args!("{:?}", number));
    number
}

/// The launch takes an array.
fn by_count(
    kernel: &KernelDef,
    grid: Grid,
    (dtypes, consts): (&[DType], &[i64]),
    args: &[CheckedArg<'_>],
) -> std::result::Result<(), genesis_kernel::Error> {
    let stream = Device::Cpu.stream();
    macro_rules! counts {
        ($($n:literal)*) => {
            match args.len() {
                $($n => {
                    let args: [CheckedArg<'_>; $n] = args.try_into().expect("as many as counted");
                    kernel.launch_checked(&stream, grid, dtypes, consts, args)
                })*
                n => panic!("{} takes {n} arguments: one line more here", kernel.name()),
            }
        };
    }
    counts! {
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33
    }
}

fn look(g: &mut Gen) -> Result<Vec<Tensor>> {
    let kernel = any_kernel(g);
    let (dtypes, consts) = chosen(g, kernel);
    let mut request = InspectRequest::new(kernel, g.v(), g.v()).dtypes(&dtypes);
    for (name, &value) in kernel.ast.consts.iter().zip(&consts) {
        request = request.set(name, value);
    }
    if g.below(10) == 0 {
        request = request.set("NOT_THERE", g.v());
    }
    if g.below(3) == 0 {
        request.hints = g.v();
    }
    let _ = inspect(kernel, &request)?;
    Ok(Vec::new())
}

/// Copies to and from places of memory.
fn bytes(g: &mut Gen) -> std::result::Result<(), genesis_kernel::Error> {
    let stream = Device::Cpu.stream();
    let buffer = Buffer::uninit(&stream, g.v())?;
    let mut target = vec![0; g.below(20)];
    let _ = (buffer.write(g.v(), &target), buffer.read(g.v(), &mut target));
    let other = Buffer::zeroed(&stream, g.below(100))?;
    let _ = CheckedArg::ptr(&other, g.v(), g.v(), g.v());
    buffer.fill(g.below(256) as u8)
}
