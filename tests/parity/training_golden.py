"""Makes tests/fixtures/training/gradients.json and masks.json: what transformers gives where a model is trained.

    python tests/parity/training_golden.py

gradients.json: for each model of tests/fixtures/models the cross entropy of its fixture's tokens, each predicted from
those before it, and of the gradient of each parameter the norm and the sums with three patterns of signs. A sum with
random signs is off by about the norm of an error, whatever the error is, so that a few numbers stand for a gradient.

masks.json: chat templates with `{% generation %}`, conversations, the ids of each prompt and which of them the
assistant wrote, with the tokenizer of tests/fixtures/text/byte_level.json.gz.
"""

import gzip
import json
import os
import tempfile

import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file
from tokenizers import Tokenizer

HERE = os.path.join(os.path.dirname(__file__), "..", "fixtures")


def signs(count, pattern):
    """+1 or -1 for each index, the same as `signs` of tests/it/lm_gradients.rs."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(pattern * 1_000_003)
        z *= np.uint64(0x9E3779B97F4A7C15)
        z ^= z >> np.uint64(31)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(29)
    return np.where((z >> np.uint64(63)) == 1, -1.0, 1.0)


def gradients(folder):
    model = tf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    tokens = load_file(os.path.join(folder, "expected.safetensors"))["tokens"]
    logits = model(tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    found = {"loss": loss.item()}
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        g = p.grad.double().numpy().ravel()
        found[name] = [float(np.linalg.norm(g))] + [float(signs(g.size, k) @ g) for k in range(3)]
    return found


CHATML = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
    "{%- else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"
)
SPACED = """{% for m in messages %}
[{{ m['role'] }}]
    {%- if m['role'] == 'assistant' %}
        {%- generation -%}
            {{ m['content'] }}
        {%- endgeneration -%}
    {%- else %} {{ m['content'] }}{% endif %}

{% endfor %}
"""
SCOPED = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "<{% generation %}{% set ns.n = ns.n + 1 %}{% set x = m.content %}{{ x }}{% endgeneration %}{{ ns.n }}{{ x }}>"
    "{% else %}({{ m.content }}){% endif %}{% endfor %}"
)


def message(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = [
    [message("user", "Hello"), message("assistant", "Hi there!")],
    [message("system", "Be kind."), message("user", "What is 2 + 2?"), message("assistant", "It is 4."),
     message("user", "  Sure?\n"), message("assistant", "Yes,\n\nquite sure. ")],
    [message("user", "naïve 東京 😀"), message("assistant", "😀 naïve café 東京 naïve café — ok")],
    [message("assistant", "I begin"), message("assistant", "and go on"), message("user", "no")],
    [message("user", "nobody answers")],
]


def masks():
    with gzip.open(os.path.join(HERE, "text", "byte_level.json.gz")) as file:
        described = json.load(file)["tokenizer"]
    described = described if isinstance(described, str) else json.dumps(described)
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(described))
    cases = []
    for template in [CHATML, SPACED, SCOPED]:
        for messages in CONVERSATIONS:
            out = tokenizer.apply_chat_template(messages, chat_template=template, return_dict=True,
                                                return_assistant_tokens_mask=True)
            cases.append(dict(template=template, messages=messages, ids=out["input_ids"],
                              mask=out["assistant_masks"]))
    return cases


if __name__ == "__main__":
    models = os.path.join(HERE, "models")
    names = sorted(n for n in os.listdir(models) if os.path.isfile(os.path.join(models, n, "config.json")))
    names = [n for n in names if not n.startswith(("bert", "vit"))]
    out = {name: gradients(os.path.join(models, name)) for name in names}
    with open(os.path.join(HERE, "training", "gradients.json"), "w") as file:
        json.dump(out, file, indent=0)
    with open(os.path.join(HERE, "training", "masks.json"), "w") as file:
        json.dump(masks(), file, ensure_ascii=False, indent=0)
