"""Random elementwise calls, reductions, scans and products."""

import math

import torch
from engine import BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, INTS, NAN, U8, T
from fuzz_draw import op
from ops_math import PAIRS, UNARY, where

HALVES = (F16, BF16)
# Numbers whose reciprocals are near the ends of their dtype.
SMALLEST = (1e-39, 1e-40, -1e-40, 1e-310, 6e-8, -6e-8)


@op(*UNARY)
def unary(r, name):
    rule, range = UNARY[name]
    dtype = r.any()
    if dtype.is_floating_point:
        odd = 0.0 if name in ("lgamma", "digamma", "sinc", "logit") else 0.3
        if name == "signbit":
            odd = 0.0
        if name == "sqrt" and dtype == F64:
            rule = "func"  # vdSqrt of MKL is not rounded correctly.
        grad, without = r.twice()
        if grad and name in ("log2", "log10"):
            without = (*without, *SMALLEST)  # DIFFERENT["slopes near the ends"]
        if grad and name == "reciprocal" and dtype == F16:
            range, odd = (0.25, 2), 0.0  # Squares of what is below a 256th overflow: DIFFERENT["slopes near the ends"]
        r.case(name, r.t(r.shape(), dtype, range, odd=odd, without=without), dtype=dtype, rule=rule, grad=grad)
    elif dtype == BOOL:
        r.case(name, r.t(r.shape(), BOOL), dtype=BOOL, rule=rule)
    else:
        whole = (1, 9) if range and range[0] > 0 else (0, 2) if range else None
        r.case(name, r.t(r.shape(), dtype, whole), dtype=dtype, rule=rule, widens=True)


@op("bitwise_not")
def flipped(r, name):
    dtype = r.choice([*INTS, BOOL, F32])
    r.case(name, r.t(r.shape(), dtype), dtype=dtype)


def second(name, dtype):
    """The range of a second operand."""
    if name in ("div", "fmod", "remainder", "floor_divide"):
        return (0.5, 4) if dtype.is_floating_point else (1, 7)
    if name == "xlogy":
        return (0.1, 5) if dtype.is_floating_point else (1, 7)
    return None


NUMBERS = ("add", "sub", "mul", "div", "floor_divide", "fmod", "remainder", "eq", "ne", "lt", "le", "gt", "ge", "xlogy",
           "copysign")
FIRST = ("add", "sub", "mul", "div", "floor_divide", "remainder", "xlogy")


@op(*PAIRS)
def pairs(r, name):
    rule, shape = "sum" if name == "logaddexp" else PAIRS[name], r.shape()
    a = r.any()
    b = a if r.chance(0.7) else r.any()
    divides = second(name, F32) is not None
    if divides and b == BOOL:
        b = a = F32
    both = torch.promote_types(a, b)
    if a != b and (a in HALVES or b in HALVES) and rule == "arith":
        rule = "sum"
    kw = {}
    kind = r.random()
    if kind < 0.15 and name in NUMBERS:
        # DIFFERENT["number beside 16 bits"]
        number = r.choice([1, 2, 3, 2.5, -2] + ([-0.7, 0.3] if a not in HALVES else []))
        if a == U8 and number < 0:
            number = 2
        # A number is rounded to the tensor's dtype in PyTorch, in its f64 not.
        half = "sum" if rule == "arith" and a in HALVES else rule
        if name in ("add", "sub") and r.chance(0.3):
            half, kw = "sum", {"alpha": r.choice([2, 0.5, -1, True])}
        if name == "div" and r.chance(0.4):
            kw, half = {"rounding_mode": r.choice(["floor", "trunc"])}, "exact"
        r.case(name, r.t(shape, a), number, dtype=a, rule=half, plain=True, **kw)
        return
    if kind < 0.2 and name in FIRST:
        half = "sum" if rule == "arith" and b in HALVES else rule
        number = r.choice([1, 2, 3, 2.5])
        r.case(name, number, r.t(shape, b, second(name, b)), dtype=b, rule=half, plain=True)
        return
    left, right = (shape, r.broadcast(shape)) if r.chance(0.5) else (r.broadcast(shape), shape)
    result = torch.result_type(torch.empty(left, dtype=a), torch.empty(right, dtype=b))
    if [] in (left, right) and result in HALVES:
        a = b = result  # DIFFERENT["number beside 16 bits"]
    odd = 0.2
    if name in ("copysign", "heaviside", "logaddexp2", "logaddexp"):
        odd = 0
    # DIFFERENT["remainders"]
    leaps = name in ("remainder", "fmod", "floor_divide")
    kw["grad"], without = r.twice()
    without = (1e-40, -1e-40, 1e-310, 1e-39, 3e38, -1e300) if leaps else without
    # A slope that is summed over what the second operand is broadcast along overflows in PyTorch, or not, by the order of
    # the sum: DIFFERENT["slopes near the ends"]
    first = without if leaps or kw["grad"] and left != right else ()
    if name == "floor_divide":
        first = (*first, 6e4)  # DIFFERENT["large quotients"]
    x, y = r.t(left, a, odd=odd, without=first), r.t(right, b, second(name, b), odd=odd, without=without)
    if leaps and (a != F64 or x.of or y.of):
        kw["grad"] = False
    # DIFFERENT["integers in atan2"]
    if name == "atan2" and not (a.is_floating_point and b.is_floating_point):
        kw["grad"] = False
    # A number without axes is rounded to the others' dtype first, in PyTorch's f64 not.
    no_axes = a != b and ([] in (left, right))
    if name in ("add", "sub") and r.chance(0.2):
        kw["alpha"], rule = r.choice([2, 3, 0.5, -1, True]), "sum"
    if no_axes:
        kw["grad"] = False
    # DIFFERENT["large quotients"]
    if name == "div" and both not in HALVES and r.chance(0.3):
        kw["rounding_mode"], rule = r.choice(["floor", "trunc"]), "exact"
    half = "sum" if no_axes and both in HALVES and rule != "exact" and rule != "choice" else rule
    r.case(name, x, y, dtype=a, rule=half, plain=no_axes or name in ("remainder", "floor_divide", "fmod"),
           widens=not both.is_floating_point and name not in ("remainder", "floor_divide", "fmod"), **kw)


@op("bitwise_and", "bitwise_or", "bitwise_xor")
def bits(r, name):
    a = r.choice([*INTS, BOOL])
    b = a if r.chance(0.7) else r.choice([*INTS, BOOL, F32])
    shape = r.shape()
    y = 6 if r.chance(0.15) else r.t(r.broadcast(shape), b)
    x = 5 if not isinstance(y, int) and r.chance(0.1) else r.t(shape, a)
    r.case(name, x, y, dtype=a, grad=False)


@op("bitwise_left_shift", "bitwise_right_shift")
def shifts(r, name):
    a, shape = r.whole(), r.shape()
    x = 5 if r.chance(0.1) else r.t(shape, a)
    y = 2 if isinstance(x, T) and r.chance(0.15) else r.t(r.broadcast(shape), a, (0, 5))
    r.case(name, x, y, dtype=a, grad=False)


@op("gcd", "lcm")
def divisors(r, name):
    a, shape = r.whole(), r.shape()
    range = (1, 9) if a in (U8, torch.int8) else (-12, 13)
    r.case(name, r.t(shape, a, range), r.t(r.broadcast(shape), a, range), dtype=a, grad=False)


@op("pow")
def power(r, name):
    dtype, shape = r.number(), r.shape()
    if dtype.is_floating_point:
        range = (0.1, 4) if r.chance(0.7) else (-4, 4)
        kind = r.random()
        if kind < 0.4:
            power = r.choice([0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 0.0, 4, -1.5])
            r.case(name, r.t(shape, dtype, range, odd=0.1), power, dtype=dtype, rule="sum")
        elif kind < 0.6:
            r.case(name, r.choice([2, 2.0, 0.5, 3.5, 10]), r.t(shape, dtype, (-2, 2)), dtype=dtype, rule="sum")
        else:
            # DIFFERENT["roots of negative numbers"]
            grad = None if range[0] > 0 else False
            power = r.t(r.broadcast(shape), dtype, (-2, 2))
            r.case(name, r.t(shape, dtype, range), power, dtype=dtype, rule="sum", grad=grad)
    else:
        y = r.choice([0, 1, 2, 3, 0.5, -1]) if r.chance(0.5) else r.t(r.broadcast(shape), dtype, (0, 4))
        r.case(name, r.t(shape, dtype, (0, 4)), y, dtype=dtype, rule="sum", plain=True, grad=False)


@op("float_power")
def float_power(r, name):
    dtype, shape = r.number(), r.shape()
    x = r.choice([2, 2.5]) if r.chance(0.2) else r.t(shape, dtype, (1, 4))
    y = r.choice([2, 0.5, -1]) if isinstance(x, T) and r.chance(0.5) else r.t(r.broadcast(shape), dtype, (0, 3))
    r.case(name, x, y, dtype=dtype, rule="func", widens=True)


@op("rsub")
def rsub(r, name):
    dtype, shape = r.number(), r.shape()
    y = r.choice([1, 2, 3]) if r.chance(0.5) else r.t(r.broadcast(shape), dtype)
    r.case(name, r.t(shape, dtype), y, dtype=dtype, rule="sum", widens=True)


# Bounds that cross and never meet, in every dtype.
APART = {"min": [-1.6875, -0.8125, -0.1875, 0.4375, 1.0625], "max": [1.875, 1.25, 0.625, 0.125, -0.5]}


@op("clamp")
def clamp(r, name):
    dtype, shape = r.number(), r.shape()
    # DIFFERENT["crossed bounds"]
    grad = r.chance(0.4)
    without = [NAN] if grad else []
    tensor = lambda: r.t(r.broadcast(shape), dtype, odd=0.1, without=without)
    bound = (lambda: r.choice([0, 1, 2, 3, 5])) if r.chance(0.5) else tensor
    if dtype.is_floating_point and r.chance(0.3):
        bound = lambda: r.choice([-1.0, 0.5, 0.25, 2.0])
    kw = {key: bound() for key in ("min", "max") if r.chance(0.7)}
    if grad and dtype.is_floating_point and all(isinstance(kw.get(key), T) for key in APART):
        kw = {key: r.t(r.broadcast(shape), dtype, of=of) for key, of in APART.items()}
    without = without if isinstance(kw.get("min"), T) and isinstance(kw.get("max"), T) else []
    r.case(name, r.t(shape, dtype, odd=0.2, without=without), dtype=dtype, rule="choice", grad=grad, **kw)


@op("clamp_min", "clamp_max")
def clamp_by(r, name):
    dtype, shape = r.number(), r.shape()
    r.case(name, r.t(shape, dtype, odd=0.2), r.t(r.broadcast(shape), dtype, odd=0.2), dtype=dtype, rule="choice")


@op("clamp_min/number", "clamp_max/number")
def clamp_by_number(r, name):
    dtype = r.number()
    bound = r.choice([-1.0, 0.5, 1.0]) if dtype.is_floating_point else r.choice([0, 1, 3])
    r.case(name, r.t(r.shape(), dtype, odd=0.2), bound, dtype=dtype, rule="choice")


@op("lerp")
def lerp(r, name):
    dtype, shape = r.float(), r.shape()
    weight = r.choice([0, 1, 0.3, 0.5, 0.7, -1.5, 2.0]) if r.chance(0.5) else r.t(r.broadcast(shape), dtype, (-0.5, 1.5))
    r.case(name, r.t(shape, dtype), r.t(r.broadcast(shape), dtype), weight, dtype=dtype, rule="sum")


@op("addcmul", "addcdiv")
def composed(r, name):
    dtype, shape = r.number(), r.shape()
    if name == "addcdiv":
        dtype = r.float()
    other = lambda: r.float() if dtype.is_floating_point and r.chance(0.2) else dtype
    last = (0.5, 3) if name == "addcdiv" else None
    kw = {}
    if r.chance(0.5):
        kw["value"] = r.choice([0.5, 2.0, 3, -1.3]) if dtype.is_floating_point else r.choice([2, 3])
    x, a, b = r.t(shape, dtype), r.t(r.broadcast(shape), other()), r.t(r.broadcast(shape), other(), last)
    if dtype in HALVES:
        # DIFFERENT["number beside 16 bits"]
        a, b = (T(*t.shape, dtype=dtype, range=t.range, lay=t.lay) if not t.shape else t for t in (a, b))
    mixed = len({t.dtype for t in (x, a, b)}) > 1 and any(not t.shape for t in (x, a, b))
    r.case(name, x, a, b, dtype=dtype, rule="sum", plain=mixed, grad=False if mixed else None, **kw)


@op("masked_fill")
def masked_fill(r, name):
    dtype, shape = r.any(), r.shape()
    value = r.choice([0, 1]) if dtype == BOOL else r.choice([0, 3, float("inf")] if dtype.is_floating_point else [0, 3])
    if r.chance(0.2):
        value = r.t([], dtype)
    r.case(name, r.t(shape, dtype, odd=0.1), r.t(r.broadcast(shape), BOOL), value, dtype=dtype)


def where_first(condition, x, other):
    return torch.where(condition, x, other)


@op("where")
def chosen(r, name):
    a, shape = r.any(), r.shape()
    b = a if r.chance(0.7) else r.any()
    kind = r.random()
    if kind < 0.2:
        # Of two bools in front neither says that it is the condition.
        a = F32 if a == BOOL else a
        x, y = (r.choice([1, 2.5]), r.t(r.broadcast(shape), a)) if r.chance(0.5) else (r.t(r.broadcast(shape), a), r.choice([1, 2.5]))
        r.case(name, r.t(shape, BOOL), x, y, dtype=a, call=where_first, rule="sum", plain=True)
    elif kind < 0.25:
        r.case(name, r.t(shape, BOOL), r.choice([1, 2.5]), r.choice([3, 0.5]), dtype=F32, call=where_first)
    else:
        r.case(name, r.t(shape, a, odd=0.1), r.t(r.broadcast(shape), BOOL), r.t(r.broadcast(shape), b), dtype=a, call=where)


@op("isclose", "allclose", "equal")
def close(r, name):
    dtype, shape = r.number(), r.shape()
    some = [1.0, 1.00001, 1.1, 2.0] if dtype.is_floating_point else [1, 2]
    odd = [float("nan"), float("inf")] if dtype.is_floating_point and r.chance(0.5) else []
    other = r.broadcast(shape) if name == "isclose" else shape
    x, y = T(*shape, of=some + odd, lay=r.lay()), T(*other, of=some + odd)
    kw = {"equal_nan": True} if name != "equal" and r.chance(0.3) else {}
    if len(other) > len(shape) or any(mine == 1 != its for mine, its in zip(reversed(shape), reversed(other))):
        kw = {}  # DIFFERENT["larger operands"]
    if name != "equal" and r.chance(0.3):
        kw["rtol"] = r.choice([0.0, 0.01, 0.2])
    r.case(name, x, y, dtype=dtype, grad=False, **kw)


@op("isin")
def isin(r, name):
    dtype = r.choice([F32, I64, F64, I32])
    values = T(r.size(0, 5), of=[1, 2, 3, 4], dtype=dtype)
    x = r.choice([1, 2, 7]) if r.chance(0.2) else T(*r.shape(), of=[1, 2, 3, 4, 5, 6], dtype=dtype, lay=r.lay())
    r.case(name, x, values, dtype=dtype, grad=False)


# Creation.

@op("ones", "zeros", "full", "eye", "arange", "linspace", "logspace")
def created(r, name):
    dtype = r.any()
    if name == "eye":
        args = [r.size(0, 9)] + ([r.size(0, 9)] if r.chance(0.5) else [])
    elif name == "arange":
        if dtype == BOOL:
            dtype = I64
        start, step = r.size(-9, 9), r.choice([1, 2, 3, -1, -2])
        args = [start, start + step * r.size(0, 30), step]
        if dtype == U8:
            args = [0, r.size(0, 40), r.choice([1, 3])]
        if dtype in (F32, F64) and r.chance(0.5):
            args = [a * 0.25 for a in args]
    elif name in ("linspace", "logspace"):
        dtype = r.float()
        args = [r.choice([-1.5, 0.0, 2.0, -3]), r.choice([0.5, 1.0, 2.0, 3]), r.size(0, 40)]
    else:
        args = [r.shape()] + ([r.choice([0, 1])] if name == "full" else [])
    rule = "sum" if name in ("linspace", "logspace") else "exact"
    r.case(name, *args, dtype=dtype, rule=rule, grad=False, dtype_=dtype)


@op("zeros_like", "ones_like", "full_like")
def alike(r, name):
    dtype = r.any()
    r.case(name, r.t(r.shape(), dtype), *([1] if name == "full_like" else []), dtype=dtype, grad=False)


@op("tril_indices", "triu_indices")
def corners(r, name):
    r.case(name, r.size(0, 9), r.size(0, 9), r.size(-9, 9), grad=False)


# Reductions.

def over(r, rank, many=True):
    """Keywords that name axes."""
    if r.chance(0.3):
        return {}
    dims = r.axes(rank) if many and r.chance(0.5) else r.axis(rank)
    if dims == []:
        return {}
    return {"dim": dims, **({"keepdim": True} if r.chance(0.4) else {})}


@op("sum", "mean", "amax", "amin", "any", "all", "logsumexp", "prod", "nansum", "count_nonzero")
def reduced(r, name):
    dtype = r.any() if name not in ("mean", "logsumexp") else r.float()
    if name == "nansum":
        dtype = r.float()
    shape = r.shape(least=1 if name in ("amax", "amin") and r.chance(0.9) else 0)
    kw = over(r, len(shape), name != "prod")
    if name == "logsumexp" and "dim" not in kw:
        kw["dim"] = r.axis(len(shape))
    if name == "count_nonzero":
        kw.pop("keepdim", None)
    if name in ("sum", "mean", "prod") and r.chance(0.2):
        # A product of many integers is beyond f32 on the way to a 0, or not, by the order of its factors.
        kw["dtype_"] = F64 if name == "prod" else r.choice([F32, F64])
    if name in ("amax", "amin", "any", "all", "count_nonzero"):
        r.case(name, r.t(shape, dtype, odd=0.15), dtype=dtype, rule="choice", **kw)
        return
    range = (0.5, 1.5) if name == "prod" and dtype.is_floating_point else None
    odd = 0.1 if name in ("sum", "mean", "nansum") and dtype in (F64,) else 0
    widens = "dtype_" in kw
    r.case(name, r.t(shape, dtype, range, odd=odd), dtype=dtype, rule="sum", widens=widens, **kw)


@op("var", "std", "var_mean", "std_mean")
def spread(r, name):
    dtype, shape = r.float(), r.shape(least=1)
    kw = over(r, len(shape))
    if "dim" not in kw:
        kw["dim"] = None
    correction = r.choice([0, 1, 1, 2])
    dims = kw["dim"] if isinstance(kw["dim"], list) else [kw["dim"]]
    given = [shape[d] for d in dims if d is not None and -len(shape) <= d < len(shape)]
    count = math.prod(shape if kw["dim"] is None else given)
    # DIFFERENT["no freedom"]; of equal elements the slope is that of rounding.
    grad = r.chance(0.4) and correction < count and count > 1
    r.case(name, r.t(shape, dtype, lay=r.still()), correction=correction, dtype=dtype, rule="sum", grad=grad, **kw)


@op("norm", "linalg.vector_norm")
def norms(r, name):
    dtype, shape = r.float(), r.shape(least=1)
    p = r.choice([0, 1, 2, 2.0, 3, 0.5, float("inf"), -float("inf"), -1.0])
    kw = over(r, len(shape))
    if name == "norm" and "dim" not in kw:
        kw.pop("keepdim", None)
    # Powers of 16 bits overflow in PyTorch's gradients.
    r.case(name, r.t(shape, dtype, (0.2, 2)), p, dtype=dtype, rule="sum", grad=None if dtype in (F32, F64) else False, **kw)


@op("argmax", "argmin")
def places(r, name):
    dtype, shape = r.number(), r.shape(least=1)
    r.case(name, r.t(shape, dtype, odd=0.1), dtype=dtype, **over(r, len(shape), False))


@op("max", "min")
def extremes(r, name):
    dtype, shape = r.number(), r.shape(least=0 if r.chance(0.1) else 1)
    if r.chance(0.3):
        r.case(name, r.t(shape, dtype, odd=0.1), r.t(r.broadcast(shape), dtype, odd=0.1), dtype=dtype, rule="choice")
    else:
        r.case(name, r.t(shape, dtype, odd=0.1), dtype=dtype, rule="choice", **over(r, len(shape), False))


@op("aminmax")
def aminmax(r, name):
    dtype, shape = r.number(), r.shape(least=1)
    r.case(name, r.t(shape, dtype), dtype=dtype, rule="choice", **over(r, len(shape), False))


@op("median", "nanmedian")
def medians(r, name):
    dtype, shape = r.number(), r.shape(least=1)
    r.case(name, T(*shape, order=True, lay=r.still()) if dtype.is_floating_point else r.t(shape, dtype), dtype=r.wide() if dtype.is_floating_point else dtype,
           rule="choice", **(over(r, len(shape), False) if dtype.is_floating_point else {}))


@op("mode")
def mode(r, name):
    # Where a value stands is left open; each of ours is the last.
    shape = r.shape(least=1)
    r.case(name, T(*shape, order=True), r.axis(len(shape)), dtype=r.wide())


@op("kthvalue")
def kth(r, name):
    shape = r.shape(least=1)
    dim = r.axis(len(shape))
    extent = shape[dim] if -len(shape) <= dim < len(shape) else 1
    r.case(name, T(*shape, order=True, lay=r.still()), r.size(1, extent), dim, dtype=r.wide())


@op("quantile")
def quantile(r, name):
    shape = r.shape(least=1)
    # Of equal elements each may have the slope.
    r.case(name, r.t(shape, lay=r.still()), r.choice([0.0, 0.25, 0.3, 0.5, 0.9, 1.0]), dtype=r.wide(), rule="sum", **over(r, len(shape), False))


@op("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
def scans(r, name):
    # PyTorch's cummax and cummin of nothing take an axis that is not there.
    least = 1 if name in ("cummax", "cummin") else 0
    dtype, shape = r.float() if name == "logcumsumexp" else r.number(), r.shape(least=least)
    range = None
    if name == "cumprod":
        range = (0.5, 1.5) if dtype.is_floating_point else (0, 3)
    rule = "exact" if name in ("cummax", "cummin") else "sum"
    r.case(name, r.t(shape, dtype, range), r.axis(len(shape)), dtype=dtype, rule=rule)


@op("cov", "corrcoef")
def covariance(r, name):
    r.case(name, r.t([r.size(1, 6), r.size(2, 20)]), dtype=r.wide(), rule="sum")


@op("diff")
def diff(r, name):
    dtype, shape = r.number(), r.shape(least=1)
    if not shape:
        shape = [4]
    r.case(name, r.t(shape, dtype), r.choice([1, 1, 2]), r.axis(len(shape)), dtype=dtype, rule="sum")


@op("dist")
def dist(r, name):
    shape = r.shape(least=1)
    r.case(name, r.t(shape), r.t(r.broadcast(shape)), r.choice([1.0, 2.0, 3.0]), dtype=r.wide(), rule="sum")


@op("cdist")
def cdist(r, name):
    batch, n = r.choice([[], [2], [2, 3]]), r.size(1, 9)
    r.case(name, r.t([*batch, r.size(1, 7), n], range=(-2, 0)), r.t([*batch, r.size(1, 7), n], range=(0.1, 2)), r.choice([1.0, 2.0, 3.0]), dtype=r.wide(), rule="sum")


@op("histc")
def histc(r, name):
    r.case(name, r.t(r.shape(1), range=(0, 8)), r.size(1, 9), 0, 8, dtype=r.wide(), grad=False)


@op("bincount")
def bincount(r, name):
    dtype, n = r.whole(), r.size(0, 40)
    kw = {"minlength": r.size(0, 12)} if r.chance(0.5) else {}
    if r.chance(0.4):
        r.case(name, T(n, range=(0, 6)), T(n, dtype=F64), dtype=dtype, rule="sum", grad=False, **kw)
    else:
        r.case(name, T(n, range=(0, 6)), dtype=dtype, **kw)


# Products.

def matrices(r, a, b, k=None):
    return r.size(1, 20)


@op("matmul")
def matmul(r, name):
    dtype = r.float() if r.chance(0.9) else r.whole()
    n, k, m = r.size(0, 20), r.extent(), r.size(1, 20)
    kind = r.random()
    batch = r.choice([[], [], [2], [3], [2, 3]])
    left, right = [*batch, n, k], [*(r.broadcast(batch) if batch else r.choice([[], [2]])), k, m]
    if kind < 0.1:
        left = [k]
    elif kind < 0.2:
        right = [k]
    if r.chance(0.03):
        right[-1] += 1
        right[0] += 1
    r.case(name, r.t(left, dtype), r.t(right, dtype), dtype=dtype, rule="sum")


@op("mm", "bmm", "mv", "dot", "outer", "inner", "kron", "addmm", "baddbmm", "addmv", "addbmm", "addr")
def products(r, name):
    dtype = r.float() if r.chance(0.9) else r.choice([I64, I32])
    b, n, k, m = r.size(1, 4), r.extent(1), r.extent(1), r.size(1, 12)
    wrong = 1 if r.chance(0.02) else 0
    shapes = {
        "mm": [[n, k], [k + wrong, m]], "bmm": [[b, n, k], [b, k + wrong, m]], "mv": [[n, k], [k + wrong]], "dot": [[k], [k + wrong]],
        "outer": [[n], [m]], "inner": [[n, k], [m, k + wrong]], "kron": [[2, min(n, 9)], [min(k, 9), 2]],
        "addmm": [r.choice([[n, m], [m], [1, m], [n, 1]]), [n, k], [k + wrong, m]],
        "baddbmm": [r.choice([[b, n, m], [1, n, m], [m]]), [b, n, k], [b, k + wrong, m]], "addmv": [[n], [n, k], [k + wrong]],
        "addbmm": [[n, m], [b, n, k], [b, k + wrong, m]], "addr": [[n, m], [n], [m]],
    }[name]
    kw = {}
    if name.startswith("add") or name.startswith("badd"):
        for key in ("alpha", "beta"):
            if r.chance(0.4):
                kw[key] = r.choice([2, 3, -1] if not dtype.is_floating_point else [0.5, 2.0, -1.3, 0, 1])
        # DIFFERENT["fractions of integers"]: whole ones only.
    if dtype in HALVES and kw.get("alpha", 1) not in (0, 1):
        kw["grad"] = False  # DIFFERENT["rounded products"]
    # DIFFERENT["rounded products"]: a first operand that is larger than the product hides it.
    large = (200, 300) if dtype in HALVES and name in ("addmm", "addmv", "baddbmm") else None
    tensors = [r.t(shape, dtype, large if k == 0 else None) for k, shape in enumerate(shapes)]
    r.case(name, *tensors, dtype=dtype, rule="sum", **kw)


@op("cross")
def cross(r, name):
    shape, dtype = r.shape(r.size(1, 3), 1, 200), r.choice([F32, F64, BF16, I64])
    axis = r.randrange(len(shape))
    shape[axis] = 3
    r.case(name, r.t(shape), r.t(shape), dim=axis, dtype=dtype, rule="sum")


@op("trace")
def trace(r, name):
    dtype, rows, columns = r.number(), r.size(0, 9), r.size(0, 9)
    # DIFFERENT["trace"]
    r.case(name, r.t([rows, columns], dtype), dtype=dtype, rule="sum", grad=None if rows <= columns else False)


@op("tensordot")
def tensordot(r, name):
    n = r.size(0, 2)
    inner = [r.size(1, 5) for _ in range(n)]
    r.case(name, r.t([r.size(1, 5), *inner]), r.t([*inner, r.size(1, 5)]), dims=n, dtype=r.wide(), rule="sum")


@op("linalg.multi_dot")
def multi_dot(r, name):
    sizes = [r.size(1, 9) for _ in range(r.size(3, 5))]
    r.case(name, [r.t([a, b]) for a, b in zip(sizes, sizes[1:])], dtype=r.float(), rule="sum")


FORMS = ["ij,jk->ik", "ij->ji", "ii->i", "ii", "bij,bjk->bik", "i,j->ij", "ij->", "...ij,...jk->...ik", "bhqd,bhkd->bhqk",
         "ij,jk,kl->il", "ij,ij->i", "ij,kj", "bij,bj->bi", "ijk->kij", "ij,j", "i->"]


@op("einsum")
def einsum(r, name):
    form = r.choice(FORMS)
    extents = {c: r.size(1, 6) for c in "bhqdijkl"}
    batch = [r.size(1, 3)]
    operands = [(batch if part.startswith("...") else []) + [extents[c] for c in part.strip(".")] for part in form.split("->")[0].split(",")]
    r.case(name, [r.t(shape) for shape in operands], form, dtype=r.float(), rule="sum", call=lambda o, f: torch.einsum(f, *o))
