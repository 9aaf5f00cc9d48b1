"""NaN, infinities, zeros with a sign, denormals, empty and huge rows, widths of language models."""

from engine import BF16, BOOL, F16, F32, F64, FLOATS, I64, INF, NAN, T
from ops_index import stable
from ops_math import PAIRS, UNARY, where

ODD = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.5]
TINY = [1e-40, -1e-40, 1e-44, 1.2e-38, 3e-39, -2e-38, 0.0, -0.0]
F = "nn.functional."
WIDTHS = [768, 896, 4864, 151936]


def elementwise(g):
    for op, (rule, _) in UNARY.items():
        if op in ("lgamma", "digamma", "sinc", "logit"):
            continue
        # NaN has a sign that nobody promises.
        odd = [1.5, *ODD[1:]] if op == "signbit" else ODD
        g.each(FLOATS, op, T(8, values=odd), rule=rule, grad=op in ("neg", "abs", "exp", "sqrt", "tanh", "sigmoid"))
        g.each([F32, F64], op, T(8, values=TINY), rule=rule, grad=False)
    for op in ("exp", "sigmoid", "tanh", "erf", "expm1", "exp2", "log1p", "cosh"):
        g.each(FLOATS, op, T(8, values=[88.0, 89.0, -104.0, -87.5, 710.0, -746.0, 11.1, -17.0]), rule=UNARY[op][0], grad=False)
    pairs = [(a, b) for a in ODD for b in ODD]
    for op, rule in PAIRS.items():
        if op in ("heaviside",):
            continue
        left, right = [a for a, _ in pairs], [b for _, b in pairs]
        if op == "copysign":
            right = [1.5 if b != b else b for b in right]
        g.each(FLOATS, op, T(64, values=left), T(64, values=right), rule=rule, grad=False)
    for op in ("add", "sub", "mul", "div"):
        g.case(op, T(8, values=TINY), T(8, values=TINY[::-1]), rule="arith", grad=False)
        g.case(op, T(8, values=TINY), 0.5, rule="arith", grad=False)
        g.case(op, T(8, values=TINY[::-1]), 2.0, rule="arith", grad=False)
    g.each(FLOATS, "pow", T(64, values=[a for a, _ in pairs]), T(64, values=[b for _, b in pairs]), rule="sum", grad=False)
    for p in (2, 3, -1, 0.5, 0):
        # PyTorch's square root of -infinity is NaN in all dtypes but f16.
        g.each(FLOATS[:3] if p == 0.5 else FLOATS, "pow", T(8, values=ODD), p, rule="sum", grad=False)
    for name in ("relu", "relu6", "silu", "mish", "hardswish", "hardsigmoid", "gelu", "elu", "selu", "leaky_relu",
                 "softplus", "hardtanh", "softsign", "logsigmoid", "tanhshrink", "celu"):
        g.each(FLOATS, F + name, T(12, values=[*ODD, 100.0, -100.0, 1e-6, -1e-6]), rule="sum", grad=False)
    g.each([F32, BF16], F + "gelu", T(8, values=ODD), approximate="tanh", rule="sum", grad=False)


def choices(g):
    """NaN wins in maxima and minima, and stands last in order."""
    some = dict(of=[NAN, 1.0, 2.0, 3.0, -INF, INF])
    rare = dict(of=[1.0, 2.0, 3.0, 4.0, NAN, 5.0, 6.0, -0.0, 0.0])
    for dtype in FLOATS:
        for op in ("amax", "amin", "sum", "mean", "prod", "all", "any"):
            rule = "sum" if op in ("sum", "mean", "prod") else "choice"
            g.case(op, T(6, 5, **rare), 1, dtype=dtype, rule=rule, grad=False)
            g.case(op, T(6, 5, of=[1.0, INF, 2.0]), 0, dtype=dtype, rule=rule, grad=False)
            g.case(op, T(6, 5, of=[1.0, INF, -INF, 3.0]), 0, dtype=dtype, rule=rule, grad=False)
        for op in ("max", "min", "cummax", "cummin", "argmax", "argmin", "median", "nanmedian"):
            g.case(op, T(6, 5, **rare), 1, dtype=dtype, rule="choice")
            if "median" not in op:
                # Of equal elements its index may be any.
                g.case(op, T(6, 5, of=[NAN, NAN, 1.0]), 1, dtype=dtype)
            g.case(op, T(6, 5, of=[INF, -INF]), 1, dtype=dtype)
            g.case(op, T(4, 5, values=[-0.0, 0.0, 0.0, -0.0, 0.0]), 1, dtype=dtype, rule="choice", grad=False)
        for op in ("cumsum", "cumprod", "logsumexp", "var", "std"):
            g.case(op, T(6, 5, **rare), 1, dtype=dtype, rule="sum", grad=False)
            g.case(op, T(6, 5, of=[1.0, 2.0, INF]), 1, dtype=dtype, rule="sum", grad=False)
        g.case("logsumexp", T(3, 4, values=[-INF]), 1, dtype=dtype, rule="sum", grad=False)
        for down in (False, True):
            g.case("sort", T(6, 9, **some), 1, down, variant="stable", call=stable, dtype=dtype)
            g.case("argsort", T(6, 9, **some), dim=1, descending=down, stable=True, dtype=dtype)
            g.case("sort", T(4, 5, values=[-0.0, 0.0, 1.0, -0.0, 0.0]), 1, down, variant="stable", call=stable, dtype=dtype)
        for largest in (True, False):
            g.case("topk", T(4, values=[1.0, NAN, INF, -INF]), 3, -1, largest, dtype=dtype)
            g.case("topk", T(7, values=[3.0, -1.0, 2.0, INF, -INF, 5.0, NAN]), 5, -1, largest, dtype=dtype)
        g.case("clamp", T(8, values=ODD), -1.5, 1.5, rule="choice", dtype=dtype)
        g.case("clamp", T(8, values=ODD), NAN, 1.5, rule="choice", dtype=dtype, grad=False)
        g.case("clamp", T(8, values=ODD), min=NAN, rule="choice", dtype=dtype, grad=False)
        g.case("clamp", T(8, values=ODD), T(8, values=ODD[1:] + ODD[:1]), rule="choice", dtype=dtype, grad=False)
        g.case("clamp_min", T(8, values=ODD), T(8, values=ODD[1:] + ODD[:1]), rule="choice", dtype=dtype, grad=False)
        g.case("clamp_max", T(8, values=ODD), T(8, values=ODD[1:] + ODD[:1]), rule="choice", dtype=dtype, grad=False)
        g.case("where", T(8, values=ODD), T(8, dtype=BOOL), T(8, values=ODD[::-1]), dtype=dtype, call=where)
        g.case("masked_fill", T(8, values=ODD), T(8, dtype=BOOL), -INF, dtype=dtype)
        g.case("masked_fill", T(8, values=ODD), T(8, dtype=BOOL), NAN, dtype=dtype)
        g.case("nonzero", T(8, values=ODD), dtype=dtype)
        g.case("to", T(8, values=ODD), BOOL, dtype=dtype, grad=False)
        for other in FLOATS:
            g.case("to", T(8, values=ODD), other, dtype=dtype, grad=False)
            g.case("to", T(8, values=TINY), other, dtype=dtype, grad=False)
        g.case("lerp", T(8, values=ODD), T(8, values=ODD[::-1]), 0.5, dtype=dtype, rule="sum", grad=False)
    g.each(FLOATS, "matmul", T(3, 4, of=[1.0, 2.0, NAN]), T(4, 2), rule="sum", grad=False)
    g.each(FLOATS, "matmul", T(3, 4, of=[1.0, 2.0, INF]), T(4, 2), rule="sum", grad=False)
    g.each(FLOATS, "matmul", T(3, 4, values=[0.0]), T(4, 2, of=[1.0, INF]), rule="sum", grad=False)
    for pool in ("max_pool2d", "avg_pool2d"):
        g.each(FLOATS, F + pool, T(1, 2, 6, 6, **rare), 2, rule="sum" if pool[0] == "a" else "exact", grad=False)


def rows(g):
    """Softmax, attention and losses of masked, huge and wide rows."""
    for op in ("softmax", "log_softmax"):
        for dtype in FLOATS:
            g.case(op, T(3, 4, values=[-INF]), -1, dtype=dtype, rule="sum")
            g.case(op, T(4, 4, values=[-INF, 1.0, 2.0, -INF]), -1, dtype=dtype, rule="sum")
            g.case(op, T(3, 4, values=[INF, 1.0, 2.0, 0.0]), -1, dtype=dtype, rule="sum")
            g.case(op, T(3, 4, values=[NAN, 1.0, 2.0, 0.0]), -1, dtype=dtype, rule="sum")
            g.case(op, T(3, 4, values=[60000.0, -60000.0, 59000.0, 1.0]), -1, dtype=dtype, rule="sum")
            g.case(op, T(3, 0), -1, dtype=dtype, rule="sum")
        for dtype in (F32, F64, BF16):
            g.case(op, T(3, 4, values=[1e30, -1e30, 9e29, 1.0]), -1, dtype=dtype, rule="sum")
    for dtype in FLOATS:
        kw = dict(dtype=dtype, rule="sum")
        g.case(F + "cross_entropy", T(3, 4, values=[30000.0, -30000.0, 29000.0, 1.0]), T(3, dtype=I64, values=[0, 1, 2]), **kw)
        g.case(F + "cross_entropy", T(3, 4), T(3, dtype=I64, values=[-100]), **kw)
        g.case(F + "cross_entropy", T(3, 4), T(3, dtype=I64, values=[-100]), reduction="sum", **kw)
        g.case(F + "cross_entropy", T(3, 4, values=[-INF, 1.0, 2.0, 3.0]), T(3, dtype=I64, values=[1, 2, 0]), **kw)
        g.case(F + "binary_cross_entropy_with_logits", T(8, values=[100.0, -100.0, 1e4, -1e4, INF, -INF, 0.0, NAN]),
               T(8, values=[0.0, 1.0], grad=False), reduction="none", grad=False, **kw)
        g.case(F + "binary_cross_entropy", T(4, values=[0.0, 1.0]), T(4, values=[0.0, 1.0, 1.0, 0.0], grad=False), reduction="none", **kw)
        mask = [1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1]
        g.case(F + "scaled_dot_product_attention", T(1, 1, 3, 8), T(1, 1, 4, 8), T(1, 1, 4, 8),
               attn_mask=T(3, 4, dtype=BOOL, values=mask), grad=False, **kw)
        g.case(F + "scaled_dot_product_attention", T(1, 1, 3, 8), T(1, 1, 4, 8), T(1, 1, 4, 8),
               attn_mask=T(3, 4, values=[0.0, 0.0, -INF, -INF], grad=False), **kw)
        g.case(F + "scaled_dot_product_attention", T(1, 1, 3, 8, range=(-90, 90)), T(1, 1, 4, 8, range=(-90, 90)), T(1, 1, 4, 8), **kw)
        g.case(F + "layer_norm", T(3, 4, values=[5.0]), [4], **kw)
        g.case(F + "layer_norm", T(3, 4, values=[1e4, 1e4 + 8, 1e4 - 8, 1e4]), [4], grad=False, **kw)
        g.case(F + "layer_norm", T(3, 4, values=[INF, 1.0, 2.0, 3.0]), [4], grad=False, **kw)
        g.case(F + "rms_norm", T(3, 4, values=[0.0]), [4], **kw)
        g.case(F + "rms_norm", T(3, 4, values=[NAN, 1.0, 2.0, 3.0]), [4], T(4), grad=False, **kw)
    for n in WIDTHS:
        every = max(1, n // 61)
        for dtype in FLOATS:
            kw = dict(dtype=dtype, rule="sum", every=every)
            rows = 1 if n > 100000 else 2
            g.case("softmax", T(rows, n, range=(-9, 9)), -1, **kw)
            g.case("log_softmax", T(rows, n, range=(-9, 9)), -1, **kw)
            g.case("logsumexp", T(rows, n, range=(-9, 9)), -1, dtype=dtype, rule="sum", grad=False)
            g.case("sum", T(rows, n), -1, dtype=dtype, rule="sum", grad=False)
            g.case("argmax", T(rows, n), -1, dtype=dtype)
            g.case("amax", T(rows, n), -1, dtype=dtype, grad=False)
            g.case(F + "cross_entropy", T(rows, n, range=(-9, 9)), T(rows, dtype=I64, values=[n - 1, 3]), **kw)
            g.case(F + "layer_norm", T(rows, n), [n], T(n), T(n), **kw)
            g.case(F + "rms_norm", T(rows, n), [n], T(n), **kw)
            g.case(F + "embedding", T(3, dtype=I64, values=[n - 1, 0, n // 2]), T(n, 3), dtype=dtype, every=every)
            g.case("matmul", T(2, n, range=(-1, 1)), T(n, 2, range=(-1, 1)), **kw)
            g.case("matmul", T(2, 3), T(3, n), **kw)
            if dtype in (F32, F64):
                g.case("topk", T(rows, n, order=True), 5, -1, grad=False, dtype=dtype)
            g.case("cumsum", T(rows, n, range=(0, 1)), -1, grad=False, **kw)


def build(g):
    elementwise(g)
    choices(g)
    rows(g)
