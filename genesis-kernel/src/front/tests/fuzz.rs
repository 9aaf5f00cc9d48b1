//! Random syntax: whatever the tree is, the front end answers with a function or a diagnostic.

use super::asts::*;
use crate::front::ast::*;
use crate::ir::verify::verify;
use crate::ir::{BinaryOp, DType, Predicate};

/// A small generator of numbers; the seeds are fixed, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

const NAMES: [&str; 12] = ["x", "out", "v", "n", "m", "flag", "s", "a", "b", "t", "unknown", "i"];
const FUNCTIONS: [&str; 40] = [
    "program_id",
    "arange",
    "zeros",
    "full",
    "row",
    "col",
    "expand_dims",
    "squeeze",
    "reshape",
    "broadcast_to",
    "trans",
    "permute",
    "join",
    "split",
    "where_",
    "load",
    "store",
    "atomic_add",
    "atomic_cas",
    "dot",
    "sum",
    "max",
    "argmax",
    "any",
    "reduce",
    "associative_scan",
    "cumsum",
    "exp",
    "abs",
    "fma",
    "minimum",
    "clamp",
    "cdiv",
    "umulhi",
    "is_nan",
    "rand",
    "randn",
    "randint",
    "multiple_of",
    "grouped",
];
const METHODS: [&str; 8] = ["to", "row", "col", "dim", "stride", "load", "store", "nothing"];

fn random_expr(dice: &mut Dice, depth: usize) -> ExprAst {
    if depth == 0 || dice.below(4) == 0 {
        return leaf(dice);
    }
    let sub = |dice: &mut Dice| random_expr(dice, depth - 1);
    match dice.below(14) {
        0..3 => {
            let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::And];
            let op = dice.pick(&ops);
            binary(op, sub(dice), sub(dice))
        }
        3 => {
            let predicate = dice.pick(&[Predicate::Eq, Predicate::Lt, Predicate::Ge]);
            expr(ExprKind::Compare(predicate, leak(sub(dice)), leak(sub(dice))))
        }
        4 => expr(ExprKind::AndThen(leak(sub(dice)), leak(sub(dice)))),
        5 => expr(ExprKind::Not(leak(sub(dice)))),
        6 => expr(ExprKind::Neg(leak(sub(dice)))),
        7 => expr(ExprKind::Tuple(leak_all(vec![sub(dice), sub(dice)]))),
        8 => expr(ExprKind::Array(leak_all(vec![sub(dice), sub(dice)]))),
        9 => expr(ExprKind::Field(leak(sub(dice)), dice.below(3) as u32)),
        10 => {
            let then = random_block(dice, depth - 1);
            let otherwise = Some(random_block(dice, depth - 1));
            expr(ExprKind::If { cond: leak(sub(dice)), then, otherwise })
        }
        11 => {
            let name = dice.pick(&METHODS);
            let args = (0..dice.below(3)).map(|_| sub(dice)).collect();
            method(sub(dice), name, random_generics(dice), args)
        }
        _ => {
            let name = dice.pick(&FUNCTIONS);
            let args = (0..dice.below(4)).map(|_| sub(dice)).collect();
            call(name, random_generics(dice), args)
        }
    }
}

fn leaf(dice: &mut Dice) -> ExprAst {
    match dice.below(8) {
        0 => int(dice.pick(&[0, 1, 2, -1, i128::MAX, 1 << 70])),
        1 => float(dice.pick(&[0.0, 1.5, f64::NAN, f64::INFINITY])),
        2 => expr(ExprKind::Bool(dice.below(2) == 0)),
        3 => zeros(dice.pick(&DType::ALL), &[dice.pick(&[1, 2, 8])]),
        4 => zeros(dice.pick(&DType::ALL), &[dice.pick(&[1, 8]), dice.pick(&[1, 8])]),
        _ => name(dice.pick(&NAMES)),
    }
}

fn random_generics(dice: &mut Dice) -> Vec<GenericAst> {
    let one = |dice: &mut Dice| match dice.below(3) {
        0 => dtype(dice.pick(&DType::ALL)),
        1 => GenericAst::Const(leak(leaf(dice))),
        _ => extent(dice.pick(&[1, 2, 8, 0, -3, 1 << 40])),
    };
    (0..dice.below(4)).map(|_| one(dice)).collect()
}

fn random_block(dice: &mut Dice, depth: usize) -> &'static BlockAst {
    let stmts = (0..dice.below(4)).map(|_| random_stmt(dice, depth)).collect();
    let value = if dice.below(2) == 0 { Some(random_expr(dice, depth)) } else { None };
    block(stmts, value)
}

fn random_stmt(dice: &mut Dice, depth: usize) -> StmtAst {
    let variable = dice.pick(&["a", "b", "t"]);
    match dice.below(if depth == 0 { 3 } else { 7 }) {
        0 | 1 => let_(variable, random_expr(dice, depth)),
        2 => assign(variable, random_expr(dice, depth)),
        3 => StmtAst::For {
            pattern: leak(PatternAst::Name("i")),
            iter: leak(IterAst::Range {
                start: leak(random_expr(dice, 1)),
                end: leak(random_expr(dice, 1)),
                step: (dice.below(3) == 0).then(|| leak(random_expr(dice, 1)) as &_),
                stages: 0,
                unroll: 0,
                is_static: dice.below(4) == 0,
            }),
            body: random_block(dice, depth - 1),
            span: SPAN,
        },
        4 => StmtAst::While {
            cond: leak(random_expr(dice, 2)),
            body: random_block(dice, depth - 1),
            span: SPAN,
        },
        5 => StmtAst::Return { value: None, span: SPAN },
        _ => stmt(random_expr(dice, depth)),
    }
}

#[test]
fn no_syntax_panics() {
    let mut accepted = 0;
    for seed in 0..20000 {
        let mut dice = Dice(seed * 7919 + 1);
        let mut stmts = vec![let_("a", int(0)), let_("b", float(0.0)), let_("t", name("s"))];
        stmts.extend((0..1 + dice.below(3)).map(|_| random_stmt(&mut dice, 3)));
        if let Ok(func) = lower(stmts) {
            accepted += 1;
            if let Err(problem) = verify(&func) {
                panic!("seed {seed}: {problem}\n{func}");
            }
        }
    }
    assert!(accepted > 500, "only {accepted} of 20000 were accepted");
}

#[test]
fn numbers_from_literals_become_bools() {
    let bools = || name("flag");
    let choice = |a, b| call("where_", Vec::new(), vec![bools(), int(a), int(b)]);
    let difference = binary(BinaryOp::Sub, choice(3, 1), choice(1, 3));
    let as_bool = method(difference, "to", vec![dtype(DType::Bool)], Vec::new());
    let func =
        lower(vec![let_("a", as_bool), stmt(call("store", vec![], vec![name("out"), int(1)]))]);
    let func = func.expect("the language has it");
    verify(&func).unwrap_or_else(|problem| panic!("{problem}\n{func}"));
}

#[test]
fn deep_nesting_is_refused_and_not_a_crash() {
    let mut deep = name("n");
    for _ in 0..3000 {
        deep = add(deep, int(1));
    }
    assert!(refusal(vec![let_("a", deep)]).starts_with("this is nested over"));
}

#[test]
fn recursion_through_another_function_is_refused() {
    // A leaf calls the kernel itself, which is the one cycle that can be made by hand.
    static CALLEE: FnAst = FnAst {
        name: "f",
        module: "tests",
        file: "no such file",
        span: SPAN,
        doc: "",
        dtypes: &[],
        consts: &[],
        params: &[],
        body: &BlockAst {
            stmts: &[],
            value: Some(&ExprAst {
                span: SPAN,
                kind: ExprKind::Device { callee: &CALLEE, generics: &[], args: &[] },
            }),
        },
        contract: false,
        ret: None,
    };
    let text = refusal(vec![let_("a", device(&CALLEE, vec![]))]);
    assert_eq!(text, "`f` calls itself\n  help: device functions are inlined; write a loop");
}
