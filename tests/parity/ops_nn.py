"""torch.nn.functional."""

import torch
from engine import BF16, BOOL, F16, F32, F64, FLOATS, I64, T

F = "nn.functional."


def activations(g):
    plain = ["relu", "relu6", "silu", "mish", "hardswish", "hardsigmoid", "selu", "softsign", "tanhshrink",
             "logsigmoid", "gelu", "sigmoid", "tanh", "elu", "celu", "leaky_relu", "softplus", "hardtanh",
             "hardshrink", "softshrink"]
    exact = {"relu", "relu6", "hardtanh", "hardshrink"}
    arithmetic = {"leaky_relu", "softshrink", "hardsigmoid", "hardswish", "softsign"}
    for name in plain:
        rule = "exact" if name in exact else "sum" if name in arithmetic else "func"
        # Parts of these cancel near 0, in PyTorch's too.
        rule = "sum" if name in ("tanhshrink", "logsigmoid", "gelu", "elu", "celu", "selu", "softplus", "mish") else rule
        g.each(FLOATS, F + name, T(3, 5, range=(-4, 4)), rule=rule)
        g.each(FLOATS, F + name, T(60, range=(-30, 30)), rule=rule)
        for shape, lay in [((), "c"), ((0, 4), "c"), ((4, 6), "t"), ((2, 3, 4), "s")]:
            g.each([F32, BF16], F + name, T(*shape, lay=lay, range=(-4, 4)), rule=rule)
    g.each(FLOATS, F + "gelu", T(40, range=(-6, 6)), approximate="tanh", rule="sum")
    for a in (0.5, 2.0):
        g.each([F32, BF16], F + "elu", T(20, range=(-4, 4)), a, rule="sum")
        g.each([F32, BF16], F + "celu", T(20, range=(-4, 4)), a, rule="sum")
        g.each([F32, BF16], F + "leaky_relu", T(20, range=(-4, 4)), a, rule="sum")
        g.each([F32, BF16], F + "softplus", T(20, range=(-30, 30)), a, 10.0, rule="sum")
        g.each([F32, BF16], F + "hardshrink", T(20, range=(-4, 4)), a)
        g.each([F32, BF16], F + "softshrink", T(20, range=(-4, 4)), a, rule="sum")
        g.each([F32, BF16], F + "hardtanh", T(20, range=(-4, 4)), -a, a)
        g.each([F32, BF16], F + "threshold", T(20, range=(-4, 4)), a, -3.0)
    for n in (1, 5):
        g.each(FLOATS, F + "prelu", T(2, 5, 3), T(n), rule="sum")
    g.each(FLOATS, F + "glu", T(3, 8), rule="sum")
    g.each([F32, BF16], F + "glu", T(4, 6), 0, rule="sum")
    for op in ("softmax", "log_softmax"):
        for shape, dim in [((3, 5), -1), ((3, 5), 0), ((2, 3, 4), 1), ((2, 3, 4), 0), ((7,), 0), ((1, 1), -1), ((0, 4), 1), ((3, 1025), 1)]:
            g.each(FLOATS, op, T(*shape, range=(-9, 9)), dim, rule="sum")
        g.case(op, T(), 0, rule="sum")
        g.case(op, T(4, 6, lay="t"), 0, rule="sum")
        g.case(op, T(2, 3, 4, lay="s"), -1, rule="sum")
        g.case(op, T(3, 5), 2, fails=True)
        g.each([BF16, F16], op, T(3, 5), -1, dtype_=F32, rule="sum")
    g.each(FLOATS, F + "softmin", T(3, 5), dim=1, rule="sum")
    for p in (1.0, 2.0, 3.0):
        g.each([F32, F64, BF16], F + "normalize", T(3, 5), p=p, dim=1, rule="sum")
    g.each([F32, F64, BF16], F + "cosine_similarity", T(3, 5), T(3, 5), dim=1, rule="sum")
    g.each([F32, F64], F + "pairwise_distance", T(3, 5), T(3, 5), rule="sum")


def linear(g):
    for dtype in FLOATS:
        g.case(F + "linear", T(3, 4), T(5, 4), dtype=dtype, rule="sum")
        g.case(F + "linear", T(3, 4), T(5, 4), T(5), dtype=dtype, rule="sum")
        g.case(F + "linear", T(4), T(5, 4), T(5), dtype=dtype, rule="sum")
        g.case(F + "linear", T(2, 3, 4), T(5, 4), T(5), dtype=dtype, rule="sum")
        g.case(F + "linear", T(0, 4), T(5, 4), T(5), dtype=dtype, rule="sum")
        g.case(F + "bilinear", T(3, 4), T(3, 5), T(2, 4, 5), T(2), dtype=dtype, rule="sum")
    g.case(F + "linear", T(3, 4), T(5, 3), fails=True)
    g.case(F + "linear", T(33, 65, lay="t"), T(17, 65), T(17), rule="sum")


def losses(g):
    for reduction in ("mean", "sum", "none"):
        for dtype in FLOATS:
            kw = dict(reduction=reduction, dtype=dtype, rule="sum")
            for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
                g.case(F + name, T(3, 5), T(3, 5), **kw)
            g.case(F + "soft_margin_loss", T(3, 5), T(3, 5, of=[-1, 1], grad=False), **kw)
            g.case(F + "smooth_l1_loss", T(3, 5), T(3, 5), beta=0.5, **kw)
            g.case(F + "smooth_l1_loss", T(3, 5), T(3, 5), beta=0.0, **kw)
            g.case(F + "huber_loss", T(3, 5), T(3, 5), delta=0.5, **kw)
            g.case(F + "binary_cross_entropy", T(3, 5, range=(0.05, 0.95)), T(3, 5, range=(0, 1), grad=False), **kw)
            g.case(F + "binary_cross_entropy", T(3, 5, range=(0.05, 0.95)), T(3, 5, range=(0, 1), grad=False), T(5, range=(0, 1), grad=False), **kw)
            g.case(F + "binary_cross_entropy_with_logits", T(3, 5), T(3, 5, range=(0, 1), grad=False), **kw)
            g.case(F + "binary_cross_entropy_with_logits", T(3, 5), T(3, 5, range=(0, 1), grad=False),
                   T(5, range=(0, 1), grad=False), pos_weight=T(5, range=(0.5, 2), grad=False), **kw)
            g.case(F + "gaussian_nll_loss", T(3, 5), T(3, 5), T(3, 5, range=(0.5, 2)), **kw)
            g.case(F + "poisson_nll_loss", T(3, 5), T(3, 5, range=(0, 3)), **kw)
            g.case(F + "cosine_embedding_loss", T(3, 5), T(3, 5), T(3, dtype=I64, values=[1, -1, 1]), margin=0.2, **kw)
            g.case(F + "triplet_margin_loss", T(3, 5), T(3, 5), T(3, 5), **kw)
            g.case(F + "triplet_margin_loss", T(3, 5), T(3, 5), T(3, 5), margin=0.5, p=1.0, swap=True, **kw)
            g.case(F + "margin_ranking_loss", T(5), T(5), T(5, of=[-1, 1], grad=False), margin=0.1, **kw)
            g.case(F + "hinge_embedding_loss", T(5), T(5, of=[-1, 1], grad=False), **kw)
            g.case(F + "multilabel_soft_margin_loss", T(3, 5), T(3, 5, of=[0, 1], grad=False), **kw)
            g.case(F + "multi_margin_loss", T(3, 5), T(3, dtype=I64, range=(0, 5)), **kw)
        for dtype in FLOATS:
            kw = dict(reduction=reduction, dtype=dtype, rule="sum")
            for log in (False, True):
                g.case(F + "kl_div", T(3, 5, range=(-3, 0)), T(3, 5, range=(-3, 0) if log else (0, 1)), log_target=log, **kw)
            classes = lambda *s: T(*s, dtype=I64, range=(0, 5))
            for name in ("nll_loss", "cross_entropy"):
                g.case(F + name, T(3, 5), classes(3), **kw)
                g.case(F + name, T(3, 5), classes(3), T(5, range=(0.5, 2), grad=False), **kw)
                g.case(F + name, T(6, 5), T(6, dtype=I64, values=[1, -100, 4, 2, -100, 0]), **kw)
                g.case(F + name, T(6, 5), T(6, dtype=I64, values=[1, 2, 4, 2, 3, 0]), T(5, range=(0.5, 2), grad=False), ignore_index=2, **kw)
                g.case(F + name, T(2, 5, 3), classes(2, 3), **kw)
                g.case(F + name, T(2, 5, 3, 2), classes(2, 3, 2), T(5, range=(0.5, 2), grad=False), **kw)
                g.case(F + name, T(5), classes(), **kw)
            for smooth in (0.1, 0.5):
                g.case(F + "cross_entropy", T(3, 5), classes(3), label_smoothing=smooth, **kw)
                g.case(F + "cross_entropy", T(6, 5), T(6, dtype=I64, values=[1, -100, 4, 2, -100, 0]),
                       T(5, range=(0.5, 2), grad=False), label_smoothing=smooth, **kw)
                g.case(F + "cross_entropy", T(3, 5), T(3, 5, range=(0, 1)), label_smoothing=smooth, **kw)
            g.case(F + "cross_entropy", T(3, 5), T(3, 5, range=(0, 1)), **kw)
            g.case(F + "cross_entropy", T(3, 5), T(3, 5, range=(0, 1)), T(5, range=(0.5, 2), grad=False), **kw)
            g.case(F + "cross_entropy", T(2, 5, 3), T(2, 5, 3, range=(0, 1)), **kw)
    g.case(F + "cross_entropy", T(3, 5), T(2, dtype=I64, range=(0, 5)), fails=True)
    g.case(F + "cross_entropy", T(3, 5), T(3, dtype=I64, values=[5]), fails=True)
    g.case(F + "mse_loss", T(3, 5), T(3, 4), fails=True)
    g.case(F + "mse_loss", T(3, 5), T(3, 5), reduction="median", fails=True)
    for dtype in (F32, F64):
        for reduction in ("mean", "sum", "none"):
            for zero in (False, True):
                g.case(F + "ctc_loss", T(8, 2, 5), T(2, 3, dtype=I64, range=(1, 5)), T(2, dtype=I64, values=[8, 7]),
                       T(2, dtype=I64, values=[3, 2]), reduction=reduction, zero_infinity=zero, dtype=dtype, rule="sum",
                       call=lambda x, *a, **k: torch.nn.functional.ctc_loss(x.log_softmax(-1), *a, **k),
                       variant="of_logits")


def norms(g):
    for dtype in FLOATS:
        kw = dict(dtype=dtype, rule="sum")
        g.case(F + "layer_norm", T(3, 5), [5], **kw)
        g.case(F + "layer_norm", T(3, 5), [5], T(5), T(5), **kw)
        g.case(F + "layer_norm", T(2, 3, 4), [3, 4], T(3, 4), T(3, 4), eps=1e-3, **kw)
        g.case(F + "layer_norm", T(4, 6, lay="t"), [6], T(6), **kw)
        g.case(F + "layer_norm", T(0, 5), [5], T(5), T(5), **kw)
        g.case(F + "rms_norm", T(3, 5), [5], **kw)
        g.case(F + "rms_norm", T(3, 5), [5], T(5), **kw)
        g.case(F + "rms_norm", T(2, 3, 4), [3, 4], T(3, 4), eps=1e-3, **kw)
        for groups in (1, 2, 6):
            g.case(F + "group_norm", T(2, 6, 4), groups, **kw)
            g.case(F + "group_norm", T(2, 6, 3, 2), groups, T(6), T(6), **kw)
        for training in (True, False):
            for shape in [(4, 3), (2, 3, 5), (2, 3, 4, 2), (2, 3, 2, 2, 2)]:
                stats = dict(running_mean=T(3, grad=False), running_var=T(3, range=(0.5, 2), grad=False))
                g.case(F + "batch_norm", T(*shape), training=training, weight=T(3), bias=T(3), **stats, **kw)
            g.case(F + "batch_norm", T(4, 3), training=training, momentum=0.3, eps=1e-3, **stats, **kw)
        g.case(F + "batch_norm", T(4, 3), running_mean=None, running_var=None, training=True, **kw)
        g.case(F + "instance_norm", T(2, 3, 4), **kw)
        g.case(F + "instance_norm", T(2, 3, 4, 2), weight=T(3), bias=T(3), **kw)
        g.case(F + "local_response_norm", T(2, 5, 4, range=(0.1, 2)), 3, **kw)
    g.case(F + "layer_norm", T(3, 5), [4], fails=True)
    g.case(F + "group_norm", T(2, 6, 4), 4, fails=True)
    g.case(F + "batch_norm", T(1, 3), running_mean=None, running_var=None, training=True, fails=True)


def convolutions(g):
    two = [dict(), dict(stride=2), dict(padding=1), dict(padding=[1, 2]), dict(dilation=2), dict(stride=[2, 1], padding=1),
           dict(padding="same"), dict(padding="valid"), dict(padding="same", dilation=2)]
    for dtype in FLOATS:
        kw = dict(dtype=dtype, rule="sum")
        for options in two:
            g.case(F + "conv2d", T(2, 4, 6, 7), T(3, 4, 3, 3), T(3), **options, **kw)
        g.case(F + "conv2d", T(2, 4, 6, 7), T(6, 2, 3, 3), T(6), groups=2, **kw)
        g.case(F + "conv2d", T(2, 4, 6, 7), T(8, 1, 3, 3), groups=4, padding=1, **kw)
        g.case(F + "conv2d", T(2, 4, 6, 7), T(3, 4, 1, 1), **kw)
        g.case(F + "conv2d", T(4, 6, 7), T(3, 4, 3, 3), **kw)
        g.case(F + "conv2d", T(0, 4, 6, 7), T(3, 4, 3, 3), **kw)
        g.case(F + "conv2d", T(2, 4, 6, 6, lay="t"), T(3, 4, 3, 3, lay="s"), T(3), **kw)
        for options in (dict(), dict(stride=2), dict(padding=1), dict(dilation=2), dict(padding="same")):
            g.case(F + "conv1d", T(2, 4, 9), T(3, 4, 3), T(3), **options, **kw)
        g.case(F + "conv1d", T(4, 9), T(3, 4, 3), **kw)
        g.case(F + "conv1d", T(2, 4, 9), T(6, 2, 3), groups=2, **kw)
        for options in (dict(), dict(stride=2, padding=1), dict(dilation=[1, 2, 1])):
            g.case(F + "conv3d", T(1, 2, 4, 5, 4), T(3, 2, 2, 2, 2), T(3), **options, **kw)
        for options in (dict(), dict(stride=2), dict(stride=2, padding=1), dict(stride=2, padding=1, output_padding=1), dict(dilation=2)):
            g.case(F + "conv_transpose2d", T(2, 4, 3, 4), T(4, 3, 3, 3), T(3), **options, **kw)
            g.case(F + "conv_transpose1d", T(2, 4, 5), T(4, 3, 3), T(3), **options, **kw)
        g.case(F + "conv_transpose2d", T(2, 4, 3, 4), T(4, 3, 3, 3), groups=2, **kw)
        g.case(F + "conv_transpose3d", T(1, 2, 2, 3, 2), T(2, 3, 2, 2, 2), stride=2, **kw)
    g.case(F + "conv2d", T(2, 4, 6, 7), T(3, 5, 3, 3), fails=True)
    g.case(F + "conv2d", T(2, 4, 2, 2), T(3, 4, 3, 3), fails=True)
    g.case(F + "conv2d", T(2, 4, 6, 7), T(3, 4, 3, 3), stride=0, fails=True)
    g.case(F + "conv2d", T(2, 4, 6, 7), T(3, 2, 3, 3), groups=3, fails=True)


def pools(g):
    for dtype in FLOATS:
        for options in (dict(), dict(stride=1), dict(stride=1, padding=1), dict(ceil_mode=True)):
            g.case(F + "max_pool2d", T(2, 3, 7, 8), 3, dtype=dtype, **options)
            g.case(F + "avg_pool2d", T(2, 3, 7, 8), 3, dtype=dtype, rule="sum", **options)
            g.case(F + "max_pool1d", T(2, 3, 8), 3, dtype=dtype, **options)
            g.case(F + "avg_pool1d", T(2, 3, 8), 3, dtype=dtype, rule="sum", **options)
        g.case(F + "max_pool2d", T(2, 3, 7, 8), [2, 3], stride=[1, 2], dilation=2, dtype=dtype)
        g.case(F + "max_pool2d", T(2, 3, 7, 8), 2, return_indices=True, dtype=dtype)
        g.case(F + "max_pool2d", T(3, 7, 8), 2, dtype=dtype)
        g.case(F + "max_pool3d", T(1, 2, 4, 5, 4), 2, dtype=dtype)
        g.case(F + "avg_pool3d", T(1, 2, 4, 5, 4), 2, dtype=dtype, rule="sum")
        g.case(F + "avg_pool2d", T(2, 3, 7, 8), 3, padding=1, count_include_pad=False, dtype=dtype, rule="sum")
        g.case(F + "avg_pool2d", T(2, 3, 7, 8), 3, divisor_override=2, dtype=dtype, rule="sum")
        for size in (1, 3, 5):
            g.case(F + "adaptive_avg_pool1d", T(2, 3, 8), size, dtype=dtype, rule="sum")
            g.case(F + "adaptive_avg_pool2d", T(2, 3, 7, 8), size, dtype=dtype, rule="sum")
            g.case(F + "adaptive_max_pool1d", T(2, 3, 8), size, dtype=dtype)
            g.case(F + "adaptive_max_pool2d", T(2, 3, 7, 8), size, dtype=dtype)
        g.case(F + "adaptive_avg_pool2d", T(2, 3, 7, 8), [2, 5], dtype=dtype, rule="sum")
        g.case(F + "adaptive_avg_pool3d", T(1, 2, 4, 5, 4), 2, dtype=dtype, rule="sum")
        g.case(F + "lp_pool2d", T(2, 3, 6, 6, range=(0.1, 2)), 2.0, 2, dtype=dtype, rule="sum")
        for mode in ("nearest", "nearest-exact"):
            g.case(F + "interpolate", T(2, 3, 5), size=8, mode=mode, dtype=dtype, rule="sum")
            g.case(F + "interpolate", T(2, 3, 4, 5), size=[6, 3], mode=mode, dtype=dtype, rule="sum")
            g.case(F + "interpolate", T(2, 3, 4, 5), scale_factor=2.0, mode=mode, dtype=dtype, rule="sum")
        for corners in (False, True):
            g.case(F + "interpolate", T(2, 3, 5), size=8, mode="linear", align_corners=corners, dtype=dtype, rule="sum")
            g.case(F + "interpolate", T(2, 3, 4, 5), size=[6, 9], mode="bilinear", align_corners=corners, dtype=dtype, rule="sum")
            g.case(F + "interpolate", T(2, 3, 4, 5), scale_factor=1.5, mode="bilinear", align_corners=corners, dtype=dtype, rule="sum")
            g.case(F + "interpolate", T(1, 2, 4, 5), size=[6, 9], mode="bicubic", align_corners=corners, dtype=dtype, rule="sum")
    g.case(F + "max_pool2d", T(2, 3, 2, 2), 3, fails=True)
    g.case(F + "max_pool2d", T(2, 3, 7, 8), 2, padding=2, fails=True)
    g.case(F + "avg_pool2d", T(2, 3, 7, 8), 0, fails=True)


def attention(g):
    op = F + "scaled_dot_product_attention"
    for dtype in FLOATS:
        kw = dict(dtype=dtype, rule="sum")
        q, k, v = T(2, 2, 5, 8), T(2, 2, 7, 8), T(2, 2, 7, 8)
        g.case(op, q, k, v, **kw)
        g.case(op, q, k, T(2, 2, 7, 4), scale=0.5, **kw)
        g.case(op, T(2, 2, 5, 8), T(2, 2, 5, 8), T(2, 2, 5, 8), is_causal=True, **kw)
        g.case(op, q, k, v, is_causal=True, **kw)
        g.case(op, q, k, v, attn_mask=T(5, 7, dtype=BOOL, of=[1, 1, 0]), **kw)
        g.case(op, q, k, v, attn_mask=T(2, 1, 5, 7, grad=False), **kw)
        g.case(op, T(2, 4, 5, 8), k, v, enable_gqa=True, **kw)
        g.case(op, T(3, 5, 8), T(3, 7, 8), T(3, 7, 8), **kw)
        g.case(op, T(5, 8), T(7, 8), T(7, 8), **kw)
    g.case(op, T(2, 5, 8), T(2, 7, 9), T(2, 7, 8), fails=True)


def build(g):
    activations(g)
    linear(g)
    losses(g)
    norms(g)
    convolutions(g)
    pools(g)
    attention(g)
