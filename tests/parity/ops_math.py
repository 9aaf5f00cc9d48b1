"""Elementwise ops, comparisons, promotion."""

import torch
from engine import BF16, BOOL, F16, F32, F64, FLOATS, I16, I32, I64, I8, INF, INTS, NAN, U8, T

# Name: the rule, the range where it is defined.
UNARY = {
    "neg": ("exact", None), "abs": ("exact", None), "floor": ("exact", None), "ceil": ("exact", None),
    "trunc": ("exact", None), "round": ("exact", None), "frac": ("arith", None), "sign": ("exact", None),
    "sqrt": ("arith", (0, 9)), "rsqrt": ("func", (0.1, 9)), "square": ("arith", None),
    "reciprocal": ("arith", None), "exp": ("func", None), "exp2": ("func", None),
    "expm1": ("func", None), "log": ("func", (0.01, 9)), "log2": ("func", (0.01, 9)),
    "log10": ("func", (0.01, 9)), "log1p": ("func", (-0.9, 9)), "sin": ("func", (-7, 7)),
    "cos": ("func", (-7, 7)), "tan": ("func", (-1.4, 1.4)), "asin": ("func", (-1, 1)),
    "acos": ("func", (-1, 1)), "atan": ("func", (-7, 7)), "sinh": ("func", None),
    "cosh": ("func", None), "tanh": ("func", None), "asinh": ("func", (-7, 7)),
    "acosh": ("func", (1.1, 9)), "atanh": ("func", (-0.95, 0.95)), "erf": ("func", None),
    "erfc": ("func", None), "erfinv": ("func", (-0.95, 0.95)), "sigmoid": ("func", (-7, 7)),
    "logit": ("sum", (0.05, 0.95)), "lgamma": ("sum", (0.1, 9)), "digamma": ("sum", (0.5, 9)),
    "sinc": ("sum", None), "deg2rad": ("func", None), "rad2deg": ("func", None),
    "isnan": ("exact", None), "isinf": ("exact", None), "isfinite": ("exact", None),
    "logical_not": ("exact", None), "positive": ("exact", None), "signbit": ("exact", None),
    "nan_to_num": ("exact", None), "isposinf": ("exact", None), "isneginf": ("exact", None),
}
PAIRS = {
    "add": "arith", "sub": "arith", "mul": "arith", "div": "arith", "maximum": "choice",
    "minimum": "choice", "fmax": "choice", "fmin": "choice", "atan2": "func", "fmod": "exact",
    "remainder": "arith", "floor_divide": "exact", "eq": "exact", "ne": "exact", "lt": "exact",
    "le": "exact", "gt": "exact", "ge": "exact", "logical_and": "exact", "logical_or": "exact",
    "logical_xor": "exact", "hypot": "func", "copysign": "exact", "logaddexp": "func",
    "logaddexp2": "sum", "heaviside": "exact", "xlogy": "func",
}
ALL = FLOATS + INTS + [BOOL]


def unary(g):
    for op, (rule, range) in UNARY.items():
        g.each(FLOATS, op, T(3, 5, range=range), rule=rule)
        for shape, lay in [((), "c"), ((0, 4), "c"), ((4, 6), "t"), ((2, 3, 4), "s"), ((7,), "o")]:
            g.each([F32, BF16], op, T(*shape, range=range, lay=lay), rule=rule)
        whole = (1, 9) if range and range[0] > 0 else (0, 2) if range else None
        g.each(INTS, op, T(6, range=whole), rule=rule, widens=True)
        g.case(op, T(4, dtype=BOOL), dtype=BOOL, rule=rule)
    g.each(INTS + [BOOL], "bitwise_not", T(3, 4))
    for decimals in (0, 1, 2, -1):
        g.each([F32, F64], "round", T(3, 5, range=(-99, 99)), decimals=decimals, rule="func")
    g.each(FLOATS, "round", T(9, values=[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, -0.4, 0.4]))
    for kw in ({}, {"nan": 2.0}, {"nan": 1.0, "posinf": 3.0, "neginf": -4.0}):
        g.each(FLOATS, "nan_to_num", T(12, of=[NAN, INF, -INF, 1.5]), **kw)


def binary(g):
    shapes = [((3, 5), (3, 5)), ((3, 5), (5,)), ((2, 1, 3), (4, 1)), ((), (3,)), ((0, 4), (4,)), ((), ())]
    for op, rule in PAIRS.items():
        divides = op in ("div", "fmod", "remainder", "floor_divide")
        for k, (a, b) in enumerate(shapes):
            for dtype in FLOATS if k == 0 else [F32, BF16, F64]:
                if op == "xlogy":
                    x, y = T(*a), T(*b, range=(0.1, 5))
                else:
                    x, y = T(*a, range=(-4, 4)), T(*b, range=(0.5, 4) if divides else (-3, 3))
                g.case(op, x, y, dtype=dtype, rule=rule)
        for dtype in INTS:
            y = T(5, range=(1, 6)) if divides or op == "xlogy" else T(5)
            g.case(op, T(3, 5), y, dtype=dtype, rule=rule, widens=op not in ("remainder", "floor_divide"))
        g.case(op, T(3, 4, lay="t"), T(3, 4, lay="s", range=(1, 3)), rule=rule)
        g.case(op, T(2, 3, 4, lay="e"), T(4, lay="o", range=(1, 3)), dtype=BF16, rule=rule)
        if not divides:
            g.case(op, T(4, dtype=BOOL), T(4, dtype=BOOL), dtype=BOOL, rule=rule)
        if op == "heaviside":
            continue
        # Promotion: each pair of dtypes, and tensors without axes beside others.
        for a, b in [(F32, F64), (F32, F16), (BF16, F16), (F16, F64), (I64, F32), (I32, F16), (U8, I8),
                     (I16, I64), (U8, I32), (BOOL, F32), (BOOL, I8), (I64, BF16)]:
            wide = divides or op == "xlogy"
            if wide and BOOL in (a, b):
                continue
            y = T(4, dtype=b, range=(1, 4)) if wide else T(4, dtype=b)
            g.case(op, T(4, dtype=a), y, dtype=a, rule=rule if F16 not in (a, b) and BF16 not in (a, b) else "sum")
        for a, b in [(F32, F64), (BF16, F32), (I32, I64), (I32, F64), (BOOL, I64)]:
            if divides and a == BOOL:
                continue
            y = T(dtype=b, range=(1, 4)) if divides or op == "xlogy" else T(dtype=b)
            # A number without axes is rounded to the dtype of the others first: PyTorch's answer counts.
            g.case(op, T(4, dtype=a, range=(1, 4)) if a != BOOL else T(4, dtype=a), y, dtype=a,
                   rule="sum" if a == BF16 else rule, plain=True, grad=False)
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        g.each(INTS + [BOOL], op, T(3, 5), T(5))
        g.case(op, T(4, dtype=I64), T(4, dtype=U8), dtype=I64)
        g.each([I64, I32, U8], op, T(5), 6)
        g.case(op, T(4), T(4), dtype=F32, fails=True)
    for op in ("bitwise_left_shift", "bitwise_right_shift"):
        g.each(INTS, op, T(3, 5), T(5, range=(0, 5)))
        g.each([I64, U8], op, T(5), 2)
    for op in ("gcd", "lcm"):
        g.each([I64, I32], op, T(3, 5), T(5, range=(1, 9)))


def with_numbers(g):
    for op in ("add", "sub", "mul", "div", "remainder", "fmod", "floor_divide", "eq", "ne", "lt", "le", "gt", "ge"):
        rule = PAIRS[op]
        for dtype in FLOATS + INTS:
            if op == "sub" and dtype == BOOL:
                continue
            # A number may be computed with before or after it is rounded to 16 bits.
            half = "sum" if dtype in (BF16, F16) and rule == "arith" else rule
            g.case(op, T(3, 5), 3, dtype=dtype, rule=half, widens=op == "div")
            g.case(op, T(3, 5), 2.5, dtype=dtype, rule=half, widens=True)
            g.case(op, T(), 2.5, dtype=dtype, rule=half, widens=True)
        if op not in ("sub", "remainder", "fmod", "floor_divide"):
            g.case(op, T(5, dtype=BOOL), 2, dtype=BOOL, rule=rule)
            g.case(op, T(5, dtype=BOOL), 2.5, dtype=BOOL, rule=rule)
    for dtype in FLOATS:
        rule = "sum"
        for p in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 0.0):
            g.case("pow", T(3, 5, range=(0.1, 4)), p, dtype=dtype, rule=rule)
        g.case("pow", T(3, 5, range=(-4, 4)), 3, dtype=dtype, rule=rule)
        g.case("pow", T(3, 5, range=(-4, 4)), 2.5, dtype=dtype, rule=rule)
        g.case("pow", T(3, 5, range=(0.1, 4)), T(5, range=(-2, 2)), dtype=dtype, rule=rule)
        g.case("pow", 2.0, T(3, 5, range=(-2, 2)), dtype=dtype, rule=rule)
        g.case("pow", T(9, values=[0, 0, 0, -1, -1, 1, 2, -2, 0.5]), T(9, values=[0, 1, -1, 2, 3, NAN, INF, -INF, 0]),
               dtype=dtype, rule=rule)
        for op in ("add", "sub"):
            g.case(op, T(3, 5), T(5), alpha=2.5, dtype=dtype, rule="sum")
            g.case(op, T(3, 5), 1.5, alpha=2, dtype=dtype, rule="sum")
        for mode in ("floor", "trunc"):
            g.case("div", T(3, 5, range=(-9, 9)), T(5, range=(0.5, 3)), rounding_mode=mode, dtype=dtype)
            g.case("div", T(3, 5, range=(-9, 9)), 2.5, rounding_mode=mode, dtype=dtype)
    for dtype in INTS:
        g.case("pow", T(5, range=(0, 4)), T(5, range=(0, 4)), dtype=dtype)
        g.case("pow", T(5, range=(0, 4)), 3, dtype=dtype)
        g.case("pow", T(5, range=(1, 4)), 0.5, dtype=dtype, rule="func", widens=True)
        g.case("add", T(3, 5), T(5), alpha=2, dtype=dtype)
        for mode in ("floor", "trunc"):
            g.case("div", T(3, 5), T(5, range=(1, 4)), rounding_mode=mode, dtype=dtype)
            g.case("div", T(3, 5), 3, rounding_mode=mode, dtype=dtype)
    g.case("add", T(3), T(4), fails=True)
    g.case("add", T(3, dtype=I64), T(3, dtype=I64), alpha=1.5, dtype=I64, fails=True)
    g.case("sub", T(3, dtype=BOOL), T(3, dtype=BOOL), dtype=BOOL, fails=True)
    g.case("pow", T(3, dtype=I64), -1, dtype=I64, fails=True)
    for op in ("rsub",):
        g.each(FLOATS + INTS, op, T(3, 5), 3)
    for op in ("rsub",):
        g.each(FLOATS, op, T(3, 5), T(5), rule="arith")


def where(x, condition, other):
    """The operand first, as in a method."""
    return torch.where(condition, x, other)


def chosen(g):
    """Clamps, where, fills, blends."""
    for dtype in FLOATS + INTS:
        low, high = (-1.0, 1.0) if dtype.is_floating_point else (2, 5)
        g.case("clamp", T(3, 5), low, high, dtype=dtype)
        g.case("clamp", T(3, 5), min=low, dtype=dtype)
        g.case("clamp", T(3, 5), max=high, dtype=dtype)
        g.case("clamp", T(3, 5), high, low, dtype=dtype)
        g.case("clamp", T(3, 5), T(5), T(3, 1), dtype=dtype)
        g.case("clamp", T(3, 5), min=T(5), dtype=dtype)
        g.case("clamp_min", T(3, 5), T(5), dtype=dtype)
        g.case("clamp_max", T(3, 5), T(3, 1), dtype=dtype)
        g.case("clamp_min", T(3, 5), low, variant="number", dtype=dtype)
        g.case("clamp_max", T(3, 5), high, variant="number", dtype=dtype)
        g.case("where", T(3, 5), T(3, 5, dtype=BOOL), T(5), dtype=dtype, call=where)
        g.case("where", T(5), T(3, 1, dtype=BOOL), T(3, 5, lay="t"), dtype=dtype, call=where)
        g.case("where", T(4), T(4, dtype=BOOL), 2, dtype=dtype, call=where)
        g.case("where", T(), T(4, dtype=BOOL), T(4), dtype=dtype, call=where)
        g.case("masked_fill", T(3, 5), T(5, dtype=BOOL), 3, dtype=dtype)
        g.case("masked_fill", T(3, 5, lay="s"), T(3, 1, dtype=BOOL), 2, dtype=dtype)
        g.case("masked_fill", T(3, 5), T(3, 5, dtype=BOOL), T(), dtype=dtype)
    g.case("clamp", T(4, dtype=I64), 1.5, 3.5, dtype=I64)
    g.case("clamp", T(4, dtype=I64), T(4, dtype=F32), dtype=I64)
    g.case("clamp", T(4), fails=True)
    g.case("where", T(4, dtype=I64), T(4, dtype=BOOL), T(4, dtype=F32), dtype=I64, call=where)
    g.case("where", T(4, dtype=F16), T(4, dtype=BOOL), T(4, dtype=F64), dtype=F16, call=where)
    g.case("where", T(4), T(3, dtype=BOOL), T(4), fails=True, call=where)
    g.case("where", T(4, dtype=BOOL), T(4, dtype=BOOL), T(4, dtype=BOOL), dtype=BOOL, call=where)
    for dtype in FLOATS:
        if dtype in (F32, F64):
            # The weight is a tensor here, so that 16 bits would round it.
            g.case("lerp", T(3, 5), T(5), 0.3, dtype=dtype, rule="sum")
            g.case("lerp", T(3, 5), T(5), 0.7, dtype=dtype, rule="sum")
        g.case("lerp", T(3, 5), T(3, 5), T(5, range=(0, 1)), dtype=dtype, rule="sum")
        g.case("addcmul", T(3, 5), T(5), T(3, 1), dtype=dtype, rule="sum")
        g.case("addcmul", T(3, 5), T(5), T(3, 1), value=0.5, dtype=dtype, rule="sum")
        g.case("addcdiv", T(3, 5), T(5), T(3, 1, range=(1, 3)), dtype=dtype, rule="sum")
        g.case("addcdiv", T(3, 5), T(5), T(3, 1, range=(1, 3)), value=0.5, dtype=dtype, rule="sum")
    for a in ALL:
        for b in ALL:
            g.case("to", T(2, 5, lay="t") if a == BOOL else T(2, 5, range=(0, 9), lay="t"), b, dtype=a, grad=b.is_floating_point)
    g.case("to", T(9, values=[0.5, -0.5, 1.9, -1.9, 126.7, 0.0, 1.0, 2.0, 3.0]), I32)
    for dtype in [F16, BF16]:
        g.case("to", T(200, range=(-70000, 70000)), dtype)
        g.case("to", T(200, range=(-1e-6, 1e-6)), dtype)
        g.case("to", T(200, range=(-1, 1), dtype=F64), dtype, dtype=F64)
    g.each(FLOATS, "isclose", T(6, of=[1.0, 1.00001, 2.0, NAN, INF]), T(6, of=[1.0, 1.00001, 2.0, NAN, INF]))
    g.case("isclose", T(6, of=[1.0, NAN]), T(6, of=[1.0, NAN]), equal_nan=True)
    g.each([F32, I64], "allclose", T(6), T(6))
    g.each([F32, I64, BOOL], "equal", T(6), T(6))
    for v in (1, 4):
        g.each([F32, I64], "float_power", T(5, range=(1, 4)), v, rule="func", widens=True)


def build(g):
    unary(g)
    binary(g)
    with_numbers(g)
    chosen(g)
