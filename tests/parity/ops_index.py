"""Reading and writing by index, order, counts."""

from engine import BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, INTS, NAN, U8, Slice, T

ALL = FLOATS + INTS + [BOOL]
SOME = [F32, BF16, I64, BOOL]


def index(*shape, n, **kwargs):
    return T(*shape, dtype=I64, range=(0, n), **kwargs)


def getitem(g):
    keys = [
        2, -1, [Slice(1, 3, None)], [Slice(None, None, 2)], [Slice(-3, None, None)], [Slice(0, 9, 2)],
        [Slice(2, 2, None)], [Slice(None, None, None), 1], [Ellipsis, 1], [None, Slice(None, None, None)],
        [1, None, 2], [Slice(1, None, 2), Slice(None, -1, None)], [Ellipsis], [Ellipsis, None], [-1, -1],
        [[0, 2, 2]], [[0, 2], Slice(1, 3, None)], [Slice(None, None, None), [1, 0, 1]], [[0, 1], [2, 3]],
        [[0, 1, 3], None, Slice(0, 2, None)], [[-1, -4]],
    ]
    for key in keys:
        g.each(ALL if key in (2, keys[2]) else SOME, "__getitem__", T(4, 5), key, rule="exact")
    for key in keys[:12]:
        g.case("__getitem__", T(4, 5, lay="t"), key)
    three = [[0, Slice(None, None, None), [1, 2]], [[0, 1], Slice(None, None, None), [1, 2]],
             [Slice(None, None, None), [0, 1], [2, 0]], [Ellipsis, [0, 3]], [Ellipsis, Slice(0, 2, None), 1],
             [[1], [[0], [2]], [0, 1, 2]], [1, Ellipsis], [Slice(None, None, None), None, [1, 0]]]
    for key in three:
        g.each(SOME, "__getitem__", T(2, 3, 4), key)
    for dtype in SOME:
        g.case("__getitem__", T(4, 5), index(3, n=4), dtype=dtype)
        g.case("__getitem__", T(4, 5), index(2, 3, n=4), dtype=dtype)
        g.case("__getitem__", T(4, 5), [Slice(None, None, None), index(3, n=5)], dtype=dtype)
        g.case("__getitem__", T(4, 5), [index(3, n=4), index(3, n=5)], dtype=dtype)
        g.case("__getitem__", T(4, 5), [index(3, 1, n=4), index(2, n=5)], dtype=dtype)
        g.case("__getitem__", T(4, 5), index(0, n=4), dtype=dtype)
        g.case("__getitem__", T(4, 5), index(n=4), dtype=dtype)
        g.case("__getitem__", T(4, 5), T(4, 5, dtype=BOOL), dtype=dtype)
        g.case("__getitem__", T(4, 5), T(4, dtype=BOOL), dtype=dtype)
        g.case("__getitem__", T(4, 5), [Slice(None, None, None), T(5, dtype=BOOL)], dtype=dtype)
        g.case("__getitem__", T(4, 5), [T(4, dtype=BOOL), 1], dtype=dtype)
        g.case("__getitem__", T(4, 5), T(3, dtype=I32, range=(0, 4)), dtype=dtype)
    for key in (4, -5, [Slice(None, None, None), 5], [[4]], [[-5]], [Slice(None, None, 0)]):
        g.case("__getitem__", T(4, 5), key, fails=True)
    g.case("__getitem__", T(4, 5), T(3, dtype=BOOL), fails=True)
    g.case("__getitem__", T(), 0, fails=True)


def gathers(g):
    for dtype in ALL:
        g.case("gather", T(3, 5), 0, index(2, 5, n=3), dtype=dtype)
        g.case("gather", T(3, 5), -1, index(3, 7, n=5), dtype=dtype)
        g.case("index_select", T(3, 5), 0, index(4, n=3), dtype=dtype)
        g.case("index_select", T(3, 5), -1, index(6, n=5), dtype=dtype)
        g.case("take_along_dim", T(3, 5), index(3, 2, n=5), 1, dtype=dtype)
        g.case("take", T(3, 5), index(2, 4, n=15), dtype=dtype)
        g.case("masked_select", T(3, 5), T(3, 5, dtype=BOOL), dtype=dtype)
        g.case("nonzero", T(3, 5, of=[0, 1]), dtype=dtype)
        g.case("nn.functional.embedding", index(2, 3, n=7), T(7, 4), dtype=dtype) if dtype in FLOATS else None
    for dtype in (F32, BF16, I64):
        g.case("gather", T(3, 4, 5, lay="t"), 1, index(2, 6, 5, n=4), dtype=dtype)
        g.case("gather", T(3, 4, 5), 2, index(3, 1, 2, n=5, lay="s"), dtype=dtype)
        g.case("gather", T(), 0, index(n=1), dtype=dtype)
        g.case("gather", T(0, 3), 1, index(0, 2, n=3), dtype=dtype)
        g.case("index_select", T(2, 3, 4, lay="t"), 1, index(3, n=3), dtype=dtype)
        g.case("index_select", T(3, 5), 1, index(0, n=5), dtype=dtype)
        g.case("take_along_dim", T(3, 5), index(1, 2, n=5), 1, dtype=dtype)
        g.case("take_along_dim", T(3, 5), index(4, n=15), dtype=dtype)
        g.case("masked_select", T(3, 5, lay="t"), T(5, dtype=BOOL), dtype=dtype)
        g.case("masked_select", T(5), T(3, 5, dtype=BOOL), dtype=dtype)
        g.case("nonzero", T(2, 3, 4, of=[0, 1], lay="s"), dtype=dtype)
        g.case("nonzero", T(0, 4), dtype=dtype)
        g.case("argwhere", T(3, 4, of=[0, 1]), dtype=dtype)
        g.case("index_select", T(3, 5), 2, index(4, n=3), fails=True, dtype=dtype)
        g.case("index_select", T(3, 5), 0, T(2, dtype=I64, values=[0, 3]), fails=True, dtype=dtype)
        g.case("gather", T(3, 5), 0, T(2, 5, dtype=I64, values=[3]), fails=True, dtype=dtype)
        g.case("gather", T(3, 5), 0, T(2, 6, dtype=I64, values=[0]), fails=True, dtype=dtype)
    for padding in (0, 3, -1):
        g.each([F32, BF16], "nn.functional.embedding", index(2, 6, n=7), T(7, 4), padding_idx=padding)
    g.each([F32], "nn.functional.embedding", index(2, 3, n=7), T(7, 4), scale_grad_by_freq=True)
    g.each([F32], "nn.functional.embedding", T(3, dtype=I64, values=[0, 7]), T(7, 4), fails=True)
    g.each([F32], "nn.functional.embedding", T(5, dtype=I32, range=(0, 7)), T(7, 4))
    for mode in ("sum", "mean", "max"):
        g.each([F32, F64], "nn.functional.embedding_bag", index(2, 3, n=7), T(7, 4), mode=mode, rule="sum",
               call=None)


def writes(g):
    for dtype in ALL:
        g.case("scatter", T(3, 5), 1, perm(3, 5), T(3, 5), dtype=dtype)
        g.case("scatter", T(4, 5), 1, perm(3, 5), 1 if dtype == BOOL else 3, dtype=dtype)
        g.case("index_fill", T(3, 5), 1, T(2, dtype=I64, values=[0, 3]), 1, dtype=dtype)
        g.case("masked_scatter", T(3, 5), T(3, 5, dtype=BOOL), T(15), dtype=dtype)
        g.case("index_copy", T(3, 5), 1, T(2, dtype=I64, values=[4, 1]), T(3, 2), dtype=dtype)
        g.case("index_put", T(3, 5), [T(2, dtype=I64, values=[0, 2])], T(2, 5), dtype=dtype)
        if dtype != BOOL:
            g.case("scatter_add", T(3, 5), 1, index(3, 7, n=5), T(3, 7), dtype=dtype, rule="sum")
            g.case("scatter_add", T(3, 5), 0, index(4, 5, n=3), T(4, 5), dtype=dtype, rule="sum")
            g.case("index_add", T(3, 5), 0, index(4, n=3), T(4, 5), dtype=dtype, rule="sum")
            g.case("index_add", T(3, 5), 1, index(6, n=5), T(3, 6), alpha=2, dtype=dtype, rule="sum")
            g.case("index_put", T(3, 5), [index(4, n=3), index(4, n=5)], T(4), accumulate=True, dtype=dtype, rule="sum")
    for dtype in (F32, F64, BF16, I64):
        g.case("scatter_add", T(2, 3, 4, lay="t"), 2, index(2, 3, 6, n=4), T(2, 3, 6, lay="s"), dtype=dtype, rule="sum")
        g.case("scatter_add", T(3, 5), 0, index(0, 5, n=3), T(0, 5), dtype=dtype, rule="sum")
        g.case("scatter_add", T(5), -1, index(40, n=5), T(40), dtype=dtype, rule="sum")
        g.case("scatter_add", T(3, 5), 0, T(2, 5, dtype=I64, values=[3]), T(2, 5), fails=True, dtype=dtype)
        g.case("index_add", T(3, 5), 0, T(2, dtype=I64, values=[0, 3]), T(2, 5), fails=True, dtype=dtype)
        g.case("index_put", T(3, 5), [T(3, 5, dtype=BOOL)], T(), dtype=dtype)
        g.case("index_put", T(3, 5), [T(3, dtype=BOOL, values=[1, 0, 1])], T(5), dtype=dtype)
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for own in (True, False):
                g.case("scatter_reduce", T(3, 5), 1, index(3, 8, n=5), T(3, 8), reduce, include_self=own, dtype=dtype,
                       rule="sum", grad=dtype in (F32, F64))
        g.case("select_scatter", T(3, 5), T(5), 0, 1, dtype=dtype)
        g.case("slice_scatter", T(4, 5), T(2, 5), 0, 1, 3, dtype=dtype)
        g.case("diagonal_scatter", T(3, 5), T(3), 1, dtype=dtype)


def perm(rows, n):
    """Each row of positions names every column once."""
    order = [3, 0, 4, 1, 2]
    return T(rows, n, dtype=I64, values=[order[(i + r) % n] for r in range(rows) for i in range(n)])


def orders(g):
    for dtype in ALL:
        for down in (False, True):
            g.case("sort", T(3, 7), -1, down, dtype=dtype, variant="stable", call=stable)
            g.case("sort", T(3, 7, of=[1, 2, 3]), 0, down, dtype=dtype, variant="stable", call=stable)
            g.case("argsort", T(3, 7), dim=1, descending=down, stable=True, dtype=dtype)
    for dtype in FLOATS + INTS:
        # Equal elements leave their order open, so that these have none.
        distinct = dict(order=True)
        for largest in (True, False):
            g.case("topk", T(3, 7, **distinct), 3, -1, largest, dtype=dtype)
            g.case("topk", T(7, 3, **distinct), 2, 0, largest, dtype=dtype)
        g.case("topk", T(3, 7, **distinct), 7, dtype=dtype)
        g.case("topk", T(3, 7, **distinct), 0, dtype=dtype)
        g.case("topk", T(3, 7), 8, fails=True, dtype=dtype)
        g.case("msort", T(5, 3), dtype=dtype)
    for n in (1, 2, 31, 32, 33, 100, 257):
        g.each([F32, BF16, I64], "sort", T(n), -1, False, variant="stable", call=stable)
        g.each([F32, I64], "topk", T(n, order=True), min(n, 5))
    g.case("sort", T(0, 3), 0, False, variant="stable", call=stable)
    g.case("sort", T(), -1, False, variant="stable", call=stable)
    g.case("sort", T(3, 4, lay="t"), 0, True, variant="stable", call=stable)
    g.case("sort", T(2, 3, 4, lay="s"), 1, True, variant="stable", call=stable)
    g.case("sort", T(3), 1, False, fails=True)
    for dtype in (F32, F64, BF16, I64, I32, U8):
        g.case("unique", T(12, of=[1, 2, 3, 5]), dtype=dtype, grad=False)
        g.case("unique", T(3, 4, of=[1, 2, 3, 5]), return_inverse=True, return_counts=True, dtype=dtype, grad=False)
        g.case("unique_consecutive", T(12, of=[1, 2]), dtype=dtype, grad=False)
        g.case("unique_consecutive", T(12, of=[1, 2]), return_inverse=True, return_counts=True, dtype=dtype, grad=False)
        for right in (False, True):
            g.case("searchsorted", T(6, values=[1, 2, 2, 4, 7, 9]), T(2, 5, range=(0, 10)), right=right, dtype=dtype, grad=False)
            g.case("bucketize", T(2, 5, range=(0, 10)), T(6, values=[1, 2, 2, 4, 7, 9]), right=right, dtype=dtype, grad=False)
    g.case("searchsorted", T(2, 4, values=[1, 3, 5, 7, 2, 4, 6, 8]), T(2, 3, range=(0, 9)), grad=False)
    g.case("searchsorted", T(6, values=[1, 2, 2, 4, 7, 9]), 3.0, grad=False)
    for dtype in (I64, I32, U8):
        g.case("bincount", T(20, range=(0, 6)), dtype=dtype)
        g.case("bincount", T(20, range=(0, 6)), minlength=9, dtype=dtype)
        g.case("bincount", T(20, range=(0, 6)), T(20, dtype=F64), dtype=dtype, rule="sum", grad=False)
    g.case("bincount", T(0, dtype=I64), dtype=I64)
    g.case("bincount", T(3, dtype=I64, values=[1, -1]), dtype=I64, fails=True)
    g.each([F32, F64], "histc", T(40, range=(0, 8)), 8, 0, 8, grad=False)
    g.each([F32, I64], "isin", T(3, 4, of=[1, 2, 3, 4]), T(2, values=[2, 4]), grad=False)
    for dtype in (F32, I64):
        g.case("tril_indices", 3, 4, dtype=dtype, grad=False)
        g.case("triu_indices", 3, 4, 1, dtype=dtype, grad=False)


def stable(x, dim, descending):
    return x.sort(dim=dim, descending=descending, stable=True)


def build(g):
    getitem(g)
    gathers(g)
    writes(g)
    orders(g)
