//! What a kernel takes, and the refusal of anything else.

use super::request::Launch;
use crate::analysis::range::MAX_EXTENT;
use crate::diag::Error;
use crate::front::ast::{DTypeAst, FnAst, PatternAst, TypeAst};
use crate::ir::DType;
use crate::runtime::reach::reach;
use crate::runtime::{Arg, Device, Grid, PtrArg, ViewArg};

/// One parameter of a kernel, its dtype known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ParamKind {
    /// The user's name for it.
    name: &'static str,
    shape: ParamShape,
    dtype: DType,
    /// Whether the dtype is one of the kernel's type parameters.
    is_generic: bool,
    /// Whether the kernel may write through it.
    mutable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ParamShape {
    Scalar,
    Ptr,
    View { rank: u8 },
    Views { rank: u8 },
}

impl ParamKind {
    /// The words it is flattened to.
    pub(crate) fn slots(&self) -> usize {
        match self.shape {
            ParamShape::Scalar | ParamShape::Ptr => 1,
            ParamShape::View { rank } | ParamShape::Views { rank } => 1 + 2 * rank as usize,
        }
    }
}

impl ParamKind {
    /// Whether it takes `n` elements that follow each other from an address of 16 bytes on.
    #[inline]
    pub(crate) fn takes_dense(&self, ptr: &PtrArg, n: u64, device: Device) -> bool {
        self.shape == ParamShape::View { rank: 1 }
            && self.dtype == ptr.dtype
            && ptr.device == device
            && (ptr.mutable || !self.mutable)
            && ptr.address.is_multiple_of(16)
            && n * ptr.dtype.bytes() as u64 <= ptr.bytes
    }
}

/// The parameters of a kernel for these dtypes.
pub(crate) fn param_kinds(ast: &'static FnAst, dtypes: &[DType]) -> Result<Vec<ParamKind>, Error> {
    if dtypes.len() != ast.dtypes.len() {
        let names: Vec<&str> = ast.dtypes.iter().map(|param| param.name).collect();
        return Err(Error::launch(format!(
            "{}: {} dtypes were given, the kernel takes {} ({})",
            ast.name,
            dtypes.len(),
            names.len(),
            names.join(", ")
        )));
    }
    ast.params
        .iter()
        .map(|param| {
            let (shape, dtype, mutable) = match param.ty {
                TypeAst::Scalar(dtype) => (ParamShape::Scalar, dtype, false),
                TypeAst::Ptr { dtype, mutable } => (ParamShape::Ptr, dtype, mutable),
                TypeAst::View { dtype, rank, mutable } => {
                    (ParamShape::View { rank }, dtype, mutable)
                }
                TypeAst::Views { dtype, rank, mutable } => {
                    (ParamShape::Views { rank }, dtype, mutable)
                }
                TypeAst::Tile(_) | TypeAst::Shaped(..) | TypeAst::Tuple(_) | TypeAst::Inferred => {
                    return Err(Error::bug("a kernel's parameter is no scalar, pointer or view"));
                }
            };
            let name = match param.pattern {
                PatternAst::Name(name) => name,
                PatternAst::Wild | PatternAst::Tuple(_) => "_",
            };
            let (dtype, is_generic) = resolve(ast, dtypes, dtype)?;
            Ok(ParamKind { name, shape, dtype, is_generic, mutable })
        })
        .collect()
}

fn resolve(ast: &'static FnAst, dtypes: &[DType], dtype: DTypeAst) -> Result<(DType, bool), Error> {
    let param = dtype.param();
    let known = dtype.resolve(|name| {
        let position = ast.dtypes.iter().position(|param| param.name == name);
        position.and_then(|i| dtypes.get(i)).copied()
    });
    known.map(|dtype| (dtype, param.is_some())).ok_or_else(|| {
        let name = param.unwrap_or_default();
        Error::bug(format!("{}: `{name}` is not a type parameter", ast.name))
    })
}

/// Refuses arguments that do not fit.
#[inline]
pub(crate) fn check(name: &str, params: &[ParamKind], launch: &Launch<'_>) -> Result<(), Error> {
    if params.len() != launch.args.len() {
        return Err(Error::launch(format!(
            "{name}: {} arguments were given, the kernel takes {}",
            launch.args.len(),
            params.len()
        )));
    }
    let device = launch.stream.device();
    for (param, arg) in params.iter().zip(launch.args) {
        let result = match (param.shape, arg) {
            (ParamShape::Scalar, Arg::Scalar(scalar)) => check_dtype(param, scalar.dtype),
            (ParamShape::Ptr, Arg::Ptr(ptr)) => check_ptr(param, ptr, device),
            (ParamShape::View { rank }, Arg::View(view)) => {
                if is_dense_and_fits(param, rank, view, device) {
                    continue;
                }
                check_view(param, rank, view, device)
            }
            // What its views reach was checked when the list was made, and is not what they have in common.
            (ParamShape::Views { rank }, Arg::Views(all)) => {
                check_ptr(param, &all.ptr, device).and_then(|()| check_rank(rank, all))
            }
            _ => Err(wrong_kind(param, arg)),
        };
        if let Err(why) = result {
            return Err(Error::launch(format!("{name}: argument `{}` {why}", param.name)));
        }
    }
    Ok(())
}

/// Why an argument is refused, as in "argument `x` is on cpu".
type Check = Result<(), String>;

#[inline]
fn check_dtype(param: &ParamKind, given: DType) -> Check {
    if given == param.dtype {
        return Ok(());
    }
    let takes = if param.is_generic { "was asked for" } else { "takes" };
    Err(format!("has dtype {given}, the kernel {takes} {}", param.dtype))
}

fn check_ptr(param: &ParamKind, ptr: &PtrArg, device: Device) -> Check {
    check_dtype(param, ptr.dtype)?;
    if ptr.device != device && !ptr.is_nothing() {
        return Err(format!("is on {}, the launch is on {device}", ptr.device));
    }
    if param.mutable && !ptr.mutable {
        return Err("is read-only, the kernel writes to it".to_owned());
    }
    if !ptr.address.is_multiple_of(ptr.dtype.bytes() as u64) {
        return Err(format!(
            "starts at an address that is not a multiple of {}, the size of {}",
            ptr.dtype.bytes(),
            ptr.dtype
        ));
    }
    Ok(())
}

/// Whether it is a view of one axis of elements that follow each other, and nothing is wrong with it: what
/// most arguments are, told in a few instructions.
#[inline]
fn is_dense_and_fits(param: &ParamKind, rank: u8, view: &ViewArg, device: Device) -> bool {
    let (ptr, n, bytes) = (&view.ptr, view.dims[0], view.ptr.dtype.bytes() as u64);
    ptr.dtype == param.dtype
        && ptr.device == device
        && (ptr.mutable || !param.mutable)
        && ptr.address & (bytes - 1) == 0
        && (rank, view.rank, view.strides[0]) == (1, 1, 1)
        && (0..1 << 48).contains(&n)
        && n as u64 * bytes <= ptr.bytes
}

fn check_view(param: &ParamKind, rank: u8, view: &ViewArg, device: Device) -> Check {
    check_ptr(param, &view.ptr, device)?;
    check_rank(rank, view)?;
    // The compiler counts on it: what it knows of indices starts there.
    if let Some(&dim) = view.dims().iter().find(|dim| !(0..=MAX_EXTENT).contains(*dim)) {
        return Err(match dim {
            ..0 => format!("has extents {:?}, none may be negative", view.dims()),
            _ => format!("has extents {:?}, the most is {MAX_EXTENT}", view.dims()),
        });
    }
    // Steps backwards end before the start of what we know of the memory: only steps forwards can be
    // checked here. Arguments of safe launches were made inside their buffers.
    let Some((_, last)) = reach(view.dims(), view.strides()) else { return Ok(()) };
    let bytes = last.saturating_add(1).saturating_mul(view.ptr.dtype.bytes() as i128);
    if bytes > i128::from(view.ptr.bytes) {
        return Err(format!(
            "has extents {:?} and strides {:?}, which reach {bytes} bytes into memory of {}",
            view.dims(),
            view.strides(),
            view.ptr.bytes
        ));
    }
    Ok(())
}

fn check_rank(rank: u8, view: &ViewArg) -> Check {
    if view.rank != rank {
        return Err(format!("has {} axes, the kernel takes {rank}", view.rank));
    }
    Ok(())
}

#[cold]
fn wrong_kind(param: &ParamKind, arg: &Arg) -> String {
    let given = match arg {
        Arg::Scalar(scalar) => format!("is a scalar of {}", scalar.dtype),
        Arg::Ptr(ptr) => format!("is a pointer to {}", ptr.dtype),
        Arg::View(view) => format!("is a view of {} axes", view.rank),
        Arg::Views(all) => format!("is a list of views of {} axes", all.rank),
    };
    let takes = match param.shape {
        ParamShape::Scalar => format!("a scalar of {}", param.dtype),
        ParamShape::Ptr => format!("a pointer to {}", param.dtype),
        ParamShape::View { rank } => format!("a view of {rank} axes"),
        ParamShape::Views { rank } => format!("a list of views of {rank} axes"),
    };
    format!("{given}, the kernel takes {takes}")
}

/// The grid as the hardware takes it; none if there is nothing to run.
#[inline]
pub(crate) fn check_grid(name: &str, grid: Grid) -> Result<Option<[u32; 3]>, Error> {
    const LIMITS: [i64; 3] = [i32::MAX as i64, 65_535, 65_535];
    let extents = [grid.x, grid.y, grid.z];
    for ((axis, extent), limit) in ["x", "y", "z"].into_iter().zip(extents).zip(LIMITS) {
        if !(0..=limit).contains(&extent) {
            return Err(Error::launch(format!(
                "{name}: the grid has {extent} programs along {axis}, it may have 0 to {limit}"
            )));
        }
    }
    Ok((!extents.contains(&0)).then(|| extents.map(|extent| extent as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::LaunchOptions;
    use crate::front::ast::{BlockAst, DTypeBound, DTypeParam, ParamAst, Span};
    use crate::ir::Scalar;
    use crate::runtime::{Device, Stream};

    const SPAN: Span = Span { line: 1, column: 1, end_column: 2 };
    const T: DTypeAst = DTypeAst::Param("T");

    /// `fn scale<T: Float>(x: Ptr<T>, y: ViewMut<T, 2>, eps: f32)`
    static SCALE: FnAst = FnAst {
        name: "scale",
        module: "test",
        file: "test.rs",
        span: SPAN,
        doc: "",
        dtypes: &[DTypeParam { name: "T", bound: DTypeBound::Float }],
        consts: &[],
        params: &[
            ParamAst {
                span: SPAN,
                pattern: &PatternAst::Name("x"),
                ty: TypeAst::Ptr { dtype: T, mutable: false },
                optional: false,
            },
            ParamAst {
                span: SPAN,
                pattern: &PatternAst::Name("y"),
                ty: TypeAst::View { dtype: T, rank: 2, mutable: true },
                optional: false,
            },
            ParamAst {
                span: SPAN,
                pattern: &PatternAst::Name("eps"),
                ty: TypeAst::Scalar(DTypeAst::Fixed(DType::F32)),
                optional: false,
            },
        ],
        body: &BlockAst { stmts: &[], value: None },
        contract: false,
        ret: None,
    };

    fn ptr(mutable: bool) -> PtrArg {
        PtrArg { device: Device::Cpu, address: 64, bytes: 48, dtype: DType::F32, mutable }
    }

    fn good() -> [Arg; 3] {
        [
            Arg::Ptr(ptr(false)),
            Arg::View(ViewArg::new(ptr(true), &[3, 4], &[4, 1]).unwrap()),
            Arg::Scalar(Scalar::float(DType::F32, 1e-5)),
        ]
    }

    fn refusal(args: &[Arg]) -> String {
        let stream: Stream = Device::Cpu.stream();
        let launch = Launch {
            stream: &stream,
            grid: Grid::x(1),
            dtypes: &[DType::F32],
            consts: &[],
            options: LaunchOptions::default(),
            args,
        };
        let params = param_kinds(&SCALE, launch.dtypes).unwrap();
        check("scale", &params, &launch).map_or_else(|e| e.to_string(), |()| String::new())
    }

    fn with(position: usize, arg: Arg) -> String {
        let mut args = good();
        args[position] = arg;
        refusal(&args)
    }

    #[test]
    fn takes_what_fits() {
        assert_eq!(refusal(&good()), "");
        let empty = ViewArg::new(PtrArg { bytes: 0, ..ptr(true) }, &[0, 4], &[4, 1]).unwrap();
        assert_eq!(with(1, Arg::View(empty)), "");
    }

    #[test]
    fn refuses_wrong_dtypes() {
        let bf16 = PtrArg { dtype: DType::BF16, ..ptr(false) };
        assert_eq!(
            with(0, Arg::Ptr(bf16)),
            "scale: argument `x` has dtype bf16, the kernel was asked for f32"
        );
        assert_eq!(
            with(2, Arg::Scalar(Scalar::float(DType::F64, 0.0))),
            "scale: argument `eps` has dtype f64, the kernel takes f32"
        );
    }

    #[test]
    fn refuses_wrong_kinds_and_counts() {
        assert_eq!(
            with(0, good()[1]),
            "scale: argument `x` is a view of 2 axes, the kernel takes a pointer to f32"
        );
        assert_eq!(
            with(1, good()[2]),
            "scale: argument `y` is a scalar of f32, the kernel takes a view of 2 axes"
        );
        assert_eq!(refusal(&good()[..2]), "scale: 2 arguments were given, the kernel takes 3");
        assert_eq!(
            param_kinds(&SCALE, &[]).unwrap_err().to_string(),
            "scale: 0 dtypes were given, the kernel takes 1 (T)"
        );
    }

    #[test]
    fn refuses_memory_that_is_elsewhere_or_read_only_or_misaligned() {
        let elsewhere = PtrArg { device: Device::Cuda(0), ..ptr(false) };
        assert_eq!(
            with(0, Arg::Ptr(elsewhere)),
            "scale: argument `x` is on cuda:0, the launch is on cpu"
        );
        let read_only = ViewArg::new(ptr(false), &[3, 4], &[4, 1]).unwrap();
        assert_eq!(
            with(1, Arg::View(read_only)),
            "scale: argument `y` is read-only, the kernel writes to it"
        );
        assert_eq!(
            with(0, Arg::Ptr(PtrArg { address: 66, ..ptr(false) })),
            "scale: argument `x` starts at an address that is not a multiple of 4, the size of f32"
        );
    }

    #[test]
    fn refuses_views_that_do_not_fit() {
        let view = |dims: &[i64], strides: &[i64]| {
            with(1, Arg::View(ViewArg::new(ptr(true), dims, strides).unwrap()))
        };
        assert_eq!(view(&[12], &[1]), "scale: argument `y` has 1 axes, the kernel takes 2");
        assert_eq!(
            view(&[3, 5], &[5, 1]),
            "scale: argument `y` has extents [3, 5] and strides [5, 1], which reach 60 bytes into \
             memory of 48"
        );
        assert_eq!(
            view(&[-1, 5], &[5, 1]),
            "scale: argument `y` has extents [-1, 5], none may be negative"
        );
        let (most, all) = (1 << 48, [i64::MAX; 2]);
        assert!(view(&[most, most], &all).contains("which reach"));
        assert_eq!(
            view(&[0, most + 1], &[1, 1]),
            "scale: argument `y` has extents [0, 281474976710657], the most is 281474976710656"
        );
    }

    #[test]
    fn the_grid_has_limits() {
        let check = |grid| check_grid("scale", grid).map_err(|error| error.to_string());
        assert_eq!(check(Grid::xyz(2, 3, 4)), Ok(Some([2, 3, 4])));
        assert_eq!(check(Grid::xy(0, 3)), Ok(None));
        assert_eq!(check(Grid::x(i32::MAX)), Ok(Some([i32::MAX as u32, 1, 1])));
        assert_eq!(
            check(Grid::x(1i64 << 31)),
            Err("scale: the grid has 2147483648 programs along x, it may have 0 to 2147483647"
                .into())
        );
        assert_eq!(
            check(Grid::xy(1, 65_536)),
            Err("scale: the grid has 65536 programs along y, it may have 0 to 65535".into())
        );
        assert!(check(Grid::x(-1)).is_err() && check(Grid::x(u64::MAX)).is_err());
    }
}
