#!/usr/bin/python3
"""Random networks beside PyTorch: each result's error against fp64 may be a few times PyTorch
fp32's.

usage: beside_torch.py PROGRAM [--count N] [--seed S] [--first I] [--only I] [--case FILE]
                       [--plants] [--no-shrinking]

PROGRAM is `random_networks`. Exit code 0: nothing found. Findings are reported with their numbers:
`PROGRAM show --seed S --only I` prints a network, `--only I` here judges it again. With --plants
the reference makes one mistake after the other, and the exit code is 0 where each was found.
"""

import argparse
import collections
import copy
import json
import subprocess
import sys
import tempfile
import time

import numpy
import torch

import reference
from frames import Frames, distance

FACTOR = 4  # times PyTorch fp32's error
# For cases that may use Winograd's algorithm, which rounds more. The op tests bound it by 1e-5.
FACTOR_OF_WINOGRAD = 40
FLOOR = 8 * 2.0 ** -24  # relative, by norm
# If PyTorch itself loses this many digits, rounding is amplified by an unpredictable factor.
AMPLIFIED, FACTOR_OF_AMPLIFIED = 1e-5, 40
FACTOR_OF_CHAOS = 1000  # if none of PyTorch's digits is right
TINY = 1e-15  # the error of fp64 when 1 is subtracted from a value near 1
RERUNS = (6, 24)


def takes_winograd(head):
    """3x3 windows with stride 1. The choice also depends on channels and extents."""
    for layer in head["layers"]:
        if layer["type"] == "convolution2d" and layer["kernel"] == [3, 3] and \
                layer["stride"] == [1, 1] and head.get("winograd"):
            return True
    return False


class Judge:
    def __init__(self, plant=None):
        self.plant = reference.Plant(plant)
        self.counts = collections.Counter()
        self.worst = collections.defaultdict(float)

    def problems(self, head, arrays):
        """The problems, as a list of texts that begin with a kind."""
        if "error" in head:
            return ["refused: " + head["error"]]
        form = head["form"]
        compute = reference.training if form == "training" else reference.tape
        ours = (reference.training_of_ours if form == "training" else reference.tape_of_ours)(
            head, arrays)
        narrow = head.get("options", {}).get("precision") == "bf16"
        wanted = compute(head, arrays, torch.float64, plant=self.plant)
        noise = numpy.random.RandomState(head["case"] % 2 ** 32)
        first = compute(head, arrays, torch.float32, plant=self.plant, narrow=narrow)
        if not all(numpy.isfinite(v).all() for v in first.values()):
            self.counts["beyond fp32"] += 1
            return []
        allowed = {name: distance(first[name], wanted[name]) for name in wanted
                   if first[name].shape == wanted[name].shape}
        factor = FACTOR_OF_WINOGRAD if takes_winograd(head) else FACTOR
        found = self.compare(ours, wanted, allowed, factor)
        # PyTorch's error may be small by chance if rounding is amplified, or near a kink. Runs
        # again with inputs, values and the results of all layers changed by a unit in the last
        # place.
        for times in RERUNS:
            if not found:
                break
            for _ in range(times):
                moved = compute(head, arrays, torch.float32, noise, self.plant, narrow)
                for name in allowed:
                    error = distance(moved[name], wanted[name])
                    if error == error:
                        allowed[name] = max(allowed[name], error)
            found = self.compare(ours, wanted, allowed, factor)
        found += self.unmoved(head, arrays, ours, wanted)
        if form == "training":
            found += self.updates(head, arrays)
        return found

    def compare(self, ours, wanted, allowed, factor):
        found = []
        for name, value in wanted.items():
            if name not in ours or ours[name].shape != value.shape:
                found.append(f"wrong: {name} is missing or has another shape")
                continue
            error = distance(ours[name], value)
            size = float(numpy.linalg.norm(value))
            times = factor
            if allowed[name] > AMPLIFIED * size:
                chaos = allowed[name] > size
                times = max(times, FACTOR_OF_CHAOS if chaos else FACTOR_OF_AMPLIFIED)
            most = times * allowed[name] + FLOOR * size + TINY
            if name.endswith(".variance"):  # of constants: the rounding of their mean, squared
                mean = wanted[name.replace(".variance", ".mean")]
                most += (8 * FLOOR * float(numpy.linalg.norm(mean))) ** 2
            if not error <= most:  # also true for NaN
                found.append(f"wrong: {name}: off by {error / max(size, 1e-300):.2g}, PyTorch fp32 "
                             f"by {allowed[name] / max(size, 1e-300):.2g} (norm {size:.3g})")
        return found

    def unmoved(self, head, arrays, ours, wanted):
        """States that no statistics follow do not change."""
        found = []
        for name, value in ours.items():
            if name.startswith("state ") and name not in wanted:
                if not numpy.array_equal(value, arrays["before." + name[6:]].astype(float)):
                    found.append(f"wrong: {name} has changed")
        return found

    def updates(self, head, arrays):
        found = []
        for parameter in head.get("parameters", []):
            results = reference.update(head, arrays, parameter["name"], self.plant)
            for name, (value, slack) in results.items():
                error = distance(arrays[name].astype(float), value)
                if not error <= slack:
                    found.append(f"wrong: update: {name} is off by {error:.3g}, at most "
                                 f"{slack:.3g} wanted")
        return found


def judged_alone(program, judge, case):
    """The problems of one case that is given as JSON."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(case, file)
        file.flush()
        frames, found = Frames([program, "frames", "--case", file.name]), []
        for head, arrays in frames:
            found += judge.problems(head, arrays)
        code = frames.end()
    return found + ([f"crashed: exit code {code}"] if code else [])


def without(case, name):
    """The case without a layer. Layers that read it read its first input instead."""
    smaller = copy.deepcopy(case)
    layers = smaller["layers"]
    gone = next(layer for layer in layers if layer["name"] == name)
    if "inputs" not in gone or any(layer.get("layer") == name for layer in layers):
        return None
    layers.remove(gone)
    for layer in layers:
        layer["inputs"] = [gone["inputs"][0] if i == name else i for i in layer.get("inputs", [])]
        if not layer["inputs"]:
            del layer["inputs"]
    return smaller


def shrunk(program, judge, case, kind):
    """Removes layers as long as a finding of the same kind remains."""
    smaller = True
    while smaller:
        smaller = False
        tries = [without(case, layer["name"]) for layer in reversed(case["layers"])]
        if case["rows"] > 1:
            fewer = dict(case, rows=case["rows"] // 2)
            if "training" in fewer:
                size = min(fewer["training"]["shard_size"], fewer["rows"])
                fewer["training"] = dict(fewer["training"], mini_batch_size=fewer["rows"],
                                         shard_size=size)
            tries.append(fewer)
        for one in filter(None, tries):
            if any(text.startswith(kind) for text in judged_alone(program, judge, one)):
                case, smaller = one, True
                break
    return case


def kind_of(problem):
    return problem[:40] if problem.startswith("refused") else problem.split(":")[0]


def tell(program, judge, seed, number, found, shrink):
    print(f"case {number} of seed {seed}:", flush=True)
    for text in found[:6]:
        print("   ", text)
    described = subprocess.run([program, "describe", "--seed", str(seed), "--only", str(number)],
                               capture_output=True)
    if not shrink or described.returncode != 0:  # the generator itself may have crashed
        return
    case = shrunk(program, judge, json.loads(described.stdout), kind_of(found[0]))
    print("    smaller:", json.dumps({k: v for k, v in case.items() if k != "layers"}))
    for layer in case["layers"]:
        print("       ", json.dumps(layer))


def find_plants(options):
    """Whether each mistake of the reference is found in one of the networks."""
    sound, missing = Judge(), {name: Judge(name) for name in reference.Plant.NAMES}
    frames = Frames([options.program, "frames", "--seed", str(options.seed),
                     "--first", str(options.first), "--count", str(options.count)])
    for head, arrays in frames:
        if not missing:
            break
        if sound.problems(head, arrays):
            continue  # a case that fails anyway shows nothing
        for name in [name for name, judge in missing.items() if judge.problems(head, arrays)]:
            del missing[name]
            print(f"case {head['case']}: a wrong {name} is found", flush=True)
    frames.end()
    for name in missing:
        print(f"a wrong {name} is not found in {options.count} networks")
    return 1 if missing else 0


def run(options):
    judge = Judge()
    finds, frames_seen, started = {}, 0, time.time()
    if options.case:
        found = judged_alone(options.program, judge, json.load(open(options.case)))
        print("\n".join(found) or "nothing found")
        return 1 if found else 0
    first, last = options.first, options.first + options.count
    while first < last:
        frames = Frames([options.program, "frames", "--seed", str(options.seed),
                         "--first", str(first), "--count", str(last - first)])
        number = first - 1
        for head, arrays in frames:
            number = head["case"]
            frames_seen += 1
            judge.counts[head["form"]] += 1
            found = judge.problems(head, arrays)
            if found:
                print(f"case {number} of seed {options.seed}: {found[0]}", file=sys.stderr,
                      flush=True)
                finds.setdefault(number, []).extend(found)
            if frames_seen % 500 == 0:
                print(f"{number - options.first + 1} networks, {len(finds)} finds, "
                      f"{time.time() - started:.0f} s", file=sys.stderr, flush=True)
        code = frames.end()
        first = last if code == 0 else number + 2
        if code != 0:
            finds.setdefault(number + 1, []).append(f"crashed: exit code {code}")
    for place, (number, found) in enumerate(sorted(finds.items())):
        tell(options.program, judge, options.seed, number, found,
             options.shrinking and place < options.shrink_at_most)
    counts = ", ".join(f"{n} {name}" for name, n in sorted(judge.counts.items()))
    print(f"{options.count} networks from seed {options.seed}: {len(finds)} finds "
          f"({counts}; {time.time() - started:.0f} s)")
    return 1 if finds else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--case")
    parser.add_argument("--plants", action="store_true")
    parser.add_argument("--no-shrinking", dest="shrinking", action="store_false")
    parser.add_argument("--shrink-at-most", type=int, default=10)
    options = parser.parse_args()
    if options.only is not None:
        options.first, options.count = options.only, 1
    torch.set_num_threads(1)
    return find_plants(options) if options.plants else run(options)


if __name__ == "__main__":
    sys.exit(main())
