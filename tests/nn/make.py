"""Writes layers.safetensors: what PyTorch's layers give and what their gradients are.

Each case has the state of a module, inputs, and for the sum of `output * dy` the outputs, the gradients of
inputs and parameters, and the buffers afterwards. All of these are computed in f64 (the truth) and in f32;
of the latter only the root of the mean squared error is kept, which a result may have twice over.

    python make.py        # needs torch (CPU) and safetensors
"""

import copy
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

FILE = {}


def fill(module):
    """Parameters and statistics that hide no mistake: none is 0 or 1."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn_like(p) * 0.4 + 0.05)
        for name, b in module.named_buffers():
            if name.endswith("running_var"):
                b.copy_(torch.rand_like(b) + 0.5)
            elif b.dtype.is_floating_point:
                b.copy_(torch.randn_like(b) * 0.3)


def flat(outputs):
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [t for part in outputs if part is not None for t in flat(part)]


def run(module, inputs, call, dys, fixed):
    """Outputs, gradients and buffers, in the dtype of the module's parameters."""
    wanted = lambda i, x: x.dtype.is_floating_point and i not in fixed
    given = [x.clone().requires_grad_(wanted(i, x)) for i, x in enumerate(inputs)]
    outputs = flat(call(module, *given))
    sum((o * dy.to(o.dtype)).sum() for o, dy in zip(outputs, dys)).backward()
    found = {f"out/{i}": o for i, o in enumerate(outputs)}
    found |= {f"din/{i}": x.grad for i, x in enumerate(given) if x.grad is not None}
    found |= {f"grad/{n}": p.grad for n, p in module.named_parameters() if p.grad is not None}
    found |= {f"after/{n}": b for n, b in module.named_buffers()}
    return {k: v.detach().clone() for k, v in found.items()}


def case(name, module, inputs, call=lambda m, *x: m(*x), train=True, fixed=()):
    torch.manual_seed(sum(map(ord, name)))
    inputs = [x() if callable(x) else x for x in inputs]
    fill(module)
    module.train(train)
    with torch.no_grad():
        shapes = [o.shape for o in flat(call(copy.deepcopy(module), *inputs))]
    dys = [torch.randn(s) for s in shapes]
    state = {k: v.clone() for k, v in module.state_dict().items()}
    narrow = run(copy.deepcopy(module), inputs, call, dys, fixed)
    wide = [x.double() if x.dtype.is_floating_point else x for x in inputs]
    truth = run(copy.deepcopy(module).double(), wide, call, dys, fixed)
    for i, x in enumerate(inputs):
        FILE[f"{name}/in/{i}"] = x
    for i, dy in enumerate(dys):
        FILE[f"{name}/dy/{i}"] = dy
    for k, v in state.items():
        FILE[f"{name}/state/{k}"] = v
    for k, v in truth.items():
        assert narrow[k].shape == v.shape, (name, k)
        FILE[f"{name}/{k}"] = v
        error = (narrow[k].double() - v.double()).square().mean().sqrt() if v.numel() else torch.zeros(())
        FILE[f"{name}/rmse/{k}"] = error.double().reshape(())


def r(*shape):
    return lambda: torch.randn(*shape)


def uniform(*shape):
    return lambda: torch.rand(*shape) * 0.9 + 0.05


def ints(high, *shape):
    return lambda: torch.randint(0, high, shape)


def signs(*shape):
    return lambda: torch.randint(0, 2, shape).float() * 2 - 1


def both(name, make, inputs, call=lambda m, *x: m(*x)):
    case(f"{name}.train", make(), inputs, call, train=True)
    case(f"{name}.eval", make(), inputs, call, train=False)


class Loss(nn.Module):
    """A function as a module without state."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *x):
        return self.f(*x)


def linear():
    case("linear", nn.Linear(5, 3), [r(2, 4, 5)])
    case("linear.no_bias", nn.Linear(5, 3, bias=False), [r(5)])
    case("bilinear", nn.Bilinear(3, 4, 2), [r(2, 5, 3), r(2, 5, 4)])
    case("embedding", nn.Embedding(6, 3), [ints(6, 2, 4)])
    case("embedding.padding", nn.Embedding(6, 3, padding_idx=2), [ints(6, 3, 5)])
    case("embedding.max_norm", nn.Embedding(6, 3, max_norm=0.5), [ints(6, 4)])
    FILE["embedding.max_norm/after/weight"] = renormed()


def renormed():
    """The table after the rows that were looked up are shortened."""
    weight = FILE["embedding.max_norm/state/weight"].clone()
    module = nn.Embedding(6, 3, max_norm=0.5, _weight=weight)
    module(FILE["embedding.max_norm/in/0"])
    return module.weight.detach().double()


def activations():
    simple = [
        "ReLU", "LeakyReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Softplus", "Softsign", "Hardtanh",
        "Hardsigmoid", "Hardswish", "ReLU6", "Sigmoid", "LogSigmoid", "Tanh", "Tanhshrink", "Hardshrink",
        "Softshrink",
    ]
    # Every bend and its neighbours.
    x = torch.tensor([[-25.0, -6.5, -3.0, -1.0, -0.7, -0.5, -0.2, 0.0], [0.0, 0.3, 0.5, 1.0, 2.2, 3.0, 6.0, 21.0]])
    for name in simple:
        case(name.lower(), getattr(nn, name)(), [x])
    case("gelu.tanh", nn.GELU(approximate="tanh"), [x])
    case("threshold", nn.Threshold(0.1, 20.0), [x])
    case("softmax", nn.Softmax(dim=1), [r(2, 4, 3)])
    case("softmin", nn.Softmin(dim=-1), [r(2, 4, 3)])
    case("logsoftmax", nn.LogSoftmax(dim=0), [r(2, 4, 3)])
    case("glu", nn.GLU(dim=1), [r(2, 4, 3)])
    case("prelu", nn.PReLU(), [x])
    case("prelu.channels", nn.PReLU(3), [r(2, 3, 4)])


def norms():
    for n, shape in [(1, (4, 3)), (1, (2, 3, 4)), (2, (2, 3, 2, 3)), (3, (2, 3, 2, 2, 2))]:
        kind = getattr(nn, f"BatchNorm{n}d")
        both(f"batchnorm{n}d.{len(shape)}", lambda: kind(3), [r(*shape)])
    both("batchnorm2d.cumulative", lambda: nn.BatchNorm2d(3, momentum=None), [r(2, 3, 2, 3)])
    both("batchnorm2d.plain", lambda: nn.BatchNorm2d(3, affine=False), [r(2, 3, 2, 3)])
    both("batchnorm2d.untracked", lambda: nn.BatchNorm2d(3, track_running_stats=False), [r(2, 3, 2, 3)])
    case("layernorm", nn.LayerNorm(5), [r(2, 3, 5)])
    case("layernorm.two", nn.LayerNorm([3, 5], eps=1e-3), [r(2, 3, 5)])
    case("layernorm.no_bias", nn.LayerNorm(5, bias=False), [r(2, 5)])
    case("layernorm.plain", nn.LayerNorm(5, elementwise_affine=False), [r(2, 5)])
    case("rmsnorm", nn.RMSNorm(5), [r(2, 3, 5)])
    case("rmsnorm.eps", nn.RMSNorm([3, 5], eps=1e-6), [r(2, 3, 5)])
    case("groupnorm", nn.GroupNorm(2, 6), [r(2, 6, 3)])
    case("instancenorm1d", nn.InstanceNorm1d(3), [r(2, 3, 5)])
    case("instancenorm2d.unbatched", nn.InstanceNorm2d(3, affine=True), [r(3, 2, 3)])
    both("instancenorm2d.tracked", lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), [r(2, 3, 2, 3)])
    case("instancenorm3d", nn.InstanceNorm3d(3), [r(2, 3, 2, 2, 2)])


def shapes():
    case("flatten", nn.Flatten(), [r(2, 3, 4)])
    case("unflatten", nn.Unflatten(1, (2, -1)), [r(2, 6, 2)])
    case("pixelshuffle", nn.PixelShuffle(2), [r(2, 8, 2, 3)])
    case("pixelunshuffle", nn.PixelUnshuffle(2), [r(2, 2, 4, 6)])
    case("channelshuffle", nn.ChannelShuffle(2), [r(2, 6, 2, 2)])
    case("zeropad2d", nn.ZeroPad2d((1, 2, 0, 1)), [r(2, 2, 3, 3)])
    case("constantpad1d", nn.ConstantPad1d(2, 3.5), [r(2, 2, 3)])
    case("reflectionpad2d", nn.ReflectionPad2d(1), [r(1, 2, 3, 3)])
    case("replicationpad3d", nn.ReplicationPad3d(1), [r(1, 1, 2, 2, 2)])
    case("circularpad1d", nn.CircularPad1d((1, 2)), [r(1, 2, 4)])


def windows():
    for n in (1, 2, 3):
        size = (5, 4, 3)[:n]
        conv = getattr(nn, f"Conv{n}d")
        case(f"conv{n}d", conv(2, 4, 3, stride=2, padding=1), [r(2, 2, *size)])
        case(f"conv{n}d.groups", conv(4, 4, 2, groups=2, dilation=2, bias=False), [r(1, 4, *size)])
        case(f"maxpool{n}d", getattr(nn, f"MaxPool{n}d")(2), [r(2, 2, *size)])
        case(f"avgpool{n}d", getattr(nn, f"AvgPool{n}d")(2, stride=1), [r(2, 2, *size)])
    case("conv2d.same", nn.Conv2d(2, 3, (3, 2), padding="same"), [r(2, 5, 4)])
    case("conv2d.reflect", nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), [r(1, 2, 4, 4)])
    case("conv2d.replicate", nn.Conv2d(2, 3, 3, padding=1, padding_mode="replicate"), [r(1, 2, 4, 4)])
    case("conv2d.circular", nn.Conv2d(2, 3, 3, padding=(1, 0), padding_mode="circular"), [r(1, 2, 4, 4)])
    case("maxpool2d.options", nn.MaxPool2d(3, stride=2, padding=1, dilation=1, ceil_mode=True), [r(1, 2, 6, 5)])
    case("avgpool2d.options", nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), [r(1, 2, 6, 5)])


def resizing():
    for n in (1, 2, 3):
        size = (5, 4, 3)[:n]
        conv = getattr(nn, f"ConvTranspose{n}d")
        case(f"convtranspose{n}d", conv(2, 4, 3, stride=2, padding=1, output_padding=1), [r(2, 2, *size)])
        case(f"convtranspose{n}d.groups", conv(4, 4, 2, groups=2, bias=False), [r(1, 4, *size)])
        case(f"adaptiveavgpool{n}d", getattr(nn, f"AdaptiveAvgPool{n}d")(2), [r(2, 2, *size)])
        case(f"adaptivemaxpool{n}d", getattr(nn, f"AdaptiveMaxPool{n}d")(2), [r(2, 2, *size)])
    case("upsample.nearest", nn.Upsample(scale_factor=2), [r(1, 2, 3, 2)])
    case("upsample.bilinear", nn.Upsample(size=(5, 3), mode="bilinear"), [r(1, 2, 3, 2)])
    case("upsample.corners", nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), [r(1, 2, 3, 2)])
    case("upsample.bicubic", nn.Upsample(scale_factor=2, mode="bicubic"), [r(1, 1, 3, 4)])


def attention():
    x = r(3, 2, 8)
    mask = torch.tensor([[False, True, True], [False, False, True], [False, False, False]])
    padding = torch.tensor([[False, False, True], [False, False, False]])
    self_call = lambda m, x: m(x, x, x)
    case("attention", nn.MultiheadAttention(8, 2), [x], self_call)
    case("attention.heads", nn.MultiheadAttention(8, 2), [x], lambda m, x: m(x, x, x, average_attn_weights=False))
    case("attention.fast", nn.MultiheadAttention(8, 2), [x], lambda m, x: m(x, x, x, need_weights=False)[0])
    case("attention.masked", nn.MultiheadAttention(8, 2, bias=False), [x],
         lambda m, x: m(x, x, x, attn_mask=mask, key_padding_mask=padding))
    case("attention.masked_fast", nn.MultiheadAttention(8, 2), [x],
         lambda m, x: m(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0])
    case("attention.float_mask", nn.MultiheadAttention(8, 2), [x, r(4, 3, 3)],
         lambda m, x, a: m(x, x, x, attn_mask=a))
    case("attention.cross", nn.MultiheadAttention(8, 2, batch_first=True, kdim=5, vdim=6),
         [r(2, 3, 8), r(2, 4, 5), r(2, 4, 6)])
    case("attention.memory", nn.MultiheadAttention(8, 4), [r(3, 2, 8), r(4, 2, 8)], lambda m, q, k: m(q, k, k))
    case("attention.added", nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True), [x],
         lambda m, x: m(x, x, x, key_padding_mask=padding))
    case("attention.unbatched", nn.MultiheadAttention(8, 2), [r(3, 8)], self_call)


def transformers():
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    options = dict(d_model=8, nhead=2, dim_feedforward=12)
    x, memory = r(2, 3, 8), r(2, 4, 8)
    both("encoderlayer", lambda: nn.TransformerEncoderLayer(**options, dropout=0.0, batch_first=True), [x])
    case("encoderlayer.pre", nn.TransformerEncoderLayer(**options, dropout=0.0, activation="gelu", norm_first=True),
         [r(3, 2, 8)], lambda m, x: m(x, src_mask=mask.to(x.dtype), is_causal=True))
    case("encoderlayer.no_bias", nn.TransformerEncoderLayer(**options, dropout=0.0, bias=False, layer_norm_eps=1e-3),
         [r(3, 2, 8)])
    case("decoderlayer", nn.TransformerDecoderLayer(**options, dropout=0.0, batch_first=True), [x, memory],
         lambda m, x, y: m(x, y, tgt_mask=mask.to(x.dtype), tgt_is_causal=True))
    case("decoderlayer.pre", nn.TransformerDecoderLayer(**options, dropout=0.0, batch_first=True, norm_first=True),
         [x, memory])
    layer = lambda: nn.TransformerEncoderLayer(**options, dropout=0.0, batch_first=True)
    case("encoder", nn.TransformerEncoder(layer(), 2, norm=nn.LayerNorm(8), enable_nested_tensor=False), [x],
         lambda m, x: m(x, src_key_padding_mask=padding))
    case("transformer", nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True), [memory, x],
         lambda m, s, t: m(s, t, tgt_mask=mask.to(t.dtype), tgt_is_causal=True))


def recurrent():
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        name = kind.__name__.lower()
        case(name, kind(3, 4), [r(5, 2, 3)])
        case(f"{name}.deep", kind(3, 4, num_layers=2, bidirectional=True, batch_first=True), [r(2, 5, 3)])
        states = [r(1, 2, 4)] * (2 if name == "lstm" else 1)
        start = lambda m, x, *s: m(x, s if len(s) == 2 else s[0])
        case(f"{name}.start", kind(3, 4, bias=False), [r(5, 2, 3), *states], start)
        case(f"{name}.unbatched", kind(3, 4), [r(5, 3)])
    case("rnn.relu", nn.RNN(3, 4, nonlinearity="relu"), [r(5, 2, 3)])
    case("rnncell", nn.RNNCell(3, 4), [r(2, 3), r(2, 4)])
    case("grucell", nn.GRUCell(3, 4), [r(2, 3), r(2, 4)])
    case("lstmcell", nn.LSTMCell(3, 4), [r(2, 3), r(2, 4), r(2, 4)], lambda m, x, h, c: m(x, (h, c)))


def ragged():
    """Sequences of several lengths, projections, bags."""
    rnn = nn.utils.rnn
    lengths = torch.tensor([3, 5, 1, 5])

    def packed(m, x, *states):
        x = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, last = m(x, *([states if len(states) == 2 else states[0]] if states else []))
        return rnn.pad_packed_sequence(y, batch_first=True, padding_value=0.5)[0], last

    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        name = kind.__name__.lower()
        deep = dict(num_layers=2, bidirectional=True, batch_first=True)
        case(f"{name}.packed", kind(3, 4, **deep), [r(4, 5, 3)], packed)
        states = [r(1, 4, 4)] * (2 if name == "lstm" else 1)
        case(f"{name}.packed_start", kind(3, 4, batch_first=True), [r(4, 5, 3), *states], packed)
    deep = dict(num_layers=2, bidirectional=True, batch_first=True, proj_size=2)
    case("lstm.projected", nn.LSTM(3, 4, **deep), [r(2, 5, 3)])
    case("lstm.projected_packed", nn.LSTM(3, 4, **deep), [r(4, 5, 3)], packed)
    states = [r(1, 2, 3), r(1, 2, 4)]
    case("lstm.projected_start", nn.LSTM(3, 4, proj_size=3, bias=False), [r(5, 2, 3), *states], lambda m, x, h, c: m(x, (h, c)))
    index, offsets = torch.tensor([1, 4, 4, 0, 3, 2]), torch.tensor([0, 2, 2, 5])
    case("embeddingbag", nn.EmbeddingBag(5, 3, padding_idx=2), [index, offsets])
    case("embeddingbag.rows", nn.EmbeddingBag(5, 3, mode="max"), [index.view(2, 3)])
    case("localresponsenorm", nn.LocalResponseNorm(3, alpha=0.2, beta=0.6, k=1.5), [r(2, 5, 4)])


def rotate(x):
    """Rotary positions as language models have them."""
    t, d = x.shape[-2:]
    rates = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.outer(torch.arange(t, dtype=torch.float64) + 1, rates)
    angles = torch.cat([angles, angles], -1).to(x.dtype)
    turned = torch.cat([-x[..., d // 2:], x[..., :d // 2]], -1)
    return x * angles.cos() + turned * angles.sin()


class SwiGlu(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(4, 6, bias=False), nn.Linear(4, 6, bias=False)
        self.down_proj = nn.Linear(6, 4, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def language():
    case("rotary", Loss(rotate), [r(2, 3, 4)])
    case("swiglu", SwiGlu(), [r(2, 4)])


def losses():
    w = torch.tensor([0.5, 1.5, 2.0, 0.7])
    target = torch.tensor([2, -100, 0, 3, 1])
    weighted = lambda kind, **options: Loss(lambda x, t: kind(weight=w.to(x.dtype), **options)(x, t))
    for reduction in ("mean", "sum", "none"):
        case(f"crossentropy.{reduction}", nn.CrossEntropyLoss(reduction=reduction), [r(5, 4), target])
        case(f"crossentropy.weighted_{reduction}",
             weighted(nn.CrossEntropyLoss, label_smoothing=0.1, reduction=reduction), [r(5, 4), target])
        case(f"nll.{reduction}", weighted(nn.NLLLoss, reduction=reduction), [r(5, 4), target])
    case("crossentropy.ignore", nn.CrossEntropyLoss(ignore_index=1), [r(5, 4), ints(4, 5)])
    case("crossentropy.images", nn.CrossEntropyLoss(), [r(2, 4, 3, 2), ints(4, 2, 3, 2)])
    case("crossentropy.probabilities", nn.CrossEntropyLoss(label_smoothing=0.2), [r(3, 4), uniform(3, 4)])
    case("crossentropy.one", nn.CrossEntropyLoss(), [r(4), ints(4)])
    p, t = uniform(3, 4), uniform(3, 4)
    case("bce", nn.BCELoss(), [p, t])
    case("bce.edges", nn.BCELoss(reduction="sum"), [torch.tensor([0.0, 1.0, 0.3, 1.0]), torch.tensor([0.0, 1.0, 1.0, 1.0])])
    case("bce.weighted", Loss(lambda x, t: nn.BCELoss(weight=w.to(x.dtype), reduction="sum")(x, t)), [p, t])
    x0 = torch.tensor([[0.0, -30.0, 40.0, 0.3], [0.0, 1.0, -2.0, 90.0]])
    case("bcelogits", nn.BCEWithLogitsLoss(), [x0, uniform(2, 4)])
    case("bcelogits.weighted",
         Loss(lambda x, t: nn.BCEWithLogitsLoss(weight=w.to(x.dtype), pos_weight=w.to(x.dtype))(x, t)), [r(3, 4), t])
    pair = [r(3, 4), r(3, 4)]
    for reduction in ("mean", "sum", "none"):
        case(f"mse.{reduction}", nn.MSELoss(reduction=reduction), pair)
    case("l1", nn.L1Loss(), pair)
    case("smoothl1", nn.SmoothL1Loss(beta=0.5), pair)
    case("huber", nn.HuberLoss(delta=0.7), pair)
    case("kldiv", nn.KLDivLoss(reduction="batchmean"), [r(3, 4), p])
    case("kldiv.log", nn.KLDivLoss(reduction="none", log_target=True), pair)
    case("kldiv.zero", nn.KLDivLoss(reduction="sum"), [r(3), torch.tensor([0.0, 0.4, 0.6])], fixed=(1,))
    case("poisson", nn.PoissonNLLLoss(), [r(3, 4), uniform(3, 4)])
    case("poisson.full", nn.PoissonNLLLoss(log_input=False, full=True), [p, lambda: torch.rand(3, 4) * 4])
    case("gaussian", nn.GaussianNLLLoss(full=True), [r(3, 4), r(3, 4), p])
    case("gaussian.row", nn.GaussianNLLLoss(reduction="sum"), [r(3, 4), r(3, 4), uniform(3, 1)])
    case("hinge", nn.HingeEmbeddingLoss(margin=0.8), [r(3, 4), signs(3, 4)], fixed=(1,))
    case("softmargin", nn.SoftMarginLoss(), [r(3, 4), signs(3, 4)], fixed=(1,))
    case("ranking", nn.MarginRankingLoss(margin=0.3), [r(6), r(6), signs(6)], fixed=(2,))
    case("cosineembedding", nn.CosineEmbeddingLoss(margin=0.1), [r(6, 4), r(6, 4), signs(6)], fixed=(2,))
    case("triplet", nn.TripletMarginLoss(), [r(3, 4), r(3, 4), r(3, 4)])
    case("triplet.swap", nn.TripletMarginLoss(margin=2.0, p=1.0, swap=True, reduction="sum"), [r(3, 4), r(3, 4), r(3, 4)])
    case("cosinesimilarity", nn.CosineSimilarity(dim=1), [r(2, 4, 3), r(2, 4, 3)])
    case("pairwisedistance", nn.PairwiseDistance(p=3.0, keepdim=True), pair)
    targets = torch.tensor([[1, 2, 2], [3, 1, 0], [0, 0, 0]])
    ctc = lambda **o: Loss(lambda x, t: nn.CTCLoss(**o)(x.log_softmax(-1), t, (6, 5, 4), (3, 2, 0)))
    case("ctc", ctc(), [r(6, 3, 4), targets])
    case("ctc.none", ctc(reduction="none"), [r(6, 3, 4), targets])
    joined = Loss(lambda x, t: nn.CTCLoss(blank=3, reduction="sum", zero_infinity=True)(
        x.log_softmax(-1), t, (6, 2, 6), (3, 3, 1)))
    case("ctc.joined", joined, [r(6, 3, 4), torch.tensor([1, 1, 2, 0, 1, 2, 2])])


for group in (linear, activations, norms, shapes, windows, resizing, attention, transformers, recurrent, language, losses, ragged):
    torch.manual_seed(0)
    group()
folder = pathlib.Path(__file__).parent
save_file({k: v.contiguous().clone() for k, v in FILE.items()}, folder / "layers.safetensors")
print(len({k.split("/")[0] for k in FILE}), "cases,", len(FILE), "tensors")
