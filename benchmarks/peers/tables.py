#!/usr/bin/env python3
"""Regression on tables: errors of Lockstep, PyTorch and scikit-learn with the same recipe.

usage: tables.py PATH_OF_LOCKSTEP [--seeds N]

Needs PyTorch and scikit-learn. The tables are scikit-learn's diabetes (442 rows), Friedman's first
function (2,000 rows, noise of deviation 1), and one like that of California's housing (20,000 rows,
8 features, drawn here): skewed features, interactions, an effect of the location, noise and a price
that is cut off. Four fifths are for training, the rest is for the test. All train the same network
with Adam: 64 ReLU units, features with mean 0 and deviation 1. R2 is the percentage of the test's
variance that is predicted; the errors are standard errors of the means over the seeds.
"""

import argparse
import json
import math
import pathlib
import statistics
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


def housing(rows=20000):
    """A table like that of California's housing: prices in 100,000 dollars, at most 5."""
    draw = numpy.random.RandomState(0)
    town = draw.randint(6, size=rows)  # people live in and around six towns
    towns = draw.uniform([32.5, -124], [42, -114], (6, 2))
    latitude, longitude = (towns[town] + draw.normal(0, 0.6, (rows, 2))).T
    income = draw.gamma(3.5, 1.1, rows)
    age = numpy.round(draw.uniform(1, 52, rows))
    rooms = draw.lognormal(1.65, 0.25, rows) + 0.15 * income
    bedrooms = rooms * draw.uniform(0.15, 0.25, rows)
    people = draw.lognormal(7, 0.75, rows)
    household = draw.lognormal(1.05, 0.25, rows)
    price = numpy.exp(0.55 * numpy.log1p(income) + 0.02 * income * (rooms / household - 2) +
                      0.004 * age * (town < 3) + 0.35 * numpy.sin(2 * latitude) * numpy.cos(longitude) -
                      0.05 * (numpy.log(people) - 7) * (household - 3) - 0.2 + draw.normal(0, 0.2, rows))
    return numpy.column_stack([income, age, rooms, bedrooms, people, household, latitude, longitude]), \
        numpy.minimum(price, 5)


def tables():
    """Name, features, targets and epochs."""
    diabetes = load_diabetes(scaled=False)
    yield "diabetes", diabetes.data, diabetes.target / 100, 100
    yield "friedman", *make_friedman1(2000, noise=1, random_state=0), 100
    yield "housing", *housing(), 20


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
    network = MLPRegressor(hidden_layer_sizes=(UNITS,), alpha=0, batch_size=BATCH, learning_rate_init=RATE,
                           max_iter=epochs, random_state=seed, tol=0, n_iter_no_change=epochs)
    network.fit((x - mean) / deviation, y)
    return float(numpy.sqrt(((network.predict((xt - mean) / deviation) - yt) ** 2).mean()))


def cell(errors, deviation):
    """The mean RMSE and R2 in percent, each with its standard error."""
    shares = [100 * (1 - (error / deviation) ** 2) for error in errors]
    return "".join(f"{statistics.mean(values):>{width}.{digits}f} ({standard_error(values):.{digits}f})"
                   for values, width, digits in ((errors, 7, 4), (shares, 8, 2)))


def standard_error(values):
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def main():
    warnings.filterwarnings("ignore")  # that scikit-learn has not converged
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="append", help="only this one; repeat for several")
    options = parser.parse_args()
    command = str(pathlib.Path(options.command).resolve())
    torch.set_num_threads(1)  # the layers are small
    print(f"{'table':<10} {'deviation':>9} " +
          " ".join(f"{name:>30}" for name in ("Lockstep", "PyTorch", "scikit-learn")) +
          "   test RMSE (error), R2 in % (error), means of seeds")
    for name, x, y, epochs in tables():
        if options.table and name not in options.table:
            continue
        order = numpy.random.RandomState(0).permutation(len(x))
        cut = len(x) * 4 // 5
        train, test = (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            write(folder / "train.csv", *train)
            write(folder / "test.csv", *test)
            seeds = range(1, options.seeds + 1)
            found = [[of_lockstep(command, folder, x.shape[1], epochs, s) for s in seeds],
                     [of_torch(train, test, epochs, s) for s in seeds],
                     [of_sklearn(train, test, epochs, s) for s in seeds]]
        deviation = test[1].std()
        print(f"{name:<10} {deviation:>9.4f} " + " ".join(f"{cell(errors, deviation):>30}" for errors in found),
              flush=True)


if __name__ == "__main__":
    main()
