"""Writes the GGUF files of tests/fixtures/read by the gguf package.

blocks.gguf: random blocks of every type, and what the package makes of them. Tensor `Q4_K` holds blocks, tensor
`Q4_K.f32` their values. Scales are finite, so that every bit is comparable.
small.gguf: a value of every type and three small tensors; nearly all of it is header.

    python tests/parity/gguf_blocks.py tests/fixtures/read
"""

import sys

import gguf
import numpy as np

# Where the f16 scales of a block are, in bytes.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
PLAIN = {"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64, "F64": np.float64}


def blocks(path):
    draw = np.random.default_rng(20)
    writer = gguf.GGUFWriter(path, "test")
    writer.add_array("tokenizer.ggml.tokens", ["a", "é", ""])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0, 0.0])
    writer.add_float32("test.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    for name, halves in HALVES.items():
        ty = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[ty]
        rows = 4 if block == 32 else 2
        data = draw.integers(0, 256, (rows, size), dtype=np.uint8)
        for at in halves:
            scales = (draw.standard_normal(rows) * 10.0 ** draw.integers(-6, 4, rows)).astype(np.float16)
            data[:, at:at + 2] = scales.view(np.uint8).reshape(rows, 2)
        if name == "MXFP4":
            data[:, 0] = [0, 1, 2, 130]
        values = gguf.dequantize(data, ty).astype(np.float32)
        writer.add_tensor(name, data, raw_dtype=ty)
        writer.add_tensor(f"{name}.f32", values)
    for name, dtype in PLAIN.items():
        if name == "F64":
            data = draw.standard_normal((2, 8)) * 10.0 ** draw.integers(-40, 39, (2, 8))
        else:
            limits = np.iinfo(dtype)
            data = draw.integers(limits.min, limits.max, (2, 8), dtype=dtype, endpoint=True)
        writer.add_tensor(name, data)
        writer.add_tensor(f"{name}.f32", data.astype(np.float32))
    half = draw.standard_normal((2, 8)).astype(np.float16)
    writer.add_tensor("F16", half)
    writer.add_tensor("F16.f32", half.astype(np.float32))
    brain = gguf.quantize(draw.standard_normal((2, 8)).astype(np.float32), gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("BF16", brain, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("BF16.f32", gguf.dequantize(brain, gguf.GGMLQuantizationType.BF16))
    finish(writer)


def small(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -1)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -2)
    writer.add_uint32("u32", 7)
    writer.add_int32("i32", -3)
    writer.add_float32("f32", 0.5)
    writer.add_bool("bool", True)
    writer.add_uint64("u64", 1 << 40)
    writer.add_int64("i64", -(1 << 40))
    writer.add_float64("f64", 0.25)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "<s>"])
    writer.add_array("tokenizer.ggml.scores", [0.0, -1.0, 1.0])
    writer.add_array("tokenizer.ggml.token_type", [1, 1, 3])
    writer.add_tensor("a.weight", np.arange(4, dtype=np.float32).reshape(2, 2))
    writer.add_tensor("b.weight", np.arange(18, dtype=np.uint8).reshape(1, 18), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("c.bias", np.ones(3, dtype=np.float16))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


blocks(f"{sys.argv[1]}/blocks.gguf")
small(f"{sys.argv[1]}/small.gguf")
