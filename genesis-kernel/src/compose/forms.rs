//! The four shapes of a composed kernel: what stands around the steps.

use super::body::device_of;
use super::recipe::{Access, Fold, Form, Leaf, Recipe, Source, StepKind};
use super::write::{
    SPAN, array, binary, call, cast, constant, device, dtype, expr, int, keep, keep_all, let_,
    method, name, number, one, param, text,
};
use crate::diag::Error;
use crate::front::ast::{
    BlockAst, DTypeAst, ExprAst, ExprKind, FnAst, GenericAst, IterAst, ParamAst, PatternAst,
    StmtAst, TypeAst,
};
use crate::ir::{BinaryOp, DType, Predicate, Scalar};

const BLOCK: &[&str] = &["BLOCK"];
const TILE: &[&str] = &["ROWS", "COLS"];
/// Characters of a name that list the steps.
const NAMED: usize = 48;

/// The syntax of a recipe's kernel.
pub(super) fn kernel(recipe: &Recipe) -> Result<&'static FnAst, Error> {
    let writer = Writer { recipe };
    let (consts, stmts) = match recipe.form {
        Form::Flat => (BLOCK, writer.flat()?),
        Form::Matrix => (TILE, writer.matrix()?),
        Form::Strided => (TILE, writer.strided()?),
        Form::Rows => (TILE, writer.rows()?),
    };
    Ok(keep(FnAst {
        name: text(writer.name()),
        module: "genesis::fuse",
        file: "a fused kernel",
        span: SPAN,
        doc: "Composed at run time.",
        dtypes: &[],
        consts,
        params: keep_all(writer.params()),
        body: keep(BlockAst { stmts: keep_all(stmts), value: None }),
        contract: false,
        ret: None,
    }))
}

struct Writer<'a> {
    recipe: &'a Recipe,
}

impl Writer<'_> {
    /// `fused_mul_tanh_sum`
    fn name(&self) -> String {
        let mut text = "fused".to_owned();
        for step in &self.recipe.steps {
            let StepKind::Kernel(def, ..) = &step.kind else { continue };
            let word = def.ast.name.trim_end_matches("_flat").trim_end_matches("_scalar");
            if text.len() + word.len() > NAMED {
                text.push_str("_more");
                break;
            }
            text = format!("{text}_{word}");
        }
        let ends = self.recipe.folds.iter().map(|fold| match fold {
            Fold::Sum(_) => "_sum",
            Fold::Max => "_max",
            Fold::Min => "_min",
        });
        ends.fold(text, |text, end| text + end)
    }

    /// Axes of the views of results and of leaves that have all axes.
    fn rank(&self) -> u8 {
        match self.recipe.form {
            Form::Flat => 1,
            Form::Matrix | Form::Rows => 2,
            Form::Strided => 4,
        }
    }

    fn params(&self) -> Vec<ParamAst> {
        let view = |dtype: DType, rank: u8, mutable: bool| TypeAst::View {
            dtype: DTypeAst::Fixed(dtype),
            rank,
            mutable,
        };
        let mut params = Vec::new();
        for (i, leaf) in self.recipe.leaves.iter().enumerate() {
            let rank = if leaf.access == Access::Full { self.rank() } else { 1 };
            params.push(param(text(format!("x{i}")), view(leaf.dtype, rank, false)));
        }
        for (i, &(_, dtype)) in self.recipe.results.iter().enumerate() {
            params.push(param(text(format!("y{i}")), view(dtype, self.rank(), true)));
        }
        if self.recipe.form == Form::Rows {
            let scalar = |dtype| TypeAst::Scalar(DTypeAst::Fixed(dtype));
            params.push(param("n", scalar(DType::I64)));
            for (i, fold) in self.recipe.folds.iter().enumerate() {
                if let Fold::Sum(wide) = fold {
                    params.push(param(text(format!("scale{i}")), scalar(*wide)));
                }
            }
        }
        for (i, &dtype) in self.recipe.params.iter().enumerate() {
            params.push(param(text(format!("p{i}")), TypeAst::Scalar(DTypeAst::Fixed(dtype))));
        }
        params
    }

    /// The loads and the steps, with full leaves at these coordinates of a tile of these extents.
    ///
    /// A kernel's operands have one shape, on which loops in its body may rely: those of fewer axes are
    /// repeated.
    fn steps(&self, at: &[ExprAst], extents: &[GenericAst]) -> Result<Vec<StmtAst>, Error> {
        let axes = Axes::new(self.recipe);
        let mut stmts = Vec::new();
        for (i, leaf) in self.recipe.leaves.iter().enumerate() {
            let value = load(text(format!("x{i}")), *leaf, at, extents);
            stmts.push(let_(text(format!("v{i}")), value));
        }
        for (i, step) in self.recipe.steps.iter().enumerate() {
            let arg = |&input: &Source| match axes.of(input) == axes.steps[i] {
                true => source(input),
                false => repeated(source(input), axes.steps[i], extents),
            };
            let mut args: Vec<ExprAst> = step.inputs.iter().map(arg).collect();
            let value = match &step.kind {
                StepKind::Kernel(def, dtypes, numbers) => {
                    args.extend(numbers.iter().map(|&n| source(n)));
                    let generics = dtypes.iter().map(|&t| dtype(t)).collect();
                    device(device_of(def)?, generics, args)
                }
                StepKind::Cast(to) => cast(args.remove(0), *to),
                StepKind::NotZero(of) => {
                    let zero = number(Scalar::zero(*of));
                    expr(ExprKind::Compare(Predicate::Ne, keep(args.remove(0)), keep(zero)))
                }
            };
            stmts.push(let_(text(format!("s{i}")), value));
        }
        Ok(stmts)
    }

    fn stores(&self, at: &[ExprAst], extents: &[GenericAst]) -> Vec<StmtAst> {
        let store = |(i, &(from, to)): (usize, &(Source, DType))| {
            let value = cast(source(from), to);
            let value = method(value, "broadcast_to", extents.to_vec(), Vec::new());
            let place = array(at.to_vec());
            let result = name(text(format!("y{i}")));
            StmtAst::Expr(keep(method(result, "store", Vec::new(), vec![place, value])))
        };
        self.recipe.results.iter().enumerate().map(store).collect()
    }

    fn flat(&self) -> Result<Vec<StmtAst>, Error> {
        let at = binary(BinaryOp::Mul, program(), name("BLOCK"));
        let (coordinates, extents) = ([name("at")], [constant("BLOCK")]);
        let mut stmts = vec![let_("at", at)];
        stmts.extend(self.steps(&coordinates, &extents)?);
        stmts.extend(self.stores(&coordinates, &extents));
        Ok(stmts)
    }

    /// Tiles are counted with the last axis fastest; in 32 bits, for division of 64 is slow.
    fn matrix(&self) -> Result<Vec<StmtAst>, Error> {
        let (down, across) = divided("tile", "across");
        let mut stmts = vec![
            let_(
                "across",
                cast(call("cdiv", Vec::new(), vec![extent(1), name("COLS")]), DType::I32),
            ),
            let_("tile", cast(program(), DType::I32)),
            let_("i", binary(BinaryOp::Mul, cast(down, DType::I64), name("ROWS"))),
            let_("j", binary(BinaryOp::Mul, cast(across, DType::I64), name("COLS"))),
        ];
        let at = [name("i"), name("j")];
        let extents = [constant("ROWS"), constant("COLS")];
        stmts.extend(self.steps(&at, &extents)?);
        stmts.extend(self.stores(&at, &extents));
        Ok(stmts)
    }

    fn strided(&self) -> Result<Vec<StmtAst>, Error> {
        let cut =
            |axis, by| cast(call("cdiv", Vec::new(), vec![extent(axis), name(by)]), DType::I32);
        let (line, column) = divided("tile", "across");
        let (plane, row) = divided("line", "down");
        let (outer, inner) = divided("plane", "middle");
        let mut stmts = vec![
            let_("across", cut(3, "COLS")),
            let_("down", cut(2, "ROWS")),
            let_("middle", cast(extent(1), DType::I32)),
            let_("tile", cast(program(), DType::I32)),
            let_("line", line),
            let_("plane", plane),
            let_("a", cast(outer, DType::I64)),
            let_("b", cast(inner, DType::I64)),
            let_("i", binary(BinaryOp::Mul, cast(row, DType::I64), name("ROWS"))),
            let_("j", binary(BinaryOp::Mul, cast(column, DType::I64), name("COLS"))),
        ];
        let at = ["a", "b", "i", "j"].map(name);
        let extents = [one(), one(), constant("ROWS"), constant("COLS")];
        stmts.extend(self.steps(&at, &extents)?);
        stmts.extend(self.stores(&at, &extents));
        Ok(stmts)
    }

    /// Program `[tile, part]` takes the rows of a tile and, of their columns, every piece whose number is `part` modulo
    /// the number of parts.
    fn rows(&self) -> Result<Vec<StmtAst>, Error> {
        let extents = [constant("ROWS"), constant("COLS")];
        let mut body = self.steps(&[name("i"), name("j")], &extents)?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (i, (&fold, &result)) in self.recipe.folds.iter().zip(&self.recipe.results).enumerate()
        {
            let row = RowFold::new(i, fold, result);
            before.push(row.start());
            body.extend(row.step());
            after.push(row.store());
        }
        let piece = |name_: &'static str| binary(BinaryOp::Mul, name(name_), name("COLS"));
        let iter = IterAst::Range {
            start: keep(piece("part")),
            end: keep(name("n")),
            step: Some(keep(piece("parts"))),
            stages: 0,
            unroll: 0,
            is_static: false,
        };
        // The extent of a view is a number that indices below it do not overflow at, which is what masks are left out by.
        let full = self.recipe.leaves.iter().position(|leaf| leaf.access == Access::Full);
        let extent = |i: usize| method(name(text(format!("x{i}"))), "dim", vec![], vec![int(1)]);
        let mut stmts = vec![
            let_("n", full.map_or_else(|| name("n"), extent)),
            let_("part", call("program_id", Vec::new(), vec![int(1)])),
            let_("parts", call("num_programs", Vec::new(), vec![int(1)])),
            let_("i", binary(BinaryOp::Mul, program(), name("ROWS"))),
        ];
        stmts.extend(before);
        stmts.push(StmtAst::For {
            pattern: keep(PatternAst::Name("j")),
            iter: keep(iter),
            body: keep(BlockAst { stmts: keep_all(body), value: None }),
            span: SPAN,
        });
        stmts.extend(after);
        Ok(stmts)
    }
}

/// One of the results of rows: how it starts, what a piece of a row adds to it, and how it is stored.
struct RowFold {
    number: usize,
    fold: Fold,
    from: Source,
    stored: DType,
    wide: DType,
    acc: &'static str,
}

impl RowFold {
    fn new(number: usize, fold: Fold, (from, stored): (Source, DType)) -> RowFold {
        let wide = match fold {
            Fold::Sum(wide) => wide,
            Fold::Max | Fold::Min => stored,
        };
        RowFold { number, fold, from, stored, wide, acc: text(format!("acc{number}")) }
    }

    fn start(&self) -> StmtAst {
        let extents = vec![dtype(self.wide), constant("ROWS"), constant("COLS")];
        let_(self.acc, call("full", extents, vec![neutral(self.fold, self.wide)]))
    }

    fn step(&self) -> [StmtAst; 2] {
        // Written as the masks of loads are, so that it is one value with theirs.
        let inside =
            binary(BinaryOp::Add, name("j"), call("arange", vec![constant("COLS")], vec![]));
        let inside = expr(ExprKind::Compare(Predicate::Lt, keep(inside), keep(name("n"))));
        let inside = method(inside, "row", Vec::new(), Vec::new());
        let value = text(format!("value{}", self.number));
        let (own, neutral) = (cast(source(self.from), self.wide), neutral(self.fold, self.wide));
        let masked = let_(value, call("where_", vec![], vec![inside, own, neutral]));
        let (value, acc) = (name(value), name(self.acc));
        let next = match self.fold {
            Fold::Sum(_) => binary(BinaryOp::Add, acc, value),
            Fold::Max => call("maximum", Vec::new(), vec![acc, value]),
            Fold::Min => call("minimum", Vec::new(), vec![acc, value]),
        };
        let pattern = keep(PatternAst::Name(self.acc));
        [masked, StmtAst::Assign { pattern, value: keep(next), span: SPAN }]
    }

    fn store(&self) -> StmtAst {
        let of = |reduce| call(reduce, Vec::new(), vec![name(self.acc), int(1)]);
        let total = match self.fold {
            Fold::Sum(_) => {
                let scale = name(text(format!("scale{}", self.number)));
                binary(BinaryOp::Mul, of("sum"), scale)
            }
            Fold::Max => of("max"),
            Fold::Min => of("min"),
        };
        let total = method(cast(total, self.stored), "col", Vec::new(), Vec::new());
        let place = array(vec![name("i"), name("part")]);
        let to = name(text(format!("y{}", self.number)));
        StmtAst::Expr(keep(method(to, "store", Vec::new(), vec![place, total])))
    }
}

/// Which axes of the walk values have; a number, which is no tile, has none of them.
struct Axes<'a> {
    leaves: &'a [Leaf],
    steps: Vec<Option<Access>>,
}

impl Axes<'_> {
    fn new(recipe: &Recipe) -> Axes<'_> {
        let mut axes = Axes { leaves: &recipe.leaves, steps: Vec::new() };
        for step in &recipe.steps {
            let all = step.inputs.iter().fold(None, |all, &input| joined(all, axes.of(input)));
            axes.steps.push(all);
        }
        axes
    }

    fn of(&self, from: Source) -> Option<Access> {
        match from {
            Source::Leaf(i) => Some(self.leaves[i].access),
            Source::Step(i) => self.steps[i],
            Source::Number(_) | Source::Param(_) => None,
        }
    }
}

/// The axes that either has.
fn joined(a: Option<Access>, b: Option<Access>) -> Option<Access> {
    match (a, b) {
        (None, other) | (other, None) => other,
        (Some(Access::One), other) | (other, Some(Access::One)) => other,
        (a, b) if a == b => a,
        _ => Some(Access::Full),
    }
}

/// A value over all of these axes.
fn repeated(value: ExprAst, axes: Option<Access>, extents: &[GenericAst]) -> ExprAst {
    let Some(axes) = axes else { return value };
    let last = extents.len() - 1;
    let has = |axis: usize| match axes {
        Access::Full => true,
        Access::Row => axis == last,
        Access::Column => axis == 0,
        Access::One => false,
    };
    let extent = |(axis, &extent): (usize, &GenericAst)| if has(axis) { extent } else { one() };
    let extents = extents.iter().enumerate().map(extent).collect();
    method(value, "broadcast_to", extents, Vec::new())
}

fn program() -> ExprAst {
    call("program_id", Vec::new(), vec![int(0)])
}

/// The extent of the first result along an axis.
fn extent(axis: i128) -> ExprAst {
    method(name("y0"), "dim", Vec::new(), vec![int(axis)])
}

/// Quotient and rest.
fn divided(a: &'static str, b: &'static str) -> (ExprAst, ExprAst) {
    (binary(BinaryOp::Div, name(a), name(b)), binary(BinaryOp::Rem, name(a), name(b)))
}

fn source(from: Source) -> ExprAst {
    match from {
        Source::Leaf(i) => name(text(format!("v{i}"))),
        Source::Step(i) => name(text(format!("s{i}"))),
        Source::Number(value) => number(value),
        Source::Param(i) => name(text(format!("p{i}"))),
    }
}

fn load(view: &'static str, leaf: Leaf, at: &[ExprAst], extents: &[GenericAst]) -> ExprAst {
    let one_axis = |at: ExprAst, extent: GenericAst| {
        method(name(view), "load", vec![extent], vec![array(vec![at])])
    };
    match leaf.access {
        Access::Full => method(name(view), "load", extents.to_vec(), vec![array(at.to_vec())]),
        Access::Row => method(one_axis(at[1], extents[1]), "row", Vec::new(), Vec::new()),
        Access::Column => method(one_axis(at[0], extents[0]), "col", Vec::new(), Vec::new()),
        Access::One => (1..extents.len()).fold(one_axis(int(0), one()), |value, _| {
            method(value, "expand_dims", Vec::new(), vec![int(0)])
        }),
    }
}

/// What changes nothing in a fold.
fn neutral(fold: Fold, wide: DType) -> ExprAst {
    let constant = |name| expr(ExprKind::DTypeConst(DTypeAst::Fixed(wide), name));
    match (fold, wide.is_float()) {
        (Fold::Sum(_), _) => number(Scalar::zero(wide)),
        (Fold::Max, true) => constant("NEG_INFINITY"),
        (Fold::Min, true) => constant("INFINITY"),
        (Fold::Max, false) => constant("MIN"),
        (Fold::Min, false) => constant("MAX"),
    }
}
