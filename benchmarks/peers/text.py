#!/usr/bin/env python3
"""The validation loss of a small GPT beside PyTorch's, on the project's documents: the same text,
windows, network, initializers and solver (Adam, 1e-3, global norm at most 1); means over seeds.

usage: text.py --python PYTHON [--command LOCKSTEP] [--seeds N] [--iterations N]
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

import lockstep_runs

CONTEXT, ROWS, WIDTH, BLOCKS, HEADS = 64, 12, 128, 4, 4
JOB = f"""
[data]
train = "book.txt"
validation_fraction = 0.1
tokens = "bytes"
window_length = {CONTEXT}
window_stride = {CONTEXT}

[network]
layers = [
  {{ type = "token_input", vocabulary = 256 }},
  {{ type = "embedding", vocabulary = 256, units = {WIDTH} }},
  {{ type = "position_embedding", positions = {CONTEXT} }},
  {{ repeat = {BLOCKS}, layers = [
    {{ type = "transformer_block", heads = {HEADS}, causal = true }} ] }},
  {{ type = "layer_normalization" }},
  {{ type = "fully_connected", units = 256 }},
  {{ type = "softmax" }},
]

[training]
solver = "adam"
initial_learning_rate = 1e-3
l2 = 0
gradient_threshold = 1
gradient_threshold_method = "global-l2norm"
mini_batch_size = {ROWS}
max_epochs = 1000
shuffle = "every-epoch"
"""


def torch_loss(path, seed, iterations):
    """The loss that PyTorch reaches."""
    import torch
    from torch import nn
    from torch.nn import functional
    import sequences_step

    torch.manual_seed(seed)
    torch.set_num_threads(2)
    torch.set_flush_denormal(True)
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()))
    held = int(0.1 * len(text))
    model = sequences_step.Gpt(WIDTH, BLOCKS, 256, CONTEXT, heads=HEADS)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.01)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def windows(tokens):
        count = (len(tokens) - 1) // CONTEXT
        return (tokens[:count * CONTEXT].view(count, CONTEXT),
                tokens[1:count * CONTEXT + 1].view(count, CONTEXT))
    x, y = windows(text[:-held])
    order = []
    for _ in range(iterations):
        if len(order) < ROWS:
            order = torch.randperm(len(x)).tolist()
        rows = [order.pop() for _ in range(ROWS)]
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x[rows]).flatten(0, 1), y[rows].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
    x, y = windows(text[-held:])
    with torch.no_grad():
        losses = [functional.cross_entropy(model(a).flatten(0, 1), b.flatten(), reduction="sum")
                  for a, b in zip(x.split(64), y.split(64))]
    return float(sum(losses)) / y.numel()


def lockstep_loss(command, job, seed, iterations, out):
    settings = [f"seed={seed}", f"max_iterations={iterations}", f"validation_frequency={iterations}"]
    lockstep_runs.train(command, job, out, settings, threads=2)
    with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as log:
        losses = [json.loads(line).get("validation_loss") for line in log]
    return [loss for loss in losses if loss is not None][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--command", default=lockstep_runs.COMMAND)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=2_000)
    parser.add_argument("--torch", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        print(json.dumps(torch_loss(options.torch[0], int(options.torch[1]), options.iterations)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path, job = os.path.join(folder, "book.txt"), os.path.join(folder, "gpt.toml")
        with open(path, "wb") as book:
            for name in sorted(glob.glob(os.path.join(lockstep_runs.TOP, "docs", "*.md"))):
                with open(name, "rb") as file:
                    book.write(file.read())
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB)
        print(f"{os.path.getsize(path):,} bytes, {options.iterations:,} iterations", flush=True)
        rows, sums = [], [0, 0]
        for seed in range(1, options.seeds + 1):
            begin = time.monotonic()
            ours = lockstep_loss(options.command, job, seed, options.iterations,
                                 os.path.join(folder, f"run{seed}"))
            middle = time.monotonic()
            done = subprocess.run([options.python, os.path.abspath(__file__), "--iterations",
                                   str(options.iterations), "--torch", path, str(seed)],
                                  capture_output=True, text=True, check=True, timeout=3600)
            theirs = json.loads(done.stdout.splitlines()[-1])
            sums = [sums[0] + ours, sums[1] + theirs]
            rows.append([str(seed), f"{ours:.4f}", f"{middle - begin:.0f}", f"{theirs:.4f}",
                         f"{time.monotonic() - middle:.0f}"])
        means = [s / options.seeds for s in sums]
        rows.append(["mean", f"{means[0]:.4f}", "", f"{means[1]:.4f}", ""])
        lockstep_runs.print_table(["seed", "Lockstep", "s", "PyTorch", "s"], rows)
        print(f"Lockstep's mean is {means[0] / means[1]:.4f} of PyTorch's")


if __name__ == "__main__":
    main()
