"""Random calls of what moves elements: shapes, parts, indices, order."""

import torch
from engine import BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, INTS, NAN, U8, Slice, T
from fuzz_draw import op
from ops_index import stable


@op("clone", "contiguous", "ravel", "atleast_1d", "atleast_2d", "atleast_3d", "argwhere", "nonzero")
def whole(r, name):
    dtype = r.any()
    of = {"of": [0, 1]} if name in ("argwhere", "nonzero") else {}
    x = T(*r.shape(), dtype=dtype, lay=r.lay(), **of) if of else r.t(r.shape(), dtype, odd=0.1)
    r.case(name, x, dtype=dtype)


@op("fliplr", "flipud", "t", "mT", "adjoint")
def two_axes(r, name):
    dtype = r.any()
    rank = r.size(0, 2) if name == "t" else r.size(2, 4)
    r.case(name, r.t(r.shape(rank), dtype), dtype=dtype, call=(lambda x: x.mT) if name == "mT" else None)


@op("to")
def to(r, name):
    a, b = r.any(), r.any()
    # What integers make of numbers outside their range is C's, that is, nobody's.
    x = r.t(r.shape(), a, (0, 9), odd=0.3 if b.is_floating_point or b == BOOL else 0)
    r.case(name, x, b, dtype=a, grad=None if b.is_floating_point else False)


def split_up(r, extents):
    """A shape of as many elements, sometimes with -1, sometimes with another count."""
    n, out = 1, []
    for extent in extents:
        n *= extent
    if n == 0:
        return list(reversed(extents))
    while n > 1 and len(out) < 5 and r.chance(0.8):
        some = [d for d in range(1, n + 1) if n % d == 0] if n < 4000 else [1]
        d = r.choice(some)
        out.append(d)
        n //= d
    out.append(n + (1 if r.chance(0.02) else 0))
    if r.chance(0.3):
        out[r.randrange(len(out))] = -1
    return out


@op("reshape", "view")
def reshape(r, name):
    dtype, shape = r.any(), r.shape()
    x = r.t(shape, dtype, lay="c" if name == "view" else None)
    r.case(name, x, split_up(r, shape), dtype=dtype)


@op("flatten")
def flatten(r, name):
    dtype, shape = r.any(), r.shape()
    args = sorted(r.axis(len(shape)) % max(len(shape), 1) for _ in "ab") if r.chance(0.7) else []
    r.case(name, r.t(shape, dtype), *args, dtype=dtype)


@op("unflatten")
def unflatten(r, name):
    shape = r.shape(r.size(1, 3), 1)
    axis = r.axis(len(shape))
    sizes = split_up(r, [shape[axis]]) if -len(shape) <= axis < len(shape) else [1]
    r.case(name, r.t(shape), axis, sizes)


@op("permute")
def permute(r, name):
    dtype, shape = r.any(), r.shape()
    order = r.sample(range(len(shape)), len(shape))
    order = [axis - len(shape) if r.chance(0.2) else axis for axis in order]
    if order and r.chance(0.02):
        order[0] = order[-1]
    r.case(name, r.t(shape, dtype), order, dtype=dtype)


@op("transpose", "swapaxes", "swapdims", "movedim", "moveaxis")
def transpose(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 5))
    r.case(name, r.t(shape, dtype), r.axis(len(shape)), r.axis(len(shape)), dtype=dtype)


@op("squeeze")
def squeeze(r, name):
    dtype, shape = r.any(), r.shape()
    dims = r.choice([[], [r.axis(len(shape))], [r.axes(len(shape))]]) if shape else []
    r.case(name, r.t(shape, dtype), *dims, dtype=dtype)


@op("unsqueeze")
def unsqueeze(r, name):
    dtype, shape = r.any(), r.shape(r.size(0, 4))
    r.case(name, r.t(shape, dtype), r.axis(len(shape) + 1), dtype=dtype)


@op("broadcast_to", "expand", "expand_as")
def expand(r, name):
    dtype, shape = r.any(), r.shape(most=200)
    x = r.t(r.broadcast(shape), dtype)
    r.case(name, x, r.t(shape, dtype) if name == "expand_as" else shape, dtype=dtype)


@op("view_as", "reshape_as")
def like(r, name):
    shape = r.shape()
    other = [abs(n) for n in split_up(r, shape)]
    r.case(name, r.t(shape, lay="c" if name == "view_as" else None), T(*other, grad=False))


@op("repeat", "tile")
def repeat(r, name):
    dtype, shape = r.any(), r.shape(r.size(0, 3), most=60)
    times = [r.choice([0, 1, 1, 2, 3]) for _ in range(len(shape) + (r.size(-1, 1) if name == "tile" else r.size(0, 1)))]
    r.case(name, r.t(shape, dtype), times, dtype=dtype)


@op("repeat_interleave")
def repeat_interleave(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 3), most=100)
    kw = {"dim": r.axis(len(shape))} if r.chance(0.6) else {}
    r.case(name, r.t(shape, dtype), r.size(0, 3), dtype=dtype, **kw)


@op("flip")
def flip(r, name):
    dtype, shape = r.any(), r.shape()
    axes = r.axes(len(shape))
    r.case(name, r.t(shape, dtype), axes + axes[:1] if r.chance(0.02) else axes, dtype=dtype)


@op("roll")
def roll(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 4))
    if r.chance(0.3):
        r.case(name, r.t(shape, dtype), r.size(-9, 9), dtype=dtype)
        return
    dims = r.axes(len(shape)) or [0]
    r.case(name, r.t(shape, dtype), [r.size(-9, 9) for _ in dims], dims, dtype=dtype)


@op("rot90")
def rot90(r, name):
    shape = r.shape(r.size(2, 4))
    r.case(name, r.t(shape), r.size(-5, 5), r.sample(range(len(shape)), 2))


@op("narrow")
def narrow(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 4))
    axis = r.axis(len(shape))
    extent = shape[axis] if -len(shape) <= axis < len(shape) else 1
    start = r.size(0, extent)
    length = r.size(0, extent - start) + (1 if r.chance(0.02) else 0)
    r.case(name, r.t(shape, dtype), axis, start - extent if 0 < start < extent and r.chance(0.2) else start, length, dtype=dtype)


@op("select")
def select(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 4))
    axis = r.axis(len(shape))
    extent = shape[axis] if -len(shape) <= axis < len(shape) else 1
    r.case(name, r.t(shape, dtype), axis, r.size(-extent, extent), dtype=dtype)


@op("split", "chunk", "unbind", "tensor_split", "hsplit", "vsplit")
def split(r, name):
    dtype, shape = r.any(), r.shape(r.size(2, 4), most=300)
    axis = r.axis(len(shape))
    extent = shape[axis] if -len(shape) <= axis < len(shape) else 1
    x = r.t(shape, dtype)
    if name == "unbind":
        r.case(name, x, axis, dtype=dtype)
    elif name in ("hsplit", "vsplit"):
        extent = shape[1 if name == "hsplit" else 0]
        r.case(name, x, r.choice([d for d in range(1, max(extent, 1) + 1) if extent % d == 0] or [1]), dtype=dtype)
    elif name == "split" and r.chance(0.5):
        first = r.size(0, extent)
        r.case(name, x, [first, extent - first + (1 if r.chance(0.03) else 0)], axis, dtype=dtype)
    else:
        r.case(name, x, r.size(1, 7), axis, dtype=dtype)


@op("cat", "stack", "hstack", "vstack", "dstack", "column_stack")
def joined(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 3), most=100)
    axis = r.axis(len(shape) + (name == "stack"))
    parts = []
    for _ in range(r.size(1, 4)):
        part = list(shape)
        if name == "cat" and -len(shape) <= axis < len(shape):
            part[axis] = r.size(0, 5)
        if r.chance(0.01):
            part[0] += 1
        parts.append(r.t(part, r.any() if r.chance(0.1) and name in ("cat", "stack") else dtype))
    mixed = len({p.dtype for p in parts}) > 1
    r.case(name, parts, *([axis] if name in ("cat", "stack") else []), dtype=dtype, rule="sum" if mixed else "exact", plain=mixed,
           grad=False if mixed else None)


@op("block_diag", "cartesian_prod")
def several(r, name):
    dtype = r.choice([F32, I64])
    shape = (lambda: [r.size(0, 4), r.size(1, 4)]) if name == "block_diag" else (lambda: [r.size(0, 4)])
    r.case(name, *(r.t(shape(), dtype) for _ in range(r.size(2, 3))), dtype=dtype)


@op("combinations")
def combinations(r, name):
    dtype = r.choice([F32, I64])
    kw = {"with_replacement": True} if r.chance(0.5) else {}
    r.case(name, r.t([r.size(0, 6)], dtype), r.size(1, 3), dtype=dtype, **kw)


@op("meshgrid")
def meshgrid(r, name):
    parts = [r.t([r.size(0, 4)]) for _ in range(r.size(2, 3))]
    r.case(name, parts, indexing=r.choice(["ij", "xy"]), call=lambda t, indexing: torch.meshgrid(*t, indexing=indexing))


@op("broadcast_tensors")
def broadcast_tensors(r, name):
    shape = r.shape(most=100)
    r.case(name, [r.t(r.broadcast(shape)) for _ in range(r.size(1, 3))], call=lambda t: torch.broadcast_tensors(*t))


@op("diagonal", "diag_embed")
def diagonals(r, name):
    dtype, shape = r.any(), r.shape(r.size(2, 4) if name == "diagonal" else r.size(1, 3), most=200)
    axes = r.sample(range(len(shape) + (name != "diagonal")), 2) if r.chance(0.6) else []
    r.case(name, r.t(shape, dtype), r.size(-3, 3), *axes, dtype=dtype)


@op("tril", "triu", "diag")
def triangles(r, name):
    dtype = r.any()
    shape = r.shape(r.size(1, 2) if name == "diag" else r.size(2, 4), most=200 if name != "diag" else 30)
    r.case(name, r.t(shape, dtype), r.size(-4, 4), dtype=dtype)


@op("unfold")
def unfold(r, name):
    shape = r.shape(r.size(1, 3), 1)
    axis = r.randrange(len(shape))
    r.case(name, r.t(shape), axis, r.size(1, shape[axis]), r.size(1, 4))


@op("nn.functional.one_hot")
def one_hot(r, name):
    n = r.size(1, 9)
    # Of no elements and no classes there is nothing to refuse.
    few = 1 if n > 1 and r.chance(0.05) else 0
    r.case(name, r.t(r.shape(most=100), I64, (0, n)), n - few if r.chance(0.7) else -1, dtype=I64)


# Indices.

def index(r, shape, n, strays=True, **kwargs):
    """Positions below n; sometimes one that is not there."""
    if strays and r.chance(0.02):
        return T(*shape, dtype=I64, of=[n, 0] if r.chance(0.5) else [-n - 1, 0], lay=r.lay(), **kwargs)
    return T(*shape, dtype=I64, range=(0, n), lay=r.lay(), **kwargs)


@op("gather", "take_along_dim")
def gather(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 4), 1)
    axis = r.axis(len(shape))
    if not -len(shape) <= axis < len(shape):
        axis = 0
    extents = [r.size(0, n) if name == "gather" and r.chance(0.3) else n for n in shape]
    extents[axis] = r.size(0, 9)
    if name == "gather" and r.chance(0.02):
        other = (axis % len(shape)) - 1
        extents[other] = shape[other] + 1 if len(shape) > 1 else extents[other]
    # DIFFERENT["wrapped indices"]
    at = index(r, extents, shape[axis], strays=name == "gather")
    r.case(name, r.t(shape, dtype), *((axis, at) if name == "gather" else (at, axis)), dtype=dtype)


@op("take")
def take(r, name):
    dtype, shape = r.any(), r.shape(least=1)
    n = 1
    for extent in shape:
        n *= extent
    r.case(name, r.t(shape, dtype), index(r, r.shape(most=60), n), dtype=dtype)


@op("index_select", "index_fill", "index_add", "index_copy")
def slices(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 4), 1)
    axis = r.axis(len(shape))
    if not -len(shape) <= axis < len(shape):
        axis = 0
    n = shape[axis]
    x = r.t(shape, dtype)
    if name == "index_copy":
        # Each slice is written once.
        count = r.size(0, n)
        at = T(count, dtype=I64, values=r.sample(range(n), count) or [0])
    else:
        count = r.size(0, 9)
        at = index(r, [count], n)
    if name == "index_select":
        r.case(name, x, axis, at, dtype=dtype)
        return
    if name == "index_fill":
        r.case(name, x, axis, at, 1, dtype=dtype)
        return
    part = list(shape)
    part[axis] = count + (1 if r.chance(0.02) else 0)
    kw = {"alpha": r.choice([2, 3])} if name == "index_add" and dtype != BOOL and r.chance(0.3) else {}
    rule = "sum" if name == "index_add" else "exact"
    r.case(name, x, axis, at, r.t(part, dtype), dtype=dtype, rule=rule, **kw)


@op("scatter")
def scatter(r, name):
    dtype, n, rows = r.any(), r.size(1, 6), r.size(1, 4)
    order = r.sample(range(n), n)
    at = T(rows, n, dtype=I64, values=[order[(i + k) % n] for k in range(rows) for i in range(n)])
    if r.chance(0.4) and dtype != BOOL:
        # Each element once, so that every order gives one product.
        source = r.t([rows, n], dtype) if r.chance(0.6) else r.choice([2, 3])
        r.case(name, r.t([rows, n], dtype), 1, at, source, reduce=r.choice(["add", "multiply"]), dtype=dtype, rule="sum", grad=False)
        return
    source = r.t([rows, n], dtype) if r.chance(0.7) else 1
    r.case(name, r.t([rows + r.size(0, 2), n], dtype), r.choice([1, -1]), at, source, dtype=dtype)


@op("scatter_add", "scatter_reduce")
def scatter_add(r, name):
    dtype, shape = r.number(), r.shape(r.size(1, 3), 1, 200)
    axis = r.randrange(len(shape))
    part = [r.size(0, n) if r.chance(0.3) else n for n in shape]
    part[axis] = r.size(0, 12)
    at = index(r, part, shape[axis])
    if name == "scatter_add":
        r.case(name, r.t(shape, dtype), axis, at, r.t(part, dtype), dtype=dtype, rule="sum")
    else:
        reduce = r.choice(["sum", "prod", "mean", "amax", "amin"])
        r.case(name, r.t(shape, dtype), axis, at, r.t(part, dtype), reduce, include_self=r.chance(0.5), dtype=dtype, rule="sum",
               plain=reduce == "mean" and not dtype.is_floating_point, grad=dtype in (F32, F64) and r.chance(0.4))


@op("index_put")
def index_put(r, name):
    dtype, a, b = r.any(), r.size(1, 6), r.size(1, 6)
    add = r.chance(0.5) and dtype != BOOL
    if add:
        n = r.size(0, 9)
        r.case(name, r.t([a, b], dtype), [index(r, [n], a), index(r, [n], b)], r.t([n], dtype), accumulate=True, dtype=dtype, rule="sum")
    else:
        n = r.size(0, a)
        r.case(name, r.t([a, b], dtype), [T(n, dtype=I64, values=r.sample(range(a), n) or [0])], r.t([n, b], dtype), dtype=dtype)


@op("masked_select", "masked_scatter")
def masked(r, name):
    dtype, shape = r.any(), r.shape()
    n = 1
    for extent in shape:
        n *= extent
    mask = r.t(r.broadcast(shape), BOOL)
    more = [r.t([n], dtype, lay="c")] if name == "masked_scatter" else []
    r.case(name, r.t(shape, dtype), mask, *more, dtype=dtype)


@op("select_scatter", "slice_scatter", "diagonal_scatter")
def written(r, name):
    dtype, shape = r.any(), r.shape(2, 1, 200)
    if name == "diagonal_scatter":
        r.case(name, r.t(shape, dtype), r.t([min(shape)], dtype), dtype=dtype)
        return
    axis = r.randrange(2)
    n = shape[axis]
    if name == "select_scatter":
        r.case(name, r.t(shape, dtype), r.t([shape[1 - axis]], dtype), axis, r.size(0, n - 1), dtype=dtype)
        return
    start, step = r.size(0, n), r.size(1, 3)
    end = r.size(start, n)
    part = list(shape)
    part[axis] = len(range(start, end, step))
    r.case(name, r.t(shape, dtype), r.t(part, dtype), axis, start, end, step, dtype=dtype)


@op("__getitem__")
def getitem(r, name):
    dtype, shape = r.any(), r.shape(r.size(1, 4), 1)
    parts, advanced = [], r.chance(0.4)
    if r.chance(0.15):
        r.case(name, r.t(shape, dtype), r.t(shape[:r.size(1, len(shape))], BOOL), dtype=dtype)
        return
    many = r.shape(r.size(0, 2), most=20)
    indexed, nothing = {}, 0 in many
    for n in shape[:r.size(1, len(shape))]:
        kind = r.random()
        if kind < 0.15:
            parts.append(None)
        if advanced and kind > 0.6:
            indexed[len(parts)] = n
            parts.append(index(r, r.broadcast(many), n))
        elif kind > 0.4:
            parts.append(r.size(-n, n - 1) if r.chance(0.97) else n)
        else:
            end = lambda: r.choice([None, r.size(-n - 1, n + 1)])
            part = slice(end(), end(), r.choice([None, 1, 2, 3]))
            nothing |= not range(*part.indices(n))
            parts.append(Slice(part.start, part.stop, part.step))
    if nothing:  # DIFFERENT["indices of nothing"]
        for at, n in indexed.items():
            parts[at] = index(r, r.broadcast(many), n, strays=False)
    if r.chance(0.2):
        parts.insert(r.size(0, len(parts)), Ellipsis)
    if all(isinstance(part, int) for part in parts):
        parts = parts[0] if len(parts) == 1 or r.chance(0.3) else [*parts, Ellipsis]
    r.case(name, r.t(shape, dtype), parts, dtype=dtype)


# Order.

@op("sort", "argsort", "msort")
def sort(r, name):
    dtype, shape = r.any(), r.shape()
    axis = r.axis(len(shape))
    x = r.t(shape, dtype, odd=0.2)
    if name == "msort":
        # Of equal elements its order is open.
        x = T(*shape, order=True, lay=r.still())
        dtype = r.wide()
        r.case(name, x, dtype=dtype)
    elif name == "sort":
        r.case(name + "/stable", x, axis, r.chance(0.5), dtype=dtype, call=stable)
    else:
        r.case(name, x, dim=axis, descending=r.chance(0.5), stable=True, dtype=dtype)


@op("topk")
def topk(r, name):
    dtype, shape = r.number(), r.shape(r.size(1, 3), 1, 120 if r.chance(0.8) else 30)
    axis = r.randrange(len(shape))
    k = r.size(0, shape[axis]) + (1 if r.chance(0.03) else 0)
    r.case(name, T(*shape, order=True, lay=r.still()), k, axis, r.chance(0.5), dtype=dtype if dtype not in (BF16, F16) else F32)


@op("unique", "unique_consecutive")
def unique(r, name):
    dtype = r.choice([F32, F64, BF16, I64, I32, U8])
    kw = {"return_inverse": True, "return_counts": True} if r.chance(0.5) else {}
    r.case(name, T(*r.shape(), of=[1, 2, 3, 5, 7], lay=r.lay()), dtype=dtype, grad=False, **kw)


@op("searchsorted", "bucketize")
def searched(r, name):
    dtype = r.choice([F32, F64, I64, I32, BF16])
    sorted_ = T(6, values=sorted(r.size(0, 9) for _ in range(6)))
    x = r.t(r.shape(most=100), dtype, (0, 10))
    if name == "bucketize" and r.chance(0.1):
        x = r.choice([3, 2.5])
    args = (sorted_, x) if name == "searchsorted" else (x, sorted_)
    r.case(name, *args, right=r.chance(0.5), dtype=dtype, grad=False)
