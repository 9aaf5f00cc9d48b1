//! A kernel as programs hold it: its definition, a specialisation of it, a launch.
//!
//! `#[kernel]` writes one `static KERNEL: KernelDef` for each function. A launch looks up the code
//! compiled for its dtypes, constants and what its arguments have in common (alignment, a stride of
//! one), compiles on a miss, checks every argument and runs it.

use std::sync::OnceLock;

use crate::autotune::{Chosen, Tuning};
use crate::compile::{self, Compiled};
use crate::diag::Error;
use crate::front::ast::FnAst;
use crate::front::unchecked::is_unchecked;
use crate::interp::Interpreter;
use crate::ir::{DType, Func, Scalar};
use crate::launch::{self, Launch, LaunchCache};
use crate::runtime::{Arg, CheckedArg, PtrArg, Stream};
use crate::target::Target;

/// A kernel: what `#[kernel]` left in the program, and the code compiled from it so far.
#[derive(Debug)]
pub struct KernelDef {
    /// The function as written.
    pub ast: &'static FnAst,
    pub(crate) cache: LaunchCache,
    pub(crate) tuning: Option<&'static Tuning>,
    pub(crate) chosen: Chosen,
    /// Whether it does what nothing checks, once somebody asked.
    unchecked: OnceLock<bool>,
}

/// What is known about the arguments before they are there. The default is nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Hints {
    /// One for each parameter, in order; missing ones say nothing.
    pub params: Vec<ParamHint>,
    /// Warps that compute in one program on a GPU; the compiler chooses where absent.
    pub num_warps: Option<u32>,
    /// Iterations of loads in flight in loops that say nothing of their own.
    pub num_stages: Option<u32>,
    /// Whether a program takes more than one point of the grid; the compiler decides where absent.
    pub persistent: Option<bool>,
    /// Blocks of threads that are one program on a GPU; one where absent.
    pub cluster: Option<u32>,
    /// Parameters, by bit, as of [`LaunchOptions::constant`].
    pub constant: u32,
}

/// What is known about one argument.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ParamHint {
    /// An integer is a multiple of this; a pointer, or a view's base, is aligned to this many bytes.
    /// 0 and 1 say nothing.
    pub multiple_of: u64,
    /// An integer that is 1.
    pub equals_one: bool,
    /// A view whose stride along the last axis is 1.
    pub unit_stride: bool,
    /// A view whose stride along this axis, another than the last, is 1.
    pub unit_axis: Option<u8>,
    /// A view whose stride along the last axis is 0: each row repeats one element.
    pub zero_stride: bool,
    /// A view whose stride along the axis before the last is 0: all rows are one.
    pub zero_row_stride: bool,
    /// A view whose strides along the axes but that of stride 1 (the last one where none is known),
    /// and whose extent along that one, are multiples of this many elements. 0 and 1 say nothing.
    pub stride_multiple_of: u64,
    /// A view whose extents are all in `0 .. 2^30` and whose strides are in `0 .. 2^31`.
    pub narrow: bool,
}

/// One argument as a back end or the interpreter takes it; one for each parameter.
#[derive(Clone, PartialEq, Debug)]
pub enum ArgValue {
    /// An address.
    Ptr(u64),
    /// A number of the parameter's dtype.
    Scalar(Scalar),
    /// A tensor: the address of its first element, extents, and strides in elements.
    View {
        /// The address of the first element.
        ptr: u64,
        /// Extents, outermost first.
        dims: Vec<i64>,
        /// Strides in elements.
        strides: Vec<i64>,
    },
}

/// How many programs run along each axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Programs along axis 0.
    pub x: i64,
    /// Programs along axis 1.
    pub y: i64,
    /// Programs along axis 2.
    pub z: i64,
}

/// A number of programs: any integer type a person has at hand.
pub trait GridExtent {
    /// As i64; what does not fit saturates and is refused by the launch.
    fn extent(self) -> i64;
}

macro_rules! grid_extent {
    ($($ty:ty),*) => {$(
        impl GridExtent for $ty {
            fn extent(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}
grid_extent!(i32, i64, u32, u64, usize);

impl Grid {
    /// `x` programs along axis 0.
    pub fn x(x: impl GridExtent) -> Grid {
        Grid { x: x.extent(), y: 1, z: 1 }
    }

    /// `x * y` programs.
    pub fn xy(x: impl GridExtent, y: impl GridExtent) -> Grid {
        Grid { x: x.extent(), y: y.extent(), z: 1 }
    }

    /// `x * y * z` programs.
    pub fn xyz(x: impl GridExtent, y: impl GridExtent, z: impl GridExtent) -> Grid {
        Grid { x: x.extent(), y: y.extent(), z: z.extent() }
    }
}

impl Hints {
    /// The choices among the hints.
    pub fn options(&self) -> LaunchOptions {
        let Hints { num_warps, num_stages, persistent, cluster, constant, .. } = *self;
        LaunchOptions { num_warps, num_stages, persistent, cluster, constant }
    }

    /// These hints with other choices.
    pub fn with_options(mut self, options: LaunchOptions) -> Hints {
        let LaunchOptions { num_warps, num_stages, persistent, cluster, constant } = options;
        (self.num_warps, self.num_stages) = (num_warps, num_stages);
        (self.persistent, self.cluster) = (persistent, cluster);
        self.constant = constant;
        self
    }
}

/// A kernel for given dtypes, constants and hints: tile IR, ready for any back end.
#[derive(Clone, Debug)]
pub struct Specialized {
    /// The tile IR.
    pub func: Func,
    /// The dtypes, in the order of the kernel's type parameters.
    pub dtypes: Vec<DType>,
    /// The constants, in the order of the kernel's const parameters.
    pub consts: Vec<i64>,
    /// What is known about the arguments.
    pub hints: Hints,
    /// The tile IR with transcendental functions as the CPU computes them.
    exact: OnceLock<Func>,
}

impl Specialized {
    /// Tile IR of a kernel for these dtypes and constants.
    pub fn new(func: Func, dtypes: &[DType], consts: &[i64], hints: &Hints) -> Specialized {
        let (dtypes, consts) = (dtypes.to_vec(), consts.to_vec());
        Specialized { func, dtypes, consts, hints: hints.clone(), exact: OnceLock::new() }
    }

    /// Runs the kernel element by element and reports accesses outside of buffers, races between
    /// programs and more; the same bits as on the CPU.
    pub fn interpreter(&self) -> Interpreter<'_> {
        Interpreter::new(self.exact.get_or_init(|| compile::exact(&self.func)))
    }

    /// The tile IR as text.
    pub fn tir(&self) -> String {
        compile::tir_text(&self.func)
    }

    /// The tile IR after each pass of a compilation for a target, as text.
    ///
    /// # Errors
    /// As [`Specialized::compile`].
    pub fn passes(&self, target: &Target) -> Result<String, Error> {
        compile::passes_text(self, target)
    }

    /// Machine code for a target. No GPU is needed to compile for one.
    ///
    /// # Errors
    /// If the kernel can't be compiled for the target, such as too much shared memory.
    pub fn compile(&self, target: &Target) -> Result<Compiled, Error> {
        compile::compile(self, target)
    }
}

impl KernelDef {
    /// A kernel with nothing compiled yet; for the `static` that the macro writes.
    pub const fn new(ast: &'static FnAst) -> KernelDef {
        KernelDef {
            ast,
            cache: LaunchCache::new(),
            tuning: None,
            chosen: Chosen::new(),
            unchecked: OnceLock::new(),
        }
    }

    /// The kernel with what `#[autotune]` declares about it.
    pub const fn with_tuning(mut self, tuning: &'static Tuning) -> KernelDef {
        self.tuning = Some(tuning);
        self
    }

    /// What `#[autotune]` declares about the kernel, if anything.
    pub fn tuning(&self) -> Option<&'static Tuning> {
        self.tuning
    }

    /// The kernel's name as the user wrote it.
    pub fn name(&self) -> &'static str {
        self.ast.name
    }

    /// How many specialisations have been compiled by launches of this process.
    pub fn compiled_count(&self) -> usize {
        self.cache.len()
    }

    /// Tile IR for these dtypes and constants, each in the order of the kernel's parameters.
    ///
    /// # Errors
    /// If the kernel is wrong for them: a diagnostic at the user's line.
    pub fn specialize(
        &self,
        dtypes: &[DType],
        consts: &[i64],
        hints: &Hints,
    ) -> Result<Specialized, Error> {
        compile::specialize(self.ast, dtypes, consts, hints)
    }

    /// Whether the kernel does what nothing checks: it takes pointers or that of a view, or promises the
    /// compiler something with `multiple_of`, itself or in a device function that it calls.
    pub fn is_unchecked(&self) -> bool {
        *self.unchecked.get_or_init(|| is_unchecked(self.ast))
    }

    /// Runs a kernel that takes views and numbers only: one program for each point of the grid.
    ///
    /// Returns once the launch is queued on the stream; on the CPU, once it ran.
    ///
    /// # Errors
    /// If the arguments do not fit the kernel, two of them share elements of which it writes one, it does
    /// what nothing checks ([`KernelDef::is_unchecked`]), it does not compile, or the device refuses.
    pub fn launch_checked<const N: usize>(
        &self,
        stream: &Stream,
        grid: Grid,
        dtypes: &[DType],
        consts: &[i64],
        args: [CheckedArg<'_>; N],
    ) -> Result<(), Error> {
        let raw = args.each_ref().map(CheckedArg::arg);
        self.check(stream, &args, &raw)?;
        // SAFETY: the arguments lie inside buffers that live as long as the work, no two that are
        // written share an element, and the kernel leaves them nowhere.
        unsafe { self.launch(stream, grid, dtypes, consts, &raw) }
    }

    /// [`KernelDef::launch_checked`] with the configuration that is best for the arguments.
    ///
    /// # Errors
    /// As [`KernelDef::launch_checked`], and if the kernel has no `#[autotune]`.
    pub fn launch_tuned_checked<const N: usize>(
        &self,
        stream: &Stream,
        dtypes: &[DType],
        args: [CheckedArg<'_>; N],
    ) -> Result<(), Error> {
        let raw = args.each_ref().map(CheckedArg::arg);
        self.check(stream, &args, &raw)?;
        // SAFETY: as in `launch_checked`.
        unsafe { self.launch_tuned(stream, dtypes, &raw) }
    }

    /// What a launch without promises asks of its arguments, which `raw` are as plain data.
    fn check(&self, stream: &Stream, args: &[CheckedArg<'_>], raw: &[Arg]) -> Result<(), Error> {
        if self.is_unchecked() {
            return Err(Error::launch(format!(
                "{}: the kernel takes pointers or makes promises, so that its launch is `unsafe`",
                self.ast.name
            )));
        }
        args.iter().try_for_each(|arg| arg.lend(stream))?;
        launch::check_shared(self.ast, raw)
    }

    /// Runs the kernel: one program for each point of the grid.
    ///
    /// Returns once the launch is queued on the stream; on the CPU, once it ran.
    ///
    /// # Safety
    /// The memory that each argument says it has must be there until the work is done; pointers must be
    /// valid for every access the kernel makes, and its promises must hold. Memory behind a `PtrMut` or
    /// `ViewMut` must not be behind another argument, but where the kernel reads an element before it writes
    /// it and no other program does either; nor may it be used elsewhere meanwhile.
    /// # Errors
    /// If the arguments do not fit the kernel, the kernel does not compile, or the device refuses.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: Grid,
        dtypes: &[DType],
        consts: &[i64],
        args: &[Arg],
    ) -> Result<(), Error> {
        let options = LaunchOptions::default();
        // SAFETY: the caller's promise is the same.
        unsafe { self.launch_with(stream, grid, dtypes, consts, options, args) }
    }

    /// Runs the kernel with choices of the caller's about warps and stages.
    ///
    /// # Safety
    /// As [`KernelDef::launch`].
    /// # Errors
    /// As [`KernelDef::launch`].
    pub unsafe fn launch_with(
        &self,
        stream: &Stream,
        grid: Grid,
        dtypes: &[DType],
        consts: &[i64],
        options: LaunchOptions,
        args: &[Arg],
    ) -> Result<(), Error> {
        let request = Launch { stream, grid, dtypes, consts, options, args };
        // SAFETY: the caller's promise is the same.
        unsafe { launch::launch(self, &request) }
    }

    /// [`KernelDef::launch_with`] of dense operands of one length, for which the host needs less time.
    ///
    /// # Safety
    /// As [`KernelDef::launch`].
    /// # Errors
    /// As [`KernelDef::launch`].
    #[inline]
    pub unsafe fn launch_dense(
        &self,
        stream: &Stream,
        dense: &DenseLaunch<'_>,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { launch::launch_dense(self, stream, dense) }
    }
}

/// What [`KernelDef::launch_dense`] launches: a kernel of views of one axis, all of one length and dense.
#[derive(Clone, Copy, Debug)]
pub struct DenseLaunch<'a> {
    /// Programs along the first axis of the grid, which is the only one.
    pub programs: usize,
    /// The kernel's type parameters.
    pub dtypes: &'a [DType],
    /// The kernel's constants.
    pub consts: &'a [i64],
    /// Choices of the caller's.
    pub options: LaunchOptions,
    /// Elements of each operand.
    pub len: usize,
    /// The first element of each operand.
    pub operands: &'a [PtrArg],
}

/// Choices about a launch that change its speed, not its results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LaunchOptions {
    /// Warps that compute in one program on a GPU, or in each block of its cluster; the compiler chooses
    /// where absent, and adds those that only load.
    pub num_warps: Option<u32>,
    /// Iterations of loads in flight in loops that say nothing of their own.
    pub num_stages: Option<u32>,
    /// Whether as many programs run as the device holds at once and each takes several points of the
    /// grid, so that the loads of the next overlap the stores of the last. The compiler decides where
    /// absent.
    pub persistent: Option<bool>,
    /// Blocks of threads that are one program on a GPU of sm_90 or newer: 1, 2, 4, 8 or 16; one where
    /// absent. Each block holds a part of every tile, `num_warps` are those of one block, and sums over
    /// all parts go through the blocks' shared memory. It is for rows that one multiprocessor's
    /// registers can't hold, and for products on Hopper, of which blocks share an operand. The CPU has no
    /// use for it.
    pub cluster: Option<u32>,
    /// Arguments for reading, by bit, whose memory the kernel right ahead on the stream does not write, and the launch
    /// itself only through another argument, and no byte that it reads. Weights of a model that only answers are
    /// such. From sm_90 on a kernel may ask for them before the kernel ahead has ended. A launch that names one that
    /// is written may read what was there before.
    pub constant: u32,
}

impl LaunchOptions {
    /// Makes a choice by its name, such as `num_warps`; `persistent` is 0 or 1. False, and nothing changes,
    /// if there is none of the name or the number does not fit `u32`.
    pub fn set(&mut self, name: &str, value: i64) -> bool {
        let Ok(number) = u32::try_from(value) else { return false };
        match name {
            "num_warps" => self.num_warps = Some(number),
            "num_stages" => self.num_stages = Some(number),
            "persistent" => self.persistent = Some(number != 0),
            "cluster" => self.cluster = Some(number),
            _ => return false,
        }
        true
    }
}
