"""Makes the groups of cases in this folder: `python generate.py [GROUP ..]`, with PyTorch on a CPU.

The groups are committed, so nothing but a change of these tables needs PyTorch. Each table is a file
`ops_GROUP.py`; engine.py says how they are written and what is in a file.
"""

import importlib
import pathlib
import sys

import engine

GROUPS = ["math", "reduce", "shape", "index", "nn", "special", "vision"]


def main():
    folder = pathlib.Path(__file__).parent
    for name in sys.argv[1:] or GROUPS:
        group = engine.Group(name)
        importlib.import_module(f"ops_{name}").build(group)
        group.write(folder)


main()
