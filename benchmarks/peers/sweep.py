#!/usr/bin/env python3
"""Time to the winner of a sweep beside Optuna with PyTorch: the same trials, both with successive halving.

Trials are S3's networks (depth, learning rate, momentum) on some CIFAR-10 images. Lockstep: `lockstep
sweep`, with augmentation, receipts and folders, decoding included. Optuna: its SuccessiveHalvingPruner
with the same first rung and factor, two trials at once in threads of PyTorch, the images decoded once
and kept as floats, no augmentation, each depth in the layout that is faster. It gets Lockstep's trials
(study.enqueue_trial), so both compare the same parameters. Needs Optuna, PyTorch and Pillow (PyPI).
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import optuna
import torch
from PIL import Image
from torch import nn

import lockstep_runs

MINI_BATCH = 128


def gather(data, folder, images):
    """Links to the first `images` training images, by class."""
    for source in sorted(pathlib.Path(data, "cifar10", "train").iterdir()):
        place = pathlib.Path(folder, source.name)
        place.mkdir(parents=True)
        for image in sorted(source.iterdir())[:images // 10]:
            (place / image.name).symlink_to(image.resolve())


def write_job(path, images, arguments):
    text = pathlib.Path(lockstep_runs.job_path("cifar10_s3")).read_text(encoding="utf-8")
    text = text.replace('train = "cifar10/train"', f"train = {json.dumps(str(images))}")
    text = text.replace('test = "cifar10/test"', "").replace("validation_fraction = 0.1", "validation_fraction = 0.2")
    text = text.replace("max_epochs = 30", f"max_epochs = {arguments.epochs}")
    path.write_text(text + f"""
[sweep]
method = "successive-halving"
trials = {arguments.trials}
min_epochs = 1
reduction = {arguments.reduction}
seed = {arguments.seed}
[sweep.parameters]
depth = [1, 2, 3, 4]
initial_learning_rate = {{ low = 0.005, high = 0.5, scale = "log" }}
momentum = {{ low = 0.7, high = 0.95 }}
""", encoding="utf-8")


def sweep_of_lockstep(arguments, job, out):
    """Seconds, rows of the table of trials, epochs in all."""
    begin = time.perf_counter()
    subprocess.run([arguments.command, "sweep", job, "--workers", str(arguments.workers), "--quiet", "--not-recorded",
                    "--out", out], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    with open(os.path.join(out, "trials.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return seconds, rows, sum(int(row["epochs"]) for row in rows)


def network(depth):
    width, layers, channels = round(16 / depth ** 0.5), [], 3
    for level in range(3):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width << level, 3, padding=1), nn.BatchNorm2d(width << level),
                       nn.ReLU(inplace=True)]
            channels = width << level
        layers += [nn.MaxPool2d(2, 2) if level < 2 else nn.AvgPool2d(8)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, 10))


def step(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def faster_layout(depth):
    times = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        model = network(depth).to(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.randn(MINI_BATCH, 3, 32, 32).contiguous(memory_format=layout)
        y = torch.randint(10, (MINI_BATCH,))
        for _ in range(2):
            step(model, optimizer, x, y)
        took = []
        for _ in range(3):
            begin = time.perf_counter()
            step(model, optimizer, x, y)
            took.append(time.perf_counter() - begin)
        times[layout] = min(took)
    return min(times, key=times.get)


def read_images(folder):
    import numpy
    xs, ys = [], []
    for label, place in enumerate(sorted(pathlib.Path(folder).iterdir())):
        for image in sorted(place.iterdir()):
            xs.append(numpy.asarray(Image.open(image).convert("RGB")))
            ys.append(label)
    x = torch.from_numpy(numpy.stack(xs)).permute(0, 3, 1, 2).float() / 255
    return x - x.mean(), torch.tensor(ys)


def sweep_of_optuna(arguments, images, rows, layouts):
    """Seconds, best validation accuracy, epochs in all."""
    begin = time.perf_counter()
    x, y = read_images(images)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(arguments.seed))
    held, kept = order[:len(y) // 5], order[len(y) // 5:]
    epochs = []

    def objective(trial):
        depth = trial.suggest_int("depth", 1, 4)
        rate = trial.suggest_float("initial_learning_rate", 0.005, 0.5, log=True)
        momentum = trial.suggest_float("momentum", 0.7, 0.95)
        layout = layouts[depth]
        model = network(depth).to(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
        generator = torch.Generator().manual_seed(trial.number)
        for epoch in range(1, arguments.epochs + 1):
            model.train()
            shuffled = kept[torch.randperm(len(kept), generator=generator)]
            for at in range(0, len(shuffled) - MINI_BATCH + 1, MINI_BATCH):
                rows_here = shuffled[at:at + MINI_BATCH]
                step(model, optimizer, x[rows_here].contiguous(memory_format=layout), y[rows_here])
            model.eval()
            with torch.no_grad():
                right = sum(int((model(x[part].contiguous(memory_format=layout)).argmax(1) == y[part]).sum())
                            for part in held.split(MINI_BATCH))
            accuracy = right / len(held)
            epochs.append(1)
            trial.report(accuracy, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned()
        return accuracy

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=arguments.seed),
                                pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1,
                                                                              reduction_factor=arguments.reduction))
    for row in rows:
        study.enqueue_trial({"depth": int(row["depth"]), "momentum": float(row["momentum"]),
                             "initial_learning_rate": float(row["initial_learning_rate"])})
    study.optimize(objective, n_trials=len(rows), n_jobs=arguments.workers)
    return time.perf_counter() - begin, study.best_value, len(epochs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND)
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), help="holds cifar10/train/<class>/")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--trials", type=int, default=18)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--reduction", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.data:
        sys.exit("give --data, or set LOCKSTEP_TEST_DATA")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    torch.set_num_threads(1)
    layouts = {depth: faster_layout(depth) for depth in (1, 2, 3, 4)}
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before; Optuna {optuna.__version__}, PyTorch "
          f"{torch.__version__}; {arguments.trials} trials of at most {arguments.epochs} epochs, {arguments.images} images")
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        images = pathlib.Path(folder, "images")
        gather(arguments.data, images, arguments.images)
        job = pathlib.Path(folder, "job.toml")
        write_job(job, images, arguments)
        for number in range(arguments.rounds):
            seconds, rows, epochs = sweep_of_lockstep(arguments, job, os.path.join(folder, f"out{number}"))
            best = max(float(row["validation.accuracy"]) for row in rows if row["state"] == "finished")
            ours.append(seconds)
            print(f"Lockstep  {seconds:7.2f} s, {epochs} epochs, {seconds / epochs:.3f} s each, best {best:.3f}", flush=True)
            seconds, best, epochs = sweep_of_optuna(arguments, images, rows, layouts)
            theirs.append(seconds)
            print(f"Optuna    {seconds:7.2f} s, {epochs} epochs, {seconds / epochs:.3f} s each, best {best:.3f}", flush=True)
    print(f"Optuna / Lockstep {statistics.median(theirs) / statistics.median(ours):.2f}")


if __name__ == "__main__":
    main()
