//! Random programs of tile IR that verify and run without an error, from a seed.
//!
//! They are what the property tests run on the interpreter and on the back ends: typed expression DAGs
//! over masked loads, with reductions, scans, broadcasts, transposes, loops, branches, dots and
//! atomics, over sizes around the block's own and over special values. Every result is defined to the
//! bit (but for the payload of a NaN), which takes some care:
//!
//! * each program writes elements of its own, or changes shared integers by atomics that commute and
//!   whose old value is not looked at;
//! * a float is cleared of NaN before its bits are looked at;
//! * what depends on the order of float additions is left out on demand, for targets whose order
//!   differs from the interpreter's.
//!
//! A seed gives the same program on every machine, as long as this module stays as it is.

mod control;
mod data;
mod exprs;
mod memory;
mod rng;
mod wide;

pub(crate) use rng::Rng;

use super::func::{Builder, Func, ParamAttrs, Region, Value};
use super::number::Scalar;
use super::types::{DType, Elem, Shape, TileType, Type};
use crate::ir::InterpArg;

/// A program with what it takes.
#[derive(Clone, Debug)]
pub struct RandomProgram {
    /// The function; it verifies.
    pub func: Func,
    /// One argument for each parameter. Back ends must give memory addresses that are multiples of 16,
    /// as the parameters promise.
    pub args: Vec<InterpArg>,
    /// Programs along each axis.
    pub grid: [u32; 3],
    /// Arguments that hold results of transcendental functions, which a GPU computes by its own
    /// instructions to the stated ULP.
    pub approximate: Vec<usize>,
}

/// What random programs may contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomOptions {
    /// Results that depend on the order in which floats are added or multiplied: reductions, scans and
    /// dots of floats.
    pub ordered_floats: bool,
    /// `exp`, `sin` and their kin, which only agree to the bit after `passes::expand_math`.
    pub transcendental: bool,
    /// The largest number of ops at the top level, not counting what addresses memory.
    pub steps: usize,
    /// What GPUs have more to do with: products by tensor cores, views over strides of any sign, sums of
    /// floats that are small integers, so that every order gives the same bits, and more dtypes.
    pub wide: bool,
}

impl RandomOptions {
    /// Programs whose results are the same bits on every machine, but for those of
    /// [`RandomProgram::approximate`].
    pub const EVERYWHERE: RandomOptions =
        RandomOptions { ordered_floats: false, transcendental: false, steps: 10, wide: true };
}

impl Default for RandomOptions {
    fn default() -> RandomOptions {
        RandomOptions { ordered_floats: true, transcendental: true, steps: 20, wide: false }
    }
}

/// The program of a seed.
pub fn random_program(seed: u64) -> RandomProgram {
    random_program_with(seed, RandomOptions::default())
}

/// The program of a seed, made of what the options allow.
pub fn random_program_with(seed: u64, options: RandomOptions) -> RandomProgram {
    let mut maker = Maker::new(Rng::new(seed), options);
    maker.whole();
    let Maker { func, args, grid, approximate, .. } = maker;
    RandomProgram { func, args, grid, approximate }
}

/// Deeper expressions than this are not built on.
const MAX_DEPTH: u8 = 6;

/// Larger tiles only take time.
const MAX_NUMEL: usize = 1024;

/// A value that later ops may use.
#[derive(Clone, Copy)]
struct Entry {
    value: Value,
    ty: TileType,
    depth: u8,
}

/// A pointer to input data of `n` elements.
#[derive(Clone, Copy)]
struct Input {
    ptr: Value,
    dtype: DType,
    len: usize,
}

/// A program in the making.
struct Maker {
    rng: Rng,
    options: RandomOptions,
    func: Func,
    region: Region,
    args: Vec<InterpArg>,
    grid: [u32; 3],
    approximate: Vec<usize>,
    pool: Vec<Entry>,
    inputs: Vec<Input>,
    /// Regions around the current one.
    nesting: usize,
    /// The shape of the tile that each program loads.
    block: Shape,
    /// The elements of the inputs.
    n: usize,
    /// The program's number over all axes of the grid; i64.
    program: Value,
    /// The first element of the program; i64.
    start: Value,
    /// `iota` in the block's shape.
    within: Value,
    /// The program's elements, and whether they exist.
    index: Value,
    mask: Value,
    /// Where the program's elements of the last output start.
    own_base: Value,
}

impl Maker {
    fn new(rng: Rng, options: RandomOptions) -> Maker {
        let func = Func::new("random");
        let region = func.body;
        let none = Value(0);
        Maker {
            rng,
            options,
            func,
            region,
            args: Vec::new(),
            grid: [1; 3],
            approximate: Vec::new(),
            pool: Vec::new(),
            inputs: Vec::new(),
            nesting: 0,
            block: Shape::SCALAR,
            n: 1,
            program: none,
            start: none,
            within: none,
            index: none,
            mask: none,
            own_base: none,
        }
    }

    fn whole(&mut self) {
        self.choose_sizes();
        self.add_inputs();
        self.index_ops();
        for _ in 0..self.rng.range(1, 3) {
            self.load_block();
        }
        let steps = self.rng.range(self.options.steps / 2, self.options.steps);
        for _ in 0..steps {
            if self.options.wide && self.rng.chance(12) {
                self.wide_step();
            } else {
                self.step();
            }
        }
        self.store_results();
        if self.options.wide && self.rng.chance(25) {
            self.store_function();
        }
        self.build().ret();
    }

    fn build(&mut self) -> Builder<'_> {
        Builder::at(&mut self.func, self.region, None)
    }

    /// The block, how many elements there are, and the grid that covers them.
    fn choose_sizes(&mut self) {
        self.block = match self.rng.below(10) {
            0..5 => {
                let extents = [1, 2, 3, 5, 7, 8, 13, 16, 24, 31, 32, 33, 64, 100, 128, 200, 256];
                Shape::new(&[self.rng.pick(&extents)])
            }
            5..9 => {
                let extents = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17];
                Shape::new(&[self.rng.pick(&extents), self.rng.pick(&extents)])
            }
            _ => {
                let extents = [1, 2, 3, 4, 5];
                Shape::new(&[(); 3].map(|()| self.rng.pick(&extents)))
            }
        };
        let block = self.block.numel();
        let sizes = [1, block.saturating_sub(1).max(1), block, block + 1, 3 * block + 7];
        self.n = self.rng.pick(&sizes);
        let programs = self.n.div_ceil(block) as u32;
        // A second row of programs has nothing to do but write its results.
        let rows = if self.rng.chance(15) { 2 } else { 1 };
        let layers = if self.options.wide && self.rng.chance(8) { 2 } else { 1 };
        self.grid = [programs, rows, layers];
    }

    fn programs(&self) -> usize {
        self.grid.iter().map(|&n| n as usize).product()
    }

    fn add_param(&mut self, name: &str, ty: Type, attrs: ParamAttrs, arg: InterpArg) -> Value {
        let name = format!("{name}{}", self.args.len());
        self.args.push(arg);
        self.func.add_param(name, ty, attrs)
    }

    fn add_inputs(&mut self) {
        for _ in 0..self.rng.range(1, 4) {
            let dtype = self.dtype();
            let len = self.n;
            let data = self.rng.data(dtype, len);
            let attrs = ParamAttrs { readonly: true, ..self.aligned() };
            let ty = TileType::ptr(dtype, Shape::SCALAR).into();
            let ptr = self.add_param("x", ty, attrs, InterpArg::Buffer(dtype, data));
            self.inputs.push(Input { ptr, dtype, len });
        }
    }

    fn aligned(&mut self) -> ParamAttrs {
        let multiple_of = if self.rng.chance(50) { 16 } else { 0 };
        ParamAttrs { multiple_of, ..ParamAttrs::default() }
    }

    /// Floats and indices are what kernels are made of; the others come often enough.
    fn dtype(&mut self) -> DType {
        match self.rng.below(10) {
            0..4 => DType::F32,
            4 => DType::I64,
            5 => DType::I32,
            _ => self.rng.pick(&DType::ALL),
        }
    }

    /// The program's number, the elements it is for, and its mask.
    fn index_ops(&mut self) {
        let (block, n, [_, rows, layers]) = (self.block, self.n, self.grid);
        let within = self.options.wide.then(|| self.positions(block));
        let mut build = self.build();
        let mut program = build.program_id(0);
        let mut programs = None;
        if rows > 1 {
            let row = build.program_id(1);
            let columns = build.num_programs(0);
            let before = build.binary(super::BinaryOp::Mul, row, columns);
            program = build.binary(super::BinaryOp::Add, before, program);
            programs = Some(columns);
        }
        if layers > 1 {
            let layer = build.program_id(2);
            let columns = programs.unwrap_or_else(|| build.num_programs(0));
            let rows = build.num_programs(1);
            let each = build.binary(super::BinaryOp::Mul, columns, rows);
            let before = build.binary(super::BinaryOp::Mul, layer, each);
            program = build.binary(super::BinaryOp::Add, before, program);
        }
        let size = build.int(DType::I64, block.numel() as i64);
        let start = build.binary(super::BinaryOp::Mul, program, size);
        let within = within.unwrap_or_else(|| {
            let line = build.iota(block.numel());
            build.reshape(line, block)
        });
        let first = build.broadcast(start, block);
        let index = build.binary(super::BinaryOp::Add, first, within);
        (self.program, self.start, self.within, self.index) = (program, start, within, index);
        let n_value = if self.rng.chance(70) {
            let multiple_of = if n % 16 == 0 { 16 } else { 0 };
            let attrs = ParamAttrs { multiple_of, ..ParamAttrs::default() };
            let arg = InterpArg::Scalar(Scalar::int(DType::I64, n as i64));
            self.add_param("n", Type::scalar(DType::I64), attrs, arg)
        } else {
            self.build().int(DType::I64, n as i64)
        };
        let mut build = self.build();
        let bound = build.broadcast(n_value, block);
        self.mask = build.compare(super::Predicate::Lt, index, bound);
        self.keep(self.index);
        self.keep(self.mask);
        self.keep(self.program);
    }

    fn most_elements(&self) -> usize {
        if self.options.wide { MAX_NUMEL / 4 } else { MAX_NUMEL }
    }

    fn depth(&self, value: Value) -> u8 {
        self.pool.iter().rev().find(|e| e.value == value).map_or(0, |e| e.depth)
    }

    /// Lets later ops use a value that stands at the bottom of expressions.
    fn keep(&mut self, value: Value) {
        self.keep_at(value, 0);
    }

    fn keep_at(&mut self, value: Value, depth: u8) {
        let ty = self.func.tile(value);
        self.pool.push(Entry { value, ty, depth });
    }

    /// Lets later ops use a value made of these.
    fn keep_above(&mut self, value: Value, operands: &[Value]) {
        let depth = operands.iter().map(|&v| self.depth(v)).max().unwrap_or(0);
        self.keep_at(value, depth + 1);
    }

    /// A value for an operand that satisfies a condition, newer ones more often.
    fn pick(&mut self, fits: impl Fn(TileType) -> bool) -> Option<Value> {
        let found: Vec<Value> = self
            .pool
            .iter()
            .filter(|e| e.depth < MAX_DEPTH && fits(e.ty))
            .map(|e| e.value)
            .collect();
        if found.is_empty() {
            return None;
        }
        let (a, b) = (self.rng.below(found.len()), self.rng.below(found.len()));
        Some(found[a.max(b)])
    }

    /// An operand of this dtype and shape: a value that has them, or one that is made to.
    fn operand(&mut self, dtype: DType, shape: Shape) -> Value {
        let exact = TileType::data(dtype, shape);
        if self.rng.chance(70)
            && let Some(value) = self.pick(|ty| ty == exact)
        {
            return value;
        }
        let reshapes = self.may_reshape(shape.numel());
        let fits = |from: Shape| {
            (reshapes && from.numel() == shape.numel()) || from.broadcast(shape) == Some(shape)
        };
        match self.pick(|ty| fits(ty.shape)) {
            Some(value) if self.rng.chance(85) => self.convert(value, dtype, shape),
            _ => {
                let scalar = self.rng.scalar(dtype);
                self.build().full(scalar, shape)
            }
        }
    }

    /// A value cast, and reshaped or broadcast to a shape that it fits.
    fn convert(&mut self, value: Value, dtype: DType, shape: Shape) -> Value {
        let mut build = self.build();
        let value = build.cast(value, dtype);
        let from = build.func.tile(value).shape;
        if from.broadcast(shape) == Some(shape) {
            build.broadcast(value, shape)
        } else {
            build.reshape(value, shape)
        }
    }

    /// A shape to work in: that of a value at hand, so that shapes meet again.
    fn shape(&mut self) -> Shape {
        match self.pick(|ty| !ty.is_ptr()) {
            Some(value) if self.rng.chance(60) => self.func.tile(value).shape,
            _ => self.block,
        }
    }

    fn data_type(&self, value: Value) -> (DType, Shape) {
        let ty = self.func.tile(value);
        debug_assert!(matches!(ty.elem, Elem::Data(_)), "the pool holds no pointers");
        (ty.dtype(), ty.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::run_func;
    use crate::ir::{parse, print, verify};
    use std::collections::BTreeSet;

    #[test]
    fn every_program_verifies_reads_back_and_runs() {
        let mut mnemonics = BTreeSet::new();
        for seed in 0..300 {
            let program = random_program(seed);
            let text = print(&program.func);
            if let Err(error) = verify(&program.func) {
                panic!("seed {seed}: {error}\n{text}");
            }
            let back = parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
            assert_eq!(print(&back), text, "seed {seed}");
            let run = |func: &Func| run_func(func, program.grid, program.args.clone());
            let after = run(&program.func).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
            assert_eq!(run(&back).as_ref(), Ok(&after), "seed {seed}");
            for op in program.func.walk() {
                mnemonics.insert(crate::ir::print::mnemonic(&program.func.op(op).kind));
            }
        }
        let wanted = "add and atomic_cas atomic_rmw bitcast broadcast cast cmp const cos div dot \
                      exp expand_dims fma for gather if iota join load max mul neg program_id reduce rem \
                      reshape return scan select shl shr split sqrt store sub transpose view_load \
                      view_store while xor yield";
        for word in wanted.split_whitespace() {
            assert!(mnemonics.contains(word), "no `{word}` in 300 programs");
        }
    }

    #[test]
    fn a_seed_gives_one_program() {
        let (a, b) = (random_program(7), random_program(7));
        assert_eq!(print(&a.func), print(&b.func));
        assert_eq!(a.args, b.args);
        assert_ne!(print(&a.func), print(&random_program(8).func));
    }
}
