//! The state of one lowering, and what every part of it needs: where ops go, what went wrong where.

use crate::diag::Diagnostic;
use crate::ir::{Builder, DType, Elem, Func, Loc, OpKind, Region, Shape, TileType, Type, Value};

use super::ast::{DTypeAst, ExprAst, ExprKind, Span};
use super::env::Frame;
use super::value::{Lit, Operand, Val};

/// The result of every step.
pub(super) type Res<T = Val> = Result<T, Diagnostic>;

/// Elements of the largest tile.
pub(super) const MAX_ELEMENTS: usize = 1 << 20;
/// Iterations unrolled in one kernel, all loops together.
pub(super) const MAX_UNROLLED: usize = 4096;
/// Device functions inlined into each other.
pub(super) const MAX_INLINING: usize = 64;
/// Expressions and blocks nested in each other.
const MAX_NESTING: usize = 256;
/// Ops of one kernel.
const MAX_OPS: usize = 100_000;

/// One lowering.
pub(super) struct Lower {
    pub(super) func: Func,
    /// Where ops go.
    pub(super) region: Region,
    /// The source of the ops being made.
    pub(super) loc: Option<Loc>,
    /// The kernel, then the device functions being inlined.
    pub(super) frames: Vec<Frame>,
    /// Whether the walk has passed a `return`: what follows in this region can't run.
    pub(super) returned: bool,
    /// Whether the body of a combining function of a reduction is walked: no memory, no branches.
    pub(super) combining: bool,
    /// Iterations unrolled so far.
    pub(super) unrolled: usize,
    nesting: usize,
}

impl Lower {
    pub(super) fn new(func: Func) -> Lower {
        let region = func.body;
        Lower {
            func,
            region,
            loc: None,
            frames: Vec::new(),
            returned: false,
            combining: false,
            unrolled: 0,
            nesting: 0,
        }
    }

    /// The function being walked.
    pub(super) fn frame(&self) -> &Frame {
        self.frames.last().expect("the kernel's frame is pushed first and popped last")
    }

    /// The function being walked, to change it.
    pub(super) fn frame_mut(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the kernel's frame is pushed first and popped last")
    }

    /// A builder where ops go now.
    pub(super) fn build(&mut self) -> Builder<'_> {
        Builder::at(&mut self.func, self.region, self.loc)
    }

    /// The place of a span of the function being walked.
    pub(super) fn loc_of(&self, span: Span) -> Loc {
        let Span { line, column, end_column } = span;
        Loc { file: self.frame().ast.file, line, column, end_column }
    }

    /// A diagnostic at a span of the function being walked.
    pub(super) fn error(&self, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(message, Some(self.loc_of(span)))
    }

    /// Does something with ops going to another region.
    pub(super) fn within<T>(&mut self, region: Region, f: impl FnOnce(&mut Lower) -> T) -> T {
        let outer = std::mem::replace(&mut self.region, region);
        let result = f(self);
        self.region = outer;
        result
    }

    /// Does something one level deeper, with ops at `span`; refuses what is too deep or too large.
    pub(super) fn nested<T>(&mut self, span: Span, f: impl FnOnce(&mut Lower) -> Res<T>) -> Res<T> {
        if self.nesting >= MAX_NESTING {
            let error = self.error(span, format!("this is nested over {MAX_NESTING} levels deep"));
            return Err(error.help("give parts of it names with `let`"));
        }
        if self.func.n_ops() > MAX_OPS {
            let error = self.error(span, format!("the kernel needs over {MAX_OPS} operations"));
            return Err(error.help("unroll less, or loop over a run-time range"));
        }
        self.nesting += 1;
        let outer = self.loc.replace(self.loc_of(span));
        let result = f(self);
        self.loc = outer;
        self.nesting -= 1;
        result
    }

    /// Ends a region: with nothing more where it returned, else with these values.
    pub(super) fn finish_region(&mut self, region: Region, values: &[Value]) {
        let ops = self.func.region(region).ops.clone();
        let end = ops.iter().position(|&op| matches!(self.func.op(op).kind, OpKind::Return));
        match end {
            Some(end) => self.func.region_mut(region).ops.truncate(end + 1),
            None => self.within(region, |lower| lower.build().yield_values(values)),
        }
    }

    /// The dtype that is written.
    pub(super) fn dtype_ast(&self, dtype: DTypeAst, span: Span) -> Res<DType> {
        dtype.resolve(|name| self.frame().dtype(name)).ok_or_else(|| {
            let name = dtype.param().unwrap_or_default();
            let error = self.error(span, format!("the dtype `{name}` is not known here"));
            error.help(format!("name it in the call: `::<.., {name}, ..>`"))
        })
    }

    /// The type of a value as a tile, compile-time numbers as scalars; none for what is no number
    /// and for literals.
    pub(super) fn tile_type(&self, val: &Val) -> Option<TileType> {
        match val {
            Val::Ir(value) | Val::Soft(value) => self.func.ty(*value).as_tile(),
            Val::Const(scalar) => Some(TileType::data(scalar.dtype, Shape::SCALAR)),
            Val::Lit(_)
            | Val::Tuple(_)
            | Val::Struct(_)
            | Val::Array(_)
            | Val::Unit
            | Val::Function(_)
            | Val::Optional(_) => None,
        }
    }

    /// The shape of a number or of pointers; literals are scalars.
    pub(super) fn shape(&self, val: &Val) -> Option<Shape> {
        match val {
            Val::Lit(_) => Some(Shape::SCALAR),
            val => self.tile_type(val).map(|ty| ty.shape),
        }
    }

    /// The dtype and rank of a view.
    pub(super) fn view_type(&self, val: &Val) -> Option<(Value, DType, usize)> {
        match val {
            Val::Ir(value) => match self.func.ty(*value) {
                Type::View { dtype, rank } => Some((*value, dtype, usize::from(rank))),
                Type::Tile(_) => None,
            },
            _ => None,
        }
    }

    /// What a value is, in the user's words: `a tile of f32 [128, 64]`.
    pub(super) fn describe(&self, val: &Val) -> String {
        match val {
            Val::Lit(Lit::Int(value)) => format!("the literal {value}"),
            Val::Lit(Lit::Float(value)) => format!("the literal {value:?}"),
            Val::Const(scalar) if scalar.dtype == DType::Bool => "a bool".to_owned(),
            Val::Const(scalar) => format!("a scalar of {}", scalar.dtype),
            Val::Tuple(parts) => format!("a tuple of {}", parts.len()),
            Val::Struct(fields) => format!("a struct of {}", fields.len()),
            Val::Array(parts) => format!("an array of {}", parts.len()),
            Val::Unit => "nothing".to_owned(),
            Val::Function(function) => format!("the function `{}`", function.0.name),
            Val::Optional(Some(val)) => format!("an `Option` of {}", self.describe(val)),
            Val::Optional(None) => "`None`".to_owned(),
            Val::Ir(value) | Val::Soft(value) => describe_type(self.func.ty(*value)),
        }
    }
}

/// What a value of this type is, in the user's words.
pub(super) fn describe_type(ty: Type) -> String {
    match ty {
        Type::View { dtype, rank } => format!("a view of {dtype} with {rank} axes"),
        Type::Tile(tile) => match (tile.elem, tile.shape.is_scalar()) {
            (Elem::Data(DType::Bool), true) => "a bool".to_owned(),
            (Elem::Data(dtype), true) => format!("a scalar of {dtype}"),
            (Elem::Data(dtype), false) => format!("a tile of {dtype} {}", tile.shape),
            (Elem::Ptr(dtype), true) => format!("a pointer to {dtype}"),
            (Elem::Ptr(dtype), false) => format!("a tile of pointers to {dtype} {}", tile.shape),
        },
    }
}

/// How messages call an expression: by its text where that is short, else `this`.
pub(super) fn name_of(expr: &ExprAst) -> String {
    short_text(expr).map_or_else(|| "this".to_owned(), |text| format!("`{text}`"))
}

/// How messages call an operand that is not the one at the caret.
pub(super) fn other_name(operand: &Operand) -> String {
    short_text(operand.expr)
        .map_or_else(|| "the other operand".to_owned(), |text| format!("`{text}`"))
}

fn short_text(expr: &ExprAst) -> Option<String> {
    match &expr.kind {
        ExprKind::Name(name) => Some((*name).to_owned()),
        ExprKind::Field(inner, index) => Some(format!("{}.{index}", short_text(inner)?)),
        ExprKind::Member(inner, name) => Some(format!("{}.{name}", short_text(inner)?)),
        ExprKind::Int(value, _) => Some(value.to_string()),
        ExprKind::Float(value, _) => Some(format!("{value:?}")),
        ExprKind::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}
