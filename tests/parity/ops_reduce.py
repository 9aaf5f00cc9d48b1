"""Creation, reductions, scans, products of matrices."""

import torch
from engine import BF16, BOOL, F16, F32, F64, FLOATS, I16, I32, I64, I8, INTS, U8, T

SHAPES = [((), "c"), ((7,), "c"), ((3, 5), "c"), ((2, 3, 4), "c"), ((4, 6), "t"), ((2, 3, 4), "s"), ((3, 70), "o"), ((3, 4), "e")]
# Which axes of which shape: (shape, axes).
OVER = [((3, 5), 0), ((3, 5), -1), ((2, 3, 4), 1), ((2, 3, 4), (0, 2)), ((2, 3, 4), (-1, -2)),
        ((2, 3, 4), (0, 1, 2)), ((2, 1, 4), 1), ((2, 0, 4), 0)]


def fold(g, op, rule, dtypes, many=True, **kwargs):
    """A reduction: of all, of one axis, of several, kept and not."""
    for shape, lay in SHAPES:
        g.each(dtypes if shape == (3, 5) else [F32, BF16], op, T(*shape, lay=lay), rule=rule, **kwargs)
    for shape, axes in OVER:
        for keep in (False, True):
            if not many and isinstance(axes, tuple):
                continue
            some = dtypes if shape == (3, 5) else [F32]
            g.each(some, op, T(*shape), axes, keepdim=keep, rule=rule, **kwargs)
    g.case(op, T(4, 6, lay="t"), 0, rule=rule, **kwargs)
    g.case(op, T(2, 3, 4, lay="s"), -1, dtype=BF16, rule=rule, **kwargs)
    g.case(op, T(2, 3), 2, fails=True)
    g.case(op, T(2, 3), -3, fails=True)


def reductions(g):
    numbers = FLOATS + INTS + [BOOL]
    fold(g, "sum", "sum", numbers)
    for op in ("sum", "mean"):
        for a, b in [(BF16, F32), (F16, F64), (F32, F64), (I64, F32), (I32, F64), (BOOL, F32)]:
            g.case(op, T(3, 5), dtype=a, dtype_=b, rule="sum", widens=True)
            g.case(op, T(3, 5), 1, dtype=a, dtype_=b, rule="sum", widens=True)
    for op in ("prod", "cumsum", "cumprod"):
        for a, b in [(BF16, F32), (F32, F64), (I32, F32)]:
            g.case(op, T(3, 5), 1, dtype=a, dtype_=b, rule="sum", widens=True)
    fold(g, "mean", "sum", FLOATS)
    g.case("mean", T(3, dtype=I64), dtype=I64, fails=True)
    fold(g, "nansum", "sum", FLOATS)
    fold(g, "amax", "exact", numbers)
    fold(g, "amin", "exact", numbers)
    fold(g, "any", "exact", numbers)
    fold(g, "all", "exact", numbers)
    for shape, axes in OVER:
        for keep in (False, True):
            g.each(FLOATS, "logsumexp", T(*shape), axes, keepdim=keep, rule="sum")
    fold(g, "prod", "sum", numbers, many=False)
    for dtype in (F32, BF16, I64, BOOL):
        g.case("count_nonzero", T(3, 5, of=[0, 1, 2]), dtype=dtype)
        g.case("count_nonzero", T(3, 5, of=[0, 1, 2]), 1, dtype=dtype)
        g.case("count_nonzero", T(2, 3, 4, of=[0, 1]), (0, 2), dtype=dtype)
    for op in ("var", "std"):
        for shape, axes in OVER[:-1]:
            for correction in (0, 1):
                g.each(FLOATS if shape == (3, 5) else [F32], op, T(*shape), dim=axes, correction=correction, keepdim=correction == 0, rule="sum")
        g.each(FLOATS, op, T(4, 6, lay="t"), rule="sum")
        g.each(FLOATS, op, T(3, 5), False, rule="sum")
        g.case(op, T(1), rule="sum")
        g.case(op, T(0), rule="sum")
    for op in ("var_mean", "std_mean"):
        g.each(FLOATS, op, T(3, 5), dim=1, correction=1, rule="sum")
        g.each([F32], op, T(2, 3, 4), dim=(0, 2), correction=0, keepdim=True, rule="sum")
    for p in (0, 1, 2, 3, 0.5, float("inf"), -float("inf"), -1.0):
        g.each(FLOATS, "linalg.vector_norm", T(3, 5, range=(0.2, 2)), p, rule="sum")
        g.each([F32, BF16], "linalg.vector_norm", T(3, 5, range=(0.2, 2)), p, -1, keepdim=True, rule="sum")
        g.each([F32], "norm", T(2, 3, 4, range=(0.2, 2)), p, dim=(0, 2), rule="sum")
    g.each(FLOATS, "norm", T(3, 5), rule="sum")
    for op in ("argmax", "argmin"):
        for shape, lay in SHAPES[1:]:
            g.each([F32, BF16, I64], op, T(*shape, lay=lay))
        for shape, axes in OVER:
            if isinstance(axes, int) and 0 not in shape:
                for keep in (False, True):
                    g.each(FLOATS + INTS, op, T(*shape), axes, keepdim=keep)
        g.each([F32, I64], op, T(40, of=[1, 2, 3]))
        g.case(op, T(0), fails=True)
        g.case(op, T(3, 0), 1, fails=True)
    for op in ("max", "min"):
        g.each(numbers, op, T(3, 5))
        g.each([F32, BF16], op, T(2, 3, 4, lay="s"))
        g.each(numbers, op, T(3, 5), 0)
        g.each(numbers, op, T(3, 5), -1, keepdim=True)
        g.each([F32, I64], op, T(2, 3, 4, of=[1, 2]), 1)
        g.each([F32], op, T(), 0)
        g.each(FLOATS + INTS, op, T(3, 5), T(5))
        g.case(op, T(0), fails=True)
        g.case(op, T(3, 0), 1, fails=True)
    g.each(FLOATS, "aminmax", T(3, 5))
    g.each([F32], "aminmax", T(3, 5), dim=1, keepdim=True)
    for op in ("median", "nanmedian"):
        g.each(FLOATS + [I64], op, T(3, 5))
        g.each(FLOATS + [I64], op, T(3, 5), 1)
        g.each([F32], op, T(2, 4, 3), 1, keepdim=True)
        g.each([F32], op, T(4, 6, lay="t"), 0)
    g.each([F32, I64], "mode", T(3, 7, of=[1, 2, 3]), -1)
    g.each([F32, F64], "kthvalue", T(3, 7), 2)
    g.each([F32, F64], "kthvalue", T(3, 7), 3, dim=0, keepdim=True)
    for q in (0.0, 0.3, 0.5, 1.0):
        g.each([F32, F64], "quantile", T(3, 7), q, rule="sum")
        g.each([F32], "quantile", T(3, 7), q, dim=1, keepdim=True, rule="sum")
    g.each([F32, F64], "cov", T(3, 7), rule="sum")
    g.each([F32, F64], "corrcoef", T(3, 7), rule="sum")
    g.each([F32, BF16, I64], "diff", T(3, 7), rule="arith")
    g.each([F32], "diff", T(5, 3), dim=0, rule="arith")
    g.each([F32, F64], "dist", T(3, 7), T(3, 7), rule="sum")
    g.each([F32, F64], "cdist", T(3, 4), T(5, 4), rule="sum")


def scans(g):
    for op in ("cumsum", "cumprod"):
        for shape, lay in SHAPES:
            if shape:
                g.each(FLOATS + INTS if shape == (3, 5) else [F32, BF16], op, T(*shape, lay=lay, range=(0.5, 2)), -1, rule="sum")
                g.each([F32, I64], op, T(*shape, lay=lay), 0, rule="sum")
        g.case(op, T(), 0, rule="sum")
        g.case(op, T(0, 3), 0, rule="sum")
        g.case(op, T(3, dtype=BOOL), 0, dtype=BOOL)
        g.case(op, T(3), 1, fails=True)
        g.each([F32, F64], op, T(6, of=[0, 1, 2, 3]), 0, rule="sum")
    for op in ("cummax", "cummin"):
        g.each(FLOATS + INTS, op, T(3, 5), 1)
        g.each([F32, I64], op, T(3, 5), 0)
        g.each([F32], op, T(2, 9, of=[1, 2, 3]), -1)
        g.each([BF16], op, T(4, 6, lay="t"), -1)
    g.each(FLOATS, "logcumsumexp", T(3, 5), 1, rule="sum")


def products(g):
    pairs = [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (2, 4, 5)),
             ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((2, 3, 4), (4,)),
             ((1, 1), (1, 1)), ((0, 4), (4, 3)), ((3, 0), (0, 4)), ((17, 33), (33, 9)), ((2, 0, 3), (2, 3, 4))]
    for a, b in pairs:
        g.each(FLOATS, "matmul", T(*a), T(*b), rule="sum")
        g.case("matmul", T(*a, lay="t"), T(*b, lay="s"), rule="sum")
    g.each(INTS, "matmul", T(3, 4), T(4, 5))
    for a, b in [((3, 4), (5, 4)), ((), (3,)), ((2, 3, 4), (3, 4, 5))]:
        g.case("matmul", T(*a), T(*b), fails=True)
    g.case("matmul", T(3, 4), T(4, 5, dtype=F64), fails=True)
    g.each(FLOATS, "mm", T(3, 4), T(4, 5), rule="sum")
    g.case("mm", T(3, 4), T(4), fails=True)
    g.each(FLOATS, "bmm", T(2, 3, 4), T(2, 4, 5), rule="sum")
    g.case("bmm", T(2, 3, 4), T(3, 4, 5), fails=True)
    g.each(FLOATS, "mv", T(3, 4), T(4), rule="sum")
    g.each(FLOATS, "dot", T(7), T(7), rule="sum")
    g.each(FLOATS, "inner", T(3, 4), T(5, 4), rule="sum")
    g.each(FLOATS + INTS, "outer", T(3), T(4), rule="arith")
    g.each(FLOATS, "kron", T(2, 3), T(3, 2), rule="arith")
    g.each([F32, I64], "cross", T(4, 3), T(4, 3), dim=1, rule="sum")
    g.each([F32], "tensordot", T(3, 4, 5), T(4, 5, 2), dims=2, rule="sum")
    g.each(FLOATS + INTS, "trace", T(3, 3), rule="sum")
    g.each(FLOATS, "linalg.multi_dot", [T(3, 4), T(4, 5), T(5, 2)], rule="sum")
    for dtype in FLOATS:
        for kw in ({}, {"alpha": 0.5}, {"beta": 0.5}, {"alpha": 2.0, "beta": 0.0}):
            g.case("addmm", T(3, 5), T(3, 4), T(4, 5), dtype=dtype, rule="sum", **kw)
            g.case("baddbmm", T(2, 3, 5), T(2, 3, 4), T(2, 4, 5), dtype=dtype, rule="sum", **kw)
            g.case("addmv", T(3), T(3, 4), T(4), dtype=dtype, rule="sum", **kw)
        g.case("addmm", T(5), T(3, 4), T(4, 5), dtype=dtype, rule="sum")
        g.case("addbmm", T(3, 5), T(2, 3, 4), T(2, 4, 5), dtype=dtype, rule="sum")
        g.case("addr", T(3, 5), T(3), T(5), dtype=dtype, rule="sum")
    forms = [("ij,jk->ik", [(3, 4), (4, 5)]), ("ij->ji", [(3, 4)]), ("ii->i", [(4, 4)]), ("ii", [(4, 4)]),
             ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("i,j->ij", [(3,), (4,)]), ("ij->", [(3, 4)]),
             ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
             ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]), ("ij,ij->i", [(3, 4), (3, 4)]), ("ij,kj", [(3, 4), (5, 4)])]
    for form, shapes in forms:
        call = lambda operands, form: torch.einsum(form, *operands)
        g.each(FLOATS, "einsum", [T(*s) for s in shapes], form, rule="sum", call=call)
    g.case("einsum", [T(3, 4), T(5, 6)], "ij,jk->ik", fails=True, call=lambda o, f: torch.einsum(f, *o))


def creation(g):
    kinds = FLOATS + INTS + [BOOL]
    for dtype in kinds:
        for shape in ([], [3], [2, 3], [0, 4]):
            made(g, "zeros", dtype, shape)
            made(g, "ones", dtype, shape)
            made(g, "full", dtype, shape, 1 if dtype == BOOL else 3)
        if dtype != BOOL:
            made(g, "eye", dtype, 3)
            made(g, "eye", dtype, 3, 5)
            made(g, "eye", dtype, 4, 2)
            made(g, "arange", dtype, 0, 7, 2)
            made(g, "arange", dtype, 5)
            made(g, "arange", dtype, 5, 0, -2)
            made(g, "linspace", dtype, 0, 8, 5)
    for dtype in FLOATS:
        made(g, "linspace", dtype, -1.5, 2.5, 7)
        made(g, "linspace", dtype, 2.0, 2.0, 1)
        made(g, "linspace", dtype, 3.0, -1.0, 4)
        made(g, "logspace", dtype, 0.0, 2.0, 5)
        made(g, "arange", dtype, 0.5, 3.0, 0.25)
    made(g, "arange", F32, 0, 5, 0, fails=True)
    made(g, "arange", F32, 0, 5, -1, fails=True)
    for op in ("zeros_like", "ones_like"):
        g.each(kinds, op, T(2, 3, lay="t"), grad=False)
    g.each(kinds, "full_like", T(2, 3), 1, grad=False)


def made(g, op, dtype, *args, fails=False):
    """A creation in a dtype."""
    rule = "sum" if op in ("linspace", "logspace") else "exact"
    g.case(op, *args, dtype=dtype, rule=rule, grad=False, fails=fails, dtype_=dtype)


def build(g):
    reductions(g)
    scans(g)
    products(g)
    creation(g)
