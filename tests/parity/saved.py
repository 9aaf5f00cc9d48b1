"""Makes a small random Qwen2 as transformers saves it, and compares one that was saved by Genesis with it.

    python tests/parity/saved.py make ONE MANY      the same model in one file and in shards
    python tests/parity/saved.py compare ONE SAVED  whether transformers loads the same weights from both
"""

import sys

import torch
from transformers import AutoModelForCausalLM, Qwen2Config


def make(one, many):
    torch.manual_seed(20)
    config = Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(one)
    model.save_pretrained(many, max_shard_size=20_000)


def compare(one, saved):
    a, report = AutoModelForCausalLM.from_pretrained(one, output_loading_info=True, dtype=torch.float32)
    b, loaded = AutoModelForCausalLM.from_pretrained(saved, output_loading_info=True, dtype=torch.float32)
    for name in ["missing_keys", "unexpected_keys", "mismatched_keys"]:
        assert not loaded[name], (name, loaded[name], report[name])
    theirs, ours = a.state_dict(), b.state_dict()
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        assert torch.equal(tensor, ours[name]), name


{"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:])
