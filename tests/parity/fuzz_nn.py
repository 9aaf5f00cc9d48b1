"""Random calls of torch.nn.functional."""

import torch
from engine import BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, INF, NAN, T
from fuzz_draw import ENDS, op
from fuzz_shape import index

F = "nn.functional."


def named(*names):
    return op(*(F + name for name in names))


REDUCTIONS = ["mean", "sum", "none"]
EXACT = ("relu", "relu6", "hardtanh", "hardshrink", "threshold")


@named("relu", "relu6", "silu", "mish", "hardswish", "hardsigmoid", "selu", "softsign", "tanhshrink", "logsigmoid", "gelu",
       "sigmoid", "tanh", "elu", "celu", "leaky_relu", "softplus", "hardtanh", "hardshrink", "softshrink", "threshold")
def activation(r, name):
    short, dtype, kw = name[len(F):], r.float(), {}
    if short == "gelu" and r.chance(0.5):
        kw["approximate"] = r.choice(["none", "tanh"])
    if short in ("elu", "celu") and r.chance(0.5):
        kw["alpha"] = r.choice([0.5, 2.0, 1.3])
    if short == "leaky_relu" and r.chance(0.5):
        kw["negative_slope"] = r.choice([0.2, 0.0, 0.5])
    if short in ("hardshrink", "softshrink") and r.chance(0.5):
        kw["lambd"] = r.choice([0.0, 0.3, 1.0])
    if short == "softplus" and r.chance(0.5):
        kw.update(beta=r.choice([0.5, 2.0]), threshold=r.choice([5.0, 20.0]))
    if short == "hardtanh" and r.chance(0.5):
        kw.update(min_val=-0.5, max_val=r.choice([0.25, 2.0]))
    if short == "threshold":
        kw.update(threshold=r.choice([0.0, 0.5]), value=r.choice([-3.0, 0.0, 7.0]))
    rule = "choice" if short in EXACT else "sum"
    range = r.choice([(-4, 4), (-4, 4), (-30, 30)])
    # DIFFERENT["slopes at NaN"], DIFFERENT["hardswish"], DIFFERENT["gelu"]
    grad = r.chance(0.4)
    x = r.t(r.shape(), dtype, range, odd=0.25, without=([NAN] if grad else []) + [*ENDS] + ([INF, -INF] if short == "gelu" else []))
    r.case(name, x, dtype=dtype, rule=rule, grad=grad, **kw)


@named("prelu")
def prelu(r, name):
    shape = r.shape(r.size(2, 4))
    r.case(name, r.t(shape), r.t([r.choice([1, shape[1]])], lay="c"), dtype=r.float(), rule="sum")


@named("glu")
def glu(r, name):
    shape = r.shape(r.size(1, 4), most=400)
    axis = r.randrange(len(shape))
    shape[axis] = 2 * r.size(0 if r.chance(0.1) else 1, 5) + (1 if r.chance(0.03) else 0)
    r.case(name, r.t(shape), axis, dtype=r.float(), rule="sum")


@op("softmax", "log_softmax", "nn.functional.softmin")
def softmax(r, name):
    dtype, shape = r.float(), r.shape()
    kw = {"dtype_": F32} if dtype in (BF16, F16) and r.chance(0.3) and "." not in name else {}
    axis = r.axis(len(shape))
    r.case(name, r.t(shape, dtype, (-9, 9)), dim=axis, dtype=dtype, rule="sum", **kw)


@named("normalize")
def normalize(r, name):
    shape = r.shape(r.size(1, 4), 1)
    r.case(name, r.t(shape, range=(0.2, 2)), p=r.choice([1.0, 2.0, 3.0]), dim=r.axis(len(shape)), dtype=r.float(), rule="sum")


@named("cosine_similarity", "pairwise_distance")
def distances(r, name):
    shape = r.shape(r.size(1, 3), 1)
    kw = {"dim": r.axis(len(shape))} if "cosine" in name else {"p": r.choice([1.0, 2.0, 3.0]), "keepdim": r.chance(0.3)}
    axis = kw.get("dim", len(shape))
    if -len(shape) <= axis < len(shape) and shape[axis] == 1:
        kw["grad"] = False  # DIFFERENT["one direction"]
    r.case(name, r.t(shape), r.t(shape), dtype=r.wide(), rule="sum", **kw)


@named("linear")
def linear(r, name):
    n, m = r.extent(1), r.size(1, 20)
    shape = [*r.shape(r.size(0, 2), most=60), n]
    bias = [r.t([m])] if r.chance(0.6) else []
    r.case(name, r.t(shape), r.t([m, n + (1 if r.chance(0.02) else 0)]), *bias, dtype=r.float(), rule="sum")


@named("bilinear")
def bilinear(r, name):
    a, b, o, n = (r.size(1, 6) for _ in range(4))
    r.case(name, r.t([n, a]), r.t([n, b]), r.t([o, a, b]), *([r.t([o])] if r.chance(0.5) else []), dtype=r.float(), rule="sum")


@named("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "poisson_nll_loss", "gaussian_nll_loss",
       "binary_cross_entropy", "binary_cross_entropy_with_logits", "hinge_embedding_loss", "multilabel_soft_margin_loss", "kl_div")
def loss(r, name):
    short, dtype, shape = name[len(F):], r.float(), r.shape(r.size(1, 3), 1, 300)
    kw = {"reduction": r.choice(REDUCTIONS)}
    x, y, more = r.t(shape, dtype), r.t(shape, dtype), []
    if short in ("soft_margin_loss", "hinge_embedding_loss"):
        y = T(*shape, of=[-1, 1], grad=False)
    elif short == "poisson_nll_loss":
        y = r.t(shape, dtype, (0, 3), grad=False)
        kw["log_input"] = True
    elif short == "gaussian_nll_loss":
        more = [r.t(shape, dtype, (0.5, 2))]
    elif short == "binary_cross_entropy":
        x, y = r.t(shape, dtype, (0.05, 0.95)), r.t(shape, dtype, (0, 1), grad=False)
    elif short == "binary_cross_entropy_with_logits":
        y = r.t(shape, dtype, (0, 1), grad=False)
        if r.chance(0.4):
            kw["pos_weight"] = r.t(shape[-1:], dtype, (0.5, 2), grad=False, lay="c")
    elif short == "multilabel_soft_margin_loss":
        if len(shape) == 1:
            shape = [2, *shape]
        x, y = r.t(shape, dtype), T(*shape, of=[0, 1], grad=False)
    elif short == "kl_div":
        log = r.chance(0.5)
        kw["log_target"] = log
        x, y = r.t(shape, dtype, (-3, 0)), r.t(shape, dtype, (-3, 0) if log else (0, 1))
    elif short == "smooth_l1_loss" and r.chance(0.5):
        kw["beta"] = r.choice([0.5, 0.0, 2.0])
    elif short == "huber_loss" and r.chance(0.5):
        kw["delta"] = r.choice([0.5, 2.0])
    if r.chance(0.01):
        kw["reduction"] = "median"
    r.case(name, x, y, *more, dtype=dtype, rule="sum", **kw)


@named("cosine_embedding_loss", "triplet_margin_loss", "margin_ranking_loss")
def margins(r, name):
    short, dtype, n, d = name[len(F):], r.wide(), r.size(1, 9), r.size(1, 9)
    kw = {"reduction": r.choice(REDUCTIONS), "margin": r.choice([0.0, 0.2, 0.7])}
    if short == "cosine_embedding_loss":
        args = [r.t([n, d]), r.t([n, d]), T(n, dtype=I64, of=[-1, 1])]
    elif short == "triplet_margin_loss":
        args = [r.t([n, d]), r.t([n, d]), r.t([n, d])]
        kw["swap"] = r.chance(0.3)
    else:
        args = [r.t([n]), r.t([n]), T(n, of=[-1, 1], grad=False)]
    r.case(name, *args, dtype=dtype, rule="sum", **kw)


@named("multi_margin_loss", "multilabel_margin_loss")
def classes_margins(r, name):
    n, c = r.size(1, 5), r.size(1, 6)
    if "multilabel" in name:
        y = T(n, c, dtype=I64, values=[v for _ in range(n) for v in (r.sample(range(c), c - 1) + [-1])])
    else:
        y = index(r, [n], c)
    kw = {"p": r.choice([1, 2])} if "multilabel" not in name and r.chance(0.5) else {}
    r.case(name, r.t([n, c]), y, reduction=r.choice(REDUCTIONS), dtype=r.wide(), rule="sum", **kw)


@named("nll_loss", "cross_entropy")
def classes(r, name):
    n, c = r.size(1, 7), r.size(1, 9)
    inner = r.choice([[], [], [3], [2, 3]])
    kw = {"reduction": r.choice(REDUCTIONS)}
    x = r.t([n, c, *inner])
    y = index(r, [n, *inner], c)
    weight = [r.t([c], range=(0.5, 2), grad=False, lay="c")] if r.chance(0.3) else []
    if "cross" in name:
        if r.chance(0.3):
            kw["label_smoothing"] = r.choice([0.1, 0.5])
        if r.chance(0.3):
            y = r.t([n, c, *inner], range=(0, 1))
    if r.chance(0.2) and y.dtype == I64:
        kw["ignore_index"] = r.randrange(c)
    r.case(name, x, y, *weight, dtype=r.float(), rule="sum", **kw)


@op("nn.functional.ctc_loss/of_logits")
def ctc(r, name):
    n, c, s = r.size(1, 3), r.size(2, 6), r.size(1, 3)
    t = r.size(2 * s + 1, 12)
    r.case(name, r.t([t, n, c]), T(n, s, dtype=I64, range=(1, c)), T(n, dtype=I64, values=[r.size(2 * s + 1, t) for _ in range(n)]),
           T(n, dtype=I64, values=[r.size(1, s) for _ in range(n)]), reduction=r.choice(REDUCTIONS), zero_infinity=r.chance(0.5),
           dtype=r.wide(), rule="sum", call=lambda x, *a, **k: torch.nn.functional.ctc_loss(x.log_softmax(-1), *a, **k))


@named("layer_norm", "rms_norm")
def layer_norm(r, name):
    over = r.shape(r.size(1, 2), 1, 300)
    # Of few elements some are nearly equal, and what is left of them is the rounding of their mean.
    over[-1] = max(over[-1], 4)
    shape = [*r.shape(r.size(0, 2), most=5), *over]
    kw = {"eps": 1e-3} if r.chance(0.3) else {}
    if r.chance(0.6):
        kw["weight"] = r.t(over, lay="c")
        if "layer" in name and r.chance(0.7):
            kw["bias"] = r.t(over, lay="c")
    # DIFFERENT["one number"]: no strides of 0.
    r.case(name, r.t(shape, lay=r.still()), over, dtype=r.float(), rule="sum", **kw)


@named("group_norm", "instance_norm", "batch_norm", "local_response_norm")
def norms(r, name):
    groups, per = r.size(1, 3), r.size(1, 3)
    n, c, inner = r.size(1, 4), groups * per, [r.size(4, 6) for _ in range(r.size(1, 2))]
    dtype, kw = r.float(), {}
    if r.chance(0.6) and "local" not in name:
        kw.update(weight=r.t([c], lay="c"), bias=r.t([c], lay="c"))
    if "group" in name:
        r.case(name, r.t([n, c, *inner], lay=r.still()), groups + (1 if r.chance(0.02) else 0), dtype=dtype, rule="sum", **kw)
    elif "instance" in name:
        r.case(name, r.t([n, c, *inner], lay=r.still()), dtype=dtype, rule="sum", **kw)
    elif "local" in name:
        r.case(name, r.t([n, c, *inner], range=(0.1, 2)), r.size(1, 5), dtype=r.wide(), rule="sum")
    else:
        training = r.chance(0.5)
        kw.update(running_mean=r.t([c], lay="c", grad=False), running_var=r.t([c], range=(0.5, 2), lay="c", grad=False), training=training)
        r.case(name, r.t([n + 1, c, *inner], lay=r.still()), dtype=dtype, rule="sum", **kw)


def some(r, axes, low, high):
    """A number for all axes or one for each."""
    return r.size(low, high) if r.chance(0.5) else [r.size(low, high) for _ in range(axes)]


@named("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv(r, name):
    axes, back = int(name[-2]), "transpose" in name
    groups, a, b = r.choice([1, 1, 1, 2, 3]), r.size(1, 4), r.size(1, 4)
    most = {1: 12, 2: 8, 3: 5}[axes]
    kernel = [r.size(1, 3) for _ in range(axes)]
    image = [r.size(max(k - 1, 1), most) for k in kernel]
    x = [*([r.size(0 if r.chance(0.1) else 1, 3)] if r.chance(0.9) else []), a * groups + (1 if r.chance(0.01) else 0), *image]
    weight = [a * groups, b, *kernel] if back else [b * groups, a, *kernel]
    kw = {"groups": groups}
    if r.chance(0.5):
        kw["stride"] = some(r, axes, 1, 3)
    if r.chance(0.5):
        kw["padding"] = some(r, axes, 0, 2)
    if r.chance(0.3):
        kw["dilation"] = some(r, axes, 1, 2)
    if not back and r.chance(0.1):
        kw.update(padding=r.choice(["same", "valid"]), stride=1)
    bias = [r.t([b * groups], lay="c")] if r.chance(0.5) else []
    r.case(name, r.t(x), r.t(weight), *bias, dtype=r.float(), rule="sum", **kw)


@named("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def pool(r, name):
    axes, largest = int(name[-2]), "max" in name
    most = {1: 12, 2: 8, 3: 5}[axes]
    image = [r.size(1, most) for _ in range(axes)]
    x = r.t([*([r.size(1, 3)] if r.chance(0.9) else []), r.size(1, 4), *image], odd=0.1 if largest else 0)
    kw = {}
    if r.chance(0.5):
        kw["stride"] = some(r, axes, 1, 3)
    if r.chance(0.4):
        kw["padding"] = some(r, axes, 0, 1)
    if largest and r.chance(0.3):
        kw["dilation"] = some(r, axes, 1, 2)
    if r.chance(0.3):
        kw["ceil_mode"] = True
    if not largest and r.chance(0.3):
        kw["count_include_pad"] = False
    if not largest and axes > 1 and r.chance(0.1):
        kw["divisor_override"] = r.size(1, 5)
    if "padding" in kw and "dilation" in kw:
        kw["grad"] = False  # DIFFERENT["windows of padding"]
    r.case(name, x, some(r, axes, 1, 3), dtype=r.float(), rule="choice" if largest else "sum", **kw)


@named("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d")
def adaptive(r, name):
    axes = int(name[-2])
    most = {1: 12, 2: 8, 3: 5}[axes]
    x = r.t([r.size(1, 3), r.size(1, 4), *(r.size(1, most) for _ in range(axes))])
    r.case(name, x, some(r, axes, 1, 6), dtype=r.float(), rule="choice" if "max" in name else "sum")


@named("lp_pool2d")
def lp_pool(r, name):
    x = r.t([r.size(1, 3), r.size(1, 4), r.size(3, 8), r.size(3, 8)], range=(0.1, 2))
    r.case(name, x, r.choice([1.0, 2.0, 3.0]), some(r, 2, 1, 3), dtype=r.wide(), rule="sum")


@named("interpolate")
def interpolate(r, name):
    axes = r.size(1, 2)
    mode = r.choice(["nearest", "nearest-exact", "area", "linear"] if axes == 1 else ["nearest", "nearest-exact", "area", "bilinear", "bicubic"])
    kw = {"mode": mode}
    if mode in ("linear", "bilinear", "bicubic"):
        kw["align_corners"] = r.chance(0.5)
    if r.chance(0.7):
        kw["size"] = [r.size(1, 9) for _ in range(axes)]
    else:
        kw["scale_factor"] = r.choice([2.0, 1.5, 0.5, 3.0])
    r.case(name, r.t([r.size(1, 2), r.size(1, 3), *(r.size(2, 7) for _ in range(axes))]), dtype=r.float(), rule="sum", **kw)


@named("unfold", "fold")
def patches(r, name):
    kernel, h, w = some(r, 2, 1, 3), r.size(3, 7), r.size(3, 7)
    kw = {}
    if r.chance(0.4):
        kw["stride"] = some(r, 2, 1, 2)
    if r.chance(0.4):
        kw["padding"] = some(r, 2, 0, 1)
    if r.chance(0.3):
        kw["dilation"] = some(r, 2, 1, 2)
    if name.endswith("unfold"):
        r.case(name, r.t([r.size(1, 3), r.size(1, 3), h, w]), kernel, dtype=r.float(), **kw)
        return
    try:
        shape = list(torch.nn.functional.unfold(torch.zeros(1, 1, h, w), kernel, **kw).shape)
    except RuntimeError:
        return
    c = r.size(1, 3)
    r.case(name, r.t([r.size(1, 3), c * shape[1], shape[2]]), (h, w), kernel, dtype=r.float(), rule="sum", **kw)


@named("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def shuffles(r, name):
    f, n = r.size(1, 3), r.size(1, 2)
    if name.endswith("pixel_shuffle"):
        shape = [n, r.size(1, 3) * f * f, r.size(1, 4), r.size(1, 4)]
    elif name.endswith("pixel_unshuffle"):
        shape = [n, r.size(1, 3), r.size(1, 3) * f, r.size(1, 3) * f]
    else:
        shape = [n, r.size(1, 3) * f, r.size(1, 4), r.size(1, 4)]
    r.case(name, r.t(shape), f, dtype=r.float(), **({"grad": False} if "channel" in name else {}))


@named("pad")
def pad(r, name):
    dtype, rank = r.any(), r.size(1, 4)
    mode = r.choice(["constant", "constant", "reflect", "replicate", "circular"])
    if mode == "constant":
        shape = r.shape(rank, 1, 300)
        pads = [r.size(-1, 3) for _ in range(2 * r.size(1, rank))]
        r.case(name, r.t(shape, dtype), pads, dtype=dtype, **({"value": 1} if r.chance(0.5) else {}))
        return
    axes = r.size(1, 2)
    shape = [r.size(1, 2), r.size(1, 3), *(r.size(2, 6) for _ in range(axes))]
    low = -1 if r.chance(0.2) else 0
    pads = [r.size(low, 3) for _ in range(2 * axes)]
    if mode == "circular":
        # DIFFERENT["cropped circles"]
        for k, n in enumerate(reversed(shape[2:])):
            left = n + min(pads[2 * k], 0) + min(pads[2 * k + 1], 0)
            pads[2 * k:2 * k + 2] = [p if p <= left or p > n else max(left, 0) for p in pads[2 * k:2 * k + 2]]
    r.case(name, r.t(shape, dtype), pads, mode=mode, dtype=dtype)


@named("embedding", "embedding_bag")
def embedding(r, name):
    n, d = r.size(1, 9), r.size(1, 6)
    kw = {}
    if r.chance(0.4):
        kw["padding_idx"] = r.size(-n, n - 1) if r.chance(0.95) else n
    if not name.endswith("bag"):
        if r.chance(0.2):
            kw["scale_grad_by_freq"] = False
        r.case(name, index(r, r.shape(r.size(0, 3), most=60), n), r.t([n, d], lay="c"), dtype=r.float(), **kw)
        return
    dtype, mode = r.wide(), r.choice(["sum", "mean", "max"])
    if r.chance(0.5):
        shape = [r.size(1, 5), r.size(1, 5)]
        if mode == "sum" and r.chance(0.5):
            kw["per_sample_weights"] = r.t(shape, lay="c")
        r.case(name, T(*shape, dtype=I64, range=(0, n)), r.t([n, d], lay="c"), mode=mode, dtype=dtype, rule="sum", **kw)
        return
    count = r.size(1, 12)
    offsets = [0, *sorted(r.size(0, count) for _ in range(r.size(0, 3)))]
    r.case(name, T(count, dtype=I64, range=(0, n)), r.t([n, d], lay="c"), T(len(offsets), dtype=I64, values=offsets), mode=mode,
           dtype=dtype, rule="sum", **kw)


@named("grid_sample")
def grid_sample(r, name):
    n, c = r.size(1, 2), r.size(1, 3)
    deep = r.chance(0.2)
    image = [r.size(1, 5) for _ in range(3 if deep else 2)]
    grid = [r.size(1, 5) for _ in image]
    mode = r.choice(["bilinear", "nearest"] if deep else ["bilinear", "nearest", "bicubic"])
    r.case(name, r.t([n, c, *image]), r.t([n, *grid, len(image)], range=(-1.7, 1.9)), mode=mode,
           padding_mode=r.choice(["zeros", "border", "reflection"]), align_corners=r.chance(0.5), dtype=r.wide(), rule="sum")


@named("affine_grid")
def affine_grid(r, name):
    n, axes = r.size(1, 3), r.size(2, 3)
    r.case(name, r.t([n, axes, axes + 1]), [n, r.size(1, 3), *(r.size(1, 5) for _ in range(axes))], align_corners=r.chance(0.5), dtype=r.wide(), rule="sum")


@named("scaled_dot_product_attention")
def attention(r, name):
    batch = r.choice([[], [2], [1, 2], [2, 3]])
    n, m, d, e = r.size(1, 9), r.size(1, 9), r.choice([1, 4, 8, 16, 5]), r.choice([4, 8, 3])
    kw = {}
    kind = r.random()
    if kind < 0.2:
        kw["is_causal"] = True
    elif kind < 0.4:
        kw["attn_mask"] = T(n, m, dtype=BOOL, of=[1, 1, 1, 0])
    elif kind < 0.6:
        kw["attn_mask"] = r.t([n, m], grad=False, lay="c")
    if r.chance(0.2):
        kw["scale"] = 0.5
    r.case(name, r.t([*batch, n, d]), r.t([*batch, m, d]), r.t([*batch, m, e]), dtype=r.float(), rule="sum", **kw)
