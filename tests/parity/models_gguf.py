"""Makes GGUF files of some folders of tests/fixtures/models, as llama.cpp converts models.

Names are those of the gguf package; values are changed as llama.cpp's converter changes them: Llama's rows of
queries and keys in pairs, 1 added to Gemma's norms, GPT-2's products transposed, experts stacked.

    python tests/parity/models_gguf.py
"""

import json
import math
import os
import re

import gguf
import numpy as np
from safetensors.numpy import load_file

HERE = os.path.join(os.path.dirname(__file__), "..", "fixtures", "models")
ARCHS = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3_moe": "QWEN3MOE", "gemma2": "GEMMA2",
         "gemma3_text": "GEMMA3", "gpt2": "GPT2"}


def permuted(weight, heads):
    shape = weight.shape
    return weight.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def llama3_factors(rope, head_dim):
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / head_dim)
        smooth = min(max((old / wavelength - low) / (high - low), 0), 1)
        factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def convert(name):
    folder = os.path.join(HERE, name)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    kind = config["model_type"]
    weights = load_file(os.path.join(folder, "model.safetensors"))
    arch = getattr(gguf.MODEL_ARCH, ARCHS[kind])
    writer = gguf.GGUFWriter(os.path.join(HERE, name + ".gguf"), gguf.MODEL_ARCH_NAMES[arch])
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(arch, layers)
    writer.add_block_count(layers)
    writer.add_context_length(config.get("max_position_embeddings", config.get("n_positions")))
    writer.add_embedding_length(config.get("hidden_size", config.get("n_embd")))
    writer.add_head_count(config.get("num_attention_heads", config.get("n_head")))
    writer.add_eos_token_id(7)
    if kind == "gpt2":
        writer.add_feed_forward_length(config["n_inner"] or 4 * config["n_embd"])
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    else:
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        rope = config["rope_parameters"]
        rope = rope.get("full_attention", rope)
        writer.add_rope_freq_base(rope["rope_theta"])
        writer.add_vocab_size(config["vocab_size"])
        if rope["rope_type"] == "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "llama3":
            writer.add_rope_dimension_count(config["head_dim"])
            writer.add_tensor("rope_freqs.weight", llama3_factors(rope, config["head_dim"]))
    if kind.startswith("gemma"):
        writer.add_sliding_window(config["sliding_window"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"] or 0.0)
        if kind == "gemma2":
            writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    experts = {}
    if kind == "qwen3_moe":
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    for key, value in weights.items():
        if kind == "llama" and re.search(r"[qk]_proj", key):
            heads = "num_attention_heads" if "q_proj" in key else "num_key_value_heads"
            value = permuted(value, config[heads])
        if kind.startswith("gemma") and key.endswith("norm.weight"):
            value = value + 1
        if kind == "gpt2" and re.search(r"c_(attn|proj|fc).weight", key):
            value = value.T
        expert = re.fullmatch(r"(.*experts)\.(\d+)\.(.*)", key)
        if expert:
            experts.setdefault(f"{expert[1]}.{expert[3]}", {})[int(expert[2])] = value
            continue
        writer.add_tensor(names.get_name(key, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(value))
    for key, rows in experts.items():
        stack = np.stack([rows[i] for i in sorted(rows)])
        writer.add_tensor(names.get_name(key, try_suffixes=(".weight",)), stack)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(name, os.path.getsize(os.path.join(HERE, name + ".gguf")))


if __name__ == "__main__":
    for name in ["llama_tied", "qwen3_moe", "gemma2", "gpt2"]:
        convert(name)
