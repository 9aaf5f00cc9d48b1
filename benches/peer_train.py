"""The peer of `bench train`: one training step of a model of transformers, random weights, fused AdamW.

Requests and answers are lines of JSON, as of peer.py:

    {"do": "prepare", "config": {"model_type": "gpt2", ..}, "precision": "autocast", "batch": 8, "length": 1024}
    {"name": "torch.compile", "peak_gib": 19.5}
    {"do": "burst", "steps": 5}                    {"ms": 71.2}     of one step
    {"do": "drop"}                                 {}

`autocast`: weights in f32, bf16 where autocast puts it; `bf16`: weights and moments in bf16; `f32`: all in f32. The step is
compiled by torch.compile, eager where that fails.
"""
import json
import os
import sys
import time

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(value):
    ANSWERS.write(json.dumps(value) + "\n")
    ANSWERS.flush()


try:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as error:
    answer({"missing": f"transformers: {error}"})
    sys.exit(0)

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
ON_GPU = DEVICE.startswith("cuda")


def wait():
    if ON_GPU:
        torch.cuda.synchronize()


class Training:
    def __init__(self, request):
        config = dict(request["config"])
        config = AutoConfig.for_model(config.pop("model_type"), **config)
        config.use_cache = False
        self.half = request["precision"] == "autocast"
        dtype = torch.bfloat16 if request["precision"] == "bf16" else torch.float32
        torch.manual_seed(0)
        with torch.device(DEVICE):
            self.model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
            shape = (request["batch"], request["length"])
            self.ids = torch.randint(0, config.vocab_size, shape)
        self.model.train()
        for dropout in (m for m in self.model.modules() if isinstance(m, torch.nn.Dropout)):
            dropout.p = 0.0
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=ON_GPU)
        self.run, self.name = self.model, "torch"

    def step(self):
        with torch.autocast(DEVICE.split(":")[0], torch.bfloat16, enabled=self.half):
            loss = self.run(input_ids=self.ids, labels=self.ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def prepare(self):
        if ON_GPU:
            try:
                self.run, self.name = torch.compile(self.model, dynamic=False), "torch.compile"
                self.step()
            except Exception as error:
                print(f"torch.compile failed: {error}", file=sys.stderr)
                self.run, self.name = self.model, "torch"
        for _ in range(3):
            loss = self.step()
        if not loss.isfinite():
            raise RuntimeError("the loss is not finite")
        if ON_GPU:
            torch.cuda.reset_peak_memory_stats()
        self.step()
        wait()
        peak = torch.cuda.max_memory_allocated() if ON_GPU else 0
        return {"name": self.name, "peak_gib": peak / 2**30}

    def burst(self, steps):
        wait()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        wait()
        return {"ms": (time.perf_counter() - start) * 1e3 / steps}


def handle(request, state):
    if request["do"] == "prepare":
        state["training"] = Training(request)
        return state["training"].prepare()
    if request["do"] == "burst":
        return state["training"].burst(request["steps"])
    if request["do"] == "drop":
        state.clear()
        return {}
    raise ValueError(f"no request is called {request['do']}")


def main():
    if ON_GPU and not torch.cuda.is_available():
        answer({"missing": "torch sees no GPU"})
        return
    answer({"torch": torch.__version__, "triton": None})
    state = {}
    for line in sys.stdin:
        try:
            answer(handle(json.loads(line), state))
        except Exception as error:
            state.clear()
            answer({"error": f"{type(error).__name__}: {error}"[:500]})


main()
