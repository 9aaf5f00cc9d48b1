"""Makes tests/fixtures/models: tiny models with random weights, and what transformers computes of them.

Each folder holds what a published model holds, config.json and model.safetensors, and expected.safetensors:
tokens [2, T], the logits of every position, and the 64 greedy tokens that follow each prompt. Weights are
drawn until no greedy choice is close, so that rounding does not decide one. rope.json has the inverse
frequencies of every RoPE variant.

    python tests/parity/models_golden.py [name ...]
"""

import json
import os
import shutil
import sys

import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = os.path.join(os.path.dirname(__file__), "..", "fixtures", "models")
LENGTH, NEW, MARGIN = 20, 64, 2e-3

SMALL = dict(
    vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    pad_token_id=None, bos_token_id=None, eos_token_id=None,
)
GEMMA = dict(SMALL, head_dim=8, query_pre_attn_scalar=24)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=64)


def llama(**kw):
    return tf.LlamaForCausalLM, tf.LlamaConfig(**{**SMALL, **kw})


def mistral(**kw):
    return tf.MistralForCausalLM, tf.MistralConfig(**{**SMALL, **kw})


def qwen2(**kw):
    return tf.Qwen2ForCausalLM, tf.Qwen2Config(**{**SMALL, **kw})


def qwen3(**kw):
    return tf.Qwen3ForCausalLM, tf.Qwen3Config(**{**SMALL, "head_dim": 16, **kw})


def qwen3_moe(**kw):
    moe = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8)
    return tf.Qwen3MoeForCausalLM, tf.Qwen3MoeConfig(**{**SMALL, **moe, **kw})


def gemma2(**kw):
    return tf.Gemma2ForCausalLM, tf.Gemma2Config(**{**GEMMA, **kw})


def gemma3(**kw):
    return tf.Gemma3ForCausalLM, tf.Gemma3TextConfig(**{**GEMMA, **kw})


def gpt2(**kw):
    sizes = dict(vocab_size=96, n_positions=128, n_embd=32, n_layer=2, n_head=4,
                 pad_token_id=None, bos_token_id=None, eos_token_id=None)
    return tf.GPT2LMHeadModel, tf.GPT2Config(**{**sizes, **kw})


DECODERS = {
    "llama_tied": lambda: llama(tie_word_embeddings=True, rope_parameters=LLAMA3),
    "llama_biased": lambda: llama(attention_bias=True, mlp_bias=True, num_key_value_heads=4,
                                  head_dim=12, hidden_act="gelu", rms_norm_eps=1e-3,
                                  rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=2.0)),
    "llama_yarn": lambda: llama(num_key_value_heads=1, rope_parameters=YARN),
    "llama_old": lambda: llama(rope_parameters=dict(rope_type="dynamic", rope_theta=800.0, factor=2.0)),
    "mistral_window": lambda: mistral(sliding_window=9),
    "mistral_whole": lambda: mistral(sliding_window=None, head_dim=12, tie_word_embeddings=True,
                                     rope_parameters=dict(rope_type="longrope", rope_theta=900.0,
                                                          original_max_position_embeddings=128,
                                                          short_factor=[1.0, 1.1, 1.3, 1.7, 2.0, 2.5],
                                                          long_factor=[2.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
    "qwen2_tied": lambda: qwen2(tie_word_embeddings=True, rope_parameters=dict(
        rope_type="default", rope_theta=1e6)),
    "qwen2_window": lambda: qwen2(use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "qwen3_tied": lambda: qwen3(tie_word_embeddings=True),
    "qwen3_biased": lambda: qwen3(attention_bias=True, head_dim=8, num_key_value_heads=1,
                                  use_sliding_window=True, sliding_window=11, max_window_layers=1,
                                  rope_parameters=dict(YARN, truncate=False, mscale=1.2,
                                                       mscale_all_dim=0.8)),
    "qwen3_moe": lambda: qwen3_moe(norm_topk_prob=True),
    "qwen3_moe_mixed": lambda: qwen3_moe(num_hidden_layers=3, mlp_only_layers=[0], num_experts=3,
                                         decoder_sparse_step=1, tie_word_embeddings=True,
                                         vocab_size=64),
    "gemma2": lambda: gemma2(sliding_window=6, query_pre_attn_scalar=8, attn_logit_softcapping=3.0, final_logit_softcapping=8.0),
    "gemma2_plain": lambda: gemma2(sliding_window=64, attn_logit_softcapping=None,
                                   final_logit_softcapping=None, attention_bias=True,
                                   num_key_value_heads=4),
    "gemma3": lambda: gemma3(num_hidden_layers=3, sliding_window=5, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"], rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
            sliding_attention=dict(rope_type="default", rope_theta=300.0))),
    "gemma3_old": lambda: gemma3(sliding_window=8, sliding_window_pattern=2, head_dim=16,
                                 final_logit_softcapping=6.0),
    "gpt2": lambda: gpt2(),
    "gpt2_scaled": lambda: gpt2(n_inner=48, activation_function="relu", tie_word_embeddings=False,
                                scale_attn_by_inverse_layer_idx=True, layer_norm_epsilon=1e-3),
}


def fill(model, seed):
    """Weights that matter: products keep their size, norms and biases are not what they start as."""
    generator = torch.Generator().manual_seed(seed)
    is_gemma = "emma" in type(model).__name__
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.ndim == 1:
            is_scale = name.endswith("weight") and not is_gemma
            p.data = (1.0 if is_scale else 0.0) + 0.2 * noise
            if is_gemma and name == "model.norm.weight":
                p.data += 5.0
        elif "embed" in name or "wte" in name or "wpe" in name:
            # Gemma multiplies rows by the root of their length; tied, they would only repeat the token.
            p.data = (0.05 if is_gemma else 0.7) * noise
        else:
            p.data = noise * (1.3 / p.shape[-1] ** 0.5)


def greedy(model, tokens):
    """The greedy continuation without a cache, and the smallest distance of a first from a second."""
    margin = float("inf")
    for _ in range(NEW):
        logits = model(tokens, use_cache=False).logits[:, -1]
        best = logits.topk(2, dim=-1).values
        margin = min(margin, (best[:, 0] - best[:, 1]).min().item())
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    return tokens[:, -NEW:], margin


def older(config):
    """The keys as transformers 4 wrote them."""
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype", "float32")
    if "full_attention" in rope:
        config["rope_theta"] = rope["full_attention"]["rope_theta"]
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["rope_scaling"] = None
        config.pop("layer_types")
    else:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
    return config


def write(name, model, expected):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    for extra in set(os.listdir(folder)) - {"config.json", "model.safetensors"}:
        os.remove(os.path.join(folder, extra))
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    if name.endswith("_old"):
        config = older(config)
    if name == "gemma3_old":
        config["sliding_window_pattern"] = 2
    with open(path, "w") as file:
        json.dump(config, file, indent=1, sort_keys=True)
    save_file({k: v.contiguous() for k, v in expected.items()}, os.path.join(folder, "expected.safetensors"))


@torch.no_grad()
def decoder(name):
    for seed in range(200):
        kind, config = DECODERS[name]()
        config._attn_implementation = "eager"
        model = kind(config).eval()
        fill(model, seed)
        model.tie_weights()
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, config.vocab_size, (2, LENGTH), generator=generator)
        more, margin = greedy(model, tokens)
        if margin > MARGIN and all(len(set(row.tolist())) > 8 for row in more):
            break
    logits = model(tokens, use_cache=False).logits
    write(name, model, {"tokens": tokens, "logits": logits, "greedy": more})
    print(name, "seed", seed, "margin", round(margin, 4), "logits", round(logits.std().item(), 2))


@torch.no_grad()
def bert(name, **kw):
    sizes = dict(vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                 intermediate_size=40, max_position_embeddings=32)
    config = tf.BertConfig(**{**sizes, **kw})
    config._attn_implementation = "eager"
    model = tf.BertForMaskedLM(config).eval()
    fill(model, 0)
    model.tie_weights()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 60, (2, 12), generator=generator)
    kinds = torch.randint(0, config.type_vocab_size, (2, 12), generator=generator)
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 7:] = 0
    out = model(tokens, token_type_ids=kinds, attention_mask=mask, output_hidden_states=True)
    write(name, model, {"tokens": tokens, "kinds": kinds, "mask": mask, "logits": out.logits,
                        "hidden": out.hidden_states[-1]})


@torch.no_grad()
def vit(name, **kw):
    sizes = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                 image_size=12, patch_size=4, num_labels=5)
    config = tf.ViTConfig(**{**sizes, **kw})
    config._attn_implementation = "eager"
    model = tf.ViTForImageClassification(config).eval()
    fill(model, 0)
    shape = (2, config.num_channels, config.image_size, config.image_size)
    pixels = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    out = model(pixels, output_hidden_states=True)
    write(name, model, {"pixels": pixels, "logits": out.logits})


ENCODERS = {
    "bert": lambda: bert("bert"),
    "bert_relu": lambda: bert("bert_relu", hidden_act="relu", type_vocab_size=3, layer_norm_eps=1e-3),
    "vit": lambda: vit("vit"),
    "vit_grey": lambda: vit("vit_grey", num_channels=1, qkv_bias=False, patch_size=3,
                            hidden_act="gelu_new"),
}

ROPES = [
    dict(rope_type="default", rope_theta=10000.0),
    dict(rope_type="linear", rope_theta=1e6, factor=8.0),
    dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0),
    dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32768),
    dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, original_max_position_embeddings=4096,
         beta_fast=32.0, beta_slow=1.0, truncate=False),
    dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, original_max_position_embeddings=4096,
         mscale=0.707, mscale_all_dim=1.0, beta_fast=48.0, beta_slow=2.0),
    dict(rope_type="yarn", rope_theta=10000.0, factor=2.0, attention_factor=1.25,
         original_max_position_embeddings=512),
    dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
         high_freq_factor=4.0, original_max_position_embeddings=8192),
    dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0,
         high_freq_factor=4.0, original_max_position_embeddings=8192, partial_rotary_factor=0.5),
    dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=4096,
         short_factor=[1.0 + 0.05 * i for i in range(32)], long_factor=[1.0 + 2.0 * i for i in range(32)]),
    dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=4096, factor=1.0,
         short_factor=[1.0] * 32, long_factor=[2.0] * 32),
]


def rope():
    cases = []
    for rope in ROPES:
        most = 131072
        config = tf.LlamaConfig(hidden_size=128, num_attention_heads=2, head_dim=64,
                                max_position_embeddings=most, rope_parameters=dict(rope))
        for seq_len in [None, most + 1000] if rope["rope_type"] in ("dynamic", "longrope") else [None]:
            if rope["rope_type"] == "default":
                freq, scale = tf.models.llama.modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters(config)
            else:
                freq, scale = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=seq_len)
            cases.append(dict(parameters=rope, length=seq_len, head_dim=64, max_positions=most,
                              inv_freq=freq.tolist(), attention_factor=scale))
    with open(os.path.join(HERE, "rope.json"), "w") as file:
        json.dump(cases, file, separators=(",", ":"))


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    for name in sys.argv[1:] or ["rope", *ENCODERS, *DECODERS]:
        if name == "rope":
            rope()
        elif name in ENCODERS:
            ENCODERS[name]()
        else:
            decoder(name)
