//! Random kernels in the language's syntax: the trees that `#[kernel]` leaves in a program, made by type,
//! so that nearly all of them are what the front end accepts.
//!
//! ```text
//! fn random<T, const B: usize>(x0: Ptr<T>, v1: View<f16, 2>, n: i64, o2: PtrMut<f32>) {
//!     let p = program_id(0);
//!     let i = p * B + arange::<B>();
//!     let a = where_(i < n, load(x0 + i, i < n).to::<f32>(), 1.5);
//!     for j in range(3, n, 2) { a = maximum(a, j.to::<f32>()); }
//!     store(o2 + i, a);
//! }
//! ```

use super::syntax::*;
use crate::front;
use crate::front::ast::*;
use crate::front::{Hints, ParamHint};
use crate::ir::InterpArg;
use crate::ir::random::{RandomProgram, Rng};
use crate::ir::{BinaryOp, DType, Predicate, Scalar};

/// A type of values: a dtype, and extents, none for a scalar.
#[derive(Clone, PartialEq, Debug)]
struct Ty {
    dtype: DType,
    shape: Vec<i128>,
}

/// A variable.
#[derive(Clone)]
struct Var {
    name: &'static str,
    ty: Ty,
    mutable: bool,
}

/// A kernel in the making.
pub(super) struct Writer {
    rng: Rng,
    params: Vec<ParamAst>,
    args: Vec<InterpArg>,
    hints: Vec<ParamHint>,
    vars: Vec<Var>,
    inputs: Vec<(&'static str, DType)>,
    /// Elements of the inputs, and programs.
    n: i64,
    programs: i64,
    pub(super) block: i128,
    pub(super) generic: DType,
    nesting: usize,
}

/// A kernel as a program, or the front end's refusal.
///
/// # Errors
/// The diagnostic, where the kernel is not what the language accepts.
pub(super) fn kernel(seed: u64) -> Result<RandomProgram, String> {
    let (writer, ast) = tree(seed, "random");
    let func = front::build(ast, &[writer.generic], &[writer.block as i64], &writer.hints());
    let func = func.map_err(|diagnostic| diagnostic.to_string())?;
    let Writer { args, programs, .. } = writer;
    Ok(RandomProgram { func, args, grid: [programs as u32, 1, 1], approximate: Vec::new() })
}

/// A kernel's tree, and who made it.
pub(super) fn tree(seed: u64, name: &'static str) -> (Writer, &'static FnAst) {
    let mut writer = Writer::new(seed);
    let ast = writer.whole(name);
    (writer, ast)
}

impl Writer {
    fn new(seed: u64) -> Writer {
        let mut rng = Rng::new(seed ^ 0x6b65_726e_656c);
        let block = rng.pick(&[1, 4, 8, 16, 16, 32, 64, 128, 24, 100]);
        let programs = rng.range(1, 3) as i64;
        let n = (block as i64 * programs - rng.pick(&[0, 1, 3])).max(1);
        let generic = rng.pick(&[DType::F32, DType::F16, DType::BF16, DType::I32, DType::F64]);
        Writer {
            rng,
            params: Vec::new(),
            args: Vec::new(),
            hints: Vec::new(),
            vars: Vec::new(),
            inputs: Vec::new(),
            n,
            programs,
            block,
            generic,
            nesting: 0,
        }
    }

    fn dtype(&mut self) -> DType {
        let float = [DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64];
        let int =
            [DType::I32, DType::I64, DType::I64, DType::U8, DType::U32, DType::I16, DType::U64];
        match self.rng.below(10) {
            0..5 => self.rng.pick(&float),
            5..9 => self.rng.pick(&int),
            _ => DType::Bool,
        }
    }

    /// The dtype as people write it: by its name, or as the parameter it was given for.
    fn written(&mut self, dtype: DType) -> DTypeAst {
        match dtype == self.generic && self.rng.chance(50) {
            true => DTypeAst::Param("T"),
            false => DTypeAst::Fixed(dtype),
        }
    }

    fn param(&mut self, name: &'static str, ty: TypeAst, arg: InterpArg, hint: ParamHint) {
        let pattern = leak(PatternAst::Name(name));
        self.params.push(ParamAst { span: SPAN, pattern, ty, optional: false });
        self.args.push(arg);
        self.hints.push(hint);
    }

    /// What a launch would tell of the arguments.
    pub(super) fn hints(&self) -> Hints {
        Hints { params: self.hints.clone(), ..Hints::default() }
    }

    fn whole(&mut self, name: &'static str) -> &'static FnAst {
        let mut stmts = self.head();
        for _ in 0..self.rng.range(4, 9) {
            let stmt = self.stmt();
            stmts.extend(stmt);
        }
        for _ in 0..self.rng.range(1, 3) {
            stmts.push(self.store());
        }
        let params = leak_all(std::mem::take(&mut self.params));
        leak(FnAst {
            name,
            module: "random",
            file: "random",
            span: SPAN,
            doc: "",
            dtypes: &[DTypeParam { name: "T", bound: DTypeBound::Number }],
            consts: &["B"],
            params,
            body: block(stmts, None),
            contract: false,
            ret: None,
        })
    }

    /// Parameters, and what every kernel begins with.
    fn head(&mut self) -> Vec<StmtAst> {
        let n = self.n as usize;
        for _ in 0..self.rng.range(1, 3) {
            let dtype = self.dtype();
            let name = numbered("x", self.params.len());
            let written = self.written(dtype);
            let arg = InterpArg::Buffer(dtype, self.rng.data(dtype, n));
            let hint = ParamHint { multiple_of: 16, ..ParamHint::default() };
            self.param(name, TypeAst::Ptr { dtype: written, mutable: false }, arg, hint);
            self.inputs.push((name, dtype));
        }
        let number = InterpArg::Scalar(Scalar::int(DType::I64, self.n));
        let i64_ = DTypeAst::Fixed(DType::I64);
        self.param("n", TypeAst::Scalar(i64_), number, ParamHint::default());
        self.vars.push(Var { name: "n", ty: scalar(DType::I64), mutable: false });
        let dtype = self.dtype();
        let arg = InterpArg::Scalar(self.rng.scalar(dtype));
        self.param("s", TypeAst::Scalar(DTypeAst::Fixed(dtype)), arg, ParamHint::default());
        self.vars.push(Var { name: "s", ty: scalar(dtype), mutable: false });
        let p = call("program_id", Vec::new(), vec![int(0)]);
        let lanes = call("arange", vec![GenericAst::Const(leak(name("B")))], Vec::new());
        let first = binary(BinaryOp::Mul, name("p"), name("B"));
        let line = Ty { dtype: DType::I64, shape: vec![self.block] };
        self.vars.push(Var { name: "p", ty: scalar(DType::I64), mutable: false });
        self.vars.push(Var { name: "i", ty: line.clone(), mutable: false });
        let mask = Ty { dtype: DType::Bool, ..line };
        self.vars.push(Var { name: "m", ty: mask, mutable: false });
        vec![
            let_("p", p),
            let_("i", binary(BinaryOp::Add, first, lanes)),
            let_("m", compare(Predicate::Lt, name("i"), name("n"))),
        ]
    }

    /// A shape to compute in: the block's, that of a variable, a small one.
    fn shape(&mut self) -> Vec<i128> {
        match self.rng.below(10) {
            0..4 => vec![self.block],
            4..7 => {
                let at = self.rng.below(self.vars.len());
                self.vars[at].ty.shape.clone()
            }
            7 => Vec::new(),
            _ => {
                let extents = [1, 2, 4, 8, 16, 5];
                vec![self.rng.pick(&extents), self.rng.pick(&extents)]
            }
        }
    }

    fn ty(&mut self) -> Ty {
        Ty { dtype: self.dtype(), shape: self.shape() }
    }

    fn stmt(&mut self) -> Vec<StmtAst> {
        let is_deep = self.nesting >= 2;
        match self.rng.below(10) {
            0..5 => self.bind(),
            5 => self.assign().into_iter().collect(),
            6 if !is_deep => vec![self.for_()],
            7 if !is_deep => self.while_(),
            8 if !is_deep => vec![self.if_()],
            9 => vec![stmt(self.assertion())],
            _ => self.bind(),
        }
    }

    fn bind(&mut self) -> Vec<StmtAst> {
        let ty = self.ty();
        let value = self.expr(&ty, 3);
        let name = numbered("a", self.vars.len());
        self.vars.push(Var { name, ty, mutable: true });
        vec![let_(name, value)]
    }

    fn assign(&mut self) -> Option<StmtAst> {
        let all: Vec<Var> = self.vars.iter().filter(|var| var.mutable).cloned().collect();
        if all.is_empty() {
            return None;
        }
        let var = all[self.rng.below(all.len())].clone();
        let value = self.expr(&var.ty, 2);
        Some(assign(var.name, value))
    }

    /// Statements whose names nobody sees outside.
    fn body(&mut self) -> Vec<StmtAst> {
        let n = self.vars.len();
        self.nesting += 1;
        let mut stmts = Vec::new();
        for _ in 0..self.rng.range(1, 2) {
            let stmt = self.stmt();
            stmts.extend(stmt);
        }
        stmts.extend(self.assign());
        self.nesting -= 1;
        self.vars.truncate(n);
        stmts
    }

    fn for_(&mut self) -> StmtAst {
        let (start, step) =
            (self.rng.range(0, 4) as i128 - 2, self.rng.pick(&[1, 1, 2, 3, -1, -2]));
        let end = start + step * self.rng.range(0, 4) as i128 - self.rng.below(2) as i128;
        let is_static = self.rng.chance(20);
        let has_step = step != 1 || self.rng.chance(30);
        let [start, end, step] = [start, end, step].map(|bound| self.bound(bound, is_static));
        let iter = IterAst::Range {
            start: leak(start),
            end: leak(end),
            step: has_step.then(|| leak(step) as &_),
            stages: 0,
            unroll: if is_static { 0 } else { self.rng.pick(&[0, 0, 2]) },
            is_static,
        };
        let index = numbered("j", self.vars.len());
        self.vars.push(Var { name: index, ty: scalar(DType::I64), mutable: false });
        let body = self.body();
        self.vars.pop();
        let pattern = leak(PatternAst::Name(index));
        StmtAst::For { pattern, iter: leak(iter), body: block(body, None), span: SPAN }
    }

    /// A bound of a loop as a literal, or as a number that only a launch knows.
    fn bound(&mut self, value: i128, is_static: bool) -> ExprAst {
        if is_static || self.rng.chance(70) {
            return int(value);
        }
        let more = value - i128::from(self.n);
        binary(BinaryOp::Add, name("n"), int(more))
    }

    /// `let mut c = 3; while c > 0 { c = c - 1; .. }`
    fn while_(&mut self) -> Vec<StmtAst> {
        let counter = numbered("c", self.vars.len());
        let start = self.rng.range(0, 3) as i128;
        self.vars.push(Var { name: counter, ty: scalar(DType::I64), mutable: false });
        let mut body = vec![assign(counter, binary(BinaryOp::Sub, name(counter), int(1)))];
        body.extend(self.body());
        let cond = leak(compare(Predicate::Gt, name(counter), int(0)));
        let start = expr(ExprKind::Int(start, Some(DType::I64)));
        vec![let_(counter, start), StmtAst::While { cond, body: block(body, None), span: SPAN }]
    }

    fn if_(&mut self) -> StmtAst {
        let cond = self.expr(&scalar(DType::Bool), 2);
        let (then, otherwise) = (self.body(), self.body());
        let otherwise = self.rng.chance(60).then(|| block(otherwise, None));
        stmt(expr(ExprKind::If { cond: leak(cond), then: block(then, None), otherwise }))
    }

    /// An assertion that holds.
    fn assertion(&mut self) -> ExprAst {
        let i = name("i");
        expr(ExprKind::Assert(leak(compare(Predicate::Ge, i, int(0))), "i is natural"))
    }

    /// Where each program's elements of an output of a shape begin, with those of the tile added.
    fn own(&mut self, out: &'static str, shape: &[i128]) -> ExprAst {
        let size: i128 = shape.iter().product();
        let start = binary(BinaryOp::Add, name(out), binary(BinaryOp::Mul, name("p"), int(size)));
        match *shape {
            [] => start,
            [len] => binary(BinaryOp::Add, start, arange(len)),
            [rows, columns] => {
                let row = method(arange(rows), "col", Vec::new(), Vec::new());
                let row = binary(BinaryOp::Mul, row, int(columns));
                let column = method(arange(columns), "row", Vec::new(), Vec::new());
                binary(BinaryOp::Add, start, binary(BinaryOp::Add, row, column))
            }
            _ => start,
        }
    }

    /// A variable to an output of its own.
    fn store(&mut self) -> StmtAst {
        let recent = self.vars.len().saturating_sub(4).max(5).min(self.vars.len() - 1);
        let at = self.rng.range(recent, self.vars.len() - 1);
        let Var { name: var, ty, .. } = self.vars[at].clone();
        let size = ty.shape.iter().product::<i128>() as usize * self.programs as usize;
        let out = numbered("o", self.params.len());
        let arg = InterpArg::BufferMut(ty.dtype, self.rng.data(ty.dtype, size));
        let dtype = self.written(ty.dtype);
        let hint = ParamHint { multiple_of: 16, ..ParamHint::default() };
        self.param(out, TypeAst::Ptr { dtype, mutable: true }, arg, hint);
        let place = self.own(out, &ty.shape);
        stmt(call("store", Vec::new(), vec![place, name(var)]))
    }

    /// An expression of a type.
    fn expr(&mut self, ty: &Ty, depth: usize) -> ExprAst {
        if depth == 0 || self.rng.chance(15) {
            return self.leaf(ty);
        }
        match self.rng.below(20) {
            0..7 => self.arithmetic(ty, depth),
            7 | 8 => {
                let cond = self.expr(&Ty { dtype: DType::Bool, ..ty.clone() }, depth - 1);
                let (a, b) = (self.expr(ty, depth - 1), self.expr(ty, depth - 1));
                call("where_", Vec::new(), vec![cond, a, b])
            }
            9..12 => {
                let from = Ty { dtype: self.dtype(), ..ty.clone() };
                let x = self.expr(&from, depth - 1);
                self.to(x, ty.dtype)
            }
            12 | 13 => self.reduced(ty, depth),
            14 => self.moved(ty, depth),
            15 => self.load(ty, depth),
            16 => {
                let cond = leak(self.expr(&scalar(DType::Bool), 1));
                let then = block(Vec::new(), Some(self.expr(ty, depth - 1)));
                let otherwise = Some(block(Vec::new(), Some(self.expr(ty, depth - 1))));
                expr(ExprKind::If { cond, then, otherwise })
            }
            17 => {
                let value = self.expr(ty, depth - 1);
                let inner = numbered("t", self.nesting + depth);
                expr(ExprKind::Block(block(vec![let_(inner, value)], Some(name(inner)))))
            }
            18 => self.product(ty, depth),
            _ => self.leaf(ty),
        }
    }

    fn to(&mut self, x: ExprAst, dtype: DType) -> ExprAst {
        let written = self.written(dtype);
        method(x, "to", vec![GenericAst::Type(TypeAst::Scalar(written))], Vec::new())
    }

    /// A variable of the type, or one that becomes it, or a constant.
    fn leaf(&mut self, ty: &Ty) -> ExprAst {
        let alike: Vec<Var> =
            self.vars.iter().filter(|v| v.ty.shape == ty.shape).cloned().collect();
        let same: Vec<&Var> = alike.iter().filter(|v| v.ty == *ty).collect();
        if !same.is_empty() && self.rng.chance(75) {
            return name(same[self.rng.below(same.len())].name);
        }
        if !alike.is_empty() && self.rng.chance(80) {
            let var = alike[self.rng.below(alike.len())].clone();
            return self.to(name(var.name), ty.dtype);
        }
        let value = self.literal(ty.dtype);
        if ty.shape.is_empty() {
            return value;
        }
        let dtype = self.written(ty.dtype);
        let generics = std::iter::once(GenericAst::Type(TypeAst::Scalar(dtype)));
        call("full", generics.chain(extents(&ty.shape)).collect(), vec![value])
    }

    /// A number with its dtype written behind it.
    fn literal(&mut self, dtype: DType) -> ExprAst {
        match dtype {
            DType::Bool => expr(ExprKind::Bool(self.rng.chance(50))),
            _ if dtype.is_float() => {
                let value = self.rng.pick(&[0.0, 1.5, 2.0, 0.25, 100.0, 3.0]);
                let exact = matches!(dtype, DType::F32 | DType::F64);
                match exact {
                    true => expr(ExprKind::Float(value, Some(dtype))),
                    false => {
                        let value = expr(ExprKind::Float(value, Some(DType::F32)));
                        self.to(value, dtype)
                    }
                }
            }
            _ => expr(ExprKind::Int(self.rng.pick(&[0, 1, 2, 3, 7, 31, 100]), Some(dtype))),
        }
    }

    /// The same type, or one that broadcasts to it.
    fn operand(&mut self, ty: &Ty, depth: usize) -> ExprAst {
        if ty.shape.is_empty() || self.rng.chance(75) {
            return self.expr(ty, depth);
        }
        if ty.dtype.is_int() && self.rng.chance(30) {
            return int(self.rng.pick(&[1, 2, 5]));
        }
        self.expr(&scalar(ty.dtype), depth.min(1))
    }

    fn arithmetic(&mut self, ty: &Ty, depth: usize) -> ExprAst {
        let d = depth - 1;
        let dtype = ty.dtype;
        if dtype == DType::Bool {
            return self.condition(ty, d);
        }
        let a = self.expr(ty, d);
        match (self.rng.below(9), dtype.is_float()) {
            (0..4, _) => {
                let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul];
                let (op, b) = (self.rng.pick(&ops), self.operand(ty, d));
                binary(op, a, b)
            }
            (4, _) => {
                let (op, b) = (self.rng.pick(&[BinaryOp::Div, BinaryOp::Rem]), self.operand(ty, d));
                binary(op, a, b)
            }
            (5, true) => {
                let names = ["sqrt", "floor", "ceil", "round", "trunc", "abs"];
                call(self.rng.pick(&names), Vec::new(), vec![a])
            }
            (5, false) => {
                use BinaryOp::{And, Or, Shl, Shr, Xor};
                let (op, b) = (self.rng.pick(&[And, Or, Xor, Shl, Shr]), self.operand(ty, d));
                binary(op, a, b)
            }
            (6, _) => {
                let names = ["minimum", "maximum", "minimum_num", "maximum_num"];
                let (function, b) = (self.rng.pick(&names), self.expr(ty, d));
                call(function, Vec::new(), vec![a, b])
            }
            (7, true) => {
                let (b, c) = (self.expr(ty, d), self.expr(ty, d));
                call("fma", Vec::new(), vec![a, b, c])
            }
            (7, false) => {
                let b = self.expr(ty, d);
                call(self.rng.pick(&["cdiv", "umulhi"]), Vec::new(), vec![a, b])
            }
            (_, true) => expr(ExprKind::Neg(leak(a))),
            _ if dtype.is_signed_int() => expr(ExprKind::Neg(leak(a))),
            _ => expr(ExprKind::Not(leak(a))),
        }
    }

    fn condition(&mut self, ty: &Ty, d: usize) -> ExprAst {
        match self.rng.below(5) {
            0 => {
                let x = self.expr(ty, d);
                expr(ExprKind::Not(leak(x)))
            }
            1 => {
                let (a, b) = (self.expr(ty, d), self.expr(ty, d));
                let ops = [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor];
                binary(self.rng.pick(&ops), a, b)
            }
            2 if ty.shape.is_empty() => {
                let (a, b) = (leak(self.expr(ty, d)), leak(self.expr(ty, d)));
                let both = self.rng.chance(50);
                expr(if both { ExprKind::AndThen(a, b) } else { ExprKind::OrElse(a, b) })
            }
            _ => {
                let dtype = loop {
                    let dtype = self.dtype();
                    if dtype != DType::Bool {
                        break dtype;
                    }
                };
                let of = Ty { dtype, ..ty.clone() };
                let a = self.expr(&of, d);
                if dtype.is_float() && self.rng.chance(15) {
                    return call(self.rng.pick(&["is_nan", "is_inf"]), Vec::new(), vec![a]);
                }
                let b = self.operand(&of, d);
                compare(self.rng.pick(Predicate::ALL), a, b)
            }
        }
    }

    /// A reduction, or a scan, to the type; floats are only added up where they are small integers.
    fn reduced(&mut self, ty: &Ty, depth: usize) -> ExprAst {
        if ty.shape.len() > 1 {
            return self.scanned(ty, depth);
        }
        let extent = self.rng.pick(&[2, 4, 8, 16, 5]);
        let axis = self.rng.below(ty.shape.len() + 1);
        let mut shape = ty.shape.clone();
        shape.insert(axis, extent);
        let mut of = Ty { dtype: ty.dtype, shape };
        let axis = int(axis as i128);
        if ty.dtype == DType::I64 && self.rng.chance(30) {
            of.dtype = self.rng.pick(&[DType::F32, DType::I32]);
            let x = self.expr(&of, depth - 1);
            return call(self.rng.pick(&["argmax", "argmin"]), Vec::new(), vec![x, axis]);
        }
        let x = self.expr(&of, depth - 1);
        let (function, x) = match ty.dtype {
            DType::Bool => (self.rng.pick(&["any", "all"]), x),
            dtype if dtype.is_float() => match self.rng.chance(40) {
                true => ("sum", self.small(x, dtype)),
                false => (self.rng.pick(&["max", "min", "max_num", "min_num"]), x),
            },
            _ => (self.rng.pick(&["sum", "prod", "max", "min", "xor_sum"]), x),
        };
        call(function, Vec::new(), vec![x, axis])
    }

    fn scanned(&mut self, ty: &Ty, depth: usize) -> ExprAst {
        if ty.dtype == DType::Bool {
            return self.leaf(ty);
        }
        let x = self.expr(ty, depth - 1);
        let axis = int(self.rng.below(ty.shape.len()) as i128);
        let x = if ty.dtype.is_float() { self.small(x, ty.dtype) } else { x };
        call("cumsum", Vec::new(), vec![x, axis])
    }

    /// -1, 0 or 1, made of a value.
    fn small(&mut self, x: ExprAst, dtype: DType) -> ExprAst {
        let whole = self.to(x, DType::I32);
        let rest = binary(BinaryOp::Rem, whole, int(2));
        self.to(rest, dtype)
    }

    /// The elements of a value in another shape.
    fn moved(&mut self, ty: &Ty, depth: usize) -> ExprAst {
        let is_pow2 = ty.shape.iter().all(|&e| (e as usize).is_power_of_two());
        match *ty.shape {
            [a, b] => match self.rng.below(4) {
                0 => {
                    let x = self.expr(&Ty { dtype: ty.dtype, shape: vec![b, a] }, depth - 1);
                    call("trans", Vec::new(), vec![x])
                }
                1 => {
                    let x = self.expr(&Ty { dtype: ty.dtype, shape: vec![b] }, depth - 1);
                    let x = method(x, "row", Vec::new(), Vec::new());
                    call("broadcast_to", extents(&[a, b]).collect(), vec![x])
                }
                2 => {
                    let x = self.expr(&Ty { dtype: ty.dtype, shape: vec![a] }, depth - 1);
                    let x = method(x, "col", Vec::new(), Vec::new());
                    call("broadcast_to", extents(&[a, b]).collect(), vec![x])
                }
                _ if is_pow2 => {
                    let x = self.expr(&Ty { dtype: ty.dtype, shape: vec![a * b] }, depth - 1);
                    call("reshape", extents(&[a, b]).collect(), vec![x])
                }
                _ => self.leaf(ty),
            },
            [a] if is_pow2 && a > 1 => match self.rng.below(2) {
                0 => {
                    let half = Ty { dtype: ty.dtype, shape: vec![a / 2] };
                    let (x, y) = (self.expr(&half, depth - 1), self.expr(&half, depth - 1));
                    let joined = call("join", Vec::new(), vec![x, y]);
                    call("reshape", extents(&[a]).collect(), vec![joined])
                }
                _ => {
                    let x = self.expr(&Ty { dtype: ty.dtype, shape: vec![a, 2] }, depth - 1);
                    let pair = call("split", Vec::new(), vec![x]);
                    expr(ExprKind::Field(leak(pair), self.rng.below(2) as u32))
                }
            },
            _ => self.leaf(ty),
        }
    }

    /// Elements of an input: those of the program, or at indices that are computed.
    fn load(&mut self, ty: &Ty, depth: usize) -> ExprAst {
        let (input, dtype) = self.inputs[self.rng.below(self.inputs.len())];
        let is_block = *ty.shape == [self.block];
        let value = if is_block && self.rng.chance(60) {
            let ptr = binary(BinaryOp::Add, name(input), name("i"));
            let mut args = vec![ptr, name("m")];
            if self.rng.chance(40) {
                args.push(self.literal(dtype));
            }
            call("load", Vec::new(), args)
        } else {
            let at = self.expr(&Ty { dtype: DType::U64, ..ty.clone() }, depth - 1);
            let n = expr(ExprKind::Int(i128::from(self.n), Some(DType::U64)));
            let at = self.to(binary(BinaryOp::Rem, at, n), DType::I64);
            call("load", Vec::new(), vec![binary(BinaryOp::Add, name(input), at)])
        };
        if dtype == ty.dtype { value } else { self.to(value, ty.dtype) }
    }

    /// A matrix product of small integers.
    fn product(&mut self, ty: &Ty, depth: usize) -> ExprAst {
        let ([rows, columns], DType::F32) = (&*ty.shape, ty.dtype) else { return self.leaf(ty) };
        let k = self.rng.pick(&[4, 8, 16]);
        let dtype = self.rng.pick(&[DType::F16, DType::BF16, DType::F32]);
        let [a, b] = [[*rows, k], [k, *columns]].map(|shape| {
            let x = self.expr(&Ty { dtype, shape: shape.to_vec() }, depth.min(2) - 1);
            self.small(x, dtype)
        });
        call("dot", Vec::new(), vec![a, b])
    }
}

fn scalar(dtype: DType) -> Ty {
    Ty { dtype, shape: Vec::new() }
}
