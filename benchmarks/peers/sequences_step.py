"""Whole training steps of one network of sequences in PyTorch, as JSON: for sequences.py, which runs
this with the Python that has PyTorch. The networks, data and solver of benchmarks/train/sequences.cpp.

Recurrent networks in three ways: packed sequences; padded to the longest of the mini-batch, where
steps behind the end of a sequence are computed, too, and the last valid step is gathered; padded
and compiled. (Padded, the backward direction begins in the padding: other results, the same work.)
The GPT as it comes, and compiled; attention is scaled_dot_product_attention. generate: texts by a GPT
of which each token is computed once, with the keys and values of earlier ones kept.

usage: sequences_step.py KIND UNITS DIRECTIONS CHANNELS SHORTEST LONGEST MINI_BATCH THREADS SECONDS WAY
"""

import json
import random
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WARM_UP = 3
CLASSES = 9


class Recurrent(nn.Module):
    def __init__(self, kind, units, directions, channels, packed):
        super().__init__()
        layer = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
        self.layer = layer(channels, units, batch_first=True, bidirectional=directions == 2)
        self.dense = nn.Linear(units * directions, CLASSES)
        self.packed = packed

    def forward(self, x, lengths):
        if self.packed:
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            last = self.layer(x)[1]
            last = last[0] if isinstance(last, tuple) else last
            return self.dense(torch.cat(tuple(last), 1))
        y = self.layer(x)[0]
        return self.dense(y[torch.arange(len(y)), lengths - 1])


class Block(nn.Module):
    def __init__(self, units, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(units), nn.LayerNorm(units)
        self.inward, self.outward = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.up, self.down = nn.Linear(units, 4 * units), nn.Linear(4 * units, units)

    def forward(self, x, kept=None, at=0):
        n, t, c = x.shape
        q, k, v = (u.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for u in self.inward(self.before(x)).split(c, 2))
        if kept is not None:  # t is 1
            kept[0][:, :, at:at + 1], kept[1][:, :, at:at + 1] = k, v
            k, v = kept[0][:, :, :at + 1], kept[1][:, :, :at + 1]
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=kept is None)
        x = x + self.outward(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    def __init__(self, units, blocks, tokens, context, heads=0):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, units), nn.Embedding(context, units)
        self.blocks = nn.Sequential(*[Block(units, heads or units // 64) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(units), nn.Linear(units, tokens)

    def forward(self, x):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(h)))

    def next_scores(self, token, at, kept):
        h = self.tokens(token) + self.positions.weight[at]
        for block, own in zip(self.blocks, kept):
            h = block(h, own, at)
        return self.head(self.norm(h))


@torch.inference_mode()
def generate(model, units, longest):
    heads = model.blocks[0].heads
    kept = [torch.empty(2, 1, heads, longest, units // heads) for _ in model.blocks]
    token = torch.tensor([[1]])
    for at in range(longest - 1):
        scores = model.next_scores(token, at, kept)[:, -1]
        token = torch.multinomial(functional.softmax(scores, -1), 1)


def print_result(times, processor):
    print(json.dumps({"version": torch.__version__, "seconds": statistics.median(times),
                      "processor": processor / len(times),
                      "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      "iterations": len(times)}))


def measure_texts(model, units, longest, seconds):
    generate(model, units, longest)
    times, begin, before = [], time.perf_counter(), time.process_time()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        generate(model, units, longest)
        times.append(time.perf_counter() - start)
    print_result(times, time.process_time() - before)


def recurrent_batches(channels, shortest, longest, mini_batch):
    batches = []
    for _ in range(8):
        lengths = torch.tensor([random.randint(shortest, longest) for _ in range(mini_batch)])
        x = torch.randn(mini_batch, int(lengths.max()), channels)
        batches.append(((x, lengths), torch.randint(CLASSES, (mini_batch,))))
    return batches


def gpt_batches(tokens, longest, mini_batch):
    batches = []
    for _ in range(8):
        text = torch.randint(tokens, (mini_batch, longest + 1))
        batches.append(((text[:, :-1].contiguous(),), text[:, 1:].contiguous()))
    return batches


def main():
    if len(sys.argv) != 11:
        raise SystemExit(__doc__.strip().splitlines()[-1])
    kind, way = sys.argv[1], sys.argv[10]
    units, directions, channels, shortest, longest, mini_batch, threads = map(int, sys.argv[2:9])
    seconds = float(sys.argv[9])
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if kind == "generate":
        model = Gpt(units, directions, channels, longest).eval()
        if way == "compiled":
            model.next_scores = torch.compile(model.next_scores, dynamic=True)
        measure_texts(model, units, longest, seconds)
        return
    if kind == "gpt":
        model = Gpt(units, directions, channels, longest)
        batches = gpt_batches(channels, longest, mini_batch)
    else:
        model = Recurrent(kind, units, directions, channels, way == "packed")
        batches = recurrent_batches(channels, shortest, longest, mini_batch)

    def value(inputs, targets):
        return functional.cross_entropy(model(*inputs).flatten(0, -2), targets.flatten())
    if way == "compiled":
        value = torch.compile(value)
    new = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **({"fused": True} if new else {}))

    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        value(inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
    # Compiled, the shapes of all mini-batches are met before the time counts.
    for batch in batches if way == "compiled" else batches[:WARM_UP]:
        step(*batch)
    times, begin, before = [], time.perf_counter(), time.process_time()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        step(*batches[len(times) % len(batches)])
        times.append(time.perf_counter() - start)
    print_result(times, time.process_time() - before)


if __name__ == "__main__":
    main()
