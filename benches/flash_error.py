"""Attention's error against f64 beside that of PyTorch's own flash kernel, on the same inputs.

    python benches/flash_error.py .gpu/genesis-conform [--device cpu|cuda] [--dtype bf16|f16]

Writes inputs as a suite of cases, lets the conformance runner compute results and gradients, computes both
in f64 and by PyTorch's flash backend, and prints the errors: the root of the mean square, and the largest,
both relative to the root of the mean square of what is right. Ends with 1 if an error of ours is larger
than PyTorch's by more than `SLACK`, by which two runs of either differ with other inputs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

# Batch, heads, groups of keys, queries and keys, elements of a head, causal.
CASES = [
    (1, 4, 4, 4096, 128, False),
    (1, 4, 4, 4096, 128, True),
    (4, 4, 4, 1024, 64, False),
    (1, 4, 4, 4096, 64, True),
    (1, 14, 2, 1024, 64, False),
    (4, 4, 4, 1024, 256, True),
    (4, 4, 4, 1024, 256, False),
]
SLACK = 1.01
NAMES = ["y", "dq", "dk", "dv"]


def attention(q, k, v, causal):
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def results(q, k, v, dy, causal):
    """The result and the three gradients, in f64."""
    q, k, v = (t.detach().clone().requires_grad_() for t in (q, k, v))
    y = attention(q, k, v, causal)
    y.backward(dy)
    return [t.detach().double() for t in (y, q.grad, k.grad, v.grad)]


def truth(q, k, v, dy, causal):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    wide = [t.double() for t in (q, k, v, dy)]
    each = q.shape[1] // k.shape[1]
    parts = []
    # A group of heads at a time: the scores of one of 4096 in f64 are 134 MB.
    for g in range(k.shape[1]):
        own = slice(g * each, (g + 1) * each)
        heads = [wide[0][:, own], wide[1][:, g:g + 1], wide[2][:, g:g + 1], wide[3][:, own]]
        with sdpa_kernel(SDPBackend.MATH):
            parts.append(results(*heads, causal))
    return [torch.cat([part[i] for part in parts], 1) for i in range(4)]


def write(suite, number, inputs, causal, dtype):
    from safetensors.torch import save_file

    q, k, v, dy = (t.cpu().contiguous() for t in inputs)
    name = f"{number:06}"
    tensors = {"in0": q, "in1": k, "in2": v, "go": dy}
    save_file({key: t.flatten() for key, t in tensors.items()},
              os.path.join(suite, name + ".safetensors"))
    views = {key: {"shape": list(t.shape), "stride": list(t.stride())} for key, t in tensors.items()}
    tensor = lambda key: {"tensor": key}
    # What is right is not in the suite: errors are looked at here.
    return {
        "id": name, "op": "nn.functional.scaled_dot_product_attention", "variant": "", "dtype": dtype,
        "noncontiguous": False, "input": tensor("in0"), "args": [tensor("in1"), tensor("in2")],
        "kwargs": {"is_causal": causal, "enable_gqa": True}, "views": views,
        "out": tensor("go"), "truth_f64": tensor("go"),
        "grad": {"grad_out": [tensor("go")], "grad_in": [tensor(f"in{i}") for i in range(3)]},
        "must_fail": False,
    }


def main():
    import torch
    from safetensors.torch import load_file
    from torch.nn.attention import SDPBackend, sdpa_kernel

    parser = argparse.ArgumentParser()
    parser.add_argument("runner")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f16"])
    options = parser.parse_args()
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[options.dtype]
    cases = CASES if options.device == "cuda" else [(b, h, g, min(n, 256), d, c) for b, h, g, n, d, c in CASES]
    torch.manual_seed(0)
    drawn = []
    for b, h, g, n, d, _ in cases:
        draw = lambda heads: torch.randn(b, heads, n, d, dtype=dtype, device=options.device)
        drawn.append([draw(h), draw(g), draw(g), draw(h)])
    is_worse = False
    with tempfile.TemporaryDirectory() as suite, tempfile.TemporaryDirectory() as out:
        with open(os.path.join(suite, "manifest.jsonl"), "w") as manifest:
            for number, (case, inputs) in enumerate(zip(cases, drawn)):
                manifest.write(json.dumps(write(suite, number, inputs, case[5], options.dtype)) + "\n")
        subprocess.run([options.runner, "run", suite, out, "--device", options.device], check=True)
        print(f"{'case':34} {'':3} {'rms':>10} {'flash':>10} {'largest':>10} {'flash':>10}  ratio of rms")
        for number, (case, inputs) in enumerate(zip(cases, drawn)):
            b, h, g, n, d, causal = case
            path = os.path.join(out, f"{number:06}.safetensors")
            if not os.path.exists(path):
                sys.exit(open(os.path.join(out, f"{number:06}.err")).read())
            file = load_file(path)
            ours = [file[key].reshape(-1).double() for key in ["out0", "gi0", "gi1", "gi2"]]
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                theirs = results(*inputs, causal)
            right = truth(*inputs, causal)
            name = f"b{b}h{h}g{g}s{n}d{d}{'/causal' if causal else ''}"
            for what, a, t, r in zip(NAMES, ours, theirs, right):
                r, t = r.cpu().reshape(-1), t.cpu().reshape(-1)
                size = r.square().mean().sqrt()
                rms = [((x - r).square().mean().sqrt() / size).item() for x in (a, t)]
                most = [((x - r).abs().max() / size).item() for x in (a, t)]
                is_worse |= rms[0] > rms[1] * SLACK
                print(f"{name:34} {what:3} {rms[0]:10.2e} {rms[1]:10.2e} {most[0]:10.2e} {most[1]:10.2e}"
                      f"  {rms[0] / rms[1]:.3f}")
    sys.exit(is_worse)


if __name__ == "__main__":
    main()
