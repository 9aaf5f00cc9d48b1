"""Grids, bags, margins, the norm of neighbours, and numbers without axes beside 16-bit floats."""

from engine import BF16, F16, F32, F64, FLOATS, I64, NAN, T

F = "nn.functional."
PAIR = [F32, F64]


def grids(g):
    for corners in (False, True):
        for padding in ("zeros", "border", "reflection"):
            kw = dict(padding_mode=padding, align_corners=corners, rule="sum")
            for mode in ("bilinear", "nearest", "bicubic"):
                g.each(PAIR, F + "grid_sample", T(2, 3, 5, 4), T(2, 3, 6, 2, range=(-1.7, 1.9)), mode=mode, **kw)
                g.each(PAIR, F + "grid_sample", T(1, 2, 1, 3), T(1, 4, 2, 2, range=(-3, 3)), mode=mode, **kw)
            g.each([BF16, F16], F + "grid_sample", T(1, 2, 5, 4), T(1, 3, 3, 2, range=(-0.8, 0.9)), **kw)
            for mode in ("bilinear", "nearest"):
                g.each(PAIR, F + "grid_sample", T(2, 2, 3, 4, 5), T(2, 2, 3, 2, 3, range=(-1.6, 1.7)), mode=mode, **kw)
        g.each(PAIR, F + "affine_grid", T(2, 2, 3), [2, 1, 4, 5], align_corners=corners, rule="sum")
        g.each(PAIR, F + "affine_grid", T(1, 2, 3), [1, 1, 1, 3], align_corners=corners, rule="sum")
        g.each(PAIR, F + "affine_grid", T(2, 3, 4), [2, 3, 2, 3, 4], align_corners=corners, rule="sum")
    g.case(F + "grid_sample", T(1, 2, 5, 4), T(1, 3, 3, 2, values=[NAN, 0.1, 0.2]), align_corners=False, grad=False, rule="sum")
    g.case(F + "grid_sample", T(2, 3, 5, 4), T(1, 3, 6, 2), align_corners=False, fails=True)
    g.case(F + "grid_sample", T(2, 3, 5, 4), T(2, 3, 6, 3), align_corners=False, fails=True)
    g.case(F + "grid_sample", T(2, 2, 3, 4, 5), T(2, 2, 3, 2, 3), mode="bicubic", align_corners=False, rule="sum")
    g.case(F + "affine_grid", T(2, 2, 3), [1, 1, 4, 5], align_corners=False, fails=True)
    g.case(F + "affine_grid", T(2, 3, 3), [2, 1, 4, 5], align_corners=False, fails=True)


def bags(g):
    op = F + "embedding_bag"
    index = lambda *s: T(*s, dtype=I64, range=(0, 7))
    offsets = lambda *v: T(len(v), dtype=I64, values=list(v))
    for mode in ("sum", "mean", "max"):
        kw = dict(mode=mode, rule="sum")
        g.each(PAIR, op, index(4, 5), T(7, 3), **kw)
        g.each(PAIR, op, index(9), T(7, 3), offsets(0, 2, 2, 7), **kw)
        g.each(PAIR, op, index(9), T(7, 3), offsets(0, 3, 9), include_last_offset=True, **kw)
        g.each(PAIR, op, index(9), T(7, 3), offsets(0, 4, 4), padding_idx=2, **kw)
        g.each(PAIR, op, index(3, 4), T(7, 3), padding_idx=3, **kw)
    g.each(PAIR, op, index(4, 5), T(7, 3), mode="sum", per_sample_weights=T(4, 5), rule="sum")
    g.each(PAIR, op, index(9), T(7, 3), offsets(0, 2, 5), mode="sum", per_sample_weights=T(9), rule="sum")
    g.case(op, index(9), T(7, 3), offsets(0, 2), mode="mean", per_sample_weights=T(9), fails=True)
    g.case(op, index(9), T(7, 3), offsets(1, 2), fails=True)
    g.case(op, index(9), T(7, 3), offsets(0, 10), fails=True)
    g.case(op, index(4, 5), T(7, 3), offsets(0, 2), fails=True)
    g.case(op, index(9), T(7, 3), fails=True)
    g.case(op, T(4, dtype=I64, values=[0, 7]), T(7, 3), offsets(0), fails=True)


def margins(g):
    for reduction in ("mean", "sum", "none"):
        for dtype in PAIR:
            kw = dict(reduction=reduction, dtype=dtype, rule="sum")
            g.case(F + "multi_margin_loss", T(4, 5), T(4, dtype=I64, range=(0, 5)), **kw)
            g.case(F + "multi_margin_loss", T(4, 5), T(4, dtype=I64, range=(0, 5)), p=2, margin=0.7, **kw)
            g.case(F + "multi_margin_loss", T(4, 5), T(4, dtype=I64, range=(0, 5)), weight=T(5, range=(0.5, 2), grad=False), **kw)
            g.case(F + "multi_margin_loss", T(5), T(dtype=I64, range=(0, 5)), **kw)
            g.case(F + "multilabel_margin_loss", T(3, 4), T(3, 4, dtype=I64, values=[3, 0, -1, 1, 2, -1, 0, 0, -1, 1, 2, 3]), **kw)
            g.case(F + "multilabel_margin_loss", T(2, 4), T(2, 4, dtype=I64, values=[3, 0, 2, 1, 1, 1, -1, 0]), **kw)
            g.case(F + "multilabel_margin_loss", T(4), T(4, dtype=I64, values=[3, 0, -1, 1]), **kw)
        for dtype in FLOATS:
            kw = dict(reduction=reduction, dtype=dtype, rule="sum")
            g.case(F + "multilabel_soft_margin_loss", T(3, 5), T(3, 5, of=[0, 1], grad=False), weight=T(5, range=(0.5, 2), grad=False), **kw)
            g.case(F + "multilabel_soft_margin_loss", T(2, 3, 5), T(2, 3, 5, range=(0, 1), grad=False), **kw)
    g.case(F + "multi_margin_loss", T(4, 5), T(3, dtype=I64, range=(0, 5)), fails=True)
    g.case(F + "multi_margin_loss", T(4, 5), T(4, dtype=I64, values=[5]), fails=True)
    g.case(F + "multi_margin_loss", T(4, 5), T(4, dtype=I64, range=(0, 5)), p=3, fails=True)
    g.case(F + "multilabel_margin_loss", T(3, 4), T(3, 5, dtype=I64, values=[0]), fails=True)
    g.case(F + "multilabel_soft_margin_loss", T(3, 4), T(3, 5), fails=True)


def neighbours(g):
    for size in (1, 2, 3, 5, 9):
        g.each(PAIR, F + "local_response_norm", T(2, 5, 4), size, rule="sum")
        g.each(PAIR, F + "local_response_norm", T(2, 5, 3, 2), size, alpha=0.3, beta=0.5, k=2.0, rule="sum")
    g.each(PAIR, F + "local_response_norm", T(2, 4, 2, 3, 2), 3, alpha=0.3, rule="sum")
    g.case(F + "local_response_norm", T(0, 5, 4), 3, rule="sum", grad=False)
    g.case(F + "local_response_norm", T(5, 4), 3, fails=True)


def numbers(g):
    """The second operand has no axis: it is not rounded to 16 bits first."""
    for op in ("add", "sub", "mul", "div"):
        for dtype in (BF16, F16):
            for other in (F32, F64):
                g.case(op, T(40, range=(1, 3)), T(dtype=other, values=[0.1003]), dtype=dtype, rule="arith")
                g.case(op, T(40, range=(1, 3)), T(dtype=other, values=[3.017]), dtype=dtype, rule="arith")


def build(g):
    grids(g)
    bags(g)
    margins(g)
    neighbours(g)
    numbers(g)
