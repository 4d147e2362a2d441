#!/usr/bin/env python3
"""The time of PyTorch's attention, in milliseconds of a processor, as attention.cpp measures this
project's: one thread, one observation with 6 heads of 64 channels, the median of the turns.

usage: attention.py [TURNS]
"""

import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention


def median(turns, work):
    times = []
    for _ in range(turns + 1):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return 1e3 * sorted(times)[len(times) // 2]


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}\n{'steps':8}{'causal':9}{'forward':>10}{'backward':>10}")
    for steps in (64, 256, 1024):
        for causal in (False, True):
            # Heads lie side by side, as results of a dense layer do.
            q, k, v = (torch.randn(1, steps, 6, 64).transpose(1, 2).requires_grad_() for _ in range(3))
            dy = torch.randn(1, steps, 6, 64).transpose(1, 2)
            with torch.no_grad():
                forward = median(turns, lambda: scaled_dot_product_attention(q, k, v, is_causal=causal))
            y = scaled_dot_product_attention(q, k, v, is_causal=causal)
            backward = median(turns, lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
            print(f"{steps:<8}{'yes' if causal else 'no':9}{forward:10.3f}{backward:10.3f}")


if __name__ == "__main__":
    main()
