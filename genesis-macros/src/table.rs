//! The functions and methods of the language: how many arguments, which of them are axes.
//!
//! `genesis_kernel::lang` types them and `genesis_kernel::front` builds them; this table only says
//! what must be known to read a call.

/// What stands in `::<..>` of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Generics {
    /// Nothing.
    None,
    /// A dtype: `cast::<f32>`.
    DType,
    /// Extents: `reshape::<M, N>`.
    Extents,
    /// One extent: `arange::<N>`.
    OneExtent,
    /// A dtype, then extents: `zeros::<f32, M, N>`.
    DTypeExtents,
    /// What an atomic orders, and among whom: `atomic_add::<Release, System>`; either may be left out.
    Ordering,
}

/// A function or method of the language.
#[derive(Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    /// Its arguments, as a user is told; those from `min` on may be left out.
    pub(crate) args: &'static [&'static str],
    pub(crate) min: usize,
    pub(crate) generics: Generics,
}

impl Signature {
    /// Where the axis stands: arguments of this name are literals that become types.
    pub(crate) fn axis(&self) -> Option<usize> {
        self.position("axis")
    }

    /// Where the device function stands.
    pub(crate) fn combine(&self) -> Option<usize> {
        self.position("function")
    }

    /// Whether the argument is a flag that must be `true` or `false`.
    pub(crate) fn is_flag(&self, index: usize) -> bool {
        matches!(self.args.get(index), Some(&("reverse" | "keep" | "descending")))
    }

    /// Whether a literal there takes the dtype of the other arguments.
    pub(crate) fn takes_literal(&self, index: usize) -> bool {
        const NAMES: [&str; 9] =
            ["a", "b", "c", "value", "other", "expected", "low", "high", "seed"];
        self.args.get(index).is_some_and(|name| NAMES.contains(name))
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.args.iter().position(|arg| *arg == name)
    }

    /// `load(ptr, mask, other)`, as a user would write it.
    pub(crate) fn usage(&self) -> String {
        format!("{}({})", self.name, self.args.join(", "))
    }
}

const fn call(name: &'static str, args: &'static [&'static str]) -> Signature {
    Signature { name, args, min: args.len(), generics: Generics::None }
}

const fn optional(name: &'static str, args: &'static [&'static str], min: usize) -> Signature {
    Signature { name, args, min, generics: Generics::None }
}

const fn atomic(name: &'static str, args: &'static [&'static str], min: usize) -> Signature {
    Signature { name, args, min, generics: Generics::Ordering }
}

const fn generic(
    name: &'static str,
    generics: Generics,
    args: &'static [&'static str],
) -> Signature {
    Signature { name, args, min: args.len(), generics }
}

/// The functions, by topic.
pub(crate) const FUNCTIONS: &[Signature] = &[
    call("program_id", &["axis"]),
    call("num_programs", &["axis"]),
    generic("arange", Generics::OneExtent, &[]),
    generic("zeros", Generics::DTypeExtents, &[]),
    generic("ones", Generics::DTypeExtents, &[]),
    generic("full", Generics::DTypeExtents, &["value"]),
    call("zeros_like", &["x"]),
    call("full_like", &["x", "value"]),
    generic("cast", Generics::DType, &["x"]),
    generic("bitcast", Generics::DType, &["x"]),
    generic("broadcast_to", Generics::Extents, &["x"]),
    generic("cat", Generics::Extents, &["first", "second"]),
    generic("interleave", Generics::Extents, &["first", "second"]),
    generic("reshape", Generics::Extents, &["x"]),
    call("expand_dims", &["x", "axis"]),
    call("squeeze", &["x", "axis"]),
    call("trans", &["x"]),
    call("permute", &["x", "order"]),
    call("join", &["a", "b"]),
    call("split", &["x"]),
    call("where_", &["cond", "a", "b"]),
    optional("load", &["ptr", "mask", "other"], 1),
    optional("load_once", &["ptr", "mask", "other"], 1),
    optional("load_kept", &["ptr", "mask", "other"], 1),
    optional("store", &["ptr", "value", "mask"], 2),
    optional("store_once", &["ptr", "value", "mask"], 2),
    optional("store_kept", &["ptr", "value", "mask"], 2),
    atomic("atomic_add", &["ptr", "value", "mask"], 2),
    atomic("atomic_max", &["ptr", "value", "mask"], 2),
    atomic("atomic_min", &["ptr", "value", "mask"], 2),
    atomic("atomic_and", &["ptr", "value", "mask"], 2),
    atomic("atomic_or", &["ptr", "value", "mask"], 2),
    atomic("atomic_xor", &["ptr", "value", "mask"], 2),
    atomic("atomic_xchg", &["ptr", "value", "mask"], 2),
    atomic("atomic_cas", &["ptr", "expected", "value", "mask"], 3),
    optional("dot", &["x", "y", "accumulator"], 2),
    optional("dot_tf32", &["x", "y", "accumulator"], 2),
    optional("dot_tf32x3", &["x", "y", "accumulator"], 2),
    optional("fast_dot", &["x", "y", "accumulator"], 2),
    call("dot_scaled", &["x", "x_scale", "y", "y_scale", "accumulator"]),
    optional("sum", &["x", "axis", "keep"], 2),
    optional("prod", &["x", "axis", "keep"], 2),
    optional("max", &["x", "axis", "keep"], 2),
    optional("min", &["x", "axis", "keep"], 2),
    optional("max_num", &["x", "axis", "keep"], 2),
    optional("min_num", &["x", "axis", "keep"], 2),
    optional("argmax", &["x", "axis", "keep"], 2),
    optional("argmin", &["x", "axis", "keep"], 2),
    call("max_with_index", &["x", "axis"]),
    call("min_with_index", &["x", "axis"]),
    optional("xor_sum", &["x", "axis", "keep"], 2),
    optional("any", &["x", "axis", "keep"], 2),
    optional("all", &["x", "axis", "keep"], 2),
    call("reduce", &["x", "axis", "function"]),
    optional("associative_scan", &["x", "axis", "function", "reverse"], 3),
    optional("cumsum", &["x", "axis", "reverse"], 2),
    optional("cumprod", &["x", "axis", "reverse"], 2),
    call("softmax", &["x", "axis"]),
    call("flip", &["x", "axis"]),
    optional("sort", &["x", "axis", "descending"], 2),
    optional("argsort", &["x", "axis", "descending"], 2),
    generic("topk", Generics::OneExtent, &["x", "axis"]),
    generic("histogram", Generics::OneExtent, &["x"]),
    generic("histogram_with_ranks", Generics::OneExtent, &["x"]),
    call("gather", &["x", "index", "axis"]),
    call("scatter", &["x", "index", "axis"]),
    call("element", &["x", "coordinates"]),
    call("exp", &["x"]),
    call("exp2", &["x"]),
    call("log", &["x"]),
    call("log2", &["x"]),
    call("log1p", &["x"]),
    call("tan", &["x"]),
    call("sqrt", &["x"]),
    call("rsqrt", &["x"]),
    call("sin", &["x"]),
    call("cos", &["x"]),
    call("tanh", &["x"]),
    call("erf", &["x"]),
    call("sigmoid", &["x"]),
    call("fast_exp", &["x"]),
    call("fast_exp2", &["x"]),
    call("fast_recip", &["x"]),
    call("fast_sqrt", &["x"]),
    call("fast_log2", &["x"]),
    call("fast_demanded", &["a", "b"]),
    call("fast_sigmoid", &["x"]),
    call("fast_tanh", &["x"]),
    call("abs", &["x"]),
    call("floor", &["x"]),
    call("ceil", &["x"]),
    call("round", &["x"]),
    call("trunc", &["x"]),
    call("is_nan", &["x"]),
    call("is_inf", &["x"]),
    call("is_finite", &["x"]),
    call("fma", &["a", "b", "c"]),
    call("minimum", &["a", "b"]),
    call("maximum", &["a", "b"]),
    call("minimum_num", &["a", "b"]),
    call("maximum_num", &["a", "b"]),
    call("clamp", &["x", "low", "high"]),
    call("cdiv", &["a", "b"]),
    call("umulhi", &["a", "b"]),
    call("popcount", &["x"]),
    call("clz", &["x"]),
    call("ffs", &["x"]),
    call("brev", &["x"]),
    call("ldexp", &["x", "exponent"]),
    call("rand", &["seed", "offset"]),
    call("randn", &["seed", "offset"]),
    optional("randint", &["seed", "offset", "low", "high"], 2),
    call("randint4x", &["seed", "offset"]),
    call("multiple_of", &["x", "n"]),
    call("grouped", &["index", "rows", "columns", "group"]),
    call("view_of", &["ptr", "extents", "strides"]),
];

/// The functions that are written in the language itself: `genesis_kernel::lang::library` has `pow_of` for `pow`.
pub(crate) const LIBRARY: &[Signature] = &[
    call("pow", &["a", "b"]),
    call("atan2", &["a", "b"]),
    call("hypot", &["a", "b"]),
    call("fdim", &["a", "b"]),
    call("rhypot", &["a", "b"]),
    call("remainder", &["a", "b"]),
    call("logb", &["x"]),
    call("copysign", &["a", "b"]),
    call("nextafter", &["a", "b"]),
    call("signbit", &["x"]),
    call("expm1", &["x"]),
    call("exp10", &["x"]),
    call("log10", &["x"]),
    call("cbrt", &["x"]),
    call("asin", &["x"]),
    call("acos", &["x"]),
    call("atan", &["x"]),
    call("sinh", &["x"]),
    call("cosh", &["x"]),
    call("asinh", &["x"]),
    call("acosh", &["x"]),
    call("atanh", &["x"]),
    call("erfc", &["x"]),
    call("erfinv", &["x"]),
    call("rcbrt", &["x"]),
    call("sinpi", &["x"]),
    call("cospi", &["x"]),
    call("lgamma", &["x"]),
    call("tgamma", &["x"]),
    call("erfcx", &["x"]),
    call("erfcinv", &["x"]),
    call("normcdf", &["x"]),
    call("normcdfinv", &["x"]),
    call("bessel_j0", &["x"]),
    call("bessel_j1", &["x"]),
    call("bessel_y0", &["x"]),
    call("bessel_y1", &["x"]),
    call("bessel_i0", &["x"]),
    call("bessel_i1", &["x"]),
];

/// The methods of tiles, scalars and views.
pub(crate) const METHODS: &[Signature] = &[
    generic("to", Generics::DType, &[]),
    call("row", &[]),
    call("col", &[]),
    call("expand_dims", &["axis"]),
    call("squeeze", &["axis"]),
    call("trans", &[]),
    call("permute", &["order"]),
    generic("reshape", Generics::Extents, &[]),
    generic("broadcast_to", Generics::Extents, &[]),
    call("is_some", &[]),
    call("is_none", &[]),
    call("ptr", &[]),
    call("dim", &["axis"]),
    call("stride", &["axis"]),
    generic("load", Generics::Extents, &["coordinates"]),
    generic("load_once", Generics::Extents, &["coordinates"]),
    generic("load_kept", Generics::Extents, &["coordinates"]),
    optional("store", &["coordinates", "value", "mask"], 2),
    optional("store_once", &["coordinates", "value", "mask"], 2),
    optional("store_kept", &["coordinates", "value", "mask"], 2),
    optional("subview", &["coordinates", "extents", "steps"], 2),
    call("at", &["index"]),
    call("len", &[]),
];

/// What an atomic may order: the names of `MemoryOrder`.
pub(crate) const ORDERS: [&str; 4] = ["Relaxed", "Acquire", "Release", "AcqRel"];

/// Among whom: the names of `MemoryScope`.
pub(crate) const SCOPES: [&str; 4] = ["Block", "Cluster", "Gpu", "System"];

/// Functions that only a `for` may call.
pub(crate) const ITERATORS: [&str; 3] = ["range", "static_range", "persistent"];

/// The function with this name.
pub(crate) fn function(name: &str) -> Option<&'static Signature> {
    FUNCTIONS.iter().chain(LIBRARY).find(|f| f.name == name)
}

/// Whether a function is written in the language itself.
pub(crate) fn is_library(name: &str) -> bool {
    LIBRARY.iter().any(|f| f.name == name)
}

/// The function of the module `fast` with this name.
pub(crate) fn fast(name: &str) -> Option<&'static Signature> {
    FUNCTIONS.iter().find(|f| f.name.strip_prefix("fast_") == Some(name))
}

/// The method with this name.
pub(crate) fn method(name: &str) -> Option<&'static Signature> {
    METHODS.iter().find(|m| m.name == name)
}

/// The variant of `DType` for a dtype's name.
pub(crate) fn dtype(name: &str) -> Option<&'static str> {
    let variant = match name {
        "bool" => "Bool",
        "i8" => "I8",
        "i16" => "I16",
        "i32" => "I32",
        "i64" => "I64",
        "u8" => "U8",
        "u16" => "U16",
        "u32" => "U32",
        "u64" => "U64",
        "f8e4m3" => "F8E4M3",
        "f8e5m2" => "F8E5M2",
        "f16" => "F16",
        "bf16" => "BF16",
        "f32" => "F32",
        "f64" => "F64",
        _ => return None,
    };
    Some(variant)
}
