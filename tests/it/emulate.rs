//! The code of every kernel of the framework, run by the emulator: right results, by the interpreter, and
//! nothing that two threads do to one byte of shared memory without a barrier between them.
//!
//! [`every_barrier_is_needed`] takes each barrier, fence and wait out of some of them in turn, and the
//! emulator has to notice.

mod arguments;
mod mutants;

use std::collections::BTreeSet;

use genesis::DType;
use genesis_kernel::codegen::nvptx::GpuKernel;
use genesis_kernel::emulate::Emulator;
use genesis_kernel::front::ast::{ParamAst, PatternAst, TypeAst};
use genesis_kernel::ir::{Param, Type};
use genesis_kernel::kernel::{ArgValue, Hints, KernelDef, ParamHint, Specialized};
use genesis_kernel::target::Target;
use genesis_kernel::{Error, Scalar};
use rayon::prelude::*;

use self::arguments::{OF_WINDOWS, SKIPPED, integer};
use self::mutants::mutants;
use crate::assemble::{dtypes, usual_consts};

/// Extents of the outer axes of a view of each rank, and the grid that covers them.
#[derive(Clone, Copy)]
struct Shape {
    dims: [i64; 4],
    grid: [u32; 3],
}

/// Tiles and rows end within blocks, and lines of 16 elements do not.
const SMALL: Shape = Shape { dims: [2, 3, 48, 144], grid: [5, 1, 1] };

impl Shape {
    /// [`SMALL`], with as many programs as the kernel has work for, where that is not for the kernel to see to.
    fn of(kernel: &KernelDef) -> Shape {
        let programs = match kernel.name() {
            // One program has all of what is added or written.
            "next_scale" | "add_in_order" | "prod_in_order" | "put_in_order" => 1,
            "paged_attention_join" => 2,
            "rotate_and_cache" | "paged_decode" => 3,
            name if name.starts_with("quantized_tiles_of_codes") => 3,
            _ => 5,
        };
        Shape { grid: [programs, 1, 1], ..SMALL }
    }

    /// Extents of a view: those that must fit another operand, else the innermost of the shape's.
    fn dims_of(self, kernel: &KernelDef, param: &str, rank: usize) -> Vec<i64> {
        let fitting: &[i64] = match (kernel.name(), param, rank) {
            // Which positions of the input a window at each position of an axis looks at.
            (name, "rows" | "by_row", _) if is_pool(name) => &[48, 2],
            (name, "columns" | "by_column", _) if is_pool(name) => &[144, 2],
            // Two rows for the places of a matrix of 16 by 16.
            ("triangle_indices", "y", _) => &[2, 512],
            (_, "depths" | "by_depth" | "rows" | "columns", 2) => &[3, 2],
            // A slot of the cache for each token.
            (_, "slots", _) => &[3],
            ("rotate_and_cache" | "paged_decode", "inv_freq", _) => &[16],
            // A gate beside each element.
            ("gated", "x", _) | ("gated_bwd", "x" | "dx", _) => &[48, 288],
            // Two halves of four groups of 32, of which a byte of codes has an element each.
            ("quantized_rows", "x", _) => &[48, 2, 4, 32],
            ("quantized_rows", "codes", _) => &[144, 4, 32],
            ("quantized_rows", "scales" | "mins", _) => &[144, 2, 4],
            _ => &self.dims[4_usize.saturating_sub(rank)..],
        };
        [&vec![1; rank.saturating_sub(fitting.len())], fitting].concat()
    }
}

/// Whether a kernel looks by tables of windows along three axes.
fn is_pool(name: &str) -> bool {
    name.starts_with("resample") || name.starts_with("max_pool")
}

/// A kernel in one configuration.
#[derive(Clone)]
struct Case {
    kernel: &'static KernelDef,
    dtype: DType,
    consts: Vec<i64>,
    hints: Hints,
    shape: Shape,
    target: Target,
    /// Programs that share a tile.
    shares: u32,
}

impl Case {
    fn name(&self) -> String {
        format!("{} {} {:?} {}", self.kernel.name(), self.dtype, self.consts, self.target)
    }

    /// A kernel of contiguous tensors.
    fn contiguous(
        kernel: &'static KernelDef,
        dtype: DType,
        consts: Vec<i64>,
        target: Target,
    ) -> Case {
        let (shape, hints) = (Shape::of(kernel), Hints::contiguous(kernel.ast));
        Case { kernel, dtype, consts, hints, shape, target, shares: 1 }.with_true_hints()
    }

    /// Without promises about strides, and the extent of the innermost axis, that views do not keep, and about numbers
    /// that are not those.
    fn with_true_hints(mut self) -> Case {
        for (param, hint) in self.kernel.ast.params.iter().zip(&mut self.hints.params) {
            let TypeAst::View { rank, .. } = param.ty else {
                let number = integer(self.kernel.name(), name_of(param), DType::I64).to_i64();
                if matches!(param.ty, TypeAst::Scalar(_)) && number % 16 != 0 {
                    hint.multiple_of = ParamHint::default().multiple_of;
                }
                continue;
            };
            let dims = self.shape.dims_of(self.kernel, name_of(param), usize::from(rank));
            let inner = hint.unit_axis.map_or(dims.len() - 1, usize::from);
            let mut promised = strides(&dims, hint.unit_axis.map(usize::from));
            promised[inner] = dims[inner];
            let is_kept = |n: &i64| (*n as u64).is_multiple_of(hint.stride_multiple_of.max(1));
            hint.stride_multiple_of *= u64::from(promised.iter().all(is_kept));
        }
        self
    }

    fn specialized(&self) -> Result<Specialized, Error> {
        self.kernel.specialize(&dtypes(self.kernel, self.dtype), &self.consts, &self.hints)
    }
}

/// The name of a kernel's parameter.
fn name_of(param: &ParamAst) -> &'static str {
    match param.pattern {
        PatternAst::Name(name) => name,
        PatternAst::Wild | PatternAst::Tuple(_) => "",
    }
}

/// Memory of an argument.
struct Memory {
    dtype: DType,
    bytes: Vec<u8>,
    writable: bool,
}

/// Numbers that look random: floats around 0, integers that are good indices.
fn numbers(dtype: DType, n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let scalar = |u: f64| match dtype {
        _ if dtype.is_float() => Scalar::float(dtype, u * 2.0 - 1.0),
        DType::Bool => Scalar::int(dtype, i64::from(u < 0.5)),
        _ => Scalar::int(dtype, (u * 16.0) as i64),
    };
    bytes_of(dtype, n, |_| scalar(next()))
}

/// The bytes of `n` elements, by their place.
fn bytes_of(dtype: DType, n: usize, mut of: impl FnMut(usize) -> Scalar) -> Vec<u8> {
    let size = dtype.bytes();
    let mut bytes = vec![0; n * size];
    for (place, to) in bytes.chunks_exact_mut(size).enumerate() {
        to.copy_from_slice(&of(place).bits.to_le_bytes()[..size]);
    }
    bytes
}

/// `n` integers, by their place.
fn integers(dtype: DType, n: usize, of: impl Fn(usize) -> i64) -> Vec<u8> {
    bytes_of(dtype, n, |place| Scalar::int(dtype, of(place)))
}

/// What an argument of memory holds: integers by which a kernel finds its way, else numbers.
fn contents(
    param: &Param,
    dtype: DType,
    n: usize,
    is_view: bool,
    case: &Case,
    seed: u64,
) -> Vec<u8> {
    let is_of_many = case.kernel.ast.params.iter().any(|param| name_of(param) == "chunks");
    match param.name.as_str() {
        // `i64` that differ and ascend, which kernels that sort by merging count on.
        "keys" if !is_view && !case.kernel.name().starts_with("radix_scatter") => {
            integers(dtype, n, |i| i as i64)
        }
        // Where each part of what is compacted or sorted begins: none in another.
        "offsets" if !is_view => integers(dtype, n, |i| match case.kernel.name() {
            name if name.starts_with("radix_scatter") => 16 * i as i64,
            _ => 256 * i as i64,
        }),
        // Where each element stood.
        "order" if !is_view && case.kernel.name() == "runs" => integers(dtype, n, |i| i as i64),
        // Counters of programs that share a tile.
        "done" if case.shares > 1 => vec![0; n * dtype.bytes()],
        // One tensor of 72 elements, of which each program has 16: its row of the table and its first element.
        "chunks" => integers(dtype, n, |i| if i % 2 == 0 { 0 } else { 8 * (i as i64 - 1) }),
        "rows" if is_of_many => integers(dtype, n, |i| if i == 0 { 72 } else { 0 }),
        // A block of a packed sequence of 48 rows.
        "list" if param.attrs.readonly => {
            integers(dtype, n, |i| if matches!(i % 8, 2 | 4) { 48 } else { 0 })
        }
        // Positions that windows look at: some outside.
        "depths" | "rows" | "columns" if dtype == DType::I32 => {
            integers(dtype, n, |i| i as i64 * 7 % 4 - 1)
        }
        // Tokens that are written do not share a slot.
        "slots" => integers(dtype, n, |i| i as i64),
        _ => numbers(dtype, n, seed),
    }
}

/// What a kernel is run on: memory, and arguments that take the addresses of it in order.
fn arguments(special: &Specialized, case: &Case) -> (Vec<Memory>, Vec<ArgValue>) {
    let mut memory = Vec::new();
    let mut values = Vec::new();
    for (seed, param) in (1..).zip(&special.func.params) {
        let hint = case.hints.params.get(seed as usize - 1).copied().unwrap_or_default();
        let writable = param.attrs.exclusive || !param.attrs.readonly;
        match special.func.ty(param.value) {
            Type::View { rank, dtype } => {
                let dims = case.shape.dims_of(case.kernel, &param.name, usize::from(rank));
                let n = dims.iter().product::<i64>() as usize;
                let bytes = contents(param, dtype, n, true, case, seed);
                memory.push(Memory { dtype, bytes, writable });
                let strides = strides(&dims, hint.unit_axis.map(usize::from));
                values.push(ArgValue::View { ptr: 0, dims, strides });
            }
            Type::Tile(tile) if tile.is_ptr() => {
                let n = case.shape.dims.iter().product::<i64>() as usize;
                let dtype = tile.dtype();
                let bytes = contents(param, dtype, n, false, case, seed);
                memory.push(Memory { dtype, bytes, writable });
                values.push(ArgValue::Ptr(0));
            }
            Type::Tile(tile) => {
                let dtype = tile.dtype();
                let scalar = match dtype.is_float() {
                    true => Scalar::float(dtype, 0.5),
                    false => integer(case.kernel.name(), &param.name, dtype),
                };
                values.push(ArgValue::Scalar(scalar));
            }
        }
    }
    (memory, values)
}

/// Row-major strides, with the axis that shall have stride 1 innermost.
fn strides(dims: &[i64], unit_axis: Option<usize>) -> Vec<i64> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    if let Some(axis) = unit_axis {
        order.retain(|&other| other != axis);
        order.push(axis);
    }
    let mut strides = vec![1; dims.len()];
    let mut step = 1;
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step *= dims[axis];
    }
    strides
}

/// The arguments at these addresses.
fn placed(values: &[ArgValue], addresses: &[u64]) -> Vec<ArgValue> {
    let mut addresses = addresses.iter().copied();
    let mut next = || addresses.next().expect("one address for each memory");
    let place = |value: &ArgValue| match value {
        ArgValue::Ptr(_) => ArgValue::Ptr(next()),
        ArgValue::View { dims, strides, .. } => {
            ArgValue::View { ptr: next(), dims: dims.clone(), strides: strides.clone() }
        }
        ArgValue::Scalar(scalar) => ArgValue::Scalar(*scalar),
    };
    values.iter().map(place).collect()
}

/// What memory holds after the interpreter ran the kernel.
fn interpret(special: &Specialized, case: &Case) -> Result<Vec<Vec<u8>>, String> {
    let (memory, values) = arguments(special, case);
    let mut interpreter = special.interpreter();
    let addresses: Vec<u64> = memory
        .into_iter()
        .map(|m| interpreter.add_buffer("argument", m.dtype, m.bytes, m.writable))
        .collect();
    interpreter.run(case.shape.grid, &placed(&values, &addresses)).map_err(|e| e.to_string())?;
    Ok(addresses.iter().map(|&address| interpreter.buffer(address).to_vec()).collect())
}

/// What memory holds after the emulator ran its code.
fn emulate(special: &Specialized, case: &Case, code: &GpuKernel) -> Result<Vec<Vec<u8>>, String> {
    let (memory, values) = arguments(special, case);
    let mut emulator = Emulator::new();
    let names = special.func.params.iter().map(|param| param.name.clone());
    let addresses: Vec<u64> = memory
        .into_iter()
        .zip(names)
        .map(|(m, name)| emulator.add_buffer(name, m.bytes, m.writable))
        .collect();
    let args = placed(&values, &addresses);
    emulator.run(code, case.shape.grid, &args).map_err(|fault| fault.to_string())?;
    Ok(addresses.iter().map(|&address| emulator.buffer(address).to_vec()).collect())
}

/// The first element that is another one than it should be.
fn compare(
    special: &Specialized,
    case: &Case,
    got: &[Vec<u8>],
    wanted: &[Vec<u8>],
) -> Result<(), String> {
    let (memory, _) = arguments(special, case);
    for (number, ((got, wanted), memory)) in got.iter().zip(wanted).zip(&memory).enumerate() {
        if got == wanted {
            continue;
        }
        let dtype = memory.dtype;
        let read = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            Scalar { dtype, bits: u64::from_le_bytes(word) }
        };
        let size = dtype.bytes();
        for (i, (got, wanted)) in got.chunks(size).zip(wanted.chunks(size)).enumerate() {
            let (got, wanted) = (read(got), read(wanted));
            if !is_close(got, wanted, case) {
                let (got, wanted) = (got.to_f64(), wanted.to_f64());
                return Err(format!("memory {number}, element {i}: {got} and not {wanted}"));
            }
        }
    }
    Ok(())
}

/// Equal but for the order of sums and the last places of functions.
fn is_close(got: Scalar, wanted: Scalar, case: &Case) -> bool {
    if got.bits == wanted.bits {
        return true;
    }
    if case.kernel.name() == "matmul_int8" {
        return false;
    }
    let is_rough = case.dtype.bytes() == 2 || case.kernel.name().contains("tf32");
    let tolerance = if is_rough || got.dtype.bytes() == 2 { 3e-2 } else { 2e-3 };
    let (got, wanted) = (got.to_f64(), wanted.to_f64());
    (got.is_nan() && wanted.is_nan())
        || got == wanted
        || (got - wanted).abs() <= tolerance * (1.0 + wanted.abs())
}

/// Runs a case both ways; where the interpreter refuses the arguments, why.
fn check(case: &Case) -> Result<Option<String>, String> {
    let text = |error: Error| error.to_string();
    let special = case.specialized().map_err(text)?;
    let wanted = match interpret(&special, case) {
        Ok(wanted) => wanted,
        Err(why) => return Ok(Some(why)),
    };
    let code = special.compile(&case.target).and_then(|c| c.with_lines()).map_err(text)?;
    let got = emulate(&special, case, &code)?;
    compare(&special, case, &got, &wanted)?;
    Ok(None)
}

fn kernel(name: &str) -> &'static KernelDef {
    kernels::all().into_iter().find(|kernel| kernel.name() == name).expect("there is that kernel")
}

/// Every kernel as small launches compile it.
fn usual_cases() -> Vec<Case> {
    let both = |kernel| {
        [(DType::F32, Target::sm_80()), (DType::BF16, Target::sm_90a())]
            .map(|(dtype, target)| Case::contiguous(kernel, dtype, usual_consts(kernel), target))
    };
    // Of the GPUs behind it one for each kernel.
    let newer = [(DType::BF16, Target::sm_100a()), (DType::F32, Target::sm_120a())];
    let one = kernels::all().into_iter().zip(newer.iter().cycle());
    let one = one.map(|(kernel, (dtype, target))| {
        Case::contiguous(kernel, *dtype, usual_consts(kernel), target.clone())
    });
    kernels::all().into_iter().flat_map(both).chain(one).collect()
}

/// The same case for another GPU.
fn on(target: Target, case: Case) -> Case {
    Case { target, ..case }
}

/// Products, attention, and rows whose warps and blocks meet, for GPUs with clusters whose tensor cores read registers.
fn newer_cases() -> Vec<Case> {
    let products = || {
        [
            hopper("matmul", [64, 64, 64], 4, [2, 2]),
            hopper("matmul", [128, 64, 64], 8, [1, 1]),
            hopper("matmul_tf32", [64, 64, 32], 4, [2, 1]),
            attention([128, 64, 64], 8),
        ]
    };
    let both = [Target::sm_100a(), Target::sm_120a()];
    let products = both.iter().flat_map(|target| products().map(|case| on(target.clone(), case)));
    let clusters = cluster_cases().into_iter().map(|case| on(Target::sm_120a(), case));
    products.chain(clusters).chain(listed(MEETING, &Target::sm_120a())).collect()
}

/// Kernels whose warps meet: name, dtype, constants, warps.
const MEETING: &[(&str, DType, &[i64], u32)] = &[
    ("softmax", DType::F32, &[1, 256], 4),
    ("softmax", DType::BF16, &[2, 128], 2),
    ("softmax_long", DType::BF16, &[64, 32, 2], 4),
    ("log_softmax", DType::F32, &[1, 128], 4),
    ("logit_losses", DType::F32, &[64, 16, 4, 1, 0, 1, 1], 4),
    ("logit_losses_kept", DType::BF16, &[2, 128], 4),
    ("layer_norm", DType::BF16, &[2, 128], 4),
    ("rms_norm", DType::F32, &[1, 128], 4),
    ("layer_norm_bwd", DType::F32, &[2, 128, 1, 0], 4),
    ("rms_norm_bwd", DType::BF16, &[2, 128, 1, 1], 4),
    ("sum_rows", DType::F32, &[1, 128], 4),
    ("sum_cols", DType::F32, &[32, 16], 4),
    ("argmax_rows", DType::F32, &[1, 128], 4),
    ("argmax_cols", DType::F32, &[16, 16], 4),
    ("var_rows", DType::F32, &[1, 128, 0], 4),
    ("var_cols", DType::BF16, &[16, 16, 1], 4),
    ("prod_rows", DType::F32, &[1, 128], 4),
    ("any_cols", DType::F32, &[16, 16], 4),
    ("cast_axes", DType::F32, &[4, 0, 64, 4], 4),
    ("cast_axes", DType::BF16, &[4, 1, 16, 16], 4),
    ("cast_planes", DType::F32, &[5, 64, 2], 4),
    ("cumsum_rows", DType::F32, &[1, 128], 4),
    ("cast_across", DType::F32, &[32, 32], 4),
    ("cast_across", DType::BF16, &[64, 64], 4),
    ("matmul", DType::BF16, &[64, 64, 32], 4),
    ("matmul", DType::F32, &[32, 32, 16], 4),
    ("matmul_tf32", DType::F32, &[64, 64, 32], 4),
];

/// Kernels whose blocks meet: name, dtype, constants, warps, blocks of a cluster.
const CLUSTERS: &[(&str, DType, &[i64], u32, u32)] = &[
    ("softmax", DType::BF16, &[1, 256], 2, 2),
    ("softmax", DType::F32, &[1, 512], 2, 4),
    ("logit_losses_kept", DType::BF16, &[1, 256], 2, 2),
    ("layer_norm", DType::F32, &[1, 256], 4, 2),
];

fn cluster_cases() -> Vec<Case> {
    let case = |&(name, dtype, consts, warps, cluster): &(&str, DType, &[i64], u32, u32)| {
        let kernel = kernel(name);
        let consts = consts.to_vec();
        let (num_warps, cluster) = (Some(warps), Some(cluster));
        let hints = Hints { num_warps, cluster, ..Hints::contiguous(kernel.ast) };
        assert_eq!(kernel.ast.consts.len(), consts.len(), "constants of {name}");
        let target = Target::sm_90a();
        Case { kernel, dtype, consts, hints, shape: SMALL, target, shares: 1 }
    };
    CLUSTERS.iter().map(case).collect()
}

/// The same for many warps: eight and more leave their parts of a sum to the lanes of each.
const WIDE: &[(&str, DType, &[i64], u32)] = &[
    ("softmax", DType::F32, &[1, 1024], 8),
    ("softmax", DType::BF16, &[1, 4096], 16),
    ("softmax", DType::F32, &[1, 20_480], 16),
    ("softmax", DType::BF16, &[1, 12_288], 8),
    ("log_softmax", DType::F32, &[1, 20_480], 16),
    ("softmax_long", DType::F32, &[1024, 256, 4], 8),
    ("softmax_long", DType::BF16, &[4096, 512, 8], 16),
    ("log_softmax", DType::F32, &[1, 2048], 16),
    ("layer_norm", DType::F32, &[1, 1024], 8),
    ("layer_norm", DType::BF16, &[1, 4096], 16),
    ("rms_norm", DType::F32, &[1, 2048], 8),
    ("layer_norm_bwd", DType::F32, &[1, 1024, 0, 1], 8),
    ("rms_norm_bwd", DType::F32, &[1, 1024, 0, 0], 8),
    ("layer_norm_long", DType::F32, &[1024], 8),
    ("rms_norm_long", DType::F32, &[1024], 8),
    ("layer_norm_bwd_long", DType::F32, &[1024, 1], 8),
    ("rms_norm_bwd_long", DType::F32, &[1024, 1], 8),
    ("cross_entropy", DType::F32, &[1024, 256, 4], 8),
    ("logit_losses", DType::BF16, &[1024, 128, 8, 1, 1, 0, 0], 8),
    ("logit_losses_kept", DType::BF16, &[1, 4096], 16),
    ("sum_rows", DType::F32, &[1, 2048], 8),
    ("max_rows", DType::F32, &[1, 2048], 8),
    ("argmax_rows", DType::F32, &[1, 1024], 8),
    ("cumsum_rows", DType::F32, &[1, 1024], 8),
    ("sum_rows_shared", DType::F32, &[1024, 512], 8),
    ("sum_cols_shared", DType::F32, &[32, 128, 8], 8),
    ("sum_cols", DType::F32, &[64, 128], 8),
    ("embedding_pieces", DType::F32, &[32, 256], 4),
    ("embedding_pieces", DType::F32, &[32, 1024], 8),
    ("attention", DType::F32, &[16, 32, 16, 1, 1, 1, 0], 4),
    ("attention_keys", DType::F32, &[32, 16, 16, 0, 0, 1, 1, 1, 0], 4),
    // Heads of 256, with warps that have roles.
    ("attention_keys", DType::BF16, &[32, 128, 256, 0, 1, 0, 0, 0, 0], 8),
    ("attention_keys", DType::BF16, &[64, 128, 256, 0, 2, 0, 0, 0, 0], 8),
    ("attention_queries", DType::BF16, &[128, 32, 256, 0, 0, 0, 0, 0], 8),
    ("attention_queries", DType::F32, &[16, 32, 16, 0, 1, 1, 1, 0], 4),
];

/// Products with codes whose parts are programs of their own, with all that follows them: name, constants, programs of
/// each of nine tiles.
const SHARED: &[(&str, &[i64], u32)] = &[
    ("quantized_tiles_of_codes", &[64, 16, 64, 1, 64, 0, 8, 8, 0, 3, 1, 1, 1, 1], 3),
    ("quantized_tiles_of_codes", &[64, 16, 64, 1, 64, 64, 4, 8, 0, 1, 1, 1, 1, 1], 1),
    ("quantized_tiles_of_codes", &[64, 16, 64, 2, 32, 32, 4, 0, 1, 2, 1, 1, 2, 0], 2),
    ("quantized_tiles_of_codes_gated", &[64, 16, 64, 1, 64, 0, 8, 8, 0, 1, 1, 0, 1], 2),
    ("quantized_tiles_of_codes_gated", &[64, 16, 64, 2, 32, 32, 4, 0, 1, 2, 1, 2, 2], 4),
];

fn shared_cases() -> Vec<Case> {
    let case = |&(name, consts, shares): &(&str, &[i64], u32)| {
        let kernel = kernel(name);
        let hints = Hints { num_warps: Some(4), ..Hints::contiguous(kernel.ast) };
        let shape = Shape { grid: [9 * shares, 1, 1], ..SMALL };
        let (dtype, consts) = (DType::BF16, consts.to_vec());
        [Target::sm_80(), Target::sm_90a()].map(|target| Case {
            kernel,
            dtype,
            consts: consts.clone(),
            hints: hints.clone(),
            shape,
            target,
            shares,
        })
    };
    SHARED.iter().flat_map(case).collect()
}

/// Parts of a tile that are joined by whichever program is the last.
#[test]
fn shares_of_a_tile_are_joined() {
    let (problems, skipped) = problems(&shared_cases());
    assert!(problems.is_empty() && skipped.is_empty(), "{problems:#?}, not {skipped:?}");
}

fn meeting_cases() -> Vec<Case> {
    listed(MEETING, &Target::sm_80())
}

fn listed(list: &[(&str, DType, &[i64], u32)], target: &Target) -> Vec<Case> {
    let case = |&(name, dtype, consts, warps): &(&str, DType, &[i64], u32)| {
        let kernel = kernel(name);
        let consts = consts.to_vec();
        let hints = Hints { num_warps: Some(warps), ..Hints::contiguous(kernel.ast) };
        assert_eq!(kernel.ast.consts.len(), consts.len(), "constants of {name}");
        Case { kernel, dtype, consts, hints, shape: SMALL, target: target.clone(), shares: 1 }
    };
    list.iter().map(case).collect()
}

/// Kernels of views whose first one lies across the others, so that its tile moves between threads.
fn crossed_cases() -> Vec<Case> {
    let crossed = |kernel: &'static KernelDef| -> Option<Case> {
        let rank = |i: usize| match kernel.ast.params.get(i)?.ty {
            TypeAst::View { rank, .. } => Some(rank),
            _ => None,
        };
        let (first, _) = (rank(0).filter(|&rank| rank >= 2)?, rank(1)?);
        let mut case = Case::contiguous(kernel, DType::F32, usual_consts(kernel), Target::sm_90a());
        case.hints.num_warps = Some(4);
        let across = &mut case.hints.params[0];
        (across.unit_stride, across.unit_axis) = (false, Some(first - 2));
        Some(case.with_true_hints())
    };
    kernels::all().into_iter().filter_map(crossed).collect()
}

/// A product by the copy engine and the tensor cores of Hopper.
fn hopper(name: &str, tile: [i64; 3], warps: u32, units: [u8; 2]) -> Case {
    let view = |unit: u8| ParamHint {
        multiple_of: 16,
        unit_stride: unit == 2,
        unit_axis: (unit != 2).then_some(unit),
        narrow: true,
        stride_multiple_of: if name == "matmul_int8" { 16 } else { 8 },
        ..ParamHint::default()
    };
    let params = vec![view(units[0]), view(units[1]), view(2)];
    let kernel = kernel(name);
    let is_half = ["matmul", "matmul_add", "matmul_add_wide"].contains(&name);
    let [m, n, k] = tile;
    // Several tiles for each of two programs, and steps along K of which the last is not whole, so
    // that each ring comes round.
    let most = (2 * m).max(n).max(4 * k) + 16;
    Case {
        kernel,
        dtype: if is_half { DType::BF16 } else { DType::F32 },
        consts: tile.to_vec(),
        hints: Hints { params, num_warps: Some(warps), ..Hints::default() },
        shape: Shape { dims: [1, 1, most, most], grid: [2, 1, 1] },
        target: Target::sm_90a(),
        shares: 1,
    }
}

/// Attention of two heads by the copy engine and tensor cores, of blocks of keys that are seen in part
/// and not at all.
fn attention(tile: [i64; 3], warps: u32) -> Case {
    let view = ParamHint {
        multiple_of: 16,
        unit_stride: true,
        stride_multiple_of: 8,
        ..ParamHint::default()
    };
    let params = vec![view; 6];
    let [m, n, d] = tile;
    Case {
        kernel: kernel("attention"),
        dtype: DType::BF16,
        consts: vec![m, n, d, 0, 0, 0, 0],
        hints: Hints { params, num_warps: Some(warps), ..Hints::default() },
        shape: Shape { dims: [1, 2, m + n, d], grid: [2, 1, 1] },
        target: Target::sm_90a(),
        shares: 1,
    }
}

fn hopper_cases() -> Vec<Case> {
    vec![
        hopper("matmul", [64, 64, 64], 4, [2, 2]),
        hopper("matmul", [64, 64, 64], 4, [1, 1]),
        hopper("matmul", [64, 16, 64], 4, [2, 1]),
        hopper("matmul", [128, 64, 64], 8, [2, 2]),
        hopper("matmul", [128, 128, 32], 4, [2, 1]),
        hopper("matmul_add", [64, 64, 64], 4, [1, 2]),
        hopper("matmul_add", [128, 64, 64], 8, [2, 1]),
        hopper("matmul_add_wide", [128, 128, 32], 4, [1, 2]),
        hopper("matmul_tf32", [128, 64, 32], 8, [2, 1]),
        hopper("matmul_tf32", [64, 64, 32], 4, [2, 2]),
        hopper("matmul_tf32", [64, 64, 32], 4, [2, 1]),
        hopper("matmul_int8", [64, 32, 64], 4, [2, 1]),
        hopper("matmul_int8", [128, 64, 64], 8, [2, 1]),
        // Blocks that bring the right operand for each other; in the third, sets of warps take turns.
        clustered(hopper("matmul", [128, 64, 64], 4, [2, 2]), 2),
        clustered(hopper("matmul", [128, 64, 64], 4, [1, 1]), 2),
        clustered(hopper("matmul", [256, 128, 32], 4, [2, 1]), 2),
        clustered(hopper("matmul_tf32", [256, 64, 32], 8, [2, 1]), 2),
    ]
}

/// The same by clusters of some blocks.
fn clustered(case: Case, blocks: u32) -> Case {
    Case { hints: Hints { cluster: Some(blocks), ..case.hints }, ..case }
}

/// Products by clusters whose operands lie and are shared out in every way.
#[test]
fn blocks_share_operands_in_every_layout() {
    let tile = |units| {
        let deep = clustered(hopper("matmul", [128, 64, 128], 4, units), 2);
        [deep, clustered(hopper("matmul", [256, 64, 32], 4, units), 4)]
    };
    let cases: Vec<Case> = [[2, 2], [2, 1], [1, 2], [1, 1]].into_iter().flat_map(tile).collect();
    let (problems, skipped) = problems(&cases);
    assert!(problems.is_empty() && skipped.is_empty(), "{problems:#?}, not {skipped:?}");
}

/// Problems of all cases, and which of them the interpreter refuses.
fn problems(cases: &[Case]) -> (Vec<String>, Vec<String>) {
    let (mut problems, mut skipped) = (Vec::new(), Vec::new());
    let results: Vec<_> = cases.par_iter().map(|case| (case.name(), check(case))).collect();
    for (name, result) in results {
        match result {
            Ok(None) => {}
            Ok(Some(why)) => {
                skipped.push(format!("{name}: {}", why.lines().next().unwrap_or_default()))
            }
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
    }
    (problems, skipped)
}

#[test]
fn every_kernel_runs_without_races() {
    let of_windows = OF_WINDOWS.map(|name| kernel(name).name());
    let mut cases: Vec<Case> = [
        usual_cases(),
        meeting_cases(),
        listed(WIDE, &Target::sm_90a()),
        crossed_cases(),
        cluster_cases(),
        hopper_cases(),
        newer_cases(),
        vec![
            attention([128, 128, 64], 8),
            attention([256, 64, 64], 16),
            attention([128, 64, 256], 8),
        ],
    ]
    .concat();
    cases.retain(|case| !of_windows.contains(&case.kernel.name()));
    let (problems, skipped) = problems(&cases);
    println!("{} of {} ran; not {skipped:#?}", cases.len() - skipped.len(), cases.len());
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    let listed: BTreeSet<&str> = SKIPPED.iter().map(|(name, _)| *name).collect();
    let kernel_of = |case: &String| case.split(' ').next().map(str::to_owned);
    let skipped: BTreeSet<String> = skipped.iter().filter_map(kernel_of).collect();
    let skipped: BTreeSet<&str> = skipped.iter().map(String::as_str).collect();
    let new: Vec<_> = skipped.difference(&listed).collect();
    assert!(new.is_empty(), "the interpreter refuses the arguments of {new:#?}");
    let old: Vec<_> = listed.difference(&skipped).collect();
    assert!(old.is_empty(), "these run, and stand in the list of what does not: {old:#?}");
}

/// Barriers that keep accesses of different iterations to global memory in order, which do not meet:
/// nothing says so to code generation. By kernel, how many.
const CAUTIOUS: [(&str, usize); 5] = [
    ("softmax_long", 1),
    ("logit_losses", 1),
    ("matmul", 1),
    ("matmul_add", 1),
    ("matmul_add_wide", 1),
];

#[test]
fn every_barrier_is_needed() {
    let cases: Vec<Case> = [meeting_cases(), cluster_cases(), hopper_cases()].concat();
    let results: Vec<(&Case, Tally)> = cases.par_iter().map(|case| (case, tally(case))).collect();
    let mut noticed = 0;
    let mut problems = Vec::new();
    for (case, tally) in results {
        noticed += tally.noticed;
        let cautious = CAUTIOUS.iter().find(|(name, _)| *name == case.kernel.name());
        if tally.unnoticed.len() > cautious.map_or(0, |(_, n)| *n) {
            problems.push(format!("{}: {:#?}", case.name(), tally.unnoticed));
        }
    }
    println!("{noticed} noticed");
    assert!(noticed > 100, "only {noticed} were noticed");
    assert!(problems.is_empty(), "not noticed:\n{}", problems.join("\n"));
}

/// What the emulator says when barriers are missing.
#[derive(Default)]
struct Tally {
    noticed: usize,
    unnoticed: Vec<String>,
}

fn tally(case: &Case) -> Tally {
    let special = case.specialized().expect("the kernel takes these");
    let compiled = special.compile(&case.target).expect("it compiles");
    let code = compiled.with_lines().expect("it is for a GPU");
    let wanted = emulate(&special, case, &code).expect("nothing is wrong with all of them");
    let run = |ptx: String| emulate(&special, case, &GpuKernel { ptx, ..code.clone() });
    let mut tally = Tally::default();
    for mutant in mutants(&code.ptx) {
        let is_wrong = run(mutant.ptx).map_or(true, |got| got != wanted);
        match is_wrong {
            true => tally.noticed += 1,
            // Code that is for other extents than these does not run.
            false if run(mutant.stops).is_err() => tally.unnoticed.push(mutant.what),
            false => {}
        }
    }
    tally
}

/// A barrier taken out of softmax, and what the emulator says of it.
#[test]
fn a_race_is_named_by_its_lines() {
    let case = &meeting_cases()[0];
    let special = case.specialized().expect("the kernel takes these");
    let code = special.compile(&case.target).and_then(|c| c.with_lines()).expect("it compiles");
    let mutant = mutants(&code.ptx).swap_remove(0);
    let fault = emulate(&special, case, &GpuKernel { ptx: mutant.ptx, ..code }).unwrap_err();
    // Threads run one after the other here, so that the first one reads what is not there yet.
    let (message, place) = fault.split_once('\n').expect("a second line says where");
    assert!(message.contains("byte 4 of shared memory, which nobody wrote"), "{fault}");
    assert!(place.starts_with("  --> kernels/src/softmax.rs:"), "{fault}");
}
