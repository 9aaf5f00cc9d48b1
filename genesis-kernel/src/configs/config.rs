//! What there is to choose from, and what is chosen: plain data that `#[autotune]` writes.
//!
//! ```text
//! space = { BM: [64, 128], BN: 256, num_warps: [4, 8] }
//!   -> BM=64 BN=256 num_warps=4, BM=64 BN=256 num_warps=8, BM=128 BN=256 num_warps=4, ..
//! ```

use std::fmt::Write;

use crate::front::LaunchOptions;
use crate::front::ast::FnAst;
use crate::ir::DType;
use crate::runtime::{Arg, Grid, ViewArg};
use crate::tuning::Machine;

/// One way to run a kernel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Config {
    /// Values of the const parameters that the kernel declares, in its order.
    pub consts: Vec<i64>,
    /// Warps, stages, persistence, blocks of a cluster.
    pub options: LaunchOptions,
}

/// A const parameter, `num_warps`, `num_stages`, `persistent` or `cluster`, with the values to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Its name.
    pub name: &'static str,
    /// The values; 0 and 1 for `persistent`.
    pub values: &'static [i64],
}

/// The extents of a view or a pointer; the value of an integer.
pub type Extents = Vec<i64>;

/// Gives the extents of each parameter for given sizes.
pub type ExampleExtents = fn(&[i64]) -> Vec<Extents>;

/// What `#[autotune]` declares about a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Names of the sizes that the choice depends on.
    pub key: &'static [&'static str],
    /// The sizes of these arguments, in the key's order.
    pub sizes: fn(&[Arg]) -> Vec<i64>,
    /// Products of axes, one beside the other.
    pub spaces: &'static [&'static [Axis]],
    /// The grid for constants and arguments.
    pub grid: fn(&[i64], &[Arg]) -> Grid,
    /// Extents of each parameter for given sizes, to tune without a program at hand; an integer
    /// parameter has its value as the one extent.
    pub example: Option<ExampleExtents>,
    /// The choice where nothing was measured.
    pub heuristic: Option<fn(&Problem<'_>) -> Config>,
    /// Whether a configuration makes sense for a problem.
    pub prune: Option<fn(&Config, &Problem<'_>) -> bool>,
    /// Measurements that come with the kernel: lines of [`super::Record`]s.
    pub table: &'static str,
    /// How much a result may differ from another configuration's, relative to the larger of its own
    /// magnitude and the results' root mean square; by dtype where absent.
    pub tolerance: Option<f64>,
}

/// What a configuration is chosen for.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Where it runs.
    pub machine: &'a Machine,
    /// The dtypes, in the order of the kernel's type parameters.
    pub dtypes: &'a [DType],
    /// The sizes, in the key's order.
    pub sizes: &'a [i64],
    /// Which optional parameters are there, in the kernel's order.
    pub present: &'a [bool],
    /// The arguments.
    pub args: &'a [Arg],
}

impl Problem<'_> {
    /// How each view lies in memory, one letter for each: `r` for rows (the last axis has stride 1),
    /// `c` for columns (the one before it has), and `x` for any other, or where an address, a stride or
    /// the extent along that axis is not a multiple of 16 bytes. Then, of each optional parameter, `+` where it is
    /// there and `-` where it is not.
    pub fn forms(&self) -> String {
        let present = self.present.iter().map(|&is_there| if is_there { '+' } else { '-' });
        self.views().map(form).chain(present).collect()
    }

    /// The forms as one word, for a quick comparison.
    pub(crate) fn form_bits(&self) -> u64 {
        let forms = self.views().fold(1, |bits: u64, view| bits.rotate_left(7) ^ form(view) as u64);
        self.present.iter().fold(forms, |bits, &there| bits.rotate_left(1) ^ u64::from(there))
    }

    fn views(&self) -> impl Iterator<Item = &ViewArg> {
        self.args.iter().filter_map(|arg| match arg {
            Arg::View(view) | Arg::Views(view) => Some(view),
            Arg::Ptr(_) | Arg::Scalar(_) => None,
        })
    }
}

fn form(view: &ViewArg) -> char {
    let (dims, strides, n) = (view.dims(), view.strides(), view.rank as usize);
    let bytes = view.ptr.dtype.bytes() as i64;
    let aligned = |unit: usize| {
        let step = |axis: usize| if axis == unit { dims[axis] } else { strides[axis] };
        let mut axes = (0..n).filter(|&axis| dims[axis] > 1);
        view.ptr.address.is_multiple_of(16)
            && axes.all(|axis| step(axis).wrapping_mul(bytes) % 16 == 0)
    };
    let is_unit = |axis: usize| strides[axis] == 1 || dims[axis] <= 1;
    match n {
        0 => 'x',
        _ if is_unit(n - 1) && aligned(n - 1) => 'r',
        _ if n > 1 && is_unit(n - 2) && aligned(n - 2) => 'c',
        _ => 'x',
    }
}

impl Config {
    /// The configuration as people read it: `BM=128 BN=256 num_warps=8`.
    pub fn text(&self, ast: &FnAst) -> String {
        let mut text = String::new();
        for (name, value) in ast.declared_consts().iter().zip(&self.consts) {
            let _ = write!(text, "{name}={value} ");
        }
        for (name, value) in option_values(&self.options) {
            let _ = write!(text, "{name}={value} ");
        }
        text.trim_end().to_owned()
    }
}

impl Config {
    /// The constants that a kernel is specialised with where these optional parameters are there.
    pub(crate) fn consts_with(&self, present: &[bool]) -> Vec<i64> {
        self.consts.iter().copied().chain(present.iter().copied().map(i64::from)).collect()
    }
}

/// The choices that were made, by name.
pub(super) fn option_values(options: &LaunchOptions) -> Vec<(&'static str, i64)> {
    let values = [
        ("num_warps", options.num_warps.map(i64::from)),
        ("num_stages", options.num_stages.map(i64::from)),
        ("persistent", options.persistent.map(i64::from)),
        ("cluster", options.cluster.map(i64::from)),
    ];
    values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

impl Tuning {
    /// Every configuration of the space, in its order, each once.
    pub fn configs(&self, ast: &FnAst) -> Vec<Config> {
        let mut all: Vec<Config> = Vec::new();
        for space in self.spaces {
            let mut some =
                vec![Config { consts: vec![0; ast.declared_consts().len()], ..Config::default() }];
            for axis in *space {
                some = some.iter().flat_map(|config| with_axis(config, axis, ast)).collect();
            }
            all.extend(some);
        }
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|config| seen.insert(config.clone()));
        all
    }

    /// Whether a configuration may be tried on a problem.
    pub fn allows(&self, config: &Config, problem: &Problem<'_>) -> bool {
        self.prune.is_none_or(|prune| prune(config, problem))
    }
}

fn with_axis(config: &Config, axis: &Axis, ast: &FnAst) -> Vec<Config> {
    let set = |&value: &i64| {
        let mut config = config.clone();
        if !config.options.set(axis.name, value)
            && let Some(i) = ast.declared_consts().iter().position(|name| *name == axis.name)
        {
            config.consts[i] = value;
        }
        config
    };
    axis.values.iter().map(set).collect()
}

/// The extents of an argument, where `#[autotune]` asks for `x.dim(0)`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Dims<'a>(&'a [i64]);

impl<'a> Dims<'a> {
    /// The extents of an argument; none of a pointer, nor of a view that is not there.
    pub fn of(args: &'a [Arg], index: usize) -> Dims<'a> {
        match args.get(index) {
            Some(Arg::View(view)) if !view.is_nothing() => Dims(view.dims()),
            _ => Dims(&[]),
        }
    }

    /// The extent along an axis; 1 past the rank.
    pub fn dim(&self, axis: usize) -> usize {
        self.0.get(axis).map_or(1, |&dim| usize::try_from(dim).unwrap_or(0))
    }
}

/// An integer argument.
#[doc(hidden)]
pub fn count(args: &[Arg], index: usize) -> usize {
    match args.get(index) {
        Some(Arg::Scalar(scalar)) => usize::try_from(scalar.to_i64()).unwrap_or(0),
        _ => 0,
    }
}

/// A constant of a configuration.
#[doc(hidden)]
pub fn constant(consts: &[i64], index: usize) -> usize {
    consts.get(index).map_or(1, |&value| usize::try_from(value).unwrap_or(1))
}

/// Calls a closure; its parameter's type is known to rustc from the first argument.
#[doc(hidden)]
pub fn with<C, R>(consts: C, f: impl FnOnce(C) -> R) -> R {
    f(consts)
}

/// A size rounded up to a power of two, for keys that need not be exact.
pub fn bucket(size: usize) -> usize {
    size.checked_next_power_of_two().unwrap_or(size)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::configs::samples::test_ptr;
    use crate::target::Target;

    const SPACE: &[Axis] = &[
        Axis { name: "BM", values: &[64, 128] },
        Axis { name: "BN", values: &[256] },
        Axis { name: "num_warps", values: &[4, 8] },
    ];
    const MORE: &[Axis] = &[
        Axis { name: "BM", values: &[128, 32] },
        Axis { name: "BN", values: &[256] },
        Axis { name: "num_warps", values: &[8] },
    ];

    fn ast() -> FnAst {
        FnAst { consts: &["BM", "BN"], ..crate::configs::samples::TEST_AST }
    }

    fn tuning() -> Tuning {
        Tuning {
            key: &[],
            sizes: |_| Vec::new(),
            spaces: &[SPACE, MORE],
            grid: |_, _| Grid::x(1),
            example: None,
            heuristic: None,
            prune: Some(|config, _| config.consts[0] < 128),
            table: "",
            tolerance: None,
        }
    }

    #[test]
    fn a_space_is_the_product_of_its_axes_and_has_no_doubles() {
        let ast = ast();
        let texts: Vec<String> = tuning().configs(&ast).iter().map(|c| c.text(&ast)).collect();
        let expected = [
            "BM=64 BN=256 num_warps=4",
            "BM=64 BN=256 num_warps=8",
            "BM=128 BN=256 num_warps=4",
            "BM=128 BN=256 num_warps=8",
            "BM=32 BN=256 num_warps=8",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn pruning_sees_the_problem() {
        let machine = Machine::of_target(&Target::sm_90a());
        let problem =
            Problem { machine: &machine, dtypes: &[], sizes: &[], present: &[], args: &[] };
        let configs = tuning().configs(&ast());
        let kept = configs.iter().filter(|config| tuning().allows(config, &problem)).count();
        assert_eq!(kept, 3);
    }

    #[test]
    fn what_is_there_is_part_of_the_form_and_no_choice() {
        let machine = Machine::of_target(&Target::sm_90a());
        let of = |present: &[bool]| {
            let problem =
                Problem { machine: &machine, dtypes: &[], sizes: &[], present, args: &[] };
            (problem.forms(), problem.form_bits())
        };
        let [none, first, last] = [[false, false], [true, false], [false, true]].map(|p| of(&p));
        assert_eq!((none.0.as_str(), first.0.as_str(), last.0.as_str()), ("--", "+-", "-+"));
        assert!(none.1 != first.1 && none.1 != last.1 && first.1 != last.1);
        let ast = FnAst { consts: &["BM", "BN", "bias.is_some"], ..ast() };
        let config = &tuning().configs(&ast)[0];
        assert_eq!(
            (&config.consts[..], &config.consts_with(&[true])[..]),
            (&[64, 256][..], &[64, 256, 1][..])
        );
        assert_eq!(config.text(&ast), "BM=64 BN=256 num_warps=4");
    }

    #[test]
    fn a_form_says_how_a_view_lies() {
        let of = |dims: &[i64], strides: &[i64]| {
            form(&ViewArg::new(test_ptr(DType::BF16), dims, strides).unwrap())
        };
        assert_eq!(of(&[64, 32], &[32, 1]), 'r');
        assert_eq!(of(&[64, 32], &[1, 64]), 'c');
        assert_eq!(of(&[64, 33], &[33, 1]), 'x');
        assert_eq!(of(&[64, 32], &[64, 2]), 'x');
        assert_eq!(of(&[1, 32], &[33, 1]), 'r');
        assert_eq!(of(&[64, 1], &[1, 64]), 'c');
        assert_eq!(of(&[64, 33], &[64, 1]), 'x');
        assert_eq!(of(&[], &[]), 'x');
    }

    #[test]
    fn sizes_of_arguments_that_are_not_there_harm_nothing() {
        assert_eq!((Dims::of(&[], 3).dim(0), count(&[], 1), constant(&[], 2)), (1, 0, 1));
        assert_eq!((bucket(0), bucket(5), bucket(64)), (1, 8, 64));
    }
}
