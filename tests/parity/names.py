"""Writes names.txt: PyTorch's public functions, methods, layers, optimizers and schedules, one a line.

    python names.py       # needs torch (CPU)
"""

import inspect
import pathlib
import re

import torch

PLACES = {
    "torch": torch,
    "Tensor": torch.Tensor,
    "nn.functional": torch.nn.functional,
    "linalg": torch.linalg,
    "special": torch.special,
    "nn": torch.nn,
    "nn.init": torch.nn.init,
    "nn.utils": torch.nn.utils,
    "nn.utils.rnn": torch.nn.utils.rnn,
    "optim": torch.optim,
    "optim.lr_scheduler": torch.optim.lr_scheduler,
}
# What belongs to its machinery and not to its users.
INSIDE = re.compile(
    r"autocast_|^(get|set|is)_(autocast|deterministic|warn|anomaly|vulkan|num_interop)|^(cudnn|miopen|mkldnn|fbgemm)_"
    r"|^sym_|^(parse|merge|import|unify|init|prepare)_|quantize|_quant|^q_|handle_torch|has_torch|boolean_dispatch")


def own(name, value):
    home = getattr(value, "__module__", None) or "torch"
    return callable(value) and home.startswith("torch") and not name.startswith("_") and not INSIDE.search(name)


def main():
    names = set()
    for place, module in PLACES.items():
        for name in dir(module):
            value = getattr(module, name, None)
            if own(name, value) and not (place == "torch" and inspect.isclass(value)):
                names.add(name)
    path = pathlib.Path(__file__).parent / "names.txt"
    path.write_text("".join(f"{name}\n" for name in sorted(names)))
    print(len(names), "names")


main()
