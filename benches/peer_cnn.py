"""`genesis train fashion-mnist --model cnn` beside the same training in PyTorch, in turns on one machine.

    python benches/peer_cnn.py target/release/genesis [--model cnn|mlp] [--device cpu|cuda] [--rounds 3]
                               [--steps 469] [--batch 128]

Each round runs both, one after the other, on the same device and with as many threads: the same model,
batches of as many images of Fashion-MNIST in a random order, dropout, AdamW, clipped gradients, the same
schedule, and a loss that is read after every step. Only steps are timed, not reading the data nor the test;
on a GPU the steps of both end with waiting for it. PyTorch runs eagerly. What is printed is
the best round of each, as the time of an epoch of 60,000 images: on a machine that does other things at the
same time the best round is the least disturbed one.
"""
import argparse
import gzip
import json
import math
import os
import subprocess
import sys
import time

DATA = "/usr/share/datasets/fashion-mnist"
IMAGES = 60000


def read(name, skipped):
    import torch

    with gzip.open(os.path.join(DATA, name)) as file:
        return torch.frombuffer(bytearray(file.read()[skipped:]), dtype=torch.uint8)


def model(name):
    from torch import nn

    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.1),
                             nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10))


def torch_seconds(options):
    """Seconds of the steps, as `genesis train` counts them."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device = torch.device(options.device)
    x = (read("train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float() / 255).to(device)
    y = read("train-labels-idx1-ubyte.gz", 8).long().to(device)
    net = model(options.model).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=options.lr, weight_decay=0.01)
    rise = min(max(options.steps // 20, 1), 100)
    seconds, order = 0.0, torch.empty(0, dtype=torch.long)
    for step in range(options.steps):
        if len(order) < options.batch:
            order = torch.randperm(len(x))
        own, order = order[:options.batch], order[options.batch:]
        images, classes = x[own], y[own]
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min((step + 1) / rise, 1) * 0.5 * (1 + math.cos(math.pi * step / options.steps))
        loss = F.cross_entropy(net(images), classes)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        loss.item()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds += time.perf_counter() - start
    return seconds


def genesis_seconds(options):
    command = [options.genesis, "train", "fashion-mnist", "--model", options.model, "--device", options.device,
               "--json", "--steps", str(options.steps), "--batch-size", str(options.batch), "--lr", str(options.lr)]
    environment = dict(os.environ, GENESIS_NUM_THREADS=str(options.threads))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("genesis", help="the command, of a release build; `-` runs PyTorch alone")
    parser.add_argument("--model", choices=["cnn", "mlp"], default="cnn")
    parser.add_argument("--device", default="cpu", help="of both: cpu, cuda or cuda:1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=469)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.genesis == "-":
        print(torch_seconds(options))
        return
    best = {}
    for _ in range(options.rounds):
        # Of PyTorch a process of its own too, so that neither side warms anything up for the other.
        peer = subprocess.run([sys.executable, __file__, "-", *sys.argv[2:]], capture_output=True, text=True, check=True)
        for name, seconds in (("genesis", genesis_seconds(options)), ("torch", float(peer.stdout))):
            best[name] = min(best.get(name, math.inf), seconds)
            print(f"{name}: {seconds / options.steps * 1e3:.2f} ms a step", file=sys.stderr)
    epoch = {name: seconds / options.steps / options.batch * IMAGES for name, seconds in best.items()}
    print(json.dumps({"model": options.model, "device": options.device, "batch": options.batch, "threads": options.threads,
                      "epoch_seconds": {name: round(value, 3) for name, value in epoch.items()},
                      "ratio": round(epoch["genesis"] / epoch["torch"], 3)}))


main()
