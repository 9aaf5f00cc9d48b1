//! Struct parameters: each field is a parameter of its own, called `p.x`.
//!
//! ```text
//! struct Affine<T: Float> { x: View<T, 1>, scale: f32 }
//!
//! kernel affine<T>(p: Affine<T>, n: i64)  ->  kernel affine<T>(p.x: View<T, 1>, p.scale: f32, n: i64)
//! ```
//!
//! The macro of the kernel sees the name of the struct and not its fields. So that a kernel stays data of the program,
//! the constants here put the fields in place of the struct while the program is compiled: how many there are, their
//! names, then the parameters. Launches, messages and tools see fields as they see any other parameter; only the
//! kernel's body knows the struct, as a value with named parts.

use crate::ir::DType;

use super::ast::{DTypeAst, FnAst, ParamAst, PatternAst, TypeAst};
use super::lower::Lower;
use super::value::Val;

/// A parameter as it is written: one, or a struct of them.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// No struct.
    One(ParamAst),
    /// A struct.
    Fields {
        /// The parameter.
        param: ParamAst,
        /// Its type.
        ty: StructAst,
        /// What stands for the type parameters in the kernel's signature.
        given: &'static [DTypeAst],
    },
}

/// A struct that kernels take.
#[derive(Clone, Copy, Debug)]
pub struct StructAst {
    /// The fields, of which dtypes may be the struct's own type parameters.
    pub fields: &'static [ParamAst],
    /// The names of those, in order.
    pub dtypes: &'static [&'static str],
    /// Whether a field is a pointer.
    pub has_pointers: bool,
}

/// The longest name of a field, with that of the parameter and the dot.
const MAX_NAME: usize = 128;

/// The name of a field behind that of its parameter.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    bytes: [u8; MAX_NAME],
    len: usize,
}

impl Name {
    const EMPTY: Name = Name { bytes: [0; MAX_NAME], len: 0 };

    const fn with(mut self, text: &str) -> Name {
        let text = text.as_bytes();
        assert!(self.len + text.len() <= MAX_NAME, "the name of this field is too long");
        let mut i = 0;
        while i < text.len() {
            self.bytes[self.len + i] = text[i];
            i += 1;
        }
        self.len += text.len();
        self
    }

    const fn text(&'static self) -> &'static str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => panic!("names are text"),
        }
    }
}

/// The parameters that there are with those of structs.
pub const fn count(parts: &[Part]) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < parts.len() {
        n += match &parts[i] {
            Part::One(_) => 1,
            Part::Fields { ty, .. } => ty.fields.len(),
        };
        i += 1;
    }
    n
}

/// The parameter at a place, and that of the field where it is one.
const fn at(parts: &'static [Part], index: usize) -> (&'static Part, Option<&'static ParamAst>) {
    let (mut first, mut i) = (0, 0);
    while i < parts.len() {
        match &parts[i] {
            Part::One(_) if first == index => return (&parts[i], None),
            Part::One(_) => first += 1,
            Part::Fields { ty, .. } if index < first + ty.fields.len() => {
                return (&parts[i], Some(&ty.fields[index - first]));
            }
            Part::Fields { ty, .. } => first += ty.fields.len(),
        }
        i += 1;
    }
    panic!("there are as many parameters as were counted")
}

const fn name(pattern: &PatternAst) -> &'static str {
    match pattern {
        PatternAst::Name(name) => name,
        PatternAst::Wild | PatternAst::Tuple(_) => "_",
    }
}

/// The name of each parameter that is a field, `p.x`.
pub const fn names<const N: usize>(parts: &'static [Part]) -> [Name; N] {
    let mut names = [Name::EMPTY; N];
    let mut i = 0;
    while i < N {
        if let (Part::Fields { param, .. }, Some(field)) = at(parts, i) {
            names[i] = Name::EMPTY.with(name(param.pattern)).with(".").with(name(field.pattern));
        }
        i += 1;
    }
    names
}

/// Whether a launch says of the parameter at a place if it is there: it is optional, and has a name.
const fn is_said(part: &Part, field: Option<&ParamAst>) -> bool {
    let (param, optional) = match (part, field) {
        (Part::Fields { param, .. }, Some(field)) => (param, field.optional),
        (Part::One(param) | Part::Fields { param, .. }, _) => (param, param.optional),
    };
    optional && matches!(param.pattern, PatternAst::Name(_))
}

/// The optional parameters and fields that a launch says of whether they are there.
pub const fn count_optional(parts: &'static [Part]) -> usize {
    let (all, mut n, mut i) = (count(parts), 0, 0);
    while i < all {
        let (part, field) = at(parts, i);
        if is_said(part, field) {
            n += 1;
        }
        i += 1;
    }
    n
}

/// The name of the constant that says so of each: `p.bias.is_some`.
pub const fn presences<const N: usize>(parts: &'static [Part]) -> [Name; N] {
    let mut names = [Name::EMPTY; N];
    let (mut n, mut i) = (0, 0);
    while n < N {
        let (part, field) = at(parts, i);
        if is_said(part, field) {
            let (Part::One(param) | Part::Fields { param, .. }) = part;
            let mut own = Name::EMPTY.with(name(param.pattern));
            if let Some(field) = field {
                own = own.with(".").with(name(field.pattern));
            }
            names[n] = own.with(".is_some");
            n += 1;
        }
        i += 1;
    }
    names
}

/// The names of a kernel's constants: its own, and those of what is optional.
pub const fn consts<const N: usize, const ALL: usize>(
    own: &[&'static str],
    optional: &'static [Name; N],
) -> [&'static str; ALL] {
    let mut names = [""; ALL];
    let mut i = 0;
    while i < ALL {
        names[i] = if i < own.len() { own[i] } else { optional[i - own.len()].text() };
        i += 1;
    }
    names
}

/// The pattern of each parameter.
pub const fn patterns<const N: usize>(
    parts: &'static [Part],
    names: &'static [Name; N],
) -> [PatternAst; N] {
    let mut patterns = [PatternAst::Wild; N];
    let mut i = 0;
    while i < N {
        patterns[i] = match at(parts, i) {
            (Part::One(param), _) => *param.pattern,
            _ => PatternAst::Name(names[i].text()),
        };
        i += 1;
    }
    patterns
}

/// The parameters.
pub const fn params<const N: usize>(
    parts: &'static [Part],
    patterns: &'static [PatternAst; N],
) -> [ParamAst; N] {
    let first = match &parts[0] {
        Part::One(param) | Part::Fields { param, .. } => *param,
    };
    let mut params = [first; N];
    let mut i = 0;
    while i < N {
        params[i] = match at(parts, i) {
            (Part::Fields { param, ty, given }, Some(field)) => {
                let ty = with_dtypes(field.ty, ty.dtypes, given);
                ParamAst { pattern: &patterns[i], ty, optional: field.optional, ..*param }
            }
            (Part::One(param) | Part::Fields { param, .. }, _) => *param,
        };
        i += 1;
    }
    params
}

/// The type of a field for what stands for the struct's dtypes.
const fn with_dtypes(ty: TypeAst, names: &[&str], given: &[DTypeAst]) -> TypeAst {
    match ty {
        TypeAst::Scalar(dtype) => TypeAst::Scalar(resolve(dtype, names, given)),
        TypeAst::Ptr { dtype, mutable } => {
            TypeAst::Ptr { dtype: resolve(dtype, names, given), mutable }
        }
        TypeAst::View { dtype, rank, mutable } => {
            TypeAst::View { dtype: resolve(dtype, names, given), rank, mutable }
        }
        TypeAst::Views { dtype, rank, mutable } => {
            TypeAst::Views { dtype: resolve(dtype, names, given), rank, mutable }
        }
        TypeAst::Tile(_) | TypeAst::Shaped(..) | TypeAst::Tuple(_) | TypeAst::Inferred => ty,
    }
}

const fn resolve(dtype: DTypeAst, names: &[&str], given: &[DTypeAst]) -> DTypeAst {
    let (own, is_sum) = match dtype {
        DTypeAst::Fixed(_) => return dtype,
        DTypeAst::Param(own) => (own, false),
        DTypeAst::Sum(own) => (own, true),
    };
    let mut i = 0;
    while !are_equal(names[i], own) {
        i += 1;
    }
    match (given[i], is_sum) {
        (given, false) => given,
        (DTypeAst::Param(name) | DTypeAst::Sum(name), true) => DTypeAst::Sum(name),
        (DTypeAst::Fixed(dtype), true) => DTypeAst::Fixed(match dtype.sums_in() {
            Some(sum) => sum,
            None => DType::F32,
        }),
    }
}

const fn are_equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Declares the structs of a kernel, of whose fields each has been declared as a parameter.
pub(super) fn declare(lower: &mut Lower, ast: &FnAst) {
    let mut structs: Vec<(&'static str, Vec<(&'static str, Val)>)> = Vec::new();
    for param in ast.params {
        let PatternAst::Name(name) = *param.pattern else { continue };
        let Some((owner, field)) = name.split_once('.') else { continue };
        let Some(val) = lower.frame().lookup(name) else { continue };
        match structs.last_mut() {
            Some((known, fields)) if *known == owner => fields.push((field, val)),
            _ => structs.push((owner, vec![(field, val)])),
        }
    }
    for (name, fields) in structs {
        lower.frame_mut().declare(name, Val::Struct(fields));
    }
}
