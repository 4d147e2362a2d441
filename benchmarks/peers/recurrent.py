#!/usr/bin/env python3
"""Recurrent layers of Lockstep's kernels beside PyTorch's on packed sequences, one thread each.

usage: recurrent.py PATH_OF_BENCHMARK [--turns N]     (build/release/benchmarks/recurrent)

Prints microseconds of a processor for the forward pass, and for the backward pass to inputs and
weights, and PyTorch's divided by Lockstep's. PyTorch multiplies with the BLAS that it finds: Debian's
has the reference implementation unless another one, such as libopenblas0, is installed.
"""
import argparse
import subprocess
import time

import torch
from torch.nn.utils.rnn import pack_padded_sequence


def lengths_of(rows, shortest, longest):
    if rows == 1:
        return [longest]
    return [shortest + i * (longest - shortest) // (rows - 1) for i in range(rows)]


def times_of(layer, rows, shortest, longest, channels, hidden, turns):
    torch.manual_seed(0)
    network = getattr(torch.nn, layer)(channels, hidden, batch_first=True)
    x = torch.randn(rows, longest, channels, requires_grad=True)
    lengths = torch.tensor(lengths_of(rows, shortest, longest))
    forward, backward, dy = [], [], None
    for turn in range(turns + 1):
        begin = time.process_time()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y = network(packed)[0].data
        middle = time.process_time()
        dy = torch.randn_like(y) if dy is None else dy
        before = time.process_time()
        torch.autograd.grad(y, [x, *network.parameters()], dy)
        if turn > 0:
            forward.append(middle - begin)
            backward.append(time.process_time() - before)
    return [1e6 * sorted(times)[len(times) // 2] for times in (forward, backward)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    ran = subprocess.run([arguments.program, "--turns", str(arguments.turns)], check=True,
                         capture_output=True, text=True)
    print(f"{'layer':<40}{'forward':>10}{'PyTorch':>10}{'ratio':>7}{'backward':>10}{'PyTorch':>10}{'ratio':>7}")
    for line in ran.stdout.splitlines()[1:]:
        layer, rows, lengths, channels, hidden, forward, _, backward, _ = line.split()
        shortest, longest = map(int, lengths.split("-"))
        theirs = times_of(layer, int(rows), shortest, longest, int(channels), int(hidden),
                          arguments.turns)
        name = f"{layer} {rows} x {lengths} x {channels}, {hidden} units"
        print(f"{name:<40}{float(forward):>10.0f}{theirs[0]:>10.0f}{theirs[0] / float(forward):>7.1f}"
              f"{float(backward):>10.0f}{theirs[1]:>10.0f}{theirs[1] / float(backward):>7.1f}", flush=True)


if __name__ == "__main__":
    main()
