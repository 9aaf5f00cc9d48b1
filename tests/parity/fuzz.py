"""Random calls beside PyTorch: `python fuzz.py FOLDER [--count N] [--files N] [--seed N] [--jobs N]`.

Writes FOLDER/fuzz-SEED-K.gz, files of the groups' format (engine.py), which `genesis-conform pack FILE..`
judges. Each op of the table in ../src/conform gets about as many calls; an op without a generator is an
error. Which shapes, dtypes, layouts and keywords a call has is drawn by fuzz_math.py, fuzz_shape.py and
fuzz_nn.py; what PyTorch refuses is kept as a call that must be refused unless its message is in `UNPROMISED`.
Calls that are known to differ on purpose are left out by the generators, by the reasons in `DIFFERENT`.

`--only OP,..` draws calls of these ops alone. `--most N` bounds the elements of a tensor; with `--level 0`
the files are not compressed, so that an archive of all of them can be, which gives half the size.
"""

import argparse
import collections
import multiprocessing
import pathlib
import random
import re
import time

import torch

import engine
import fuzz_math
import fuzz_nn
import fuzz_shape
from fuzz_draw import DIFFERENT, OPS, Draw

# What PyTorch refuses for want of code, or by a rule of its own: Genesis may take such calls. The last are
# DIFFERENT["nothing left"].
UNPROMISED = re.compile(
    r"implemented for|not supported|Unsupported|derivative for|memory descriptor|view size is not compatible"
    r"|smaller than kernel|can't be cast|margin must be greater than 0"
    r"|is too small\. Calculated output"
)
TABLE = pathlib.Path(__file__).parent.parent / "src" / "conform"


def ops():
    """The ops of the table, by its rows."""
    rows = (re.findall(r'^    \("([\w./]+)",', path.read_text(), re.M) for path in sorted(TABLE.glob("rows*.rs")))
    names = [name for row in rows for name in row]
    lacking = [name for name in names if name not in OPS]
    if lacking or len(names) < 300:
        raise SystemExit(f"{len(names)} ops; no generator for {lacking}")
    return names


def promised(text):
    return UNPROMISED.search(text) is None


def make(job):
    """One file: the calls per op, those to be refused, and what was left out."""
    path, seed, count, names, most, level = job
    torch.set_num_threads(1)
    group = engine.Group(path.stem, seed << 32, cut=20)
    draw = Draw(seed, group, promised, most)
    left = []
    while len(group.manifest) < count:
        if not left:
            left = names[:]
            draw.shuffle(left)
        OPS[left.pop()](draw)
    group.write(path.parent, level)
    calls = collections.Counter(case["op"] for case in group.manifest)
    refused = collections.Counter(case["op"] for case in group.manifest if case.get("must_fail"))
    return calls, refused, collections.Counter(group.skipped)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--level", type=int, default=6)
    parser.add_argument("--skipped", action="store_true", help="print what PyTorch refused and why")
    options = parser.parse_args()
    # A file's operands are seeded from (1000 SEED + K) << 32 on, which the judge reads as a number of JSON: exact below 2^53.
    most = (1 << 21) // 1000 - 1
    if not 0 <= options.seed <= most:
        parser.error(f"--seed is from 0 to {most}, not {options.seed}")
    names = ops()
    only = options.only.split(",") if options.only else names
    if unknown := sorted(set(only) - set(names)):
        raise SystemExit(f"--only: there is no op {', '.join(unknown)}")
    names = [name for name in names if name in only]
    options.folder.mkdir(parents=True, exist_ok=True)
    each = -(-options.count // options.files)
    path = lambda k: options.folder / f"fuzz-{options.seed}-{k:02}.gz"
    jobs = [(path(k), options.seed * 1000 + k, each, names, options.most, options.level) for k in range(options.files)]
    start = time.time()
    totals = [collections.Counter() for _ in range(3)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for part in pool.imap_unordered(make, jobs):
            for total, counts in zip(totals, part):
                total.update(counts)
    calls, refused, skipped = totals
    for op in sorted(calls):
        left_out = sum(n for key, n in skipped.items() if key[0] == op)
        print(f"{op}: {calls[op]} calls, {refused[op]} to be refused, {left_out} left out")
    if options.skipped:
        for key, n in skipped.most_common():
            print("left out", n, *key)
    print(f"{sum(calls.values())} calls of {len(calls)} ops, {sum(refused.values())} to be refused, "
          f"{sum(skipped.values())} left out, {len(DIFFERENT)} kinds differ on purpose, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
