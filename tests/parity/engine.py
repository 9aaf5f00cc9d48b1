"""What the tables of cases are written with: descriptions of tensors, calls of PyTorch, and a compact file of both.

A tensor of a case is described, not stored: both sides draw its elements from the same generator.
Element i of seed s is SplitMix64 of the counter:

    z = s * 0xD1342543DE82EF95 + (i + 1) * 0x9E3779B97F4A7C15        (mod 2^64)
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9
    z = (z ^ z >> 27) * 0x94D049BB133111EB
    z = z ^ z >> 31

`range: [low, high]` makes it `low + (high - low) * (z >> 11) / 2^53` in f64, rounded to f32 and then to
a 16-bit dtype, or rounded down for integers; `of: [..]` picks the element `z % len`; `values` are listed,
repeated from the start where they are fewer; `order` is the position of element i among all draws.
The storage has `n` elements; the case means `as_strided(shape, stride, offset)` of it.

A file of a group is gzip of: the length of the manifest as u64, the manifest, the answers. The manifest has
a JSON object a line, as ../../../shared/conform/README.md describes it, with `tensors` (the descriptions)
and `answers`: for each result its dtype, shape, first byte, PyTorch's root mean square error, and the rule
that it is held to. Answers of the rules `exact` and `choice` are PyTorch's in its dtype; others are computed in f64 from the
same inputs (kept in f64, or f32 for 16-bit results), with PyTorch's value where one of the two is not finite.
"""

import gzip
import io
import json
import math
import struct
import sys
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
torch.set_num_threads(2)

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
I64, I32, I16, I8, U8, BOOL = (
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
FLOATS = [F32, F64, BF16, F16]
INTS = [I64, I32, I16, I8, U8]
SHORT = {F32: "f32", F64: "f64", F16: "f16", BF16: "bf16", I64: "i64", I32: "i32", I16: "i16",
         I8: "i8", U8: "u8", BOOL: "bool"}
NAN, INF = math.nan, math.inf


def draws(seed, n):
    """n numbers of 64 bits."""
    with np.errstate(over="ignore"):
        i = np.arange(1, n + 1, dtype=np.uint64)
        z = np.uint64(seed * 0xD1342543DE82EF95 % 2**64) + i * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return z ^ z >> np.uint64(31)


def number(value):
    """A number as the manifest writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


class T:
    """A tensor of a case."""

    def __init__(self, *shape, dtype=None, range=None, of=None, values=None, order=False,
                 lay="c", grad=True):
        self.shape, self.dtype, self.lay, self.grad = list(shape), dtype, lay, grad
        self.range, self.of, self.values, self.order = range, of, values, order

    def layout(self):
        """The storage's length, the strides and the offset."""
        shape = self.shape
        stride, n = [0] * len(shape), 1
        order = list(range(len(shape)))
        if self.lay == "w" and shape:
            # Rows of a wider tensor.
            wide = [*shape[:-1], shape[-1] + 2]
            n = 1
            for axis in reversed(order):
                stride[axis] = n
                n *= max(wide[axis], 1)
            return n, stride, 0
        if self.lay == "t" and len(shape) > 1:
            order[-1], order[-2] = order[-2], order[-1]
        gap = 2 if self.lay == "s" and shape else 1
        n = gap
        for axis in reversed(order):
            stride[axis] = n
            n *= max(shape[axis], 1)
        offset = 3 if self.lay == "o" else 0
        if self.lay == "e" and shape:
            stride[0] = 0
        return n + offset, stride, offset

    def describe(self, dtype, seed):
        n, stride, offset = self.layout()
        out = {"dtype": SHORT[dtype], "seed": seed, "n": n, "shape": self.shape, "stride": stride,
               "offset": offset}
        if self.values is not None:
            out["values"] = [number(v) for v in self.values]
        elif self.of is not None:
            out["of"] = [number(v) for v in self.of]
        elif self.order:
            out["order"] = True
        elif dtype == BOOL:
            out["of"] = [0, 1]
        else:
            low, high = self.range or (-2, 2)
            if not dtype.is_floating_point:
                low, high = (low, high) if self.range else (-9, 10)
            if dtype == U8:
                low, high = (0, high - low) if low < 0 else (low, high)
            out["range"] = [low, high]
        return out


def make(d):
    """The tensor of a description."""
    dtype = next(t for t, s in SHORT.items() if s == d["dtype"])
    n, z = d["n"], draws(d["seed"], d["n"])
    plain = lambda v: float(v["float"]) if isinstance(v, dict) else v
    if "values" in d:
        listed = [plain(v) for v in d["values"]]
        v = np.array([listed[i % len(listed)] for i in range(n)], dtype=np.float64)
    elif "of" in d:
        of = np.array([plain(v) for v in d["of"]], dtype=np.float64)
        v = of[(z % np.uint64(len(of))).astype(np.int64)]
    elif "order" in d:
        v = np.empty(n)
        v[np.argsort(z, kind="stable")] = np.arange(n)
    else:
        low, high = d["range"]
        v = low + (high - low) * ((z >> np.uint64(11)).astype(np.float64) / 2.0**53)
        v = v if dtype.is_floating_point else np.floor(v)
    flat = torch.from_numpy(v)
    flat = flat.to(dtype) if dtype in (F64, BOOL) or not dtype.is_floating_point else flat.to(F32).to(dtype)
    return flat.as_strided(d["shape"], d["stride"], d["offset"])


class Slice:
    def __init__(self, *parts):
        self.parts = list(parts)


def listed(outs):
    """The results of a call; a plain number is a result without axes."""
    outs = list(outs) if isinstance(outs, (tuple, list)) else [outs]
    return [o if isinstance(o, torch.Tensor) else torch.tensor(o) for o in outs]


def resolve(op):
    if op.startswith("nn.functional."):
        return getattr(torch.nn.functional, op[len("nn.functional."):])
    if op.startswith("linalg."):
        return getattr(torch.linalg, op[len("linalg."):])
    if op.startswith("special."):
        return getattr(torch.special, op[len("special."):])
    if op.startswith("Tensor."):
        return getattr(torch.Tensor, op[len("Tensor."):])
    return getattr(torch, op, None) or getattr(torch.Tensor, op)


class Group:
    """The cases of a file."""

    def __init__(self, name, first_seed=0, cut=0):
        # `cut` is how many of the last bits of an f64 answer to an f32 result are 0, which compress well.
        self.cut = cut
        self.name, self.manifest, self.answers, self.skipped = name, [], io.BytesIO(), []
        self.ids, self.first_seed = {}, first_seed

    def seed(self):
        """The first seed of the case that is made: each has 64."""
        return self.first_seed + len(self.manifest) * 64

    def json(self, value, tensors, described, dtype):
        """An argument as the manifest writes it; its tensors are described and made."""
        if isinstance(value, T):
            name = f"in{len(tensors)}"
            seed = self.seed() + len(tensors) + 1
            described[name] = value.describe(value.dtype or dtype, seed)
            tensors[name] = make(described[name])
            if value.grad is False:
                described[name]["still"] = True
            return {"tensor": name}
        if isinstance(value, (list, tuple)):
            return [self.json(v, tensors, described, dtype) for v in value]
        if isinstance(value, Slice):
            return {"slice": value.parts}
        if value is Ellipsis:
            return {"ellipsis": True}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value)[len("torch."):]}
        return number(value)

    def live(self, value, tensors, wide):
        """The argument itself from what the manifest writes."""
        if isinstance(value, list):
            return [self.live(v, tensors, wide) for v in value]
        if isinstance(value, dict):
            (kind, inner), = value.items()
            if kind == "tensor":
                return tensors[inner]
            if kind == "slice":
                return slice(*inner)
            if kind == "ellipsis":
                return Ellipsis
            if kind == "dtype":
                dtype = getattr(torch, inner)
                return F64 if wide and dtype.is_floating_point else dtype
            return float(inner)
        return value

    def run(self, op, case, tensors, wide, call):
        args = [self.live(v, tensors, wide) for v in [case["input"], *case["args"]]]
        kwargs = {k: self.live(v, tensors, wide) for k, v in case["kwargs"].items()}
        if op == "__getitem__":
            index = args[1]
            plain = lambda v: isinstance(v, (int, bool))
            if isinstance(index, list) and not all(plain(v) for v in index):
                index = tuple(index)
            return args[0][index]
        return (call or resolve(op))(*args, **kwargs)

    def outcome(self, op, case, made, seeds, wide, call):
        """The results and the gradients of the floating inputs."""
        tensors, leaves = {}, []
        for name, tensor in made.items():
            described = case["tensors"][name]
            if wide and (tensor.is_floating_point() or (self.widens and tensor.dtype != BOOL)):
                tensor = tensor.to(F64)
            tensor = tensor.detach()
            if self.grads and tensor.is_floating_point() and "still" not in described:
                tensor = tensor.clone(memory_format=torch.preserve_format).requires_grad_() if not wide \
                    else tensor.clone().requires_grad_()
            if tensor.is_floating_point() and made[name].is_floating_point():
                leaves.append(tensor)
            tensors[name] = tensor
        outs = self.run(op, case, tensors, wide, call)
        outs = listed(outs)
        grads = None
        live = [o.requires_grad for o in outs]
        if self.grads and any(live):
            for k, (out, seed) in enumerate(zip(outs, seeds)):
                if live[k]:
                    seed = seed.to(out.dtype)
                    out.backward(seed, retain_graph=True)
            grads = [leaf.grad for leaf in leaves]
        return [o.detach() for o in outs], grads, live

    def case(self, op, *args, dtype=F32, rule="exact", grule=None, variant="", grad=True,
             fails=False, call=None, widens=False, every=1, plain=False, **kwargs):
        """A call of an op with its answers; a keyword that is a name of this function ends in `_`.

        `fails` is whether PyTorch refuses it, or a function that says of its message whether the refusal
        is one to be kept; a call that is refused otherwise is left out.
        """
        count = self.ids[op] = self.ids.get(op, -1) + 1
        short = op.replace("nn.functional.", "F.")
        case = {"id": f"{self.name}/{short}.{count}", "op": op, "variant": variant,
                "dtype": SHORT[dtype]}
        made, described = {}, {}
        case["input"] = self.json(args[0], made, described, dtype) if args else None
        case["args"] = [self.json(a, made, described, dtype) for a in args[1:]]
        case["kwargs"] = {
            k.rstrip("_"): self.json(v, made, described, dtype) for k, v in sorted(kwargs.items())}
        case["tensors"] = described
        self.grads, self.widens = grad, widens
        try:
            seeds = self.seeds(op, case, made, call)
            outs, grads, live = self.outcome(op, case, made, seeds, False, call)
        except Exception as error:
            text = str(error)
            if self.grads and "derivative for" in text:
                self.ids[op] -= 1
                return self.case(op, *args, dtype=dtype, rule=rule, variant=variant, grad=False,
                                 call=call, widens=widens, every=every, plain=plain,
                                 fails=fails, **kwargs)
            if callable(fails) and self.grads:
                # Is it the call that is refused or its gradient?
                self.ids[op] -= 1
                return self.case(op, *args, dtype=dtype, rule=rule, variant=variant, grad=False,
                                 call=call, widens=widens, every=every, plain=plain, fails=fails, **kwargs)
            if fails(text) if callable(fails) else fails:
                case["must_fail"] = True
                self.manifest.append(case)
                return
            self.ids[op] -= 1
            lacks = "implemented for" in text or "not supported" in text or "Unsupported" in text
            if not lacks and not callable(fails):
                print(f"{case['id']} {SHORT[dtype]}: {text[:200]}", file=sys.stderr)
            self.skipped.append((op, SHORT[dtype], text[:80]))
            return
        if fails and not callable(fails):
            print(f"{case['id']}: PyTorch takes it", file=sys.stderr)
            return
        truths, grad_truths = outs, grads
        inexact = any(o.is_floating_point() for o in outs) and (rule != "exact" or grads) and not plain
        if inexact:
            try:
                truths, grad_truths, _ = self.outcome(op, case, made, seeds, True, call)
            except Exception as error:
                if callable(fails):
                    self.ids[op] -= 1
                    self.skipped.append((op, SHORT[dtype], f"in f64: {error}"[:80]))
                    return
                print(f"{case['id']} in f64: {str(error)[:150]}", file=sys.stderr)
        answers = {}
        case["out"] = [{"tensor": f"out{k}"} for k in range(len(outs))]
        for k, (out, truth) in enumerate(zip(outs, truths)):
            answers[f"out{k}"] = self.answer(out, truth, rule, every)
        if grads is not None:
            case["grad"] = {
                "grad_out": [{"tensor": f"go{k}"} if l else None for k, l in enumerate(live)],
                "grad_in": [None if g is None else {"tensor": f"gi{k}"} for k, g in enumerate(grads)]}
            for k, (g, t) in enumerate(zip(grads, grad_truths)):
                if g is not None:
                    answers[f"gi{k}"] = self.answer(g, t if t is not None else g, grule or "gradient", every)
        case["answers"] = answers
        self.manifest.append(case)

    def seeds(self, op, case, made, call):
        """What is put into the backward pass of each result: drawn like inputs."""
        if not self.grads or not any(t.is_floating_point() for t in made.values()):
            return []
        with torch.no_grad():
            outs = self.run(op, case, made, False, call)
        outs = listed(outs)
        seeds = []
        for k, out in enumerate(outs):
            if out.is_floating_point():
                d = T(*out.shape, range=(-1, 1)).describe(out.dtype, self.seed() + 32 + k)
                case["tensors"][f"go{k}"] = d
                seeds.append(make(d))
            else:
                seeds.append(None)
        return seeds

    def answer(self, out, truth, rule, every):
        """Writes an answer and says where."""
        floating = out.is_floating_point()
        kept = out
        error = 0.0
        if floating and rule not in ("exact", "choice") and truth.shape == out.shape:
            wide, truth = out.to(F64), truth.to(F64)
            both = wide.isfinite() & truth.isfinite()
            diff = (wide - truth)[both]
            error = float((diff * diff).mean().sqrt()) if diff.numel() else 0.0
            kept = torch.where(both, truth, wide).to(F64 if out.dtype in (F32, F64) else F32)
            if out.dtype == F32 and rule != "arith" and self.cut:
                kept = (kept.contiguous().view(I64) >> self.cut << self.cut).view(F64)
        elif rule != "choice":
            rule = "exact"
        flat = kept.contiguous().reshape(-1)
        if every > 1:
            flat = flat[::every].contiguous()
        at = self.answers.tell()
        bits = flat.view(torch.int16) if flat.dtype == BF16 else flat
        self.answers.write(bits.numpy().tobytes())
        answer = {"dtype": SHORT[out.dtype], "kept": SHORT[kept.dtype], "shape": list(out.shape),
                  "at": at, "rule": rule}
        if error:
            answer["rmse"] = float(f"{error:.4g}")
        if every > 1:
            answer["every"] = every
        return answer

    def each(self, dtypes, op, *args, **kwargs):
        """The same call in several dtypes."""
        for dtype in dtypes:
            self.case(op, *args, dtype=dtype, **kwargs)

    def write(self, folder, level=9):
        lines = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in self.manifest)
        text = lines.encode()
        data = struct.pack("<Q", len(text)) + text + self.answers.getvalue()
        path = folder / f"{self.name}.gz"
        path.write_bytes(gzip.compress(data, level, mtime=0))
        print(f"{self.name}: {len(self.manifest)} cases, {len(self.skipped)} that PyTorch lacks, "
              f"{path.stat().st_size} bytes")
