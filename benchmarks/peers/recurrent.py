#!/usr/bin/env python3
"""Recurrent layers of Lockstep's kernels beside PyTorch's, one thread each.

usage: recurrent.py PATH_OF_BENCHMARK [--python P]... [--way W]... [--turns N]
                                                             (build/release/benchmarks/recurrent)

Prints microseconds of a processor for the forward pass, and for the backward pass to inputs and
weights, and PyTorch's divided by Lockstep's. PyTorch computes in each way that each --python has, and
its figures are those of the fastest, by the sum of both passes: packed sequences; padded to the
longest, where the steps of the padding are computed, too; padded and compiled. --python: Pythons
with PyTorch, by default this one. PyTorch multiplies with the BLAS that it finds: Debian's has the
reference implementation unless another one, such as libopenblas0, is installed.
"""
import argparse
import json
import os
import subprocess
import sys
import time

WAYS = ("packed", "padded", "compiled")


def lengths_of(rows, shortest, longest):
    if rows == 1:
        return [longest]
    return [shortest + i * (longest - shortest) // (rows - 1) for i in range(rows)]


def torch_times(way, layer, rows, shortest, longest, channels, hidden, turns):
    """In a process with PyTorch: prints its version, and microseconds of both passes."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    network = getattr(torch.nn, layer)(channels, hidden, batch_first=True)
    x = torch.randn(rows, longest, channels, requires_grad=True)
    lengths = torch.tensor(lengths_of(rows, shortest, longest))
    valid = (torch.arange(longest)[None, :] < lengths[:, None])[:, :, None]

    def results():
        if way == "packed":
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return network(packed)[0].data
        return compute(x)

    def compute(x):
        return network(x)[0]
    if way == "compiled":
        compute = torch.compile(compute)
    forward, backward, dy = [], [], None
    for turn in range(turns + 2):
        begin = time.process_time()
        y = results()
        middle = time.process_time()
        if dy is None:
            dy = torch.randn_like(y)
            dy = dy if way == "packed" else dy * valid
        before = time.process_time()
        torch.autograd.grad(y, [x, *network.parameters()], dy)
        if turn > 1:
            forward.append(middle - begin)
            backward.append(time.process_time() - before)
    print(json.dumps([torch.__version__.split("+")[0],
                      [1e6 * sorted(times)[len(times) // 2] for times in (forward, backward)]]))


def best_of(case, options):
    """The name of the fastest way, and its times. Reports ways that fail."""
    found = []
    for python in options.python:
        for way in options.way or WAYS:
            ran = subprocess.run([python, os.path.abspath(__file__), "--torch", way, *map(str, case),
                                  str(options.turns)], capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                version, times = json.loads(ran.stdout.splitlines()[-1])
                found.append((sum(times), f"{version} {way}", times))
            else:
                why = (ran.stderr.strip().splitlines() or ["?"])[-1]
                print(f"{python}, {way}: {why}", file=sys.stderr)
    if not found:
        raise SystemExit("no way of PyTorch has a result")
    return min(found)[1:]


def main():
    if sys.argv[1:2] == ["--torch"]:
        way, layer, *numbers = sys.argv[2:]
        return torch_times(way, layer, *map(int, numbers))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--python", action="append", help="a Python with PyTorch; repeat for several")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this way of PyTorch")
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    options.python = options.python or [sys.executable]
    ran = subprocess.run([options.program, "--turns", str(options.turns)], check=True,
                         capture_output=True, text=True)
    print(f"{'layer':<40}{'forward':>10}{'PyTorch':>10}{'ratio':>7}{'backward':>10}{'PyTorch':>10}{'ratio':>7}"
          "  fastest way")
    for line in ran.stdout.splitlines()[1:]:
        layer, rows, lengths, channels, hidden, forward, _, backward, _ = line.split()
        shortest, longest = map(int, lengths.split("-"))
        way, theirs = best_of([layer, rows, shortest, longest, channels, hidden], options)
        name = f"{layer} {rows} x {lengths} x {channels}, {hidden} units"
        print(f"{name:<40}{float(forward):>10.0f}{theirs[0]:>10.0f}{theirs[0] / float(forward):>7.1f}"
              f"{float(backward):>10.0f}{theirs[1]:>10.0f}{theirs[1] / float(backward):>7.1f}  {way}",
              flush=True)


if __name__ == "__main__":
    sys.exit(main())
