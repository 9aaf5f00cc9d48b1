"""The peer of the benchmark: PyTorch (cuBLAS) and Triton, timed on request.

The benchmark starts one process of this and keeps it. Each line on stdin is a request in JSON, each line
on stdout its answer, so that both sides take turns on one GPU. What goes wrong in a request is its answer
`{"error": ..}`, and the process goes on.

    {"do": "prepare", "op": "add", "dtype": "f32", "dims": [8192, 8192], "variant": "", "sets": 3}
    {"estimates": {"torch": 0.19, "triton": 0.191}}           ms of one call, each candidate's
    {"do": "burst", "peer": "torch", "launches": 50, "graph": false}
    {"ms": 0.190}                                             of one call, on rotating buffers
    {"do": "compile", "op": "matmul", "dims": [128, 256, 64]} Triton's whole compile, cold
    {"do": "drop"}                                            frees the buffers

The op `call` is any expression over the list `x` of its inputs, which lie in memory as they are described:

    {"do": "prepare", "op": "call", "call": "torch.sort(x[0], 0)[0]", "dtype": "f32", "sets": 2, "backward": false,
     "graphs": true, "inputs": [{"shape": [4, 5], "strides": [6, 1], "offset": 1, "len": 24, "dtype": "f32",
     "low": -1.0, "high": 1.0, "whole": false}]}
    {"estimates": {"torch": 0.05}, "result": {"shape": [4, 5], "dtype": "f32"}}
    {"do": "evaluate", "call": .., "inputs": [{"shape": .., "dtype": .., "values": [..]}]}
    {"shape": .., "dtype": .., "values": [..]}
"""
import json
import math
import os
import sys
import tempfile
import threading
import time
import warnings

# Libraries may print; the answers have a stream of their own.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(value):
    ANSWERS.write(json.dumps(value) + "\n")
    ANSWERS.flush()


try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    answer({"missing": f"torch: {error}"})
    sys.exit(0)
try:
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="peer-triton-"))
    import triton
    import triton.language as tl
except ImportError:
    triton = None

# `cpu`, `cuda` or `cuda:1`.
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
ON_GPU = DEVICE.startswith("cuda")
# What multiplies matrices in torch.
BLAS = "cublas" if ON_GPU else "torch"
DTYPES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
          "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2, "f64": torch.float64, "bool": torch.bool,
          "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
          "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64}
# Of a name that stands for two the first.
NAMES = {dtype: name for name, dtype in reversed(DTYPES.items())}
# A call that takes longer, in ms, is not called more often to be estimated.
LONG = 50
# Launches recorded in one graph, about: more are replays.
GRAPH_LAUNCHES = 64

if triton:

    @triton.jit
    def add_kernel(x, y, o, n, BLOCK: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        m = i < n
        tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)

    @triton.jit
    def softmax_kernel(x, o, n, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64) * n
        c = tl.arange(0, BLOCK)
        v = tl.load(x + row + c, mask=c < n, other=-float("inf")).to(tl.float32)
        e = tl.exp(v - tl.max(v, 0))
        tl.store(o + row + c, (e / tl.sum(e, 0)).to(o.dtype.element_ty), mask=c < n)

    @triton.jit
    def long_softmax_kernel(x, o, n, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64) * n
        top = tl.full((BLOCK,), -float("inf"), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            c = start + tl.arange(0, BLOCK)
            v = tl.load(x + row + c, mask=c < n, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(top, v)
            # A lane that saw nothing yet holds two infinities, whose difference is none.
            scale = tl.where(higher == -float("inf"), 0.0, tl.exp(top - higher))
            total = total * scale + tl.where(c < n, tl.exp(v - higher), 0.0)
            top = higher
        peak = tl.max(top, 0)
        whole = tl.sum(tl.where(top == -float("inf"), 0.0, total * tl.exp(top - peak)), 0)
        for start in range(0, n, BLOCK):
            c = start + tl.arange(0, BLOCK)
            v = tl.load(x + row + c, mask=c < n, other=-float("inf")).to(tl.float32)
            tl.store(o + row + c, (tl.exp(v - peak) / whole).to(o.dtype.element_ty), mask=c < n)

    @triton.jit
    def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                      GROUP: tl.constexpr, SALT: tl.constexpr):
        pid = tl.program_id(0)
        rows = tl.cdiv(M, BM)
        cols = tl.cdiv(N, BN)
        group = pid // (GROUP * cols)
        size = min(rows - group * GROUP, GROUP)
        pm = group * GROUP + (pid % (GROUP * cols)) % size
        pn = (pid % (GROUP * cols)) // size
        rm = (pm * BM + tl.arange(0, BM)) % M
        rn = (pn * BN + tl.arange(0, BN)) % N
        rk = tl.arange(0, BK)
        pa = a + rm[:, None] * K + rk[None, :]
        pb = b + rk[:, None] * N + rn[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            x = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0.0)
            y = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
            acc = tl.dot(x, y, acc)
            pa += BK
            pb += BK * N
        om = pm * BM + tl.arange(0, BM)
        on = pn * BN + tl.arange(0, BN)
        inside = (om[:, None] < M) & (on[None, :] < N)
        tl.store(c + om[:, None] * N + on[None, :], acc.to(c.dtype.element_ty), mask=inside)


class Case:
    """What a request asks for, and its buffers."""

    def __init__(self, request):
        self.request = request
        self.op, self.variant = request["op"], request.get("variant", "")
        self.dims, self.sets = request["dims"], range(request.get("sets", 1))
        self.dtype = DTYPES[request["dtype"]]

    def randn(self, *shape, **options):
        # In half precision at once where memory counts; the values are the same kind of noise.
        if self.dtype.itemsize == 1:
            return torch.randn(*shape, device=DEVICE, **options).to(self.dtype)
        return torch.randn(*shape, device=DEVICE, dtype=self.dtype, **options)

    def each(self, make):
        return [make() for _ in self.sets]


def unary(function):
    def build(case):
        x = case.each(lambda: case.randn(*case.dims))
        return {"torch": lambda i: function(x[i])}

    return build


def add(case):
    x, y = (case.each(lambda: case.randn(*case.dims)) for _ in range(2))
    peers = {"torch": lambda i: torch.add(x[i], y[i])}
    if triton and ON_GPU:
        o = [torch.empty_like(v) for v in x]
        n = x[0].numel()
        for block, warps in ((1024, 4), (2048, 4), (4096, 8)):
            grid = (triton.cdiv(n, block),)
            peers[f"triton/{block}x{warps}"] = (
                lambda i, b=block, w=warps, g=grid: add_kernel[g](x[i], y[i], o[i], n, BLOCK=b, num_warps=w))
    return peers


def add_row(case):
    m, n = case.dims
    x, row = case.each(lambda: case.randn(m, n)), case.randn(n)
    return {"torch": lambda i: x[i] + row}


def add_column(case):
    m, n = case.dims
    x, column = case.each(lambda: case.randn(m, n)), case.randn(m, 1)
    return {"torch": lambda i: x[i] + column}


def fused_chain(case):
    x, y = (case.each(lambda: case.randn(*case.dims)) for _ in range(2))

    def chain(x, y):
        gate = torch.sigmoid(x * 1.5 + y) * x
        return torch.relu(torch.tanh(gate - 0.5) * y + x) * 0.25

    peers = {"torch": lambda i: chain(x[i], y[i])}
    compiled = torch.compile(chain)
    peers["torch.compile"] = lambda i: compiled(x[i], y[i])
    return peers


def softmax(case):
    m, n = case.dims
    x = case.each(lambda: case.randn(m, n))
    peers = {"torch": lambda i: torch.softmax(x[i], -1)}
    if triton and ON_GPU:
        o = [torch.empty_like(v) for v in x]
        whole = triton.next_power_of_2(n)
        kernels = []
        if whole <= 32768:
            kernels += [(softmax_kernel, whole, w) for w in (4, 8, 16, 32) if 32 * w <= whole]
        if n > 8192:
            kernels += [(long_softmax_kernel, b, w) for b, w in ((4096, 8), (8192, 16), (16384, 32))]
        for kernel, block, warps in kernels:
            peers[f"triton/{block}x{warps}"] = (
                lambda i, k=kernel, b=block, w=warps: k[(m,)](x[i], o[i], n, BLOCK=b, num_warps=w))
        for name in [name for name in peers if name != "torch"]:
            peers[name](0)
            if not torch.allclose(o[0].float(), torch.softmax(x[0].float(), -1), rtol=2e-2, atol=1e-6):
                del peers[name]
    return peers


def norm(forward, params):
    def build(case):
        m, n = case.dims
        x = case.each(lambda: case.randn(m, n))
        w = [case.randn(n) for _ in range(params)]
        return {"torch": lambda i: forward(x[i], (n,), *w)}

    return build


def norm_bwd(forward, params):
    def build(case):
        m, n = case.dims
        w = [case.randn(n, requires_grad=True) for _ in range(params)]
        x = case.each(lambda: case.randn(m, n, requires_grad=True))
        y = [forward(v, (n,), *w) for v in x]
        dy = case.each(lambda: case.randn(m, n))
        return {"torch": lambda i: torch.autograd.grad(y[i], (x[i], *w), dy[i], retain_graph=True)}

    return build


def reduce(case):
    x = case.each(lambda: case.randn(*case.dims))
    axis = case.variant.removeprefix("axis=")
    if axis == "all":
        return {"torch": lambda i: x[i].sum()}
    axes = tuple(int(a) for a in axis.split(","))
    return {"torch": lambda i: x[i].sum(axes)}


def product(case):
    if len(case.dims) == 1:
        m = n = k = case.dims[0]
    else:
        m, n, k = case.dims
    turn_a, turn_b = case.variant[:1] == "t", case.variant[1:2] == "t"
    a = case.each(lambda: case.randn(k, m).t() if turn_a else case.randn(m, k))
    b = case.each(lambda: case.randn(n, k).t() if turn_b else case.randn(k, n))
    if case.dtype == torch.int8:
        return {BLAS: lambda i: torch._int_mm(a[i], b[i])}
    if case.dtype.itemsize == 1:
        one, fast = torch.ones((), device=DEVICE), case.variant.endswith("/fast")
        return {BLAS: lambda i: torch._scaled_mm(a[i], b[i], scale_a=one, scale_b=one,
                                                 out_dtype=torch.bfloat16, use_fast_accum=fast)}
    return {BLAS: lambda i: torch.mm(a[i], b[i])}


def linear(case):
    m, k, n = case.dims
    x, w = case.each(lambda: case.randn(m, k)), case.each(lambda: case.randn(n, k))
    return {BLAS: lambda i: F.linear(x[i], w[i])}


def matmul_bias_gelu(case):
    n = case.dims[0]
    a, b = (case.each(lambda: case.randn(n, n)) for _ in range(2))
    bias = case.randn(n)
    return {f"{BLAS} + torch": lambda i: F.gelu(torch.addmm(bias, a[i], b[i]))}


def conv2d(case):
    torch.backends.cudnn.benchmark = True
    n, c, h, w = case.dims
    kernel, _, part = case.variant.partition("/")
    k = int(kernel.split("x")[0])
    form = torch.channels_last if part == "last" else torch.contiguous_format
    x = case.each(lambda: case.randn(n, c, h, w).contiguous(memory_format=form))
    weight = case.each(lambda: (case.randn(c, c, k, k) / (c * k * k) ** 0.5)
                       .contiguous(memory_format=form))
    name, pad = "cuDNN" if ON_GPU else "torch", k // 2
    if part == "dx":
        back = torch.nn.grad.conv2d_input
        return {name: lambda i: back((n, c, h, w), weight[i], x[i], padding=pad)}
    if part == "dw":
        back, dy = torch.nn.grad.conv2d_weight, case.each(lambda: case.randn(n, c, h, w))
        return {name: lambda i: back(x[i], (c, c, k, k), dy[i], padding=pad)}
    return {name: lambda i: F.conv2d(x[i], weight[i], padding=pad)}


def cross_entropy(case):
    m, n = case.dims
    both = case.variant == "fwd+bwd"
    x = case.each(lambda: case.randn(m, n, requires_grad=both))
    y = torch.randint(0, n, (m,), device=DEVICE)
    if not both:
        return {"torch": lambda i: F.cross_entropy(x[i], y)}
    return {"torch": lambda i: torch.autograd.grad(F.cross_entropy(x[i], y), x[i])}


def linear_cross_entropy(case):
    m, k, n = case.dims
    both = case.variant == "fwd+bwd"
    x = case.each(lambda: case.randn(m, k, requires_grad=both))
    # As in ours: logits of unit variance.
    w = case.each(lambda: (case.randn(n, k) * k ** -0.5).requires_grad_(both))
    y = torch.randint(0, n, (m,), device=DEVICE)
    run = lambda loss, i: torch.autograd.grad(loss, (x[i], w[i])) if both else loss
    eager = lambda a, b: F.cross_entropy(F.linear(a, b), y)
    forms = {"torch": eager}
    if ON_GPU:
        forms["torch.compile"] = torch.compile(eager)
    return {name: lambda i, form=form: run(form(x[i], w[i]), i) for name, form in forms.items()}


def adamw(case):
    params = [case.randn(case.dims[0], requires_grad=True)]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(params, **({"fused": True} if ON_GPU else {}))
    return {"torch fused": lambda i: optimizer.step()}


def embedding_bwd(case):
    tokens, vocabulary, c = case.dims
    w = case.randn(vocabulary, c, requires_grad=True)
    index = case.each(lambda: torch.randint(0, vocabulary, (tokens,), device=DEVICE))
    e = [F.embedding(i, w) for i in index]
    dy = case.each(lambda: case.randn(tokens, c))
    return {"torch": lambda i: torch.autograd.grad(e[i], w, dy[i], retain_graph=True)}


def attention_inputs(case, grad):
    heads, own = case.dims[1], case.dims[-3]
    b, s, d = case.dims[0], case.dims[-2], case.dims[-1]
    own = own if len(case.dims) == 5 else heads
    # Packed sequences are one after the other in memory, which is as good as each alone.
    lengths = [(b, s)]
    if "varlen" in case.variant:
        lengths = [(1, max(1, int(s * 64 ** (i / max(b - 1, 1) - 1)))) for i in range(b)]
    make = lambda h: case.each(lambda: [case.randn(n, h, l, d, requires_grad=grad) for n, l in lengths])
    return make(heads), make(own), make(own), {"enable_gqa": own != heads,
                                               "is_causal": "causal" in case.variant}


def attention_backends(case):
    """The backends that a case is beside, by their names."""
    from torch.nn.attention import SDPBackend

    if not ON_GPU:
        return {"torch": SDPBackend.MATH}
    flash = {"torch flash": SDPBackend.FLASH_ATTENTION}
    if {"flash", "deterministic", "varlen"} & set(case.variant.split("/")):
        return flash
    cudnn = {"cuDNN": SDPBackend.CUDNN_ATTENTION}
    # Of grouped heads the better of both counts.
    return {**cudnn, **flash} if len(case.dims) == 5 else cudnn


def attention(case):
    from torch.nn.attention import sdpa_kernel

    q, k, v, options = attention_inputs(case, False)

    def of(backend):
        def run(i):
            with sdpa_kernel(backend):
                return [F.scaled_dot_product_attention(*t, **options) for t in zip(q[i], k[i], v[i])]

        return run

    return {name: of(backend) for name, backend in attention_backends(case).items()}


def paged_attention(case):
    """Beside the best of all backends, on keys and values in a row."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    b, h, g, new, keys, d = case.dims
    q = case.each(lambda: case.randn(b, h, new, d))
    k, v = [case.each(lambda: case.randn(b, g, keys, d)) for _ in range(2)]
    # A token sees all keys up to its own.
    if new == 1:
        causal = {}
    elif new == keys:
        causal = {"is_causal": True}
    else:
        causal = {"attn_mask": causal_lower_right(new, keys)}
    backends = {"torch": SDPBackend.MATH}
    if ON_GPU:
        backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "torch flash": SDPBackend.FLASH_ATTENTION,
                    "torch efficient": SDPBackend.EFFICIENT_ATTENTION}

    def of(name, backend):
        # This backend takes no groups: it has a copy of its head of keys for each of queries.
        is_copied = name == "torch efficient" and h != g
        own = lambda each: [t.repeat_interleave(h // g, 1) for t in each] if is_copied else each
        wide = [own(k), own(v)]
        options = {"enable_gqa": h != g and not is_copied, **causal}

        def run(i):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q[i], wide[0][i], wide[1][i], **options)

        return run

    return {name: of(name, backend) for name, backend in backends.items()}


def attention_bwd(case):
    from torch.nn.attention import sdpa_kernel

    q, k, v, options = attention_inputs(case, True)
    dy = [[torch.randn_like(t) for t in each] for each in q]
    deterministic = "deterministic" in case.variant
    # Only what decides the algorithm counts: no memory is filled for it.
    torch.utils.deterministic.fill_uninitialized_memory = False

    def of(backend):
        with sdpa_kernel(backend):
            y = [[F.scaled_dot_product_attention(*t, **options) for t in zip(*each)]
                 for each in zip(q, k, v)]

        def run(i):
            torch.use_deterministic_algorithms(deterministic)
            try:
                return torch.autograd.grad(y[i], (*q[i], *k[i], *v[i]), dy[i], retain_graph=True)
            finally:
                torch.use_deterministic_algorithms(False)

        return run

    return {name: of(backend) for name, backend in attention_backends(case).items()}


def rms_norm(x, shape, w):
    return F.rms_norm(x, shape, w)


def expression(text):
    return eval(f"lambda x: ({text})", {"torch": torch, "F": F})


def described(y):
    return {"shape": list(y.shape), "dtype": NAMES[y.dtype]}


def drawn(what, grad):
    """A tensor that lies in memory as it is described."""
    dtype, n, low, high = DTYPES[what["dtype"]], what["len"], what["low"], what["high"]
    if dtype.is_floating_point:
        base = torch.rand(n, device=DEVICE).mul_(high - low).add_(low)
        base = (base.floor_() if what["whole"] else base).to(dtype)
    else:
        base = torch.randint(int(low), int(high), (n,), device=DEVICE).to(dtype)
    x = base.as_strided(what["shape"], what["strides"], what["offset"]).detach()
    return x.requires_grad_(grad and dtype.is_floating_point)


def set_deterministic(wanted):
    """Whether sums at indices are added up in a fixed order, where torch has code for it; returns that."""
    torch.utils.deterministic.fill_uninitialized_memory = False
    warnings.filterwarnings("ignore", message=".*deterministic.*")
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    return wanted


def call(case):
    """An expression over inputs: its forward, or the backward alone of one that ran before."""
    torch.backends.cudnn.benchmark = True
    name = "torch"
    if set_deterministic(case.request.get("deterministic", False)):
        name = "torch deterministic"
    backward, run = case.request["backward"], expression(case.request["call"])
    x = case.each(lambda: [drawn(what, backward) for what in case.request["inputs"]])
    y = run(x[0])
    case.result = described(y)
    if not backward:
        return {name: lambda i: run(x[i])}
    del y
    y = [run(inputs) for inputs in x]
    leaves = [[t for t in inputs if t.requires_grad] for inputs in x]
    dy = [torch.rand(t.shape, device=DEVICE).to(t.dtype) for t in y]
    return {name: lambda i: torch.autograd.grad(y[i], leaves[i], dy[i], retain_graph=True, allow_unused=True)}


def evaluate(request):
    """What an expression gives for inputs of listed values."""
    inputs = [torch.tensor(what["values"], dtype=torch.float64).reshape(what["shape"]).to(DTYPES[what["dtype"]])
              for what in request["inputs"]]
    y = expression(request["call"])(inputs)
    # JSON has no infinity and no NaN.
    values = [v if math.isfinite(v) else None for v in y.to(torch.float64).flatten().tolist()]
    return {**described(y), "values": values}


OPS = {
    "add": add,
    "call": call,
    "gelu": unary(F.gelu),
    "silu": unary(F.silu),
    "exp": unary(torch.exp),
    "add_row": add_row,
    "add_column": add_column,
    "fused_chain": fused_chain,
    "transpose": unary(lambda x: x.t().contiguous()),
    "softmax": softmax,
    "layer_norm": norm(F.layer_norm, 2),
    "layer_norm_bwd": norm_bwd(F.layer_norm, 2),
    "rms_norm": norm(rms_norm, 1),
    "rms_norm_bwd": norm_bwd(rms_norm, 1),
    "sum": reduce,
    "cumsum": unary(lambda x: x.cumsum(-1)),
    "argmax": unary(lambda x: x.argmax(-1)),
    "cross_entropy": cross_entropy,
    "linear_cross_entropy": linear_cross_entropy,
    "matmul": product,
    "linear": linear,
    # Whole weights: what they cost that have as many numbers.
    "quantized_linear": linear,
    "matmul_bias_gelu": matmul_bias_gelu,
    "attention": attention,
    "attention_bwd": attention_bwd,
    "paged_attention": paged_attention,
    "conv2d": conv2d,
    "adamw": adamw,
    "embedding_bwd": embedding_bwd,
}


def wait():
    if ON_GPU:
        torch.cuda.synchronize()


def timed(work):
    """Milliseconds of what `work` gives to the device."""
    if not ON_GPU:
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


class Peers:
    """The candidates of the case that is prepared, their results and their graphs."""

    def __init__(self, case):
        self.case, self.graphs, self.errors = case, {}, {}
        self.n = len(case.sets)
        self.results = [None] * self.n
        self.use_tf32(case.request["dtype"] == "tf32")
        self.candidates = OPS[case.op](case)

    def use_tf32(self, on):
        """Whether f32 is multiplied as tf32: as ours is, and not as cuDNN's convolutions would be unless told."""
        torch.backends.cuda.matmul.allow_tf32 = on
        torch.backends.cudnn.allow_tf32 = on

    def call(self, run, launches):
        for j in range(launches):
            self.results[j % self.n] = run(j % self.n)

    def estimates(self):
        """The time of one call of each candidate; of one with variants only the best is kept."""
        best = {}
        for name, run in list(self.candidates.items()):
            try:
                self.call(run, self.n + 2)
                wait()
                ms = timed(lambda: self.call(run, 1))
                if ms > LONG:
                    best.setdefault(name.split("/")[0], (ms, run, name))
                    continue
                launches = max(1, min(200, int(2 / max(ms, 1e-3))))
                ms = min(timed(lambda: self.call(run, launches)) / launches for _ in range(3))
                if ms < 0.05 and self.case.request.get("graphs", True):
                    ms = self.burst(name, 256, True)
            except Exception as error:  # one candidate that fails must not hide the others
                self.errors[name] = f"{type(error).__name__}: {error}"[:300]
                continue
            peer = name.split("/")[0]
            if peer not in best or ms < best[peer][0]:
                best[peer] = (ms, run, name)
        self.candidates = {peer: run for peer, (_, run, _) in best.items()}
        self.graphs = {peer: self.graphs[name] for peer, (_, _, name) in best.items() if name in self.graphs}
        if not best:
            raise RuntimeError(f"no peer ran: {self.errors}")
        return {peer: ms for peer, (ms, _, _) in best.items()}

    def graph(self, name, run):
        if name not in self.graphs:
            n = self.n * max(1, GRAPH_LAUNCHES // self.n)
            # A capture needs what runs first to have run before.
            self.call(run, self.n + 1)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                self.call(run, n)
            self.graphs[name] = (graph, n)
        return self.graphs[name]

    def burst(self, name, launches, graph):
        run = self.candidates[name]
        if not graph or not ON_GPU:
            self.call(run, 2)
            return timed(lambda: self.call(run, launches)) / launches
        recorded, n = self.graph(name, run)
        replays = max(1, launches // n)

        def replay():
            for _ in range(replays):
                recorded.replay()

        recorded.replay()
        return timed(replay) / (replays * n)


def compile_matmul(dims):
    """Median time of Triton's whole compilation of a kernel that no cache has, in ms."""
    bm, bn, bk = dims
    a, b, c = (torch.empty(4096, 4096, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    times = []
    for salt in range(4):
        start = time.perf_counter()
        matmul_kernel.warmup(a, b, c, 4096, 4096, 4096, BM=bm, BN=bn, BK=bk, GROUP=8, SALT=salt,
                             num_warps=8, num_stages=3, grid=(1,))
        times.append((time.perf_counter() - start) * 1e3)
    # The first pays for what the process loads once.
    return sorted(times[1:])[1]


def host_add(grad):
    """Host time of an addition of 1024 elements, in ms: 600 in a row after 200 that are not timed."""
    x, y = (torch.randn(1024, device=DEVICE) for _ in range(2))
    x.requires_grad_(grad)
    times = []
    for _ in range(40):
        wait()
        for _ in range(200):
            x + y
        start = time.perf_counter()
        for _ in range(600):
            x + y
        times.append((time.perf_counter() - start) * 1e3 / 600)
    return sorted(times)[len(times) // 2]


def mlp_step(captured):
    """Wall time of a training step of 784-256-10, batch 64, with AdamW, in ms."""
    model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(DEVICE)
    x = torch.randn(64, 784, device=DEVICE)
    y = torch.randint(0, 10, (64,), device=DEVICE)
    options = {"fused": True, "capturable": captured} if ON_GPU else {}
    optimizer = torch.optim.AdamW(model.parameters(), **options)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(5):
        step()
    run = step
    if captured and ON_GPU:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            step()
        # Its arguments are copied in as ours are.
        new_x, new_y = x.clone(), y.clone()

        def run():
            x.copy_(new_x)
            y.copy_(new_y)
            graph.replay()

    times = []
    for _ in range(9):
        wait()
        start = time.perf_counter()
        for _ in range(100):
            run()
        wait()
        times.append((time.perf_counter() - start) * 1e3 / 100)
    return sorted(times)[len(times) // 2]


def cpu_chain(elements, repeats, threads):
    """Time of the chain of benches/src/cpu.rs, op by op on the CPU, in ms."""
    if CHAIN.get("elements") != elements:
        torch.set_num_threads(threads)
        CHAIN.update(elements=elements, operands=[torch.randn(elements) for _ in range(2)])
    x, y = CHAIN["operands"]

    def chain():
        z = torch.tanh((x * y + x) * 0.5) * y
        return torch.relu(torch.sigmoid(z - x) * x + 1.0)

    with torch.no_grad():
        chain()
        start = time.perf_counter()
        for _ in range(repeats):
            chain()
        return (time.perf_counter() - start) * 1e3 / repeats


CHAIN = {}

HOST = {
    "host/add/1024": lambda: host_add(False),
    "host/add/1024/grad": lambda: host_add(True),
    "mlp_step/784-256-10/b64": lambda: mlp_step(False),
    "mlp_step/784-256-10/b64/graph": lambda: mlp_step(True),
}


def alloc_pairs(size, pairs):
    """Median time of a block of torch's allocator taken and given back, in ms."""
    if not ON_GPU:
        raise RuntimeError("torch's allocator is that of a GPU")
    take, give = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    times = []
    for _ in range(16):
        start = time.perf_counter()
        for _ in range(pairs):
            give(take(size))
        times.append((time.perf_counter() - start) * 1e3 / pairs)
    # The first pays for the segment.
    return sorted(times[1:])[7]


class Lcg:
    """The generator of both sides."""

    def __init__(self, state):
        self.state = state

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)
        return (self.state >> 33) % n


def alloc_walks():
    """The four walks of benches/src/memory.rs: a size is a block that is taken, -1 - i the one given back."""
    draw = Lcg(1)
    sizes = [(64 << (i * 17 // 100)) * (8 + draw.below(8)) for i in range(100)]

    def walk(thread):
        draw, live, steps = Lcg(100 + thread), 0, []
        for _ in range(250_000):
            if live == 0 or (live < 64 and draw.below(2) == 0):
                steps.append(sizes[draw.below(100)])
                live += 1
            else:
                steps.append(-draw.below(live) - 1)
                live -= 1
        return steps

    if not ON_GPU:
        raise RuntimeError("torch's allocator is that of a GPU")
    return [walk(thread) for thread in range(4)]


def alloc_step(step, live):
    if step > 0:
        live.append(torch.cuda.caching_allocator_alloc(step))
    else:
        at = -step - 1
        live[at], live[-1] = live[-1], live[at]
        torch.cuda.caching_allocator_delete(live.pop())


def alloc_trace():
    """The trace of benches/src/memory.rs on torch's allocator: time in ms.

    The walk is drawn before it is timed. Threads of Python take turns, so that they share one core; each
    walk alone costs as much.
    """
    walks = alloc_walks()
    take, give = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete

    def run(steps):
        live = []
        for step in steps:
            if step > 0:
                live.append(take(step))
            else:
                at = -step - 1
                live[at], live[-1] = live[-1], live[at]
                give(live.pop())
        for block in live:
            give(block)

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    threads = [threading.Thread(target=run, args=(steps,)) for steps in walks]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"ms": (time.perf_counter() - start) * 1e3}


def alloc_held(orders):
    """The most that torch's allocator holds for the walks of benches/src/memory.rs, in GiB: of so many orders."""
    walks = alloc_walks()
    return {"gib": sum(held_in(walks, Lcg(seed + 1)) for seed in range(orders)) / orders}


def held_in(walks, draw):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    begun, live, left = [0] * 4, [[] for _ in range(4)], 4 * 250_000
    while left:
        walk = draw.below(4)
        if begun[walk] == 250_000:
            continue
        alloc_step(walks[walk][begun[walk]], live[walk])
        begun[walk] += 1
        left -= 1
        if begun[walk] == 250_000:
            for block in live[walk]:
                torch.cuda.caching_allocator_delete(block)
    return torch.cuda.max_memory_reserved() / (1 << 30)


def handle(request, state):
    what = request["do"]
    if what == "alloc":
        return {"ms": alloc_pairs(request["bytes"], request["pairs"])}
    if what == "alloc_trace":
        return alloc_trace()
    if what == "alloc_held":
        return alloc_held(request["orders"])
    if what == "prepare":
        state.clear()
        case = Case(request)
        peers = Peers(case)
        state["peers"] = peers
        return {"estimates": peers.estimates(), "errors": peers.errors, "result": getattr(case, "result", None)}
    if what == "burst":
        return {"ms": state["peers"].burst(request["peer"], request["launches"], request["graph"])}
    if what == "evaluate":
        return evaluate(request)
    if what == "compile":
        return {"ms": compile_matmul(request["dims"])}
    if what == "cpu_chain":
        return {"ms": cpu_chain(request["elements"], request["repeats"], request["threads"])}
    if what == "host":
        state.clear()
        return {"ms": HOST[request["case"]]()}
    if what == "drop":
        state.clear()
        if ON_GPU:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        return {}
    raise ValueError(f"no request is called {what}")


def main():
    if ON_GPU and not torch.cuda.is_available():
        answer({"missing": "torch sees no GPU"})
        return
    if os.environ.pop("GENESIS_PEER_AGAIN", None) is None:
        answer({"torch": torch.__version__, "triton": triton.__version__ if triton else None})
    if ON_GPU:
        torch.cuda.set_device(torch.device(DEVICE).index or 0)
        # A backward runs on the stream of its forward, and the default stream can't be captured.
        torch.cuda.set_stream(torch.cuda.Stream())
    state = {}
    for line in sys.stdin:
        try:
            answer(handle(json.loads(line), state))
        except Exception as error:  # the benchmark says it beside the case and goes on
            state.clear()
            answer({"error": f"{type(error).__name__}: {error}"[:500]})
            if ON_GPU:
                # A capture that failed leaves torch unable to capture again: begin anew.
                os.environ["GENESIS_PEER_AGAIN"] = "1"
                os.dup2(ANSWERS.fileno(), 1)
                os.execv(sys.executable, [sys.executable, *sys.argv])


main()
