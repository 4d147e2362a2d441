#!/usr/bin/env python3
"""Regression on tables: errors of Lockstep, PyTorch and scikit-learn with the same recipe.

usage: tables.py PATH_OF_LOCKSTEP [--seeds N]

Needs PyTorch and scikit-learn. The tables are scikit-learn's diabetes (442 rows) and Friedman's
first function (2,000 rows, noise of deviation 1). Four fifths are for training, the rest is for the
test. All train the same network with Adam: 64 ReLU units, features with mean 0 and deviation 1.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import warnings

import numpy
import torch
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.neural_network import MLPRegressor

UNITS, RATE, BATCH = 64, 0.005, 32
JOB = """
[data]
train = "train.csv"
target_columns = "y"
[network]
loss = "mean_squared_error"
layers = [
  {{ type = "feature_input", features = {features}, normalization = "z-score" }},
  {{ type = "fully_connected", units = {units} }},
  {{ type = "relu" }},
  {{ type = "fully_connected", units = 1 }},
]
[training]
solver = "adam"
initial_learning_rate = {rate}
mini_batch_size = {batch}
max_epochs = {epochs}
seed = {seed}
l2 = 0
shuffle = "every-epoch"
last_mini_batch = "keep"
"""


def tables():
    diabetes = load_diabetes(scaled=False)
    yield "diabetes", diabetes.data, diabetes.target / 100, 100
    x, y = make_friedman1(2000, noise=1, random_state=0)
    yield "friedman", x, y, 100


def write(path, x, y):
    names = [f"x{i}" for i in range(x.shape[1])] + ["y"]
    numpy.savetxt(path, numpy.column_stack([x, y]), delimiter=",", header=",".join(names), comments="", fmt="%.9g")


def of_lockstep(command, folder, features, epochs, seed):
    (folder / "job.toml").write_text(
        JOB.format(features=features, units=UNITS, rate=RATE, batch=BATCH, epochs=epochs, seed=seed))
    run = f"run{seed}"
    subprocess.run([command, "train", "job.toml", "--out", run, "--quiet"], cwd=folder, check=True, capture_output=True)
    done = subprocess.run([command, "evaluate", run, "test.csv", "--metrics", "rmse", "--json"], cwd=folder,
                          check=True, capture_output=True)
    return json.loads(done.stdout)["metrics"]["rmse"]


def of_torch(train, test, epochs, seed):
    torch.manual_seed(seed)
    (x, y), (xt, yt) = train, test
    mean, deviation = x.mean(0), x.std(0)
    tensor = lambda a: torch.tensor(a, dtype=torch.float32)
    x, xt, y, yt = tensor((x - mean) / deviation), tensor((xt - mean) / deviation), tensor(y), tensor(yt)
    network = torch.nn.Sequential(torch.nn.Linear(x.shape[1], UNITS), torch.nn.ReLU(), torch.nn.Linear(UNITS, 1))
    for layer in (network[0], network[2]):  # as the two others begin
        torch.nn.init.xavier_uniform_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(network(x[rows])[:, 0], y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return float(((network(xt)[:, 0] - yt) ** 2).mean().sqrt())


def of_sklearn(train, test, epochs, seed):
    (x, y), (xt, yt) = train, test
    mean, deviation = x.mean(0), x.std(0)
    network = MLPRegressor(hidden_layer_sizes=(UNITS,), alpha=0, batch_size=BATCH, learning_rate_init=RATE, max_iter=epochs,
                           random_state=seed, tol=0, n_iter_no_change=epochs)
    network.fit((x - mean) / deviation, y)
    return float(numpy.sqrt(((network.predict((xt - mean) / deviation) - yt) ** 2).mean()))


def main():
    warnings.filterwarnings("ignore")  # that scikit-learn has not converged
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    command = str(pathlib.Path(options.command).resolve())
    print(f"{'table':<10} {'deviation':>9} {'Lockstep':>9} {'PyTorch':>9} {'scikit':>9}   test RMSE, mean of seeds")
    for name, x, y, epochs in tables():
        order = numpy.random.RandomState(0).permutation(len(x))
        cut = len(x) * 4 // 5
        train, test = (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            write(folder / "train.csv", *train)
            write(folder / "test.csv", *test)
            seeds = range(1, options.seeds + 1)
            found = [numpy.mean([of_lockstep(command, folder, x.shape[1], epochs, s) for s in seeds]),
                     numpy.mean([of_torch(train, test, epochs, s) for s in seeds]),
                     numpy.mean([of_sklearn(train, test, epochs, s) for s in seeds])]
        print(f"{name:<10} {test[1].std():>9.4f} " + " ".join(f"{value:>9.4f}" for value in found), flush=True)


if __name__ == "__main__":
    main()
