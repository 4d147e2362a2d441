"""One measurement of PyTorch for gpu.py: the seconds of a training step, or how fast the device
multiplies and copies. The last line of the output is JSON.

Each measurement is a separate process. PyTorch's compiler silently stops compiling after some
networks, and PyTorch loads the libraries that it was built for.

usage: gpu_step.py step DEVICE WIDTH DEPTH MINI_BATCH PRECISION WAY SECONDS
       gpu_step.py ceilings DEVICE PRECISION
"""

import json
import statistics
import sys
import time

import torch
from torch import nn

from newest_step import MOMENTUM, RATE, torch_network

WARM_UP = 20
# Lockstep's precision: what autocast makes of fp32, and whether products may use TF32.
PRECISIONS = {"bf16": (torch.bfloat16, True), "tf32": (None, True), "fp16": (torch.float16, True),
              "fp32": (None, False)}


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(step, device, seconds):
    """Of a step: the median of groups of steps that take some hundredths of a second."""
    for _ in range(WARM_UP if device == "cuda" else 2):
        step()
    wait(device)
    before = time.perf_counter()
    step()
    wait(device)
    group = max(1, int(0.05 / (time.perf_counter() - before)))
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        for _ in range(group):
            step()
        wait(device)
        times.append((time.perf_counter() - before) / group)
    return statistics.median(times)


def captured(step):
    """The step recorded in one CUDA graph, as a function that replays it."""
    stream = torch.cuda.Stream()  # the default stream cannot be captured
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def torch_step(device, width, depth, mini_batch, precision, way):
    narrow, tf32 = PRECISIONS[precision]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    model = torch_network(width, depth).to(device).to(memory_format=torch.channels_last)
    x = torch.randn(mini_batch, 3, 32, 32, device=device)
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (mini_batch,), device=device)
    fused = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, **fused)
    loss = nn.CrossEntropyLoss()
    scaler = torch.cuda.amp.GradScaler(enabled=precision == "fp16" and device == "cuda")

    def value(x, y):
        with torch.autocast(device, dtype=narrow or torch.bfloat16, enabled=narrow is not None):
            return loss(model(x), y)
    if way == "compiled":
        value = torch.compile(value, mode="max-autotune")  # with CUDA graphs, without the optimizer
    elif way == "captured" and device == "cuda":  # a processor runs the step as it comes
        value = torch.compile(value, mode="max-autotune-no-cudagraphs")

    def step():
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(value(x, y)).backward()
        scaler.step(optimizer)
        scaler.update()
    return captured(step) if way == "captured" and device == "cuda" else step


def ceilings(device, precision):
    """Operations and bytes a second."""
    narrow, tf32 = PRECISIONS[precision]
    torch.backends.cuda.matmul.allow_tf32 = tf32
    n, count = (8192, 1 << 28) if device == "cuda" else (1024, 1 << 24)
    a = torch.randn(n, n, device=device, dtype=narrow if device == "cuda" and narrow else None)
    x = torch.empty(count, device=device)
    y = torch.empty_like(x)
    return {"operations": 2 * n ** 3 / seconds_of(lambda: a @ a, device, 0.5),
            "bytes": 2 * 4 * count / seconds_of(lambda: y.copy_(x), device, 0.5)}


def main():
    if len(sys.argv) == 9 and sys.argv[1] == "step":
        device, width, depth, mini_batch, precision, way, seconds = sys.argv[2:]
        step = torch_step(device, int(width), int(depth), int(mini_batch), precision, way)
        result = {"seconds": seconds_of(step, device, float(seconds))}
    elif len(sys.argv) == 4 and sys.argv[1] == "ceilings":
        result = ceilings(*sys.argv[2:])
    else:
        raise SystemExit("usage: " + __doc__.split("usage: ")[1].strip())
    result["version"] = torch.__version__
    result["device"] = torch.cuda.get_device_name() if sys.argv[2] == "cuda" else "cpu"
    print(json.dumps(result))


if __name__ == "__main__":
    main()
