"""Times PyTorch's whole steps of a network of fully connected layers, on random data in memory.

dense_step.py JSON: {"layers": [784, 1024, 10], "image": false, "mini_batch": 128, "solver": "sgdm",
"threads": 2, "seconds": 3}. Prints JSON: seconds of a step and processor seconds of a step, by the
way it was written (eager, compiled, each also with bf16 autocast where the processor has it).
"""

import json
import resource
import statistics
import sys
import time

import torch
from torch import nn

WARM_UP = 3


def network(layers):
    parts = []
    for inputs, outputs in zip(layers, layers[1:]):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def optimizer_of(model, solver):
    if solver == "adam":
        return torch.optim.Adam(model.parameters(), lr=1e-3)
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def time_steps(job, compiled, narrow):
    torch.manual_seed(0)
    model = network(job["layers"]).train()
    step_model = torch.compile(model) if compiled else model
    x = torch.randn(job["mini_batch"], job["layers"][0])
    y = x if job["image"] else torch.randint(job["layers"][-1], (job["mini_batch"],))
    loss = nn.MSELoss() if job["image"] else nn.CrossEntropyLoss()
    optimizer = optimizer_of(model, job["solver"])
    times, begin, used = [], 0, 0
    while len(times) < WARM_UP + 3 or time.perf_counter() - begin < job["seconds"]:
        if len(times) == WARM_UP:
            begin, used = time.perf_counter(), processor_seconds()
        before = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            value = loss(step_model(x), y)
        value.backward()
        optimizer.step()
        times.append(time.perf_counter() - before)
    return {"step": statistics.median(times[WARM_UP:]),
            "processor": (processor_seconds() - used) / (len(times) - WARM_UP)}


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    with open("/proc/cpuinfo") as file:
        has_bf16 = "avx512_bf16" in file.read()
    ways = {"eager": (False, False)}
    if hasattr(torch, "compile"):
        ways["compiled"] = (True, False)
    if has_bf16:
        ways |= {f"{name}, bf16": (compiled, True) for name, (compiled, _) in ways.items()}
    print(json.dumps({"version": torch.__version__,
                      "ways": {name: time_steps(job, *way) for name, way in ways.items()}}))


if __name__ == "__main__":
    main()
