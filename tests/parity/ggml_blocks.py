"""Blocks of every type with random bytes, and what the gguf package makes of them, as bits of f32.

    python tests/parity/ggml_blocks.py > tests/fixtures/ggml_blocks.json
"""
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize
rng = np.random.default_rng(5)
sizes = {"Q4_0": (32, 18, [0]), "Q4_1": (32, 20, [0, 2]), "Q5_0": (32, 22, [0]), "Q5_1": (32, 24, [0, 2]), "Q8_0": (32, 34, [0]),
         "Q4_K": (256, 144, [0, 2]), "Q5_K": (256, 176, [0, 2]), "Q6_K": (256, 210, [208])}
out = {}
for name, (block, size, halves) in sizes.items():
    rows, per_row = (3, 2) if block == 32 else (2, 1)
    data = rng.integers(0, 256, (rows * per_row, size), dtype=np.uint8)
    for at in halves:
        h = (rng.standard_normal(rows * per_row) * 0.1).astype(np.float16)
        data[:, at:at + 2] = h.view(np.uint8).reshape(-1, 2)
    w = dequantize(data.reshape(rows, -1), T[name]).astype(np.float32)
    assert w.shape == (rows, per_row * block)
    out[name] = {"shape": list(w.shape), "blocks": data.tobytes().hex(), "weights": w.tobytes().hex()}
json.dump(out, sys.stdout, indent=1)
